"""Definitions of TensorFlow's losses that return their gradient beside the loss.

Symbols: B batch, C classes, T time steps, N labels in all.
"""

from __future__ import annotations

from lstm_lower.dims import Dim
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp


class SoftmaxCrossEntropyWithLogits(RawOp):
    """Cross entropy of softmax(features) against a distribution, with its gradient; the operands broadcast."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds B and C, which the two operands' shapes broadcast to."""
        shapes = []
        for name in ("features", "labels"):
            shape = call.operands[name].shape
            if shape is None:
                return
            if len(shape) != 2:
                raise call.error(name, "rank 2 [B, C]", f"rank {len(shape)}")
            shapes.append(shape)
        for axis, symbol in enumerate("BC"):
            pair = [shape[axis] for shape in shapes]
            known = [dim for dim in pair if isinstance(dim, int) and dim != 1]
            if len(set(known)) > 1:
                raise call.error("labels", f"axis {axis} of size 1 or {pair[0]} (as features)", pair[1])
            call.unifier.sizes[symbol] = _broadcast(pair)


def _broadcast(pair: list[Dim]) -> Dim:
    large = [dim for dim in pair if dim != 1]
    sizes = [dim for dim in large if isinstance(dim, int)]
    if sizes or not large:
        return sizes[0] if sizes else 1
    return large[0] if all(dim == large[0] for dim in large) else None


class SparseSoftmaxCrossEntropyWithLogits(RawOp, features="B C", labels="B"):
    """Cross entropy of softmax(features) against class numbers, with its gradient; a label outside 0..C-1 fails."""

    indexes = ("labels", "C")


class CTCLoss(RawOp, inputs="T B C", labels_indices="N 2", labels_values="N", sequence_length="B"):
    """Connectionist temporal classification loss, with its gradient; the last class is the blank.

    The labels are a sparse matrix [B, longest], given by `labels_indices` and `labels_values`; `inputs` are logits.
    """

    @classmethod
    def verify(cls, call: Call) -> None:
        """There must be a class beside the blank, or at least the blank."""
        if call.sizes.get("C") == 0:
            raise call.error("inputs", "at least one class", "none")


class CTCLossV2(CTCLoss):
    """Connectionist temporal classification loss, with its gradient; class 0 is the blank."""
