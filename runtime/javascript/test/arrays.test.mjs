import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import test from "node:test";
import { build } from "esbuild";

const { outputFiles } = await build({
  stdin: {
    contents:
      'export * from "./src/arrays.ts"; export * from "./src/order.ts"; export * from "./src/sha256.ts"; export * from "./src/checkpoint.ts"; export * from "./src/description.ts"; export * from "./src/data.ts"; export * from "./src/layout.ts"; export * from "./src/table.ts";',
    resolveDir: `${import.meta.dirname}/..`,
  },
  bundle: true,
  format: "esm",
  write: false,
});
const {
  argmax,
  asArray,
  astype,
  checkFile,
  concatenated,
  decode,
  encode,
  Layout,
  openData,
  Padding,
  permutation,
  readDescription,
  seal,
  isSealed,
  sha256,
  take,
} = await import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].text).toString("base64")}`);

test("the hash is Node's", () => {
  for (const length of [0, 1, 55, 56, 63, 64, 65, 1000]) {
    const bytes = Uint8Array.from({ length }, (_, place) => place * 7);
    assert.equal(sha256(bytes), createHash("sha256").update(bytes).digest("hex"));
  }
});

test("the order of samples is numpy's", () => {
  // numpy.random.default_rng([seed, epoch]).permutation(count)
  assert.deepEqual([...permutation(10, 0, 0)], [4, 6, 2, 7, 3, 5, 9, 0, 8, 1]);
  assert.deepEqual([...permutation(7, 3, 5)], [4, 0, 2, 6, 5, 1, 3]);
  assert.deepEqual([...permutation(100, 2 ** 40 + 5, 70000)].slice(0, 6), [99, 78, 74, 87, 70, 38]);
  assert.deepEqual([...permutation(5000, 1, 2)].slice(0, 4), [3182, 1506, 1988, 2352]);
});

test("a seal is of all bytes", () => {
  const text = (digest) => new TextEncoder().encode(`{"digest": "${digest}", "a": 1}`);
  const sealed = seal(text("0".repeat(64)), '"digest": "');
  const { digest } = JSON.parse(new TextDecoder().decode(sealed));
  assert.ok(isSealed(sealed, '"digest": "', digest));
  for (let place = 0; place < sealed.length; place++) {
    const changed = sealed.map((byte, at) => (at === place ? byte ^ 2 : byte));
    assert.ok(!isSealed(changed, '"digest": "', digest));
  }
});

test("plain numbers become what the dtype holds", () => {
  assert.deepEqual(
    [
      ...asArray(
        [
          [1, 2],
          [3, 4],
        ],
        "int64",
        "x",
      ).data,
    ],
    [1n, 2n, 3n, 4n],
  );
  assert.deepEqual([...asArray([true, false], "bool", "x").data], [1, 0]);
  assert.deepEqual(asArray(3, "float32", "x").shape, []);
  assert.throws(() => asArray([300], "uint8", "x"), /x requires numbers that uint8 holds/);
  assert.throws(() => asArray([1.5], "int32", "x"), /x requires dtype int32, got float64/);
  assert.throws(() => asArray(["a"], "int32", "x"), /x requires an array of numbers, got 'a'/);
});

test("astype never cuts", () => {
  assert.deepEqual([...astype(Int32Array.of(1, -2), "int64").data], [1n, -2n]);
  assert.deepEqual([...astype(Float64Array.of(0.5), "float32").data], [0.5]);
  assert.throws(() => astype(Float32Array.of(1), "int64"), /whose numbers would change/);
  assert.throws(() => astype(Int32Array.of(-1), "uint8"), /numbers that it holds/);
});

test("samples along any axis", () => {
  const array = { dtype: "int32", shape: [2, 3, 2], data: Int32Array.from({ length: 12 }, (_, place) => place) };
  assert.deepEqual([...take(array, 1, [2, 0]).data], [4, 5, 0, 1, 10, 11, 6, 7]);
  const parts = [take(array, 1, [0]), take(array, 1, [1, 2])];
  assert.deepEqual(concatenated(parts, 1), array);
  assert.deepEqual(argmax({ dtype: "float32", shape: [2, 3], data: Float32Array.of(1, 3, 2, 9, 0, 9) }), [1, 0]);
});

test("a model that fixes its batch takes whole batches only", async () => {
  const layout = new Layout([{ name: "x", dtype: "float32", shape: [4, 2] }]);
  const data = openData(
    { x: { dtype: "float32", shape: [10, 2], data: new Float32Array(20) } },
    layout,
    new Padding(layout, {}),
  );
  const order = { batchSize: 4, shuffle: true, seed: 0 };
  const counts = [];
  for await (const { x } of data.epoch(order, 0, 0)) counts.push(x.shape[0]);
  assert.deepEqual(counts, [4, 4]);
  assert.throws(() => data.check({ ...order, batchSize: 3 }, 1), /batch size requires 4, as the model has it, got 3/);
});

test("checkpoints hold every dtype, and numbers that JSON has none for", () => {
  const arrays = Object.fromEntries(
    [
      "float32",
      "float64",
      "float16",
      "int64",
      "int32",
      "int16",
      "int8",
      "uint64",
      "uint32",
      "uint16",
      "uint8",
      "bool",
    ].map((dtype) => [dtype, asArrayOf(dtype)]),
  );
  const held = {
    arrays,
    steps: 7,
    learningRate: NaN,
    notes: { worst: Infinity, text: 'a "NaN" b', list: [-Infinity, 1] },
  };
  assert.deepEqual(plain(decode(encode(held), "c")), plain(held));
});

const asArrayOf = (dtype) =>
  dtype === "float16" ? { dtype, shape: [1, 2], data: Uint16Array.of(1, 2) } : astype(Int32Array.of(1, 0), dtype);
const plain = (held) => ({
  ...held,
  arrays: Object.fromEntries(Object.entries(held.arrays).sort(([a], [b]) => (a < b ? -1 : 1))),
});

test("a description of version 1 is read, and its files are not compared", () => {
  const about = {
    format: "lstm-lower.bundle",
    version: 1,
    files: {},
    loss: "l",
    learning_rate: null,
    state: [],
    data: [],
    outputs: [],
  };
  const read = (change) => readDescription(new TextEncoder().encode(JSON.stringify({ ...about, ...change })));
  assert.equal(read({}).version, 1);
  checkFile(read({}), "train.onnx", new Uint8Array(3));
  assert.throws(() => read({ version: 3 }), /a bundle of version 1 or 2 is required, got 3/);
  assert.throws(() => read({ state: [{ input: 3 }] }), /training.json requires values of state/);
  assert.throws(() => read({ data: [{ name: "x", dtype: "complex64", shape: [] }] }), /training.json requires data/);
  assert.throws(
    () => read({ files: { train: { model: "../train.onnx", data: [] } } }),
    /names of .onnx and .data files beside it/,
  );
});
