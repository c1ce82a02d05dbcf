"""Operators on sequences of tensors and on optional values."""

from __future__ import annotations

from lstm_lower.graph.standard.base import Attribute, Operand, Standard, counted


class SequenceConstruct(Standard): ...


class SequenceEmpty(Standard): ...


class OfSequence(Standard, abstract=True):
    """Its first operand is a sequence."""

    sequence = Operand(0)


class At(OfSequence, abstract=True):
    """Concerns one place of a sequence.

    Attributes:
        place: the operand that names it.
    """

    place = 1

    def position(self, length: int) -> int | None:
        """The place counted from the front; `None` where it is not known, or there is none."""
        given = self.constant(self.place)
        return None if given is None or given.size != 1 else counted(int(given.reshape(-1)[0]), length)


class SequenceInsert(At):
    tensor = Operand(1)
    place = 2


class SequenceErase(At): ...


class SequenceAt(At): ...


class SequenceLength(OfSequence): ...


class SplitToSequence(Standard):
    data = Operand(0)
    keepdims = Attribute("keepdims", 1)

    @property
    def axis(self) -> int | None:
        """The axis that is divided."""
        return counted(self.attribute("axis", 0), self.rank())


class ConcatFromSequence(OfSequence):
    axis = Attribute("axis", 0)
    new_axis = Attribute("new_axis", 0)


class MadeOptional(Standard, op_type="Optional"): ...


class OptionalHasElement(Standard): ...


class OptionalGetElement(Standard): ...
