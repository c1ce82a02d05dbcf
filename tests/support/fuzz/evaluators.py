"""The float64 reference next to onnxruntime: onnx's node tests opset by opset, and the forms of every operator."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import hypothesis
import numpy as np
import onnx
from hypothesis import Phase, given, settings
from onnx import defs, helper, numpy_helper

from lstm_lower.errors import LstmLowerError
from lstm_lower.graph.structure import STANDARD_DOMAINS
from lstm_lower.passes.randomness import random_outputs
from lstm_lower.records.model_files import load
from lstm_lower.runtime.proof.node_by_node import departure
from tests.support.examples import tried
from tests.support.fuzz import node_tests
from tests.support.fuzz.runs import run
from tests.support.fuzz.worker import Stage
from tests.support.operator_cases import FORMS, Case, cases

Array = np.ndarray[Any, Any]

# What becomes of a model; the last two are findings.
AGREE, NOT_IN_RUNTIME, RANDOM, OTHER_DOMAIN = "agree", "not in onnxruntime", "random", "another domain"
FAULT, REFUSED, DIFFERS = "faults of onnxruntime", "refused", "differ"

# The oldest opset that models are written in.
OLDEST = 7
FORMS_OF_AN_ITEM = 20
# Dtypes that numpy has by itself.
FED = {
    int(dtype) for dtype in helper.get_all_tensor_dtypes() if helper.tensor_dtype_to_np_dtype(dtype).kind in "biufcOSU"
}


_POOLS = ("AveragePool", "LpPool", "MaxPool")
# What onnxruntime is known to compute otherwise than ONNX says: operator, which of its forms, and what.
FAULTS: list[tuple[str, Callable[[Mapping[str, Any], Sequence[str]], bool], str]] = [
    ("Attention", lambda a, _: "qk_matmul_output_mode" in a, "its weights have the lowest number where -inf is added"),
    ("MaxUnpool", lambda _, operands: len(operands) > 2, "it takes indices for those of output_shape"),
    ("LSTM", lambda a, _: "clip" in a, "what the last activation is of is not clipped"),
    ("ConvTranspose", lambda a, _: _same(a), "SAME makes less where strides are larger than windows"),
    *((op, lambda a, _: _same(a) and "dilations" in a, "SAME knows no dilations") for op in _POOLS),
]


def _same(attributes: Mapping[str, Any]) -> bool:
    return bytes(attributes.get("auto_pad", b"")).startswith(b"SAME")


def fault_of(node: onnx.NodeProto) -> str:
    """What onnxruntime is known to compute otherwise in nodes like this one; nothing where it is right."""
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    found = [what for op, has, what in FAULTS if op == node.op_type and has(given, node.input)]
    return f"{node.op_type}: {found[0]}" if found else ""


def opsets_of(model: onnx.ModelProto) -> list[int]:
    """The opset of a model of one node, and the others in which another version of its operator takes the same node."""
    own = max((entry.version for entry in model.opset_import if not entry.domain), default=0)
    if len(model.graph.node) != 1 or own == 0 or model.graph.node[0].domain or model.functions:
        return [own]
    versions = _versions().get(model.graph.node[0].op_type, ())
    return [own, *sorted(version for version in versions if OLDEST <= version != own)]


@functools.cache
def _versions() -> dict[str, set[int]]:
    """The opsets in which each operator has changed."""
    found: dict[str, set[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain:
            found.setdefault(schema.name, set()).add(schema.since_version)
    return found


def at_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto | None:
    """A model as one of another opset; `None` where it is no valid one."""
    work = onnx.ModelProto()
    work.CopyFrom(model)
    for entry in work.opset_import:
        if not entry.domain and opset:
            entry.version = opset
    if opset == max((entry.version for entry in model.opset_import if not entry.domain), default=0):
        return work
    try:
        onnx.checker.check_model(work, full_check=True)
    except Exception:  # noqa: BLE001 (of several classes)
        return None
    return work


def feedable(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model that Python can feed and read: what numpy has no arrays for are constants, or cast to floats."""
    work, fed = onnx.ModelProto(), {}
    work.CopyFrom(model)
    graph = work.graph
    for value in list(graph.input):
        array = feeds[value.name]
        tensor = array if isinstance(array, onnx.TensorProto) else None
        if tensor is None and not (isinstance(array, np.ndarray) and array.dtype.kind == "V"):
            fed[value.name] = array
        elif tensor is not None and tensor.data_type in FED:
            fed[value.name] = numpy_helper.to_array(tensor)
        else:
            graph.input.remove(value)
            constant = graph.initializer.add()
            constant.CopyFrom(numpy_helper.from_array(array) if tensor is None else tensor)
            constant.name = value.name
    for value in graph.output:
        if value.type.HasField("tensor_type") and value.type.tensor_type.elem_type not in FED:
            name, value.name = value.name, f"{value.name}/float"
            graph.node.append(helper.make_node("Cast", [name], [value.name], to=onnx.TensorProto.FLOAT))
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return work, fed


def outcome(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> tuple[str, str]:
    """What becomes of a model, and why."""
    model, feeds = feedable(model, feeds)
    try:
        results = dict(zip([value.name for value in model.graph.output], run(model, feeds), strict=True))
    except Exception as error:  # noqa: BLE001 (onnxruntime's exceptions have no common base)
        return NOT_IN_RUNTIME, str(error)
    if any(node.domain not in STANDARD_DOMAINS for node in model.graph.node):
        return OTHER_DOMAIN, ""
    try:
        loaded = load(model)
        if random_outputs(loaded):
            return RANDOM, ""
        found = departure(loaded, feeds, results, moved=False)
    except LstmLowerError as error:
        return REFUSED, str(error)
    if found is None:
        return AGREE, ""
    faults = [text for node in model.graph.node if (text := fault_of(node))]
    return (FAULT, faults[0]) if faults else (DIFFERS, f"{found[0]}: {found[1]}")


def node_test(name: str, *modules: str) -> Iterator[tuple[str, str, str]]:
    """A node test of onnx's at each opset at which it is valid: where, what becomes of it, and why."""
    _, model, feeds = next(node_tests.forms(name, *modules))
    for opset in opsets_of(model):
        again = at_opset(model, opset)
        if again is not None:
            yield f"{name} at opset {opset}", *outcome(again, feeds)


def forms_of(op: str, seed: int, count: int) -> Iterator[tuple[str, str, str]]:
    """Some forms of an operator at each opset at which they are valid, up to one that differs."""
    seen: list[tuple[str, str, str]] = []

    @hypothesis.seed(seed)
    @settings(tried(count), database=None, derandomize=False, phases=[Phase.generate])
    @given(cases(op))
    def look(case: Case) -> None:
        for opset in opsets_of(case.model):
            again = at_opset(case.model, opset)
            if again is not None:
                text = f"{helper.printable_node(again.graph.node[-1])} at opset {opset} of {_shapes(case.feeds)}"
                seen.append((text, *outcome(again, case.feeds)))
                assert seen[-1][1] not in (REFUSED, DIFFERS)

    with contextlib.suppress(AssertionError):
        look()
    found = [entry for entry in seen if entry[1] in (REFUSED, DIFFERS)]
    yield from (entry for entry in seen if entry not in found)
    yield from found[-1:]


def _shapes(feeds: Mapping[str, Array]) -> str:
    return ", ".join(f"{array.dtype}{list(array.shape)}" for array in feeds.values())


def reference(item: Any, settings: dict[str, Any], known: list[str], stage: Stage) -> dict[str, Any]:
    """One item of the campaign: a node test by name, or an operator and a seed."""
    stage("reference")
    name, seed = item
    entries = list(node_test(name) if seed is None else forms_of(name, seed, FORMS_OF_AN_ITEM))
    counts = collections.Counter(f"{'node tests' if seed is None else 'forms'}: {kind}" for _, kind, _ in entries)
    counts.update(f"fault of onnxruntime: {why}" for _, kind, why in entries if kind == FAULT)
    findings = [
        {"case": where, "kind": f"{kind}: {name}", "detail": why}
        for where, kind, why in entries
        if kind in (REFUSED, DIFFERS)
    ]
    return {"verdict": "failed" if findings else "passed", "counts": counts, "findings": findings}


def items(seed: int, match: str) -> Iterator[tuple[str, int | None]]:
    """All node tests, then forms of each operator, again and again with other seeds."""
    yield from ((name, None) for name in node_tests.names() if match in name)
    for number in itertools.count(seed):
        yield from ((op, number) for op in FORMS if match in op)
