"""Reductions, and operators that accumulate or search along an axis."""

from __future__ import annotations

from lstm_lower.graph.standard.view import Attribute, Operand, Standard, all_counted, counted


class Reduction(Standard, abstract=True):
    """Reduces axes."""

    data = Operand(0)

    @property
    def written_axes(self) -> tuple[int, ...] | None:
        """The axes as they are written, negative ones counted from behind; `None` when left out or not known."""
        return self.ints(1, "axes")

    @property
    def axes(self) -> tuple[int, ...] | None:
        """The axes that are reduced, counted from the front; `None` when they are not known."""
        rank = self.rank()
        given = self.written_axes
        if given is None and self.says(1, "axes"):
            return None
        if not given:
            if not self.is_total:
                return ()
            return None if rank is None else tuple(range(rank))
        return all_counted(given, rank)

    @property
    def is_total(self) -> bool:
        """Whether all axes are reduced, however many there are."""
        given = self.written_axes
        named = bool(given) or (given is None and self.says(1, "axes"))
        return not named and not self.attribute("noop_with_empty_axes", 0)

    @property
    def keepdims(self) -> bool:
        """Whether reduced axes stay, with size 1."""
        return bool(self.attribute("keepdims", 1))


class ReduceSum(Reduction):
    linear = (0,)


class ReduceMean(Reduction):
    linear = (0,)


class ReduceMax(Reduction): ...


class ReduceMin(Reduction): ...


class ReduceProd(Reduction): ...


class ReduceL1(Reduction): ...


class ReduceL2(Reduction): ...


class ReduceLogSum(Reduction): ...


class ReduceLogSumExp(Reduction): ...


class ReduceSumSquare(Reduction): ...


class AlongAxis(Standard, abstract=True):
    """Looks at all elements along one axis; the result keeps the operand's shape."""

    data = Operand(0)
    default_axis = -1

    @property
    def written_axis(self) -> int:
        """The axis as it is written, a negative one counted from behind."""
        return int(self.attribute("axis", self.default_axis))

    @property
    def axis(self) -> int | None:
        """The axis, counted from the front."""
        return counted(self.written_axis, self.rank())


class Softmax(AlongAxis): ...


class LogSoftmax(AlongAxis): ...


class Hardmax(AlongAxis): ...


class Arg(Standard, abstract=True):
    """The position of an extreme element along an axis."""

    data = Operand(0)
    keepdims = Attribute("keepdims", 1)

    @property
    def axis(self) -> int | None:
        """The axis, counted from the front."""
        return counted(self.attribute("axis", 0), self.rank())


class ArgMax(Arg): ...


class ArgMin(Arg): ...


class Cumulative(Standard, abstract=True):
    """Reduces everything up to each element along an axis."""

    data = Operand(0)
    exclusive = Attribute("exclusive", 0)
    reverse = Attribute("reverse", 0)

    @property
    def axis(self) -> int | None:
        """The axis, counted from the front."""
        given = self.constant(1)
        return None if given is None or given.size != 1 else counted(int(given.reshape(-1)[0]), self.rank())


class CumSum(Cumulative):
    linear = (0,)


class CumProd(Cumulative): ...
