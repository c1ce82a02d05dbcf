// Trains a bundle in Node: node train.mjs BUNDLE DATA.npz [STEPS [BATCH_SIZE]]. Tells how the loss falls, prints all
// losses and classes as JSON, and writes the trained model, predict.onnx with its new weights, into the folder from which it is started.
import { readFile, writeFile } from "node:fs/promises";
import { argmax, astype, load, readNpz, shown, take } from "lstm-lower-train";

process.on("uncaughtException", (error) => {
  console.error(`error: ${shown(error.message)}`);
  process.exit(1);
});
const [folder, data, ...numbers] = process.argv.slice(2);
const [steps, size] = [100, 32].map((usual, place) => Number(numbers[place] ?? usual));
if (!data || !(steps >= 1 && size >= 1))
  throw new Error("a folder, a .npz file, and numbers of steps and samples are required: node train.mjs BUNDLE DATA.npz [STEPS [BATCH_SIZE]]");
const trainer = await load(folder);
const arrays = await readNpz(new Uint8Array(await readFile(data)));
for (const { name, dtype } of trainer.about.data) if (arrays[name]) arrays[name] = astype(arrays[name], dtype);
const counts = Object.values(arrays).map(({ shape }) => shape[0]);
if (new Set(counts).size > 1) throw new Error(`as many samples in every array are required, got ${counts.join(" and ")}`);

/** Batches that follow one another and begin again at the end; one epoch is all of them. */
function* batches() {
  for (let step = 0; step < steps; step++) {
    const rows = Array.from({ length: Math.min(size, counts[0]) }, (_, row) => (step * size + row) % counts[0]);
    yield Object.fromEntries(Object.entries(arrays).map(([name, array]) => [name, take(array, 0, rows)]));
  }
}

const losses = [];
const afterStep = ({ loss }) => {
  losses.push(loss);
  if (losses.length % Math.ceil(steps / 10) === 0) console.error(`step ${losses.length} of ${steps}, loss ${loss.toFixed(4)}`);
};
await trainer.fit(batches, { callbacks: [{ afterStep }] });

for (const [name, bytes] of Object.entries(await trainer.trained())) await writeFile(name, bytes);
const [predictions] = Object.values(await trainer.predict(arrays));
console.log(JSON.stringify({ losses, classes: argmax(predictions) }));
