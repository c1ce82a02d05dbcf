"""Low-rank adaptation: trainable matrices beside weights that stay as they are.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, and PEFT's layers for names and first
values.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower import arguments
from lstm_lower.errors import InvalidInputError, some
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.edit import detach, lone_reader, set_operands
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.scopes import scope
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.decompositions.decompose import DecomposePass
from lstm_lower.passes.model_pass import Pass
from lstm_lower.records import adaptation
from lstm_lower.records.adaptation import Adaptation, Kind

Array = np.ndarray[Any, Any]

# What exporters and quantizers put behind the name of a module's weight.
_OF_MODULE = re.compile(r"(.+)\.weight(?:[_.]\w+)?")


@dataclasses.dataclass(frozen=True)
class _Place:
    """A weight that a node reads.

    Attributes:
        node: the node.
        operand: which operand it is.
        x: what it is multiplied with, a floating value.
        last: the node that makes a floating value of the product: of integers that which scales it, else the node.
        module: its name.
        kind: what the node is.
        source: the constant that it is made of.
        shape: of the weight: `[in, out]`, `[out, channels, *window]` or `[directions, out, in]`.
    """

    node: ir.Node
    operand: int
    x: ir.Value
    last: ir.Node
    module: str
    kind: Kind
    source: ir.Value
    shape: tuple[int, ...]


@dataclasses.dataclass
class LowRankPass(Pass):
    """Adds `alpha / rank * B @ A` to weights of MatMul, Gemm, Conv, LSTM and GRU that are made of constants.

    Weights may be made of integers, as by DequantizeLinear, or be integers of MatMulInteger and ConvInteger: they are
    not changed. The product of a layer's input with
    both matrices is added to its output; only recurrent layers get a sum of matrices as their weight.

    Attributes:
        rank: rows of A, columns of B.
        targets: names of modules, their last parts, or patterns; `None` for all.
        alpha: see above; `None` for the rank.
        seed: of A's first values; B begins with zeros, so that the model is as before.
        given: PEFT's name -> value, in place of first values; a module without both of its own is left alone.
    """

    rank: int = 8
    targets: str | Sequence[str] | None = None
    alpha: float | None = None
    seed: int = 0
    given: Mapping[str, Array] | None = None

    def __post_init__(self) -> None:
        rank: Any = self.rank
        if not isinstance(rank, (int, np.integer)) or isinstance(rank, bool) or not 1 <= rank < 2**31:
            raise InvalidInputError(f"rank requires a number of rows, at least 1, got {rank!r}")
        alpha: Any = self.alpha
        number = isinstance(alpha, (int, float, np.integer, np.floating)) and not isinstance(alpha, bool)
        if alpha is not None and not (number and math.isfinite(alpha) and alpha > 0):
            raise InvalidInputError(f"alpha requires a positive number, got {alpha!r}")
        self.seed = arguments.whole("seed", self.seed, least=0)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the graph.

        Raises:
            InvalidInputError: the model has such matrices already, or no weight that is meant.
        """
        if adaptation.parse(model.metadata_props) is not None:
            raise InvalidInputError("lora requires a model without low-rank matrices, got one that ll.lora made")
        float_products(self, model)
        places = self._chosen(self._places(model))
        alpha = float(self.rank if self.alpha is None else self.alpha)
        random = np.random.default_rng(self.seed)
        matrices: dict[str, tuple[ir.Value, ir.Value]] = {}
        for place in places:
            if place.module not in matrices:
                matrices[place.module] = self._matrices(model.graph, place, random)
            b = Builder.before(place.last, self.context.space)
            first, second = map(b.wrap, matrices[place.module])
            _ADDED[place.kind](b, place, first, second, alpha / self.rank)
        adaptation.write(model, Adaptation(self.rank, alpha, {place.module: place.kind for place in places}))
        return ir.passes.PassResult(model, modified=True)

    def _places(self, model: ir.Model) -> list[_Place]:
        """All weights that matrices may be added to; what shares a weight has one name."""
        named: dict[tuple[ir.Value, int, tuple[int, ...]], str] = {}
        places = []
        for node in all_nodes(model.graph):
            for operand, kind in self._operands(node):
                value = node.inputs[operand]
                source, shape = (
                    constant_source(value),
                    self.context.space.facts.shape(value) if value is not None else None,
                )
                floating = _floating_ends(node, self.context.space.facts)
                if source is None or shape is None or floating is None:
                    continue
                if not all(isinstance(size, int) for size in shape):
                    continue
                sizes = tuple(size for size in shape if isinstance(size, int))
                sizes = sizes[::-1] if _is_transposed(self.context.space.facts.view(node)) else sizes
                key = source, operand, sizes
                if key not in named:
                    named[key] = _unique(_module(source, node, kind), named.values())
                places.append(_Place(node, operand, *floating, named[key], kind, source, sizes))
        return places

    def _operands(self, node: ir.Node) -> list[tuple[int, Kind]]:
        """The operands of a node that are weights."""
        facts = self.context.space.facts
        match facts.view(node):
            case std.MatMul() | std.MatMulInteger() if facts.rank(node.inputs[1]) == 2:
                return [(1, "linear")]
            case std.Gemm() as view if not view.trans_a and view.alpha == 1:
                return [(1, "linear")]
            case std.Conv() | std.ConvInteger() as view if view.group == 1:
                return [(1, "convolution")]
            case std.LSTM() | std.GRU():
                return [(1, "recurrent"), (2, "recurrent")]
            case _:
                return []

    def _chosen(self, places: Sequence[_Place]) -> list[_Place]:
        names = list(dict.fromkeys(place.module for place in places))
        if not names:
            raise InvalidInputError("lora requires a model with constant weights of MatMul, Gemm, Conv, LSTM or GRU")
        chosen = set(names)
        if self.targets is not None:
            wanted = [self.targets] if isinstance(self.targets, str) else list(self.targets)
            meant = {target: [name for name in names if _means(target, name)] for target in wanted}
            missing = [target for target, each in meant.items() if not each]
            if missing or not wanted:
                got = repr(missing[0]) if missing else "none"
                raise InvalidInputError(f"targets requires names, last parts or patterns of {some(names)}, got {got}")
            chosen = {name for each in meant.values() for name in each}
        if self.given is not None:
            chosen = {name for name in chosen if set(adaptation.names_of(name)) <= set(self.given)}
            held = {each for name in chosen for each in adaptation.names_of(name)}
            unknown = [name for name in self.given if name not in held]
            if unknown or not chosen:
                got = f"'{unknown[0]}'" if unknown else "none"
                raise InvalidInputError(
                    f"an adapter requires two matrices of each module among {some(names)}, got {got}"
                )
        return [place for place in places if place.module in chosen]

    def _matrices(self, graph: ir.Graph, place: _Place, random: np.random.Generator) -> tuple[ir.Value, ir.Value]:
        """Both matrices as initializers; of A the first values are those of PyTorch's own layers."""
        dtype = self.context.space.facts.dtype(place.x) or ir.DataType.FLOAT
        forms = _forms(place, self.rank)
        # A row of A is as long as what it multiplies.
        bound = 1 / math.sqrt(math.prod(forms[0][2:] if place.kind == "recurrent" else forms[0][1:]))
        arrays = [random.uniform(-bound, bound, forms[0]), np.zeros(forms[1])]
        made = []
        for name, array, form in zip(adaptation.names_of(place.module), arrays, forms, strict=True):
            value = array if self.given is None else np.asarray(self.given[name])
            if value.shape != form:
                raise InvalidInputError(f"'{name}' requires shape {list(form)}, got {list(value.shape)}")
            tensor = ir.Tensor(np.asarray(value, dtype.numpy()), dtype=dtype, name=name)
            weight = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(form), const_value=tensor)
            graph.register_initializer(weight)
            made.append(weight)
        return made[0], made[1]


def _forms(place: _Place, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of A and B as PEFT has them."""
    if place.kind == "convolution":
        out, channels, *window = place.shape
        return (rank, channels, *window), (out, rank, *[1] * len(window))
    if place.kind == "recurrent":
        directions, out, size = place.shape
        return (directions, rank, size), (directions, out, rank)
    size, out = place.shape
    return (rank, size), (out, rank)


def _is_transposed(view: std.Standard | None) -> bool:
    return isinstance(view, std.Gemm) and bool(view.trans_b)


def _beside(b: Builder, place: _Place, added: Expr) -> None:
    """Adds something to the floating value that is made of a product."""
    (base,) = b.repeat(place.last, place.last.inputs)
    b.replace(place.last.outputs[0], b.wrap(base) + added)
    detach(place.last)


def _add_linear(b: Builder, place: _Place, first: Expr, second: Expr, scale: float) -> None:
    x = b.wrap(place.x)
    _beside(b, place, x @ first.mT @ second.mT * scale)


def _add_convolution(b: Builder, place: _Place, first: Expr, second: Expr, scale: float) -> None:
    narrow = b.op(std.Conv, b.wrap(place.x), first, **place.node.attributes)
    _beside(b, place, b.op(std.Conv, narrow, second) * scale)


def _add_recurrent(b: Builder, place: _Place, first: Expr, second: Expr, scale: float) -> None:
    weight = b.wrap(_held(place.node.inputs[place.operand])) + second @ first * scale
    set_operands(place.node, {place.operand: weight.value})


_ADDED: Mapping[Kind, Callable[[Builder, _Place, Expr, Expr, float], None]] = {
    "linear": _add_linear,
    "convolution": _add_convolution,
    "recurrent": _add_recurrent,
}


def _held(value: ir.Value | None) -> ir.Value:
    assert value is not None
    return value


def float_products(editing: Pass, model: ir.Model) -> None:
    """Writes products from integers to integers as products of what these stand for."""
    if any(std.QLinear.matches(node) for node in all_nodes(model.graph)):
        DecomposePass(std.QLinear.matches).share(editing.context)(model)


def _floating_ends(node: ir.Node, facts: Facts) -> tuple[ir.Value, ir.Node] | None:
    """What a product reads, and the node that makes the floating value that it stands for."""
    x = _held(node.inputs[0])
    if not isinstance(facts.view(node), std.MatMulInteger | std.ConvInteger):
        return x, node
    quantized = facts.maker(x)
    cast = lone_reader(node.outputs[0])
    scaled = lone_reader(cast.outputs[0]) if cast is not None and std.Cast.matches(cast) else None
    if not isinstance(quantized, std.QuantizeLinear | std.DynamicQuantizeLinear) or not std.Mul.matches(scaled):
        return None
    return quantized.data, scaled


def layer_of(value: ir.Value | None, facts: Facts) -> tuple[ir.Node, ir.Value] | None:
    """The product with a matrix that makes a floating value, also of integers, and what it reads."""
    node = None if value is None else value.producer()
    products = [node]
    if std.Mul.matches(node):
        casts = [facts.maker(x) for x in node.inputs]
        products = [cast.data.producer() for cast in casts if isinstance(cast, std.Cast)]
    for product in products:
        view = facts.view(product)
        ends = None
        if isinstance(view, std.MatMul | std.MatMulInteger) or (isinstance(view, std.Gemm) and not view.trans_a):
            ends = _floating_ends(view.node, facts)
        if view is not None and ends is not None and ends[1] is node and facts.rank(view.node.inputs[1]) == 2:
            return view.node, ends[0]
    return None


def constant_source(value: ir.Value | None) -> ir.Value | None:
    """The largest of the constants that a value is made of, and of nothing else; `None` where it is not."""
    leaves: dict[ir.Value, int] = {}
    waiting, seen = [value], set()
    while waiting:
        each = waiting.pop()
        if each is None or each in seen:
            continue
        seen.add(each)
        node = each.producer()
        if each.is_graph_input() or (node is None and each.const_value is None):
            return None
        if each.const_value is not None:
            leaves[each] = each.const_value.nbytes
        elif node is not None:
            if not node.inputs and not std.Constant.matches(node):
                return None
            waiting.extend(node.inputs)
    return max(leaves, key=lambda leaf: leaves[leaf], default=None)


def _module(source: ir.Value, node: ir.Node, kind: Kind) -> str:
    """The name of the module that a weight belongs to, as far as the exporter tells it, else that of the weight."""
    named = _OF_MODULE.fullmatch(str(source.name))
    if named is not None:
        return named[1]
    around = scope(node) if kind != "recurrent" else ()
    return ".".join(around) if around else str(source.name)


def _unique(name: str, taken: Any) -> str:
    return next(x for number in range(len(taken) + 1) if (x := f"{name}_{number}" if number else name) not in taken)


def _means(target: object, name: str) -> bool:
    return isinstance(target, str) and (
        name == target or name.endswith(f".{target}") or fnmatch.fnmatchcase(name, target)
    )
