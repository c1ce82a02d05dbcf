// node fingerprints.mjs BUNDLE: runs on samples, on so many that some are looked at, and on others in a run of Python's, with their checkpoints.
import { load } from "../../runtime/javascript/dist/index.js";

const bundle = process.argv[2];
const samples = (count, shift = 0) => ({
  x: { dtype: "float32", shape: [count, 6], data: Float32Array.from({ length: 6 * count }, (_, place) => (place % 251) + shift) },
  target: Array.from({ length: count }, (_, row) => row % 3),
});
const warned = [];
console.warn = (text) => warned.push(text);
const fitted = async (count, options, shift = 0) =>
  (await load(bundle)).fit(samples(count, shift), { batchSize: count, validation: samples(8), ...options });
await fitted(8, { checkpoint: "few.safetensors" });
await fitted(720_000, { checkpoint: "many.safetensors" });
await fitted(8, { checkpoint: "python.safetensors", epochs: 2 });
const before = [...warned];
await fitted(8, { checkpoint: "python.safetensors", epochs: 3 }, 1);
console.log(JSON.stringify({ before, warned: warned.slice(before.length) }));
