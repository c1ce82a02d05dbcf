// What a user hands over as data, as batches: arrays of all samples in an order that a seed decides, or batches that are
// made elsewhere.
import type { ArrayLike, Arrays } from "./arrays.js";
import { got, InvalidInputError } from "./errors.js";
import type { Layout } from "./layout.js";
import { permutation } from "./order.js";
import { type Fingerprint, type Padding, Table } from "./table.js";

/** A value for each input; of one that is padded a list of sequences. */
export type Batch = Record<string, ArrayLike | readonly ArrayLike[]>;

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
  /**
   * Throws where there is no batch, or the data are used up before so many epochs.
   *
   * @returns batches per epoch, where it is certain before they are read.
   */
  check(order: Order, epochs: number): number | undefined;
  epoch(order: Order, epoch: number, first: number): AsyncIterable<Arrays>;
  /** A digest by which other samples, as many, are told. */
  fingerprint(): Fingerprint | null;
}

/** Arrays of all samples. */
class Samples implements Batched {
  readonly count: number;
  readonly #table: Table;

  constructor(
    readonly layout: Layout,
    readonly padding: Padding,
    data: Batch,
  ) {
    this.#table = Table.of(layout, padding, data as Record<string, ArrayLike>);
    this.count = this.#table.count;
  }

  check({ batchSize }: Order): number | undefined {
    const fixed = this.layout.batchSize;
    if (fixed !== undefined && fixed !== batchSize)
      throw new InvalidInputError(`batch size requires ${fixed}, as the model has it, got ${batchSize}`);
    if (this.count < (fixed ?? 1))
      throw new InvalidInputError(`data requires at least one batch of ${batchSize}, got ${this.count} samples`);
    if (this.padding.buckets.length > 0) return undefined;
    return fixed === undefined ? Math.ceil(this.count / batchSize) : Math.floor(this.count / batchSize);
  }

  async *epoch({ batchSize, shuffle, seed }: Order, epoch: number, first: number): AsyncIterable<Arrays> {
    const rows = shuffle
      ? permutation(this.count, seed, epoch)
      : Uint32Array.from({ length: this.count }, (_, row) => row);
    let number = 0;
    for (const batch of this.#grouped(rows, batchSize))
      if (number++ >= first) yield this.#table.take(Uint32Array.from(batch)).feeds();
  }

  fingerprint(): Fingerprint {
    return this.#table.fingerprint();
  }

  /** Rows of each batch: a bucket's samples wait until they fill one. */
  *#grouped(rows: Uint32Array, batchSize: number): Iterable<readonly number[]> {
    const buckets = this.#table.buckets();
    const waiting: number[][] = Array.from({ length: Math.max(1, this.padding.buckets.length) }, () => []);
    for (const row of rows) {
      const bucket = waiting[buckets[row]!]!;
      if (bucket.push(row) === batchSize) yield bucket.splice(0);
    }
    if (this.layout.batchSize === undefined) yield* waiting.filter((rest) => rest.length > 0);
  }
}

/** Batches as they come: their sizes and their order are their own. */
class Stream implements Batched {
  readonly count = undefined;
  readonly #once: boolean;

  constructor(
    readonly layout: Layout,
    readonly padding: Padding,
    readonly data: Batches | ((epoch: number) => Batches),
  ) {
    if (padding.buckets.length > 0)
      throw new InvalidInputError("buckets require samples, got batches that are already made; pad={...} pads these");
    this.#once = typeof data !== "function" && isUsedUp(data);
  }

  check(_: Order, epochs: number): undefined {
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
      if (number++ >= first)
        yield Table.of(this.layout, this.padding, batch as Record<string, ArrayLike>, "a batch").feeds();
    }
    if (number === 0)
      throw new InvalidInputError(`data requires at least one batch in every epoch, got none in epoch ${epoch + 1}`);
  }

  fingerprint(): null {
    return null;
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
export function openData(data: unknown, layout: Layout, padding: Padding): Batched {
  if (typeof data === "function" || (isIterable(data) && !ArrayBuffer.isView(data) && !Array.isArray(data)))
    return new Stream(layout, padding, data as Batches);
  if (
    Array.isArray(data) &&
    data.every((batch) => typeof batch === "object" && batch !== null && !Array.isArray(batch))
  )
    return new Stream(layout, padding, data as Batch[]);
  if (typeof data !== "object" || data === null || ArrayBuffer.isView(data) || Array.isArray(data))
    throw new InvalidInputError(
      `data requires arrays by input, batches, or a function that makes batches, got ${got(data)}`,
    );
  return new Samples(layout, padding, data as Batch);
}
