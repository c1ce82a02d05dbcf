// An engine in a worker, as the page sees it, so that a page does not stand still while it trains.
import type { Arrays, Dtype } from "./arrays.js";
import type { Description } from "./description.js";
import type { Contents, Engine, EngineOptions, Trained } from "./engine.js";
import { InvalidInputError, received, type SentError } from "./errors.js";

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

export class RemoteEngine implements Engine {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, Waiting>();
  #asked = 0;

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
      const error = new InvalidInputError(
        `a worker requires worker.js beside the package's index.js, got an error: ${event.message || "it cannot be loaded"}; load(bundle, { worker: false }) does without`,
      );
      for (const { reject } of this.#waiting.values()) reject(error);
      this.#waiting.clear();
    };
  }

  static async open(worker: Worker, opening: Opening): Promise<RemoteEngine> {
    const engine = new RemoteEngine(worker);
    try {
      await engine.#ask(
        "open",
        [opening],
        Object.values(opening.contents).map(({ buffer }) => buffer),
      );
    } catch (error) {
      worker.terminate();
      throw error;
    }
    return engine;
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
    await this.#ask("close", []);
    this.#worker.terminate();
  }

  #ask<T>(method: Question["method"], values: readonly unknown[], moved: readonly ArrayBufferLike[] = []): Promise<T> {
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
