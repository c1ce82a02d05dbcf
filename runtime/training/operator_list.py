"""Operators and types that models need, as onnxruntime's builds with fewer kernels take them.

The form is that of https://onnxruntime.ai/docs/reference/operators/reduced-operator-config-file.html.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnxruntime as ort

from lstm_lower.errors import InvalidModelError

NAME = "required_operators_and_types.config"

# As written, and as onnxruntime makes it when it loads it: an operator that it fuses needs its kernel, too. Beyond are
# layouts for the processor at hand.
_LEVELS = (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED)


def operator_list(models: Iterable[Path]) -> str:
    """The operators of all models by domain and version, with the types that they compute in.

    Raises:
        InvalidModelError: onnxruntime cannot write one in its own format, from which it reads operators and types.
    """
    with _import_unseen():
        from onnxruntime.tools.ort_format_model import OperatorTypeUsageManager, OrtFormatModelProcessor

    versions: dict[str, dict[int, set[str]]] = {}
    types = OperatorTypeUsageManager()
    with tempfile.TemporaryDirectory() as folder:
        converted = Path(folder) / "model.ort"
        for model, level in itertools.product(models, _LEVELS):
            _convert(model, level, converted)
            with warnings.catch_warnings():
                # It leaves the file to the garbage collector.
                warnings.simplefilter("ignore", ResourceWarning)
                OrtFormatModelProcessor(str(converted), versions, types).process()
    lines = ["# Written by lstm-lower for the models of this folder."]
    for domain, version in sorted((domain, version) for domain, held in versions.items() for version in held):
        entries = [f"{name}{types.get_config_entry(domain, name) or ''}" for name in sorted(versions[domain][version])]
        lines.append(f"{domain};{version};{','.join(entries)}")
    return "\n".join(lines) + "\n"


def _convert(model: Path, level: ort.GraphOptimizationLevel, path: Path) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    try:
        ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise InvalidModelError(
            f"a list of operators requires models that onnxruntime writes in its own format, got {model.name}: {error}"
        ) from error


@contextlib.contextmanager
def _import_unseen() -> Iterator[None]:
    """Keeps onnxruntime's tools from setting up the log and the search path when they are imported."""
    root, path, handler = logging.getLogger(), list(sys.path), logging.NullHandler()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        sys.path[:] = path
