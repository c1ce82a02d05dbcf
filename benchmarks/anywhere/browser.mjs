// node browser.mjs PACKAGES CHROMIUM ORIGIN ROUNDS: the same in a browser, on a page of that server.
import { inChromium } from "./chromium.mjs";

const [packages, executablePath, origin, rounds] = process.argv.slice(2);
await inChromium(packages, executablePath, {}, async (page) => {
  await page.goto(`${origin}/benchmarks/anywhere/page.html`);
  const found = await page.evaluate(async (count) => {
    const ort = await import("/examples/train_anywhere/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs");
    const { measure } = await import("/benchmarks/anywhere/measure.mjs");
    ort.env.wasm.wasmPaths = `${location.origin}/examples/train_anywhere/node_modules/onnxruntime-web/dist/`;
    ort.env.logLevel = "error";
    const read = async (name) => new Uint8Array(await (await fetch(name)).arrayBuffer());
    const [graph, npz] = [await read("/run/model.onnx"), await read("/run/feeds.npz")];
    return measure(ort, { executionProviders: ["wasm"] }, graph, npz, count);
  }, Number(rounds));
  console.log(JSON.stringify(found));
});
