"""Optional dependencies: the error where the package of an extra is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from lstm_lower.errors import InvalidInputError

# Package as it is imported -> the extra that brings it, see `pyproject.toml`.
EXTRAS = {
    "keras": "tensorflow",
    "onnxruntime_ep_openvino": "openvino",
    "onnxruntime_ep_webgpu": "webgpu",
    "onnxruntime_ggml": "ggml",
    "pyarrow": "data",
    "tensorboard": "tensorflow-files",
    "tensorflow": "tensorflow",
    "tf2onnx": "tf2onnx",
    "torch": "torch",
    "matplotlib": "train",
    "safetensors": "train",
    "filelock": "train",
    "ray": "ray",
}


class MissingPackageError(InvalidInputError, ImportError):
    """A package of an extra is not installed; the message holds the command that installs it."""


@contextlib.contextmanager
def needed_by(what: str, instead: str = "") -> Iterator[None]:
    """Explains an import inside the block that fails because a package of an extra is not installed.

    Args:
        what: what cannot be done without, the beginning of the message.
        instead: what else helps, its end.

    Raises:
        MissingPackageError: such a package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise MissingPackageError(
            f"{what} requires {package}, got an installation without it: "
            f"pip install 'lstm-lower[{EXTRAS[package]}]' (in a checkout: '.[{EXTRAS[package]}]'){instead}"
        ) from error
