"""Buffers of onnxruntime's, where a session wants its inputs and makes its outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from lstm_lower.errors import InvalidInputError

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Device:
    """Where a buffer lies.

    Attributes:
        kind: onnxruntime's name of the device; of a plug-in's memory, the name of that memory.
        number: of the device among those of its kind.
        memory: onnxruntime's description of such memory, by which a buffer in it is made.
    """

    kind: str
    number: int = 0
    memory: Any = dataclasses.field(default=None, compare=False)


HOST = Device("cpu")
# onnxruntime's names of memory -> its names of devices; pinned memory is the host's.
_DEVICES = {"cpu": "cpu", "cuda": "cuda", "cudapinned": "cpu", "dml": "dml", "hip": "hip", "cann": "cann"}


def input_devices(session: ort.InferenceSession) -> dict[str, Device]:
    """Input name -> where the session wants it to be.

    An input that lies elsewhere would be copied when it is bound, and the copy would not see later changes.
    """
    return _devices(session.get_inputs(), session.get_input_memory_infos())


def output_devices(session: ort.InferenceSession) -> dict[str, Device]:
    """Output name -> where the session makes it."""
    return _devices(session.get_outputs(), session.get_output_memory_infos())


def _devices(values: Sequence[Any], infos: Sequence[Any]) -> dict[str, Device]:
    return {value.name: _device(info) for value, info in zip(values, infos, strict=True)}


def _device(info: Any) -> Device:
    kind = _DEVICES.get(info.name.lower())
    if kind is not None:
        return Device(kind, info.device_id if kind != "cpu" else 0)
    # Plug-ins name their memory as they like.
    return Device(info.name, info.device_id, info)


def buffer(array: Array, device: Device) -> ort.OrtValue:
    """A buffer on a device that holds a copy of an array; its memory is onnxruntime's, aligned as kernels like it.

    Raises:
        InvalidInputError: onnxruntime makes no buffers in the device's memory, or copies nothing into them.
    """
    form = (list(array.shape), array.dtype.type)
    if device.memory is None:
        value = ort.OrtValue.ortvalue_from_shape_and_type(*form, device.kind, device.number)
        _fill(value, array)
        return value
    try:
        value = ort.OrtValue.ortvalue_from_shape_and_type(*form, memory_info=device.memory)
        _fill(value, array)
    except Exception as error:
        raise InvalidInputError(
            f"state on a device requires a provider in whose memory onnxruntime makes buffers, got {device.kind!r}: "
            f"{error}; providers=['cpu'] keeps it on the host"
        ) from error
    return value


def _fill(value: ort.OrtValue, array: Array) -> None:
    if array.size:
        value.update_inplace(np.asarray(array, order="C"))


def host_copy(value: ort.OrtValue) -> Array:
    """A copy of a buffer; of one on the host, onnxruntime's own `numpy` is a view that later steps write to."""
    array: Array = value.numpy()
    return array if array.flags.owndata else array.copy()
