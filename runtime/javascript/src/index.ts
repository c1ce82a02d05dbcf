// Trains bundles of lstm-lower in Node and in browsers:
//     const trainer = await load("bundle");
//     await trainer.fit({ x, target }, { epochs: 5 });
import { readBundle, type Source } from "./bundle.js";
import { LocalEngine, type Ort } from "./engine.js";
import { checkOptions, got, InvalidInputError, quoted, whole } from "./errors.js";
import { isNode } from "./places.js";
import { RemoteEngine } from "./remote.js";
import { fromAddress, fromNode, fromWeb } from "./runtimes.js";
import { type OnNaN, Trainer } from "./trainer.js";

export {
  type ArrayLike,
  argmax,
  type Arrays,
  arrayOf,
  astype,
  type Dtype,
  type NDArray,
  type Nested,
  take,
  type TensorLike,
} from "./arrays.js";
export type { FilesByName, Source } from "./bundle.js";
export { type Checkpoint, decodeAdapter, type Notes } from "./checkpoint.js";
export type { Batch, Data } from "./data.js";
export type * from "./description.js";
export { InvalidInputError, InvalidModelError, LstmLowerError, NotFiniteError, shown } from "./errors.js";
export type { Callback, Fit, FitOptions, History, Logs } from "./fit.js";
export { readNpy, readNpz } from "./npz.js";
export { inFile, inHandle, inIndexedDB, inOPFS, type Place } from "./places.js";
export type { PaddingOptions } from "./table.js";
export { average, type BatchOptions, equal, type Kept, type OnNaN, type StepResult, Trainer } from "./trainer.js";

/** How a bundle is opened. */
export interface LoadOptions {
  /**
   * onnxruntime: its module, or in a page the address of one, such as that of `ort.wasm.min.mjs`. Without it
   * `onnxruntime-node` is imported in Node, and `onnxruntime-web` elsewhere. A worker takes an address alone.
   */
  readonly onnxruntime?: Ort | string | URL;
  /** Whether the models run in a worker; in a page they do. */
  readonly worker?: boolean | Worker;
  /** Execution providers, such as `["webgpu"]`. */
  readonly providers?: readonly string[];
  /** Threads that compute: in a browser 1, since two are slower for models of a few hundred units. */
  readonly threads?: number;
  /** Open sizes of the state, such as `{ classes: 5 }` for a head whose class count is open. */
  readonly sizes?: Readonly<Record<string, number>>;
  readonly learningRate?: number;
  readonly onNaN?: OnNaN;
}

const OPTIONS: Record<keyof LoadOptions, true> = {
  onnxruntime: true,
  worker: true,
  providers: true,
  sizes: true,
  threads: true,
  learningRate: true,
  onNaN: true,
};

/**
 * Opens a bundle: checks its files, and makes a trainer whose state is the bundle's first one.
 *
 * @param source the address or the path of its folder, or its files.
 * @throws InvalidModelError a file is missing, damaged, or of another version or bundle.
 * @throws InvalidInputError an option does not fit.
 */
export async function load(source: Source, options: LoadOptions = {}): Promise<Trainer> {
  checkOptions("load", options, OPTIONS);
  const { providers, learningRate, onNaN } = options;
  const threads = options.threads ?? (isNode() ? undefined : 1);
  if (threads !== undefined) whole("threads", threads);
  const { about, contents } = await readBundle(source);
  for (const file of ["init", "train"] as const)
    if (about.files[file] === undefined)
      throw new InvalidInputError(
        `a bundle that trains requires ${file}.onnx, got one of [${Object.keys(about.files).join(", ")}]`,
      );
  const held = {
    ...(providers === undefined ? {} : { providers }),
    ...(threads === undefined ? {} : { threads }),
    sizes: checkedSizes(about.sizes ?? [], options.sizes ?? {}),
  };
  const worker = isInWorker(options) ? workerOf(options) : undefined;
  const engine =
    worker === undefined
      ? await LocalEngine.open(await onnxruntimeOf(options), about, contents, held)
      : await RemoteEngine.open(worker, {
          onnxruntime: addressOf(options.onnxruntime),
          about,
          contents,
          options: held,
        });
  try {
    const trainer = await Trainer.of(about, engine);
    if (learningRate !== undefined) trainer.learningRate = learningRate;
    if (onNaN !== undefined) trainer.onNaN = onNaN;
    return trainer;
  } catch (error) {
    await engine.close();
    throw error;
  }
}

function checkedSizes(open: readonly string[], given: Readonly<Record<string, number>>): Record<string, number> {
  const unknown = Object.keys(given).find((name) => !open.includes(name));
  if (unknown !== undefined)
    throw new InvalidInputError(
      `sizes requires names of the state's open sizes, ${open.length > 0 ? quoted(open) : "none"}, got ${got(unknown)}`,
    );
  const missing = open.find((name) => !Object.hasOwn(given, name));
  if (missing !== undefined)
    throw new InvalidInputError(
      `the state requires a number for its open size '${missing}', got none; load(bundle, { sizes: { ${missing}: 5 } }) gives one`,
    );
  for (const name of open) whole(`sizes['${name}']`, given[name]!);
  return { ...given };
}

const isInWorker = ({ worker, onnxruntime }: LoadOptions): boolean =>
  worker !== false &&
  (worker !== undefined ||
    (typeof document !== "undefined" &&
      typeof Worker !== "undefined" &&
      (onnxruntime === undefined || addressOf(onnxruntime) !== undefined)));

const workerOf = ({ worker }: LoadOptions): Worker =>
  typeof worker === "object" ? worker : new Worker(new URL("./worker.js", import.meta.url), { type: "module" });

function addressOf(onnxruntime: unknown): string | undefined {
  if (onnxruntime === undefined) return undefined;
  if (typeof onnxruntime === "string" || onnxruntime instanceof URL)
    return new URL(onnxruntime, typeof location === "undefined" ? undefined : location.href).href;
  return undefined;
}

async function onnxruntimeOf({ onnxruntime, providers }: LoadOptions): Promise<Ort> {
  const address = addressOf(onnxruntime);
  if (address !== undefined) return fromAddress(address);
  if (typeof onnxruntime === "object") {
    if (!("InferenceSession" in onnxruntime))
      throw new InvalidInputError(
        `onnxruntime requires the module onnxruntime-node or onnxruntime-web, got ${got(onnxruntime)}`,
      );
    return onnxruntime;
  }
  return isNode() ? fromNode() : fromWeb(providers);
}
