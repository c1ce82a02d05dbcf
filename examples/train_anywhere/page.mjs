// The page: a bundle and data come in, a loss goes down, a model goes out. `?provider=webgpu` runs it on the GPU.
import uPlot from "uplot";
import { batch, classesOf, feedsOf, filesOf, lossOf, putWeights, readNpz, samplesOf, scalar } from "./arrays.mjs";

const asked = new URLSearchParams(location.search);
const provider = asked.get("provider") ?? "wasm";
const ort = await import(provider === "webgpu" ? "onnxruntime-web/webgpu" : "onnxruntime-web");

const the = (id) => document.getElementById(id);
const files = Object.create(null);
let about, arrays, count, state, steps, stopping;
const losses = [];

ort.env.wasm.wasmPaths = new URL("node_modules/onnxruntime-web/dist/", location.href).href;
ort.env.logLevel = "error";

const plot = new uPlot(
  {
    width: Math.min(780, document.body.clientWidth),
    height: 300,
    scales: { x: { time: false } },
    axes: [{ label: "step" }, { label: "loss" }],
    series: [{ label: "step" }, { label: "loss", stroke: "#1f77b4", width: 2 }],
  },
  [[], []],
  the("plot"),
);

function say(text, wrong = false) {
  the("said").textContent = text;
  the("said").className = wrong ? "error" : "";
}

/** Runs what a button is for, and says what went wrong. */
async function attempt(action) {
  try {
    await action();
  } catch (error) {
    say(error.message ?? String(error), true);
  }
}

async function session(file) {
  const [model, ...data] = filesOf(about.files[file]);
  const externalData = data.map((path) => ({ path, data: files[path] }));
  return ort.InferenceSession.create(files[model], { executionProviders: [provider], externalData });
}

/** Begins with the first state of the bundle. */
async function begin() {
  about = JSON.parse(new TextDecoder().decode(files["training.json"]));
  if (about.format !== "lstm-lower.bundle" || about.version !== 1)
    throw new Error(`a bundle of version 1 is required, got ${about.format} ${about.version}`);
  state = { ...(await (await session("init")).run({})) };
  steps = { train: await session("train") };
  losses.length = 0;
  const inputs = about.data.map(({ name, dtype, shape }) => `${name} ${dtype}[${shape}]`).join(", ");
  the("model").textContent = `${about.state.length} values of state; takes ${inputs}`;
  the("rate").disabled = !about.learning_rate;
  the("rate").value = about.learning_rate?.value ?? "";
  ready();
}

/** Data and a bundle may come in either order. */
function ready() {
  the("train").disabled = true;
  if (arrays && about) {
    count = samplesOf(about.data, arrays);
    the("data").textContent = `${count} samples`;
  }
  the("train").disabled = !(steps && arrays);
  the("save").disabled = !(losses.length && about.files.predict);
}

async function take(list) {
  const given = await Promise.all([...list].map(async (file) => [file.name, new Uint8Array(await file.arrayBuffer())]));
  for (const [name, bytes] of given) {
    if (name.endsWith(".npz")) arrays = await readNpz(bytes);
    else files[name] = bytes;
  }
  if (given.some(([name]) => name === "training.json")) await begin();
  else ready();
  say("");
}

async function train() {
  const [wanted, size] = [Number(the("steps").value), Number(the("size").value)];
  const rate = about.learning_rate && { [about.learning_rate.name]: scalar(ort, about.learning_rate, Number(the("rate").value)) };
  const moving = about.state.filter((pair) => pair.output);
  const outputs = [about.loss, ...moving.map((pair) => pair.output)];
  const first = losses.length;
  [stopping, the("train").disabled, the("stop").disabled] = [false, true, false];
  const began = performance.now();
  let painted = began;
  try {
    while (losses.length < first + wanted && !stopping) {
      const feeds = feedsOf(ort, about.data, arrays, batch(losses.length, size, count));
      const results = await steps.train.run({ ...state, ...rate, ...feeds }, outputs);
      losses.push(lossOf(about, results, losses.length + 1));
      for (const pair of moving) state[pair.input] = results[pair.output];
      if (performance.now() - painted > 50) {
        painted = performance.now();
        show(first, began);
        await new Promise(requestAnimationFrame);
      }
    }
    show(first, began);
    if (about.files.predict) await judge();
  } finally {
    the("stop").disabled = true;
    ready();
  }
}

function show(first, began) {
  plot.setData([losses.map((_, step) => step + 1), losses]);
  const speed = (losses.length - first) / ((performance.now() - began) / 1000);
  say(`step ${losses.length}: loss ${losses.at(-1).toPrecision(4)}, ${speed.toFixed(0)} steps/s`);
}

/** The trained model: predict.onnx and its data, with the weights as they are now. */
function trained() {
  const contents = Object.create(null);
  for (const name of filesOf(about.files.predict)) contents[name] = files[name].slice();
  putWeights(about, state, contents);
  return contents;
}

/** Says how many samples get the class that the data name, where the model makes classes and the data name one. */
async function judge() {
  Object.assign(files, trained());
  const results = await (await session("predict")).run(feedsOf(ort, about.predict.data, arrays, batch(0, count, count)));
  const first = results[about.predict.predictions[0].name];
  const classes = first.dims.length === 2 ? classesOf(first) : [];
  Object.assign(globalThis, { lastRun: { losses: [...losses], classes } });
  const label = about.data.find((input) => !about.predict.data.some(({ name }) => name === input.name));
  if (classes.length !== count || arrays[label?.name]?.data.length !== count) return;
  const right = classes.filter((own, row) => own === Number(arrays[label.name].data[row])).length;
  the("said").textContent += `; ${right} of ${count} classes right`;
}

function save() {
  for (const [name, bytes] of Object.entries(trained())) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }
}

async function load(folder) {
  const get = async (name) => {
    const answer = await fetch(`${folder}/${name}`);
    if (!answer.ok) throw new Error(`choose the files of a bundle, or put one into ${folder}/ beside this page`);
    return new Uint8Array(await answer.arrayBuffer());
  };
  files["training.json"] = await get("training.json");
  const listed = JSON.parse(new TextDecoder().decode(files["training.json"])).files;
  for (const name of Object.values(listed).flatMap(filesOf)) files[name] = await get(name);
  await begin();
}

the("files").onchange = (event) => attempt(() => take(event.target.files));
the("train").onclick = () => attempt(train);
the("stop").onclick = () => (stopping = true);
the("save").onclick = () => attempt(save);
for (const kind of ["dragover", "dragleave", "drop"])
  the("drop").addEventListener(kind, (event) => {
    event.preventDefault();
    the("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop") attempt(() => take(event.dataTransfer.files));
  });
attempt(() => {
  if (!["wasm", "webgpu"].includes(provider)) throw new Error(`provider requires wasm or webgpu, got ${provider}`);
  if (provider === "webgpu" && !navigator.gpu) throw new Error("webgpu requires a browser that has it, on https or localhost; the page without ?provider=webgpu runs here");
  return load(asked.get("bundle") ?? "bundle");
});
