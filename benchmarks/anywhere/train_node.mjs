// node train_node.mjs TENSORFLOW_JS FOLDER CONTESTANT THREADS LOSSES SECONDS: prints what `measure` returns as JSON.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { load, readNpz } from "../../runtime/javascript/dist/index.js";
import { bundleStep, measure, tensorFlowStep } from "./train.mjs";

const [packages, folder, contestant, threads, losses, seconds] = process.argv.slice(2);
const ours = createRequire(import.meta.url);
const require = createRequire(join(packages, "package.json"));
const model = JSON.parse(await readFile(join(folder, "model.json"), "utf8"));
const data = await readNpz(new Uint8Array(await readFile(join(folder, "data.npz"))));

async function ofBundle(name) {
  const onnxruntime = ours(name);
  if (name === "onnxruntime-web") onnxruntime.env.wasm.numThreads = Number(threads);
  return bundleStep(load, join(folder, "bundle"), { onnxruntime, threads: Number(threads) }, data);
}

async function ofTensorFlow(backend) {
  const tf = require("@tensorflow/tfjs");
  if (backend === "wasm")
    require("@tensorflow/tfjs-backend-wasm").setWasmPaths(`${dirname(require.resolve("@tensorflow/tfjs-backend-wasm"))}/`);
  if (!(await tf.setBackend(backend))) throw new Error(`TensorFlow.js has no backend ${backend}`);
  return tensorFlowStep(tf, model, data);
}

const [kind, name] = contestant.split(" ");
const found = await measure(() => (kind === "bundle" ? ofBundle(name) : ofTensorFlow(name)), Number(losses), Number(seconds));
console.log(JSON.stringify(found));
process.exit(0);
