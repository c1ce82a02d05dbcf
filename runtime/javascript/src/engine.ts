// The models of a bundle in onnxruntime, and the state between their runs. It may run in a worker: what comes and goes
// can be sent.
import type * as Onnxruntime from "onnxruntime-common";

import {
  arrayOf,
  type Arrays,
  bytesOf,
  type Dtype,
  isDtype,
  areFinite,
  KINDS,
  type NDArray,
  numberOf,
  product,
  scalar,
} from "./arrays.js";
import {
  checkFile,
  type Description,
  type ModelFile,
  type PartDescription,
  type StateDescription,
  type TotalDescription,
} from "./description.js";
import { closed, InvalidInputError, InvalidModelError } from "./errors.js";
import { withWeight } from "./weights.js";

/** onnxruntime-node or onnxruntime-web. */
export type Ort = Pick<typeof Onnxruntime, "InferenceSession" | "Tensor" | "env">;

export interface EngineOptions {
  /** Execution providers, such as `["webgpu"]`; onnxruntime's own choice without them. */
  readonly providers?: readonly string[];
  /** Threads that compute. */
  readonly threads?: number;
  /** Open sizes of the state, all that init.onnx takes. */
  readonly sizes?: Readonly<Record<string, number>>;
}

/** What a training step came to. */
export interface Trained {
  /** The loss before the update; NaN for a step without one. */
  readonly loss: number;
  readonly outputs: Arrays;
  /** Whether the state has changed. */
  readonly updated: boolean;
  /** Where the loss is not finite: a weight that was not either before the step. */
  readonly spoilt: string | undefined;
}

/** What a trainer needs of its models; every call waits for those before it. */
export interface Engine {
  /** Dtypes and shapes of the state, by input. */
  forms(): Promise<Record<string, { dtype: Dtype; shape: readonly number[] }>>;
  /** A training step: the state moves unless the loss is no finite number, or always under `ignore`. */
  train(feeds: Arrays, rate: number, outputs: readonly string[], ignore: boolean): Promise<Trained>;
  /** Scores of a batch by output, running totals included; these begin anew at the first batch. */
  evaluate(feeds: Arrays, isFirst: boolean): Promise<Arrays>;
  /** Predictions of a batch with the state as it is now. */
  predict(feeds: Arrays): Promise<Arrays>;
  /** Copies of the state. */
  read(): Promise<Arrays>;
  /** Puts values in place of some of the state; they fit. */
  write(values: Arrays): Promise<void>;
  /** The first of the weights that steps update which holds what is infinite or no number. */
  spoilt(): Promise<string | undefined>;
  /** The files of the model that predicts, with the weights as they are now. */
  trained(): Promise<Record<string, Uint8Array>>;
  close(): Promise<void>;
}

export type Contents = Record<string, Uint8Array>;

// What onnxruntime's kernels say of indices.
const OUT_OF_RANGE = ["out of data bounds", "Out of range value in index", "invalid index"];
// 2 ** 31 - 1, by which an index below zero is told: behind the end of every axis.
const BEYOND = 2147483647;
const QUIET = { logSeverityLevel: 4 } as const;

/** An engine in this thread. */
export class LocalEngine implements Engine {
  readonly #ort: Ort;
  readonly #about: Description;
  readonly #contents: Contents;
  readonly #options: EngineOptions;
  /** The state that steps change. */
  readonly #moving: readonly StateDescription[];
  readonly #sessions = new Map<ModelFile, Promise<Onnxruntime.InferenceSession>>();
  #state: Record<string, Onnxruntime.Tensor> = {};
  #totals: Record<string, Onnxruntime.Tensor> = {};
  #last: Promise<unknown> = Promise.resolve();
  #closed = false;

  private constructor(ort: Ort, about: Description, contents: Contents, options: EngineOptions) {
    [this.#ort, this.#about, this.#contents, this.#options] = [ort, about, contents, options];
    this.#moving = about.state.filter(({ output }) => output !== null);
  }

  /**
   * Checks the files, opens the step and computes the first state.
   *
   * @throws InvalidModelError a file is damaged, or onnxruntime refuses it.
   */
  static async open(ort: Ort, about: Description, contents: Contents, options: EngineOptions): Promise<LocalEngine> {
    for (const [name, bytes] of Object.entries(contents)) checkFile(about, name, bytes);
    if (options.threads !== undefined) ort.env.wasm.numThreads = options.threads;
    ort.env.logLevel = "error";
    const engine = new LocalEngine(ort, about, contents, options);
    const init = await engine.#session("init");
    await engine.#session("train");
    const sizes = Object.entries(options.sizes ?? {}).map(([name, size]) => [
      name,
      new ort.Tensor("int64", BigInt64Array.of(BigInt(size)), []),
    ]);
    const first = await init.run(Object.fromEntries(sizes) as Record<string, Onnxruntime.Tensor>, QUIET);
    for (const { input } of about.state) {
      const value = first[input];
      if (value === undefined)
        throw new InvalidModelError(`init.onnx requires a value of every state, got none of '${input}'`);
      engine.#state[input] = value;
    }
    await init.release();
    engine.#sessions.delete("init");
    return engine;
  }

  async forms(): Promise<Record<string, { dtype: Dtype; shape: readonly number[] }>> {
    return Object.fromEntries(
      this.#about.state.map(({ input, dtype }) => [input, { dtype, shape: this.#state[input]!.dims }]),
    );
  }

  train(feeds: Arrays, rate: number, outputs: readonly string[], ignore: boolean): Promise<Trained> {
    return this.#inTurn(async () => {
      const { loss: named, learning_rate: scaled } = this.#about;
      const session = await this.#session("train");
      const moving = this.#moving;
      const fetched = new Set([...(named === null ? [] : [named]), ...moving.map(({ output }) => output!), ...outputs]);
      const rates = scaled === null ? {} : { [scaled.name]: this.#tensor(scalar(scaled.dtype, rate)) };
      const results = await this.#run(session, { ...this.#state, ...rates, ...this.#tensors(feeds) }, [...fetched]);
      const loss = named === null ? NaN : numberOf(arrayFrom(results[named]!));
      const updated = named === null || Number.isFinite(loss) || ignore;
      const spoilt = updated ? undefined : this.#spoilt();
      if (updated) for (const { input, output } of moving) this.#state[input] = results[output!]!;
      if (updated) this.#forget("predict");
      return {
        loss,
        outputs: Object.fromEntries(outputs.map((name) => [name, copied(results[name]!)])),
        updated,
        spoilt,
      };
    });
  }

  evaluate(feeds: Arrays, isFirst: boolean): Promise<Arrays> {
    return this.#inTurn(async () => {
      const session = await this.#session("eval");
      const { state, totals, metrics } = this.#about.eval!;
      if (isFirst)
        this.#totals = Object.fromEntries(totals.map((total) => [total.input, this.#tensor(firstOf(total))]));
      const held = Object.fromEntries(state.map((name) => [name, this.#state[name]!]));
      const scores = [...(this.#about.loss === null ? [] : [this.#about.loss]), ...metrics.map(({ name }) => name)];
      const names = scores.filter((name) => session.outputNames.includes(name));
      const results = await this.#run(session, { ...held, ...this.#totals, ...this.#tensors(feeds) }, [
        ...names,
        ...totals.map(({ output }) => output),
      ]);
      this.#totals = Object.fromEntries(totals.map(({ input, output }) => [input, results[output]!]));
      return Object.fromEntries(names.map((name) => [name, copied(results[name]!)]));
    });
  }

  predict(feeds: Arrays): Promise<Arrays> {
    return this.#inTurn(async () => {
      const session = await this.#session("predict");
      const names = (this.#about.predict as PartDescription).predictions.map(({ name }) => name);
      const results = await this.#run(session, this.#tensors(feeds), names);
      return Object.fromEntries(names.map((name) => [name, copied(results[name]!)]));
    });
  }

  read(): Promise<Arrays> {
    return this.#inTurn(async () =>
      Object.fromEntries(Object.entries(this.#state).map(([name, value]) => [name, copied(value)])),
    );
  }

  write(values: Arrays): Promise<void> {
    return this.#inTurn(async () => {
      for (const [name, value] of Object.entries(values))
        this.#state[name] = this.#tensor(arrayOf(value.dtype, value.shape, bytesOf(value)));
      this.#forget("predict");
    });
  }

  spoilt(): Promise<string | undefined> {
    return this.#inTurn(async () => this.#spoilt());
  }

  trained(): Promise<Contents> {
    return this.#inTurn(async () => this.#trained());
  }

  close(): Promise<void> {
    if (this.#closed) return Promise.resolve();
    const last = this.#inTurn(async () => {
      for (const session of this.#sessions.values()) await (await session).release();
      this.#sessions.clear();
    });
    this.#closed = true;
    return last;
  }

  /** Runs what reads and writes the state when all that was asked for before has run. */
  #inTurn<T>(task: () => Promise<T>): Promise<T> {
    if (this.#closed) return Promise.reject(closed());
    const turn = this.#last.then(task, task);
    this.#last = turn.catch(() => undefined);
    return turn;
  }

  #session(file: ModelFile): Promise<Onnxruntime.InferenceSession> {
    const open = this.#sessions.get(file) ?? this.#opened(file);
    this.#sessions.set(file, open);
    return open;
  }

  async #opened(file: ModelFile): Promise<Onnxruntime.InferenceSession> {
    const { model, data } = this.#about.files[file]!;
    const contents = file === "predict" ? this.#trained() : this.#contents;
    const { providers, threads } = this.#options;
    try {
      return await this.#ort.InferenceSession.create(contents[model]!, {
        ...QUIET,
        ...(providers === undefined ? {} : { executionProviders: [...providers] }),
        ...(threads === undefined ? {} : { intraOpNumThreads: threads }),
        externalData: data.map((path) => ({ path, data: contents[path]! })),
      });
    } catch (error) {
      throw new InvalidModelError(`onnxruntime refuses ${model}: ${(error as Error).message}`);
    }
  }

  /** Closes a model whose weights are no longer those of the state. */
  #forget(file: ModelFile): void {
    void this.#sessions.get(file)?.then((session) => session.release());
    this.#sessions.delete(file);
  }

  async #run(
    session: Onnxruntime.InferenceSession,
    feeds: Record<string, Onnxruntime.Tensor>,
    outputs: readonly string[],
  ): Promise<Record<string, Onnxruntime.Tensor>> {
    try {
      return await session.run(feeds, outputs, QUIET);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      const ended = /the_schedule_ends_after_(\d+)_updates/.exec(message);
      if (ended !== null)
        throw new InvalidInputError(
          `the schedule of learning rates requires at most ${ended[1]!} updates, as many as its table has, got one more; ` +
            "ll.from_torch(..., schedule_steps=N) makes a longer table, and trainer.save and resume take the state over",
        );
      const isIndex = OUT_OF_RANGE.some((words) => message.includes(words));
      const way = isIndex
        ? `; labels and indices require numbers in range, of which one below zero is told as ${BEYOND}`
        : "";
      throw new InvalidInputError(`onnxruntime failed on these feeds: ${message}${way}`);
    }
  }

  #spoilt(): string | undefined {
    return this.#about.state.find(
      ({ input, role, output }) => role === "weight" && output !== null && !areFinite(arrayFrom(this.#state[input]!)),
    )?.input;
  }

  #trained(): Contents {
    const { model, data } = this.#about.files.predict!;
    const contents = Object.fromEntries([model, ...data].map((name) => [name, new Uint8Array(this.#contents[name]!)]));
    const open = new Set(this.#about.predict!.state);
    for (const { input, predict } of this.#about.state) {
      if (open.has(input)) contents[model] = withWeight(contents[model]!, input, arrayFrom(this.#state[input]!));
      if (predict === null) continue;
      const { file, offset, length } = predict;
      const bytes = bytesOf(arrayFrom(this.#state[input]!));
      const content = Object.hasOwn(contents, file) ? contents[file] : undefined;
      if (
        content === undefined ||
        bytes.length !== length ||
        !Number.isSafeInteger(offset) ||
        offset < 0 ||
        offset + length > content.length
      )
        throw new InvalidModelError(
          `'${input}' requires a place for its ${bytes.length} bytes in a file of the model, got ${length} at ${offset} of '${file}'`,
        );
      content.set(bytes, offset);
    }
    return contents;
  }

  #tensors(arrays: Arrays): Record<string, Onnxruntime.Tensor> {
    return Object.fromEntries(Object.entries(arrays).map(([name, array]) => [name, this.#tensor(array)]));
  }

  #tensor({ dtype, data, shape }: NDArray): Onnxruntime.Tensor {
    return new this.#ort.Tensor(dtype, data as Float32Array, shape);
  }
}

/** An array that shares the tensor's memory. */
function arrayFrom({ type, data, dims }: Onnxruntime.Tensor): NDArray {
  if (!isDtype(type) || !ArrayBuffer.isView(data))
    throw new InvalidModelError(`the model requires outputs of numbers, got ${type}`);
  const { Numbers } = KINDS[type];
  return { dtype: type, shape: dims, data: new Numbers(data.buffer, data.byteOffset, product(dims)) };
}

function copied(tensor: Onnxruntime.Tensor): NDArray {
  const array = arrayFrom(tensor);
  return arrayOf(array.dtype, [...array.shape], bytesOf(array));
}

function firstOf({ dtype, shape, first }: TotalDescription): NDArray {
  const values = Array.isArray(first)
    ? (first as (number | string)[])
    : Array<number | string>(product(shape)).fill(first as number);
  const array = { dtype, shape, data: new KINDS[dtype].Numbers(product(shape)) };
  const isBig = array.data instanceof BigInt64Array || array.data instanceof BigUint64Array;
  values.forEach(
    (value, place) => ((array.data as unknown as unknown[])[place] = isBig ? BigInt(value) : Number(value)),
  );
  return array;
}
