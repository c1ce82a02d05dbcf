// The worker: onnxruntime-web, a bundle's models and their state.
import { LocalEngine } from "./engine.js";
import { sent } from "./errors.js";
import type { Answer, Opening, Question } from "./remote.js";
import { fromAddress, fromWeb } from "./runtimes.js";

let engine: LocalEngine | undefined;

async function answered({ method, values }: Question): Promise<unknown> {
  if (method !== "open") {
    const open = engine!;
    return (open[method] as (...given: readonly unknown[]) => Promise<unknown>).apply(open, [...values]);
  }
  const { onnxruntime, about, contents, options } = values[0] as Opening;
  const ort = await (onnxruntime === undefined ? fromWeb(options.providers) : fromAddress(onnxruntime));
  engine = await LocalEngine.open(ort, about, contents, options);
  return held();
}

/** The name of a lock that comes free when this worker ends, however it does; only pages on https and on localhost have locks. */
function held(): Promise<string | undefined> {
  if (!("locks" in navigator)) return Promise.resolve(undefined);
  const name = `lstm-lower-train ${crypto.randomUUID()}`;
  return new Promise((resolve) => {
    void navigator.locks.request(name, () => {
      resolve(name);
      return new Promise<never>(() => undefined);
    });
  });
}

self.onmessage = ({ data }: MessageEvent<Question>) => {
  const answer = (rest: { value: unknown } | { error: ReturnType<typeof sent> }): void => {
    (self as unknown as Worker).postMessage({ number: data.number, ...rest } satisfies Answer);
  };
  answered(data).then(
    (value) => {
      answer({ value });
    },
    (error: unknown) => {
      answer({ error: sent(error) });
    },
  );
};
