// node padding.mjs BUNDLE DATA LENGTHS: sequences of different lengths, padded and in buckets, right and wrong, as JSON.
import { equal, load } from "../../runtime/javascript/dist/index.js";

const [bundle, given, told] = process.argv.slice(2);
const { x: lists, target } = JSON.parse(given);
const rows = (list, Numbers) => ({ dtype: Numbers === Float32Array ? "float32" : "float64", shape: [list.length, 3], data: Numbers.from(list.flat()) });
const x = lists.map((list) => rows(list, Float32Array));
const padded = { pad: { x: 0.5 }, lengths: { n: "x" } };
const options = { epochs: 2, batchSize: 4, seed: 3, validation: { x, target }, ...padded };
const fitted = async (more) => (await (await load(bundle)).fit({ x, target }, { ...options, ...more })).epochs;
const predictions = await (await load(bundle)).predict({ x }, { batchSize: 7, ...padded });

const FAULTS = {
  "not padded": [{ x, n: Int32Array.from(JSON.parse(told)), target }, {}],
  "no lengths": [{ x, target }, { ...padded, lengths: {} }],
  "too short a bucket": [{ x, target }, { ...padded, buckets: [2, 4] }],
  "samples of two widths": [{ x: [x[0], { dtype: "float32", shape: [2, 4], data: new Float32Array(8) }], target: target.slice(0, 2) }, padded],
  "samples of another rank": [{ x: [x[0].data], target: target.slice(0, 1) }, padded],
  "labels in sequences": [{ x, target }, { ...padded, pad: { target: 0 } }],
};
const messages = {};
for (const [name, [data, more]] of Object.entries(FAULTS)) {
  const trainer = await load(bundle);
  await trainer.fit(data, { batchSize: 32, ...more }).catch((error) => (messages[name] = error.message));
}

const warned = [];
console.warn = (text) => warned.push(text);
await (await load(bundle)).fit({ x: lists.map((list) => rows(list, Float64Array)), target }, padded);

// A run that is stopped in its third step goes on from there.
const place = "run.safetensors";
const [whole, halves, rest] = [await load(bundle), await load(bundle), await load(bundle)];
const bucketed = { ...options, buckets: [4, 8] };
await whole.fit({ x, target }, bucketed);
const stop = new AbortController();
const afterStep = (_, run) => run.batch === 3 && stop.abort();
await halves.fit({ x, target }, { ...bucketed, checkpoint: place, signal: stop.signal, callbacks: [{ afterStep }] }).catch((error) => error);
await rest.fit({ x, target }, { ...bucketed, checkpoint: place });

console.log(JSON.stringify({
  longest: await fitted({}),
  buckets: await fitted({ buckets: [4, 8] }),
  predicted: [...predictions.logits.data],
  told: messages,
  warned,
  again: equal(await whole.state(), await rest.state()),
}));
