// What a user hands over as data, as batches: arrays of all samples in an order that a seed decides, or batches that are
// made elsewhere.
import { anyArray, type ArrayLike, type Arrays, asArray, KINDS, type NDArray, take } from "./arrays.js";
import { type InputDescription, signature, type Size } from "./description.js";
import { got, InvalidInputError, quoted, sizes } from "./errors.js";
import { permutation } from "./order.js";

/** A value for each input. */
export type Batch = Record<string, ArrayLike>;

type Batches = Iterable<Batch> | AsyncIterable<Batch>;

/** Arrays of all samples by input; or batches, or a function that makes them, given the epoch's number from 0 on. */
export type Data = Batch | Batches | ((epoch: number) => Batches);

/** How samples are grouped and ordered. */
export interface Order {
  readonly batchSize: number;
  readonly shuffle: boolean;
  readonly seed: number;
}

/** Batches, epoch by epoch. */
export interface Batched {
  /** Samples per epoch, where it is certain before they are read. */
  readonly count: number | undefined;
  /** Throws where there is no batch, or the data are used up before so many epochs. */
  check(order: Order, epochs: number): void;
  epoch(order: Order, epoch: number, first: number): AsyncIterable<Arrays>;
}

/** The inputs that a model is fed with, and along which axis of each samples lie. */
export class Layout {
  readonly axes: Readonly<Record<string, number>>;
  /** Samples per batch where the model fixes them. */
  readonly batchSize: number | undefined;

  constructor(
    readonly inputs: readonly InputDescription[],
    axes: Readonly<Record<string, number>> = {},
  ) {
    const isOpen = (size: Size): boolean => typeof size !== "number";
    this.axes = Object.fromEntries(
      inputs.map(({ name, shape, sample_axis }) => [
        name,
        axes[name] ?? sample_axis ?? Math.max(0, shape.findIndex(isOpen)),
      ]),
    );
    const fixed = inputs.map(({ name, shape }) => shape[this.axes[name]!]).filter((size) => typeof size === "number");
    this.batchSize = fixed.length === 0 ? undefined : fixed[0];
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
   * Values as arrays that fit, with any number of samples; what is no input is not looked at.
   *
   * @throws InvalidInputError one is missing, or of a wrong dtype or shape, or numbers of samples differ.
   */
  checked(values: Batch, where: string): Arrays {
    const missing = this.inputs.filter(({ name }) => !Object.hasOwn(values, name));
    if (missing.length > 0)
      throw new InvalidInputError(
        `${where} requires an array ${missing.map((input) => `'${input.name}' ${signature(input)}`).join(" and ")}, got ${quoted(Object.keys(values).sort())}`,
      );
    const arrays = Object.fromEntries(
      this.inputs.map((input) => [input.name, this.#fitting(input, values[input.name], where)]),
    );
    const counts = this.inputs
      .filter(({ shape }) => shape.length > 0)
      .map(({ name }) => [name, arrays[name]!.shape[this.axes[name]!]!] as const);
    if (new Set(counts.map(([, count]) => count)).size > 1)
      throw new InvalidInputError(
        `${where} requires as many samples in every array, got {${counts.map(([name, count]) => `'${name}': ${count}`).join(", ")}}`,
      );
    return arrays;
  }

  #fitting(input: InputDescription, value: unknown, where: string): NDArray {
    const { name, dtype, shape } = input;
    const what = `${where} '${name}'`;
    const array = anyArray(value, what);
    if (array.shape.length !== shape.length) {
      const means = shape.length > 0 ? "" : ", one number for all samples (batches of your own may have one each)";
      throw new InvalidInputError(
        `${what} requires rank ${shape.length}, ${signature(input)}${means}, got ${sizes(array.shape)}`,
      );
    }
    const isPlain = Array.isArray(value) || typeof value !== "object";
    if (!isPlain && array.dtype !== dtype) {
      const way =
        KINDS[array.dtype].letter === "f" && KINDS[dtype].letter !== "f"
          ? ""
          : `; astype(array, '${dtype}') converts it`;
      throw new InvalidInputError(`${what} requires ${signature(input)}, got ${array.dtype}${way}`);
    }
    const misfit = shape.findIndex(
      (size, axis) => typeof size === "number" && size !== array.shape[axis] && axis !== this.axes[name],
    );
    if (misfit >= 0)
      throw new InvalidInputError(`${what} requires ${signature(input)}, got ${sizes(array.shape)} (axis ${misfit})`);
    return asArray(value, dtype, what);
  }
}

/** Arrays of all samples. */
class Table implements Batched {
  readonly count: number;
  readonly #arrays: Arrays;

  constructor(
    readonly layout: Layout,
    data: Batch,
  ) {
    this.#arrays = layout.checked(data, "data");
    this.count = layout.samples(this.#arrays);
  }

  check({ batchSize }: Order): void {
    const fixed = this.layout.batchSize;
    if (fixed !== undefined && fixed !== batchSize)
      throw new InvalidInputError(`batch size requires ${fixed}, as the model has it, got ${batchSize}`);
    if (this.count < (fixed ?? 1))
      throw new InvalidInputError(`data requires at least one batch of ${batchSize}, got ${this.count} samples`);
  }

  async *epoch({ batchSize, shuffle, seed }: Order, epoch: number, first: number): AsyncIterable<Arrays> {
    const rows = shuffle
      ? permutation(this.count, seed, epoch)
      : Uint32Array.from({ length: this.count }, (_, row) => row);
    const end = this.layout.batchSize === undefined ? this.count : this.count - (this.count % batchSize);
    for (let start = first * batchSize; start < end; start += batchSize)
      yield this.taken(rows.subarray(start, Math.min(end, start + batchSize)));
  }

  taken(rows: Uint32Array): Arrays {
    const entries = this.layout.inputs.map(({ name, shape }) => {
      const array = this.#arrays[name]!;
      return [name, shape.length === 0 ? array : take(array, this.layout.axes[name]!, rows)] as const;
    });
    return Object.fromEntries(entries);
  }
}

/** Batches as they come: their sizes and their order are their own. */
class Stream implements Batched {
  readonly count = undefined;
  readonly #once: boolean;

  constructor(
    readonly layout: Layout,
    readonly data: Batches | ((epoch: number) => Batches),
  ) {
    this.#once = typeof data !== "function" && isUsedUp(data);
  }

  check(_: Order, epochs: number): void {
    if (this.#once && epochs > 1)
      throw new InvalidInputError(
        `data requires what can be read again in every epoch, got ${got(this.data)}, which is used up after one pass; a function that makes it anew (() => batches()) can be`,
      );
  }

  async *epoch(_: Order, epoch: number, first: number): AsyncIterable<Arrays> {
    const batches: unknown = typeof this.data === "function" ? this.data(epoch) : this.data;
    if (!isIterable(batches))
      throw new InvalidInputError(`data requires a function that returns batches, got ${got(batches)}`);
    let number = 0;
    for await (const batch of batches) {
      if (typeof batch !== "object" || (batch as unknown) === null)
        throw new InvalidInputError(`a batch requires arrays by input, got ${got(batch)}`);
      if (number++ >= first) yield this.layout.checked(batch, "a batch");
    }
    if (number === 0)
      throw new InvalidInputError(`data requires at least one batch in every epoch, got none in epoch ${epoch + 1}`);
  }
}

const isIterable = (value: unknown): value is Batches =>
  typeof value === "object" && value !== null && (Symbol.iterator in value || Symbol.asyncIterator in value);

/** Whether batches are gone when they have been read: those of a generator, or of a stream. */
const isUsedUp = (data: object): boolean => "next" in data || "getReader" in data;

/**
 * Opens data.
 *
 * @throws InvalidInputError it is none, or does not fit the inputs.
 */
export function openData(data: unknown, layout: Layout): Batched {
  if (typeof data === "function" || (isIterable(data) && !ArrayBuffer.isView(data) && !Array.isArray(data)))
    return new Stream(layout, data as Batches);
  if (
    Array.isArray(data) &&
    data.every((batch) => typeof batch === "object" && batch !== null && !Array.isArray(batch))
  )
    return new Stream(layout, data as Batch[]);
  if (typeof data !== "object" || data === null || ArrayBuffer.isView(data) || Array.isArray(data))
    throw new InvalidInputError(
      `data requires arrays by input, batches, or a function that makes batches, got ${got(data)}`,
    );
  return new Table(layout, data as Batch);
}
