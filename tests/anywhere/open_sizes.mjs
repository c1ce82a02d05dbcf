// node open_sizes.mjs BUNDLE DATA, or the same with PACKAGES CHROMIUM URL in a page: a bundle whose class count is open, trained for five classes, as
// JSON; writes its adapter and the trained model.
import { readFile, writeFile } from "node:fs/promises";
import { inChromium } from "../../benchmarks/anywhere/chromium.mjs";

const [bundle, data, packages, executablePath, url] = process.argv.slice(2);

async function trained({ module, bundle, data, options }) {
  const { load, readNpz } = await import(module);
  const { x, target } = await readNpz(Uint8Array.from(data));
  const told = [];
  for (const sizes of [undefined, {}, { clases: 5 }, { classes: 0 }, { classes: 2.5 }])
    await load(bundle, { ...options, sizes }).catch((error) => told.push(`${error.name}: ${error.message}`));
  const trainer = await load(bundle, { ...options, sizes: { classes: 5 } });
  const untrained = [...Object.values(await trainer.predict({ x }))[0].data];
  const losses = [];
  for (let step = 0; step < 5; step++) losses.push((await trainer.step({ x, target })).loss);
  const predicted = [...Object.values(await trainer.predict({ x }))[0].data];
  const { loss } = await trainer.evaluate({ x, target });
  const model = [...Object.values(await trainer.trained())[0]];
  const [adapter, checkpoint] = [await trainer.adapter(), await trainer.checkpoint()];
  // Both go into another trainer of as many classes, and into none of others.
  const again = await load(bundle, { ...options, sizes: { classes: 5 } });
  await again.setAdapter(adapter);
  await again.resume(checkpoint);
  const other = await load(bundle, { ...options, sizes: { classes: 6 } });
  await other.setAdapter(adapter).catch((error) => told.push(`${error.name}: ${error.message}`));
  const next = [(await trainer.step({ x, target })).loss, (await again.step({ x, target })).loss];
  for (const one of [trainer, again, other]) await one.close();
  return { told, untrained, losses, predicted, loss, next, model, adapter: [...adapter] };
}

const content = [...(await readFile(data))];
let result;
if (!packages) result = await trained({ module: new URL("../../runtime/javascript/dist/index.js", import.meta.url).href, bundle, data: content, options: {} });
else
  await inChromium(packages, executablePath, {}, async (page) => {
    await page.goto(url);
    result = await page.evaluate(trained, { module: "/index.js", bundle, data: content, options: { onnxruntime: "/onnxruntime-web/ort.wasm.min.mjs" } });
  });
const { model, adapter, ...rest } = result;
await writeFile("adapter.safetensors", Uint8Array.from(adapter));
await writeFile("trained.onnx", Uint8Array.from(model));
console.log(JSON.stringify(rest));
