"""The optimisation pipeline that follows lowering."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from lstm_lower.errors import InvalidInputError
from lstm_lower.passes.emit import Names


@dataclasses.dataclass
class Trace:
    """What every pass did.

    Attributes:
        steps: pass name and text of the graph after it, for every pass that changed something.
    """

    steps: list[tuple[str, str]] = dataclasses.field(default_factory=list)


def parse_schedule(schedule: str) -> tuple[str, int]:
    """Reads `auto`, `scan`, `unroll` or `chunk:K`.

    Raises:
        InvalidInputError: it is none of these.
    """
    kind, _, count = schedule.partition(":")
    if kind == "chunk" and count.isdigit() and int(count) > 0:
        return kind, int(count)
    if schedule in ("auto", "scan", "unroll"):
        return schedule, 0
    raise InvalidInputError(f"schedule requires auto, scan, unroll or chunk:K, got {schedule!r}")


def optimize_graphs(
    model: ir.Model,
    *,
    schedule: str = "auto",
    names: Names | None = None,
    trace: Trace | None = None,
    verify_each: bool = False,
) -> bool:
    """Improves a model in place; whether anything changed."""
    return common_passes.RemoveUnusedNodesPass()(model).modified
