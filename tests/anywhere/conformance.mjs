// node conformance.mjs CASE: the package on a case of the conformance set, how far its losses are from those recorded, as JSON.
import { readFile } from "node:fs/promises";
import { argmax, load, readNpy, take } from "../../runtime/javascript/dist/index.js";

const folder = process.argv[2];
const expected = JSON.parse(await readFile(`${folder}/expected.json`, "utf8"));
const data = {};
for (const name of Object.keys(expected.data)) data[name] = readNpy(new Uint8Array(await readFile(`${folder}/data/${name}.npy`)));
const [trainer, count, size] = [await load(`${folder}/bundle`), data.x.shape[0], expected.batch_size];
let worst = 0;
for (let step = 0; step < expected.steps; step++) {
  const rows = Array.from({ length: size }, (_, row) => (step * size + row) % count);
  const batch = Object.entries(data).map(([name, array]) => [name, take(array, 0, rows)]);
  const { loss } = await trainer.step(Object.fromEntries(batch));
  worst = Math.max(worst, Math.abs(loss - expected.losses[step]));
}
const [scores] = Object.values(await trainer.predict({ x: data.x }));
console.log(JSON.stringify({ worst, classes: String(argmax(scores)) === String(expected.classes) }));
