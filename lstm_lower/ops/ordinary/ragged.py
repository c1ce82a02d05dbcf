"""Definitions of TensorFlow's ops on ragged arrays, whose rows differ in length: values, and where rows begin and end.

Signatures: TensorFlow's raw ops of the same names. Symbols: N rows, V values. Splits are the places where rows begin,
and behind them where the last one ends.
"""

from __future__ import annotations

from lstm_lower.dims import Dim
from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.ordinary.bases import ALL, INDEX, numbers, shape_of

# How a partition tells rows apart; the first may tell only how many rows there are.
PARTITIONS = ("FIRST_DIM_SIZE", "VALUE_ROWIDS", "ROW_SPLITS")


class RaggedTensorToTensor(OpDef):
    """A ragged array as a dense one, with `default_value` behind the ends of rows.

    Sizes of `shape` that are -1 are those of the longest row; what does not fit into others is cut off.
    """

    class Types:
        T = ALL
        Tindex = INDEX
        Tshape = INDEX

    class Inputs:
        shape = operand(None, "Tshape")
        values = operand(None)
        default_value = operand(None)
        row_partition_tensors = operand(None, "Tindex", variadic=True, count="num_row_partition_tensors")

    class Outputs:
        result = operand(None)

    class Attrs:
        num_row_partition_tensors = attr(int, 0)
        row_partition_types = attr(list[str])

    @classmethod
    def verify(cls, call: Call) -> None:
        """A name for each partition, of which only the first may be a number of rows."""
        types = call.attributes["row_partition_types"]
        if len(types) != len(call.lists["row_partition_tensors"]):
            raise call.error("attribute row_partition_types", "a name for each of row_partition_tensors", types)
        wrong = [name for name in types if name not in PARTITIONS]
        if wrong or not types or PARTITIONS[0] in types[1:] or types == [PARTITIONS[0]]:
            raise call.error("attribute row_partition_types", f"names of {', '.join(PARTITIONS)}", types)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """An axis for each partition and one in front of them, and those of each value."""
        values = shape_of(call, "values")
        if values is None:
            return [TensorInfo(call.types.get("T"), None)]
        levels = sum(name != PARTITIONS[0] for name in call.attributes["row_partition_types"])
        dims: list[Dim] = [*[None] * (levels + 1), *values[1:]]
        for axis, size in enumerate((shape_of(call, "shape") and numbers(call, "shape")) or ()):
            if size >= 0 and axis < len(dims):
                dims[axis] = size
        return [TensorInfo(call.types.get("T"), tuple(dims))]


class RaggedRange(OpDef):
    """Rows of numbers: from `starts` up to below `limits`, by steps of `deltas`, of which each may be one for all."""

    class Types:
        T = ("float32", "float64", "int32", "int64")
        Tsplits = INDEX

    class Inputs:
        starts = operand(None)
        limits = operand(None)
        deltas = operand(None)

    class Outputs:
        rt_nested_splits = operand(None, "Tsplits")
        rt_dense_values = operand(None)

    class Attrs:
        Tsplits = attr(DType, DType.INT64, choices=(DType.INT32, DType.INT64))

    @classmethod
    def verify(cls, call: Call) -> None:
        """Scalars and vectors."""
        call.types["Tsplits"] = call.attributes["Tsplits"]
        for name in ("starts", "limits", "deltas"):
            shape = shape_of(call, name)
            if shape is not None and len(shape) > 1:
                raise call.error(name, "rank 1 at most", f"rank {len(shape)}")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """One more split than there are rows."""
        rows = [shape[0] for name in ("starts", "limits", "deltas") if (shape := shape_of(call, name))]
        count = next((size for size in rows if isinstance(size, int)), None if rows else 1)
        splits = None if count is None else count + 1
        return [TensorInfo(call.attributes["Tsplits"], (splits,)), TensorInfo(call.types.get("T"), (None,))]


class RaggedGather(OpDef):
    """The rows of a ragged array that a vector of indices names."""

    class Types:
        Tvalues = ALL
        Tindices = INDEX
        Tsplits = INDEX

    class Inputs:
        params_nested_splits = operand(None, "Tsplits", variadic=True, count="PARAMS_RAGGED_RANK")
        params_dense_values = operand(None, "Tvalues")
        indices = operand("N", "Tindices")

    class Outputs:
        output_nested_splits = operand(None, "Tsplits", variadic=True, count="OUTPUT_RAGGED_RANK")
        output_dense_values = operand(None, "Tvalues")

    class Attrs:
        PARAMS_RAGGED_RANK = attr(int, 0)
        OUTPUT_RAGGED_RANK = attr(int)

    @classmethod
    def verify(cls, call: Call) -> None:
        """A partition or more, and as many of the result: a vector of indices adds none."""
        count, wanted = len(call.lists["params_nested_splits"]), call.attributes["OUTPUT_RAGGED_RANK"]
        if not count:
            raise call.error("params_nested_splits", "one tensor or more", "none")
        if wanted != count:
            raise call.error("attribute OUTPUT_RAGGED_RANK", f"{count}, the number of params_nested_splits", wanted)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """One more split than there are indices; how many values are known at run time only."""
        rows, values = call.sizes.get("N"), shape_of(call, "params_dense_values")
        first = rows + 1 if isinstance(rows, int) else None
        splits = [(first,), *[(None,)] * (call.attributes["OUTPUT_RAGGED_RANK"] - 1)]
        dims = None if values is None else (None, *values[1:])
        return [
            *(TensorInfo(call.types.get("Tsplits"), shape) for shape in splits),
            TensorInfo(call.types.get("Tvalues"), dims),
        ]


class RaggedTensorToSparse(OpDef):
    """A ragged array as a sparse one, with an element for each of its numbers."""

    class Types:
        T = ALL
        Tsplits = INDEX

    class Inputs:
        rt_nested_splits = operand(None, "Tsplits", variadic=True, count="RAGGED_RANK")
        rt_dense_values = operand(None)

    class Outputs:
        sparse_indices = operand(None, "int64")
        sparse_values = operand(None)
        sparse_dense_shape = operand(None, "int64")

    class Attrs:
        RAGGED_RANK = attr(int, 0)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A row for each number."""
        values = shape_of(call, "rt_dense_values")
        rank = None if values is None else len(values) + len(call.lists["rt_nested_splits"])
        count = values[0] if values is not None and len(values) == 1 else None
        return [
            TensorInfo(DType.INT64, (count, rank)),
            TensorInfo(call.types.get("T"), (count,)),
            TensorInfo(DType.INT64, (rank,)),
        ]
