// node scores.mjs BUNDLE DATA: what scores.cpp does.
import { readFile } from "node:fs/promises";
import { load, readNpy } from "../../runtime/javascript/dist/index.js";

const [bundle, data] = process.argv.slice(2);
const read = async (name) => readNpy(new Uint8Array(await readFile(`${data}/${name}.npy`)));
const held = { x: await read("x"), y: await read("y") };
const trainer = await load(bundle);
const { epochs } = await trainer.fit(held, { epochs: 2, batchSize: 8, shuffle: false, validation: held });
console.log(JSON.stringify({ epochs, scores: await trainer.evaluate(held, { batchSize: 7 }) }));
