// Trains a model, with a contestant: the first losses, and how long the first step and later ones take, in milliseconds.

/** Optimizer and layers of TensorFlow.js for a model of `benchmarks/web.py`. */
function layersOf(tf, { kind, steps, inputs, units, classes, side }) {
  if (kind === "lstm")
    return [tf.layers.lstm({ units, inputShape: [steps, inputs], recurrentActivation: "sigmoid" }), tf.layers.dense({ units: classes })];
  const convolution = { kernelSize: 3, activation: "relu" };
  return [
    tf.layers.conv2d({ ...convolution, filters: units, inputShape: [side, side, 1] }),
    tf.layers.maxPooling2d({ poolSize: 2 }),
    tf.layers.conv2d({ ...convolution, filters: 2 * units }),
    tf.layers.globalAveragePooling2d({}),
    tf.layers.dense({ units: classes }),
  ];
}

/** A step of TensorFlow.js' layers. */
export function tensorFlowStep(tf, model, { x, labels, ...weights }) {
  const net = tf.sequential({ layers: layersOf(tf, model) });
  const shapes = net.getWeights().map((weight) => weight.shape);
  net.setWeights(shapes.map((shape, number) => tf.tensor(weights[`weight_${number}`].data, shape)));
  const loss = (target, scores) => tf.losses.softmaxCrossEntropy(target, scores);
  net.compile({ optimizer: tf.train.adam(0.01, 0.9, 0.999, 1e-7), loss });
  const shape = model.kind === "lstm" ? x.shape : [x.shape[0], model.side, model.side, 1];
  const data = tf.tensor(x.data, shape);
  const target = tf.oneHot(tf.tensor1d(Int32Array.from(labels.data, Number), "int32"), model.classes);
  return () => net.trainOnBatch(data, target);
}

/** A step of a bundle. */
export async function bundleStep(load, source, options, { x, labels }) {
  const trainer = await load(source, options);
  return async () => (await trainer.step({ x, target: labels })).loss;
}

/** `make()` makes a step; at least `losses` steps are done, and more until `seconds` have passed. */
export async function measure(make, losses, seconds) {
  const began = performance.now();
  const step = await make();
  const found = [await step()];
  const first = performance.now() - began;
  const times = [];
  for (let passed = 0; found.length < losses || (passed < 1e3 * seconds && times.length < 1000); passed += times.at(-1)) {
    const start = performance.now();
    const loss = await step();
    times.push(performance.now() - start);
    if (found.length < losses) found.push(loss);
  }
  return { losses: found, first, times };
}
