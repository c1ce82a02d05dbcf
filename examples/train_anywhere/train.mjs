// Trains a bundle in Node: node train.mjs BUNDLE DATA.npz [STEPS [BATCH_SIZE]]. Tells how the loss falls, prints all
// losses and classes as JSON, and writes the trained model, predict.onnx with its new weights, into the folder from which it is started.
import { lstat, readFile, writeFile } from "node:fs/promises";
import * as ort from "onnxruntime-node";
import { batch, classesOf, feedsOf, filesOf, lossOf, putWeights, readNpz, samplesOf, scalar, shown } from "./arrays.mjs";

// From 1.32 on, onnxruntime for Linux reports to its maker otherwise.
process.env.ORT_DISABLE_TELEMETRY ??= "1";
process.on("uncaughtException", (error) => {
  console.error(`error: ${shown(error.message)}`);
  process.exit(1);
});
const [folder, data, ...numbers] = process.argv.slice(2);
const [steps, size] = [100, 32].map((usual, place) => Number(numbers[place] ?? usual));
if (!data || !(steps >= 1 && size >= 1))
  throw new Error("a folder, a .npz file, and numbers of steps and samples are required: node train.mjs BUNDLE DATA.npz [STEPS [BATCH_SIZE]]");
const arrays = await readNpz(new Uint8Array(await readFile(data)));

// The loop. State goes in and comes out as tensors; nothing else is to be known of the model than training.json tells.
const about = JSON.parse(await readFile(`${folder}/training.json`, "utf8"));
const init = await ort.InferenceSession.create(`${folder}/init.onnx`);
const train = await ort.InferenceSession.create(`${folder}/train.onnx`);
const state = { ...(await init.run({})) };
const rate = about.learning_rate && { [about.learning_rate.name]: scalar(ort, about.learning_rate, about.learning_rate.value) };
const moving = about.state.filter((pair) => pair.output);
const count = samplesOf(about.data, arrays);
const losses = [];
for (let step = 0; step < steps; step++) {
  const feeds = feedsOf(ort, about.data, arrays, batch(step, size, count));
  const results = await train.run({ ...state, ...rate, ...feeds }, [about.loss, ...moving.map((pair) => pair.output)]);
  losses.push(lossOf(about, results, step + 1));
  if ((step + 1) % Math.ceil(steps / 10) === 0) console.error(`step ${step + 1} of ${steps}, loss ${losses[step].toFixed(4)}`);
  for (const pair of moving) state[pair.input] = results[pair.output];
}

const contents = Object.create(null);
for (const file of filesOf(about.files.predict)) {
  if (!(await lstat(`${folder}/${file}`)).isFile()) throw new Error(`a plain file is required, got ${folder}/${file}`);
  contents[file] = new Uint8Array(await readFile(`${folder}/${file}`));
}
putWeights(about, state, contents);
for (const [file, bytes] of Object.entries(contents)) await writeFile(file, bytes);
const predict = await ort.InferenceSession.create(about.files.predict.model);
const feeds = feedsOf(ort, about.predict.data, arrays, batch(0, count, count));
const results = await predict.run(feeds);
console.log(JSON.stringify({ losses, classes: classesOf(results[about.predict.predictions[0].name]) }));
