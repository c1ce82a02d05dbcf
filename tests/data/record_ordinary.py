"""Runs TensorFlow's CPU kernels over the cases in `tests/support/ordinary` and stores what they return.

    python -m tests.data.record_ordinary                # all families
    python -m tests.data.record_ordinary reductions     # some

Run from the repository's root with TensorFlow installed.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tensorflow as tf

from lstm_lower.dtypes import DTYPES
from lstm_lower.opdef import REGISTRY, DType, dtype_name
from tests.support.gradient_cases import Array
from tests.support.ordinary.case import Case, Results, flat, save
from tests.support.ordinary.families import MODULES, cases


def record(case: Case) -> dict[str, Array]:
    """A case's results by name, numbered where they are a list."""
    if case.expected is not None:
        return flat(case.expected)
    found = called(case) if case.taken else stand_in(case)
    return flat(found)


def called(case: Case) -> Results:
    """Calls the raw op."""
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
    return {
        name: [part.numpy() for part in value] if isinstance(value, list) else value.numpy()
        for name, value in by_name.items()
    }


# Ops without a kernel for processors, or that only graphs hold, and those that compute the same.
SAME = {
    "AccumulateNV2": "AddN",
    "BatchMatrixBandPart": "MatrixBandPart",
    "BatchMatrixDiag": "MatrixDiag",
    "BatchMatrixDiagPart": "MatrixDiagPart",
    "BatchMatrixSetDiag": "MatrixSetDiag",
    **dict.fromkeys(("Copy", "CopyHost", "DebugIdentity", "DebugIdentityV2", "DebugIdentityV3"), "Identity"),
    **dict.fromkeys(("PlaceholderWithDefault", "RefIdentity"), "Identity"),
}

# Dtypes that a kernel does not take, or in which it is wrong, and those to compute in instead.
WIDER = {"float16": "float32", "float32": "float64", "int8": "int64", "int16": "int64"}
WIDER |= {"uint16": "int64", "uint32": "int64", "uint64": "int64"}

FORMATS = {"NCHW": ("NHWC", (0, 2, 3, 1)), "NCDHW": ("NDHWC", (0, 2, 3, 4, 1))}


def stand_in(case: Case) -> Results:
    """The results of a call that TensorFlow's kernels do not take, from others that compute the same."""
    operands, attributes = dict(case.operands), dict(case.attributes)
    if case.op in SAME:
        return _renamed(case, SAME[case.op], operands, {})
    if case.op == "TopK":
        return _renamed(case, "TopKV2", operands | {"k": np.int32(attributes.pop("k"))}, attributes)
    if case.op.startswith("QuantizeAndDequantize"):
        return {"output": _by_channels(case)}
    if "fft_length" in operands:
        return called(dataclasses.replace(case, operands=operands | {"input": _filled(case)}))
    if attributes.get("data_format") in FORMATS:
        return _channels_last(case)
    return _wider(case)


def _renamed(case: Case, op: str, operands: dict[str, Any], attributes: dict[str, Any]) -> Results:
    (*found,) = called(dataclasses.replace(case, op=op, operands=operands, attributes=attributes)).values()
    return dict(zip([output.name for output in REGISTRY[case.op].outputs], found, strict=True))


def _by_channels(case: Case) -> Array:
    """Each channel with ends of its own."""
    axis, parts = case.attributes["axis"], []
    low, high = (np.asarray(case.operands[f"input_{end}"]) for end in ("min", "max"))
    for channel in range(len(low)):
        part = np.take(np.asarray(case.operands["input"]), [channel], axis)
        given = {"input": part, "input_min": low[channel], "input_max": high[channel]}
        attributes = {**case.attributes, "axis": -1}
        (found,) = called(dataclasses.replace(case, operands=given, attributes=attributes)).values()
        parts.append(np.asarray(found))
    return np.concatenate(parts, axis)


def _filled(case: Case) -> Array:
    """The operand of a transform, with zeros up to its length: TensorFlow fills up in front of its op."""
    x, lengths = np.asarray(case.operands["input"]), [int(n) for n in np.asarray(case.operands["fft_length"])]
    if case.op.startswith("I"):
        lengths[-1] = lengths[-1] // 2 + 1
    missing = [max(length - size, 0) for length, size in zip(lengths, x.shape[-len(lengths) :], strict=True)]
    return np.pad(x, [(0, 0)] * (x.ndim - len(lengths)) + [(0, count) for count in missing])


def _channels_last(case: Case) -> Results:
    """With the channels last; and one stride after the other where a kernel takes equal ones alone."""
    layout, order = FORMATS[case.attributes["data_format"]]
    attributes = {**case.attributes, "data_format": layout}
    operands = dict(case.operands)
    for name in ("strides", "dilations", "ksize"):
        for given in (attributes, operands):
            if name in given:
                vector = np.asarray(given[name])[list(order)]
                given[name] = vector if given is operands else vector.tolist()
    if padding := attributes.get("explicit_paddings"):
        attributes["explicit_paddings"] = np.reshape(padding, (-1, 2))[list(order)].ravel().tolist()
    for name in ("input", "value"):
        if name in operands:
            operands[name] = np.transpose(np.asarray(operands[name]), order)
    found = called(dataclasses.replace(case, operands=operands, attributes=attributes))
    return {name: np.transpose(np.asarray(value), np.argsort(order)) for name, value in found.items()}


def _wider(case: Case) -> Results:
    """In a wider dtype, results rounded to the narrow one."""
    narrow = next(value.dtype for value in map(np.asarray, case.operands.values()) if value.dtype.name in WIDER)
    if "T" in case.attributes:
        narrow = DType(case.attributes["T"]).numpy()
    wide = np.dtype(WIDER[narrow.name])
    operands = {k: v.astype(wide) if (v := np.asarray(x)).dtype == narrow else v for k, x in case.operands.items()}
    attributes = {k: int(DTYPES[wide.name]) if k == "T" else value for k, value in case.attributes.items()}
    found = called(dataclasses.replace(case, operands=operands, attributes=attributes))
    return {k: v.astype(narrow) if (v := np.asarray(x)).dtype == wide else v for k, x in found.items()}


def record_family(family: str) -> dict[str, dict[str, Array]]:
    """Results of a family's cases by id."""
    return {case.id: record(case) for case in cases(family) if case.recorded}


def main() -> None:
    for family in sys.argv[1:] or MODULES:
        results = record_family(family)
        path = save(family, results, tf.__version__)
        sys.stdout.write(f"{family}: {len(results)} cases, {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
