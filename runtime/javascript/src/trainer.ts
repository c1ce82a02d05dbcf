// A bundle that trains: steps with every check that `ll.Trainer` makes in Python, evaluation, weights, checkpoints.
import {
  type ArrayLike,
  type Arrays,
  asArray,
  bytesOf,
  concatenated,
  type Dtype,
  areFinite,
  type NDArray,
  numberOf,
} from "./arrays.js";
import { type Checkpoint, decode, decodeAdapter, encode, encodeAdapter, type Notes } from "./checkpoint.js";
import { type Batched, type Data, openData, type Order } from "./data.js";
import type { Description, InputDescription, PartDescription, Size } from "./description.js";
import type { Contents, Engine, Trained } from "./engine.js";
import {
  checkOptions,
  got,
  InvalidInputError,
  InvalidModelError,
  NotFiniteError,
  quoted,
  sizes,
  whole,
  written,
} from "./errors.js";
import { Fit, type FitOptions, type History } from "./fit.js";
import { Layout } from "./layout.js";
import { type Place, placeOf } from "./places.js";
import { Padding, type PaddingOptions, used } from "./table.js";

/** What becomes of a step whose loss is infinite or NaN: it stops, it is left out, or it changes the state as usual. */
export type OnNaN = "stop" | "skip" | "ignore";

const ON_NAN: readonly OnNaN[] = ["stop", "skip", "ignore"];

/** What a step returns. */
export interface StepResult {
  /** The loss before the update; NaN for a step without one. */
  readonly loss: number;
  /** The chosen outputs by name. */
  readonly outputs: Arrays;
}

/** Options of `evaluate` and `predict`. */
export interface BatchOptions extends PaddingOptions {
  /** Samples per batch, where the data are not batches already; 32, or what the model fixes. */
  readonly batchSize?: number;
  /** Axis along which an input's samples lie, where training.json has another one. */
  readonly sampleAxis?: Readonly<Record<string, number>>;
}

const BATCH_OPTIONS: Record<keyof BatchOptions, true> = { batchSize: true, sampleAxis: true, pad: true, lengths: true };

/** Where a checkpoint goes or comes from: a path (Node), a key of IndexedDB (browsers), a file's handle, a place. */
export type Kept = string | FileSystemFileHandle | Place;

/** An open size, and what has it. */
interface NamedSize {
  readonly size: number;
  readonly name: string;
}

type Forms = Record<string, { dtype: Dtype; shape: readonly number[] }>;

/** A training step in onnxruntime, with its state. */
export class Trainer {
  /** Steps done so far, those before a checkpoint that was resumed included. */
  steps = 0;
  readonly #engine: Engine;
  readonly #forms: Forms;
  readonly #inputs: Map<string, InputDescription>;
  /** Open sizes that the state has, by name. */
  readonly #named = new Map<string, NamedSize>();
  #rate: number;
  #onNaN: OnNaN = "stop";
  #isFitting = false;

  private constructor(
    readonly about: Description,
    engine: Engine,
    forms: Forms,
  ) {
    [this.#engine, this.#forms] = [engine, forms];
    this.#inputs = new Map(about.data.map((input) => [input.name, input]));
    for (const { input, shape } of about.state) checkShape("state", input, shape, forms[input]!.shape, this.#named);
    this.#rate = about.learning_rate?.value ?? NaN;
  }

  /** A trainer of a bundle whose models are open. */
  static async of(about: Description, engine: Engine): Promise<Trainer> {
    return new Trainer(about, engine, await engine.forms());
  }

  /** What happens at a step whose loss is infinite or NaN. */
  get onNaN(): OnNaN {
    return this.#onNaN;
  }

  set onNaN(value: OnNaN) {
    if (!ON_NAN.includes(value))
      throw new InvalidInputError(`onNaN requires one of ${quoted(ON_NAN)}, got ${got(value)}`);
    this.#onNaN = value;
  }

  /** The learning rate of the next step; NaN for a step without such an input. */
  get learningRate(): number {
    return this.#rate;
  }

  set learningRate(value: number) {
    if (this.about.learning_rate === null)
      throw new InvalidInputError(
        "learning_rate requires a model with a learning-rate input (learning_rate_input=...)",
      );
    if (typeof value !== "number") throw new InvalidInputError(`learning_rate requires a number, got ${got(value)}`);
    if (!Number.isFinite(value))
      throw new InvalidInputError(`learning_rate requires a finite number, got ${written(value)}`);
    const { dtype } = this.about.learning_rate;
    if (dtype === "float32" && !Number.isFinite(Math.fround(value)))
      throw new InvalidInputError(`learning_rate requires a number that ${dtype} holds, got ${written(value)}`);
    this.#rate = value;
  }

  /** Names of the data that every step is fed with. */
  get inputs(): string[] {
    return [...this.#inputs.keys()];
  }

  /** Data that a step takes and a prediction does not: labels, as a rule. */
  get targets(): string[] {
    const read = (this.about.predict ?? this.about.eval)?.data.map(({ name }) => name);
    return read === undefined ? [] : this.inputs.filter((name) => !read.includes(name));
  }

  /** Outputs of a step that are scalars and neither loss, state nor gradients. */
  get metrics(): string[] {
    return this.about.outputs.filter(({ shape }) => shape?.length === 0).map(({ name }) => name);
  }

  get hasLoss(): boolean {
    return this.about.loss !== null;
  }

  /**
   * Does a step.
   *
   * @param feeds a value for each input; the learning rate may be among them and then holds for later steps, too.
   * @param outputs names of outputs to return, such as metrics, gradients, or new values of the state.
   * @throws InvalidInputError a feed is missing, unknown, or of a wrong dtype, shape or value.
   * @throws NotFiniteError the loss is infinite or no number, and `onNaN` is `stop`. After any error the state is as it was.
   */
  async step(feeds: Readonly<Record<string, ArrayLike>>, outputs: readonly string[] = []): Promise<StepResult> {
    const arrays = this.#checked(feeds);
    this.#checkOutputs(outputs);
    const trained = await this.#engine.train(arrays, this.#rateOfStep(), outputs, this.#onNaN === "ignore");
    if (!trained.updated && this.#onNaN === "stop") throw this.#notFinite(trained, arrays);
    this.steps++;
    return { loss: trained.loss, outputs: trained.outputs };
  }

  /**
   * Trains for a number of epochs. The order of samples is that of `lstm-lower train` with the same seed.
   *
   * @throws InvalidInputError an option or the data do not fit.
   * @throws NotFiniteError the loss is no longer finite, and `onNaN` is `stop`.
   * @throws the signal's reason, after the step that it came in.
   */
  async fit(data: Data, options: FitOptions = {}): Promise<History> {
    if (this.#isFitting)
      throw new InvalidInputError("fit requires a trainer that is in no other run, got one in the middle of a run");
    this.#isFitting = true;
    try {
      return await new Fit(this, data, options).run();
    } finally {
      this.#isFitting = false;
    }
  }

  /**
   * Loss and metrics on data: means over batches, weighted by their numbers of samples. Dropout is off, normalizations
   * use their running statistics, and no state changes.
   *
   * @throws InvalidModelError the bundle has no eval.onnx.
   * @throws InvalidInputError the data do not fit.
   */
  async evaluate(data: Data, options: BatchOptions = {}): Promise<Record<string, number>> {
    checkOptions("evaluate", options, BATCH_OPTIONS);
    const part = this.#part("eval", "evaluating");
    if (this.about.loss === null && part.metrics.every(({ shape }) => shape?.length !== 0))
      throw new InvalidModelError("evaluating requires an evaluation with a loss or a metric, got one with neither");
    const sums: Record<string, number> = {};
    let weight = 0;
    let last: Arrays = {};
    for await (const { feeds, samples } of this.#batches(part, data, options)) {
      last = await this.#engine.evaluate(feeds, weight === 0);
      weight += samples;
      for (const [name, score] of Object.entries(last))
        if (score.shape.length === 0) sums[name] = (sums[name] ?? 0) + numberOf(score) * samples;
    }
    const scores = Object.keys(sums).map((name) => {
      const score = part.of_all_batches.includes(name) ? numberOf(last[name]!) : sums[name]! / Math.max(1, weight);
      return [name === this.about.loss ? "loss" : name, score] as const;
    });
    return Object.fromEntries(scores);
  }

  /**
   * The model's own outputs for data, by name, in the data's order; targets need not be there.
   *
   * @throws InvalidModelError the bundle has no predict.onnx.
   * @throws InvalidInputError the data do not fit.
   */
  async predict(data: Data, options: BatchOptions = {}): Promise<Arrays> {
    checkOptions("predict", options, BATCH_OPTIONS);
    const part = this.#part("predict", "predicting");
    const parts: Arrays[] = [];
    const counts: number[] = [];
    for await (const { feeds, samples } of this.#batches(part, data, options)) {
      parts.push(await this.#engine.predict(feeds));
      counts.push(samples);
    }
    return Object.fromEntries(
      part.predictions.map(({ name, shape }) => [
        name,
        joined(
          name,
          shape,
          parts.map((each) => each[name]!),
          counts,
          part,
        ),
      ]),
    );
  }

  /** The whole state by input: weights, what layers and the optimizer keep, counters. */
  async state(): Promise<Arrays> {
    return this.#engine.read();
  }

  /**
   * Puts values in place of the whole state.
   *
   * @throws InvalidInputError a name is missing or unknown, or a value differs in dtype or shape; nothing is changed.
   */
  async setState(values: Readonly<Record<string, ArrayLike>>): Promise<void> {
    const names = Object.keys(this.#forms);
    const unknown = Object.keys(values).find((name) => !Object.hasOwn(this.#forms, name));
    const missing = names.find((name) => !Object.hasOwn(values, name));
    if (unknown !== undefined || missing !== undefined) {
      const some =
        names
          .slice(0, 4)
          .map((name) => `'${name}'`)
          .join(", ") + (names.length > 4 ? ", …" : "");
      const came = unknown === undefined ? `none of '${missing!}'` : `'${unknown}', which is none of them`;
      throw new InvalidInputError(`state requires the ${names.length} values ${some}, got ${came}`);
    }
    await this.#write(values);
  }

  /** Weights and what layers keep, by the names that the framework has for them, without the optimizer's state. */
  async weights(): Promise<Arrays> {
    const held = await this.#engine.read();
    return Object.fromEntries(Object.entries(this.#ownNames()).map(([name, input]) => [name, held[input]!]));
  }

  /**
   * Puts weights in place of the model's; the optimizer's state stays.
   *
   * @throws InvalidInputError a name is missing or unknown, or a value differs in dtype or shape; nothing is changed.
   */
  async setWeights(weights: Readonly<Record<string, ArrayLike>>): Promise<void> {
    const inputs = this.#ownNames();
    checkNames("weights require", Object.keys(inputs), Object.keys(weights));
    await this.#write(Object.fromEntries(Object.entries(inputs).map(([name, input]) => [input, weights[name]!])));
  }

  /**
   * What training has changed of the model, as a file of a few kB beside a base of any size: `ll.merge` in Python and
   * `setAdapter` put it into this bundle again.
   */
  async adapter(): Promise<Uint8Array> {
    const { digest } = this.about;
    if (digest === undefined)
      throw new InvalidModelError("an adapter requires a bundle of version 2, got one of version 1; export it again");
    const held = await this.#engine.read();
    const changed = Object.entries(this.#changedNames());
    return encodeAdapter(Object.fromEntries(changed.map(([name, input]) => [name, held[input]!])), digest);
  }

  /**
   * Puts an adapter in place of what training has changed of the model; the optimizer's state stays.
   *
   * @param from its file, or its arrays, such as what `average` makes of several.
   * @throws InvalidInputError it is damaged, of another bundle, or does not fit; nothing is changed.
   */
  async setAdapter(from: Kept | Blob | Uint8Array | ArrayBuffer | Arrays): Promise<void> {
    const names = this.#changedNames();
    const arrays = isArrays(from) ? from : await this.#adapterIn(from);
    checkNames("an adapter requires", Object.keys(names), Object.keys(arrays));
    await this.#write(Object.fromEntries(Object.entries(names).map(([name, input]) => [input, arrays[name]!])));
  }

  async #adapterIn(from: Kept | Blob | Uint8Array | ArrayBuffer): Promise<Arrays> {
    const { bytes, name } = await heldBy(from, "adapter");
    if (bytes === undefined) throw new InvalidInputError(`${name}: an adapter is required, got nothing there`);
    const { arrays, bundle } = decodeAdapter(bytes, name);
    if (bundle !== undefined && bundle !== this.about.digest)
      throw new InvalidInputError(
        `${name}: an adapter of this bundle is required, got one of another, ${bundle.slice(0, 12)}…`,
      );
    return arrays;
  }

  /** A checkpoint as bytes: what `lstm-lower export --trained` and `Trainer.resume` read, too. */
  async checkpoint(notes: Notes = {}): Promise<Uint8Array> {
    const [steps, learningRate] = [whole("steps", this.steps, 0), this.#rate];
    const arrays = await this.#engine.read();
    return encode({ arrays, steps, learningRate, notes });
  }

  /**
   * Writes a checkpoint, whole or not at all.
   *
   * @param place a path (Node), a key of IndexedDB (browsers), a file's handle, or a place.
   * @param notes whatever else `resume` shall return; JSON must be able to hold it.
   */
  async save(place: Kept, notes: Notes = {}): Promise<void> {
    await placeOf(place).write(await this.checkpoint(notes));
  }

  /**
   * Goes on from a checkpoint, where it was written bit for bit.
   *
   * @returns the notes that were given to `save`.
   * @throws InvalidInputError it is not there, damaged, or another model's; nothing is changed.
   */
  async resume(from: Kept | Blob | Uint8Array | ArrayBuffer): Promise<Notes> {
    const { bytes, name } = await heldBy(from);
    if (bytes === undefined) throw new InvalidInputError(`${name}: a checkpoint is required, got nothing there`);
    return this.take(decode(bytes, name), name);
  }

  /** Goes on from what a checkpoint holds. */
  async take({ arrays, steps, learningRate, notes }: Checkpoint, name: string): Promise<Notes> {
    if (this.about.learning_rate !== null && !Number.isFinite(learningRate))
      throw new InvalidInputError(`${name}: a learning rate is required, got ${written(learningRate)}`);
    await this.setState(arrays);
    this.steps = steps;
    if (this.about.learning_rate !== null) this.#rate = learningRate;
    return notes;
  }

  /** The files of the model that predicts, with the weights as they are now. */
  async trained(): Promise<Contents> {
    this.#part("predict", "a trained model");
    return this.#engine.trained();
  }

  /**
   * Checks the weights that steps update.
   *
   * @throws NotFiniteError one of them holds what is infinite or no number.
   */
  async checkFinite(): Promise<void> {
    const name = await this.#engine.spoilt();
    if (name !== undefined)
      throw new NotFiniteError(`after step ${this.steps} state '${name}' must be finite, got nan or infinity`);
  }

  /** Lets onnxruntime's memory go, and ends the worker. */
  async close(): Promise<void> {
    await this.#engine.close();
  }

  #rateOfStep(): number {
    if (this.about.learning_rate !== null && !Number.isFinite(this.#rate))
      throw new InvalidInputError(
        `learning_rate requires a value, since the model's '${this.about.learning_rate.name}' has no default`,
      );
    return this.#rate;
  }

  #checked(feeds: Readonly<Record<string, ArrayLike>>): Arrays {
    if (typeof feeds !== "object" || (feeds as unknown) === null || Array.isArray(feeds))
      throw new InvalidInputError(`feeds requires a dictionary of names to arrays, got ${got(feeds)}`);
    const rate = this.about.learning_rate?.name;
    const given = Object.entries(feeds).filter(([name]) => name !== rate);
    const unknown = given.find(([name]) => !this.#inputs.has(name));
    if (unknown !== undefined)
      throw new InvalidInputError(`feed '${unknown[0]}' must be one of the data inputs ${quoted(this.inputs)}`);
    const arrays = this.#fitting([...this.#inputs.values()], Object.fromEntries(given));
    if (rate !== undefined && Object.hasOwn(feeds, rate))
      this.learningRate = numberOf(asArray(feeds[rate], "float64", "learning_rate"));
    return arrays;
  }

  /** Feeds as arrays of the inputs' dtypes and shapes, whose sizes are equal where they share a name. */
  #fitting(inputs: readonly InputDescription[], feeds: Readonly<Record<string, ArrayLike>>): Arrays {
    const missing = inputs.map(({ name }) => name).filter((name) => !Object.hasOwn(feeds, name));
    if (missing.length > 0)
      throw new InvalidInputError(`input '${missing[0]!}' requires a value, got nothing (missing: ${quoted(missing)})`);
    const arrays = Object.fromEntries(
      inputs.map(({ name, dtype }) => [name, asArray(feeds[name], dtype, `input '${name}'`)]),
    );
    const named = new Map(this.#named);
    for (const { name, shape } of inputs) checkShape("input", name, shape, arrays[name]!.shape, named);
    for (const { name, shape } of inputs) {
      const axis = arrays[name]!.shape.indexOf(0);
      if (axis >= 0)
        throw new InvalidInputError(
          `input '${name}' requires a batch of one or more (${shape[axis] ?? "?"}), got shape ${sizes(arrays[name]!.shape)}`,
        );
    }
    return arrays;
  }

  #checkOutputs(outputs: readonly string[]): void {
    const { loss, outputs: others, state } = this.about;
    const names = [
      ...(loss === null ? [] : [loss]),
      ...others.map(({ name }) => name),
      ...state.flatMap(({ output, gradient }) => [output, gradient]),
    ];
    if (!Array.isArray(outputs)) throw new InvalidInputError(`outputs requires names in a list, got ${got(outputs)}`);
    const unknown = (outputs as readonly string[]).find((name) => !names.includes(name));
    if (unknown !== undefined)
      throw new InvalidInputError(
        `output '${unknown}' must be one of ${quoted(names.filter((name) => name !== null))}`,
      );
  }

  #notFinite({ loss, spoilt }: Trained, feeds: Arrays): NotFiniteError {
    const step = `step ${this.steps + 1}: the loss must be finite, got ${written(loss)}`;
    if (spoilt !== undefined)
      return new NotFiniteError(
        `${step}; '${spoilt}' already held such numbers: a step whose own loss was finite wrote them, of an infinite feed or gradient; begin again from a checkpoint`,
      );
    const fed = Object.keys(feeds).find((name) => !areFinite(feeds[name]!));
    const origin = fed === undefined ? "" : `; input '${fed}' has such numbers`;
    return new NotFiniteError(
      `${step}${origin}; the state is as before that step. A smaller learning rate or clip_norm may prevent it; onNaN 'skip' leaves such steps out, 'ignore' goes on regardless; ` +
        "in Python, ll.Trainer(step).resume(checkpoint) and first_nonfinite(feeds) name the node that made the first such number",
    );
  }

  #part(file: "eval" | "predict", what: string): PartDescription {
    const part = this.about[file];
    if (part === undefined || this.about.files[file] === undefined)
      throw new InvalidModelError(
        `${what} requires a bundle with ${file}.onnx, got one of [${Object.keys(this.about.files).join(", ")}]; export it with all its files`,
      );
    return part;
  }

  /**
   * Data to evaluate on, opened.
   *
   * @throws InvalidModelError the bundle has no eval.onnx.
   * @throws InvalidInputError the data do not fit.
   */
  scoring(data: Data, options: BatchOptions = {}): Batched {
    return this.#opened(this.#part("eval", "evaluating"), data, options).source;
  }

  #opened(
    { data: inputs }: PartDescription,
    data: Data,
    { batchSize, sampleAxis, pad, lengths }: BatchOptions,
  ): { source: Batched; layout: Layout; order: Order } {
    const isThere = ([name, axis]: [string, unknown]): boolean =>
      axis !== undefined && axis !== null && inputs.some((input) => input.name === name);
    const recorded = this.about.data.map(({ name, sample_axis }) => [name, sample_axis] as [string, number]);
    const axes = [...recorded, ...Object.entries(sampleAxis ?? {})].filter(isThere);
    const layout = new Layout(inputs, Object.fromEntries(axes));
    const padding = new Padding(layout, used({ ...(pad && { pad }), ...(lengths && { lengths }) }, layout));
    const source = openData(data, layout, padding);
    const order: Order = {
      batchSize: layout.batchSize ?? whole("batch_size", batchSize ?? 32),
      shuffle: false,
      seed: 0,
    };
    source.check(order, 1);
    if (layout.batchSize !== undefined && source.count !== undefined && source.count % layout.batchSize !== 0)
      throw new InvalidInputError(
        `data requires a multiple of ${layout.batchSize} samples, the batch size that the model fixes, got ${source.count}`,
      );
    return { source, layout, order };
  }

  async *#batches(
    part: PartDescription,
    data: Data,
    options: BatchOptions,
  ): AsyncIterable<{ feeds: Arrays; samples: number }> {
    const { source, layout, order } = this.#opened(part, data, options);
    for await (const batch of source.epoch(order, 0, 0))
      yield { feeds: this.#fitting(part.data, batch), samples: layout.samples(batch) };
  }

  async #write(values: Readonly<Record<string, ArrayLike>>): Promise<void> {
    const arrays = Object.fromEntries(
      Object.entries(values).map(([name, value]) => [
        name,
        asArray(value, this.#forms[name]!.dtype, `state '${name}'`),
      ]),
    );
    for (const [name, { shape }] of Object.entries(arrays))
      if (String(shape) !== String(this.#forms[name]!.shape))
        throw new InvalidInputError(
          `state '${name}' requires shape ${sizes(this.#forms[name]!.shape)}, got ${sizes(shape)}`,
        );
    await this.#engine.write(arrays);
  }

  /** Names of the framework -> inputs, of what training changes of the model; those of the step where they are not unique. */
  #changedNames(): Record<string, string> {
    const { state } = this.#part("predict", "an adapter");
    const changed = this.about.state.filter(
      ({ input, output, predict }) => output !== null && (predict !== null || state.includes(input)),
    );
    const named = Object.fromEntries(changed.map(({ variable, input }) => [variable ?? input, input]));
    return Object.keys(named).length === changed.length
      ? named
      : Object.fromEntries(changed.map(({ input }) => [input, input]));
  }

  /** Names of the framework -> inputs, of what makes up the model. */
  #ownNames(): Record<string, string> {
    const read = this.about.eval?.state ?? [];
    const own = this.about.state.filter(({ role, input }) => role === "weight" || read.includes(input));
    const names = Object.fromEntries(own.map(({ variable, input }) => [variable ?? input, input]));
    if (Object.keys(names).length < own.length) {
      const twice = own.find(({ variable, input }) => names[variable ?? input] !== input)!;
      throw new InvalidInputError(
        `weights require names of their own, got '${twice.variable ?? twice.input}' for several`,
      );
    }
    return names;
  }
}

/** Whether it is arrays by name, and no place or file. */
const isArrays = (value: unknown): value is Arrays =>
  isPlain(value) && Object.values(value).every((each) => isPlain(each) && "dtype" in each && "data" in each);
const isPlain = (value: unknown): value is object =>
  typeof value === "object" &&
  value !== null &&
  [Object.prototype, null].includes(Object.getPrototypeOf(value) as null);

function checkNames(what: string, names: readonly string[], given: readonly string[]): void {
  const unknown = given.find((name) => !names.includes(name));
  const missing = names.find((name) => !given.includes(name));
  if (unknown !== undefined || missing !== undefined)
    throw new InvalidInputError(
      `${what} ${quoted(names)}, got ${unknown === undefined ? `none of '${missing!}'` : `'${unknown}', which is none of them`}`,
    );
}

const isName = (size: string): boolean => /[\p{L}\p{N}]/u.test(size);

function checkShape(
  what: "state" | "input",
  name: string,
  wanted: readonly Size[],
  shape: readonly number[],
  named: Map<string, NamedSize>,
): void {
  if (wanted.length !== shape.length)
    throw new InvalidInputError(
      `${what} '${name}' requires rank ${wanted.length} ${sizes(wanted)}, got shape ${sizes(shape)}`,
    );
  wanted.forEach((size, axis) => {
    let expected: Size = size;
    let origin = "";
    if (typeof size === "string" && isName(size)) {
      const first = named.get(size) ?? { size: shape[axis]!, name };
      named.set(size, first);
      expected = first.size;
      origin = ` (${size} = ${first.size} from '${first.name}')`;
    }
    if (typeof expected === "number" && expected !== shape[axis])
      throw new InvalidInputError(
        `${what} '${name}' requires shape ${sizes(wanted)}${origin}, got ${sizes(shape)} (axis ${axis})`,
      );
  });
}

/** Outputs of several batches as one, along the axis of the samples. */
function joined(
  name: string,
  declared: readonly Size[] | null,
  arrays: readonly NDArray[],
  counts: readonly number[],
  { data }: PartDescription,
): NDArray {
  const first = arrays[0]!;
  if (arrays.length === 1) return first;
  const symbols = data.flatMap(({ shape }) => shape.filter((size) => typeof size === "string"));
  const fits = (axis: number): boolean => arrays.every(({ shape }, place) => shape[axis] === counts[place]);
  const fitting = first.shape.map((_, axis) => axis).filter(fits);
  const axes = fitting.filter((axis) => symbols.includes(String(declared?.[axis])));
  const axis = axes.length === 1 ? axes[0] : fitting.length === 1 ? fitting[0] : undefined;
  if (axis === undefined)
    throw new InvalidInputError(
      `output '${name}' requires an axis of samples, ${counts[0]!} in the first batch, got ${sizes(first.shape)}; predict with a batch_size of all samples`,
    );
  const rest = (shape: readonly number[]): string => String(shape.filter((_, at) => at !== axis));
  if (arrays.some(({ shape }) => rest(shape) !== rest(first.shape)))
    throw new InvalidInputError(
      `output '${name}' requires one shape in all batches to be put together, got ${sizes(first.shape)} and others; predict batch by batch`,
    );
  return concatenated(arrays, axis);
}

async function heldBy(from: unknown, kind = "checkpoint"): Promise<{ bytes: Uint8Array | undefined; name: string }> {
  if (from instanceof Uint8Array) return { bytes: from, name: kind };
  if (from instanceof ArrayBuffer) return { bytes: new Uint8Array(from), name: kind };
  if (from instanceof Blob)
    return { bytes: new Uint8Array(await from.arrayBuffer()), name: (from as Partial<File>).name ?? kind };
  const place = placeOf(from);
  return { bytes: await place.read(), name: place.name };
}

/**
 * The mean of several models' weights, as a federated round makes it.
 *
 * @param models what `weights()` gave, of each.
 * @param counts how much each counts, such as its number of samples; all the same without them. What is no
 *   floating-point number, such as a counter, is that of the first model that counts most.
 * @throws InvalidInputError they are not of one model.
 */
export function average(models: readonly Arrays[], counts: readonly number[] = models.map(() => 1)): Arrays {
  const total = counts.reduce((a, b) => a + b, 0);
  if (!models.every(isPlain))
    throw new InvalidInputError("average requires weights of models, as weights() gives them, got others");
  if (models.length === 0 || counts.length !== models.length || !(total > 0) || counts.some((count) => !(count >= 0)))
    throw new InvalidInputError(
      `average requires one or more models and a count of samples for each, got ${models.length} and [${counts.join(", ")}]`,
    );
  const most = models[counts.indexOf(Math.max(...counts))]!;
  for (const model of models) {
    const other = [...new Set([...Object.keys(most), ...Object.keys(model)])].find(
      (name) => formOf(model[name]) !== formOf(most[name]),
    );
    if (other !== undefined)
      throw new InvalidInputError(
        `average requires weights of one model, got '${other}' of ${formOf(most[other])} and of ${formOf(model[other])}`,
      );
  }
  return Object.fromEntries(
    Object.entries(most).map(([name, array]) => [
      name,
      meanOf(
        array,
        models.map((model) => model[name]!),
        counts,
        total,
      ),
    ]),
  );
}

const formOf = (array: NDArray | undefined): string =>
  array === undefined ? "nothing" : array.dtype + sizes(array.shape);

function meanOf(most: NDArray, arrays: readonly NDArray[], counts: readonly number[], total: number): NDArray {
  if (most.dtype !== "float32" && most.dtype !== "float64") return most;
  const sums = new Float64Array(most.data.length);
  arrays.forEach(({ data }, number) => {
    for (let place = 0; place < sums.length; place++) sums[place]! += Number(data[place]) * counts[number]!;
  });
  const mean = { ...most, data: most.data.slice() };
  for (let place = 0; place < sums.length; place++) mean.data[place] = sums[place]! / total;
  return mean;
}

/** Whether two states are equal, bit for bit. */
export function equal(one: Arrays, other: Arrays): boolean {
  const names = Object.keys(one);
  const same = (a: NDArray, b: NDArray | undefined): boolean => {
    if (b === undefined || formOf(a) !== formOf(b)) return false;
    const [x, y] = [bytesOf(a), bytesOf(b)];
    return x.every((byte, place) => byte === y[place]);
  };
  return names.length === Object.keys(other).length && names.every((name) => same(one[name]!, other[name]));
}
