// node faults.mjs BUNDLE FOLDER SHARED: does more than a hundred things wrong to the package, and prints what it says of each as JSON.
// SHARED is a bundle whose models share a file of weights.
import { copyFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { average, inIndexedDB, load } from "../../runtime/javascript/dist/index.js";

const [bundle, folder, shared] = process.argv.slice(2);
const trainer = await load(bundle);
const x = { dtype: "float32", shape: [4, 6], data: Float32Array.from({ length: 24 }, (_, place) => Math.sin(place)) };
const target = [0, 1, 2, 1];
const labels = (...each) => ({ x, target: each });
const [state, weights] = [await trainer.state(), await trainer.weights()];
const first = Object.keys(state)[0];
const without = (values) => Object.fromEntries(Object.entries(values).slice(1));
const checkpoint = await trainer.checkpoint();
const files = Object.fromEntries(await Promise.all((await readdir(bundle)).map(async (name) => [name, await readFile(`${bundle}/${name}`)])));
const about = JSON.parse(files["training.json"]);
const described = (change) => ({ ...files, "training.json": new TextEncoder().encode(JSON.stringify({ ...about, ...change })) });
const flipped = (bytes, place) => bytes.map((byte, at) => (at === place ? byte ^ 1 : byte));
function* once() {
  yield { x, target };
}
const run = `${folder}/run.safetensors`;
await trainer.fit({ x, target }, { batchSize: 2, checkpoint: run });
await trainer.setState(state);
await writeFile(`${folder}/notes.txt`, "what is no checkpoint");
await mkdir(`${folder}/less`);
for (const name of ["training.json", "init.onnx"]) await copyFile(`${bundle}/${name}`, `${folder}/less/${name}`);

const FAULTS = {
  "no target": () => trainer.step({ x }),
  "no feeds": () => trainer.step({}),
  "feeds in a list": () => trainer.step([x]),
  "feeds that are nothing": () => trainer.step(null),
  "unknown feed": () => trainer.step({ x, target, y: 1 }),
  "float64 for float32": () => trainer.step({ x: { ...x, dtype: "float64", data: Float64Array.from(x.data) }, target }),
  "float32 for int64": () => trainer.step({ x, target: Float32Array.from(target) }),
  "int32 for int64": () => trainer.step({ x, target: Int32Array.from(target) }),
  "fractions for int64": () => trainer.step({ x, target: [0.5, 1, 2, 1] }),
  "rank": () => trainer.step({ x: x.data, target }),
  "size": () => trainer.step({ x: { ...x, shape: [6, 4] }, target: [0, 1, 2, 1, 0, 1] }),
  "numbers of a shape": () => trainer.step({ x: { ...x, shape: [4, 5] }, target }),
  "dtype of another array": () => trainer.step({ x: { ...x, dtype: "float64" }, target }),
  "unknown dtype": () => trainer.step({ x: { ...x, dtype: "complex64" }, target }),
  "lists of different lengths": () => trainer.step({ x: [[1, 2], [3]], target }),
  "text": () => trainer.step({ x: "1, 2", target }),
  "fewer labels": () => trainer.step(labels(0, 1, 2)),
  "one label": () => trainer.step(labels(1)),
  "label beyond": () => trainer.step(labels(0, 1, 2, 3)),
  "label below": () => trainer.step(labels(0, 1, 2, -1)),
  "no samples": () => trainer.step({ x: { ...x, shape: [0, 6], data: new Float32Array() }, target: new BigInt64Array() }),
  "loss that is no number": () => trainer.step({ x: { ...x, data: x.data.map(() => NaN) }, target }),
  "unknown output": () => trainer.step({ x, target }, ["accuracy"]),
  "outputs in a text": () => trainer.step({ x, target }, "loss"),
  "rate in a text": () => (trainer.learningRate = "0.1"),
  "infinite rate": () => (trainer.learningRate = Infinity),
  "rate among feeds": () => trainer.step({ x, target, learning_rate: NaN }),
  "on nan": () => (trainer.onNaN = "go on"),
  "no epochs": () => trainer.fit({ x, target }, { epochs: 0 }),
  "half an epoch": () => trainer.fit({ x, target }, { epochs: 1.5 }),
  "no batch size": () => trainer.fit({ x, target }, { batchSize: 0 }),
  "negative seed": () => trainer.fit({ x, target }, { seed: -1 }),
  "no patience": () => trainer.fit({ x, target }, { patience: 0 }),
  "callback": () => trainer.fit({ x, target }, { callbacks: [() => undefined] }),
  "data without target": () => trainer.fit({ x }),
  "data of different lengths": () => trainer.fit({ x, target: [0, 1, 2] }),
  "data of another dtype": () => trainer.fit({ x, target: Float32Array.from(target) }),
  "data that the dtype does not hold": () => trainer.fit({ x: { ...x, dtype: "float64", data: Float64Array.from(x.data, () => 1e300) }, target }),
  "samples of another rank": () => trainer.fit({ x: [x.data], target }),
  "axis of no input": () => trainer.fit({ x, target }, { sampleAxis: { y: 0 } }),
  "axis that is none": () => trainer.fit({ x, target }, { sampleAxis: { x: 2 } }),
  "axes that differ": () => trainer.fit({ x, target }, { sampleAxis: { x: 1 } }),
  "padding of no input": () => trainer.fit({ x, target }, { pad: { y: 0 } }),
  "padding with a text": () => trainer.fit({ x, target }, { pad: { x: "0" } }),
  "padding in a list": () => trainer.fit({ x, target }, { pad: [0] }),
  "lengths of no input": () => trainer.fit({ x, target }, { lengths: { target: "y" } }),
  "buckets that do not ascend": () => trainer.fit({ x, target }, { pad: { x: 0 }, buckets: [4, 4] }),
  "buckets without padding": () => trainer.fit({ x, target }, { buckets: [4] }),
  "buckets of batches": () => trainer.fit([{ x, target }], { pad: { x: 0 }, buckets: [4] }),
  "metric that is no scalar": () => trainer.fit({ x, target }, { metrics: ["new_w"] }),
  "data of another rank": () => trainer.fit({ x: x.data, target }),
  "data of another size": () => trainer.fit({ x: { ...x, shape: [4, 3, 2] }, target }),
  "no data": () => trainer.fit({ x: { ...x, shape: [0, 6], data: new Float32Array() }, target: new BigInt64Array() }),
  "data in a text": () => trainer.fit("digits.npz"),
  "generator for two epochs": () => trainer.fit(once(), { epochs: 2 }),
  "function without batches": () => trainer.fit(() => undefined),
  "batches that are none": () => trainer.fit(() => []),
  "batch that is none": () => trainer.fit([{ x }]),
  "validation without target": () => trainer.fit({ x, target }, { validation: { x } }),
  "evaluation without target": () => trainer.evaluate({ x }),
  "prediction of another size": () => trainer.predict({ x: { ...x, shape: [8, 3] } }),
  "state lacks a value": () => trainer.setState(without(state)),
  "state has one more": () => trainer.setState({ ...state, more: 1 }),
  "state of another shape": () => trainer.setState({ ...state, [first]: { ...state[first], shape: [...state[first].shape].reverse() } }),
  "state of another dtype": () => trainer.setState({ ...state, [first]: { dtype: "float64", shape: state[first].shape, data: Float64Array.from(state[first].data) } }),
  "weights lack one": () => trainer.setWeights(without(weights)),
  "weights have one more": () => trainer.setWeights({ ...weights, more: 1 }),
  "average of nothing": () => average([]),
  "average without a count": () => average([weights, weights], [1]),
  "average of two models": () => average([weights, without(weights)]),
  "no checkpoint": () => trainer.resume(`${folder}/none.safetensors`),
  "another file": () => trainer.resume(`${folder}/notes.txt`),
  "cut checkpoint": () => trainer.resume(checkpoint.subarray(0, checkpoint.length - 8)),
  "changed checkpoint": () => trainer.resume(flipped(checkpoint, checkpoint.length - 5)),
  "changed steps": () => trainer.resume(flipped(checkpoint, new TextDecoder("latin1").decode(checkpoint).indexOf('steps\\": ') + 9)),
  "place that is none": () => trainer.save(3),
  "run with another batch size": () => trainer.fit({ x, target }, { batchSize: 4, checkpoint: run }),
  "run on other data": () => trainer.fit({ x: { ...x, shape: [2, 6], data: x.data.slice(12) }, target: [0, 1] }, { batchSize: 2, checkpoint: run }),
  "run of a negative batch": async () => {
    const { epoch, history } = await trainer.resume(run);
    await trainer.setState(state);
    await trainer.save(`${folder}/negative.safetensors`, { epoch, batch: -1, sums: {}, history, stopped: null, best: null, callbacks: [], first_step: 0 });
    await trainer.fit({ x, target }, { checkpoint: `${folder}/negative.safetensors` });
  },
  "checkpoint of no run": async () => {
    await trainer.save(`${folder}/state.safetensors`);
    await trainer.fit({ x, target }, { checkpoint: `${folder}/state.safetensors` });
  },
  "no bundle": () => load(`${folder}/nowhere`),
  "nothing": () => load(undefined),
  "bundle without a file": () => load(`${folder}/less`),
  "files without one": () => load({ "training.json": files["training.json"] }),
  "other JSON": () => load({ ...files, "training.json": new TextEncoder().encode("[1]") }),
  "cut JSON": () => load({ ...files, "training.json": files["training.json"].subarray(0, 300) }),
  "input of texts": () => load(described({ version: 1, data: [{ name: "x", dtype: "string", shape: ["B"] }] })),
  "later version": () => load(described({ version: 3 })),
  "changed description": () => load(described({ loss: "logits" })),
  "file of another bundle": () => load({ ...files, "train.onnx": files["eval.onnx"] }),
  "cut file": () => load({ ...files, "init.onnx": files["init.onnx"].subarray(0, 1000) }),
  "option of Python's name": () => trainer.fit({ x, target }, { batch_size: 2 }),
  "option of evaluate that there is none": () => trainer.evaluate({ x, target }, { batch_size: 2 }),
  "option of predict that there is none": () => trainer.predict({ x }, { epochs: 2 }),
  "option of load that there is none": () => load(bundle, { learning_rate: 0.1 }),
  "options that are nothing": () => trainer.fit({ x, target }, null),
  "shuffle in a text": () => trainer.fit({ x, target }, { shuffle: "no" }),
  "signal that is none": () => trainer.fit({ x, target }, { signal: {} }),
  "callback that is nothing": () => trainer.fit({ x, target }, { callbacks: [null] }),
  "validation for one of two epochs": () => trainer.fit({ x, target }, { epochs: 2, validation: once() }),
  "label beyond 64 bits": () => trainer.step({ x, target: [2n ** 64n, 1n, 2n, 1n] }),
  "hole in a list": () => trainer.step({ x, target: [0, , 2, 1] }),
  "no labels": () => trainer.fit({ x: { ...x, shape: [0, 6], data: new Float32Array() }, target: [] }),
  "rate beyond float32": () => (trainer.learningRate = 1e300),
  "two runs at once": async () => {
    const first = trainer.fit({ x, target });
    const second = await trainer.fit({ x, target }).catch((error) => error);
    await first;
    await trainer.setState(state);
    throw second;
  },
  "closed trainer": async () => {
    const closed = await load(bundle);
    await closed.close();
    await closed.close();
    await closed.step({ x, target });
  },
  "place of another run": async () => {
    const other = await load(bundle);
    const callbacks = [{ afterStep: async () => other.save(`${folder}/another.safetensors`) }];
    await other.fit({ x, target }, { epochs: 2, checkpoint: `${folder}/another.safetensors`, callbacks });
  },
  "place without a name": () => trainer.save(""),
  "IndexedDB in Node": () => trainer.save(inIndexedDB("run")),
  "notes that JSON lacks": () => trainer.save(`${folder}/notes.safetensors`, { count: 1n }),
  "notes that are nothing": () => trainer.save(`${folder}/notes.safetensors`, null),
  "negative steps": async () => {
    const other = await load(bundle);
    other.steps = -5;
    await other.checkpoint();
  },
  "average of what is no model": () => average([null]),
  "checkpoint of another model": async () => {
    await (await load(shared)).save(`${folder}/shared.safetensors`);
    await trainer.resume(`${folder}/shared.safetensors`);
  },
  "threads": () => load(bundle, { threads: 0 }),
  "onnxruntime": () => load(bundle, { onnxruntime: {} }),
};

// Saves at once do not mix; what is left out in a whole epoch is said.
await Promise.all([1, 2, 3, 4].map((number) => trainer.save(`${folder}/together.safetensors`, { number })));
const { number: together } = await (await load(bundle)).resume(`${folder}/together.safetensors`);
const warned = [];
console.warn = (text) => warned.push(text);
const skipping = await load(bundle, { onNaN: "skip" });
await skipping.fit({ x: { ...x, data: x.data.map(() => NaN) }, target });

const told = {};
for (const [name, fault] of Object.entries(FAULTS))
  try {
    await fault();
    told[name] = null;
  } catch (error) {
    told[name] = [error.name, error.message];
  }
const after = await trainer.state();
const same = Object.keys(state).every((name) => String(state[name].data) === String(after[name].data));

// Forty bits of each file, at places of chance: some of what they change is text, some numbers, some structure.
let drawn = 1;
const chance = (below) => (drawn = (Math.imul(drawn, 1664525) + 1013904223) >>> 0) % below;
const [accepted, tried] = [[], {}];
async function flip(name, bytes, kind, take) {
  for (let number = 0; number < 40; number++) {
    const place = chance(bytes.length);
    const bit = chance(2 ** 16) >> 13;
    await take(bytes.map((byte, at) => (at === place ? byte ^ (1 << bit) : byte))).then(
      () => accepted.push([name, place, bit]),
      (error) => error.name === kind || accepted.push([name, place, error.message]),
    );
    tried[name] = (tried[name] ?? 0) + 1;
  }
}
const others = Object.fromEntries(await Promise.all((await readdir(shared)).map(async (name) => [name, await readFile(`${shared}/${name}`)])));
await load(others);
for (const [of, whole] of Object.entries({ alone: files, shared: others }))
  for (const [name, bytes] of Object.entries(whole)) await flip(`${of} ${name}`, bytes, "InvalidModelError", (changed) => load({ ...whole, [name]: changed }));
await flip("checkpoint", checkpoint, "InvalidInputError", (changed) => trainer.resume(changed));
await flip("adapter", await trainer.adapter(), "InvalidInputError", (changed) => trainer.setAdapter(changed));
console.log(JSON.stringify({ told, same, accepted, tried, together, warned }));
