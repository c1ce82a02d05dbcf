// An engine in a worker, as the page sees it, so that a page does not stand still while it trains.
import type { Arrays, Dtype } from "./arrays.js";
import type { Description } from "./description.js";
import type { Contents, Engine, EngineOptions, Trained } from "./engine.js";
import { closed, InvalidInputError, received, type SentError } from "./errors.js";

/** What the page asks a worker. */
export interface Question {
  readonly number: number;
  readonly method: keyof Engine | "open";
  readonly values: readonly unknown[];
}

/** What the worker answers. */
export type Answer = { readonly number: number } & ({ readonly value: unknown } | { readonly error: SentError });

/** What a worker begins with. */
export interface Opening {
  /** Address of onnxruntime-web's module; without it the worker imports `onnxruntime-web`, as a bundler resolves it. */
  readonly onnxruntime: string | undefined;
  readonly about: Description;
  readonly contents: Contents;
  readonly options: EngineOptions;
}

interface Waiting {
  readonly resolve: (value: never) => void;
  readonly reject: (error: Error) => void;
}

/** Workers that have a trainer. */
const taken = new WeakSet<Worker>();

export class RemoteEngine implements Engine {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, Waiting>();
  #asked = 0;
  /** Why the worker answers no longer. */
  #ended: Error | undefined;

  private constructor(worker: Worker) {
    this.#worker = worker;
    worker.onmessage = ({ data }: MessageEvent<Answer>) => {
      const { resolve, reject } = this.#waiting.get(data.number)!;
      this.#waiting.delete(data.number);
      if ("error" in data) reject(received(data.error));
      else resolve(data.value as never);
    };
    worker.onerror = (event) => {
      event.preventDefault();
      this.#end(
        new InvalidInputError(
          `a worker requires worker.js beside the package's index.js, got an error: ${event.message || "it cannot be loaded"}; load(bundle, { worker: false }) does without`,
        ),
      );
    };
  }

  static async open(worker: Worker, opening: Opening): Promise<RemoteEngine> {
    if (taken.has(worker))
      throw new InvalidInputError("a trainer requires a worker of its own, got one that another trainer has");
    taken.add(worker);
    const engine = new RemoteEngine(worker);
    try {
      const moved = Object.values(opening.contents).map(({ buffer }) => buffer);
      const lock = await engine.#ask<string | undefined>("open", [opening], moved);
      if (lock !== undefined) engine.#watch(lock);
    } catch (error) {
      worker.terminate();
      throw error;
    }
    return engine;
  }

  /** A worker that dies, of memory that it does not get for example, sends no event; but its locks come free. */
  #watch(lock: string): void {
    void navigator.locks.request(lock, () => {
      this.#end(
        new InvalidInputError(
          "a trainer requires its worker, got one that has ended, such as for lack of memory; load the bundle again, and resume a checkpoint",
        ),
      );
    });
  }

  #end(reason: Error): void {
    this.#ended ??= reason;
    for (const { reject } of this.#waiting.values()) reject(this.#ended);
    this.#waiting.clear();
  }

  forms(): Promise<Record<string, { dtype: Dtype; shape: readonly number[] }>> {
    return this.#ask("forms", []);
  }

  train(feeds: Arrays, rate: number, outputs: readonly string[], ignore: boolean): Promise<Trained> {
    return this.#ask("train", [own(feeds), rate, outputs, ignore]);
  }

  evaluate(feeds: Arrays, isFirst: boolean): Promise<Arrays> {
    return this.#ask("evaluate", [own(feeds), isFirst]);
  }

  predict(feeds: Arrays): Promise<Arrays> {
    return this.#ask("predict", [own(feeds)]);
  }

  read(): Promise<Arrays> {
    return this.#ask("read", []);
  }

  write(values: Arrays): Promise<void> {
    return this.#ask("write", [own(values)]);
  }

  spoilt(): Promise<string | undefined> {
    return this.#ask("spoilt", []);
  }

  trained(): Promise<Contents> {
    return this.#ask("trained", []);
  }

  async close(): Promise<void> {
    if (this.#ended !== undefined) return;
    await this.#ask("close", []);
    this.#end(closed());
    this.#worker.terminate();
  }

  #ask<T>(method: Question["method"], values: readonly unknown[], moved: readonly ArrayBufferLike[] = []): Promise<T> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended);
    return new Promise<T>((resolve, reject) => {
      const number = this.#asked++;
      this.#waiting.set(number, { resolve, reject });
      this.#worker.postMessage({ number, method, values } satisfies Question, [...moved] as Transferable[]);
    });
  }
}

/** Arrays without the memory around them, all of which would be sent. */
function own(arrays: Arrays): Arrays {
  const entries = Object.entries(arrays).map(([name, { dtype, shape, data }]) => {
    return [
      name,
      { dtype, shape: [...shape], data: data.byteLength < data.buffer.byteLength ? data.slice() : data },
    ] as const;
  });
  return Object.fromEntries(entries);
}
