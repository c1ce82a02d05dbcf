// node low_rank.mjs STEPS, or the same with PACKAGES CHROMIUM URL in a page: trains the bundles in this folder by names, and writes their adapters.
import { readFile, writeFile } from "node:fs/promises";
import { inChromium } from "../../benchmarks/anywhere/chromium.mjs";
import { load } from "../../runtime/javascript/dist/index.js";

const [count, packages, executablePath, url] = process.argv.slice(2);
const cases = JSON.parse(await readFile("cases.json", "utf8"));
const steps = Number(count);
const losses = {};
if (!packages)
  for (const [name, { x, target }] of Object.entries(cases)) {
    const trainer = await load(name);
    losses[name] = [];
    for (let step = 0; step < steps; step++) losses[name].push((await trainer.step({ x: { dtype: "float32", ...x, data: Float32Array.from(x.data) }, target })).loss);
    await writeFile(`${name}.safetensors`, await trainer.adapter());
  }
else
  await inChromium(packages, executablePath, {}, async (page) => {
    await page.goto(url);
    for (const [name, one] of Object.entries(cases)) {
      const run = async ({ name, one, steps }) => {
        const { load } = await import("/index.js");
        const trainer = await load(name, { onnxruntime: "/onnxruntime-web/ort.wasm.min.mjs" });
        const x = { dtype: "float32", shape: one.x.shape, data: Float32Array.from(one.x.data) };
        const losses = [];
        for (let step = 0; step < steps; step++) losses.push((await trainer.step({ x, target: one.target })).loss);
        const adapter = [...(await trainer.adapter())];
        await trainer.close();
        return { losses, adapter };
      };
      const told = await page.evaluate(run, { name, one, steps });
      losses[name] = told.losses;
      await writeFile(`${name}.safetensors`, Uint8Array.from(told.adapter));
    }
  });
console.log(JSON.stringify(losses));
