// node train_browser.mjs PACKAGES CHROMIUM ORIGIN CONTESTANT THREADS LOSSES SECONDS: the same in a browser, on a page of that server.
import { inChromium } from "./chromium.mjs";

const [packages, executablePath, origin, contestant, threads, losses, seconds] = process.argv.slice(2);
await inChromium(packages, executablePath, {}, async (page) => {
  await page.goto(`${origin}/benchmarks/anywhere/page.html`);
  const [kind, name] = contestant.split(" ");
  const scripts = { wasm: ["tfjs/dist/tf.min.js", "tfjs-backend-wasm/dist/tf-backend-wasm.min.js"], cpu: ["tfjs/dist/tf.min.js"] };
  if (kind !== "bundle") for (const path of scripts[name]) await page.addScriptTag({ url: `/tensorflow/${path}` });
  const found = await page.evaluate(
    async ([bundle, backend, count, least, time]) => {
      const { load, readNpz } = await import("/runtime/javascript/dist/index.js");
      const { bundleStep, measure, tensorFlowStep } = await import("/benchmarks/anywhere/train.mjs");
      const model = await (await fetch("/run/model.json")).json();
      const data = await readNpz(new Uint8Array(await (await fetch("/run/data.npz")).arrayBuffer()));
      if (!crossOriginIsolated) throw new Error("threads require a page that is isolated from other origins");
      const make = async () => {
        if (bundle) {
          const onnxruntime = await import("/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs");
          onnxruntime.env.wasm.numThreads = count;
          return bundleStep(load, "/run/bundle", { onnxruntime, worker: false, threads: count }, data);
        }
        if (backend === "wasm") {
          tf.wasm.setWasmPaths("/tensorflow/tfjs-backend-wasm/dist/");
          tf.env().set("WASM_HAS_MULTITHREAD_SUPPORT", count > 1);
          if (count > 1) tf.wasm.setThreadsCount(count);
        }
        if (!(await tf.setBackend(backend))) throw new Error(`TensorFlow.js has no backend ${backend}`);
        return tensorFlowStep(tf, model, data);
      };
      return measure(make, least, time);
    },
    [kind === "bundle", name, Number(threads), Number(losses), Number(seconds)],
  );
  console.log(JSON.stringify(found));
});
