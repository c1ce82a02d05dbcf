// Samples in columns, a column per input: arrays, or sequences of different lengths that batches are padded from.
import {
  anyArray,
  type ArrayLike,
  type Arrays,
  asArray,
  bytesOf,
  concatenated,
  KINDS,
  type NDArray,
  product,
  take,
} from "./arrays.js";
import { type InputDescription, signature } from "./description.js";
import { got, InvalidInputError, quoted, sizes } from "./errors.js";
import type { Layout } from "./layout.js";
import { sha256 } from "./sha256.js";

/** How sequences of different lengths become one array. */
export interface PaddingOptions {
  /** Input -> what is put behind its shorter sequences; the input takes a list of sequences then. */
  readonly pad?: Readonly<Record<string, number>>;
  /** Input that takes lengths -> the input whose lengths they are. */
  readonly lengths?: Readonly<Record<string, string>>;
}

/** How sequences become one array, checked. */
export class Padding {
  readonly values: Readonly<Record<string, number>>;
  readonly lengths: Readonly<Record<string, string>>;

  /**
   * @param buckets the lengths to which sequences are padded, ascending; samples of one batch come from one of them.
   *   Without any, a batch is as long as its longest sequence, or as long as the model fixes it.
   * @throws InvalidInputError it names no input, or buckets do not ascend.
   */
  constructor(
    layout: Layout,
    { pad = {}, lengths = {} }: PaddingOptions,
    readonly buckets: readonly number[] = [],
  ) {
    [this.values, this.lengths] = [pad, lengths];
    const inputs = layout.inputs.map(({ name }) => name).sort();
    for (const [what, names] of [
      ["pad", Object.keys(named("pad", pad))],
      ["lengths", Object.entries(named("lengths", lengths)).flat()],
    ] as const) {
      const unknown = names.find((name) => !inputs.includes(name));
      if (unknown !== undefined)
        throw new InvalidInputError(`${what} requires names of data inputs, ${quoted(inputs)}, got '${unknown}'`);
    }
    for (const { name, dtype } of layout.inputs)
      if (Object.hasOwn(pad, name)) asArray(pad[name], dtype, `pad of '${name}'`);
    const isAscending = buckets.every((size, place) => Number.isSafeInteger(size) && size > (buckets[place - 1] ?? 0));
    if (!isAscending) throw new InvalidInputError(`buckets require ascending lengths above 0, got ${sizes(buckets)}`);
    if (buckets.length > 0 && Object.keys(pad).length === 0)
      throw new InvalidInputError("buckets require pad={'<input>': value}, got no input that is padded");
  }
}

function named<T extends object>(what: string, value: T): T {
  if (typeof value !== "object" || (value as unknown) === null || Array.isArray(value))
    throw new InvalidInputError(`${what} requires a dictionary by names of inputs, got ${got(value)}`);
  return value;
}

/** The part of the options that is about inputs that are there; a prediction lacks the targets. */
export function used({ pad = {}, lengths = {} }: PaddingOptions, layout: Layout): PaddingOptions {
  const isThere = (name: string): boolean => layout.inputs.some((input) => input.name === name);
  return {
    pad: Object.fromEntries(Object.entries(pad).filter(([name]) => isThere(name))),
    lengths: Object.fromEntries(Object.entries(lengths).filter((pair) => pair.every(isThere))),
  };
}

/** Samples of different lengths, `[length, ...]` each. */
class Ragged {
  constructor(readonly samples: readonly NDArray[]) {}
}

type Column = NDArray | Ragged;

/** A digest of samples; those of the files that they lie in are Python's alone. */
export interface Fingerprint {
  readonly arrays: string;
}

// Of a fingerprint: up to how many bytes a column is looked at as a whole, and else how many samples and numbers are.
const SEEN_WHOLE = 16 * 2 ** 20;
const SAMPLED = 256;

/** Samples that lie in memory. */
export class Table {
  readonly count: number;
  readonly #columns: Readonly<Record<string, Column>>;

  private constructor(
    readonly layout: Layout,
    readonly padding: Padding,
    columns: Readonly<Record<string, Column>>,
    count: number,
  ) {
    [this.#columns, this.count] = [columns, count];
  }

  /**
   * Checks values against the inputs; what is no input is not looked at.
   *
   * @throws InvalidInputError a value is missing, or of a wrong dtype or shape, or numbers of samples differ.
   */
  static of(layout: Layout, padding: Padding, data: Readonly<Record<string, ArrayLike>>, where = "data"): Table {
    const inputs = layout.inputs.filter(({ name }) => !Object.hasOwn(padding.lengths, name));
    const missing = inputs.filter(({ name }) => !Object.hasOwn(data, name));
    if (missing.length > 0)
      throw new InvalidInputError(
        `${where} requires an array ${missing.map((input) => `'${input.name}' ${signature(input)}`).join(" and ")}, got ${quoted(Object.keys(data).sort())}`,
      );
    const columns = Object.fromEntries(
      inputs.map((input) => [
        input.name,
        columnOf(layout, input, data[input.name]!, Object.hasOwn(padding.values, input.name), where),
      ]),
    );
    const counts = inputs
      .filter(({ shape }) => shape.length > 0)
      .map(({ name }) => [name, countOf(columns[name]!, layout.axes[name]!)] as const);
    if (new Set(counts.map(([, count]) => count)).size > 1)
      throw new InvalidInputError(
        `${where} requires as many samples in every array, got {${counts.map(([name, count]) => `'${name}': ${count}`).join(", ")}}`,
      );
    return new Table(layout, padding, columns, counts[0]?.[1] ?? 0);
  }

  /** Some samples, copied. */
  take(rows: Uint32Array): Table {
    const taken = (name: string, column: Column): Column => {
      if (column instanceof Ragged) return new Ragged(Array.from(rows, (row) => column.samples[row]!));
      return column.shape.length === 0 ? column : take(column, this.layout.axes[name]!, rows);
    };
    const columns = Object.entries(this.#columns).map(([name, column]) => [name, taken(name, column)] as const);
    return new Table(this.layout, this.padding, Object.fromEntries(columns), rows.length);
  }

  /**
   * The bucket of each sample; all the same without buckets.
   *
   * @throws InvalidInputError a sample is longer than the last bucket.
   */
  buckets(): Uint32Array {
    const { buckets, values } = this.padding;
    if (buckets.length === 0) return new Uint32Array(this.count);
    const lengths = this.#lengths(Object.keys(values));
    const longest = lengths.reduce((most, length) => Math.max(most, length), 0);
    if (longest > buckets.at(-1)!)
      throw new InvalidInputError(`buckets require a length of ${longest} or more at their end, got ${sizes(buckets)}`);
    return Uint32Array.from(lengths, (length) => buckets.findIndex((bucket) => bucket >= length));
  }

  /**
   * The samples as one batch.
   *
   * @throws InvalidInputError sequences differ in length, and nothing says what to pad them with.
   */
  feeds(): Arrays {
    const { lengths } = this.padding;
    return Object.fromEntries(
      this.layout.inputs.map((input) => {
        const of = Object.hasOwn(lengths, input.name) ? lengths[input.name] : undefined;
        if (of !== undefined) return [input.name, asArray(this.#lengths([of]), input.dtype, `lengths '${input.name}'`)];
        const column = this.#columns[input.name]!;
        return [input.name, column instanceof Ragged ? this.#padded(column, input) : column];
      }),
    );
  }

  /** A digest of names, dtypes, shapes and numbers, that of Python; of a large column of some numbers of some samples. */
  fingerprint(): Fingerprint {
    const names = Object.keys(this.#columns).sort();
    const parts = names.flatMap((name) => {
      const column = this.#columns[name]!;
      const isRagged = column instanceof Ragged;
      const form = isRagged
        ? sizes(column.samples.map(({ shape }) => shape[0]!))
        : `${KINDS[column.dtype].npy} ${sizes(column.shape)}`;
      return [new TextEncoder().encode(`${name} ${form}`), ...seen(column, this.layout.axes[name]!).map(bytesOf)];
    });
    return { arrays: sha256(together(parts)) };
  }

  /** The length of each sample, of the longest of its sequences among some inputs. */
  #lengths(names: readonly string[]): number[] {
    const columns = names.map((name) => [name, this.#columns[name]!] as const);
    return Array.from({ length: this.count }, (_, row) =>
      columns.reduce((most, [name, column]) => {
        const axis = this.layout.axes[name]!;
        const length =
          column instanceof Ragged ? column.samples[row]!.shape[0] : column.shape.find((__, at) => at !== axis);
        return Math.max(most, length ?? 0);
      }, 0),
    );
  }

  #padded({ samples }: Ragged, input: InputDescription): NDArray {
    const { name, dtype, shape } = input;
    const lengths = samples.map((sample) => sample.shape[0]!);
    const longest = Math.max(0, ...lengths);
    if (!Object.hasOwn(this.padding.values, name))
      throw new InvalidInputError(
        `data '${name}' requires samples of one length, or pad={'${name}': value}, got lengths from ${Math.min(...lengths)} to ${longest}`,
      );
    const axis = this.layout.axes[name]!;
    const fixed = shape.filter((_, at) => at !== axis)[0];
    if (typeof fixed === "number" && longest > fixed)
      throw new InvalidInputError(
        `data '${name}' requires at most ${fixed} steps, as the model has it, got ${longest}`,
      );
    const bucket = this.padding.buckets.find((size) => size >= longest) ?? longest;
    const target = typeof fixed === "number" ? fixed : bucket;
    const filler = asArray(this.padding.values[name], dtype, `pad of '${name}'`).data[0]!;
    const whole = samples.map((sample) => {
      const rest = sample.shape.slice(1);
      const data = new KINDS[dtype].Numbers(target * product(rest));
      (data as Float64Array).fill(filler as number);
      (data as Float64Array).set(sample.data as Float64Array);
      return one({ dtype, shape: [target, ...rest], data }, axis);
    });
    const padded = concatenated(whole, axis);
    this.layout.checkSizes(input, padded.shape, "data");
    return padded;
  }
}

/** What a fingerprint looks at. */
function seen(column: Column, axis: number): readonly NDArray[] {
  const whole = column instanceof Ragged ? column.samples : [column];
  if (whole.reduce((sum, { data }) => sum + data.byteLength, 0) <= SEEN_WHOLE) return whole;
  const count = column instanceof Ragged || column.shape.length > 0 ? countOf(column, axis) : 1;
  const chosen = Math.min(count, SAMPLED);
  return Array.from({ length: chosen }, (_, place) => {
    const row = Math.floor((place * (count - 1)) / Math.max(1, chosen - 1));
    const sample = column instanceof Ragged ? column.samples[row]! : take(column, axis, [row]);
    const stride = Math.max(1, Math.floor(sample.data.length / SAMPLED));
    return { ...sample, data: (sample.data as Float64Array).filter((__, at) => at % stride === 0) };
  });
}

function together(parts: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let place = 0;
  for (const part of parts) {
    bytes.set(part, place);
    place += part.length;
  }
  return bytes;
}

/** A sample as an array of one sample. */
const one = (sample: NDArray, axis: number): NDArray => ({
  ...sample,
  shape: [...sample.shape.slice(0, axis), 1, ...sample.shape.slice(axis)],
});

const countOf = (column: Column, axis: number): number =>
  column instanceof Ragged ? column.samples.length : column.shape[axis]!;

function columnOf(layout: Layout, input: InputDescription, value: ArrayLike, isPadded: boolean, where: string): Column {
  const { name, shape } = input;
  if (!Array.isArray(value) || shape.length === 0) return layout.fitting(input, value, where);
  const what = `${where} '${name}'`;
  const samples = (value as readonly ArrayLike[]).map((sample) => anyArray(sample, what));
  const other = samples.find((sample) => sample.shape.length !== shape.length - 1);
  if (other !== undefined)
    throw new InvalidInputError(
      `${what} requires samples of rank ${shape.length - 1} for ${signature(input)}, got one of ${sizes(other.shape)}`,
    );
  const isOneShape = samples.every((sample) => String(sample.shape) === String(samples[0]!.shape));
  const isPlain = (value as readonly unknown[]).every((sample) => typeof sample !== "object" || Array.isArray(sample));
  const axis = layout.axes[name]!;
  if (!isPadded && isOneShape && (isPlain || samples.length === 0) && axis === 0)
    return layout.fitting(input, value, where);
  if (!isPadded && isOneShape) {
    const own = (value as readonly ArrayLike[]).map((sample) => one(layout.converted(input, sample, where), axis));
    return layout.fitting(input, concatenated(own, axis), where);
  }
  if (shape.length === 1) throw new InvalidInputError(`${what} requires sequences to pad, got ${signature(input)}`);
  const differs = samples.find((sample) => String(sample.shape.slice(1)) !== String(samples[0]!.shape.slice(1)));
  if (differs !== undefined)
    throw new InvalidInputError(
      `${what} requires samples that differ in length only, got ${sizes(samples[0]!.shape)} and ${sizes(differs.shape)}`,
    );
  return new Ragged((value as readonly ArrayLike[]).map((sample) => layout.converted(input, sample, where)));
}
