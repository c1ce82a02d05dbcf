"""Weights that stay in their files until somebody reads them, those inside a model's own file, too."""

from __future__ import annotations

import math
import mmap
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google.protobuf.message
import numpy as np
import onnx
import onnx_ir as ir

from lstm_lower.records.wire import DamageError, places, varint_bytes

# Field numbers of onnx.proto: a model's graph, a graph's initializer, a tensor's bytes.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
# Weights of fewer bytes are read with the model.
_LARGE = 2**16
# So are those of smaller files.
_SMALLEST_FILE = 2**23


class MappedTensor(ir.ExternalTensor):
    """A weight that is mapped anew for each who reads it, so that what was read does not stay in memory."""

    @classmethod
    def of(cls, tensor: ir.ExternalTensor) -> MappedTensor:
        """The same weight; of one in external data."""
        return cls(*_arguments(tensor), shape=_shape(tensor), name=str(tensor.name), base_dir=tensor.base_dir)

    def numpy(self) -> np.ndarray[Any, Any]:
        """The values, which are mapped as long as the array is there."""
        shape, folder = _shape(self), self.base_dir
        return ir.ExternalTensor(*_arguments(self), shape=shape, name=str(self.name), base_dir=folder).numpy()

    def __array__(self, dtype: Any = None) -> np.ndarray[Any, Any]:
        return self.numpy().__array__(dtype)

    def tobytes(self) -> bytes:
        """The values as a file has them."""
        return ir.Tensor(self.numpy(), dtype=self.dtype).tobytes()


def _arguments(tensor: ir.ExternalTensor) -> tuple[Any, int | None, int | None, ir.DataType]:
    return tensor.location, tensor.offset, tensor.length, tensor.dtype


def _shape(tensor: ir.ExternalTensor) -> ir.Shape:
    return ir.Shape(tensor.shape.numpy())


def without_weights(path: Path) -> bytes | None:
    """The bytes of a model whose large weights are external data that lie in the model's own file.

    `None` for a small file, one that others lead to, and one of which it is not plain where weights begin and end.
    """
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_size < _SMALLEST_FILE:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        content = memoryview(mapped)
        try:
            return _model(content, path.name)
        except (DamageError, google.protobuf.message.DecodeError, ValueError):
            return None
        finally:
            content.release()


def _model(content: memoryview, file: str) -> bytes:
    def graph(start: int, end: int) -> bytes:
        return _with(content, start, end, _INITIALIZER, lambda begins, ends: _tensor(content, begins, ends, file))

    return _with(content, 0, len(content), _GRAPH, graph)


def _with(content: memoryview, start: int, end: int, field: int, instead: Callable[[int, int], bytes | None]) -> bytes:
    """A message with other values of a field; those for which there is none stay."""
    pieces, done = [], start
    for number, begins, ends in places(content, start, end):
        value = instead(begins, ends) if number == field else None
        if value is not None:
            head = _head(content, field, begins, ends)
            pieces += [bytes(content[done : begins - len(head)]), varint_bytes(field << 3 | 2)]
            pieces += [varint_bytes(len(value)), value]
            done = ends
    return b"".join([*pieces, bytes(content[done:end])])


def _head(content: memoryview, field: int, begins: int, ends: int) -> bytes:
    """What stands before a value: its field and its length, in the form in which all write these."""
    head = varint_bytes(field << 3 | 2) + varint_bytes(ends - begins)
    if bytes(content[begins - len(head) : begins]) != head:
        raise DamageError("a length is written in more bytes than it needs")
    return head


def _tensor(content: memoryview, start: int, end: int, file: str) -> bytes | None:
    if end - start < _LARGE:
        return None
    raw = [(begins, ends) for number, begins, ends in places(content, start, end) if number == _RAW_DATA]
    if len(raw) != 1:
        return None
    ((begins, ends),) = raw
    head = _head(content, _RAW_DATA, begins, ends)
    tensor = onnx.TensorProto.FromString(bytes(content[start : begins - len(head)]) + bytes(content[ends:end]))
    dtype = ir.DataType(tensor.data_type)
    if dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING) or tensor.external_data:
        return None
    if math.prod(tensor.dims) * dtype.bitwidth + 7 >> 3 != ends - begins:
        return None
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", file), ("offset", begins), ("length", ends - begins)):
        tensor.external_data.add(key=key, value=str(value))
    written: bytes = tensor.SerializeToString()
    return written
