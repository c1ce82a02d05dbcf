// Where onnxruntime comes from. Bundlers read the names of modules here, and put those of the web beside a page.
import type { Ort } from "./engine.js";
import { InvalidInputError } from "./errors.js";

/**
 * The module at an address, as it is.
 *
 * @throws InvalidInputError there is none.
 */
export async function fromAddress(address: string): Promise<Ort> {
  try {
    return (await import(/* webpackIgnore: true */ /* @vite-ignore */ address)) as Ort;
  } catch (error) {
    throw new InvalidInputError(
      `onnxruntime requires the address of its module, such as that of ort.wasm.min.mjs, got ${address}: ${(error as Error).message}`,
    );
  }
}

/** onnxruntime-web, as little of it as the providers need: its own main module has 28 MB of WASM in place of 14. */
export async function fromWeb(providers: readonly string[] = []): Promise<Ort> {
  return providers.includes("webgpu") ? import("onnxruntime-web/webgpu") : import("onnxruntime-web/wasm");
}

// No literal, by which a bundler would look for it where a page is made.
const NODE = ["onnxruntime", "node"];

/** onnxruntime-node. */
export async function fromNode(): Promise<Ort> {
  // From 1.32 on, onnxruntime for Linux reports to its maker otherwise.
  process.env.ORT_DISABLE_TELEMETRY ??= "1";
  const module = (await import(/* webpackIgnore: true */ /* @vite-ignore */ NODE.join("-"))) as Ort & { default?: Ort };
  return module.default ?? module;
}
