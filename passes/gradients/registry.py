"""The registry of differentiation rules: a vector-Jacobian product per operator, as a formula."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower import plugins
from lstm_lower.dtypes import is_integer
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.facts import Facts
from lstm_lower.passes.formulas.kernels import widened
from lstm_lower.passes.formulas.rows import reshape_to

# Sums in these dtypes are accumulated in float32.
_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@dataclasses.dataclass(frozen=True)
class Cotangents:
    """What flows back into the outputs of a node, and where it is to flow on.

    Attributes:
        outputs: the node's outputs.
        given: the gradient of each of them; `None` where nothing flows.
        active: the values that gradients are wanted of.
        wanted: whether the gradient of each operand is.
        flow: lets a gradient flow into a value from outside the node; for rules of operators that hold graphs.
    """

    outputs: Sequence[Expr]
    given: Sequence[Expr | None]
    active: AbstractSet[ir.Value]
    wanted: Sequence[bool]
    flow: Callable[[ir.Value, Expr], None]

    def __getitem__(self, index: int) -> Expr:
        """The gradient of an output; zeros where nothing flows."""
        gradient, output = self.given[index], self.outputs[index]
        if gradient is not None:
            return gradient
        if not is_integer(output.dtype):
            return output.builder.zeros_like(output)
        # What the integers stand for is of the dtype that gradients of others have.
        dtype = next(x.dtype for x in self.given if x is not None)
        return output.builder.op(std.ConstantOfShape, output.sizes(), value=ir.Tensor(np.zeros(1, dtype.numpy())))

    def __len__(self) -> int:
        return len(self.given)

    def needs(self, index: int) -> bool:
        """Whether the gradient of an operand is wanted."""
        return index < len(self.wanted) and self.wanted[index]


# What a rule returns: the gradient of the first operand, or that of each, `None` where nothing flows; further operands
# count as `None`. Of elementwise operators it may have the broadcast shape: it is summed to the operand's.
Gradients = Expr | Sequence[Expr | None]
# It gets the node's view, a builder of what computes gradients, and what flows back.
Rule = Callable[[Any, Builder, Cotangents], Gradients]

differentiates: std.Facet[Rule] = std.Facet("gradient")


def rule_of(kind: type[std.Standard]) -> Rule | None:
    """The rule of an operator: ours, or that of an installed package or a plugin."""
    _load()
    return differentiates.of(kind)


@functools.cache
def _load() -> None:
    plugins.load_package("lstm_lower.passes.gradients.rules")
    plugins.load_installed()


def stops(*views: type[std.Standard]) -> None:
    """Registers operators through which no gradient flows: their results are constant wherever they are smooth.

    Of a kind of operators those that have a rule of their own are left out.
    """
    _FLAT.update(views)


def is_flat(view: std.Standard | None) -> bool:
    """Whether no gradient flows through a node."""
    if isinstance(view, std.Identity):
        return view.stops
    return view is not None and rule_of(type(view)) is None and not _FLAT.isdisjoint(type(view).__mro__)


def flat() -> tuple[type[std.Standard], ...]:
    """The operators through which no gradient flows, and kinds of them."""
    _load()
    return tuple(_FLAT)


_FLAT: set[type[std.Standard]] = set()


def has_rule(node: ir.Node, facts: Facts) -> bool:
    """Whether a node can be differentiated as it stands."""
    view = facts.view(node)
    return view is not None and (rule_of(type(view)) is not None or is_flat(view))


def again(op: std.Standard, b: Builder, operands: Sequence[Expr | ir.Value | None], **changed: Any) -> Expr:
    """The first output of the same operator on other operands; `changed` attributes replace its own."""
    return b.wrap(b.again(op.node, operands, **changed).outputs[0])


def demanded_output(op: std.Standard, b: Builder, index: int) -> Expr:
    """An output that may be left out; then the node makes it from now on."""
    node = op.node
    if len(node.outputs) <= index:
        node.resize_outputs(index + 1)
    for value in node.outputs:
        value.name = value.name or ""
    value = node.outputs[index]
    if not value.name:
        value.name = b.names.fresh(f"{node.name or node.op_type}:{index}")
        b.facts.forget(value)
        b.declare(value)
    return b.wrap(value)


def summed(x: Expr, axes: Sequence[int], *, keepdims: bool = False) -> Expr:
    """A sum over axes, of halves accumulated in float32."""
    if not axes:
        return x
    return widened(x).sum(list(axes), keepdims=keepdims).cast(x.dtype)


def shape_of(x: Expr) -> Expr:
    """The sizes, an int64 vector; a constant where all are known."""
    shape = x.shape
    if shape is not None and all(isinstance(dim, int) for dim in shape):
        return x.builder.ints(*[dim for dim in shape if isinstance(dim, int)])
    return x.sizes()


def reshaped_like(x: Expr, like: Expr) -> Expr:
    """The same elements in the shape of another value."""
    if x.builder.facts.same_shape(x.value, like.value):
        return x
    return in_shape_of(reshape_to(x, shape_of(like)), like)


def expanded_like(x: Expr, like: Expr) -> Expr:
    """Broadcast to the shape of another value."""
    if x.builder.facts.same_shape(x.value, like.value):
        return x
    return in_shape_of(x.builder.op(std.Expand, x, shape_of(like)), like)


def unbroadcast(gradient: Expr, operand: Expr) -> Expr:
    """The sum over what an operand was repeated along, in the operand's shape.

    Where it shows only at run time which axes these are, so it is found out.
    """
    if gradient.builder.facts.same_shape(gradient.value, operand.value):
        return gradient
    whole, own = gradient.shape, operand.shape
    if whole is None or own is None:
        return _unbroadcast_at_run_time(gradient, operand)
    new = len(whole) - len(own)
    pairs = list(zip(whole[new:], own, strict=True))
    repeated = [axis for axis, (large, small) in enumerate(pairs) if small == 1 and large != 1]
    unknown = [1 for large, small in pairs if large != small and not isinstance(small, int)]
    if unknown:
        return _unbroadcast_at_run_time(gradient, operand)
    result = summed(gradient, range(new)) if new else gradient
    return in_shape_of(summed(result, repeated, keepdims=True), operand)


def _unbroadcast_at_run_time(gradient: Expr, operand: Expr) -> Expr:
    """Sums the axes along which the operand has one element; adds of one element where both have one."""
    b = gradient.builder
    sizes = shape_of(operand)
    # The operand's shape from behind: missing axes in front count as one element.
    missing = b.op(std.Sub, b.op(std.Size, shape_of(gradient)), b.op(std.Size, sizes)).reshape(1)
    ones = b.fill(1, missing, ir.DataType.INT64)
    single = b.concat([ones, sizes], 0).equals(b.ints(1))
    axes = b.op(std.NonZero, single).reshape(-1)
    total = b.op(std.ReduceSum, widened(gradient), axes, keepdims=1, noop_with_empty_axes=1).cast(gradient.dtype)
    return reshaped_like(total, operand)


def in_shape_of(x: Expr, like: Expr) -> Expr:
    """An expression that is said to have another one's sizes."""
    shape = like.shape
    return x if shape is None else x.builder.set_shape(x, shape)
