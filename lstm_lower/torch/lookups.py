"""What torch.onnx looks up anew in every export, looked up once: half of the time that an export takes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import torch
from onnxscript import values
from torch.onnx._internal.exporter import _schemas

from lstm_lower.replacement import replaced

# Functions of formulas' sources alone. The registry that they fill is made anew in each export, since operators may be
# registered in between.
_FORMULA = functools.cache(values.TracedOnnxFunction.function_ir.fget)
_SIGNATURE = functools.cache(_schemas.op_signature_from_function)


@contextlib.contextmanager
def looked_up_once() -> Iterator[None]:
    """Keeps formulas' signatures between exports, and makes all of PyTorch's operators once within the block.

    torch.onnx parses the source of each of its 500 formulas in every export, and makes each operator that is composed
    of others once for each namespace, some 50 times.
    """
    operators = torch._export.utils
    with (
        replaced(values.TracedOnnxFunction, "function_ir", property(_FORMULA)),
        replaced(_schemas, "op_signature_from_function", _SIGNATURE),
        replaced(operators, "_materialize_cpp_cia_ops", functools.cache(operators._materialize_cpp_cia_ops)),
    ):
        yield
