"""The verbs: rules that lower an op, passes that improve a graph.

`Pass` is the form of a pass, `named()` the passes that people may use, by name: docs/passes.md shows what each makes of
an example. `ll.optimize(model, passes=[...])` runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import lstm_lower.passes.opset.downwards  # noqa: F401 (what builders write in older versions of ONNX, in every pass)

if TYPE_CHECKING:
    from lstm_lower.passes.model_pass import Pass as Pass

__all__ = ["Pass", "named"]


def named() -> dict[str, Callable[[], Pass]]:
    """The passes that people may use: name -> what makes the pass."""
    from lstm_lower.passes.catalog import ENTRIES
    from lstm_lower.passes.pipeline import OptimizePass

    return {OptimizePass.name: OptimizePass, **{entry.name: entry.make for entry in ENTRIES}}


def __getattr__(name: str) -> Any:
    # Not at once: importing the package stays fast.
    if name != "Pass":
        raise AttributeError(f"module 'lstm_lower.passes' has no attribute {name!r}")
    from lstm_lower.passes.model_pass import Pass

    return Pass
