"""ONNX's LSTM, GRU and RNN as Scans: against the operators' documentation, onnxruntime's kernels and onnx.reference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, defs, parser
from onnx.reference import ReferenceEvaluator

from lstm_lower.errors import InvalidModelError
from lstm_lower.graph.dump import dump
from lstm_lower.passes.decompositions.decompose import DecomposePass
from tests.conftest import Golden
from tests.support.loop_checks import run, run_reference
from tests.support.recurrent_layers import OUTPUTS, Array, Case, layer

ALL = ("B", "h0", "c0", "P")
SMALL = (3, 2, 2, 2)
# Functions without values, with default values, and with values that only some of them use up.
FUNCTIONS: list[dict[str, Any]] = [
    {"activations": ["Softsign", "Relu", "Softplus"]},
    {"activations": ["HardSigmoid", "Elu", "LeakyRelu"]},
    {"activations": ["Sigmoid", "Affine", "ScaledTanh"], "activation_alpha": [0.7, 1.5], "activation_beta": [0.1, 0.8]},
    {"activations": ["hardsigmoid", "tanh", "Elu"], "activation_alpha": [0.3, 0.5], "activation_beta": [0.4]},
    {"activations": ["ThresholdedRelu", "LeakyRelu", "Tanh"], "activation_alpha": [0.1, 0.3]},
]


def grid() -> list[Case]:
    """Every attribute by itself, and those that meet in one formula together."""
    cases = []
    for op in OUTPUTS:
        for direction in ("forward", "reverse", "bidirectional"):
            for lengths in (None, (0, 4, 2)):
                cases += [Case(op, {"direction": direction}, operands, lengths) for operands in (ALL, ())]
            clipped = {"direction": direction, "clip": 0.3}
            cases.append(Case(op, clipped, ALL, (4, 1, 3)))
            cases.append(Case(op, {"direction": direction, "layout": 1}, ALL, None))
        cases.append(Case(op, {"direction": "bidirectional", "layout": 1}, ALL, (1, 0, 3)))
        cases += [Case(op, {"clip": 0.3}, ALL), Case(op, {}, ("B",)), Case(op, {}, ("h0",))]
        cases += [Case(op, functions_of(op, given), ALL, lengths) for given in FUNCTIONS for lengths in (None, (2, 3))]
        both = functions_of(op, {"activations": ["LeakyRelu"] * 3}) | {"activation_alpha": [0.3, 0.2]}
        cases.append(Case(op, both | {"activations": both["activations"] * 2, "direction": "bidirectional"}, ALL))
    for operands in (ALL, ("B",)):
        cases.append(Case("LSTM", {"input_forget": 1}, operands))
        cases.append(Case("GRU", {"linear_before_reset": 1}, operands))
    cases.append(Case("GRU", {"linear_before_reset": 1, "direction": "bidirectional", "clip": 0.4}, (), (3, 0, 4)))
    return [case if case.lengths != (2, 3) else Case(case.op, case.attributes, ALL, (2, 3), SMALL) for case in cases]


def functions_of(op: str, given: dict[str, Any]) -> dict[str, Any]:
    """The functions of as many gates as the operator has, with all values (those left over serve nobody)."""
    count = {"LSTM": 3, "GRU": 2, "RNN": 1}[op]
    return given | {"activations": given["activations"][-count:] if count == 1 else given["activations"][:count]}


CASES = grid()


def decomposed(model: onnx.ModelProto) -> onnx.ModelProto:
    work = ir.from_proto(model)
    assert DecomposePass(lambda node: node.op_type in OUTPUTS)(work).modified
    result = ir.to_proto(work)
    onnx.checker.check_model(result, full_check=True)
    assert not {node.op_type for node in result.graph.node} & set(OUTPUTS)
    return result


def expected(case: Case, feeds: dict[str, Array]) -> list[Array]:
    return list(layer(case.op, feeds, case.attributes).values())


def distance(found: list[Array], wanted: list[Array]) -> float:
    """The largest difference in proportion to what is largest."""
    assert [x.shape for x in found] == [x.shape for x in wanted]
    scale = 1 + max(np.abs(x).max() for x in wanted)
    return float(max(np.abs(a - b).max() for a, b in zip(found, wanted, strict=True)) / scale)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_form(case: Case) -> None:
    feeds = case.feeds()
    after, wanted = decomposed(case.model()), expected(case, feeds)
    for optimised in (True, False):
        assert distance(run(after, feeds, optimised=optimised), wanted) < 1e-6


# onnxruntime's kernels refuse layout 1, and those of the LSTM do not clip what the last activation is applied to.
KERNELS = [c for c in CASES if "layout" not in c.attributes and (c.op != "LSTM" or "clip" not in c.attributes)]
# onnx's own implementation knows neither lengths nor clips nor other activations.
PLAIN = [c for c in CASES if c.lengths is None and not c.attributes.keys() & {"clip", "activations", "input_forget"}]


@pytest.mark.parametrize("case", KERNELS, ids=str)
def test_kernels_of_onnxruntime(case: Case) -> None:
    """They read the documentation as the oracle does."""
    feeds = case.feeds()
    assert distance(run(case.model(), feeds), expected(case, feeds)) < 1e-6


@pytest.mark.parametrize(
    ("attributes", "what"),
    [
        pytest.param({"clip": 0.3}, "what the last activation is applied to is not clipped", id="clip"),
        pytest.param({"activations": ["Sigmoid", "ThresholdedRelu", "Tanh"]}, "alpha's default is 1", id="threshold"),
    ],
)
def test_faults_of_the_kernels(attributes: dict[str, Any], what: str) -> None:
    """Once they are mended this fails, and the cases belong to the test before."""
    case = Case("LSTM", attributes)
    feeds = case.feeds()
    assert distance(run(case.model(), feeds), expected(case, feeds)) > 1e-3, what


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_reference_evaluator(case: Case) -> None:
    feeds = case.feeds(np.float64)
    assert distance(ReferenceEvaluator(case.model(TensorProto.DOUBLE)).run(None, feeds), expected(case, feeds)) < 1e-14


@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_doubles(case: Case) -> None:
    feeds = case.feeds(np.float64)
    after, wanted = decomposed(case.model(TensorProto.DOUBLE)), expected(case, feeds)
    # onnxruntime has no kernels for most activations of doubles.
    found = run_reference(after, feeds) if "activations" in case.attributes else run(after, feeds)
    assert distance(found, wanted) < 1e-14


@pytest.mark.parametrize("op", OUTPUTS)
@pytest.mark.parametrize("opset", [13, 14, defs.onnx_opset_version()])
@pytest.mark.parametrize("names", [None, ("T", "B", "I", "H")], ids=["unnamed", "named"])
def test_open_sizes(op: str, opset: int, names: tuple[str, ...] | None) -> None:
    """One model for all sizes, those of the weights too, in the oldest and the newest opset."""

    def shapes(name: str, shape: tuple[int, ...]) -> list[str | None]:
        named = {"X": "TBI", "W": ["D", "G", "I"], "R": ["D", "G", "H"], "h0": "DBH", "c0": "DBH", "lens": "B"}
        return (
            [f"{name}{axis}" if name in "BP" else named[name][axis] for axis in range(len(shape))]
            if names
            else [None] * len(shape)
        )

    attributes = {"direction": "bidirectional"}
    after = decomposed(Case(op, attributes, ALL, (4, 2, 0)).model(opset=opset, shapes=shapes))
    session = ort.InferenceSession(after.SerializeToString(), providers=["CPUExecutionProvider"])
    for lengths, sizes in (((3, 0), (3, 2, 2, 3)), ((1, 5, 4), (5, 3, 1, 2))):
        case = Case(op, attributes, ALL, lengths, sizes)
        feeds = case.feeds()
        assert distance(session.run(None, feeds), expected(case, feeds)) < 1e-6


@pytest.mark.parametrize("op", OUTPUTS)
@pytest.mark.parametrize("output", OUTPUTS["LSTM"])
def test_single_outputs(op: str, output: str) -> None:
    """What nobody reads is not made, and what somebody reads keeps its name."""
    if output not in OUTPUTS[op]:
        return
    case = Case(op, {}, ALL, (4, 0, 2))
    feeds = case.feeds()
    after = decomposed(case.model(outputs=(output,)))
    assert [x.name for x in after.graph.output] == [output]
    wanted = layer(op, feeds, {})[output]
    assert distance(run(after, feeds), [wanted]) < 1e-6


@pytest.mark.parametrize("op", OUTPUTS)
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("function", ["Tanh", "Relu"])
def test_what_lies_beyond_an_end(op: str, direction: str, function: str) -> None:
    """It may be anything, and states that would grow there do not get in the way."""
    count = {"LSTM": 3, "GRU": 2, "RNN": 1}[op]
    case = Case(op, {"direction": direction, "activations": [function] * count}, ALL, (2, 1, 0), (60, 3, 2, 3))
    feeds = case.feeds()
    feeds["R"] *= 20
    for sequence, length in enumerate(case.lengths or ()):
        feeds["X"][length:, sequence] = np.nan
    after = decomposed(case.model())
    assert distance(run(after, feeds), expected(case, feeds)) < 1e-5
    states = [node for node in after.graph.node if node.op_type == "Scan"]
    held = [inner.op_type for node in states for inner in node.attribute[0].g.node if inner.op_type == "Where"]
    assert bool(held) == (function == "Relu")


@pytest.mark.parametrize("op", OUTPUTS)
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_halves_are_computed_in_float32(op: str, dtype: int) -> None:
    numpy = np.float16 if dtype == TensorProto.FLOAT16 else ml_dtypes.bfloat16
    case = Case(op, {"direction": "reverse"}, ALL, (30, 4), (30, 2, 3, 4))
    feeds = case.feeds(numpy)
    after = decomposed(case.model(dtype, opset=22))
    found = run(after, feeds) if dtype == TensorProto.FLOAT16 else run_reference(after, feeds)
    for result, wanted in zip(found, expected(case, feeds), strict=True):
        assert result.dtype == numpy
        np.testing.assert_array_less(
            np.abs(result - wanted.astype(numpy)).astype(float), 2 * ml_dtypes.finfo(numpy).eps
        )


def test_lengths_that_are_all_of_them() -> None:
    """Nothing is cut off of sequences that are known to be full."""
    case = Case("GRU", {}, (), (4, 4, 4))
    model = case.model()
    lens = next(x for x in model.graph.input if x.name == "lens")
    model.graph.input.remove(lens)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(3, 4, np.int32), "lens"))
    after = decomposed(model)
    assert not {"Where", "GatherND"} & {node.op_type for node in after.graph.node}
    feeds = case.feeds()
    assert distance(run(after, feeds), expected(case, feeds)) < 1e-6


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"direction": "both"}, "direction requires one of forward, reverse, bidirectional, got both"),
        ({"clip": 0.0}, "clip requires a bound above 0"),
        ({"activations": ["Tanh"]}, "activations requires 3 functions, got 1"),
        ({"activations": ["Tanh", "Gelu", "Tanh"]}, "activations requires functions among .* got gelu"),
        ({"activations": ["Affine", "Tanh", "Tanh"]}, "activation_alpha requires a value for affine"),
        (
            {"activations": ["ScaledTanh", "Tanh", "Tanh"], "activation_alpha": [1.0]},
            "activation_beta requires a value",
        ),
    ],
)
def test_what_is_refused(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidModelError, match=f"LSTM 'layer': {message}"):
        DecomposePass(lambda _: True)(ir.from_proto(Case("LSTM", attributes).model()))


def test_only_what_is_asked_for_and_everywhere() -> None:
    """Layers within branches; the predicate decides."""
    text = """
      <ir_version: 9, opset_import: ["": 18]>
      graph (float[4, 3, 2] X, bool c, float[1, 3, 2] W, float[1, 3, 3] R) => (float[1, 3, 3] y) {
        y = If (c) <then_branch = yes () => (float[1, 3, 3] a) { [one] no, a = RNN <hidden_size = 3> (X, W, R) },
                    else_branch = no () => (float[1, 3, 3] b) { [two] no, b = RNN <hidden_size = 3> (X, W, R) }>
      }"""
    model = parser.parse_model(text)
    work = ir.from_proto(model)
    DecomposePass(lambda node: node.name != "two")(work)
    after = ir.to_proto(work)
    assert str(after).count('op_type: "RNN"') == str(after).count('op_type: "Scan"') == 1
    feeds = Case("RNN", {}, ()).feeds()
    for chosen in (True, False):
        assert distance(run(after, {**feeds, "c": np.array(chosen)}), [layer("RNN", feeds, {})["Y_h"]]) < 1e-6


@pytest.mark.parametrize("op", OUTPUTS)
def test_goldens(op: str, golden: Golden) -> None:
    model = Case(op, {}, ("B",), (4, 2, 0)).model(outputs=("Y_h",))
    golden(f"decomposition_{op}", before=dump(ir.from_proto(model)), after=dump(ir.from_proto(decomposed(model))))
