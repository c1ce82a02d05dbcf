// Runs a model in either onnxruntime for JavaScript: its outputs, and how long a run takes.
import { readNpz } from "../../runtime/javascript/dist/index.js";

/** Feeds of a .npz file as tensors. */
async function feedsOf(ort, bytes) {
  const arrays = await readNpz(bytes);
  return Object.fromEntries(
    Object.entries(arrays).map(([name, { dtype, shape, data }]) => [name, new ort.Tensor(dtype, data, shape)]),
  );
}

/** Runs it some times; returns the outputs of the first run, with shapes, and the milliseconds of each. */
export async function measure(ort, options, model, npz, rounds) {
  const session = await ort.InferenceSession.create(model, options);
  const feeds = await feedsOf(ort, npz);
  const results = await session.run(feeds);
  const times = [];
  for (let round = 0; round < rounds; round++) {
    const start = performance.now();
    await session.run(feeds);
    times.push(performance.now() - start);
  }
  const outputs = Object.entries(results).map(([name, tensor]) => ({
    name,
    type: tensor.type,
    shape: tensor.dims,
    values: Array.from(tensor.data, (value) => (typeof value === "bigint" ? Number(value) : Number.isFinite(value) ? value : String(value))),
  }));
  return { outputs, times };
}
