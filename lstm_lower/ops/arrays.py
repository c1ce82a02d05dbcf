"""Definitions of TensorFlow's ops on whole arrays that tf2onnx lacks or gets wrong.

Symbols: R rank of a result, B batch, C classes.
"""

from __future__ import annotations

from lstm_lower.dims import Dim, agree, starts
from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.gradients import ANY, COMPLEX, FLOATS
from lstm_lower.ops.indexing import INDEX, said_shape

_NUMBERS = (*FLOATS, "int32", "int64")


class ScatterNd(OpDef):
    """Zeros of a shape, with updates added at the indices in the last axis of `indices`."""

    class Types:
        T = (*_NUMBERS, "bool", *COMPLEX)
        Tindices = INDEX

    class Inputs:
        indices = operand(None, "Tindices")
        updates = operand(None)
        shape = operand("R", "Tindices")

    class Outputs:
        output = operand(None)

    class Attrs:
        bad_indices_policy = attr(str, "", choices=("", "DEFAULT", "ERROR"))

    @classmethod
    def verify(cls, call: Call) -> None:
        """The updates' shape starts with that of the indices, less its last axis."""
        indices, updates = call.operands["indices"].shape, call.operands["updates"].shape
        if indices is not None and not indices:
            raise call.error("indices", "rank 1 or more", "rank 0")
        if indices is None or updates is None:
            return
        if not starts(updates, indices[:-1]):
            what = f"a shape that starts with {list(indices[:-1])} (as indices)"
            raise call.error("updates", what, list(updates))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The shape that the operand `shape` says."""
        return [TensorInfo(call.types.get("T"), said_shape(call))]


class EuclideanNorm(OpDef):
    """Square root of the sum of squares over axes."""

    static_operands = ("axis",)

    class Types:
        T = FLOATS
        Tidx = INDEX

    class Inputs:
        input = operand(None)
        axis = operand(None, "Tidx")

    class Outputs:
        output = operand(None)

    class Attrs:
        keep_dims = attr(bool, False)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The input's shape without the axes, or with size 1 there."""
        shape, axes = call.operands["input"].shape, call.operands["axis"].value
        dims: tuple[Dim, ...] | None = None
        if shape is not None and axes is not None:
            reduced = {int(axis) % max(len(shape), 1) for axis in axes.ravel()}
            keep = call.attributes["keep_dims"]
            dims = tuple(
                1 if axis in reduced else size for axis, size in enumerate(shape) if keep or axis not in reduced
            )
        return [TensorInfo(call.types.get("T"), dims)]


class LinSpace(OpDef):
    """Numbers at equal distances from start to stop, both included."""

    class Types:
        T = FLOATS
        Tidx = INDEX

    class Inputs:
        start = operand("")
        stop = operand("")
        num = operand("", "Tidx")

    class Outputs:
        output = operand(None)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A vector of `num` numbers."""
        number = call.operands["num"].value
        return [TensorInfo(call.types.get("T"), (None if number is None else int(number),))]


class Rank(OpDef):
    """The number of axes."""

    class Types:
        T = ANY

    class Inputs:
        input = operand("*S")

    class Outputs:
        output = operand("", "int32")


class Reverse(OpDef):
    """Reverses the axes for which `dims` is true."""

    static_operands = ("dims",)

    class Types:
        T = ANY

    class Inputs:
        tensor = operand("*S")
        dims = operand("R", "bool")

    class Outputs:
        output = operand("*S")

    @classmethod
    def verify(cls, call: Call) -> None:
        """One entry of dims for each axis."""
        shape, count = call.operands["tensor"].shape, call.sizes.get("R")
        if shape is not None and isinstance(count, int) and len(shape) != count:
            raise call.error("dims", f"an entry for each of tensor's {len(shape)} axes", f"{count}")


class Diag(OpDef):
    """Zeros of shape S + S with the operand, of shape S, on the diagonal."""

    class Types:
        T = _NUMBERS

    class Inputs:
        diagonal = operand(None)

    class Outputs:
        output = operand(None)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The operand's shape twice."""
        shape = call.operands["diagonal"].shape
        return [TensorInfo(call.types.get("T"), None if shape is None else (*shape, *shape))]


class DiagPart(OpDef):
    """The diagonal of an operand of shape S + S, of shape S."""

    class Types:
        T = _NUMBERS

    class Inputs:
        input = operand(None)

    class Outputs:
        diagonal = operand(None)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The shape is one shape twice."""
        shape = call.operands["input"].shape
        if shape is None:
            return
        half = len(shape) // 2
        if not shape or not agree(shape[:half], shape[half:]):
            raise call.error("input", "a shape of two equal halves", list(shape))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The first half of the operand's shape."""
        shape = call.operands["input"].shape
        return [TensorInfo(call.types.get("T"), None if shape is None else tuple(shape[: len(shape) // 2]))]


class InTopK(OpDef):
    """Whether fewer than k classes have a larger prediction than the target; false where that cannot be said."""

    class Types:
        T = INDEX

    class Inputs:
        predictions = operand("B C", "float32")
        targets = operand("B")

    class Outputs:
        precision = operand("B", "bool")

    class Attrs:
        k = attr(int)


class InTopKV2(InTopK):
    """InTopK with k as an operand."""

    class Inputs(InTopK.Inputs):
        k = operand("")

    class Attrs: ...


class UniqueV2(OpDef):
    """The different slices along an axis, in the order of their first occurrence, and which one each slice is."""

    static_operands = ("axis",)

    class Types:
        T = (*FLOATS, "int32", "int64")
        Taxis = INDEX
        out_idx = INDEX

    class Inputs:
        x = operand(None)
        axis = operand("A", "Taxis")

    class Outputs:
        y = operand(None)
        idx = operand(None, "out_idx")

    class Attrs:
        out_idx = attr(int, int(DType.INT32), choices=(int(DType.INT32), int(DType.INT64)))

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds the dtype of idx; a vector needs no axis."""
        call.types["out_idx"] = DType(call.attributes["out_idx"])
        shape, count = call.operands["x"].shape, call.sizes.get("A")
        if isinstance(count, int) and count > 1:
            raise call.error("axis", "one entry at most", f"{count}")
        if shape is not None and count == 0 and len(shape) != 1:
            raise call.error("axis", f"an entry for x of rank {len(shape)}", "none")
        if shape is not None and (axis := call.operands["axis"].value) is not None:
            for entry in axis.ravel().tolist():
                if not -len(shape) <= entry < len(shape):
                    raise call.error("axis", f"an axis of x of rank {len(shape)}", f"{entry}")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """How many slices differ is known at run time only."""
        shape, axis = call.operands["x"].shape, call.operands["axis"].value
        dims: tuple[Dim, ...] | None = None
        size: Dim = None
        if shape is not None and (axis is not None or len(shape) == 1):
            chosen = int(axis[0]) % len(shape) if axis is not None and axis.size else 0
            size = shape[chosen]
            dims = tuple(None if position == chosen else length for position, length in enumerate(shape))
        return [TensorInfo(call.types.get("T"), dims), TensorInfo(call.types["out_idx"], (size,))]


class CumulativeLogsumexp(OpDef):
    """log of the running sum of exp(x) along an axis, without overflow."""

    static_operands = ("axis",)

    class Types:
        T = FLOATS
        Tidx = INDEX

    class Inputs:
        x = operand("*S")
        axis = operand("", "Tidx")

    class Outputs:
        out = operand("*S")

    class Attrs:
        exclusive = attr(bool, False)
        reverse = attr(bool, False)
