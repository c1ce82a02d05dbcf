"""Every form of ONNX's operators: attributes and operands given, left out, negative, permuted, known or computed.

Each entry of `FORMS`, and of `LAYERS` in `operator_forms_layers`, draws one node of an operator with operands. What is
small integers (axes, sizes, steps) may be a constant, follow from constants and sizes, or be known at run time only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]
SHAPES = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)
FULL_SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@dataclasses.dataclass
class Form:
    """One node with its operands.

    Attributes:
        op: the operator.
        operands: arrays; `None` where one is left out.
        attributes: of the node.
        small: positions of operands that are sizes, axes and the like, which a model may hold as constants.
        outputs: how many outputs there are.
        since: the first opset that has this form.
        until: the last opset that has this form.
    """

    op: str
    operands: list[np.ndarray[Any, Any] | None]
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    small: tuple[int, ...] = ()
    outputs: int = 1
    since: int = 13
    until: int = 100


def tensor(draw: Draw, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    if np.dtype(dtype) == np.bool_:
        return random.random(shape) < 0.5
    kind = draw(st.sampled_from(["random", "zeros", "ones"]))
    values = {"random": random.integers(-3, 4, shape), "zeros": np.zeros(shape), "ones": np.ones(shape)}[kind]
    return np.asarray(values, dtype)


def axes_of(draw: Draw, rank: int, *, least: int = 0) -> list[int]:
    """Some axes, permuted, counted from the front or from the end."""
    chosen = draw(st.permutations(range(rank)))[: draw(st.integers(min(least, rank), rank))]
    return [axis - rank if draw(st.booleans()) else axis for axis in chosen]


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.asarray(values, np.int64)


def _subset(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to another one."""
    cut = shape[draw(st.integers(0, len(shape))) :]
    return tuple(1 if draw(st.booleans()) else dim for dim in cut)


def binary(op: str, dtype: Any = np.float32) -> Callable[[Draw], Form]:
    def form(draw: Draw) -> Form:
        shape = draw(SHAPES)
        shapes = [shape, _subset(draw, shape)]
        if draw(st.booleans()):
            shapes.reverse()
        return Form(op, [tensor(draw, s, dtype) for s in shapes])

    return form


def unary(op: str, dtype: Any = np.float32) -> Callable[[Draw], Form]:
    return lambda draw: Form(op, [tensor(draw, draw(SHAPES), dtype)])


def prelu(draw: Draw) -> Form:
    shape = draw(SHAPES)
    return Form("PRelu", [tensor(draw, shape), tensor(draw, _subset(draw, shape))])


def where(draw: Draw) -> Form:
    shape = draw(SHAPES)
    return Form(
        "Where",
        [tensor(draw, _subset(draw, shape), np.bool_), tensor(draw, shape), tensor(draw, _subset(draw, shape))],
        small=(0,),
    )


def cast(draw: Draw) -> Form:
    to = draw(st.sampled_from([onnx.TensorProto.INT64, onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE]))
    return Form("Cast", [tensor(draw, draw(SHAPES))], {"to": to}, small=(0,))


def reduction(op: str) -> Callable[[Draw], Form]:
    def form(draw: Draw) -> Form:
        x = tensor(draw, draw(FULL_SHAPES))
        attributes: dict[str, Any] = {}
        if draw(st.booleans()):
            attributes["keepdims"] = draw(st.sampled_from([0, 1]))
        operand = op == "ReduceSum" or draw(st.booleans())
        since = 18 if op != "ReduceSum" else 13
        if operand and draw(st.booleans()):
            attributes["noop_with_empty_axes"] = draw(st.sampled_from([0, 1]))
        if not draw(st.booleans()):
            return Form(op, [x], attributes, since=since if operand else 13, until=100 if operand else 17)
        axes = axes_of(draw, x.ndim, least=0 if operand else 1)
        if operand:
            return Form(op, [x, ints(*axes)], attributes, small=(1,), since=since)
        return Form(op, [x], {**attributes, "axes": axes}, until=17)

    return form


def arg(op: str) -> Callable[[Draw], Form]:
    def form(draw: Draw) -> Form:
        x = tensor(draw, draw(FULL_SHAPES))
        attributes = {"axis": draw(st.integers(-x.ndim, x.ndim - 1)), "keepdims": draw(st.sampled_from([0, 1]))}
        return Form(op, [x], {key: value for key, value in attributes.items() if key == "axis" or draw(st.booleans())})

    return form


def along(op: str) -> Callable[[Draw], Form]:
    def form(draw: Draw) -> Form:
        x = tensor(draw, draw(FULL_SHAPES))
        return Form(op, [x], {"axis": draw(st.integers(-x.ndim, x.ndim - 1))} if draw(st.booleans()) else {})

    return form


def matmul(draw: Draw) -> Form:
    inner, batch = draw(st.integers(1, 3)), draw(st.lists(st.integers(1, 3), max_size=2).map(tuple))
    a = (inner,) if draw(st.booleans()) else (*batch, draw(st.integers(0, 3)), inner)
    b = (inner,) if draw(st.booleans()) else (*_subset(draw, batch), inner, draw(st.integers(0, 3)))
    return Form("MatMul", [tensor(draw, a), tensor(draw, b)])


def gemm(draw: Draw) -> Form:
    rows, inner, columns = (draw(st.integers(1, 3)) for _ in range(3))
    trans = draw(st.sampled_from([0, 1])), draw(st.sampled_from([0, 1]))
    a = tensor(draw, (inner, rows) if trans[0] else (rows, inner))
    b = tensor(draw, (columns, inner) if trans[1] else (inner, columns))
    bias = [tensor(draw, draw(st.sampled_from([(columns,), (1, columns), (rows, 1), (1,), ()])))]
    attributes = {"transA": trans[0], "transB": trans[1], "alpha": 0.5, "beta": 2.0}
    return Form("Gemm", [a, b, *(bias if draw(st.booleans()) else [])], attributes)


def concat(draw: Draw) -> Form:
    shape = draw(FULL_SHAPES)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        dims = list(shape)
        dims[axis] = draw(st.integers(0, 3))
        parts.append(tensor(draw, tuple(dims), np.int64))
    return Form("Concat", parts, {"axis": axis}, small=tuple(range(len(parts))))


def split(draw: Draw) -> Form:
    x = tensor(draw, draw(FULL_SHAPES))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    whole, count = x.shape[axis], draw(st.integers(1, 3))
    attributes = {"axis": axis}
    if draw(st.booleans()):
        cuts = sorted(draw(st.lists(st.integers(0, whole), min_size=count - 1, max_size=count - 1)))
        sizes = np.diff([0, *cuts, whole])
        return Form("Split", [x, ints(*sizes)], attributes, small=(1,), outputs=count)
    each = -(-whole // count)
    if whole % count == 0:
        return Form("Split", [x], attributes, outputs=count, until=17)
    if each * (count - 1) >= whole:
        count = 1
    return Form("Split", [x], {**attributes, "num_outputs": count}, outputs=count, since=18)


def slice_(draw: Draw) -> Form:
    x = tensor(draw, draw(FULL_SHAPES), draw(st.sampled_from([np.float32, np.int64])))
    given = draw(st.booleans())
    axes = axes_of(draw, x.ndim, least=1) if given else list(range(draw(st.integers(1, x.ndim))))
    far = st.sampled_from([-(2**63) + 1, -(2**31), -9, 9, 2**31 - 1, 2**63 - 1])
    bounds = [[draw(st.one_of(st.integers(-6, 6), far)) for _ in axes] for _ in range(2)]
    operands: list[Any] = [x, ints(*bounds[0]), ints(*bounds[1])]
    stepped = draw(st.booleans())
    if given or stepped:
        operands.append(ints(*axes) if given else None)
    if stepped:
        operands.append(ints(*[draw(st.sampled_from([-3, -2, -1, 1, 2, 3])) for _ in axes]))
    return Form("Slice", operands, small=(0, 1, 2, 3, 4))


def gather(draw: Draw) -> Form:
    x = tensor(draw, draw(FULL_SHAPES), draw(st.sampled_from([np.float32, np.int64])))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    shape = draw(st.lists(st.integers(0, 3), max_size=2).map(tuple))
    size = x.shape[axis]
    indices = np.random.default_rng(draw(st.integers(0, 99))).integers(-size, size, shape)
    attributes = {} if axis == 0 and draw(st.booleans()) else {"axis": axis}
    return Form("Gather", [x, indices], attributes, small=(0, 1))


def gather_elements(draw: Draw) -> Form:
    x = tensor(draw, draw(FULL_SHAPES))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    indices = np.random.default_rng(draw(st.integers(0, 99))).integers(-x.shape[axis], x.shape[axis], x.shape)
    return Form("GatherElements", [x, indices], {"axis": axis})


def transpose(draw: Draw) -> Form:
    x = tensor(draw, draw(SHAPES), draw(st.sampled_from([np.float32, np.int64])))
    attributes = {"perm": list(draw(st.permutations(range(x.ndim))))} if x.ndim and draw(st.booleans()) else {}
    return Form("Transpose", [x], attributes, small=(0,))


def reshape(draw: Draw) -> Form:
    x = tensor(draw, draw(SHAPES), draw(st.sampled_from([np.float32, np.int64])))
    sizes = list(draw(st.permutations(x.shape)))
    attributes = {}
    if draw(st.booleans()):
        sizes.insert(draw(st.integers(0, len(sizes))), 1)
    allow_zero = draw(st.booleans())
    if allow_zero:
        attributes["allowzero"] = 1
    elif 0 in sizes:
        sizes = list(x.shape)
    known = [index for index in range(len(sizes)) if sizes[index] and 0 not in sizes]
    if known and draw(st.booleans()):
        sizes[draw(st.sampled_from(known))] = -1
    elif not allow_zero:
        sizes = [0 if i < x.ndim and x.shape[i] == s and draw(st.booleans()) else s for i, s in enumerate(sizes)]
    return Form("Reshape", [x, ints(*sizes)], attributes, small=(0, 1), since=14 if attributes else 13)


def flatten(draw: Draw) -> Form:
    x = tensor(draw, draw(FULL_SHAPES))
    return Form("Flatten", [x], {"axis": draw(st.integers(-x.ndim, x.ndim))} if draw(st.booleans()) else {})


def squeeze(draw: Draw) -> Form:
    shape = tuple(1 if draw(st.booleans()) else dim for dim in draw(FULL_SHAPES))
    x = tensor(draw, shape, np.int64)
    if draw(st.booleans()):
        return Form("Squeeze", [x], small=(0,))
    ones = [axis for axis, dim in enumerate(shape) if dim == 1]
    chosen = [axis - x.ndim if draw(st.booleans()) else axis for axis in ones if draw(st.booleans())]
    return Form("Squeeze", [x, ints(*chosen)], small=(0, 1)) if chosen else Form("Squeeze", [x], small=(0,))


def unsqueeze(draw: Draw) -> Form:
    x = tensor(draw, draw(SHAPES), np.int64)
    count = draw(st.integers(1, 2))
    axes = draw(st.permutations(range(x.ndim + count)))[:count]
    axes = [axis - x.ndim - count if draw(st.booleans()) else axis for axis in axes]
    return Form("Unsqueeze", [x, ints(*axes)], small=(0, 1))


def expand(draw: Draw) -> Form:
    shape = draw(SHAPES)
    x = tensor(draw, _subset(draw, shape))
    own = (0,) * (len(shape) - x.ndim) + x.shape
    target = [1 if own[axis] == dim and draw(st.booleans()) else dim for axis, dim in enumerate(shape)]
    return Form("Expand", [x, ints(*target)], small=(0, 1))


def tile(draw: Draw) -> Form:
    x = tensor(draw, draw(FULL_SHAPES))
    return Form("Tile", [x, ints(*(draw(st.integers(0, 2)) for _ in x.shape))], small=(1,))


def constant_of_shape(draw: Draw) -> Form:
    value = draw(st.sampled_from([None, np.asarray([7], np.int64), np.asarray([1], np.float32)]))
    attributes = {} if value is None else {"value": onnx.numpy_helper.from_array(value)}
    return Form("ConstantOfShape", [ints(*draw(SHAPES))], attributes, small=(0,))


def shape_(draw: Draw) -> Form:
    attributes: dict[str, Any] = {}
    if draw(st.booleans()):
        attributes["start"] = draw(st.integers(-5, 5))
    if draw(st.booleans()):
        attributes["end"] = draw(st.integers(-5, 5))
    return Form("Shape", [tensor(draw, draw(SHAPES))], attributes, since=15 if attributes else 13)


def pad(draw: Draw) -> Form:
    x = tensor(draw, draw(FULL_SHAPES))
    mode = draw(st.sampled_from(["constant", "edge", "reflect"]))
    given = draw(st.booleans())
    axes = axes_of(draw, x.ndim, least=1) if given else list(range(x.ndim))
    low = 0 if mode != "constant" else -1
    sizes = [x.shape[axis] for axis in axes] * 2
    most = [min(2, size - 1) if mode == "reflect" else 2 for size in sizes]
    pads = [draw(st.integers(low if size > 2 else 0, most[place])) for place, size in enumerate(sizes)]
    operands: list[Any] = [x, ints(*pads)]
    if given:
        operands += [np.asarray(0.5, np.float32) if draw(st.booleans()) else None, ints(*axes)]
    attributes = {} if mode == "constant" and draw(st.booleans()) else {"mode": mode}
    return Form("Pad", operands, attributes, small=(1, 3), since=18 if given else 13)


def range_(draw: Draw) -> Form:
    delta = draw(st.sampled_from([-3, -1, 1, 2]))
    dtype = draw(st.sampled_from([np.int64, np.float32]))
    values = [draw(st.integers(-5, 5)), draw(st.integers(-5, 9)), delta]
    return Form("Range", [np.asarray(value, dtype) for value in values], small=(0, 1, 2))


def non_zero(draw: Draw) -> Form:
    return Form("NonZero", [tensor(draw, draw(FULL_SHAPES))])


def size_(draw: Draw) -> Form:
    return Form("Size", [tensor(draw, draw(SHAPES))])


def trilu(draw: Draw) -> Form:
    return Form("Trilu", [tensor(draw, (*draw(SHAPES)[:1], 3, 2))], since=14)


FORMS: dict[str, Callable[[Draw], Form]] = {
    **{op: binary(op) for op in ("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum", "Mean")},
    **{op: binary(op) for op in ("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal")},
    **{op: binary(op, np.bool_) for op in ("And", "Or", "Xor")},
    **{op: unary(op) for op in ("Neg", "Identity", "Relu", "Sigmoid", "Tanh", "Exp", "Abs", "Sqrt", "IsNaN", "Clip")},
    "PRelu": prelu,
    "Not": unary("Not", np.bool_),
    "Where": where,
    "Cast": cast,
    **{f"Reduce{k}": reduction(f"Reduce{k}") for k in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare")},
    "ArgMax": arg("ArgMax"),
    "ArgMin": arg("ArgMin"),
    "Softmax": along("Softmax"),
    "LogSoftmax": along("LogSoftmax"),
    "MatMul": matmul,
    "Gemm": gemm,
    "Concat": concat,
    "Split": split,
    "Slice": slice_,
    "Gather": gather,
    "GatherElements": gather_elements,
    "Transpose": transpose,
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Expand": expand,
    "Tile": tile,
    "ConstantOfShape": constant_of_shape,
    "Shape": shape_,
    "Size": size_,
    "Pad": pad,
    "Range": range_,
    "NonZero": non_zero,
    "Trilu": trilu,
}
