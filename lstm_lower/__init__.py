"""lstm-lower: recurrent training ops, forward and backward, as standard ONNX.

    import lstm_lower as ll

    model = ll.lower("train.onnx")              # only ai.onnx operators are left
    session = ll.Session(model)                 # stock onnxruntime
    out = ll.raw_ops.BlockLSTMGrad(...)         # one op, numpy in and out

What is heavy is imported when it is first used, so that importing the package stays fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstm_lower import forks, telemetry
from lstm_lower.errors import InvalidInputError, InvalidModelError, LstmLowerError, UnsupportedOpError

if TYPE_CHECKING:
    from lstm_lower import raw_ops as raw_ops
    from lstm_lower.keras import from_keras as from_keras
    from lstm_lower.onnx import from_onnx as from_onnx
    from lstm_lower.onnx import replace_head as replace_head
    from lstm_lower.onnx import split_head as split_head
    from lstm_lower.passes.differentiate import gradient as gradient
    from lstm_lower.passes.lower import lower as lower
    from lstm_lower.passes.pipeline import optimize as optimize
    from lstm_lower.runtime.session import Session as Session
    from lstm_lower.runtime.training.adapters import export_adapter as export_adapter
    from lstm_lower.runtime.training.adapters import merge as merge
    from lstm_lower.runtime.training.bundle import export_training as export_training
    from lstm_lower.runtime.training.low_rank import export_peft as export_peft
    from lstm_lower.runtime.training.low_rank import lora as lora
    from lstm_lower.runtime.training.trainer import Trainer as Trainer
    from lstm_lower.tensorflow import from_tensorflow as from_tensorflow
    from lstm_lower.tensorflow import tf2onnx_ops as tf2onnx_ops
    from lstm_lower.torch import from_torch as from_torch
    from lstm_lower.torch import scan as scan

__version__ = "0.1.0"

__all__ = [
    "InvalidInputError",
    "InvalidModelError",
    "LstmLowerError",
    "Session",
    "Trainer",
    "UnsupportedOpError",
    "export_adapter",
    "export_peft",
    "export_training",
    "from_keras",
    "from_onnx",
    "from_tensorflow",
    "from_torch",
    "gradient",
    "lora",
    "lower",
    "merge",
    "optimize",
    "raw_ops",
    "replace_head",
    "scan",
    "split_head",
    "tf2onnx_ops",
]


class _Checkout(MetaPathFinder):
    """Finder of the two subpackages that lie beside the package in a checkout, and inside it once it is installed."""

    _ROOT = Path(__file__).resolve().parent.parent

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname not in ("lstm_lower.passes", "lstm_lower.runtime"):
            return None
        folder = self._ROOT / fullname.rpartition(".")[2]
        return spec_from_file_location(fullname, folder / "__init__.py", submodule_search_locations=[str(folder)])


# Before others: without it the folder would shadow an installed wheel, and miss them, when Python starts in the root.
if not (Path(__file__).parent / "passes").is_dir():
    sys.meta_path.insert(0, _Checkout())

# Whatever of the package is imported, this is executed first.
telemetry.turn_off()

_LAZY = {
    "Session": "lstm_lower.runtime.session",
    "Trainer": "lstm_lower.runtime.training.trainer",
    "export_training": "lstm_lower.runtime.training.bundle",
    "export_adapter": "lstm_lower.runtime.training.adapters",
    "export_peft": "lstm_lower.runtime.training.low_rank",
    "lora": "lstm_lower.runtime.training.low_rank",
    "merge": "lstm_lower.runtime.training.adapters",
    "from_keras": "lstm_lower.keras",
    "from_onnx": "lstm_lower.onnx",
    "from_tensorflow": "lstm_lower.tensorflow",
    "from_torch": "lstm_lower.torch",
    "gradient": "lstm_lower.passes.differentiate",
    "lower": "lstm_lower.passes.lower",
    "optimize": "lstm_lower.passes.pipeline",
    "replace_head": "lstm_lower.onnx",
    "scan": "lstm_lower.torch",
    "split_head": "lstm_lower.onnx",
    "tf2onnx_ops": "lstm_lower.tensorflow",
}


def __getattr__(name: str) -> Any:
    if name != "raw_ops" and name not in _LAZY:
        raise AttributeError(f"module 'lstm_lower' has no attribute {name!r}")
    with forks.uncut():
        if name == "raw_ops":
            return import_module("lstm_lower.raw_ops")
        value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
