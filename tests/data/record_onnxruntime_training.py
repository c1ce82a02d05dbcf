"""Lets onnxruntime-training write training graphs of small models, runs them there and stores graphs and results.

    python tests/data/record_onnxruntime_training.py

Run from the repository's root in an environment of its own: onnxruntime-training 1.19.2 (the last one there is), onnx
1.16.2, numpy below 2 and PyTorch, which onnxruntime.training imports; Python 3.11.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper, parser
from onnxruntime.training import artifacts

FOLDER = Path(__file__).with_name("onnxruntime_training")
BATCH, STEPS = 2, 4

# In models' text B is the batch and T the steps. Every floating weight is trained.
MATRIX = {"w": (4, 4)}
IMAGE = {"w": (2, 2, 3, 3)}
LAYER = "g (float[T,B,3] x, float[1,B,4] h0, float[1,B,4] c0) => (float[T,1,B,4] Y)"
SEQUENCE = "g (float[T,B,3] x, float[1,B,4] h0) => (float[T,1,B,4] Y)"


def rows(body: str, **weights: tuple[int, ...]) -> tuple[str, dict[str, tuple[int, ...]]]:
    """A model of a matrix product and what follows."""
    return f"g (float[B,5,4] x) => (float[B,5,4] y) {{ a=MatMul(x,w) {body} }}", {**MATRIX, **weights}


def image(size: int, body: str, **weights: tuple[int, ...]) -> tuple[str, dict[str, tuple[int, ...]]]:
    """A model of a convolution and what follows."""
    text = f"g (float[B,2,6,6] x) => (float[B,{size}] y) {{ c=Conv<pads=[1,1,1,1]>(x,w) {body} y=Flatten(z) }}"
    return text, {**IMAGE, **weights}


LSTM = {"W": (1, 16, 3), "R": (1, 16, 4), "b": (1, 32)}
GRU = {"W": (1, 12, 3), "R": (1, 12, 4), "b": (1, 24)}
SCALES = "s=Constant<value_floats=[1.0,1.0,2.0,2.0]>()"
TEN = "r=Constant<value=float {1.4142135381698608}>() o=Constant<value=float {1.0}>() h=Constant<value=float {0.5}>()"

MODELS: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "mlp": (
        "g (float[B,3] x) => (float[B,4] y) { a=Gemm<transB=1>(x,w1,b1) r=Relu(a) m=MatMul(r,w2) y=Add(m,b2) }",
        {"w1": (5, 3), "b1": (5,), "w2": (5, 4), "b2": (4,)},
    ),
    "lstm": (f"{LAYER} {{ Y, Yh, Yc = LSTM<hidden_size=4>(x, W, R, b, , h0, c0) }}", LSTM),
    "lstm_peephole": (
        (
            "g (float[T,B,3] x, float[1,B,4] h0, float[1,B,4] c0) => (float[T,1,B,4] Y, float[1,B,4] Yc)"
            " { Y, Yh, Yc = LSTM<hidden_size=4>(x, W, R, b, , h0, c0, p) }"
        ),
        {**LSTM, "p": (1, 12)},
    ),
    "gru": (f"{SEQUENCE} {{ Y, Yh = GRU<hidden_size=4>(x, W, R, b, , h0) }}", GRU),
    "gru_linear": (f"{SEQUENCE} {{ Y, Yh = GRU<hidden_size=4,linear_before_reset=1>(x, W, R, b, , h0) }}", GRU),
    "embedding": (
        "g (int64[B,5] ids) => (float[B,5,3] y) { e=Gather(E,ids) y,m,i=LayerNormalization(e,s,b) }",
        {"E": (7, 3), "s": (3,), "b": (3,)},
    ),
    "attention": (
        (
            "g (float[B,5,4] x) => (float[B,5,4] y) { q=MatMul(x,wq) k=MatMul(x,wk) v=MatMul(x,wv)"
            " kt=Transpose<perm=[0,2,1]>(k) s0=MatMul(q,kt) c=Constant<value=float {0.5}>() s=Mul(s0,c)"
            " p=Softmax<axis=-1>(s) o=MatMul(p,v) r=Add(o,x) y,m,i=LayerNormalization(r,s1,b1) }"
        ),
        {"wq": (4, 4), "wk": (4, 4), "wv": (4, 4), "s1": (4,), "b1": (4,)},
    ),
    "convolution": (
        (
            "g (float[B,2,8,8] x) => (float[B,3] y) { c=Conv<pads=[1,1,1,1]>(x,w1,b1)"
            " n=BatchNormalization(c,s,bb,mean,variance) r=Relu(n) p=MaxPool<kernel_shape=[2,2],strides=[2,2]>(r)"
            " c2=Conv<strides=[2,2]>(p,w2) g=GlobalAveragePool(c2)"
            " y=Flatten(g) }"
        ),
        {"w1": (4, 2, 3, 3), "b1": (4,), "s": (4,), "bb": (4,), "mean": (4,), "variance": (4,), "w2": (3, 4, 2, 2)},
    ),
    "leaky_relu": rows("y=LeakyRelu<alpha=0.1>(a)"),
    "tanh": rows("y=Tanh(a)"),
    "sigmoid": rows("y=Sigmoid(a)"),
    "softmax": rows("y=Softmax<axis=1>(a)"),
    "log_softmax": rows("y=LogSoftmax<axis=2>(a)"),
    "divide": rows("q=Exp(v) y=Div(a,q)", v=(4,)),
    "broadcast": rows("c=ReduceSum<keepdims=1>(x) d=Mul(c,v) y=Sub(d,a)", v=(5, 1)),
    "gelu": rows(f"{TEN} d=Div(a,r) e=Erf(d) f=Add(e,o) m=Mul(a,f) y=Mul(m,h)"),
    "bias_gelu": rows(f"{TEN} q=Add(a,v) d=Div(q,r) e=Erf(d) f=Add(e,o) m=Mul(q,f) y=Mul(m,h)", v=(4,)),
    "quick_gelu": rows("c=Constant<value=float {1.702}>() m=Mul(a,c) s=Sigmoid(m) y=Mul(a,s)"),
    "concat": rows("c=Concat<axis=2>(a,x,a) y1,y2,y3=Split<axis=2>(c) u=Mul(y1,y2) y=Add(u,y3)"),
    "slice": rows(
        "s=Constant<value_ints=[0]>() e=Constant<value_ints=[4]>() ax=Constant<value_ints=[2]>()"
        " st=Constant<value_ints=[2]>() z=Slice(a,s,e,ax,st) y=Concat<axis=2>(z,z)"
    ),
    "gather": rows("i=Constant<value_ints=[3,1,1,0]>() y=Gather<axis=2>(a,i)"),
    "gather_nd": rows(
        "i=Constant<value=int64[5,4,1] {0,0,0,0,0,1,1,1,1,1,0,1,0,1,0,1,0,1,1,1}>() t=Transpose<perm=[1,0,2]>(a)"
        " z=GatherND<batch_dims=1>(t,i) s=Shape(a) e=Concat<axis=0>(s,s) u=ReduceSum<keepdims=1>(z) y=Add(a,u)"
    ),
    "gather_elements": rows("s=Shape(a) z=ConstantOfShape<value=int64[1] {1}>(s) y=GatherElements<axis=2>(a,z)"),
    "matrices": rows(
        "t=Transpose<perm=[0,2,1]>(a) c=Constant<value=float {0.25}>() g=MatMul(a,t) h=Mul(g,c) y=MatMul(h,x)"
    ),
    "layer_norm": rows("y,m,i=LayerNormalization<axis=1>(a,s,b)", s=(5, 4), b=(5, 4)),
    "simplified_layer_norm": rows(
        "two=Constant<value=float {2.0}>() p=Pow(a,two) m=ReduceMean<axes=[-1],keepdims=1>(p)"
        " e=Constant<value=float {0.00001}>() q=Add(m,e) r=Sqrt(q) d=Div(a,r) y=Mul(d,s)",
        s=(4,),
    ),
    "transposed_convolution": image(288, "z=ConvTranspose<strides=[2,2],group=2>(c,w2,b2)", w2=(2, 1, 2, 2), b2=(2,)),
    "max_pool": image(18, "z=MaxPool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>(c)"),
    "average_pool": image(18, "z=AveragePool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>(c)"),
    "average_pool_padded": image(
        18, "z=AveragePool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1],count_include_pad=1>(c)"
    ),
    "linear_resize": image(288, f'{SCALES} z=Resize<mode="linear",coordinate_transformation_mode="half_pixel">(c,,s)'),
    "nearest_resize": image(288, f'{SCALES} z=Resize<mode="nearest">(c,,s)'),
}
LOSSES = {
    "mse": artifacts.LossType.MSELoss,
    "cross_entropy": artifacts.LossType.CrossEntropyLoss,
    "bce": artifacts.LossType.BCEWithLogitsLoss,
    "l1": artifacts.LossType.L1Loss,
}
FROZEN = ("mean", "variance")
# For the gradients of these onnxruntime-training has no kernels on a CPU, or such as end the process.
WITHOUT_KERNELS = (
    "average_pool",
    "average_pool_padded",
    "transposed_convolution",
    "linear_resize",
    "nearest_resize",
)


def model(text: str, weights: dict[str, tuple[int, ...]], rng: np.random.Generator) -> onnx.ModelProto:
    """A model with random weights; variances are positive."""
    found = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
    for name, shape in weights.items():
        value = rng.normal(size=shape, scale=0.5).astype(np.float32)
        found.graph.initializer.append(
            numpy_helper.from_array(np.abs(value) + 0.5 if name == "variance" else value, name)
        )
    onnx.checker.check_model(found)
    return found


def record(name: str, loss: str, rng: np.random.Generator) -> int:
    """Stores one training graph with what it computes; returns the number of bytes."""
    text, weights = MODELS[name]
    source = model(text, weights, rng)
    values = {found.name: numpy_helper.to_array(found) for found in source.graph.initializer}
    trained = [weight for weight in weights if weight not in FROZEN]
    with tempfile.TemporaryDirectory() as folder:
        artifacts.generate_artifacts(
            source,
            requires_grad=trained,
            frozen_params=[weight for weight in weights if weight in FROZEN],
            loss=LOSSES[loss],
            optimizer=artifacts.OptimType.AdamW,
            artifact_directory=folder,
        )
        graph = onnx.load(Path(folder) / "training_model.onnx")
        evaluation = (Path(folder) / "eval_model.onnx").read_bytes()
    feeds = {found.name: feed(found, values, rng) for found in graph.graph.input}
    if name in WITHOUT_KERNELS:
        results = differences(graph, evaluation, {key: feeds[key] for key in trained}, feeds)
    else:
        results = computed(graph, trained, feeds)
    path = FOLDER / f"{name}_{loss}.npz"
    np.savez_compressed(
        path,
        model=np.frombuffer(graph.SerializeToString(), np.uint8),
        evaluation=np.frombuffer(evaluation, np.uint8),
        loss=np.array(graph.graph.output[0].name),
        **{f"in/{key}": value for key, value in feeds.items()},
        **{f"out/{key}": value for key, value in results.items()},
    )
    return path.stat().st_size


def computed(graph: onnx.ModelProto, trained: list[str], feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The loss and the weights' gradients by onnxruntime-training's kernels."""
    probe = onnx.ModelProto.FromString(graph.SerializeToString())
    made = {value for node in graph.graph.node for value in node.output}
    gradients = [f"{weight}_grad" for weight in trained if f"{weight}_grad" in made]
    probe.graph.output.extend(onnx.helper.make_tensor_value_info(x, onnx.TensorProto.FLOAT, None) for x in gradients)
    session = onnxruntime.InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = [graph.graph.output[0].name, *gradients]
    # What is changed in place is a copy.
    given = {key: value.copy() for key, value in feeds.items()}
    return dict(zip(wanted, session.run(wanted, given), strict=True))


def differences(
    graph: onnx.ModelProto, evaluation: bytes, weights: dict[str, np.ndarray], feeds: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The same by central differences of the loss, which is a square of each weight: wide ones are exact."""
    session = onnxruntime.InferenceSession(evaluation, providers=["CPUExecutionProvider"])
    known = {found.name: feeds[found.name] for found in session.get_inputs()}

    def loss(changed: dict[str, np.ndarray]) -> np.ndarray:
        return np.asarray(session.run(None, {**known, **changed})[0])

    results = {graph.graph.output[0].name: loss({})}
    for name, value in weights.items():
        slopes = np.zeros(value.shape, np.float32)
        for place in np.ndindex(value.shape):
            step = np.zeros_like(value)
            step[place] = 0.5
            slopes[place] = loss({name: value + step}) - loss({name: value - step})
        results[f"{name}_grad"] = slopes
    return results


def feed(found: onnx.ValueInfoProto, values: dict[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """What an input is given: weights their values, accumulators ones, targets and data random numbers."""
    if found.name in values:
        return values[found.name]
    type_ = found.type.tensor_type
    sizes = {"B": BATCH, "T": STEPS}
    shape = [dim.dim_value or sizes[dim.dim_param] for dim in type_.shape.dim]
    if found.name == "lazy_reset_grad":
        return np.zeros(shape, bool)
    if found.name.endswith(".accumulation.buffer"):
        return np.ones(shape, np.float32)
    if type_.elem_type == onnx.TensorProto.INT64:
        return rng.integers(0, 4, size=shape)
    return rng.uniform(size=shape).astype(np.float32)


def record_optimizer(name: str, rng: np.random.Generator) -> int:
    """Stores an optimizer's graph with what it makes of two weights; returns the number of bytes."""
    kind, *options = name.split("_")
    text, weights = MODELS["mlp"]
    with tempfile.TemporaryDirectory() as folder:
        artifacts.generate_artifacts(
            model(text, weights, rng),
            requires_grad=list(weights),
            loss=LOSSES["mse"],
            optimizer=artifacts.OptimType.SGD if kind == "sgd" else artifacts.OptimType.AdamW,
            artifact_directory=folder,
        )
        graph = onnx.load(Path(folder) / "optimizer_model.onnx")
    (node,) = graph.graph.node
    changed = {"adam_mode": int("pytorch" not in options), "weight_decay": 0.1 if "decay" in options else 0.0}
    for attribute in node.attribute:
        if attribute.name in changed:
            attribute.CopyFrom(onnx.helper.make_attribute(attribute.name, changed[attribute.name]))
    probe = onnx.ModelProto.FromString(graph.SerializeToString())
    updated = [x for x in node.input if x in ("params", "first_order_moments", "second_order_moments")]
    probe.graph.node[0].output.extend(f"{x}.updated" for x in updated)
    float_type = onnx.TensorProto.FLOAT
    probe.graph.output.extend(
        onnx.helper.make_tensor_sequence_value_info(f"{x}.updated", float_type, None) for x in updated
    )
    feeds: dict[str, object] = {"learning_rate": np.array([0.1], np.float32), "step": np.array([3])}
    for found in graph.graph.input:
        if found.type.HasField("sequence_type"):
            values = [rng.normal(size=shape).astype(np.float32) for shape in ((3, 2), (4,))]
            feeds[found.name] = [np.abs(x) for x in values] if found.name.startswith("second") else values
    given = copy.deepcopy({found.name: feeds[found.name] for found in graph.graph.input})
    session = onnxruntime.InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    results = dict(zip(updated, session.run([f"{x}.updated" for x in updated], given), strict=True))
    path = FOLDER / f"optimizer_{name}.npz"
    np.savez_compressed(
        path,
        model=np.frombuffer(graph.SerializeToString(), np.uint8),
        **{f"in/{key}": value for key, value in flat(feeds).items()},
        **{f"out/{key}": value for key, value in flat(results).items()},
    )
    return path.stat().st_size


def flat(values: dict[str, object]) -> dict[str, np.ndarray]:
    """Sequences element by element, under the sequence's name and a number."""
    found = {}
    for name, value in values.items():
        if isinstance(value, list):
            found |= {f"{name}/{place}": element for place, element in enumerate(value)}
        else:
            found[name] = np.asarray(value)
    return found


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    total = 0
    cases = [(name, "mse") for name in MODELS] + [("mlp", loss) for loss in LOSSES if loss != "mse"]
    for seed, (name, loss) in enumerate(cases):
        total += record(name, loss, np.random.default_rng(seed))
    optimizers = ("sgd", "adamw", "adamw_decay", "adamw_pytorch", "adamw_pytorch_decay")
    total += sum(record_optimizer(name, np.random.default_rng(0)) for name in optimizers)
    sys.stdout.write(f"{len(cases) + len(optimizers)} graphs, {total} bytes\n")


if __name__ == "__main__":
    main()
