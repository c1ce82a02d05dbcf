// node adapters.mjs BUNDLE DATA PYTHON NODE: adapters of a bundle that is trained here, and Python's in the same bundle, as JSON.
import { readFile, writeFile } from "node:fs/promises";
import { average, decodeAdapter, load, readNpz } from "../../runtime/javascript/dist/index.js";

const [bundle, data, python, node] = process.argv.slice(2);
const { x, target } = await readNpz(new Uint8Array(await readFile(data)));
const trainer = await load(bundle);
for (let step = 0; step < 5; step++) await trainer.step({ x, target });
const adapter = await trainer.adapter();
await writeFile(node, adapter);
const predicted = async (one) => [...Object.values(await one.predict({ x }))[0].data];
const other = await load(bundle);
const before = await predicted(other);
await other.setAdapter(node);
const after = await predicted(other);
await other.setAdapter(decodeAdapter(new Uint8Array(await readFile(python))).arrays);
const pythons = await predicted(other);

// Twice the same is its own mean; and what is damaged changes nothing.
const arrays = decodeAdapter(adapter).arrays;
await other.setAdapter(average([arrays, decodeAdapter(new Uint8Array(adapter)).arrays]));
const mean = await predicted(other);
const accepted = [];
for (let bit = 0; bit < 8 * adapter.length; bit += 97) {
  const flipped = adapter.map((byte, at) => (at === bit >> 3 ? byte ^ (1 << (bit & 7)) : byte));
  await other.setAdapter(flipped).then(() => accepted.push(bit), (error) => error.name === "InvalidInputError" || accepted.push(error.message));
}
const told = {};
for (const [name, wrong] of Object.entries({ none: `${node}.none`, checkpoint: await trainer.checkpoint(), more: { ...arrays, more: arrays.v }, nothing: {} }))
  await other.setAdapter(wrong).catch((error) => (told[name] = `${error.name}: ${error.message}`));
console.log(JSON.stringify({ bytes: adapter.length, before, trained: await predicted(trainer), after, pythons, mean, same: await predicted(other), accepted, told }));
