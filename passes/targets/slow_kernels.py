"""Operators for which onnxruntime's kernels on processors take long, in a form for which they do not.

Of these, some take one element after the other where others take eight, and one branches at every element (1.32.0, one
thread of an AMD EPYC):

    PRelu(x, slope)   5.5 ns an element, where the sign of x is not foreseen; 1.4 as  x * where(x < 0, slope, 1)
    Softplus(x)       13.5 ns; 5 as  max(x, 0) + log1p(exp(-|x|))
    Mish(x)           15 ns, since it is made of Softplus; 6.5 as  x * tanh(softplus(x))
    Where(x < y, ..)  4.5 ns, where the comparison is not foreseen; a product with its truth values half of that
    ReduceLogSumExp   4 to 7 ns; 0.4 as  log(sum(exp(x - max(x)))) + max(x)

Each row begins where its nodes save more than they take, and with the version of onnxruntime from which on it does: of
1.26 to 1.32, which were measured, all others serve every one. Such forms come last: the loop passes know the operators.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, tanh
from lstm_lower.passes.formulas.spatial import padded
from lstm_lower.passes.formulas.special_functions import log1p_of_fraction
from lstm_lower.passes.targets.target import Lack

# Elements of which a slow kernel takes as long as the nodes that are added; an open size counts as 64.
LEAST = 1 << 13
# Those with which a node that gives a scalar its rank does.
LEAST_BESIDE_SCALARS = 1 << 12
# Those of which a logarithm of a sum takes as long as the six nodes that stand for it.
LEAST_OF_SUMS = 1 << 11
_COMPARISONS = (std.Less, std.Greater, std.LessOrEqual, std.GreaterOrEqual)
_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def is_large(view: std.Standard) -> bool:
    """Whether there are many elements of float32."""
    return view.dtype() == ir.DataType.FLOAT and view.facts.elements(view.output) >= LEAST


def has_one_slope(view: std.PRelu) -> bool:
    """Whether many elements share a slope: a choice among several is as slow as the kernel."""
    return is_large(view) and view.facts.elements(view.operand(1), unknown=LEAST) == 1


def prelu(view: std.PRelu, b: Builder) -> list[Expr]:
    """A product with the slope or with one."""
    x, slope = (b.wrap(value) for value in view.node.inputs if value is not None)
    return [x * b.where(x < 0, slope, x.like(1))]


def softplus(view: std.Softplus, b: Builder) -> list[Expr]:
    """The logarithm of 1 + exp(x)."""
    return [_softplus(b.wrap(view.data))]


def mish(view: std.Mish, b: Builder) -> list[Expr]:
    """X times the hyperbolic tangent of its softplus."""
    x = b.wrap(view.data)
    return [x * tanh(_softplus(x))]


def _softplus(x: Expr) -> Expr:
    """As exact as the kernel, element by element."""
    return x.maximum(0) + log1p_of_fraction((-x.abs()).exp())


def is_large_sum(view: std.ReduceLogSumExp) -> bool:
    """Whether many elements are reduced along axes that are known."""
    return bool(view.axes) and view.dtype() in _FLOATS and view.facts.elements(view.data) >= LEAST_OF_SUMS


def log_sum_exp(view: std.ReduceLogSumExp, b: Builder) -> list[Expr]:
    """The same in shares of the largest element, unless that is infinite."""
    x, axes = b.wrap(view.data), view.axes or ()
    most = x.reduce(std.ReduceMax, axes)
    most = b.where(b.op(std.IsInf, most), 0, most)
    result = (x - most).exp().sum(axes, keepdims=view.keepdims).log()
    return [result + (most if view.keepdims else most.squeeze(*axes))]


@dataclasses.dataclass(frozen=True)
class _Selection:
    """A Where that keeps numbers or sets them to zero.

    Attributes:
        numbers: what it keeps.
        zero: what it puts in the place of the others.
        inverted: whether its condition says what is dropped, and not what is kept.
    """

    numbers: ir.Value
    zero: ir.Value
    inverted: bool

    @classmethod
    def of(cls, op: std.Where) -> _Selection | None:
        """That of a Where, of one operand that is zero and another of the shape of the result and the condition."""
        facts = op.facts
        if not facts.same_shape(op.condition, op.output):
            return None
        for numbers, zero, inverted in ((op.yes, op.no, False), (op.no, op.yes, True)):
            if facts.uniform(zero) == 0.0 and facts.same_shape(numbers, op.output):
                return cls(numbers, zero, inverted)
        return None


def is_unforeseen_selection(op: std.Where) -> bool:
    """Whether many floats are kept or set to zero by comparisons of numbers that a run computes."""
    if op.dtype(1) not in _FLOATS or op.facts.elements(op.output) < LEAST:
        return False
    return _Selection.of(op) is not None and _is_unforeseeable(op.condition, op.facts)


def selection(op: std.Where, b: Builder) -> list[Expr]:
    """The numbers times truth values; results are equal, infinities and NaN too, but a zero may have another sign.

    Of what is not finite and dropped the product is NaN: 0 * inf. One sum tells whether there may be such numbers, in a
    third of the time in which each product is looked at.
    """
    site = _Selection.of(op)
    assert site is not None
    numbers, condition, zero = b.wrap(site.numbers), b.wrap(op.condition), b.wrap(site.zero)
    total = numbers.sum(range(len(op.facts.shape(site.numbers) or ())))

    def product(inner: Builder) -> Expr:
        kept = inner.op(std.Not, condition) if site.inverted else condition
        return inner.op(std.Mul, numbers, inner.op(std.Cast, kept, to=numbers.dtype))

    def repaired(inner: Builder) -> Expr:
        dropped = condition if site.inverted else inner.op(std.Not, condition)
        result = product(inner)
        return inner.op(std.Where, inner.op(std.IsNaN, result) & dropped, zero, result)

    return b.branch(b.op(std.Equal, total * 0, total.like(0)), lambda x: [product(x)], lambda x: [repaired(x)])


def _is_unforeseeable(condition: ir.Value, facts: std.Knowledge) -> bool:
    """Whether a condition is made of comparisons of floats, of which each place has its own.

    Those of two vectors along different axes, as of rows with columns, hold for many places in a row.
    """
    waiting: list[ir.Value | None] = [condition]
    unforeseen = False
    while waiting:
        op = facts.maker(waiting.pop())
        if isinstance(op, std.And | std.Or | std.Not):
            waiting += op.inputs
        elif isinstance(op, _COMPARISONS) and op.dtype() in _FLOATS:
            unforeseen |= any(facts.same_shape(value, condition) for value in op.inputs)
        else:
            return False
    return unforeseen


# An image has few places, those of the zeros below it included, if so many times their number is at most the square
# root of the number of weights. Measured with 64 to 512 channels, windows of 3x3 and 4x4, and 8 or 64 images.
MANY = 25


@dataclasses.dataclass(frozen=True)
class _Axis:
    """An axis of the images, and how the windows lie on it."""

    size: int
    extent: int
    stride: int
    pads: tuple[int, int]
    more: int

    @property
    def full(self) -> int:
        """The elements that the windows cover."""
        return (self.size - 1) * self.stride + self.extent

    @property
    def result(self) -> int:
        return self.full - sum(self.pads) + self.more

    @property
    def apart(self) -> int:
        """The distance of images at which their results do not meet."""
        return -(-max(self.full, self.pads[0] + self.result) // self.stride)


def _axes(op: std.ConvTranspose) -> list[_Axis]:
    """The axes of images of known sizes, of which there may be more than one; none where they are not to be stacked."""
    image, weights = op.shape(0) or (1,), op.shape(1) or (None,)
    sizes = [size for size in (*weights, *image[2:]) if isinstance(size, int)]
    known = len(sizes) == len(weights) + len(image[2:])
    if not known or image[0] in (0, 1) or op.group != 1 or op.auto_pad != "NOTSET" or op.sizes_are_given:
        return []
    each = zip(
        sizes[len(weights) :],
        *(values or () for values in (op.extents, op.strides, op.pads, op.output_padding)),
        strict=True,
    )
    axes = [_Axis(*values) for values in each]
    places = math.prod(axis.size for axis in axes)
    computed = axes[0].apart * math.prod(axis.size for axis in axes[1:])
    return axes if places > 1 and MANY * computed <= math.isqrt(math.prod(sizes[: len(weights)])) else []


def has_small_images(op: std.ConvTranspose) -> bool:
    """Whether there may be several images of few places, and large weights."""
    return bool(_axes(op))


def stacked(op: std.ConvTranspose, b: Builder) -> list[Expr]:
    """One high image: images one below the other, with as many rows of zeros between as keep one off the next."""
    axes = _axes(op)
    image, weights = b.wrap(op.data), b.wrap(op.weights)
    bias = None if op.bias is None else b.wrap(op.bias)
    first, *others = axes
    turned = [1, 0, *range(2, 2 + len(axes))]
    apart = padded(image.transpose(*turned), [(0, first.apart - first.size), *((0, 0) for _ in others)])
    high = apart.reshape(0, -1, *(axis.size for axis in others)).unsqueeze(0)
    any_number = not isinstance((op.shape(0) or (None,))[0], int)
    if any_number:
        # onnxruntime makes no empty image, which that of an empty batch would be.
        high = padded(high, [(0, 1), *((0, 0) for _ in others)])
    beyond = first.extent - first.stride
    pads = [(0, max(beyond, 0)), *(axis.pads for axis in others)]
    made = b.op(
        std.ConvTranspose,
        high,
        weights,
        bias,
        kernel_shape=list(op.kernel or ()),
        strides=[axis.stride for axis in axes],
        dilations=list(op.dilations or ()),
        pads=[pair[0] for pair in pads] + [pair[1] for pair in pads],
        output_padding=[max(-beyond, 0), *(axis.more for axis in others)],
    )
    if any_number:
        made = made.slice(0, -first.stride, axis=2)
    each = made.squeeze(0).reshape(0, -1, first.apart * first.stride, *(axis.result for axis in others))
    start = first.pads[0]
    return [each.slice(start, start + first.result, axis=2).transpose(*turned)]


def _slow_scalars(op: std.Elementwise) -> list[int]:
    """Operands that are repeated one element at a time."""
    shape = op.facts.shape(op.output)
    # What a function of one operand reads beside it is not broadcast; PReLU's slope has a kernel of its own.
    if not shape or shape[-1] != 1 or isinstance(op, std.Unary | std.PRelu):
        return []
    if math.prod(dim for dim in shape if isinstance(dim, int)) < LEAST_BESIDE_SCALARS:
        return []
    ones = _ones(op)
    shapes = [op.facts.shape(value) for value in op.node.inputs]
    return [
        place
        for place, sizes in enumerate(shapes)
        if sizes is not None and len(sizes) <= ones and all(size == 1 for size in sizes)
    ]


def _ones(op: std.Elementwise) -> int:
    """How many of the result's last axes have size 1."""
    shape = op.facts.shape(op.output) or ()
    return len(list(itertools.takewhile(lambda dim: dim == 1, reversed(shape))))


def meets_scalars(op: std.Elementwise) -> bool:
    """Whether a tensor whose last sizes are 1 meets a scalar of too low a rank."""
    return bool(_slow_scalars(op))


def in_rank_of_ones(op: std.Elementwise, b: Builder) -> list[Expr]:
    """The same operator with scalars of one axis more than there are sizes of 1 at the end."""
    slow, rank = _slow_scalars(op), _ones(op) + 1
    operands = [_widened(value, rank, b) if place in slow else value for place, value in enumerate(op.node.inputs)]
    return [b.wrap(b.again(op.node, operands).outputs[0])]


def _widened(scalar: ir.Value | None, rank: int, b: Builder) -> ir.Value:
    assert scalar is not None
    constant, dtype = b.facts.constant(scalar), b.facts.dtype(scalar)
    if constant is not None and dtype is not None:
        return b.constant(constant.reshape((1,) * rank), dtype).value
    own = b.facts.rank(scalar)
    assert own is not None
    return b.wrap(scalar).unsqueeze(*range(rank - own)).value


ROWS = (
    Lack(
        std.PRelu,
        "of one slope",
        has_one_slope,
        slow=True,
        since="1.27",
        formula=prelu,
        example="(float[512,1024] x, float[1] s) => (float[512,1024] y) { y = PRelu (x, s) }",
    ),
    Lack(
        std.Softplus,
        "of many elements",
        is_large,
        slow=True,
        formula=softplus,
        example="(float[512,1024] x) => (float[512,1024] y) { y = Softplus (x) }",
    ),
    Lack(
        std.Mish,
        "of many elements",
        is_large,
        slow=True,
        formula=mish,
        example="(float[512,1024] x) => (float[512,1024] y) { y = Mish (x) }",
    ),
    Lack(
        std.ReduceLogSumExp,
        "of many elements",
        is_large_sum,
        slow=True,
        formula=log_sum_exp,
        example="""(float[512,1024] x) => (float[512] y) <int64[1] axes = {1}>
          { y = ReduceLogSumExp <keepdims = 0> (x, axes) }""",
    ),
    # The gradient of ReLU, and dropout. Older kernels do not branch: 0.5 ns, half of what the product takes.
    Lack(
        std.Where,
        "between numbers and zero by a comparison",
        is_unforeseen_selection,
        slow=True,
        since="1.32",
        formula=selection,
        example="""(float[512,1024] x, float[512,1024] k) => (float[512,1024] y)
          { zero = Constant <value = float {0.0}> () c = Less (k, zero) y = Where (c, x, zero) }""",
    ),
    # It multiplies the weights with one image after the other, and lays them out anew for each: up to eight times as
    # long. Gradients of convolutions have such images where networks end: 512 channels of 4x4 or 2x2.
    Lack(
        std.ConvTranspose,
        "of small images and large weights",
        has_small_images,
        slow=True,
        formula=stacked,
        example="""(float[32,256,2,2] x, float[256,256,3,3] w) => (float[32,256,4,4] y)
          { y = ConvTranspose (x, w) }""",
    ),
    # Broadcasting skips the last axes of which both operands have one element, and takes an axis that only one operand
    # has for one that is repeated. So a scalar of rank 0 beside a tensor [M,N,1,1] is repeated along the last axis: 14
    # to 60 ns an element in place of 0.3. Weights of convolutions with one place have such shapes, and optimizers are
    # full of scalars.
    Lack(
        std.Elementwise,
        "of a scalar beside sizes of 1",
        meets_scalars,
        slow=True,
        formula=in_rank_of_ones,
        example="(float[256,256,1,1] x, float s) => (float[256,256,1,1] y) { y = Mul (x, s) }",
    ),
)
