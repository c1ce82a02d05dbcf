// NumPy's files as typed arrays, and rows of them as tensors of either onnxruntime. Nothing here needs a package.

/** dtype of training.json -> dtype of numpy's files, of onnxruntime's tensors, and the array that holds it. */
const DTYPES = {
  float32: ["<f4", "float32", Float32Array],
  float64: ["<f8", "float64", Float64Array],
  float16: ["<f2", "float16", Uint16Array],
  int64: ["<i8", "int64", BigInt64Array],
  int32: ["<i4", "int32", Int32Array],
  int16: ["<i2", "int16", Int16Array],
  int8: ["|i1", "int8", Int8Array],
  uint64: ["<u8", "uint64", BigUint64Array],
  uint32: ["<u4", "uint32", Uint32Array],
  uint16: ["<u2", "uint16", Uint16Array],
  uint8: ["|u1", "uint8", Uint8Array],
  bool: ["|b1", "bool", Uint8Array],
};

const product = (sizes) => sizes.reduce((a, b) => a * b, 1);

/** A text as a terminal may have it: names in files are anybody's, and control characters in them would command it. */
export const shown = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`);

/** The files of a model in training.json, which lie in the bundle's own folder; names that lead elsewhere are refused. */
export function filesOf(entry) {
  return [entry.model, ...entry.data].map((name) => {
    if (typeof name !== "string" || !/^\w[\w.-]*\.(onnx|data)$/.test(name))
      throw new Error(`training.json requires names of .onnx and .data files beside it, got ${JSON.stringify(name)}`);
    return name;
  });
}

/** The arrays of a .npz file by name: `{dtype, shape, data}`. */
export async function readNpz(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let end = bytes.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end--;
  if (end < 0) throw new Error("a .npz file of arrays is required, got another file");
  const arrays = Object.create(null);
  let entry = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left--) {
    const [method, size] = [view.getUint16(entry + 10, true), view.getUint32(entry + 20, true)];
    const lengths = [28, 30, 32].map((at) => view.getUint16(entry + at, true));
    const name = new TextDecoder().decode(bytes.subarray(entry + 46, entry + 46 + lengths[0]));
    const local = view.getUint32(entry + 42, true);
    const start = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    const packed = bytes.subarray(start, start + size);
    arrays[name.replace(/\.npy$/, "")] = readNpy(method === 0 ? packed : await inflated(packed));
    entry += 46 + lengths[0] + lengths[1] + lengths[2];
  }
  return arrays;
}

async function inflated(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The array of a .npy file. */
export function readNpy(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const long = bytes[6] > 1;
  const length = long ? view.getUint32(8, true) : view.getUint16(8, true);
  const start = (long ? 12 : 10) + length;
  const header = new TextDecoder().decode(bytes.subarray(long ? 12 : 10, start));
  const [, descr] = header.match(/'descr':\s*'([^']+)'/) ?? [];
  const [dtype, [, , Kind]] = Object.entries(DTYPES).find(([, [own]]) => own === descr) ?? ["", []];
  if (!Kind || header.includes("'fortran_order': True"))
    throw new Error(`an array of numbers in C's order is required, got ${header.trim()}`);
  const [, sizes] = header.match(/'shape':\s*\(([^)]*)\)/) ?? ["", "?"];
  const shape = sizes.split(",").filter((part) => part.trim()).map(Number);
  if (bytes.length - start !== product(shape) * Kind.BYTES_PER_ELEMENT)
    throw new Error(`an array of shape [${shape.join(", ")}] requires as many numbers, got ${bytes.length - start} bytes`);
  return { dtype, shape, data: new Kind(bytes.slice(start).buffer) };
}

/** The axis of an input along which samples lie: the first one whose size is open. */
const axisOf = (input) => Math.max(0, input.shape.findIndex((size) => typeof size !== "number"));

/** How many samples the arrays hold, which is as many in each. */
export function samplesOf(inputs, arrays) {
  const counts = inputs.map((input) => {
    const array = arrays[input.name];
    if (!array) throw new Error(`input '${input.name}' requires an array of that name in the data`);
    const sizes = input.shape.map((size) => size ?? "?");
    const misfit = (size, axis) => typeof size === "number" && size !== array.shape[axis];
    if (array.shape.length !== sizes.length || sizes.some(misfit))
      throw new Error(`input '${input.name}' requires shape [${sizes.join(", ")}], got [${array.shape.join(", ")}]`);
    return array.shape[axisOf(input)];
  });
  if (new Set(counts).size > 1) {
    const told = inputs.map((input, place) => `${counts[place]} of '${input.name}'`);
    throw new Error(`the data requires as many samples of every input, got ${told.join(", ")}`);
  }
  return counts[0];
}

/** Inputs as tensors that hold some of the samples. */
export function feedsOf(ort, inputs, arrays, samples) {
  return Object.fromEntries(inputs.map((input) => [input.name, tensorOf(ort, input, arrays[input.name], samples)]));
}

/** Whether numbers of one dtype can stand for those of another; float16 comes as its bits. */
function fits(dtype, wanted) {
  if (dtype === wanted) return true;
  if (dtype === "float16" || wanted === "float16") return false;
  return wanted.startsWith("float") || !dtype.startsWith("float");
}

function tensorOf(ort, input, array, samples) {
  if (!fits(array.dtype, input.dtype))
    throw new Error(`input '${input.name}' requires ${input.dtype}, got an array of ${array.dtype}`);
  const axis = axisOf(input);
  const [outer, size, inner] = [product(array.shape.slice(0, axis)), array.shape[axis], product(array.shape.slice(axis + 1))];
  const [, type, Kind] = DTYPES[input.dtype];
  const data = new Kind(outer * samples.length * inner);
  const big = data instanceof BigInt64Array || data instanceof BigUint64Array;
  const wanted = big ? BigInt : Number;
  const same = array.dtype === input.dtype;
  let place = 0;
  for (let block = 0; block < outer; block++)
    for (const sample of samples) {
      const begin = (block * size + sample) * inner;
      const row = array.data.subarray(begin, begin + inner);
      data.set(same ? row : Array.from(row, wanted), place);
      place += inner;
    }
  const shape = [...array.shape];
  shape[axis] = samples.length;
  return new ort.Tensor(type, data, shape);
}

/** A number as the tensor of an input such as the learning rate. */
export function scalar(ort, input, value) {
  const [, type, Kind] = DTYPES[input.dtype];
  if (type === "float16") throw new Error(`input '${input.name}' requires float32 or float64, got ${type}`);
  return new ort.Tensor(type, Kind.of(value), []);
}

/** The samples of a step: batches follow one another and begin again at the end. */
export function batch(step, size, count) {
  return Array.from({ length: Math.min(size, count) }, (_, number) => (step * size + number) % count);
}

/** The loss of a step, counted from 1. Weights behind one that is not a number are not numbers either. */
export function lossOf(about, results, step) {
  const loss = results[about.loss].data[0];
  if (!Number.isFinite(loss)) throw new Error(`step ${step}: a finite loss is required, got ${loss}; lower the learning rate or check the data`);
  return loss;
}

/** For each row of a tensor the place of its largest number. */
export function classesOf(tensor) {
  const width = tensor.dims.at(-1);
  const rows = Array.from({ length: tensor.data.length / width }, (_, row) => tensor.data.slice(row * width, (row + 1) * width));
  return rows.map((row) => row.indexOf(row.reduce((a, b) => (b > a ? b : a))));
}

/** Puts trained weights into the bytes of predict.onnx, or of its data: training.json says where they lie. */
export function putWeights(about, state, contents) {
  for (const pair of about.state) {
    if (!pair.predict) continue;
    const { file, offset, length } = pair.predict;
    const { data } = state[pair.input];
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const content = contents[file];
    if (!content || bytes.length !== length || !Number.isSafeInteger(offset) || offset < 0 || offset + length > content.length)
      throw new Error(`'${pair.input}' requires a place for its ${bytes.length} bytes in a file of the model, got ${length} at ${offset} of '${file}'`);
    content.set(bytes, offset);
  }
}
