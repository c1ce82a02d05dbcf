"""Learning rates in a table: those of schedules that are not a formula of the number of updates."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import onnx_ir as ir

from lstm_lower.graph.builder import Expr

# How the node that reads a table is called, so that errors of any runtime say what is wrong.
_NAME = "the_schedule_ends_after_{}_updates"


def ended(message: str) -> int | None:
    """The number of updates in the table whose end an error of onnxruntime is about; `None` for any other error."""
    found = re.search(_NAME.format(r"(\d+)"), message)
    return None if found is None else int(found[1])


@dataclasses.dataclass(frozen=True)
class RateTable:
    """Multiplied by an entry for each update.

    Behind the last one there is no learning rate: onnxruntime's processor kernels fail by the name of the node that
        reads the table, and where a kernel does not look at bounds, the rate is NaN.

    Attributes:
        factors: of the updates from `start` on, in units of the first rate.
        start: number of updates that were done before the first of them.
        table: momentum, or first beta, of each update; empty where it stays.
    """

    factors: tuple[float, ...]
    start: int = 0
    table: tuple[float, ...] = ()

    def rate(self, first: Expr, count: Expr) -> Expr:
        return first * self._entry(self.factors, count)

    @property
    def momentums(self) -> tuple[float, float] | None:
        """See `MovesMomentum`."""
        return (min(self.table), max(self.table)) if self.table else None

    def momentum(self, count: Expr) -> Expr:
        """See `MovesMomentum`."""
        return self._entry(self.table, count)

    def _entry(self, table: tuple[float, ...], count: Expr) -> Expr:
        b = count.builder
        end = self.start + len(table)
        index = (count - self.start).cast(ir.DataType.INT64)
        entry = b.constant(np.asarray(table), count.dtype).take(index)
        reader = entry.value.producer()
        assert reader is not None
        reader.name = b.names.fresh(f"{_NAME.format(end)}/{reader.op_type}")
        return b.where(count < float(end), entry, math.nan)
