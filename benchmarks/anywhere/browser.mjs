// node browser.mjs PACKAGES CHROMIUM ORIGIN ROUNDS PROVIDER: the same in a browser, on a page of that server, by `wasm` or `webgpu`.
import { inChromium } from "./chromium.mjs";

const [packages, executablePath, origin, rounds, provider] = process.argv.slice(2);
await inChromium(packages, executablePath, { webgpu: provider === "webgpu" }, async (page) => {
  await page.goto(`${origin}/benchmarks/anywhere/page.html`);
  const found = await page.evaluate(
    async ([count, wanted]) => {
      const ort = await import(`/node_modules/onnxruntime-web/dist/ort.${wanted}.min.mjs`);
      const { measure } = await import("/benchmarks/anywhere/measure.mjs");
      ort.env.wasm.wasmPaths = `${location.origin}/node_modules/onnxruntime-web/dist/`;
      ort.env.logLevel = "error";
      const read = async (name) => new Uint8Array(await (await fetch(name)).arrayBuffer());
      const [graph, npz] = [await read("/run/model.onnx"), await read("/run/feeds.npz")];
      return measure(ort, { executionProviders: wanted === "webgpu" ? ["webgpu", "wasm"] : [wanted] }, graph, npz, count);
    },
    [Number(rounds), provider],
  );
  console.log(JSON.stringify(found));
});
