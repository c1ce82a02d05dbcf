// numpy's files as arrays.
import { arrayOf, type Arrays, dtypeBy, KINDS, type NDArray, product } from "./arrays.js";
import { InvalidInputError, sizes } from "./errors.js";

const END_OF_DIRECTORY = 0x06054b50;
const ENTRY = 0x02014b50;

/**
 * The arrays of a .npz file by name.
 *
 * @throws InvalidInputError it is none, or holds what is no array of numbers in C's order.
 */
export async function readNpz(bytes: Uint8Array): Promise<Arrays> {
  try {
    return await entries(bytes);
  } catch (error) {
    if (error instanceof InvalidInputError) throw error;
    throw new InvalidInputError(`a .npz file of arrays is required, got a damaged one (${(error as Error).message})`);
  }
}

async function entries(bytes: Uint8Array): Promise<Arrays> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let end = bytes.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== END_OF_DIRECTORY) end--;
  if (end < 0) throw new InvalidInputError("a .npz file of arrays is required, got another file");
  const arrays = Object.create(null) as Arrays;
  let entry = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left--) {
    if (view.getUint32(entry, true) !== ENTRY) throw new RangeError("its directory is cut");
    const [method, size] = [view.getUint16(entry + 10, true), view.getUint32(entry + 20, true)];
    const [name, extra, comment] = [28, 30, 32].map((at) => view.getUint16(entry + at, true)) as [
      number,
      number,
      number,
    ];
    const title = new TextDecoder().decode(bytes.subarray(entry + 46, entry + 46 + name));
    const local = view.getUint32(entry + 42, true);
    const start = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    const packed = bytes.subarray(start, start + size);
    arrays[title.replace(/\.npy$/, "")] = readNpy(method === 0 ? packed : await inflated(packed));
    entry += 46 + name + extra + comment;
  }
  return arrays;
}

async function inflated(packed: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([packed as BlobPart]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * The array of a .npy file.
 *
 * @throws InvalidInputError it is none of numbers in C's order.
 */
export function readNpy(bytes: Uint8Array): NDArray {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < 12 || bytes[1] !== 0x4e) throw new InvalidInputError("a .npy file is required, got another file");
  const first = bytes[6]! > 1 ? 12 : 10;
  const start = first + (first === 12 ? view.getUint32(8, true) : view.getUint16(8, true));
  const header = new TextDecoder().decode(bytes.subarray(first, start));
  const dtype = dtypeBy("npy", /'descr':\s*'([^']+)'/.exec(header)?.[1]);
  const axes = /'shape':\s*\(([^)]*)\)/.exec(header)?.[1];
  if (dtype === undefined || axes === undefined || header.includes("'fortran_order': True"))
    throw new InvalidInputError(`an array of numbers in C's order is required, got ${header.trim()}`);
  const shape = axes
    .split(",")
    .filter((size) => size.trim())
    .map(Number);
  const held = bytes.subarray(start);
  if (held.length !== product(shape) * KINDS[dtype].Numbers.BYTES_PER_ELEMENT)
    throw new InvalidInputError(`an array of shape ${sizes(shape)} requires as many numbers, got ${held.length} bytes`);
  return arrayOf(dtype, shape, held);
}
