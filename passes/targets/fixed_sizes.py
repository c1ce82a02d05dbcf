"""Sizes that a model leaves open, fixed."""

from __future__ import annotations

from collections.abc import Container, Mapping

import onnx_ir as ir

from lstm_lower import arguments
from lstm_lower.errors import InvalidInputError
from lstm_lower.graph.subgraphs import with_inner
from lstm_lower.graph.values import declared_shape
from lstm_lower.passes.model_pass import Pass

_SIZES = "sizes (--dim) require"


def open_sizes(model: ir.Model) -> dict[str, list[tuple[ir.Value, int]]]:
    """The open sizes of a model's inputs by name, with their places: inputs and axes.

    One without a name is called by its place: `x.2` is the size of input x along axis 2.
    """
    found: dict[str, list[tuple[ir.Value, int]]] = {}
    unnamed = []
    for value in model.graph.inputs:
        for axis, size in enumerate(declared_shape(value) or ()):
            if isinstance(size, str):
                found.setdefault(size, []).append((value, axis))
            elif size is None:
                unnamed.append((value, axis))
    for value, axis in unnamed:
        found.setdefault(f"{value.name}.{axis}", []).append((value, axis))
    return found


def name_open_sizes(model: ir.Model, names: Container[str]) -> bool:
    """Writes names of open sizes that `open_sizes` gave them into the model; whether there were any."""
    modified = False
    for name, places in open_sizes(model).items():
        for value, axis in places if name in names else ():
            dims = list((value.shape or ir.Shape([])).dims)
            modified |= dims[axis] != name
            dims[axis] = ir.SymbolicDim(name)
            value.shape = ir.Shape(dims)
    return modified


class FixedSizesPass(Pass):
    """Gives open sizes of a model's inputs, which are known by name or place, numbers."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        """Prepares.

        Raises:
            InvalidInputError: a size is not a number.
        """
        super().__init__()
        for name, size in arguments.mapping("sizes", sizes, "names to sizes").items():
            number: object = size
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise InvalidInputError(f"{_SIZES} positive integers, got {size!r} for '{name}'")
        self.sizes = dict(sizes)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fixes them wherever they are declared.

        Raises:
            InvalidInputError: no input has an open size of a name.
        """
        known = open_sizes(model)
        for name in self.sizes:
            if name not in known:
                raise InvalidInputError(f"{_SIZES} names of open sizes of inputs, {sorted(known)}, got '{name}'")
        modified = name_open_sizes(model, self.sizes)
        for graph in with_inner(model.graph):
            for value in [*graph.inputs, *graph.outputs, *(out for node in graph for out in node.outputs)]:
                modified |= self._fix(value)
        return ir.passes.PassResult(model, modified)

    def _fix(self, value: ir.Value) -> bool:
        shape = value.shape
        if shape is None:
            return False
        sizes = [
            self.sizes.get(size.value, size) if isinstance(size, ir.SymbolicDim) and size.value is not None else size
            for size in shape
        ]
        if sizes == list(shape):
            return False
        value.shape = ir.Shape(sizes)
        return True

    def ensures(self, model: ir.Model) -> None:
        """None of them is open any more.

        Raises:
            ir.passes.PostconditionError: one is.
        """
        for value in model.graph.inputs:
            for size in value.shape or ():
                if isinstance(size, ir.SymbolicDim) and size.value in self.sizes:
                    raise ir.passes.PostconditionError(f"{self.name}: '{value.name}' requires fixed sizes")
