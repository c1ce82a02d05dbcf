"""The one way in which passes run: on a copy of the model, with every error that a model is to blame for explained."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Callable, Iterable, Iterator

import onnx
import onnx_ir as ir

from lstm_lower import schemas
from lstm_lower.errors import InvalidModelError, LstmLowerError
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.structure import verify_structure
from lstm_lower.passes.base import Context, Pass
from lstm_lower.records.model_files import load

Source = str | os.PathLike[str] | onnx.ModelProto | ir.Model


def run_passes(
    source: Source, steps: Iterable[Pass], watch: Callable[[Pass, ir.passes.PassResult], object] | None = None
) -> ir.Model:
    """Runs passes, one after the other, on a copy of a model.

    Args:
        source: a path, a protobuf or an onnx_ir model. It is not changed.
        steps: the passes.
        watch: told what every pass left.

    Raises:
        LstmLowerError: what the passes raise of the model.
        InvalidModelError: the model is malformed.
    """
    with _full_collections_held(), malformed_models_explained(source):
        model = copy_model(source) if isinstance(source, ir.Model) else load(source)
        context = Context(model)
        for step in steps:
            result = step.share(context)(model)
            if watch is not None:
                watch(step, result)
        context.close()
        return model


@contextlib.contextmanager
def malformed_models_explained(source: Source) -> Iterator[None]:
    """Turns an unforeseen failure into a clear error if the model is to blame for it, which onnx tells.

    Raises:
        InvalidModelError: the model is malformed; otherwise the failure is ours and passes as it is.
    """
    try:
        yield
    except (LstmLowerError, OSError, ir.passes.PostconditionError):
        raise
    except Exception as failure:
        try:
            model = source if isinstance(source, ir.Model) else load(source)
            # onnx's checker aborts the process on models that are malformed in their structure.
            verify_structure(model)
            schemas.register()
            proto = ir.to_proto(model)
            onnx.checker.check_model(proto, full_check=True)
            onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
        except Exception as reason:  # noqa: BLE001 (whatever the checker breaks on, it is the model)
            raise InvalidModelError(f"the model is malformed: {reason}") from failure
        raise


# Those who hold back full collections now, and the thresholds before the first of them.
_lock = threading.Lock()
_holders = 0
_before = gc.get_threshold()
_NEVER = 1 << 30


@contextlib.contextmanager
def _full_collections_held() -> Iterator[None]:
    """Holds back the garbage collector's walks over *all* objects, which a growing graph sets off again and again.

    Young objects, those of other threads too, are collected as ever. On 20,000 nodes four full collections take 2.1 of
    4.7 s, the many young ones 0.3 s; `gc.freeze` takes only the objects from before out of them, and saves 0.5 s.
    """
    global _holders, _before  # noqa: PLW0603 (the collector is the process's)
    with _lock:
        if not _holders:
            _before = gc.get_threshold()
            gc.set_threshold(*_before[:2], _NEVER)
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            # Whoever has set other thresholds meanwhile keeps them.
            if not _holders and gc.get_threshold()[2] == _NEVER:
                gc.set_threshold(*_before)
