"""The model that blocks work on, and names for what they add to it."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NoReturn

import onnx
from onnx import helper

from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.ops.ort_elementwise import MICROSOFT


class ModelAccessor:
    """A model under construction.

    Attributes:
        model: the model, which blocks edit in place.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self._numbers = itertools.count(1)

    def fresh(self, token: str) -> str:
        """A name that nothing in the model has."""
        graph = self.model.graph
        taken = {value.name for value in (*graph.input, *graph.initializer)}
        taken.update(name for node in graph.node for name in (*node.output, node.name))
        return next(name for number in self._numbers if (name := f"onnx::{token}::{number}") not in taken)


_current: ContextVar[ModelAccessor | None] = ContextVar("model of onnxblocks", default=None)


def current() -> ModelAccessor:
    """The model that blocks work on now.

    Raises:
        InvalidInputError: there is none.
    """
    accessor = _current.get()
    if accessor is None:
        raise InvalidInputError(
            "a block requires a model to be called on, got none; call it inside `with onnxblock.base(model):`"
        )
    return accessor


@contextlib.contextmanager
def _working_on(model: onnx.ModelProto) -> Iterator[ModelAccessor]:
    if _current.get() is not None:
        raise InvalidInputError("blocks work on one model at a time, got a second; end the `with` of the first one")
    accessor = ModelAccessor(model)
    token = _current.set(accessor)
    try:
        yield accessor
    finally:
        _current.reset(token)


@contextlib.contextmanager
def base(model: onnx.ModelProto, model_path: str | None = None) -> Iterator[ModelAccessor]:  # noqa: ARG001
    """Lets blocks work on a copy of a model inside the `with`.

    Args:
        model: the model.
        model_path: not read; models of any size are held in memory.
    """
    if not isinstance(model, onnx.ModelProto):
        raise InvalidInputError(f"onnxblock.base requires a ModelProto, got {type(model).__name__}")
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    with _working_on(copied) as accessor:
        yield accessor


@contextlib.contextmanager
def empty_base(opset_version: int | None = None) -> Iterator[ModelAccessor]:
    """Lets blocks work on an empty model inside the `with`.

    Args:
        opset_version: of `ai.onnx`; `None` for the newest that onnx knows.
    """
    model = onnx.ModelProto(ir_version=onnx.IR_VERSION, producer_name="lstm-lower")
    model.graph.name = "graph"
    version = opset_version or onnx.defs.onnx_opset_version()
    model.opset_import.extend([helper.make_opsetid(MICROSOFT, 1), helper.make_opsetid("", version)])
    with _working_on(model) as accessor:
        yield accessor


def custom_op_library(custom_op_library_path: str | os.PathLike[str]) -> NoReturn:
    """Refused.

    Raises:
        UnsupportedOpError: always.
    """
    raise UnsupportedOpError(
        f"custom_op_library is not supported, got {os.fspath(custom_op_library_path)!r}: kernels in a library "
        "have no gradients; docs/adding-an-op.md says how to define an op and its formula yourself"
    )


def add_node(op_type: str, inputs: list[str], token: str, outputs: int = 1, domain: str = "", **attributes: Any) -> str:
    """Adds a node to the current model and returns the name of its first output."""
    accessor = current()
    names = [accessor.fresh(token), *(accessor.fresh(f"{token}.{number}") for number in range(1, outputs))]
    label = accessor.fresh(op_type)
    node = helper.make_node(op_type, inputs, names, label, domain=domain, **attributes)
    accessor.model.graph.node.append(node)
    return names[0]
