"""Definitions of TensorFlow's ops that look elements up by their places.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import agree
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import NUMBERS, ORDERED, RawOp, count_axis, number, shape_of


class Gather(RawOp):
    """Rows of `params`, by number."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are rows."""
        if shape_of(call, "params") == ():
            raise call.error("params", "rank 1 or more", "rank 0")


class GatherV2(RawOp):
    """Slices of `params` along an axis, by number; `batch_dims` leading axes of both belong together."""

    static_operands = ("axis",)

    @classmethod
    def places(cls, call: Call) -> tuple[int, int] | None:
        """The axis and the number of leading axes that belong together; `None` where they are not known."""
        shape, indices, axis = shape_of(call, "params"), shape_of(call, "indices"), number(call, "axis")
        if shape is None or indices is None or axis is None:
            return None
        axis = count_axis(call, "axis", axis, len(shape))
        batch, rank = call.attributes["batch_dims"], len(indices)
        if not -rank <= batch <= rank:
            raise call.error("attribute batch_dims", f"-{rank} to {rank}, the rank of indices", f"{batch}")
        batch += rank if batch < 0 else 0
        if batch > axis:
            raise call.error("attribute batch_dims", f"{axis} at most, the axis", f"{batch}")
        if not agree(shape[:batch], indices[:batch]):
            raise call.error("indices", f"a shape that starts with {list(shape[:batch])} (as params)", list(indices))
        return axis, batch

    @classmethod
    def verify(cls, call: Call) -> None:
        """An axis that params has."""
        cls.places(call)


class GatherNd(RawOp, indices="*S D", bad_indices_policy=("", "DEFAULT", "ERROR")):
    """Slices of `params` by the place that the last axis of `indices` names."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """A place has not more numbers than params has axes."""
        shape, depth = shape_of(call, "params"), call.sizes.get("D")
        if shape is not None and isinstance(depth, int) and depth > len(shape):
            raise call.error("indices", f"a last axis of size {len(shape)} at most (params' rank)", f"{depth}")


class OneHot(RawOp, depth="", on_value="", off_value=""):
    """`on_value` at the place that an index names along a new axis, `off_value` elsewhere."""

    @classmethod
    def place(cls, call: Call) -> int | None:
        """The new axis."""
        shape = shape_of(call, "indices")
        if shape is None:
            return None
        return count_axis(call, "attribute axis", call.attributes["axis"], len(shape) + 1)

    @classmethod
    def verify(cls, call: Call) -> None:
        """An axis that the output has."""
        cls.place(call)


class InvertPermutation(RawOp, x="N"):
    """y[x[i]] = i."""


class _TensorScatter(RawOp, abstract=True, bad_indices_policy=("", "DEFAULT", "ERROR"), indices="*I D"):
    """A copy of `tensor`, changed at the places that the last axis of `indices` names."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """An update is as large as the slice that it changes."""
        tensor, indices, updates = (shape_of(call, name) for name in ("tensor", "indices", "updates"))
        depth = call.sizes.get("D")
        if tensor is None or indices is None or updates is None or not isinstance(depth, int):
            return
        if depth > len(tensor):
            raise call.error("indices", f"a last axis of size {len(tensor)} at most (tensor's rank)", f"{depth}")
        if not agree(updates, (*indices[:-1], *tensor[depth:])):
            raise call.error("updates", f"shape {[*indices[:-1], *tensor[depth:]]}", list(updates))


class TensorScatterUpdate(_TensorScatter):
    """The updates replace the elements at the indices."""


class TensorScatterAdd(_TensorScatter, T=NUMBERS):
    """The updates are added to the elements at the indices."""


class TensorScatterSub(TensorScatterAdd):
    """The updates are subtracted from the elements at the indices."""


class TensorScatterMax(TensorScatterAdd, T=ORDERED):
    """The maximum of the elements at the indices and the updates."""


class TensorScatterMin(TensorScatterMax):
    """The minimum of the elements at the indices and the updates."""
