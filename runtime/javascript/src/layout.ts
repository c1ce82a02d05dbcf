// Shapes of a model's data inputs, and along which axis of each the samples lie.
import { anyArray, type Arrays, asArray, KINDS, type NDArray, retyped } from "./arrays.js";
import { type InputDescription, signature, type Size } from "./description.js";
import { got, InvalidInputError, quoted, sizes } from "./errors.js";

/** The inputs that a model is fed with. */
export class Layout {
  readonly axes: Readonly<Record<string, number>>;
  /** Samples per batch where the model fixes them. */
  readonly batchSize: number | undefined;
  /** Inputs, and dtypes of values for them, that were converted with a warning. */
  readonly #told = new Set<string>();

  /**
   * Finds the samples' axis of each input, as training.json says it, or else as Python finds it.
   *
   * @throws InvalidInputError `given` names no input or no axis, or batch sizes contradict each other.
   */
  constructor(
    readonly inputs: readonly InputDescription[],
    given: Readonly<Record<string, number>> = {},
  ) {
    const unknown = Object.keys(given).find((name) => !inputs.some((input) => input.name === name));
    if (unknown !== undefined)
      throw new InvalidInputError(
        `sample_axis '${unknown}' must be one of the inputs ${quoted(inputs.map(({ name }) => name).sort())}`,
      );
    const shared = sharedSize(inputs);
    this.axes = Object.fromEntries(inputs.map((input) => [input.name, axisOf(input, given[input.name], shared)]));
    const fixed = inputs.map(({ name, shape }) => shape[this.axes[name]!]).filter((size) => typeof size === "number");
    const different = [...new Set(fixed)].sort((a, b) => a - b);
    if (different.length > 1)
      throw new InvalidInputError(
        `data inputs require one number of samples per batch, got ${different.join(", ")}; ` +
          "sample_axis={'<input>': axis} says along which axis samples lie",
      );
    this.batchSize = different[0];
  }

  /** How many samples a batch holds. */
  samples(batch: Arrays): number {
    for (const { name } of this.inputs) {
      const size = batch[name]?.shape[this.axes[name]!];
      if (size !== undefined) return size;
    }
    return 1;
  }

  /**
   * A value as an array that fits an input, with any number of samples.
   *
   * @throws InvalidInputError it has another dtype, rank or size.
   */
  fitting(input: InputDescription, value: unknown, where: string): NDArray {
    const what = `${where} '${input.name}'`;
    const array = anyArray(value, what);
    if (array.shape.length !== input.shape.length) {
      const means =
        input.shape.length > 0 ? "" : ", one number for all samples (batches of your own may have one each)";
      throw new InvalidInputError(
        `${what} requires rank ${input.shape.length}, ${signature(input)}${means}, got ${sizes(array.shape)}`,
      );
    }
    const converted = this.converted(input, value, where);
    this.checkSizes(input, array.shape, where);
    return converted;
  }

  /**
   * An array in the input's dtype: other precisions, and whole numbers of other sizes, with one warning.
   *
   * @throws InvalidInputError it has another kind of dtype, or holds what the input's does not.
   */
  converted(input: InputDescription, value: unknown, where: string): NDArray {
    const { name, dtype } = input;
    const what = `${where} '${name}'`;
    const array = anyArray(value, what);
    const isPlain = Array.isArray(value) || typeof value !== "object";
    if (isPlain || array.dtype === dtype) return asArray(value, dtype, what);
    const [from, to] = [KINDS[array.dtype].letter, KINDS[dtype].letter];
    const isAlike = (from === "f" && to === "f") || ("iu".includes(from) && "iu".includes(to));
    if (!isAlike || array.dtype === "float16" || dtype === "float16") {
      const way = from === "f" && to !== "f" ? "" : `; astype(array, '${dtype}') converts it`;
      throw new InvalidInputError(`${what} requires ${signature(input)}, got ${array.dtype}${way}`);
    }
    const converted = retyped(array, dtype);
    const lost = array.data.findIndex((number: number | bigint, place: number) => {
      const now = converted.data[place]!;
      return to === "f" ? Number.isFinite(number) && !Number.isFinite(now) : now != number;
    });
    if (lost >= 0)
      throw new InvalidInputError(`${what} requires numbers that ${dtype} holds, got ${String(array.data[lost])}`);
    if (!this.#told.has(`${name} ${array.dtype}`))
      console.warn(`${what} is ${signature(input)}: values in ${array.dtype} are converted`);
    this.#told.add(`${name} ${array.dtype}`);
    return converted;
  }

  /** Requires the sizes that the model fixes, that of the samples aside. */
  checkSizes(input: InputDescription, shape: readonly number[], where: string): void {
    const { name } = input;
    const misfit = input.shape.findIndex(
      (size, axis) => typeof size === "number" && size !== shape[axis] && axis !== this.axes[name],
    );
    if (misfit >= 0)
      throw new InvalidInputError(
        `${where} '${name}' requires ${signature(input)}, got ${sizes(shape)} (axis ${misfit})`,
      );
  }
}

/** The name of the one open size that all inputs have; they have it along the samples. */
function sharedSize(inputs: readonly InputDescription[]): string | undefined {
  const named = inputs
    .filter(({ shape }) => shape.length > 0)
    .map(({ shape }) => new Set(shape.filter((size) => typeof size === "string")));
  const shared = [...(named[0] ?? [])].filter((name) => named.every((names) => names.has(name)));
  return shared.length === 1 ? shared[0] : undefined;
}

function axisOf(input: InputDescription, given: number | undefined, shared: string | undefined): number {
  const { name, shape, sample_axis: recorded } = input;
  const isOpen = (size: Size): boolean => typeof size !== "number";
  const usual = shared !== undefined && shape.includes(shared) ? shape.indexOf(shared) : shape.findIndex(isOpen);
  const axis = given ?? recorded ?? Math.max(0, usual);
  const count = Math.max(1, shape.length);
  if (!Number.isSafeInteger(axis) || axis < -shape.length || axis >= count)
    throw new InvalidInputError(`sample_axis of '${name}' requires an axis of ${signature(input)}, got ${got(axis)}`);
  return (axis + count) % count;
}
