"""Composite ops, one call at a time: TensorFlow's `tf.raw_ops` signatures without TensorFlow.

Arguments are keyword-only, with TensorFlow's names; arrays in, a NamedTuple of numpy arrays out (one array where the op
has a single output). Each op is lowered once per attributes and dtypes and runs in onnxruntime on the CPU.

A function is made of its op's definition when it is asked for, so that the ops of other packages are here, too. Where
several domains have an op of one name, ours is here; `getattr(raw_ops, "com.example.Leaky")` is one of another domain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lstm_lower.passes.rules.registry import lowerable, lowerable_as
from lstm_lower.runtime import eager


def __getattr__(name: str) -> Callable[..., Any]:
    op = lowerable_as(name)
    if op is None:
        raise AttributeError(f"module '{__name__}' has no op {name!r}; `lstm-lower ops` lists those there are")
    return eager.function(op)


def __dir__() -> list[str]:
    return sorted({op.op_type for op in lowerable()})
