"""Export of PyTorch modules as training steps; needs the extra [torch]."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from lstm_lower.extras import needed_by

if TYPE_CHECKING:
    from lstm_lower.torch.importer import from_torch as from_torch
    from lstm_lower.torch.loops import scan as scan

__all__ = ["from_torch", "scan"]


def __getattr__(name: str) -> Any:
    if name == "scan":
        with needed_by("a loop over PyTorch's tensors"):
            from lstm_lower.torch.loops import scan
        globals()[name] = scan
        return scan
    if name != "from_torch":
        raise AttributeError(f"module 'lstm_lower.torch' has no attribute {name!r}")
    # PyTorch asks whether triton is there, and need not find it. Where TensorFlow was imported before, the process
    # ends while triton is: both have an LLVM of their own.
    if "tensorflow" in sys.modules:
        sys.modules.setdefault("triton", None)  # type: ignore[arg-type]  # what Python takes for a module that is missing
    with needed_by("the export of a PyTorch module"):
        from lstm_lower.torch.importer import from_torch
    globals()[name] = from_torch
    return from_torch
