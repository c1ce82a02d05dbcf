"""Lists that a rule tells: an element so many times, and numbers that follow each other."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.tensorflow.element_lists import TensorList, row_of
from lstm_lower.tensorflow.values import Value


@dataclasses.dataclass(eq=False)
class Repeated(TensorList):
    """A list of one element, so many times."""

    count: Expr
    element: Value

    def length(self) -> Expr:
        return self.count

    def rows(self) -> Expr:
        b = self.count.builder
        row, sizes = row_of(self.element), self.element.sizes()
        target: Expr = b.concat([self.count.reshape(1), sizes], 0)
        return b.op(std.Expand, row, target)

    def get(self, index: Expr) -> Value:  # noqa: ARG002
        return self.element


@dataclasses.dataclass(eq=False)
class Numbers(TensorList):
    """A list of integers, `start + step * place`."""

    count: Expr
    start: Expr
    step: int
    dtype: ir.DataType

    def length(self) -> Expr:
        return self.count

    def rows(self) -> Expr:
        b = self.count.builder
        places = up_to(b, self.count)
        return (self.start + places * self.step).cast(self.dtype)

    def get(self, index: Expr) -> Value:
        return (self.start + index * self.step).cast(self.dtype)
