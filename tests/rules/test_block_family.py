"""The block family end to end: eager, lowered, and run, against TensorFlow's recorded results and the oracles."""

from __future__ import annotations

import itertools
import typing
import warnings

import numpy as np
import onnx
import onnx.reference
import onnx_ir as ir
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.passes.loops.forward import ForwardScansPass
from lstm_lower.passes.opset.installed import newest_opset
from lstm_lower.runtime.proof.oracles.registry import ORACLES
from tests.support.examples import TIMES
from tests.support.models import outputs_of, single_node_model, split_kwargs
from tests.support.op_inputs import OPS, valid_inputs
from tests.support.tensorflow_cases import CASES, Case, recording, relative_error

SEQUENCES = [op for op in OPS if op.startswith("BlockLSTM")]
LEVELS = (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)


def eager(op: str, **kwargs: typing.Any) -> dict[str, np.ndarray]:
    return getattr(ll.raw_ops, op)(**kwargs)._asdict()


def run(model: onnx.ModelProto, feeds: dict, level: ort.GraphOptimizationLevel) -> dict[str, np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    return ll.Session(model, session_options=options).run(feeds)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_no_worse_than_tensorflow(case: Case) -> None:
    """Float32: at most TensorFlow's error against the oracle plus 1e-6, and 1e-5; half: at most TensorFlow's."""
    operands = case.operands()
    expected = ORACLES[case.op](**operands, **case.attributes)
    ours = eager(case.op, **operands, **case.attributes)
    for name, tensorflow in recording()[case.id].items():
        assert ours[name].dtype == np.dtype(case.dtype)
        assert ours[name].shape == expected[name].shape
        theirs = relative_error(tensorflow, case.defined(name, expected[name]))
        error = relative_error(ours[name], expected[name])
        if case.dtype == "float32":
            assert error <= min(theirs + 1e-6, 1e-5), name
        else:
            # Half an ulp of the largest magnitude is what rounding an exact result to half may cost.
            assert error <= max(theirs, 2.0**-11), name


OPSETS = [13, 15, 17, 18, 21, newest_opset()]
# Any two of an op, an opset and a choice of sizes meet; where more examples are asked for, any three.
OPSET_CASES = [
    pytest.param(op, opset, symbolic, id=f"{'symbolic' if symbolic else 'static'}-{opset}-{op}")
    for (i, op), (j, opset), symbolic in itertools.product(enumerate(OPS), enumerate(OPSETS), (False, True))
    if TIMES > 1 or (i + j + symbolic) % 2 == 0
]


@pytest.mark.slow
@pytest.mark.parametrize(("op", "opset", "symbolic"), OPSET_CASES)
def test_every_opset(op: str, opset: int, symbolic: bool) -> None:
    kwargs = valid_inputs(op, T=3, B=2, I=3, H=2, steps=2) if op in SEQUENCES else valid_inputs(op)
    feeds, _ = split_kwargs(op, kwargs)
    model = ll.lower(single_node_model(op, kwargs, opset=opset, symbolic=symbolic), verify_each=True)
    assert [(o.domain, o.version) for o in model.opset_import] == [("", opset)]
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    expected = ORACLES[op](**kwargs)
    runs = [run(model, feeds, level) for level in LEVELS]
    runs.append(dict(zip([o.name for o in model.graph.output], reference(model, feeds), strict=True)))
    for results in runs:
        for name, value in outputs_of(op, results).items():
            assert relative_error(value, expected[name]) < 1e-5, name


def reference(model: onnx.ModelProto, feeds: dict) -> list[np.ndarray]:
    """In onnx's reference evaluator, which implements forward Scans only."""
    forward = ir.to_proto(ForwardScansPass()(ir.from_proto(model)).model)
    with warnings.catch_warnings():
        # onnx.reference itself meets numpy's deprecations.
        warnings.simplefilter("ignore")
        return onnx.reference.ReferenceEvaluator(forward).run(None, feeds)


@pytest.mark.parametrize("op", SEQUENCES)
@pytest.mark.parametrize("steps", [0, 1, 3, 4])
@pytest.mark.parametrize("how", ["input", "constant", "symbolic"])
def test_seq_len_max(op: str, steps: int, how: str) -> None:
    """As a constant, as an input of a static graph, and as one of a graph without known sizes."""
    kwargs = valid_inputs(op, steps=steps, use_peephole=True)
    constants = ("seq_len_max",) if how == "constant" else ()
    model = ll.lower(single_node_model(op, kwargs, symbolic=how == "symbolic", constants=constants))
    feeds, _ = split_kwargs(op, kwargs)
    results = run(model, {name: v for name, v in feeds.items() if name not in constants}, LEVELS[1])
    for name, value in ORACLES[op](**kwargs).items():
        assert relative_error(results[f"{name}_out"], value) < 1e-5, name


@pytest.mark.slow
@pytest.mark.parametrize("op", SEQUENCES)
def test_steps_past_seq_len_max_are_not_read(op: str) -> None:
    kwargs = valid_inputs(op, steps=2)
    junk = {
        name: np.concatenate([value[:2], np.full_like(value[2:], np.nan)])
        for name, value in kwargs.items()
        if isinstance(value, np.ndarray) and value.ndim == 3
    }
    clean, dirty = eager(op, **kwargs), eager(op, **{**kwargs, **junk})
    for name, value in clean.items():
        np.testing.assert_array_equal(value, dirty[name], err_msg=name)


@pytest.mark.parametrize(("seq_len_max", "clamped"), [(-1, 0), (9, 4), (2**40, 4)])
def test_seq_len_max_is_clamped_at_run_time(seq_len_max: int, clamped: int) -> None:
    """In onnxruntime alone, where no session of ours looks at the feeds."""
    kwargs = valid_inputs("BlockLSTMGrad")
    model = ll.lower(single_node_model("BlockLSTMGrad", kwargs))
    feeds, _ = split_kwargs("BlockLSTMGrad", kwargs)
    session = ort.InferenceSession(model.SerializeToString())
    results = session.run(["w_grad_out"], {**feeds, "seq_len_max": np.array(seq_len_max)})
    expected = ORACLES["BlockLSTMGrad"](**{**kwargs, "seq_len_max": np.array(clamped)})
    assert relative_error(results[0], expected["w_grad"]) < 1e-5


@pytest.mark.parametrize("op", [op for op in OPS if "Grad" not in op and not op.startswith("GRU")])
@pytest.mark.parametrize("cell_clip", [0.0, -1.0, float("nan"), 0.05, float("inf")])
def test_clip(op: str, cell_clip: float) -> None:
    kwargs = {**valid_inputs(op), "cell_clip": cell_clip}
    expected = ORACLES[op](**kwargs)
    if cell_clip == 0.05:
        assert np.abs(expected["cs"]).max() == np.float32(0.05)
    for name, value in eager(op, **kwargs).items():
        assert relative_error(value, expected[name]) < 1e-6, name


@pytest.mark.parametrize("op", [op for op in OPS if "Grad" not in op and not op.startswith("GRU")])
@pytest.mark.parametrize("level", LEVELS, ids=["disabled", "default"])
def test_clip_keeps_nan(op: str, level: ort.GraphOptimizationLevel) -> None:
    kwargs = valid_inputs(op, cell_clip=1.0)
    kwargs["cs_prev"] = np.full_like(kwargs["cs_prev"], np.nan)
    feeds, _ = split_kwargs(op, kwargs)
    results = run(ll.lower(single_node_model(op, kwargs)), feeds, level)
    assert np.isnan(results["cs_out"][..., :1, :]).all()


@pytest.mark.parametrize("op", [op for op in OPS if not op.startswith("GRU")])
def test_peepholes_are_not_read_when_off(op: str) -> None:
    kwargs = valid_inputs(op, use_peephole=False)
    poisoned = {**kwargs, **{name: np.full_like(kwargs[name], np.nan) for name in ("wci", "wcf", "wco")}}
    for name, value in eager(op, **poisoned).items():
        assert np.isfinite(value).all(), name
        if name in ("wci_grad", "wcf_grad", "wco_grad"):
            assert value.shape == kwargs["wci"].shape
            assert not value.any()


def test_eager_compiles_once_for_all_sizes() -> None:
    from lstm_lower.runtime import eager as eager_module

    eager("LSTMBlockCell", **valid_inputs("LSTMBlockCell", cell_clip=0.625))
    before = eager_module._session.cache_info().misses
    for batch in (1, 3, 7):
        eager("LSTMBlockCell", **valid_inputs("LSTMBlockCell", B=batch, H=batch, cell_clip=0.625))
    assert eager_module._session.cache_info().misses == before
    eager("LSTMBlockCell", **valid_inputs("LSTMBlockCell", cell_clip=0.5))
    assert eager_module._session.cache_info().misses == before + 1


@pytest.mark.parametrize("domain", ["tf", "ai.onnx.converters.tensorflow"])
@pytest.mark.parametrize("op", OPS)
def test_both_domains_and_lowering_twice(op: str, domain: str) -> None:
    once = ll.lower(single_node_model(op, valid_inputs(op), domain=domain))
    assert ll.lower(once).SerializeToString(deterministic=True) == once.SerializeToString(deterministic=True)


def test_half_accumulates_in_float32() -> None:
    """4096 ones: TensorFlow's half kernel gives 2048."""
    kwargs = valid_inputs("BlockLSTMGrad", T=1, B=4096, I=1, H=1, dtype=np.float16)
    one, half = np.ones((1, 4096, 1), np.float16), np.full((1, 4096, 1), 0.5, np.float16)
    # With i = 1/2, ci = 0, f = o = 1/2 and co = 0 the gradient of the cell input is cs_grad / 2.
    zero = np.zeros_like(one)
    kwargs |= {"i": half, "ci": zero, "f": half, "o": half, "co": zero, "cs_grad": one * 2, "h_grad": zero}
    out = eager("BlockLSTMGrad", **{**kwargs, "use_peephole": False})
    assert out["b_grad"][1] == 4096


def test_equal_nodes_share_a_template_but_not_their_contracts() -> None:
    """Two cells of one shape, each with inputs of its own: both are computed, and both check their feeds."""
    kwargs = valid_inputs("GRUBlockCell")
    both, other_model = (
        onnx.compose.add_prefix(single_node_model("GRUBlockCell", kwargs, symbolic=True), prefix)
        for prefix in ("a/", "b/")
    )
    for field in ("node", "input", "output"):
        getattr(both.graph, field).extend(getattr(other_model.graph, field))
    session = ll.Session(both)
    other = valid_inputs("GRUBlockCell", seed=1)
    feeds = {f"a/{name}": value for name, value in kwargs.items()} | {f"b/{n}": v for n, v in other.items()}
    results = session.run(feeds)
    for prefix, given in (("a", kwargs), ("b", other)):
        for name, value in ORACLES["GRUBlockCell"](**given).items():
            assert relative_error(results[f"{prefix}/{name}_out"], value) < 1e-6
    for prefix in "ab":
        with pytest.raises(ll.InvalidInputError, match=f"{prefix}/node"):
            session.run({**feeds, f"{prefix}/w_c": np.zeros((6, 4), np.float32)})
