"""Reading and writing models: clear errors for bad bytes, external data, nothing half-written."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import google.protobuf.message
import onnx
import onnx_ir as ir

from lstm_lower.errors import InvalidModelError

# Protobuf cannot hold more in one message; larger models keep their weights in a file of their own.
_PROTOBUF_LIMIT = 2**31 - 2**20


def load(model: str | os.PathLike[str] | onnx.ModelProto) -> ir.Model:
    """Reads a model; weights in external data are mapped, not copied.

    Raises:
        InvalidModelError: the bytes are no ONNX model.
        FileNotFoundError: there is no such file.
    """
    if isinstance(model, onnx.ModelProto):
        proto, base, label = model, None, "the model"
    else:
        path = Path(model)
        if path.is_dir():
            raise InvalidModelError(f"{path}: an ONNX file is required, got a directory")
        base, label = path.parent, str(path)
        proto = onnx.ModelProto()
        try:
            proto.ParseFromString(path.read_bytes())
        except google.protobuf.message.DecodeError as error:
            raise InvalidModelError(f"{label}: an ONNX model is required, got bytes that are none ({error})") from error
    if not proto.HasField("graph"):
        raise InvalidModelError(f"{label}: an ONNX model is required, got one without a graph")
    if not proto.opset_import:
        raise InvalidModelError(f"{label}: an ONNX model requires opset imports, got none")
    try:
        loaded = ir.from_proto(proto)
    except Exception as error:
        raise InvalidModelError(
            f"{label}: a well-formed ONNX model is required, got one that {_first_line(error)}"
        ) from error
    if base is not None:
        ir.external_data.set_base_dir(loaded.graph, base)
    return loaded


def _first_line(error: Exception) -> str:
    cause = error.__cause__ or error
    return f"fails to load: {str(cause).splitlines()[0] if str(cause) else type(cause).__name__}"


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A path to write to that becomes `path` when the block ends well, and leaves nothing behind otherwise.

    It lies in a folder of its own on the same file system, so that the last step is a rename, and has the same name,
    so that names of further files that are written beside it fit.
    """
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        temporary = Path(folder) / path.name
        yield temporary
        for other in Path(folder).iterdir():
            if other != temporary:
                other.replace(path.with_name(other.name))
        temporary.replace(path)


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """A model as a protobuf of its own, weights included.

    Weights in external data are read, unless all together exceed what protobuf can write: then they stay references,
    relative to the folder of the model that they came from.
    """
    if weight_bytes(model) <= _PROTOBUF_LIMIT:
        ir.external_data.load_to_model(model)
    return ir.to_proto(model)


def weight_bytes(model: ir.Model) -> int:
    """The size of all weights of the main graph."""
    return sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)


def save(
    model: onnx.ModelProto | ir.Model,
    path: str | os.PathLike[str],
    *,
    external_data: bool | None = None,
    check: Callable[[Path], object] | None = None,
) -> None:
    """Writes a model, whole or not at all: an existing file stays as it is until the new one is complete.

    Args:
        model: what to write.
        path: where to.
        external_data: keep weights in `<name>.data` beside the file; `None` does so only when the model would exceed
            protobuf's 2 GB.
        check: called with the path of the complete file before it takes its place; what it raises stops the writing.
    """
    path = Path(path)
    as_ir = model if isinstance(model, ir.Model) else ir.from_proto(model)
    external = external_data if external_data is not None else weight_bytes(as_ir) > _PROTOBUF_LIMIT
    with atomic_path(path) as temporary:
        if external:
            ir.save(as_ir, temporary, external_data=f"{path.name}.data")
        else:
            ir.external_data.load_to_model(as_ir)
            temporary.write_bytes(ir.to_proto(as_ir).SerializeToString())
        if check is not None:
            check(temporary)
