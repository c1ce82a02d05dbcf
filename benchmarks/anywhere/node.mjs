// node node.mjs PACKAGES MODEL FEEDS.npz ROUNDS: prints what `measure` returns as JSON. PACKAGES has node_modules.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { measure } from "./measure.mjs";

const [packages, model, feeds, rounds] = process.argv.slice(2);
const ort = createRequire(join(packages, "package.json"))("onnxruntime-node");
const [graph, npz] = await Promise.all([model, feeds].map(async (path) => new Uint8Array(await readFile(path))));
console.log(JSON.stringify(await measure(ort, {}, graph, npz, Number(rounds))));
