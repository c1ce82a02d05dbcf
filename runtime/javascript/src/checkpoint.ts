// Checkpoints, the safetensors files that `lstm-lower train` and `Trainer.save` write in Python, and read; and adapters,
// which hold of the state what training has changed of the model.
import { arrayOf, type Arrays, bytesOf, dtypeBy, KINDS, product } from "./arrays.js";
import { got, InvalidInputError } from "./errors.js";
import { isSealed, seal } from "./sha256.js";

const FORMAT = "lstm_lower.checkpoint.1";
const ADAPTER = "lstm_lower.adapter.1";

/** What JSON can hold, and numbers that it cannot. */
export type Notes = Record<string, unknown>;

/** The state of a trainer, and where it is. */
export interface Checkpoint {
  readonly arrays: Arrays;
  readonly steps: number;
  /** NaN for a step without a learning rate. */
  readonly learningRate: number;
  readonly notes: Notes;
}

// Python's JSON has words for what is no number of JSON's; strings of this beginning stand for them meanwhile.
const MARK = "\u0000";
const WORDS = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN/g;

function parsed(text: string): unknown {
  const marked = text.replace(WORDS, (token) => (token.startsWith('"') ? token : JSON.stringify(MARK + token)));
  return JSON.parse(marked, (_, value: unknown) =>
    typeof value === "string" && value.startsWith(MARK) ? Number(value.slice(1)) : value,
  );
}

function written(value: unknown): string {
  const text = JSON.stringify(value, (_, each: unknown) =>
    typeof each === "number" && !Number.isFinite(each) ? MARK + String(each) : each,
  );
  return text.replace(/"\\u0000(-?Infinity|NaN)"/g, "$1");
}

function noted(notes: Notes): string {
  try {
    return written(notes);
  } catch (error) {
    throw new InvalidInputError(
      `notes of a checkpoint require what JSON can hold, got others: ${(error as Error).message}`,
    );
  }
}

/** A number as Python reads a float. */
const float = (value: number): string => (Number.isInteger(value) ? value.toFixed(1) : written(value));

// Behind it stands the hash of the file, in JSON within JSON.
const BEFORE_HASH = '\\"sha256\\": \\"';
// How notes with a hash end: whatever its name has become, a changed bit does not make them notes without one.
const SEALED = /"([^]{6})": "([^]{64})"\}$/;

/** The file of a checkpoint. */
export function encode({ arrays, steps, learningRate, notes }: Checkpoint): Uint8Array {
  if (typeof notes !== "object" || (notes as unknown) === null || Array.isArray(notes))
    throw new InvalidInputError(`notes of a checkpoint require an object, got ${got(notes)}`);
  // What Python compares with its own, and warns of.
  const arithmetic = written({ providers: "onnxruntime in JavaScript" });
  return sealed(
    FORMAT,
    `"steps": ${steps}, "learning_rate": ${float(learningRate)}, "notes": ${noted(notes)}, "arithmetic": ${arithmetic}`,
    arrays,
  );
}

/**
 * The file of an adapter.
 *
 * @param bundle the digest of training.json.
 */
export const encodeAdapter = (arrays: Arrays, bundle: string): Uint8Array =>
  sealed(ADAPTER, `"bundle": "${bundle}"`, arrays);

/** Arrays with notes of a kind, and a hash. */
function sealed(kind: string, notes: string, arrays: Arrays): Uint8Array {
  const held = `{${notes}, "sha256": "${"0".repeat(64)}"}`;
  const entries = Object.entries(arrays).sort(([a, x], [b, y]) => {
    const [wide, narrow] = [KINDS[y.dtype].Numbers.BYTES_PER_ELEMENT, KINDS[x.dtype].Numbers.BYTES_PER_ELEMENT];
    return wide - narrow || (a < b ? -1 : 1);
  });
  let end = 0;
  const header: Record<string, unknown> = { __metadata__: { [kind]: held } };
  for (const [name, { dtype, shape, data }] of entries)
    header[name] = { dtype: KINDS[dtype].safetensors, shape, data_offsets: [end, (end += data.byteLength)] };
  const text = new TextEncoder().encode(JSON.stringify(header));
  const length = Math.ceil(text.length / 8) * 8;
  const bytes = new Uint8Array(8 + length + end);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(length), true);
  bytes.fill(0x20, 8, 8 + length);
  bytes.set(text, 8);
  let place = 8 + length;
  for (const [, array] of entries) {
    bytes.set(bytesOf(array), place);
    place += array.data.byteLength;
  }
  return seal(bytes, BEFORE_HASH, 8 + length);
}

/**
 * Reads the file of a checkpoint.
 *
 * @param what what the file is called, for messages.
 * @throws InvalidInputError it is no checkpoint, or damaged.
 */
export function decode(bytes: Uint8Array, what: string): Checkpoint {
  const { arrays, metadata, held } = unsealed(bytes, what, FORMAT, "checkpoint");
  if (held === undefined)
    throw new InvalidInputError(
      `${what}: a checkpoint of a trainer is required, got one with [${Object.keys(metadata)
        .sort()
        .map((key) => `'${key}'`)
        .join(", ")}]`,
    );
  const { steps, learning_rate: learningRate, notes } = held;
  if (
    !Number.isSafeInteger(steps) ||
    (steps as number) < 0 ||
    typeof learningRate !== "number" ||
    typeof notes !== "object" ||
    notes === null
  )
    throw damagedOne(what, "checkpoint", "its notes lack steps, a learning rate or notes of a run");
  return { arrays, steps: steps as number, learningRate, notes: notes as Notes };
}

/**
 * Reads an adapter: of what a file holds that another program wrote, the bundle is not known.
 *
 * @throws InvalidInputError it is none, or damaged.
 */
export function decodeAdapter(bytes: Uint8Array, what = "adapter"): { arrays: Arrays; bundle: string | undefined } {
  const { arrays, metadata, held } = unsealed(bytes, what, ADAPTER, "adapter");
  if (held === undefined && Object.keys(metadata).some((key) => key !== "format"))
    throw new InvalidInputError(
      `${what}: an adapter is required, got a file with ${Object.keys(metadata).sort().join(", ")}`,
    );
  return { arrays, bundle: held === undefined ? undefined : String(held.bundle) };
}

const damagedOne = (what: string, kind: string, reason: string): InvalidInputError =>
  new InvalidInputError(`${what}: a complete ${kind} is required, got a damaged one (${reason})`);

interface Unsealed {
  readonly arrays: Arrays;
  readonly metadata: Record<string, string>;
  /** The notes of that kind, if the file has any. */
  readonly held: Record<string, unknown> | undefined;
}

/** The arrays and the notes of a file, which is compared with the hash in them. */
function unsealed(bytes: Uint8Array, what: string, kind: string, called: string): Unsealed {
  const damaged = (reason: string): InvalidInputError => damagedOne(what, called, reason);
  const length = bytes.length < 8 ? NaN : Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  if (!(8 + length <= bytes.length)) throw damaged("its header is cut");
  let header: Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }>;
  let metadata: Record<string, string>;
  let held: Record<string, unknown> | undefined;
  const arrays = Object.create(null) as Arrays;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(8, 8 + length));
    const { __metadata__ = {}, ...rest } = parsed(text) as typeof header & { __metadata__?: Record<string, string> };
    [metadata, header] = [__metadata__, rest];
    let end = 0;
    for (const [
      name,
      {
        dtype,
        shape,
        data_offsets: [first, last],
      },
    ] of Object.entries(header)) {
      const own = dtypeBy("safetensors", dtype);
      if (own === undefined) throw new TypeError(`'${name}' is of ${dtype}`);
      const size = product(shape) * KINDS[own].Numbers.BYTES_PER_ELEMENT;
      if (last - first !== size || !(first >= 0) || last > bytes.length - 8 - length)
        throw new RangeError(`'${name}' is cut`);
      arrays[name] = arrayOf(own, shape, bytes.subarray(8 + length + first, 8 + length + last));
      end += size;
    }
    if (end !== bytes.length - 8 - length) throw new RangeError(`it has ${bytes.length - 8 - length} bytes of ${end}`);
    held = Object.hasOwn(metadata, kind) ? (parsed(metadata[kind]!) as Record<string, unknown>) : undefined;
  } catch (error) {
    throw damaged((error as Error).message);
  }
  const [, name, digest] = SEALED.exec(metadata[kind] ?? "") ?? [];
  if (digest !== undefined && (name !== "sha256" || !isSealed(bytes, BEFORE_HASH, digest, 8 + length)))
    throw damaged("its hash is another one");
  return { arrays, metadata, held };
}
