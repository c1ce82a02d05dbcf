"""Definitions of TensorFlow's ops that look elements up by their places.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import agree
from lstm_lower.opdef import Call, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.ordinary.bases import (
    ALL,
    INDEX,
    ORDERED,
    REAL,
    count_axis,
    number,
    result,
    shape_of,
)


class Gather(OpDef):
    """Rows of `params`, by number."""

    class Types:
        Tparams = ALL
        Tindices = INDEX

    class Inputs:
        params = operand(None, "Tparams")
        indices = operand(None, "Tindices")

    class Outputs:
        output = operand(None, "Tparams")

    class Attrs:
        validate_indices = attr(bool, True)

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are rows."""
        if shape_of(call, "params") == ():
            raise call.error("params", "rank 1 or more", "rank 0")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The indices' shape, then that of a row."""
        rows, indices = shape_of(call, "params"), shape_of(call, "indices")
        return result(call, None if rows is None or indices is None else (*indices, *rows[1:]), "Tparams")


class GatherV2(OpDef):
    """Slices of `params` along an axis, by number; `batch_dims` leading axes of both belong together."""

    static_operands = ("axis",)

    class Types:
        Tparams = ALL
        Tindices = ("int16", *INDEX)
        Taxis = INDEX

    class Inputs:
        params = operand(None, "Tparams")
        indices = operand(None, "Tindices")
        axis = operand(None, "Taxis")

    class Outputs:
        output = operand(None, "Tparams")

    class Attrs:
        batch_dims = attr(int, 0)

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

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The indices' shape in the place of the axis."""
        places, shape, indices = cls.places(call), shape_of(call, "params"), shape_of(call, "indices")
        if places is None or shape is None or indices is None:
            return result(call, None, "Tparams")
        axis, batch = places
        return result(call, (*shape[:axis], *indices[batch:], *shape[axis + 1 :]), "Tparams")


class GatherNd(OpDef):
    """Slices of `params` by the place that the last axis of `indices` names."""

    class Types:
        Tparams = ALL
        Tindices = ("int16", *INDEX)

    class Inputs:
        params = operand(None, "Tparams")
        indices = operand("*S D", "Tindices")

    class Outputs:
        output = operand(None, "Tparams")

    class Attrs:
        bad_indices_policy = attr(str, "", choices=("", "DEFAULT", "ERROR"))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The indices' shape less its last axis, then that of a slice."""
        shape, indices, depth = shape_of(call, "params"), shape_of(call, "indices"), call.sizes.get("D")
        if shape is None or indices is None or not isinstance(depth, int):
            return result(call, None, "Tparams")
        if depth > len(shape):
            raise call.error("indices", f"a last axis of size {len(shape)} at most (params' rank)", f"{depth}")
        return result(call, (*indices[:-1], *shape[depth:]), "Tparams")


class OneHot(OpDef):
    """`on_value` at the place that an index names along a new axis, `off_value` elsewhere."""

    class Types:
        T = ALL
        TI = ("uint8", "int8", *INDEX)

    class Inputs:
        indices = operand(None, "TI")
        depth = operand("", "int32")
        on_value = operand("")
        off_value = operand("")

    class Outputs:
        output = operand(None)

    class Attrs:
        axis = attr(int, -1)

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

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The indices' shape with `depth` at the axis."""
        shape, axis = shape_of(call, "indices"), cls.place(call)
        if shape is None or axis is None:
            return result(call, None)
        return result(call, (*shape[:axis], number(call, "depth"), *shape[axis:]))


class InvertPermutation(OpDef):
    """y[x[i]] = i."""

    class Types:
        T = INDEX

    class Inputs:
        x = operand("N")

    class Outputs:
        y = operand("N")


class _TensorScatter(OpDef, abstract=True):
    """A copy of `tensor`, changed at the places that the last axis of `indices` names."""

    class Types:
        T = ALL
        Tindices = ("int16", "uint16", *INDEX)

    class Inputs:
        tensor = operand("*S")
        indices = operand("*I D", "Tindices")
        updates = operand(None)

    class Outputs:
        output = operand("*S")

    class Attrs:
        bad_indices_policy = attr(str, "", choices=("", "DEFAULT", "ERROR"))

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


class TensorScatterAdd(_TensorScatter):
    """The updates are added to the elements at the indices."""

    class Types:
        T = REAL
        Tindices = INDEX


class TensorScatterSub(TensorScatterAdd):
    """The updates are subtracted from the elements at the indices."""


class TensorScatterMax(TensorScatterAdd):
    """The maximum of the elements at the indices and the updates."""

    class Types:
        T = ORDERED
        Tindices = INDEX


class TensorScatterMin(TensorScatterMax):
    """The minimum of the elements at the indices and the updates."""
