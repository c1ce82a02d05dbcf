"""Operators that rearrange or select elements, or make arrays of sizes."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph.standard.view import (
    Attribute,
    Operand,
    Optional,
    Standard,
    all_counted,
    constant_of,
    counted,
    text,
)
from lstm_lower.graph.values import Array, Dim


class Moving(Standard, abstract=True):
    """Every element of the result is one of its first operand's."""

    linear = (0,)
    data = Operand(0)


class Reshape(Moving):
    target = Operand(1)
    allowzero = Attribute("allowzero", 0)


class Flatten(Moving):
    @property
    def axis(self) -> int | None:
        """The first axis of the second dimension, from 0 to the rank."""
        axis, rank = self.attribute("axis", 1), self.rank()
        return axis if axis >= 0 else None if rank is None else axis + rank


class Expand(Moving):
    target = Operand(1)


class Tile(Moving):
    repeats = Operand(1)

    @property
    def demanded_rank(self) -> int | None:
        """As many axes as there are numbers of repetitions."""
        return self._length(1)


class Transpose(Moving):
    @property
    def perm(self) -> tuple[int, ...] | None:
        """The axes of the operand in the order of the result; `None` when not even their number is known."""
        given = self.attribute("perm", None)
        if given is not None:
            return tuple(given)
        rank = self.rank()
        return None if rank is None else tuple(reversed(range(rank)))


class Squeeze(Moving):
    @property
    def axes(self) -> tuple[int, ...] | None:
        """The axes that go; without any given those known to be of size 1, if all sizes are known."""
        given = self.ints(1, "axes") if self.says(1, "axes") else ()
        if given != ():
            return all_counted(given, self.rank())
        shape = self.shape()
        if shape is None or not all(isinstance(dim, int) for dim in shape):
            return None
        single = tuple(axis for axis, dim in enumerate(shape) if dim == 1)
        # An empty list of axes is all or none of these, as the runtime likes it.
        return None if single and self.says(1, "axes") else single


class Unsqueeze(Moving):
    @property
    def axes(self) -> tuple[int, ...] | None:
        """The axes of the result that are new."""
        given, rank = self.ints(1, "axes"), self.rank()
        if given is None or (rank is None and any(axis < 0 for axis in given)):
            return None
        return all_counted(given, None if rank is None else rank + len(given))


class Slice(Moving):
    """Opset 10 or newer: bounds are operands."""

    starts = Operand(1)
    ends = Operand(2)

    @property
    def axes(self) -> tuple[int, ...] | None:
        """The axes that are cut."""
        if self.operand(3) is not None:
            return all_counted(self.ints(3, ""), self.rank())
        count = next((len(e) for e in map(self.facts.entries, (self.starts, self.ends)) if e is not None), None)
        return None if count is None else tuple(range(count))

    @property
    def steps(self) -> tuple[int, ...] | None:
        """One step for each of the axes."""
        if self.operand(4) is not None:
            return self.ints(4, "")
        axes = self.axes
        return None if axes is None else (1,) * len(axes)


class Gather(Moving):
    indices = Operand(1)

    @property
    def axis(self) -> int | None:
        """The axis that the indices count along."""
        return counted(self.attribute("axis", 0), self.rank())


class GatherElements(Moving):
    indices = Operand(1)

    @property
    def axis(self) -> int | None:
        """The axis that the indices count along."""
        return counted(self.attribute("axis", 0), self.rank())


class GatherND(Moving):
    indices = Operand(1)
    batch_dims = Attribute("batch_dims", 0)


class Split(Moving):
    @property
    def axis(self) -> int | None:
        """The axis that is divided."""
        return counted(self.attribute("axis", 0), self.rank())

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The sizes of the parts; `None` when they are only known at run time."""
        if self.says(1, "split"):
            return self.ints(1, "split")
        shape, axis, count = self.shape(), self.axis, len(self.node.outputs)
        whole = None if shape is None or axis is None else shape[axis]
        if not isinstance(whole, int):
            return None
        # Parts are of equal size, but for the last one, which may be smaller.
        each = -(-whole // count)
        return (*(each,) * (count - 1), whole - each * (count - 1)) if whole >= each * (count - 1) else None


class ReverseSequence(Moving):
    lengths = Operand(1)


class Blocks(Standard, abstract=True):
    """Lays blocks of an image's places out as channels, or the other way round."""

    data = Operand(0)
    demanded_rank = 4
    blocksize = Attribute("blocksize", 1)

    @property
    def mode(self) -> str:
        """`DCR`, where a block's place stands before the channel, or `CRD`, where it stands behind."""
        return text(self.attribute("mode", "DCR"))


class DepthToSpace(Blocks): ...


class SpaceToDepth(Blocks): ...


class CenterCropPad(Standard):
    data = Operand(0)
    target = Operand(1)

    @property
    def axes(self) -> tuple[int, ...] | None:
        """The axes that get the target's sizes, in its order."""
        given, rank = self.attribute("axes", None), self.rank()
        if given is None:
            return None if rank is None else tuple(range(rank))
        return all_counted(tuple(given), rank)


class Compress(Standard):
    data = Operand(0)
    condition = Operand(1)


class Trilu(Standard):
    data = Operand(0)
    which = Optional(1)
    upper = Attribute("upper", 1)


class Concat(Standard):
    linear = ()

    @property
    def parts(self) -> tuple[ir.Value, ...]:
        """The operands that are joined."""
        return tuple(value for value in self.node.inputs if value is not None)

    @property
    def axis(self) -> int | None:
        """The axis along which the parts are joined."""
        rank = next((rank for rank in map(self.facts.rank, self.parts) if rank is not None), None)
        return counted(self.attribute("axis", 0), rank)


class Pad(Standard):
    """Opset 11 or newer: pads are operands."""

    data = Operand(0)
    value = Optional(2)

    @property
    def mode(self) -> str:
        """`constant`, `reflect`, `edge` or `wrap`."""
        return text(self.attribute("mode", "constant"))

    @property
    def axes(self) -> tuple[int, ...] | None:
        """The padded axes, in the order in which `pads` counts them."""
        if self.operand(3) is not None:
            return all_counted(self.ints(3, ""), self.rank())
        pads = self.facts.entries(self.operand(1))
        return None if pads is None else tuple(range(len(pads) // 2))

    @property
    def widths(self) -> tuple[tuple[Dim, Dim], ...] | None:
        """Elements before and after, for each axis of the operand, as far as they are known; `None` without axes."""
        given, axes, rank = self.facts.entries(self.operand(1)), self.axes, self.rank()
        if given is None or axes is None or rank is None or len(given) != 2 * len(axes):
            return None
        pairs = dict(zip(axes, zip(given[: len(axes)], given[len(axes) :], strict=True), strict=True))
        return tuple(pairs.get(axis, (0, 0)) for axis in range(rank))

    @property
    def pads(self) -> tuple[tuple[int, int], ...] | None:
        """Elements before and after, for each axis of the operand; `None` when not all are known."""
        known = [
            (before, after) for before, after in self.widths or () if isinstance(before, int) and isinstance(after, int)
        ]
        return None if self.widths is None or len(known) < len(self.widths) else tuple(known)


class Shape(Standard):
    data = Operand(0)

    @property
    def bounds(self) -> slice:
        """The dimensions that the result holds."""
        return slice(self.attribute("start", 0), self.attribute("end", None))


class Size(Standard):
    data = Operand(0)


class Range(Standard):
    start = Operand(0)
    limit = Operand(1)
    delta = Operand(2)


class Constant(Standard):
    @property
    def array(self) -> Array | None:
        """The value."""
        return constant_of(self.output)


class EyeLike(Standard):
    data = Operand(0)


class ConstantOfShape(Standard):
    target = Operand(0)

    @property
    def fill(self) -> ir.TensorProtocol | None:
        """The one value with its dtype; `None` for zeros of float32."""
        tensor: ir.TensorProtocol | None = self.attribute("value", None)
        return tensor


class NonZero(Standard):
    data = Operand(0)


class OneHot(Standard):
    indices = Operand(0)
    depth = Operand(1)
    values = Operand(2)


class TopK(Standard):
    data = Operand(0)

    @property
    def axis(self) -> int | None:
        """The axis along which elements are compared."""
        return counted(self.attribute("axis", -1), self.rank())


class Unique(Standard):
    data = Operand(0)


class Scatter(Standard, abstract=True):
    """Writes updates into a copy of its first operand, or combines them with what stands there."""

    data = Operand(0)
    indices = Operand(1)
    updates = Operand(2)

    @property
    def reduction(self) -> str:
        """`none`, `add`, `mul`, `max` or `min`."""
        return text(self.attribute("reduction", "none"))


class TensorScatter(Standard):
    """Writes updates one behind another into a cache; where they begin each example says."""

    data = Operand(0)
    updates = Operand(1)
    starts = Optional(2)


class ScatterND(Scatter): ...


class PlainScatter(Standard, op_type="Scatter"):
    """ScatterElements as it was before opset 11."""


class ScatterElements(Scatter):
    @property
    def axis(self) -> int | None:
        """The axis that the indices count along."""
        return counted(self.attribute("axis", 0), self.rank())


# Operators between complex numbers and their parts, which ONNX lacks: no finished model has any.


_DOMAIN = "lstm_lower.complex"


class PartsOf(Standard, domain=_DOMAIN):
    """The real and the imaginary parts of complex numbers, along a last axis of two."""

    data = Operand(0)


class OfParts(Standard, domain=_DOMAIN):
    """The complex numbers of parts along a last axis of two."""

    data = Operand(0)
