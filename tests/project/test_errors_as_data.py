"""Errors say in data what their texts say, and arrive in other processes as they were sent."""

from __future__ import annotations

import contextlib
import copy
import pickle
from typing import Any

import numpy as np
import onnx.parser
import pytest

import lstm_lower as ll
from lstm_lower import errors
from lstm_lower.errors import InvalidInputError, LstmLowerError, UnsupportedOpError, requires
from lstm_lower.extras import MissingPackageError
from lstm_lower.layouts import LayoutError
from lstm_lower.ort_training.checkpoint_state import UnknownNameError
from lstm_lower.passes.model_pass import FaultyPassError
from lstm_lower.runtime.measuring.worker import NotMeasured, WorkerError
from lstm_lower.tensorflow.model import OpenRankError
from lstm_lower.tensorflow.original import TensorFlowRefusedError

# What constructors take that take other things than a text.
ARGUMENTS: dict[type[LstmLowerError], tuple[Any, ...]] = {
    errors.MisfitError: ("x", "rank 2", [3]),
    LayoutError: ("rnn_mode", "one of lstm, gru", "'x'"),
    OpenRankError: (["x", "y"], InvalidInputError("why")),
    TensorFlowRefusedError: ("model.pb", "it is none"),
    WorkerError: (NotMeasured("MemoryError", "no more"),),
}
with contextlib.suppress(ImportError):  # PyTorch may be absent
    from lstm_lower.torch.aten.sizes import OpenSizeError

    ARGUMENTS[OpenSizeError] = ((), "why")


def kinds(kind: type[LstmLowerError] = LstmLowerError) -> list[type[LstmLowerError]]:
    return [kind, *(further for below in kind.__subclasses__() for further in kinds(below))]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_errors_are_sent_to_other_processes(kind: type[LstmLowerError]) -> None:
    arguments = ARGUMENTS.get(kind, (requires("Tanh", "t", "x", "float32", "int8"),))
    error = kind(*arguments)
    error.add_note("as well")
    for again in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert type(again) is kind
        assert (str(again), again.args) == (str(error), error.args)
        assert vars(again) == vars(error)
    assert {MissingPackageError, UnknownNameError, FaultyPassError, *ARGUMENTS} <= set(kinds())


def parse(text: str) -> Any:
    imports = '<ir_version: 8, opset_import: ["": 18, "other": 1]>'
    return onnx.parser.parse_model(f"{imports} g (float[2] x) => (float[2] y) {{ {text} }}")


def test_errors_name_nodes_ops_and_operands() -> None:
    model = parse("a = other.First (x) b = other.First (a) y = other.Second (b)")
    for node, name in zip(model.graph.node, "pqr", strict=True):
        node.name = name
    with pytest.raises(UnsupportedOpError) as raised:
        ll.lower(model)
    assert (raised.value.nodes, raised.value.op, raised.value.operand) == (("p", "q", "r"), None, None)
    with pytest.raises(InvalidInputError) as raised_input:
        ll.Session(parse("y = Tanh (x)")).run({"x": np.zeros(3, np.float32)})
    assert raised_input.value.operand == "x"
    with pytest.raises(InvalidInputError) as raised_eager:
        ll.raw_ops.BiasAddGrad(out_backprop=np.zeros(3, np.float32))
    assert (raised_eager.value.nodes, raised_eager.value.op) == ((), "BiasAddGrad")
    assert raised_eager.value.operand is not None
