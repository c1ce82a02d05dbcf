"""The cause of an unexpected failure: a malformed model, or a defect of ours."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import onnx
import onnx_ir as ir

from lstm_lower import schemas
from lstm_lower.errors import InvalidModelError, LstmLowerError
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.structure import verify_structure
from lstm_lower.graph.verify import open_negative_sizes
from lstm_lower.records.model_files import load

Source = str | os.PathLike[str] | onnx.ModelProto | ir.Model


@contextlib.contextmanager
def malformed_models_explained(source: Source) -> Iterator[None]:
    """Turns an unforeseen failure into a clear error if the model is to blame for it, which onnx tells.

    Raises:
        InvalidModelError: the model is malformed; otherwise the failure is ours and passes as it is.
    """
    try:
        yield
    except (LstmLowerError, OSError):
        raise
    except Exception as failure:
        try:
            model = copy_model(source) if isinstance(source, ir.Model) else load(source)
            # onnx's checker aborts the process on models that are malformed in their structure.
            verify_structure(model)
            open_negative_sizes(model)
            schemas.register()
            proto = ir.to_proto(model)
            onnx.checker.check_model(proto, full_check=True)
            onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
        except Exception as reason:  # noqa: BLE001 (whatever the checker breaks on, it is the model)
            raise InvalidModelError(f"the model is malformed: {reason}") from failure
        raise
