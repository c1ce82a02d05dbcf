// node resume.mjs OPTIONS: a bundle trained in several ways that begin or end at a checkpoint of Python's, as JSON.
import { readFile } from "node:fs/promises";
import { equal, load, readNpz } from "../../runtime/javascript/dist/index.js";

const { bundle, data, python, node, run, batchSize } = JSON.parse(process.argv[2]);
const arrays = await readNpz(new Uint8Array(await readFile(data)));

// From Python's checkpoint, and back: not a bit is another one.
const resumed = await load(bundle);
const notes = await resumed.resume(python);
await resumed.save(node, notes);

// A changed bit of it is told.
const content = new Uint8Array(await readFile(python));
const accepted = [];
for (let bit = 0; bit < 8 * content.length; bit += 61) {
  const flipped = content.map((byte, at) => (at === bit >> 3 ? byte ^ (1 << (bit & 7)) : byte));
  await resumed.resume(flipped).then(() => accepted.push(bit), (error) => error.name === "InvalidInputError" || accepted.push(error.message));
}

// Ten steps at once, and with a rest in a checkpoint in the middle.
const rows = (step) => Object.fromEntries(Object.entries(arrays).map(([name, { dtype, shape, data }]) => {
  const width = data.length / shape[0];
  return [name, { dtype, shape: [5, ...shape.slice(1)], data: data.slice(step * 5 * width, (step + 1) * 5 * width) }];
}));
const [whole, halves] = [await load(bundle), await load(bundle)];
for (let step = 0; step < 10; step++) await whole.step(rows(step));
for (let step = 0; step < 5; step++) await halves.step(rows(step));
const rest = await halves.checkpoint();
const other = await load(bundle);
await other.resume(rest);
for (let step = 5; step < 10; step++) await other.step(rows(step));

// A run of `lstm-lower train` goes on here, and one that begins here is the same.
const fresh = await load(bundle);
const { epochs } = await fresh.fit(arrays, { epochs: 3, batchSize, seed: 7, validation: arrays });
const onwards = await load(bundle);
const history = await onwards.fit(arrays, { epochs: 3, batchSize, seed: 7, validation: arrays, checkpoint: run });
console.log(JSON.stringify({
  notes,
  accepted,
  steps: resumed.steps,
  rate: resumed.learningRate,
  halves: equal(await whole.state(), await other.state()),
  epochs,
  onwards: history.epochs,
}));
