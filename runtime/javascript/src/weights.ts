// Weights that a model of ONNX has as inputs, since their sizes are open until training starts.
import { bytesOf, type Dtype, type NDArray } from "./arrays.js";

// Numbers of onnx.proto: ModelProto.graph, GraphProto.initializer, fields of TensorProto.
const [GRAPH, INITIALIZER, DIMS, DATA_TYPE, NAME, RAW_DATA] = [7, 5, 1, 2, 8, 9];

// TensorProto.DataType.
const TYPES: Readonly<Partial<Record<Dtype, number>>> = { float32: 1, float16: 10, float64: 11 };

/**
 * A model in which an input has a value. What stands behind a message of protobuf is read as part of it: the new
 * initializer stands behind the model as it is.
 */
export function withWeight(model: Uint8Array, name: string, array: NDArray): Uint8Array<ArrayBuffer> {
  const tensor = [
    ...array.shape.map((size) => [...varint(DIMS << 3), ...varint(size)]),
    [...varint(DATA_TYPE << 3), ...varint(TYPES[array.dtype]!)],
    field(NAME, [new TextEncoder().encode(name)]),
    field(RAW_DATA, [bytesOf(array)]),
  ];
  return joined([model, field(GRAPH, [field(INITIALIZER, tensor)])]);
}

/** A field that holds bytes, its length before them. */
function field(number: number, content: readonly (Uint8Array | readonly number[])[]): Uint8Array {
  const bytes = joined(content);
  return joined([varint((number << 3) | 2), varint(bytes.length), bytes]);
}

/** A number below 2 ** 53 in groups of seven bits, the lowest first. */
function varint(number: number): number[] {
  const rest = Math.floor(number / 128);
  return rest === 0 ? [number] : [(number % 128) + 128, ...varint(rest)];
}

function joined(parts: readonly (Uint8Array | readonly number[])[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}
