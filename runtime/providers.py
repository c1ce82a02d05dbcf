"""Execution providers of onnxruntime, by short or full name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnxruntime as ort

from lstm_lower.errors import InvalidInputError

_SHORT_NAMES = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "directml": "DmlExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "rocm": "ROCMExecutionProvider",
}
_HINTS = {
    "CUDAExecutionProvider": "install onnxruntime-gpu in place of onnxruntime (docs/install.md)",
}

Provider = str | tuple[str, dict[str, Any]]


def resolve(providers: Sequence[Provider] | Provider | None) -> list[Provider]:
    """Full names of the wanted providers, with their options, each checked to be there.

    Args:
        providers: short names (`cpu`, `cuda`), full names, or pairs of a name and options; `None` means `cpu`.

    Raises:
        InvalidInputError: a provider is not part of the installed onnxruntime, or none is named.
    """
    if providers is None:
        return ["CPUExecutionProvider"]
    if isinstance(providers, str) or (
        isinstance(providers, tuple) and len(providers) == 2 and isinstance(providers[1], dict)
    ):
        providers = [providers]
    if not isinstance(providers, (list, tuple)):
        raise InvalidInputError(f"providers require a list of names, got {providers!r}")
    available = ort.get_available_providers()
    resolved: list[Provider] = []
    for provider in providers:
        named: tuple[Any, ...] = (provider, None) if isinstance(provider, str) else provider
        match named:
            case (str(name), None | dict()):
                options = named[1]
            case _:
                raise InvalidInputError(f"a provider requires a name, alone or with options, got {provider!r}")
        full = _SHORT_NAMES.get(name.lower(), name)
        if full not in available:
            hint = f"; {_HINTS[full]}" if full in _HINTS else ""
            raise InvalidInputError(
                f"provider {name!r} requires one of {available}, which is all that is installed{hint}"
            )
        resolved.append(full if options is None else (full, options))
    return resolved
