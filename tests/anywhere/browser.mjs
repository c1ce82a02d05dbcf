// node browser.mjs PACKAGES CHROMIUM URL: the package in a page, with its models in a worker: what a browser keeps, as JSON.
import { inChromium } from "../../benchmarks/anywhere/chromium.mjs";

const [packages, executablePath, url] = process.argv.slice(2);
await inChromium(packages, executablePath, {}, async (page) => {
  await page.goto(url);
  const told = await page.evaluate(async () => {
    const { average, equal, inOPFS, load } = await import("/index.js");
    const options = { onnxruntime: "/onnxruntime-web/ort.wasm.min.mjs" };
    const x = { dtype: "float32", shape: [4, 6], data: Float32Array.from({ length: 24 }, (_, place) => Math.sin(place)) };
    const batch = { x, target: [0, 1, 2, 1] };
    const losses = [];
    const whole = await load("bundle", options);
    for (let step = 0; step < 6; step++) losses.push((await whole.step(batch)).loss);
    const kept = {};
    for (const [name, place] of Object.entries({ indexedDB: "half", opfs: await inOPFS("half.safetensors") })) {
      const half = await load("bundle", options);
      for (let step = 0; step < 3; step++) await half.step(batch);
      await half.save(place, { name });
      await half.close();
      const rest = await load("bundle", options);
      const notes = await rest.resume(place);
      for (let step = 3; step < 6; step++) await rest.step(batch);
      kept[name] = notes.name === name && equal(await whole.state(), await rest.state());
    }
    // Python's checkpoint, kept in IndexedDB on its way.
    const [first, second] = [await load("bundle", options), await load("bundle", options)];
    await first.resume(await (await fetch("python.safetensors")).blob());
    await first.save("from Python");
    await second.resume("from Python");
    const python = [...(await second.checkpoint())];
    const messages = [];
    for (const fault of [
      () => whole.step({ x }),
      () => whole.step({ x, target: [0, 1, 2, 3] }),
      () => whole.step({ x: { ...x, data: x.data.map(() => NaN) }, target: [0, 1, 2, 1] }),
      () => whole.resume("nowhere"),
      () => load("nowhere", options),
      () => load("bundle", { onnxruntime: "/nowhere.mjs" }),
    ])
      await fault().catch((error) => messages.push([error.name, error.message]));
    // A worker that dies in a run, and one that is to serve a second trainer.
    const own = () => new Worker("/worker.js", { type: "module" });
    const [dying, shared] = [own(), own()];
    const died = await load("bundle", { ...options, worker: dying });
    await load("bundle", { ...options, worker: shared });
    const ends = [{ afterStep: (_, run) => run.epoch === 2 && dying.terminate() }];
    for (const fault of [
      () => died.fit(batch, { epochs: 1000, callbacks: ends }),
      () => died.step(batch),
      () => load("bundle", { ...options, worker: shared }),
    ])
      await fault().catch((error) => messages.push([error.name, error.message]));
    // Two runs, as of two tabs, with one checkpoint.
    const tabs = await Promise.all([load("bundle", options), load("bundle", options)]);
    const runs = tabs.map((tab, seed) => tab.fit(batch, { epochs: 4, batchSize: 2, seed, checkpoint: "tabs" }));
    const ended = (await Promise.allSettled(runs)).filter(({ status }) => status === "rejected").map(({ reason }) => reason.message);
    const aborted = new AbortController();
    const afterStep = () => aborted.abort();
    const before = whole.steps;
    const reason = await whole.fit(batch, { epochs: 9, signal: aborted.signal, callbacks: [{ afterStep }] }).catch((error) => error.name);
    const weights = await whole.weights();
    const mean = average([weights, weights], [1, 3]);
    await whole.setWeights(mean);
    const together = await Promise.all([whole.step(batch), whole.step(batch), whole.evaluate(batch)]);
    return {
      losses, kept, python, messages, ended, reason, aborted: whole.steps - before - 2, mean: equal(mean, weights),
      together: together[0].loss !== together[1].loss, score: together[2].loss,
    };
  });
  console.log(JSON.stringify(told));
});
