"""Runs TensorFlow's CPU kernels over the cases in `tests/support/ordinary` and stores what they return.

    python -m tests.data.record_ordinary                # all families
    python -m tests.data.record_ordinary reductions     # some

Run from the repository's root with TensorFlow installed.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from lstm_lower.declarations import REQUIRED
from lstm_lower.opdef import REGISTRY, DType, OpDef, dtype_name
from tests.support.gradient_cases import Array
from tests.support.ordinary.case import Case, flat, save
from tests.support.ordinary.families import MODULES, cases


def record(case: Case) -> dict[str, Array]:
    """Calls the raw op; a case's results by name, numbered where they are a list."""
    op = REGISTRY[case.op]
    operands = {
        name: [tf.constant(part) for part in value] if isinstance(value, list) else tf.constant(value)
        for name, value in case.operands.items()
    }
    dtypes = {attribute.name for attribute in op.attributes if attribute.type is DType or attribute.name in op.types}
    attributes = {
        name: tf.as_dtype(dtype_name(DType(value))) if name in dtypes else value
        for name, value in case.attributes.items()
    }
    if "shape" in attributes:
        attributes["shape"] = [None if size < 0 else size for size in attributes["shape"]]
    results: Any = getattr(tf.raw_ops, case.op)(**operands, **attributes)
    by_name = results._asdict() if hasattr(results, "_asdict") else {op.outputs[0].name: results}
    return flat(
        {
            name: [part.numpy() for part in value] if isinstance(value, list) else value.numpy()
            for name, value in by_name.items()
        }
    )


def record_family(family: str) -> dict[str, dict[str, Array]]:
    """Results of a family's cases by id."""
    return {case.id: record(case) for case in cases(family) if case.recorded}


# Attributes that only ours have: Python's name for another, or that a shape has no known rank.
EXTRA = {"Squeeze": {"axis"}, "EnsureShape": {"unknown_rank"}, "PlaceholderWithDefault": {"unknown_rank"}}


def differences(op: type[OpDef]) -> Iterator[str]:
    """Where a definition differs from TensorFlow's in names, order, dtypes that are variable, or defaults."""
    theirs = op_def_registry.get(op.op_type)
    # Python's names of operands differ from those of the graph here and there.
    known = [*inspect.signature(getattr(tf.raw_ops, op.op_type)).parameters]
    for kind, ours, names in (("inputs", op.inputs, theirs.input_arg), ("outputs", op.outputs, theirs.output_arg)):
        pairs = list(zip(ours, names, strict=False))
        if len(ours) != len(names) or any(
            declared.name != (arg.name if kind == "outputs" or arg.name in known else declared.name)
            or (kind == "inputs" and declared.name not in known)
            for declared, arg in pairs
        ):
            yield f"{op.op_type}: {kind} are {[arg.name for arg in names]}, of {known}"
    counts = {arg.number_attr for arg in (*theirs.input_arg, *theirs.output_arg)}
    lists = {arg.type_list_attr for arg in (*theirs.input_arg, *theirs.output_arg)}
    ours = {declared.name: declared for declared in op.attributes}
    left_out = {*op.types, *lists}
    attributes = {
        attr.name: attr
        for attr in theirs.attr
        if attr.name in ours or (attr.name not in left_out and not attr.name.startswith("_"))
    }
    if set(ours) - EXTRA.get(op.op_type, set()) != set(attributes):
        yield f"{op.op_type}: attributes are {sorted(attributes)}"
        return
    for name, attr in attributes.items():
        declared = ours[name]
        if declared.type is DType or name in counts or attr.type == "shape":
            continue
        given = attr.HasField("default_value")
        if declared.required == given:
            yield f"{op.op_type}: {name} has {'a' if given else 'no'} default"
        elif declared.default is not REQUIRED:
            value = attr.default_value
            kind = value.WhichOneof("value")
            plain = (
                list(value.list.i or value.list.f)
                if kind == "list"
                else value.s.decode()
                if kind == "s"
                else getattr(value, str(kind))
            )
            if plain != declared.default and abs(plain - declared.default) > 1e-6 * abs(plain):
                yield f"{op.op_type}: {name} is {plain!r} by default"


def main() -> None:
    for family in sys.argv[1:] or MODULES:
        results = record_family(family)
        path = save(family, results, tf.__version__)
        sys.stdout.write(f"{family}: {len(results)} cases, {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
