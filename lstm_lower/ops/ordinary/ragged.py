"""Definitions of TensorFlow's ops on ragged arrays, whose rows differ in length: values, and where rows begin and end.

Signatures: TensorFlow's raw ops of the same names. Symbols: N rows, V values. Splits are the places where rows begin,
and behind them where the last one ends.
"""

from __future__ import annotations

from lstm_lower.opdef import Call
from lstm_lower.ops.raw import INDEX, PAIRED, RawOp, shape_of

# How a partition tells rows apart; the first may tell only how many rows there are.
PARTITIONS = ("FIRST_DIM_SIZE", "VALUE_ROWIDS", "ROW_SPLITS")


class RaggedTensorToTensor(RawOp):
    """A ragged array as a dense one, with `default_value` behind the ends of rows.

    Sizes of `shape` that are -1 are those of the longest row; what does not fit into others is cut off.
    """

    @classmethod
    def verify(cls, call: Call) -> None:
        """A name for each partition, of which only the first may be a number of rows."""
        types = call.attributes["row_partition_types"]
        if len(types) != len(call.lists["row_partition_tensors"]):
            raise call.error("attribute row_partition_types", "a name for each of row_partition_tensors", types)
        wrong = [name for name in types if name not in PARTITIONS]
        if wrong or not types or PARTITIONS[0] in types[1:] or types == [PARTITIONS[0]]:
            raise call.error("attribute row_partition_types", f"names of {', '.join(PARTITIONS)}", types)


class RaggedRange(RawOp, T=(*PAIRED, *INDEX)):
    """Rows of numbers: from `starts` up to below `limits`, by steps of `deltas`, of which each may be one for all."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Scalars and vectors."""
        for name in ("starts", "limits", "deltas"):
            shape = shape_of(call, name)
            if shape is not None and len(shape) > 1:
                raise call.error(name, "rank 1 at most", f"rank {len(shape)}")


class RaggedGather(RawOp, indices="N"):
    """The rows of a ragged array that a vector of indices names."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """A partition or more, and as many of the result: a vector of indices adds none."""
        count, wanted = len(call.lists["params_nested_splits"]), call.attributes["OUTPUT_RAGGED_RANK"]
        if not count:
            raise call.error("params_nested_splits", "one tensor or more", "none")
        if wanted != count:
            raise call.error("attribute OUTPUT_RAGGED_RANK", f"{count}, the number of params_nested_splits", wanted)


class RaggedTensorToSparse(RawOp):
    """A ragged array as a sparse one, with an element for each of its numbers."""
