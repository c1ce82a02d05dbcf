// Arrays of numbers: what goes into a step, what comes out, and what a user may hand over as one.
import { got, InvalidInputError, sizes } from "./errors.js";

export type Dtype =
  | "float32"
  | "float64"
  | "float16"
  | "int64"
  | "int32"
  | "int16"
  | "int8"
  | "uint64"
  | "uint32"
  | "uint16"
  | "uint8"
  | "bool";

export type Numbers =
  | Float32Array
  | Float64Array
  | BigInt64Array
  | Int32Array
  | Int16Array
  | Int8Array
  | BigUint64Array
  | Uint32Array
  | Uint16Array
  | Uint8Array;

/** An array; float16 numbers are held as their bits, bool as bytes. */
export interface NDArray {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly data: Numbers;
}

/** A batch or a state: arrays by name. */
export type Arrays = Record<string, NDArray>;

/** Numbers in lists, as deep as there are axes. */
export type Nested = number | bigint | boolean | readonly Nested[];

/** A tensor of onnxruntime, or whatever else has its members. */
export interface TensorLike {
  readonly data: unknown;
  readonly dims?: readonly number[];
  readonly shape?: readonly number[];
  readonly type?: string;
  readonly dtype?: string;
}

/** What is taken as an array. */
export type ArrayLike = NDArray | TensorLike | Numbers | Uint8ClampedArray | Nested;

interface NumbersConstructor {
  readonly BYTES_PER_ELEMENT: number;
  readonly name: string;
  new (length: number): Numbers;
  new (buffer: ArrayBufferLike, offset: number, length: number): Numbers;
}

/** What a dtype is: `f`, `i`, `u` or `b` as in numpy, its array, its name in .npy and in safetensors files. */
interface Kind {
  readonly letter: "f" | "i" | "u" | "b";
  readonly Numbers: NumbersConstructor;
  readonly npy: string;
  readonly safetensors: string;
}

const kind = (letter: Kind["letter"], Numbers: NumbersConstructor, npy: string, safetensors: string): Kind => ({
  letter,
  Numbers,
  npy,
  safetensors,
});

export const KINDS: Readonly<Record<Dtype, Kind>> = {
  float32: kind("f", Float32Array, "<f4", "F32"),
  float64: kind("f", Float64Array, "<f8", "F64"),
  float16: kind("f", Uint16Array, "<f2", "F16"),
  int64: kind("i", BigInt64Array, "<i8", "I64"),
  int32: kind("i", Int32Array, "<i4", "I32"),
  int16: kind("i", Int16Array, "<i2", "I16"),
  int8: kind("i", Int8Array, "|i1", "I8"),
  uint64: kind("u", BigUint64Array, "<u8", "U64"),
  uint32: kind("u", Uint32Array, "<u4", "U32"),
  uint16: kind("u", Uint16Array, "<u2", "U16"),
  uint8: kind("u", Uint8Array, "|u1", "U8"),
  bool: kind("b", Uint8Array, "|b1", "BOOL"),
};

/** The dtype that a table's column says by some name; `undefined` for one that there is none of. */
export function dtypeBy(column: "npy" | "safetensors", name: unknown): Dtype | undefined {
  return (Object.keys(KINDS) as Dtype[]).find((dtype) => KINDS[dtype][column] === name);
}

export const isDtype = (name: unknown): name is Dtype => typeof name === "string" && Object.hasOwn(KINDS, name);

export const product = (factors: readonly number[]): number => factors.reduce((a, b) => a * b, 1);

export const bytesOf = ({ data }: NDArray): Uint8Array => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

/** An array of bytes, which are copied; there are as many as the shape says. */
export function arrayOf(dtype: Dtype, shape: readonly number[], bytes: Uint8Array): NDArray {
  const { Numbers } = KINDS[dtype];
  const own = new Uint8Array(bytes);
  return { dtype, shape, data: new Numbers(own.buffer, 0, own.byteLength / Numbers.BYTES_PER_ELEMENT) };
}

export const scalar = (dtype: Dtype, value: number): NDArray => ({ dtype, shape: [], data: filled(dtype, [value]) });

/** Whether all numbers are finite; of a float16, which is held as its bits, all bits of the exponent are ones else. */
export function areFinite({ dtype, data }: NDArray): boolean {
  if (dtype === "float16") return data.every((bits: number | bigint) => (Number(bits) & 0x7c00) !== 0x7c00);
  return KINDS[dtype].letter !== "f" || data.every((number: number | bigint) => Number.isFinite(number));
}

/** A number as JavaScript has it. */
export const numberOf = ({ data }: NDArray, place = 0): number => Number(data[place]);

const isBig = (dtype: Dtype): boolean => dtype === "int64" || dtype === "uint64";

function filled(dtype: Dtype, values: readonly (number | bigint)[]): Numbers {
  if (dtype === "float16")
    throw new InvalidInputError("numbers of float16 require their bits in a Uint16Array, got numbers");
  const data = new KINDS[dtype].Numbers(values.length);
  if (isBig(dtype)) values.forEach((value, place) => ((data as BigInt64Array)[place] = BigInt(value)));
  else values.forEach((value, place) => ((data as Float64Array)[place] = Number(value)));
  return data;
}

/** A value as an array with a dtype of its own; `plain` says that it is made of numbers, which have none. */
function read(value: unknown, what: string): NDArray & { readonly plain: boolean } {
  if (ArrayBuffer.isView(value) && !(value instanceof DataView)) {
    const data = numbers(value, undefined, what);
    return { ...data, shape: [data.data.length], plain: false };
  }
  if (typeof value === "object" && value !== null && "data" in value) {
    const { data, dims, shape = dims, type, dtype = type } = value as TensorLike;
    if (!ArrayBuffer.isView(data) || data instanceof DataView || !Array.isArray(shape))
      throw new InvalidInputError(
        `${what} requires an array of numbers: {dtype, shape, data}, got data of ${got(data)}`,
      );
    const held = numbers(data, dtype, what);
    const axes = (shape as unknown[]).map(Number);
    if (product(axes) !== held.data.length || axes.some((size) => !Number.isSafeInteger(size) || size < 0))
      throw new InvalidInputError(
        `${what} requires as many numbers as shape ${sizes(axes)} has, got ${held.data.length}`,
      );
    return { ...held, shape: axes, plain: false };
  }
  return { ...nested(value, what), plain: true };
}

function numbers(data: ArrayBufferView, dtype: string | undefined, what: string): { dtype: Dtype; data: Numbers } {
  const view = data instanceof Uint8ClampedArray ? new Uint8Array(data.buffer, data.byteOffset, data.length) : data;
  const named = view.constructor.name === "Float16Array" ? "float16" : dtype;
  const own =
    named ?? (Object.keys(KINDS) as Dtype[]).find((each) => each !== "float16" && view instanceof KINDS[each].Numbers);
  if (!isDtype(own))
    throw new InvalidInputError(
      `${what} requires numbers of one of the dtypes ${Object.keys(KINDS).join(", ")}, got ${got(own ?? data)}`,
    );
  const { Numbers } = KINDS[own];
  if (view.constructor.name === "Float16Array")
    return { dtype: own, data: new Uint16Array(view.buffer, view.byteOffset, view.byteLength / 2) };
  if (!(view instanceof Numbers))
    throw new InvalidInputError(`${what} requires ${own} in a ${Numbers.name}, got ${got(view)}`);
  return { dtype: own, data: view };
}

function nested(value: unknown, what: string): NDArray {
  const shape: number[] = [];
  for (let each = value; Array.isArray(each); each = (each as unknown[])[0]) shape.push(each.length);
  const flat: (number | bigint | boolean)[] = [];
  const add = (each: unknown, axis: number): void => {
    if (axis < shape.length && Array.isArray(each) && each.length === shape[axis])
      for (const inner of each as unknown[]) add(inner, axis + 1);
    else if (axis === shape.length && ["number", "bigint", "boolean"].includes(typeof each)) flat.push(each as number);
    else
      throw new InvalidInputError(
        `${what} requires an array of numbers, got ${Array.isArray(each) ? "lists of different lengths" : got(each)}`,
      );
  };
  add(value, 0);
  const beyond = flat.find((each) => typeof each === "bigint" && each !== BigInt.asIntN(64, each));
  if (beyond !== undefined)
    throw new InvalidInputError(`${what} requires numbers that int64 holds, got ${got(beyond)}`);
  const whole = flat.every((each) => typeof each !== "number" || Number.isSafeInteger(each));
  const dtype =
    flat.length > 0 && flat.every((each) => typeof each === "boolean")
      ? "bool"
      : whole && flat.length > 0
        ? "int64"
        : "float64";
  return {
    dtype,
    shape,
    data: filled(
      dtype,
      flat.map((each) => (typeof each === "boolean" ? Number(each) : each)),
    ),
  };
}

const ORDER = { b: 0, u: 1, i: 2, f: 3 };

/**
 * A value as onnxruntime takes it: an array of the dtype, or plain numbers that the dtype holds.
 *
 * @throws InvalidInputError it is no array, or one of another dtype, which is a mistake.
 */
export function asArray(value: unknown, dtype: Dtype, what: string): NDArray {
  const { plain, ...array } = read(value, what);
  if (array.dtype === dtype) return array;
  if (plain && array.data.length === 0) return { ...array, dtype, data: new KINDS[dtype].Numbers(0) };
  const from = KINDS[array.dtype].letter;
  const to = KINDS[dtype].letter;
  if (!plain || (ORDER[from] > ORDER[to] && !(from === "i" && to === "u")))
    throw new InvalidInputError(`${what} requires dtype ${dtype}, got ${array.dtype}`);
  const data = filled(dtype, Array.from(array.data as Float64Array));
  const same = to === "f" || Array.from(array.data as Float64Array).every((number, place) => number == data[place]);
  if (!same) throw new InvalidInputError(`${what} requires numbers that ${dtype} holds, got others`);
  return { dtype, shape: array.shape, data };
}

/** A value as an array of whatever dtype it has. */
export function anyArray(value: unknown, what: string): NDArray {
  const { dtype, shape, data } = read(value, what);
  return { dtype, shape, data };
}

/**
 * The same numbers in another dtype: integers in another one or in floating-point numbers, these in others of them.
 *
 * @throws InvalidInputError floating-point numbers would be cut, or the dtype does not hold a number.
 */
export function astype(value: ArrayLike, dtype: Dtype): NDArray {
  const array = anyArray(value, "astype");
  if (array.dtype === dtype) return array;
  const cut = KINDS[array.dtype].letter === "f" && KINDS[dtype].letter !== "f";
  if (cut || array.dtype === "float16" || dtype === "float16")
    throw new InvalidInputError(`an array of ${dtype} is required, got ${array.dtype}, whose numbers would change`);
  const converted = retyped(array, dtype);
  if (
    KINDS[dtype].letter !== "f" &&
    array.data.some((number: number | bigint, place) => number != converted.data[place])
  )
    throw new InvalidInputError(`an array of ${dtype} requires numbers that it holds, got others`);
  return converted;
}

/** The numbers in another dtype, which may be others there. */
export const retyped = ({ shape, data }: NDArray, dtype: Dtype): NDArray => ({
  dtype,
  shape,
  data: filled(dtype, Array.from(data as Float64Array)),
});

/** Some samples, which lie along an axis, copied. */
export function take(array: NDArray, axis: number, rows: Uint32Array | readonly number[]): NDArray {
  const { shape, dtype, data } = array;
  const [outer, size, inner] = [product(shape.slice(0, axis)), shape[axis] ?? 1, product(shape.slice(axis + 1))];
  const taken = new KINDS[dtype].Numbers(outer * rows.length * inner);
  let place = 0;
  for (let block = 0; block < outer; block++)
    for (let number = 0; number < rows.length; number++, place += inner) {
      const begin = (block * size + rows[number]!) * inner;
      (taken as Uint8Array).set((data as Uint8Array).subarray(begin, begin + inner), place);
    }
  return { dtype, shape: shape.map((each, at) => (at === axis ? rows.length : each)), data: taken };
}

/** Several arrays as one, along an axis; they have one shape but for it. */
export function concatenated(arrays: readonly NDArray[], axis: number): NDArray {
  const first = arrays[0]!;
  const count = arrays.reduce((sum, { shape }) => sum + shape[axis]!, 0);
  const outer = product(first.shape.slice(0, axis));
  const data = new KINDS[first.dtype].Numbers(outer * count * product(first.shape.slice(axis + 1)));
  let place = 0;
  for (let block = 0; block < outer; block++)
    for (const array of arrays) {
      const length = array.data.length / outer;
      (data as Uint8Array).set((array.data as Uint8Array).subarray(block * length, (block + 1) * length), place);
      place += length;
    }
  return { dtype: first.dtype, shape: first.shape.map((size, at) => (at === axis ? count : size)), data };
}

/** For each row the place of its largest number. */
export function argmax({ data, shape }: NDArray): number[] {
  const width = shape.at(-1) ?? 1;
  return Array.from({ length: width === 0 ? 0 : data.length / width }, (_, row) => {
    let best = row * width;
    for (let place = best + 1; place < (row + 1) * width; place++) if (data[place]! > data[best]!) best = place;
    return best - row * width;
  });
}
