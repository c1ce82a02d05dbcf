"""Opens any source of a TensorFlow graph; whatever is a file is read without TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lstm_lower.errors import InvalidInputError
from lstm_lower.extras import needed_by
from lstm_lower.tensorflow.files import graph_files
from lstm_lower.tensorflow.sources import GraphSource


def open_source(
    source: Any,
    *,
    signature: str | None = None,
    specs: Sequence[Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> GraphSource:
    """Opens any of the sources that `from_tensorflow` takes.

    Args:
        source: a source, which is returned; a file or folder, a GraphDef or MetaGraphDef, or what lives in TensorFlow:
            a graph or a function.
        signature: which signature of a SavedModel.
        specs: a `tf.TensorSpec` for each argument of a `tf.function` without an input signature.
        checkpoint: where values of variables are: a prefix, or a folder with a checkpoint.

    Raises:
        InvalidModelError: a file is broken.
        InvalidInputError: `source`, or one of the others, is not what is needed.
        FileNotFoundError: there is no such file.
    """
    if isinstance(source, GraphSource):
        return source
    is_path = isinstance(source, (str, os.PathLike))
    if signature is not None and not is_path:
        raise InvalidInputError("signature requires a SavedModel as the source, got " + type(source).__name__)
    if specs is not None and not hasattr(source, "get_concrete_function"):
        raise InvalidInputError(f"specs requires a tf.function as the source, got {type(source).__name__}")
    values = None if checkpoint is None else Path(checkpoint)
    if is_path or hasattr(source, "DESCRIPTOR"):
        return (
            graph_files.open_file(Path(source), signature, values)
            if is_path
            else graph_files.open_message(source, values)
        )
    if any(hasattr(source, name) for name in ("get_concrete_function", "structured_input_signature", "as_graph_def")):
        with needed_by("the import of what lives in TensorFlow"):
            from lstm_lower.tensorflow import live

        return live.open_live(source, specs, values)
    raise InvalidInputError(
        "source requires a GraphDef, a .pb, .pbtxt or .meta file, a SavedModel, a ConcreteFunction or a tf.function, "
        f"got {type(source).__name__}"
    )
