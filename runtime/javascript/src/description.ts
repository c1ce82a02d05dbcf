// training.json: what is in a bundle. docs/bundle.md says what each key holds.
import { type Dtype, isDtype } from "./arrays.js";
import { got, InvalidModelError, sizes } from "./errors.js";
import { isSealed, sha256 } from "./sha256.js";

/** A number, the name of an open size, or nothing known. */
export type Size = number | string | null;

export interface TensorDescription {
  readonly name: string;
  readonly dtype: string | null;
  readonly shape: readonly Size[] | null;
}

export interface InputDescription extends TensorDescription {
  readonly dtype: Dtype;
  readonly shape: readonly Size[];
  /** The axis along which samples lie, in version 2 of data of the step. */
  readonly sample_axis?: number | null;
}

export interface WeightPlace {
  readonly file: string;
  readonly offset: number;
  readonly length: number;
}

export interface StateDescription {
  readonly input: string;
  readonly dtype: Dtype;
  readonly shape: readonly Size[];
  readonly output: string | null;
  readonly role: "weight" | "slot" | "counter";
  readonly gradient: string | null;
  readonly variable: string | null;
  readonly predict: WeightPlace | null;
}

export interface TotalDescription {
  readonly input: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly output: string;
  /** A number for all elements, or one for each; `"Infinity"` and the like for what JSON has no number for. */
  readonly first: number | string | readonly (number | string)[];
}

/** What evaluates or predicts. */
export interface PartDescription {
  readonly state: readonly string[];
  readonly data: readonly InputDescription[];
  readonly metrics: readonly TensorDescription[];
  readonly predictions: readonly TensorDescription[];
  readonly totals: readonly TotalDescription[];
  readonly of_all_batches: readonly string[];
}

/** What was chosen where the step was made, by name, with its arguments as JSON holds them. */
export interface ChoiceDescription {
  readonly name: string;
  readonly options: Readonly<Record<string, unknown>>;
}

/** What updates some of the weights. */
export interface OptimizerDescription extends ChoiceDescription {
  readonly schedule: ChoiceDescription | null;
  /** State inputs that it updates. */
  readonly weights: readonly string[];
}

/** What was added to the step's own updates. */
export interface TrainerDescription {
  readonly accumulate: number;
  readonly clip_norm: number | null;
  readonly clip_value: number | null;
  readonly ema: number | null;
}

export type ModelFile = "init" | "train" | "eval" | "predict";

/** training.json, versions 1 and 2. */
export interface Description {
  readonly format: "lstm-lower.bundle";
  readonly version: 1 | 2;
  /** SHA-256 of training.json with zeros in its own place; version 2, as all that may be missing. */
  readonly digest?: string;
  readonly producer?: string;
  readonly onnxruntime?: string;
  readonly tested?: Readonly<Record<string, string>>;
  readonly opset?: number;
  readonly target?: string | null;
  readonly hashes?: Readonly<Record<string, { readonly bytes: number; readonly sha256: string }>>;
  readonly files: Readonly<Partial<Record<ModelFile, { readonly model: string; readonly data: readonly string[] }>>>;
  /** Inputs of init.onnx: open sizes of the state. */
  readonly sizes?: readonly string[];
  readonly loss: string | null;
  readonly loss_function?: ChoiceDescription | null;
  readonly optimizer?: readonly OptimizerDescription[] | null;
  readonly trainer?: TrainerDescription;
  readonly class_names?: readonly string[] | null;
  readonly learning_rate: (InputDescription & { readonly value: number | null }) | null;
  readonly state: readonly StateDescription[];
  readonly data: readonly InputDescription[];
  readonly outputs: readonly TensorDescription[];
  readonly eval?: PartDescription;
  readonly predict?: PartDescription;
}

export const NAME = "training.json";
const AGAIN = "copy all files of the bundle again, or export it again";

/**
 * Reads training.json.
 *
 * @throws InvalidModelError it is damaged, or of another version.
 */
export function readDescription(bytes: Uint8Array): Description {
  let about: Description;
  try {
    about = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)) as Description;
  } catch (error) {
    throw new InvalidModelError(
      `${NAME} requires a description in JSON, got a damaged one (${(error as Error).message}); ${AGAIN}`,
    );
  }
  const { format, version } = (about as Partial<Description> | null) ?? {};
  if (format !== "lstm-lower.bundle")
    throw new InvalidModelError(`${NAME} requires the format 'lstm-lower.bundle', got ${got(format)}`);
  if (version !== 1 && version !== 2)
    throw new InvalidModelError(
      `a bundle of version 1 or 2 is required, got ${got(version)}; a newer lstm-lower-train may read it`,
    );
  if (version === 2 && !isSealed(bytes, '"digest": "', String(about.digest)))
    throw new InvalidModelError(
      `${NAME} requires the hash that stands in it, got another one: it is damaged or was changed; ${AGAIN}`,
    );
  const texts = (Array.isArray(about.data) ? (about.data as unknown[]) : []).find(isOfTexts);
  if (texts !== undefined)
    throw new InvalidModelError(
      `'${(texts as TensorDescription).name}' requires numbers, got string; a table makes numbers of texts before the step`,
    );
  const lacking = misfit(about);
  if (lacking !== undefined) throw new InvalidModelError(`${NAME} requires ${lacking}; ${AGAIN}`);
  return about;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isText = (value: unknown): value is string => typeof value === "string";
const isTextOrNull = (value: unknown): boolean => value === null || isText(value);
const isShape = (value: unknown): boolean =>
  Array.isArray(value) &&
  value.every((size) => isTextOrNull(size) || (Number.isSafeInteger(size) && (size as number) >= 0));
const isInput = (value: unknown, key = "name"): boolean =>
  isObject(value) && isText(value[key]) && isDtype(value.dtype) && isShape(value.shape);
const isOfTexts = (value: unknown): boolean => isObject(value) && isText(value.name) && value.dtype === "string";
const isOutput = (value: unknown): boolean => isObject(value) && isText(value.name);
const isPlace = (value: unknown): boolean => isObject(value) && isText(value.file);
const isState = (value: unknown): boolean =>
  isInput(value, "input") &&
  isObject(value) &&
  isTextOrNull(value.output) &&
  isText(value.role) &&
  (value.predict === null || isPlace(value.predict));
const isTotal = (value: unknown): boolean => isInput(value, "input") && isObject(value) && isText(value.output);
const isFile = (value: unknown): boolean => isObject(value) && isFileName(value.model) && all(value.data, isFileName);
const isFileName = (value: unknown): boolean => isText(value) && /^\w[\w.-]*\.(onnx|data)$/.test(value);
const isHash = (value: unknown): boolean =>
  isObject(value) && Number.isSafeInteger(value.bytes) && isText(value.sha256);
const all = (value: unknown, is: (each: unknown) => boolean): boolean =>
  Array.isArray(value) && value.every((each) => is(each));

/** What a description lacks of what every one holds; `undefined` for nothing. */
function misfit(about: object): string | undefined {
  const held = about as Record<string, unknown>;
  if (!isObject(held.files) || !Object.values(held.files).every(isFile))
    return "names of .onnx and .data files beside it";
  if (
    held.version === 2 &&
    (!isObject(held.hashes) ||
      !fileNames(about as Description).every((name) => isHash((held.hashes as Record<string, unknown>)[name])))
  )
    return "a hash of each file";
  if (held.sizes !== undefined && !all(held.sizes, isText)) return "names of open sizes";
  if (!isTextOrNull(held.loss)) return "the name of a loss";
  if (held.learning_rate !== null && !isInput(held.learning_rate))
    return "a learning rate with a name, a dtype and a shape";
  if (!all(held.state, isState)) return "values of state with a name, a dtype, a shape and a place each";
  if (!all(held.data, (each) => isInput(each))) return "data with a name, a dtype and a shape each";
  if (!all(held.outputs, isOutput)) return "outputs with a name each";
  const parts = ["eval", "predict"].map((name) => held[name]).filter((part) => part !== undefined);
  const isPart = (part: unknown): boolean =>
    isObject(part) &&
    all(part.state, isText) &&
    all(part.data, (each) => isInput(each)) &&
    all(part.totals, isTotal) &&
    all(part.metrics, isOutput) &&
    all(part.predictions, isOutput) &&
    all(part.of_all_batches, isText);
  return parts.every(isPart) ? undefined : "what its models take and give to evaluate and to predict";
}

/** The files that a bundle consists of, beside training.json. */
export const fileNames = (about: Description): string[] =>
  Object.values(about.files).flatMap(({ model, data }) => [model, ...data]);

/**
 * Compares a file with what training.json says of it.
 *
 * @throws InvalidModelError it is damaged, or of another bundle.
 */
export function checkFile(about: Description, name: string, bytes: Uint8Array): void {
  const held = about.hashes?.[name];
  if (held === undefined) return;
  const hash = bytes.length === held.bytes ? sha256(bytes) : "";
  if (hash === held.sha256) return;
  const other = hash === "" ? `${bytes.length} bytes` : `as many with ${hash.slice(0, 12)}…`;
  throw new InvalidModelError(
    `${name} requires the ${held.bytes} bytes with the hash ${held.sha256.slice(0, 12)}… that training.json names, got ${other}: ` +
      `it is damaged, or of another bundle; ${AGAIN}`,
  );
}

/** Dtype and shape of an input, such as `float32[batch, 8, 8]`. */
export const signature = ({ dtype, shape }: InputDescription): string => `${dtype}${sizes(shape)}`;
