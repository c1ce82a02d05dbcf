// The page: a bundle and data come in, a loss goes down, a model goes out. `?bundle=FOLDER` takes another bundle than
// the one beside the page, `?provider=webgpu` trains on the GPU, `?size=classes=5` gives an open size of the state.
import {
  argmax,
  type ArrayLike,
  type Arrays,
  astype,
  load,
  type NDArray,
  readNpz,
  take,
  type Trainer,
} from "../src/index.js";

type Files = Record<string, Blob | Uint8Array>;

const the = (id: string): HTMLElement => document.querySelector<HTMLElement>(`#${id}`)!;
const input = (id: string): HTMLInputElement => the(id) as HTMLInputElement;
const button = (id: string): HTMLButtonElement => the(id) as HTMLButtonElement;
const [steps, size, rate] = [input("steps"), input("size"), input("rate")];
const [train, stop, save, keep] = [button("train"), button("stop"), button("save"), button("keep")];

const asked = new URLSearchParams(location.search);
const provider = asked.get("provider") ?? "wasm";
const runtime = new URL(document.documentElement.dataset.onnxruntime!, location.href);

let trainer: Trainer | undefined;
let given: Arrays | undefined;
let running: AbortController | undefined;
let losses: number[] = [];

function say(text: string, isWrong = false): void {
  the("said").textContent = text;
  the("said").className = isWrong ? "error" : "";
}

/** Does what a button is for, and says what went wrong. */
async function attempt(action: () => unknown): Promise<void> {
  try {
    await action();
    compare();
  } catch (error) {
    say(error instanceof Error ? error.message : String(error), true);
  }
  ready();
}

function ready(): void {
  const isBusy = running !== undefined;
  train.disabled = isBusy || trainer === undefined || given === undefined;
  stop.disabled = !isBusy;
  save.disabled = isBusy || losses.length === 0 || trainer?.about.predict === undefined;
  keep.disabled = isBusy || losses.length === 0;
  rate.disabled = trainer?.about.learning_rate == null;
}

/** Data and a bundle may come in either order. */
function compare(): void {
  if (given !== undefined && trainer !== undefined)
    the("data").textContent = `${fitting(given).count} samples. Nothing leaves this page.`;
}

async function begin(source: string | Files): Promise<void> {
  if (provider !== "wasm" && provider !== "webgpu")
    throw new Error(`provider requires wasm or webgpu, got ${provider}`);
  if (provider === "webgpu" && !("gpu" in navigator))
    throw new Error(
      "webgpu requires a browser that has it, on https or localhost; the page without ?provider=webgpu runs here",
    );
  await trainer?.close();
  [trainer, losses] = [undefined, []];
  const sizes = asked.getAll("size").map((text) => [text.split("=")[0]!, Number(text.split("=")[1])] as const);
  trainer = await load(source, {
    onnxruntime: new URL(`ort.${provider}.min.mjs`, runtime),
    providers: [provider],
    sizes: Object.fromEntries(sizes),
  });
  const { state, data, learning_rate: scaled } = trainer.about;
  const inputs = data.map(
    ({ name, dtype, shape }) => `${name} ${dtype}[${shape.map((each) => each ?? "?").join(", ")}]`,
  );
  the("model").textContent = `The model has ${state.length} values of state and takes ${inputs.join(" and ")}.`;
  rate.value = scaled?.value == null ? "" : String(scaled.value);
  draw();
}

/** Data in the dtypes of the inputs, as far as their numbers stay the same. */
function fitting(arrays: Arrays): { feeds: Record<string, NDArray>; count: number } {
  const { data } = trainer!.about;
  const missing = data.find(({ name }) => arrays[name] === undefined);
  if (missing !== undefined)
    throw new Error(`the data require an array '${missing.name}', got [${Object.keys(arrays).join(", ")}]`);
  const feeds = Object.fromEntries(data.map(({ name, dtype }) => [name, astype(arrays[name]!, dtype)]));
  const counts = data.map(({ name, sample_axis }) => feeds[name]!.shape[sample_axis ?? 0] ?? 1);
  if (new Set(counts).size > 1)
    throw new Error(`the data require as many samples of every input, got ${counts.join(" and ")}`);
  return { feeds, count: counts[0] ?? 0 };
}

async function choose(list: Iterable<File>): Promise<void> {
  const files = [...list];
  const description = files.find(({ name }) => name === "training.json");
  if (description !== undefined) await begin(Object.fromEntries(files.map((file) => [file.name, file])));
  for (const file of files) {
    if (file.name.endsWith(".npz")) given = await readNpz(new Uint8Array(await file.arrayBuffer()));
    if (file.name.endsWith(".safetensors") && trainer !== undefined) {
      await trainer.resume(file);
      rate.value = String(trainer.learningRate);
      say(`goes on after step ${trainer.steps}`);
    }
  }
}

/** Batches that follow one another and begin again at the end. */
function* batches(
  data: Record<string, NDArray>,
  samples: number,
  first: number,
  wanted: number,
): Iterable<Record<string, ArrayLike>> {
  const width = Math.min(Number(size.value), samples);
  for (let step = first; step < first + wanted; step++) {
    const rows = Array.from({ length: width }, (_, row) => (step * width + row) % samples);
    yield Object.fromEntries(
      trainer!.about.data.map(({ name, shape, sample_axis }) => [
        name,
        shape.length === 0 ? data[name]! : take(data[name]!, sample_axis ?? 0, rows),
      ]),
    );
  }
}

async function run(): Promise<void> {
  const own = trainer!;
  const { feeds, count: samples } = fitting(given!);
  if (!rate.disabled) own.learningRate = Number(rate.value);
  running = new AbortController();
  ready();
  const [first, began] = [losses.length, performance.now()];
  let shown = 0;
  const show = (): void => {
    shown = performance.now();
    draw();
    const [steps, seconds] = [losses.length - first, (performance.now() - began) / 1000];
    const speed =
      steps < seconds ? `${(seconds / steps).toFixed(1)} s a step` : `${(steps / seconds).toFixed(0)} steps/s`;
    say(`Step ${losses.length}: loss ${losses.at(-1)?.toPrecision(4) ?? "none"}, ${speed}`);
  };
  const afterStep = ({ loss }: Record<string, number>): void => {
    losses.push(loss!);
    if (performance.now() - shown > 50) show();
  };
  const { signal } = running;
  try {
    await own.fit(() => batches(feeds, samples, first, Number(steps.value)), { signal, callbacks: [{ afterStep }] });
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    running = undefined;
    if (losses.length > first) show();
  }
  if (own.about.predict !== undefined) await judge(own, feeds);
}

/** Says how well the model does: how many labels it gets right where these are classes, else how far off it is. */
async function judge(own: Trainer, feeds: Record<string, NDArray>): Promise<void> {
  const predictions = await own.predict(feeds);
  const first = predictions[own.about.predict!.predictions[0]!.name]!;
  const target = feeds[own.targets[0] ?? ""];
  const classes = first.shape.length > 1 ? argmax(first) : [];
  Object.assign(globalThis, { lastRun: { losses: [...losses], classes } });
  if (target === undefined) return;
  const isOfClasses = !target.dtype.startsWith("float");
  if (isOfClasses && classes.length === target.data.length) {
    const right = classes.filter((each, place) => each === Number(target.data[place])).length;
    the("said").textContent +=
      `; ${right} of ${classes.length} classes right (${((100 * right) / classes.length).toFixed(1)} %)`;
  } else if (!isOfClasses && first.data.length === target.data.length) {
    const off = Array.from(first.data as Float32Array, (each, place) => Math.abs(each - Number(target.data[place])));
    the("said").textContent += `; off by ${(off.reduce((a, b) => a + b, 0) / off.length).toPrecision(3)} on average`;
  }
}

function draw(): void {
  const width = the("plot").clientWidth;
  const [left, right, top, bottom] = [48, width - 2, 12, 220];
  const finite = losses.filter((loss) => Number.isFinite(loss));
  const [least, most] = [Math.min(0, ...finite), Math.max(...finite, 0)];
  const x = (step: number): number => left + ((right - left) * step) / Math.max(1, losses.length - 1);
  const y = (loss: number): number => bottom - ((bottom - top) * (loss - least)) / (most - least || 1);
  const points = losses.map((loss, step) => `${x(step).toFixed(1)} ${y(loss).toFixed(1)}`);
  the("plot").setAttribute("viewBox", `0 0 ${width} 250`);
  the("axes").setAttribute("d", `M${left} ${top}V${bottom}H${right}`);
  the("last").setAttribute("x", String(right));
  the("line").setAttribute("d", points.length > 1 ? `M${points.join("L")}` : "");
  the("top").textContent = finite.length > 0 ? most.toPrecision(3) : "";
  the("bottom").textContent = finite.length > 0 ? least.toPrecision(2) : "";
  the("last").textContent = losses.length > 1 ? `step ${losses.length}` : "";
}

function download(name: string, bytes: Uint8Array): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes as BlobPart], { type: "application/octet-stream" }));
  link.download = name;
  link.click();
  setTimeout(() => {
    URL.revokeObjectURL(link.href);
  }, 10_000);
}

input("files").onchange = ({ target }) => attempt(() => choose((target as HTMLInputElement).files!));
the("options").onsubmit = (event) => {
  event.preventDefault();
};
train.onclick = () => attempt(run);
stop.onclick = () => running?.abort();
save.onclick = () =>
  attempt(async () => {
    for (const [name, bytes] of Object.entries(await trainer!.trained())) download(name, bytes);
  });
keep.onclick = () =>
  attempt(async () => {
    download("checkpoint.safetensors", await trainer!.checkpoint());
  });
for (const kind of ["dragover", "dragleave", "drop"])
  the("drop").addEventListener(kind, (event) => {
    event.preventDefault();
    the("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop") void attempt(() => choose((event as DragEvent).dataTransfer!.files));
  });
addEventListener("resize", draw);
void attempt(async () => {
  await begin(asked.get("bundle") ?? "bundle");
});
