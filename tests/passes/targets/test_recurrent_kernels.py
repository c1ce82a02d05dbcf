"""An LSTM's steps of few sequences by onnxruntime's operator, beside the loop in float64."""

from __future__ import annotations

import itertools
import random

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.passes.targets import recurrent_kernels
from lstm_lower.runtime.proof import reference
from tests.support import target_rows as rows

T, B, INPUTS, H = 7, 3, 2, 4

# What each step may hand out: every value of the formula.
VALUES = ("h0", "c0", "i", "f", "g", "o", "si", "sf", "tg", "so", "kept", "taken", "c1", "t", "h1")
STEP = "kept = Mul (sf, c0) taken = Mul (si, tg) c1 = Add (kept, taken) t = Tanh (c1) h1 = Mul (so, t)"


def lstm(
    outputs: tuple[str, ...] = VALUES,
    *,
    order: str = "ifgo",
    backwards: bool = False,
    biased: bool = True,
    step: str = STEP,
    kind: str = "float",
    batch: str = str(B),
    sums: str = "Add (s, z)",
    cell_first: bool = False,
) -> onnx.ModelProto:
    """A model whose loop hands out values of its steps, behind the final h and c."""
    handed = " ".join(f"out_{name} = Identity ({name})" for name in outputs)
    results = ", ".join(f"{kind}[{batch},{H}] out_{name}" for name in outputs)
    states = [(f"{kind}[{batch},{H}] {x}0", f"{kind}[{batch},{H}] {x}1", x, f"{x}_end") for x in ("h", "c")]
    states = states[::-1] if cell_first else states
    before, after, first, ends = (", ".join(state[place] for state in states) for place in range(4))
    sequences = ", ".join(f"all_{name}" for name in outputs)
    parts = ", ".join(order)
    directions = f"scan_input_directions = [1], scan_output_directions = {[1] * len(outputs)}, " if backwards else ""
    declared = ", ".join(f"{kind}[{T},{batch},{H}] all_{name}" for name in outputs)
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g ({kind}[{T},{batch},{INPUTS}] x, {kind}[{INPUTS},{4 * H}] w, {kind}[{4 * H}] bias, {kind}[{H},{4 * H}] r,
       {kind}[{batch},{H}] h, {kind}[{batch},{H}] c)
      => ({declared}, {kind}[{batch},{H}] h_end, {kind}[{batch},{H}] c_end)
    {{ products = MatMul (x, w) {"all = Add (products, bias)" if biased else "all = Identity (products)"}
       {ends}, {sequences} = Scan <{directions}num_scan_inputs = 1,
         body = step ({before}, {kind}[{batch},{4 * H}] s) => ({after}, {results})
         {{ z = MatMul (h0, r) a = {sums} {parts} = Split <axis = 1, num_outputs = 4> (a)
            si = Sigmoid (i) sf = Sigmoid (f) tg = Tanh (g) so = Sigmoid (o) {step} {handed} }}> ({first}, all) }}"""
    return onnx.parser.parse_model(text)


def has_operator(model: onnx.ModelProto) -> bool:
    return any(node.op_type == "LSTM" for node in model.graph.node)


def differences(model: onnx.ModelProto, lowered: onnx.ModelProto) -> dict[str, float]:
    """By output, how far onnxruntime's result lies from the loop's in float64."""
    feeds = rows.feeds_of(model)
    expected = reference.evaluate(ir.from_proto(model), feeds)
    names = [output.name for output in model.graph.output]
    return {name: float(np.abs(rows.run(lowered, feeds, name) - expected[name]).max()) for name in names}


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few steps are enough."""
    monkeypatch.setattr(recurrent_kernels, "LEAST_STEPS", T)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_leaves_the_steps_is_as_in_the_loop(seed: int) -> None:
    draw = random.Random(seed)
    model = lstm(
        tuple(draw.sample(VALUES, draw.randrange(1, len(VALUES) + 1))),
        order="".join(draw.sample("ifgo", 4)),
        backwards=draw.random() < 0.5,
        biased=draw.random() < 0.7,
        cell_first=draw.random() < 0.5,
        sums=draw.choice(["Add (s, z)", "Add (z, s)"]),
    )
    lowered = ll.optimize(model)
    assert has_operator(lowered)
    worst = differences(model, lowered)
    assert max(worst.values()) < 2e-6, worst


def test_every_value_of_the_steps_at_once() -> None:
    model = lstm()
    lowered = ll.optimize(model)
    assert has_operator(lowered)
    # Of the loop, what carries the cell's state is left.
    (scan,) = [node for node in lowered.graph.node if node.op_type == "Scan"]
    assert [node.op_type for node in scan.attribute[0].g.node] == ["Mul", "Add", "Identity"]
    assert max(differences(model, lowered).values()) < 2e-6


def test_the_operator_alone_is_left_where_only_h_is_asked_for() -> None:
    model = lstm(("h1",))
    del model.graph.output[1:]
    lowered = ll.optimize(model)
    assert has_operator(lowered)
    assert not {"Scan", "Sigmoid", "Tanh"} & {node.op_type for node in lowered.graph.node}
    assert max(differences(model, lowered).values()) < 2e-6


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "double"},
        {"batch": "n"},
        {"step": STEP.replace("Tanh (c1)", "Sigmoid (c1)")},
        {"step": STEP.replace("Add (kept, taken)", "Sub (kept, taken)")},
        {"step": STEP.replace("Mul (sf, c0)", "Mul (sf, h0)")},
        {"step": STEP.replace("Mul (so, t)", "Mul (si, t)")},
        {"sums": "Sub (s, z)"},
        {"sums": "Add (s, s)"},
    ],
)
def test_other_steps_stay_a_loop(changed: dict[str, str]) -> None:
    assert has_operator(ll.optimize(lstm()))
    assert not has_operator(ll.optimize(lstm(**changed)))  # type: ignore[arg-type]


def test_what_is_no_part_of_the_formula_stays_in_a_loop() -> None:
    step = f"{STEP} twice = Add (h1, c1)"
    assert not has_operator(ll.optimize(lstm(("twice",), step=step)))


def test_many_sequences_stay_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent_kernels, "MOST_GATES", 4 * B * H - 1)
    assert not has_operator(ll.optimize(lstm()))
    monkeypatch.setattr(recurrent_kernels, "MOST_GATES", 4 * B * H)
    assert has_operator(ll.optimize(lstm()))


def test_very_few_steps_stay_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent_kernels, "LEAST_STEPS", T + 1)
    assert not has_operator(ll.optimize(lstm()))


def test_a_number_of_steps_that_is_open() -> None:
    model = lstm()
    for value in itertools.chain(model.graph.input, model.graph.output):
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 3:
            dims[0].dim_param = "steps"
    lowered = ll.optimize(model)
    assert has_operator(lowered)
    feeds = rows.feeds_of(model)
    for steps in (1, 5):
        feeds["x"] = np.random.default_rng(1).standard_normal((steps, B, INPUTS)).astype(np.float32)
        expected = reference.evaluate(ir.from_proto(model), feeds)
        for output in model.graph.output:
            result = rows.run(lowered, feeds, output.name)
            np.testing.assert_allclose(result, expected[output.name], rtol=0, atol=2e-6)


@pytest.mark.parametrize(("bidirectional", "bias"), [(False, True), (True, True), (False, False)])
def test_a_training_step_of_one_sequence_is_that_of_pytorch(bidirectional: bool, bias: bool) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    class Classifier(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.LSTM(INPUTS, H, bidirectional=bidirectional, bias=bias)
            self.head = torch.nn.Linear(H * (1 + bidirectional), 3)

        def forward(self, x: object) -> object:
            return self.head(self.layer(x)[0].mean(0))

    module = Classifier()
    example = torch.randn(T, 2, INPUTS)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    step = ll.from_torch(module, example, torch.nn.CrossEntropyLoss(), optimizer, check=False)
    open_size = step.graph.input[0].type.tensor_type.shape.dim[1].dim_param
    lowered = ll.lower(step, sizes={open_size: 1})
    assert has_operator(lowered)
    x, label = torch.randn(T, 1, INPUTS), torch.tensor([2])
    weights = {name: value.detach().numpy().copy() for name, value in module.named_parameters()}
    scalars = {"learning_rate": np.asarray(0.1, np.float32), "iteration": np.asarray(0)}
    feeds = {"x": x.numpy(), "target": label.numpy(), **weights, **scalars}
    feeds = {value.name: feeds[value.name] for value in lowered.graph.input}
    loss = torch.nn.functional.cross_entropy(module(x), label)
    loss.backward()
    assert abs(rows.run(lowered, feeds, "loss") - loss.item()) < 1e-6
    for name, value in module.named_parameters():
        np.testing.assert_allclose(rows.run(lowered, feeds, f"grad/{name}"), value.grad, rtol=0, atol=1e-6)
