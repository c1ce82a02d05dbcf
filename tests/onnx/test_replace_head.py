"""New last layers, next to a new Linear in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from tests.support.quantized_models import FORMATS, KINDS, data, quantized

RANDOM = np.random.default_rng(0)
X, TARGET = RANDOM.standard_normal((6, 4), np.float32), np.array([0, 4, 2, 1, 3, 0])
U, V = (RANDOM.uniform(-1, 1, shape).astype(np.float32) for shape in ((4, 8), (8, 3)))
TEXT = """<ir_version: 8, opset_import: ["" : 17]> f (float[B,4] x) => (float[B,3] y)
    <float[3] c = {1, 2, 3}> { a = MatMul(x, u)  h = Tanh(a) ENDING }"""
ENDINGS = {
    "product": "y = MatMul(h, v)",
    "sum": "p = MatMul(h, v)  y = Add(c, p)",
    "gemm": "t = Transpose<perm = [1, 0]>(v)  y = Gemm<transB = 1>(h, t, c)",
    "probabilities": "y0 = Gemm(h, v, c)  y = LogSoftmax<axis = 1>(y0)",
}


SCORES = "s = Gemm(h, v, c)  one = Constant <value = int64[1] {1}> ()"
SHIFTED = f"{SCORES}  largest = ReduceMax <axes = [1]> (s)  z = Sub(s, largest)  e = Exp(z)  t = ReduceSum(e, one)"
AGAIN = "n = Shape <end = 1> (x)  two = Concat <axis = 0> (n, one)"
PRODUCT = "that a product with a matrix makes"
WRITTEN_OUT = {
    "powers by their sum": ("Softmax", f"{SCORES}  e = Exp(s)  t = ReduceSum(e, one)  y = Div(e, t)"),
    "the largest taken away": ("Softmax", f"{SHIFTED}  y = Div(e, t)"),
    "as JAX writes it": (
        "Softmax",
        f"""{SCORES} {AGAIN}  least = Constant <value = float {{-inf}}> ()  l = ReduceMax <axes = [1], keepdims = 0> (s)
        m = Max(least, l)  r = Reshape(m, two)  largest = Expand(r, two)  z = Sub(s, largest)  e = Exp(z)
        t = ReduceSum <keepdims = 0> (e, one)  r2 = Reshape(t, two)  w = Expand(r2, two)  y = Div(e, w)""",
    ),
    "its logarithm": ("LogSoftmax", f"{SHIFTED}  l = Log(t)  y = Sub(z, l)"),
}


def _model(ending: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT.replace("ENDING", ending))
    for name, value in (("u", U), ("v", V)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return model


@pytest.mark.parametrize("ending", ENDINGS)
def test_training_follows_pytorch(ending: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    made = ll.replace_head(_model(ENDINGS[ending]), 5, seed=3)
    assert not {"v", "c"} & {tensor.name for tensor in made.graph.initializer}
    (output,) = made.graph.output
    assert [dim.dim_value or dim.dim_param for dim in output.type.tensor_type.shape.dim] == ["B", 5]
    assert ort.InferenceSession(made.SerializeToString()).run(None, {"x": X})[0].shape == (6, 5)
    loss = "nll" if ending == "probabilities" else "cross_entropy"
    trainer = ll.Trainer(ll.from_onnx(made, loss, "sgd", trainable="head.*"), learning_rate=0.5)
    first = trainer.state_dict()
    head = torch.nn.Linear(8, 5)
    with torch.no_grad():
        head.weight.copy_(torch.tensor(first["head.weight"]).T)
        head.bias.copy_(torch.tensor(first["head.bias"]))
    assert np.abs(first["head.weight"]).max() <= 8**-0.5
    optimizer = torch.optim.SGD(head.parameters(), 0.5)
    losses, expected = [], []
    for _ in range(10):
        losses.append(trainer.step({"x": X, "target": TARGET}).loss)
        optimizer.zero_grad()
        value: Any = torch.nn.functional.cross_entropy(head(torch.tanh(torch.tensor(X @ U))), torch.tensor(TARGET))
        value.backward()
        optimizer.step()
        expected.append(value.item())
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("form", WRITTEN_OUT)
def test_a_softmax_that_is_written_out(form: str) -> None:
    operator, ending = WRITTEN_OUT[form]
    made = ll.replace_head(_model(ending), 5, seed=3)
    like = ll.replace_head(_model(f"y0 = Gemm(h, v, c)  y = {operator} <axis = 1> (y0)"), 5, seed=3)
    got, expected = (ort.InferenceSession(each.SerializeToString()).run(None, {"x": X})[0] for each in (made, like))
    np.testing.assert_array_equal(got, expected)
    assert got.shape == (6, 5)


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        (
            f"{SCORES}  e = Exp(s)  zero = Constant <value = int64[1] {{0}}> ()  t = ReduceSum(e, zero)  y = Div(e, t)",
            PRODUCT,
        ),
        (f"{SCORES}  e = Exp(s)  k = Tanh(s)  t = ReduceSum(k, one)  y = Div(e, t)", PRODUCT),
        ("k = MatMul(h, v)  y = Relu(k)", PRODUCT),
        ("k = MatMul(h, v)  m = ReduceMax<axes = [1]>(k)  y = Sub(k, m)", PRODUCT),
        ("k = MatMul(h, v)  m = ReduceMax<axes = [1]>(h)  y = Add(k, m)", PRODUCT),
        (
            "t = Transpose<perm = [1, 0]>(h)  g = MatMul(h, v)  k = MatMul(t, g)  y = MatMul(h, k)",
            PRODUCT,
        ),
        ("y = MatMul(h, v)  z = Relu(y)", None),
    ],
)
def test_what_has_no_such_layer(ending: str, message: str | None) -> None:
    if message is None:
        model = _model(ending)
        model.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["B", 3]))
        message = "that nothing else reads"
    else:
        model = _model(ending)
    with pytest.raises(UnsupportedOpError, match=message):
        ll.replace_head(model, 5)


def test_arguments() -> None:
    for wrong in (0, True, 2.5):
        with pytest.raises(InvalidInputError, match="classes requires"):
            ll.replace_head(_model(ENDINGS["gemm"]), wrong)  # type: ignore[arg-type]
    seeds: list[Any] = [-1, 2**63, 1.5, None]
    for seed in seeds:
        for change in (
            lambda seed: ll.replace_head(_model(ENDINGS["gemm"]), None, seed=seed),
            lambda seed: ll.lora(_model(ENDINGS["gemm"]), seed=seed),
        ):
            with pytest.raises(InvalidInputError, match="seed requires a whole number, at least 0"):
                change(seed)
    again = ll.replace_head(ll.replace_head(_model(ENDINGS["gemm"]), 5), 4)
    assert {x.name: list(x.dims) for x in again.graph.initializer} == {
        "u": [4, 8],
        "head.weight": [8, 4],
        "head.bias": [4],
    }
    model = _model(ENDINGS["gemm"])
    for values in (model.graph.initializer, [node.input for node in model.graph.node]):
        for each in values:
            if isinstance(each, onnx.TensorProto):
                each.name = each.name.replace("u", "head.weight")
            else:
                each[:] = ["head.weight" if x == "u" else x for x in each]
    with pytest.raises(InvalidInputError, match=r"reads 'head\.weight'"):
        ll.replace_head(model, 4)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_networks_of_integers(kind: str, form: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As onnxruntime's quantizers write them: the new layer is one of floats, which nothing rounds."""
    folder = tmp_path_factory.getbasetemp()
    trainers = []
    for each in (form, "float"):
        tuned = ll.replace_head(quantized(kind, each, folder), classes=5)
        trainers.append(
            ll.Trainer(ll.from_onnx(tuned, "cross_entropy", "adam", trainable="head.*"), learning_rate=0.02)
        )
    feeds = {"x": data(kind), "target": np.arange(len(data(kind))) % 5}
    losses = [[trainer.step(feeds).loss for _ in range(15)] for trainer in trainers]
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.01)
    assert losses[0][-1] < losses[0][0]
    assert trainers[0].predict({"x": data(kind)})["y"].shape == (len(data(kind)), 5)
