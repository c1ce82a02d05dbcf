"""What loops in a file of TensorFlow's compute, in words: which recurrent cells, of how many units.

A cell is told by its formula, whatever its nodes are called: its gates, what they let through, and that the result is
what the next iteration begins with. Where anything differs from the formula, the text says less.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from lstm_lower.checkpoints import messages, values
from lstm_lower.errors import some
from lstm_lower.opdef import DOMAIN, definition
from lstm_lower.tensorflow.files.views import data_inputs
from lstm_lower.tensorflow.loop_bodies import LoopBody, Tensor, first_input
from lstm_lower.tensorflow.sources import Shape

_SUMS = ("Add", "AddV2")
_AFFINE = (*_SUMS, "AddN", "BiasAdd", "BiasAddV1", "Reshape", "ExpandDims", "Squeeze")
# Ops that take a tensor apart, and which of their inputs that is.
_PARTS = {"Split": 1, "SplitV": 0, "Slice": 0, "StridedSlice": 0, "Unpack": 0}
_NORMALIZING = ("Mean", "SquaredDifference", "Rsqrt", "Sqrt", "Square", "Sub", "RealDiv")
_BEFORE_GATES = (*_AFFINE, *_PARTS, *_NORMALIZING, "Mul")
_JOINING = ("Pack", "Concat", "ConcatV2")
_LIMITS = ("Minimum", "Maximum", "ClipByValue")
_CHOOSING = ("Select", "SelectV2", "Merge")
_SCALING = ("Rsqrt", "SquaredDifference")
_OPERANDS = (*_BEFORE_GATES, *_JOINING, *_CHOOSING)
_PRODUCTS = (
    *("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "SparseMatMul"),
    *("Conv2D", "Conv3D", "DepthwiseConv2dNative"),
)
_TO_NEXT = (*_BEFORE_GATES, *_JOINING, *_LIMITS, *_CHOOSING)
_SQUASHING = ("Sigmoid", "Tanh", "Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign")
_WRITES = ("TensorArrayWriteV2", "TensorArrayWriteV3", "TensorListSetItem")
_READS = ("TensorArrayReadV2", "TensorArrayReadV3", "TensorListGetItem")

# Ops that are cells: a weight, and of how many gates it is.
_FUSED = {"LSTMBlockCell": ("w", 4), "GRUBlockCell": ("w_ru", 2)}

# How cells of TensorFlow 1 are called that have one weight for what comes in and what is carried.
_CELLS = {"LSTM": "LSTMCell", "GRU": "GRUCell", "simple RNN": "BasicRNNCell"}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A recurrent cell in a loop.

    Attributes:
        kind: its usual name, or that of an op.
        units: how many it has, filters of a convolution; `None` where the graph does not say.
        products: the nodes of its products with weights.
        result: what it hands on; `None` for an op.
        hidden: the loop variables that these multiply.
        operands: tensors that their operands are made of.
        joined: whether one weight serves what comes in and what is carried.
        convolution: whether the products are convolutions.
        notes: what is special about it.
    """

    kind: str
    units: int | None
    products: frozenset[str] = frozenset()
    result: Tensor | None = None
    hidden: frozenset[str] = frozenset()
    operands: frozenset[Tensor] = frozenset()
    joined: bool = False
    convolution: bool = False
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Such as `LSTM of 256 units (peepholes)`."""
        word = ("filter" if self.convolution else "unit") + ("" if self.units == 1 else "s")
        kind = f"convolutional {self.kind}" if self.convolution else self.kind
        units = "" if self.units is None else f" of {self.units} {word}"
        return f"{kind}{units}" + (f" ({', '.join(self.notes)})" if self.notes else "")


def loop_text(loop: LoopBody, others: Sequence[LoopBody]) -> str:
    """What a loop computes, in words.

    Args:
        loop: the loop.
        others: all loops of the file.
    """
    forward = next((other for other in others if loop.is_gradient_of(other)), None)
    if forward is not None:
        return f"the gradient of {forward.name}"
    cells = cells_of(loop)
    rest = {node.name for node in loop.nodes(_PRODUCTS)}.difference(*(cell.products for cell in cells))
    reads = " over a sequence" if next(loop.nodes(_READS), None) is not None else ""
    products = f"{len(rest)} {'other ' if cells else ''}product{'' if len(rest) == 1 else 's'}"
    if not cells:
        return f"a loop{reads}" + (f" with {products}" if rest else "") + _state(loop)
    counts = collections.Counter(cell.text for cell in cells)
    listed = [text if count == 1 else f"{count} times {text}" for text, count in counts.items()]
    text = " and ".join([*listed, *([products] if rest else [])]) + reads
    return text if rest else text + _as_dynamic(loop, cells)


def _as_dynamic(loop: LoopBody, cells: Sequence[Cell]) -> str:
    """The names of TensorFlow 1 for cells that read a sequence and what they carry themselves, and write one."""
    plain = [cell.joined and not cell.convolution and not cell.notes for cell in cells]
    kinds = {_CELLS.get(cell.kind) if is_plain else None for cell, is_plain in zip(cells, plain, strict=True)}
    name = kinds.pop() if len(kinds) == 1 else None
    operands = {operand for cell in cells for operand, _ in cell.operands}
    carries = operands & loop.carried.keys() <= {hidden for cell in cells for hidden in cell.hidden}
    read, written = list(loop.nodes(_READS)), list(loop.nodes(_WRITES))
    reads = any(node.name in operands for node in read)
    results = {cell.result for cell in cells}
    writes = all(not results.isdisjoint(loop.behind(_input(node, 2), _CHOOSING)) for node in written)
    steps = all(_counts_up(loop, _input(node, 1)) for node in (*read, *written))
    if name is None or not (written and reads and carries and writes and steps):
        return ""
    return f", as dynamic_rnn over {name if len(cells) == 1 else f'a MultiRNNCell of {name}'} computes it"


def _counts_up(loop: LoopBody, index: str) -> bool:
    """Whether a tensor is a loop variable that grows by one in each iteration."""
    holder = _holder(loop, index)
    if holder is None:
        return False
    following = loop.maker(loop.source(loop.carried[holder]))
    for before, step in _both(following, *_SUMS):
        one = loop.view.made_by(step)[0]
        if loop.source(before)[0] == holder and one is not None and values.only_number(one) == 1:
            return True
    return False


def _input(node: Any, number: int) -> str:
    """An input of a node; none, which nothing makes, where it has fewer in a damaged file."""
    return next(itertools.islice(data_inputs(node), number, None), "")


def _state(loop: LoopBody) -> str:
    """What it carries besides lists and, if there is anything else, counters."""
    texts = [_type(loop, holder) for holder in loop.carried if not _is_list(loop, holder)]
    further = [text for text in texts if text not in ("int32[]", "int64[]")]
    return f", which carries {some(further, 3) if further else 'integers'}" if texts else ""


def _type(loop: LoopBody, holder: str) -> str:
    view, spelled = loop.variable(holder)
    return view.type_text(spelled)


def _is_list(loop: LoopBody, holder: str) -> bool:
    """Whether a loop variable is a list, or stands for what was written into one."""
    node = loop.maker(loop.source(loop.carried[holder]))
    return _type(loop, holder).startswith("variant") or (node is not None and node.op in _WRITES)


def cells_of(loop: LoopBody) -> list[Cell]:
    """The recurrent cells of a loop, in the order of its nodes."""
    found = _fused(loop)
    for node in loop.nodes(_SUMS):
        formula = _long_short(loop, node) or _gated(loop, node)
        found += [] if formula is None else [formula]
    taken = frozenset[str]().union(*(cell.products for cell in found))
    simple = [cell for holder in loop.carried if (cell := _simple(loop, holder)) is not None]
    return found + [cell for cell in simple if cell.products.isdisjoint(taken)]


def _fused(loop: LoopBody) -> list[Cell]:
    """Cells that one op of TensorFlow's computes."""
    found = []
    for node in loop.nodes(_FUSED):
        defined, (weight, gates) = definition(DOMAIN, node.op), _FUSED[node.op]
        assert defined is not None
        given = dict(zip((operand.name for operand in defined.inputs), data_inputs(node), strict=False))
        columns = _last(loop.shape(given.get(weight, "")))
        found.append(Cell(node.op, columns // gates if columns else None))
    return found


@dataclasses.dataclass(frozen=True)
class _Through:
    """What a nonlinear function makes of a tensor: a gate, or what gates let through.

    Attributes:
        tensor: the result.
        of: what the function is applied to.
    """

    tensor: Tensor
    of: str


def _through(loop: LoopBody, spelled: str) -> _Through | None:
    """A tensor as a nonlinear function of another; `None` for one that is none."""
    tensor = loop.source(spelled)
    node = loop.maker(loop.source(_whole(loop, tensor) or spelled))
    if node is not None and node.op in _LIMITS:
        inner = loop.maker(loop.source(first_input(node)))
        return _Through(tensor, first_input(inner if inner is not None and inner.op in _LIMITS else node))
    return None if node is None or node.op not in _SQUASHING else _Through(tensor, first_input(node))


def _whole(loop: LoopBody, tensor: Tensor) -> str | None:
    """What a tensor is a part of; `None` for one that is not taken out of another."""
    node = loop.maker(tensor)
    inputs = [] if node is None or node.op not in _PARTS else list(data_inputs(node))
    return inputs[_PARTS[node.op]] if node is not None and len(inputs) > _PARTS.get(node.op, 0) else None


def _both(node: Any | None, *ops: str) -> list[tuple[str, str]]:
    """The two operands of a node of some ops, in both orders."""
    operands = [] if node is None or node.op not in ops else list(data_inputs(node))
    return [(operands[0], operands[1]), (operands[1], operands[0])] if len(operands) == 2 else []


def _factors(loop: LoopBody, spelled: str) -> list[tuple[str, str]]:
    """The factors of a tensor that is a product, in both orders."""
    return _both(loop.maker(loop.source(spelled)), "Mul")


def _holder(loop: LoopBody, spelled: str) -> str | None:
    """The loop variable that a tensor, or what it is a part of, is."""
    tensor = loop.source(spelled)
    tensor = loop.source(_whole(loop, tensor) or spelled)
    return tensor[0] if tensor[0] in loop.carried else None


def _becomes(loop: LoopBody, holder: str, tensor: Tensor, further: Collection[str] = ()) -> bool:
    """Whether a loop variable's next value is made of a tensor."""
    return tensor in loop.behind(loop.carried[holder], (*_TO_NEXT, *further), tensor)


def _long_short(loop: LoopBody, total: Any) -> Cell | None:
    """An LSTM: `c' = f * c + i * j`, `h' = o * act(c')`, gates of products with h.

    Args:
        loop: the loop.
        total: the sum that is the new cell state.
    """
    state: Tensor = (total.name, 0)
    for kept, added in _both(total, *_SUMS):
        for (forget, before), (enter, candidate) in itertools.product(_factors(loop, kept), _factors(loop, added)):
            holder = _holder(loop, before)
            if holder is None or not _becomes(loop, holder, state):
                continue
            for output, result in _outputs(loop, state):
                gates = [*(_through(loop, spelled) for spelled in (forget, enter, candidate)), output]
                cell = _lstm(loop, holder, state, gates, result)
                if cell is not None:
                    return cell
    return None


def _outputs(loop: LoopBody, state: Tensor) -> Iterator[tuple[_Through, Tensor]]:
    """Output gates of a cell state, and the products with them."""
    for node in loop.nodes(("Mul",)):
        for gate, shown in _both(node, "Mul"):
            output, squashed = _through(loop, gate), _through(loop, shown)
            if output is None or squashed is None:
                continue
            if state in loop.behind(squashed.of, (*_BEFORE_GATES, *_LIMITS), state):
                yield output, (node.name, 0)


def _lstm(loop: LoopBody, holder: str, state: Tensor, gates: Sequence[_Through | None], result: Tensor) -> Cell | None:
    """The cell of four nonlinear functions, where they are those of different tensors."""
    applied = [gate for gate in gates if gate is not None]
    if len({gate.tensor for gate in applied}) != len(gates):
        return None
    made = [loop.behind(gate.of, _BEFORE_GATES, state) for gate in applied]
    hidden = [name for name in loop.carried if _becomes(loop, name, result)]
    notes = ["peepholes"] if any(not tensors.isdisjoint({(holder, 0), state}) for tensors in made) else []
    if hidden:
        # Where one loop variable holds both states its size is that of both.
        return _cell(loop, "LSTM", result, made, hidden, None if holder in hidden else holder, notes)
    for name in loop.carried:
        if _becomes(loop, name, result, _PRODUCTS):
            cell = _cell(loop, "LSTM", result, made, [name], holder, [*notes, "projection"])
            if cell is not None:
                between = loop.behind(loop.carried[name], (*_TO_NEXT, *_PRODUCTS), result)
                return dataclasses.replace(cell, products=cell.products | _products(loop, between).keys())
    return None


def _gated(loop: LoopBody, total: Any) -> Cell | None:
    """A GRU: `h' = z * h + (1 - z) * act(...)`, in which another gate multiplies h, or a product with it.

    Args:
        loop: the loop.
        total: the sum that is the new state.
    """
    for kept, added in _both(total, *_SUMS):
        for (keep, before), (enter, new) in itertools.product(_factors(loop, kept), _factors(loop, added)):
            holder, update, candidate = _holder(loop, before), _complementary(loop, keep, enter), _through(loop, new)
            if holder is None or update is None or candidate is None or not _becomes(loop, holder, (total.name, 0)):
                continue
            reset = _reset(loop, holder, candidate, update)
            if reset is not None:
                made = [loop.behind(gate.of, _BEFORE_GATES) for gate in (update, reset, candidate)]
                return _cell(loop, "GRU", (total.name, 0), made, [holder], holder)
    return None


def _complementary(loop: LoopBody, one: str, other: str) -> _Through | None:
    """The gate that lets through what 1 minus it does not, whichever comes first."""
    for gate, rest in ((one, other), (other, one)):
        node = loop.maker(loop.source(rest))
        operands = [] if node is None or node.op != "Sub" else list(data_inputs(node))
        if len(operands) == 2 and loop.source(operands[1]) == loop.source(gate):
            return _through(loop, gate)
    return None


def _reset(loop: LoopBody, holder: str, candidate: _Through, update: _Through) -> _Through | None:
    """The gate other than the update gate by which the candidate depends on the state."""
    for name, _ in loop.behind(candidate.of, (*_BEFORE_GATES, *_JOINING, *_PRODUCTS)):
        for gate, shown in _both(loop.inside.get(name), "Mul"):
            reset = _through(loop, gate)
            if reset is None or reset.tensor == update.tensor:
                continue
            if (holder, 0) in loop.behind(shown, (*_BEFORE_GATES, *_JOINING, *_PRODUCTS)):
                return reset
    return None


def _simple(loop: LoopBody, holder: str) -> Cell | None:
    """A simple RNN: `h' = act(products and a bias)`."""
    for name, _ in loop.behind(loop.carried[holder], _CHOOSING):
        node = loop.inside.get(name)
        if node is not None and node.op in _SQUASHING and name not in loop.carried:
            made = loop.behind(first_input(node), _AFFINE)
            kinds = {inner.op for inner in map(loop.maker, made) if inner is not None}
            if kinds <= {*_AFFINE, *_PRODUCTS, *_READS, "Const"}:
                return _cell(loop, "simple RNN", (name, 0), [made], [holder], holder)
    return None


def _cell(
    loop: LoopBody,
    kind: str,
    result: Tensor,
    made: Sequence[Collection[Tensor]],
    hidden: Sequence[str],
    holder: str | None,
    notes: Sequence[str] = (),
) -> Cell | None:
    """A cell, if one of its products is with what is carried.

    Args:
        loop: the loop.
        kind: its name.
        result: what it hands on.
        made: for each nonlinear function the tensors that what it is applied to is made of.
        hidden: the loop variables that it may multiply.
        holder: a loop variable of its size, if there is one.
        notes: what is special about it.
    """
    shares = collections.Counter(name for tensors in made for name in {name for name, _ in tensors})
    products = _products(loop, ((name, 0) for name in shares))
    operands = {name: [loop.behind(x, _OPERANDS) for x in data_inputs(node)] for name, node in products.items()}
    everything = frozenset[Tensor]().union(*(tensors for each in operands.values() for tensors in each))
    if everything.isdisjoint({(name, 0) for name in hidden}):
        return None
    normalized = any(name in loop.inside and loop.inside[name].op in _SCALING for name in shares)
    sizes = {columns / shares[name] for name, node in products.items() if (columns := _columns(loop, node))}
    if holder is not None:
        view, spelled = loop.variable(holder)
        sizes |= {size for size in [_last(view.shape(spelled))] if size is not None}
    units = sizes.pop() if len(sizes) == 1 else None
    return Cell(
        kind,
        int(units) if units is not None and units == int(units) else None,
        products=frozenset(products),
        result=result,
        hidden=frozenset(hidden),
        operands=everything,
        joined=all(any(node.op in _JOINING for node in _made(loop, each)) for each in operands.values()),
        convolution=any(node.op.startswith("Conv") for node in products.values()),
        notes=(*notes, "normalized") if normalized else tuple(notes),
    )


def _made(loop: LoopBody, tensors: Iterable[Collection[Tensor]]) -> Iterator[Any]:
    """The nodes of the loop that make some tensors."""
    return (node for each in tensors for tensor in each if (node := loop.maker(tensor)) is not None)


def _products(loop: LoopBody, tensors: Iterable[Tensor]) -> dict[str, Any]:
    """The products among some tensors, by name."""
    return {node.name: node for node in _made(loop, [list(tensors)]) if node.op in _PRODUCTS}


def _columns(loop: LoopBody, product: Any) -> int | None:
    """How many columns the weight of a product has; `None` where that is not known."""
    operands = list(data_inputs(product))
    if len(operands) != 2 or not loop.is_given(operands[1]):
        return None
    shape = loop.shape(operands[1])
    turned = messages.attribute(product, "transpose_b").b or messages.attribute(product, "adj_y").b
    return None if shape is None or len(shape) < 2 else shape[-2 if turned else -1]


def _last(shape: Shape | None) -> int | None:
    return shape[-1] if shape else None
