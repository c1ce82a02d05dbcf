// The loop around a trainer's steps: epochs, validation, callbacks, checkpoints that a run goes on from.
import { type Arrays, type NDArray, numberOf } from "./arrays.js";
import { decode, type Notes } from "./checkpoint.js";
import { type Batched, type Data, openData, type Order } from "./data.js";
import { checkOptions, got, InvalidInputError, sizes, whole } from "./errors.js";
import { Layout } from "./layout.js";
import { type Place, placeOf } from "./places.js";
import { type Fingerprint, Padding, type PaddingOptions } from "./table.js";
import type { Kept, Trainer } from "./trainer.js";

/** Values by name. */
export type Logs = Record<string, number>;

/** What happens in a run besides; whatever is returned is waited for. */
export interface Callback {
  beforeStep?(run: Fit): unknown;
  /** After a step, with its loss and metrics. */
  afterStep?(values: Logs, run: Fit): unknown;
  /** After an epoch and its validation, with the values that the history records. */
  afterEpoch?(logs: Logs, run: Fit): unknown;
}

export interface FitOptions extends PaddingOptions {
  /** Passes over the data, counted from the beginning of the run; 1. */
  readonly epochs?: number;
  /** Samples per step, where the data are not batches already; 32, or what the model fixes. */
  readonly batchSize?: number;
  /** Whether the order of samples changes in every epoch; it does. */
  readonly shuffle?: boolean;
  /** Of that order; 0. */
  readonly seed?: number;
  /** Data to evaluate on after each epoch. */
  readonly validation?: Data;
  readonly callbacks?: readonly Callback[];
  /** Ends the run after the step in which it is aborted. */
  readonly signal?: AbortSignal;
  /** Outputs of the step to log; its scalars that are neither state nor gradients without them. */
  readonly metrics?: readonly string[];
  /** Where checkpoints are kept, one at the end of each epoch, and from where a run goes on. */
  readonly checkpoint?: Kept;
  /** Steps between further checkpoints. */
  readonly saveEvery?: number;
  /** Epochs in a row that may be no better before the run ends; the best epoch's state is put back. */
  readonly patience?: number;
  /** Axis along which an input's samples lie, where training.json has another one. */
  readonly sampleAxis?: Readonly<Record<string, number>>;
  /** Lengths to which sequences are padded, ascending; a batch's samples come from one of them. */
  readonly buckets?: readonly number[];
}

const OPTIONS: Record<keyof FitOptions, true> = {
  epochs: true,
  batchSize: true,
  shuffle: true,
  seed: true,
  validation: true,
  callbacks: true,
  signal: true,
  metrics: true,
  checkpoint: true,
  saveEvery: true,
  patience: true,
  sampleAxis: true,
  buckets: true,
  pad: true,
  lengths: true,
};

/** What came of a run. */
export interface History {
  /** A record per epoch: `epoch` from 1 on, means of `loss` and metrics, `learning_rate`, `val_loss`, `val_<metric>`. */
  readonly epochs: readonly Logs[];
  /** Why the run ended before its last epoch, or `null`. */
  readonly stopped: string | null;
  /** The epoch with the lowest loss, of the validation where there is one. */
  readonly best: { readonly value: number; readonly epoch: number } | null;
}

/** A run: where it is, and how it goes on. */
export class Fit {
  readonly trainer: Trainer;
  /** The epoch that it is in, counted from 0. */
  epoch = 0;
  /** The next batch of that epoch. */
  batch = 0;
  readonly #data: Batched;
  readonly #layout: Layout;
  readonly #padding: Padding;
  readonly #validation: Batched | undefined;
  readonly #order: Order;
  readonly #options: FitOptions;
  readonly #epochs: number;
  readonly #metrics: readonly string[];
  readonly #place: Place | undefined;
  /** Of the data, and of the validation if there is one, where a checkpoint keeps them. */
  readonly #fingerprints: Record<string, Fingerprint | null>;
  /** The checkpoint that this run knows of. */
  #kept: Uint8Array | undefined;
  #sums: Record<string, [number, number]> = {};
  #history: Logs[] = [];
  #stopped: string | null = null;
  #best: { value: number; epoch: number } | null = null;
  #bestState: Arrays | undefined;
  #firstStep: number;

  constructor(trainer: Trainer, data: Data, options: FitOptions) {
    checkOptions("fit", options, OPTIONS);
    [this.trainer, this.#options, this.#firstStep] = [trainer, options, trainer.steps];
    this.#layout = new Layout(trainer.about.data, options.sampleAxis);
    this.#padding = new Padding(this.#layout, options, options.buckets);
    this.#data = openData(data, this.#layout, this.#padding);
    const { validation } = options;
    this.#validation = validation === undefined ? undefined : trainer.scoring(validation, this.#scored());
    this.#order = {
      batchSize: whole("batch_size", options.batchSize ?? this.#layout.batchSize ?? 32),
      shuffle: given("shuffle", "true or false", options.shuffle ?? true, (value) => typeof value === "boolean"),
      seed: whole("seed", options.seed ?? 0, 0),
    };
    this.#epochs = whole("epochs", options.epochs ?? 1);
    for (const [what, value] of [
      ["save_every", options.saveEvery],
      ["patience", options.patience],
    ] as const)
      whole(what, value ?? 1);
    this.#metrics = options.metrics ?? trainer.metrics;
    this.#place = options.checkpoint === undefined ? undefined : placeOf(options.checkpoint);
    const sources = Object.entries({ data: this.#data, validation: this.#validation });
    this.#fingerprints = Object.fromEntries(
      sources.flatMap(([name, held]) =>
        held === undefined || this.#place === undefined ? [] : [[name, held.fingerprint()]],
      ),
    );
    const kinds = "a list of objects with beforeStep, afterStep or afterEpoch";
    given("callbacks", kinds, options.callbacks ?? [], (value) => Array.isArray(value) && value.every(isObject));
    given("signal", "an AbortSignal", options.signal, (value) => value === undefined || value instanceof AbortSignal);
  }

  /** Ends the run after this epoch. */
  stop(reason: string): void {
    this.#stopped = reason;
  }

  /** Trains until the epochs are done. */
  async run(): Promise<History> {
    await this.#goOn();
    const batches = this.#data.check(this.#order, this.#epochs - this.epoch);
    this.#validation?.check({ ...this.#order, shuffle: false }, this.#epochs - this.epoch);
    if (batches !== undefined && this.batch > batches)
      throw new InvalidInputError(`${this.#place!.name}: a checkpoint of a run is required, got none of an epoch`);
    while (this.epoch < this.#epochs && this.#stopped === null) {
      this.#options.signal?.throwIfAborted();
      for await (const feeds of this.#data.epoch(this.#order, this.epoch, this.batch)) {
        await this.#step(feeds);
        const isAborted = this.#options.signal?.aborted === true;
        const { saveEvery } = this.#options;
        if (isAborted || (saveEvery !== undefined && this.trainer.steps % saveEvery === 0)) await this.#save();
        this.#options.signal?.throwIfAborted();
      }
      await this.#endEpoch();
    }
    const last = this.#best?.epoch === this.epoch;
    if (this.#bestState !== undefined && !last) await this.trainer.setState(this.#bestState);
    const accumulated = this.trainer.about.trainer?.accumulate ?? 1;
    if (this.trainer.steps < accumulated)
      console.warn(
        `accumulate=${accumulated} requires as many batches for an update, got ${this.trainer.steps} in all: no weight has changed; smaller batches, or more epochs, make more of them`,
      );
    return { epochs: this.#history, stopped: this.#stopped, best: this.#best };
  }

  /** How validations are read. */
  #scored(): PaddingOptions & Pick<FitOptions, "sampleAxis"> {
    const { pad, lengths, sampleAxis } = this.#options;
    return { ...(pad && { pad }), ...(lengths && { lengths }), ...(sampleAxis && { sampleAxis }) };
  }

  async #step(feeds: Arrays): Promise<void> {
    const callbacks = this.#options.callbacks ?? [];
    for (const callback of callbacks) await callback.beforeStep?.(this);
    const { loss, outputs } = await this.trainer.step(feeds, this.#metrics);
    const values: Logs = this.trainer.hasLoss ? { loss } : {};
    for (const name of this.#metrics) values[name] = scalarOf(name, outputs[name]!);
    // A step that is left out is no part of the epoch's means.
    if (this.trainer.onNaN !== "skip" || Number.isFinite(loss) || !this.trainer.hasLoss)
      this.#add(values, this.#layout.samples(feeds));
    this.batch++;
    for (const callback of callbacks) await callback.afterStep?.(values, this);
  }

  #add(values: Logs, samples: number): void {
    for (const [name, value] of Object.entries(values)) {
      const [total, weight] = this.#sums[name] ?? [0, 0];
      this.#sums[name] = [total + value * samples, weight + samples];
    }
  }

  async #endEpoch(): Promise<void> {
    const { validation, callbacks = [] } = this.#options;
    const logs: Logs = { epoch: this.epoch + 1 };
    for (const [name, [total, weight]] of Object.entries(this.#sums)) logs[name] = total / weight;
    if (this.trainer.hasLoss && !("loss" in logs))
      console.warn(
        `epoch ${logs.epoch} requires a step whose loss is finite, got none: all of them are left out, and no weight has changed`,
      );
    if (Number.isFinite(this.trainer.learningRate)) logs.learning_rate = this.trainer.learningRate;
    if (validation !== undefined) {
      const batchSize = this.#order.batchSize;
      const scores = await this.trainer.evaluate(validation, { batchSize, ...this.#scored() });
      for (const [name, score] of Object.entries(scores)) logs[`val_${name}`] = score;
    }
    for (const callback of callbacks) await callback.afterEpoch?.(logs, this);
    await this.#watch(logs);
    this.#history.push(logs);
    [this.epoch, this.batch, this.#sums] = [this.epoch + 1, 0, {}];
    await this.#save();
  }

  async #watch(logs: Logs): Promise<void> {
    const name = "val_loss" in logs ? "val_loss" : "loss";
    const value = logs[name];
    const { patience } = this.#options;
    if (value !== undefined && Number.isFinite(value) && (this.#best === null || value < this.#best.value)) {
      this.#best = { value, epoch: this.epoch + 1 };
      if (patience !== undefined) this.#bestState = await this.trainer.state();
    } else if (patience !== undefined && this.epoch + 1 - (this.#best?.epoch ?? 0) >= patience)
      this.stop(`${name} did not improve for ${patience} epochs`);
  }

  /** What a run that goes on must have the same, as `lstm-lower train` notes it. */
  #same(): Notes {
    const { batchSize, seed, shuffle } = this.#order;
    const held = this.#validation;
    return {
      batch_size: batchSize,
      seed,
      shuffle,
      validation: held === undefined ? null : (held.count ?? "batches"),
      window: 1,
      pad: this.#padding.values,
      buckets: this.#padding.buckets,
      samples: this.#data.count ?? null,
    };
  }

  async #save(): Promise<void> {
    if (this.#place === undefined) return;
    if (this.trainer.onNaN !== "ignore") await this.trainer.checkFinite();
    const content = await this.trainer.checkpoint({
      ...this.#same(),
      fingerprints: this.#fingerprints,
      epoch: this.epoch,
      batch: this.batch,
      sums: this.#sums,
      history: this.#history,
      stopped: this.#stopped,
      best: this.#best === null ? null : [this.#best.value, this.#best.epoch],
      callbacks: [],
      first_step: this.#firstStep,
    });
    const there = await this.#place.read();
    if (!areEqual(there, this.#kept))
      throw new InvalidInputError(
        there === undefined
          ? `${this.#place.name}: the checkpoint of this run is required, got nothing there any more; this run ends`
          : `${this.#place.name}: a checkpoint of one run is required, got one that something else has written there meanwhile, such as the same page in another tab; this run ends, and what is there stays`,
      );
    await this.#place.write(content);
    this.#kept = content;
  }

  #warnOfOtherData({ fingerprints }: Notes, name: string): void {
    const held = isObject(fingerprints) ? fingerprints : {};
    const others = Object.entries(this.#fingerprints)
      .filter(([what, now]) => now !== null && isOfArrays(held[what]) && held[what].arrays !== now.arrays)
      .map(([what]) => what);
    if (others.length > 0)
      console.warn(
        `${name}: the run goes on, and requires the same ${others.join(" and ")} as before to equal one that was not interrupted, got other samples, as many`,
      );
  }

  async #goOn(): Promise<void> {
    const bytes = (this.#kept = await this.#place?.read());
    if (bytes === undefined) return;
    const { name } = this.#place!;
    const held = decode(bytes, name);
    const { epoch, batch, sums, history, stopped, best, callbacks, first_step: firstStep } = held.notes;
    if (!isProgress(held.notes))
      throw new InvalidInputError(`${name}: a checkpoint of a run is required, got none of an epoch`);
    for (const [what, value] of Object.entries(this.#same()))
      if (ordered(held.notes[what]) !== ordered(value))
        throw new InvalidInputError(
          `${name}: ${what} requires ${JSON.stringify(held.notes[what])}, as the run there has it, got ${JSON.stringify(value)}`,
        );
    if (Array.isArray(callbacks) && callbacks.length > 0)
      throw new InvalidInputError(
        `${name}: a run without callbacks that keep numbers is required, got ${callbacks.length}; lstm-lower train goes on with it`,
      );
    this.#warnOfOtherData(held.notes, name);
    await this.trainer.take(held, name);
    [this.epoch, this.batch, this.#history, this.#firstStep] = [
      epoch as number,
      batch as number,
      history as Logs[],
      Number(firstStep),
    ];
    [this.#sums, this.#stopped] = [sums as Record<string, [number, number]>, stopped as string | null];
    if (Array.isArray(best)) this.#best = { value: Number(best[0]), epoch: Number(best[1]) };
  }
}

/** Requires an option to be of a kind. */
function given<T>(what: string, kind: string, value: T, is: (value: unknown) => boolean): T {
  if (!is(value)) throw new InvalidInputError(`${what} requires ${kind}, got ${got(value)}`);
  return value;
}

/** Whether two checkpoints, or none, are the same. */
const areEqual = (one: Uint8Array | undefined, other: Uint8Array | undefined): boolean =>
  one?.length === other?.length && (one ?? []).every((byte, place) => byte === other![place]);

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isOfArrays = (value: unknown): value is Fingerprint => isObject(value) && typeof value.arrays === "string";
const areNumbers = (values: readonly unknown[]): boolean => values.every((value) => typeof value === "number");
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;

/** Whether notes say where a run is. */
function isProgress({ epoch, batch, sums, history, stopped, best, first_step: first }: Notes): boolean {
  const isPair = (value: unknown): boolean => Array.isArray(value) && value.length === 2 && areNumbers(value);
  return (
    [epoch, batch, first].every(isCount) &&
    isObject(sums) &&
    Object.values(sums).every(isPair) &&
    Array.isArray(history) &&
    history.length === epoch &&
    history.every((logs) => isObject(logs) && areNumbers(Object.values(logs))) &&
    (stopped === null || typeof stopped === "string") &&
    (best === null || isPair(best))
  );
}

/** As JSON, by which what is equal is equal: of an object with its keys in order. */
const ordered = (value: unknown): string =>
  JSON.stringify(isObject(value) ? Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)) : value);

function scalarOf(name: string, array: NDArray): number {
  if (array.data.length !== 1)
    throw new InvalidInputError(`metrics require scalars, got '${name}' of shape ${sizes(array.shape)}`);
  return numberOf(array);
}
