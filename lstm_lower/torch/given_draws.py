"""The same random numbers for a module and for its model, so that what they make of them can be compared.

A draw gets numbers that follow from where an element stands in its tensor and, by a plan, from the place of the draw
among the others. Normal numbers are uniform ones of the same mean and deviation: both sides need only have the same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils._pytree import tree_leaves

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, Workspace
from lstm_lower.graph.edit import detach, remove_unread
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.randomness import draws
from lstm_lower.torch.aten.random import WHOLE
from lstm_lower.torch.modes import Args, Kwargs, OperatorMode

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64

# Numbers lie between 0 and 1, those in the middle of as many equal parts: exact in float32, and none drawn twice in a
# tensor of fewer elements.
_PARTS = 1 << 23
# A part follows from place p in its tensor, and draw d, as p (a + b p) + c d + e; a is odd and b is even.
Plan = tuple[int, int, int, int]
BY_PLACE: Plan = (5184529, 40014, 2654435, 1234567)
# Wherever it is drawn: draws may stand in another order.
BY_SHAPE: Plan = (3405791, 69620, 0, 4567891)
# All elements are 0.4: shapes may differ, as those of packed sequences do, and draws stand in loops.
ALIKE: Plan = (0, 0, 0, int(0.4 * _PARTS))
PLANS = (BY_PLACE, BY_SHAPE, ALIKE)


class GivenDraws(OperatorMode):
    """Gives a module its numbers while it runs in PyTorch.

    Attributes:
        plan: which numbers.
        shapes: of each draw, in order.
        unknown: whether it has drawn what there is no formula of.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.shapes: list[list[int]] = []
        self.unknown = False

    def on_call(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        """Puts the numbers in the place of those that are drawn."""
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        schema = func._schema
        name, in_place = schema.name.removeprefix("aten::"), schema.name.endswith("_")
        if name.removesuffix("_") in _BY_PYTORCH:
            with self:
                found = decomposition_table[getattr(torch.ops.aten, name.removesuffix("_")).default](*args, **kwargs)
            return args[0].copy_(found) if in_place else found
        operands = {argument.name: argument.default_value for argument in schema.arguments}
        operands |= {**dict(zip(operands, args, strict=False)), **kwargs}
        if in_place:
            # What is drawn in place may be drawn of what was there.
            operands["self"] = args[0].clone()
        before = torch.get_rng_state()
        result = func(*args, **kwargs)
        formula = _FORMULAS.get(name.removesuffix("_").removesuffix("_like"))
        found = None if formula is None else formula(functools.partial(self._drawn, result), operands)
        if found is not None:
            return result.copy_(found)
        elsewhere = any(x.device.type != "cpu" for x in tree_leaves(result) if isinstance(x, Tensor))
        self.unknown |= elsewhere or not torch.equal(before, torch.get_rng_state())
        return result

    def _drawn(self, like: Tensor, shape: Sequence[int] | None = None) -> Tensor:
        shape = like.shape if shape is None else shape
        linear, square, by_draw, first = self.plan
        place = torch.arange(math.prod(shape), device=like.device)
        part = (place * (linear + square * place) + (len(self.shapes) * by_draw + first)) % _PARTS
        self.shapes.append(list(shape))
        return ((2 * part + 1).float() / (2 * _PARTS)).reshape(shape)


# Numbers between 0 and 1, of the result's shape or another one.
Draw = Callable[..., Tensor]
Operands = Mapping[str, Any]


def _uniform(draw: Draw, operands: Operands) -> Any:
    low = operands.get("from", 0.0)
    return draw() * (operands.get("to", 1.0) - low) + low


def _normal(draw: Draw, operands: Operands) -> Any:
    return _around_zero(draw()) * operands.get("std", 1.0) + operands.get("mean", 0.0)


def _around_zero(uniform: Any) -> Any:
    return (uniform - 0.5) * math.sqrt(12)


def _bernoulli(draw: Draw, operands: Operands) -> Any:
    return draw() < operands.get("p", operands["self"])


def _whole(draw: Draw, operands: Operands) -> Any:
    low, high = operands.get("low", operands.get("from", 0)), operands.get("high", operands.get("to"))
    return (draw() * ((WHOLE if high is None else high) - low)).floor() + low


def _multinomial(draw: Draw, operands: Operands) -> Any:
    shares = operands["self"]
    if operands["replacement"]:
        ends = (shares / shares.sum(-1, keepdim=True)).cumsum(-1)[..., :-1]
        return (draw().unsqueeze(-1) > ends.unsqueeze(-2)).sum(-1)
    places = (shares / -draw(shares.shape).log()).sort(dim=-1, descending=True, stable=True).indices
    return places[..., : operands["num_samples"]]


def _slopes(draw: Draw, operands: Operands) -> Any:
    if not operands["training"]:
        return None
    x, noise, low, high = (operands[name] for name in ("self", "noise", "lower", "upper"))
    noise.copy_(torch.where(x <= 0, draw() * (high - low) + low, 1.0))
    return x * noise


# PyTorch's own formulas of the draws below.
_BY_PYTORCH = ("exponential", "geometric", "cauchy", "log_normal")

_FORMULAS: dict[str, Callable[[Draw, Operands], Any]] = {
    "rand": _uniform,
    "uniform": _uniform,
    "randn": _normal,
    "normal": _normal,
    "bernoulli": _bernoulli,
    "randint": _whole,
    "random": _whole,
    "randperm": lambda draw, _: draw().argsort(),
    "multinomial": _multinomial,
    "rrelu_with_noise": _slopes,
}


# The input that a plan is fed to.
PLAN = "lstm_lower.draws"


def given(model: ir.Model) -> bool | None:
    """Gives a model its draws: it has one input more, `PLAN`, and behind its own outputs the shape of each, in order.

    Returns:
        Whether these are all, and nothing is drawn in a loop or branch; `None` for one that draws nothing.
    """
    space = Workspace.of(model)
    drawing = [node for node in all_nodes(model.graph) if _draws(node, space.facts)]
    if not drawing:
        return None
    plan = ir.Value(name=PLAN, type=ir.TensorType(INT64), shape=ir.Shape([4]))
    model.graph.inputs.append(plan)
    shapes: list[ir.Value] = []
    for number, node in enumerate(drawing):
        b = Builder.before(node, space)
        sizes, results = _given(space.facts.view(node), b, functools.partial(_numbers, b.wrap(plan), number))
        if node.graph is model.graph:
            shapes.append(b.op(std.Identity, sizes).value)
        for old, new in zip(node.outputs, results, strict=False):
            b.replace(old, new.value)
        detach(node)
    model.graph.outputs.extend(shapes)
    # What the numbers were made of in their place.
    remove_unread(model.graph)
    return len(shapes) == len(drawing)


def _draws(node: ir.Node, facts: Facts) -> bool:
    """Whether a node draws; a Dropout of nothing is no draw in PyTorch."""
    if std.KEPT in node.metadata_props:
        return True
    view = facts.view(node)
    return draws(node, facts) and not (isinstance(view, std.Dropout) and facts.uniform(view.ratio) == 0)


def _given(view: std.Standard | None, b: Builder, draw: Callable[[Expr], Expr]) -> tuple[Expr, list[Expr]]:
    """The shape of what an operator draws, and its results with other numbers."""
    if view is not None and std.KEPT in view.node.metadata_props:
        numbers, ratio = (b.wrap(x) for x in view.inputs if x is not None)
        sizes = _sizes(numbers)
        return sizes, [draw(sizes) < 1 - ratio]
    if isinstance(view, std.Multinomial):
        logits = b.wrap(view.data)
        sizes = b.concat([b.op(std.Shape, logits, end=1), b.ints(view.attribute("sample_size", 1))], axis=0)
        ends = b.op(std.CumSum, b.op(std.Softmax, logits, axis=1), b.constant(1, INT64)).slice(0, -1, axis=1)
        passed = draw(sizes).unsqueeze(2) > ends.cast(FLOAT).unsqueeze(1)
        dtype = ir.DataType(view.attribute("dtype", ir.DataType.INT32))
        return sizes, [passed.cast(dtype).sum(2)]
    if isinstance(view, std.Dropout):
        x = b.wrap(view.data)
        sizes = x.sizes()
        share = 1 - (b.constant(0.5, FLOAT) if view.ratio is None else b.wrap(view.ratio).cast(FLOAT))
        kept = draw(sizes) < share
        return sizes, [b.where(kept, x / share.cast(x.dtype), 0), kept]
    assert isinstance(view, std.Random)
    like = view.operand(0)
    sizes = b.ints(*view.attribute("shape", ())) if like is None else b.wrap(like).sizes()
    numbers = draw(sizes).cast(ir.DataType(view.attribute("dtype", None) or view.dtype() or FLOAT))
    if isinstance(view, (std.RandomUniform, std.RandomUniformLike)):
        low = view.attribute("low", 0.0)
        return sizes, [numbers * (view.attribute("high", 1.0) - low) + low]
    return sizes, [_around_zero(numbers) * view.attribute("scale", 1.0) + view.attribute("mean", 0.0)]


def _sizes(x: Expr) -> Expr:
    """The sizes of what a Dropout that is written out draws: those of its Reshape, so that no number is computed."""
    producer = x.value.producer()
    shaping = None if producer is None else std.Reshape.of(producer, x.builder.facts)
    said = None if shaping is None else x.builder.wrap(shaping.target)
    known = None if said is None else x.builder.facts.constant(said.value)
    if shaping is None or said is None or not shaping.allowzero or (known is not None and (known < 0).any()):
        return x.sizes()
    return said


def _numbers(plan: Expr, number: int, sizes: Expr) -> Expr:
    b = sizes.builder
    linear, square, by_draw, first = (plan.slice(place, place + 1, axis=0) for place in range(4))
    place = up_to(b, b.op(std.ReduceProd, sizes, keepdims=0))
    part = (place * (linear + square * place) + (by_draw * number + first)) % b.ints(_PARTS)
    return b.op(std.Reshape, (2 * part + 1).cast(FLOAT) / (2 * _PARTS), sizes, allowzero=1)
