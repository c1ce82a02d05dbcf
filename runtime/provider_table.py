"""What is known of each execution provider, a row each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lstm_lower.errors import InvalidInputError

Options = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class PlugIn:
    """A provider in a package of its own, which onnxruntime loads while it runs.

    Attributes:
        package: as it is imported; `lstm_lower.extras` says which extra brings it.
        library: the package's function that returns the path of the library.
        machines: what it runs on, for a machine on which it finds no device.
        environment: variables that its library reads once, when it is loaded.
        kinds: the kinds of devices that it is offered for, the one without a wish first.
        driver: what its devices need, where only an open session shows whether it is there.
    """

    package: str
    library: str
    machines: str
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    kinds: tuple[str, ...] = ("CPU",)
    driver: str = ""


@dataclasses.dataclass(frozen=True)
class Row:
    """A provider.

    Attributes:
        short: its name for us.
        name: its name for onnxruntime.
        plugin: the package that brings it; `None` for one that onnxruntime is built with.
        hint: how to get an onnxruntime that has it.
        target: what `lower` calls it, where models are lowered for it.
        captures: the option that lets it capture what it runs once and repeat that, and the target of such models.
        precisions: name -> options with which it computes in that precision, the one without a wish first. None of
            them is a lower one than float32 unless somebody asked for it.
        preloads: whether the provider needs NVIDIA's libraries, which may lie in packages of their own.
    """

    short: str
    name: str
    plugin: PlugIn | None = None
    hint: str = ""
    target: str | None = None
    captures: tuple[str, str] | None = None
    precisions: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=lambda: {"float32": {}})
    preloads: bool = False

    def configure(self, options: Options, precision: str | None = None) -> Options:
        """Options of a session: those given, and those of the precision wherever the ones given leave it open."""
        default = next(iter(self.precisions.values()))
        preset = default if precision is None else self.precisions.get(precision, default)
        return {**options, **{key: _completed(key, options.get(key), value) for key, value in preset.items()}}


def _completed(key: str, given: Any, preset: Any) -> Any:
    """An option as it was given; a configuration in JSON with what it does not mention."""
    if not isinstance(preset, dict):
        return preset if given is None else given
    if given is None:
        return json.dumps(preset)
    try:
        # Providers take the name of a file as well.
        text = given if str(given).lstrip().startswith("{") else Path(given).read_text(encoding="utf-8")
        sections = json.loads(text)
        return json.dumps({name: {**preset.get(name, {}), **sections.get(name, {})} for name in {**preset, **sections}})
    except (OSError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(f"option '{key}' requires JSON, or a file of it, got {given!r}: {error}") from error


def _hint(kind: str) -> dict[str, Any]:
    """OpenVINO's configuration; its own default is bfloat16 wherever the processor multiplies that."""
    return {"load_config": {device: {"INFERENCE_PRECISION_HINT": kind} for device in ("CPU", "GPU")}}


_CUDA, _CUDA_HINT = "CUDAExecutionProvider", "install onnxruntime-gpu in place of onnxruntime (docs/install.md)"
_CAPTURES = ("enable_cuda_graph", "cuda-graph")
# Its own default is products of numbers rounded to 11 bits.
_CUDA_PRECISIONS = {"float32": {"use_tf32": "0"}, "tf32": {"use_tf32": "1"}}

ROWS = (
    Row("cpu", "CPUExecutionProvider"),
    Row("cuda", _CUDA, hint=_CUDA_HINT, target="cuda", captures=_CAPTURES, precisions=_CUDA_PRECISIONS, preloads=True),
    Row(
        "cuda-graph",
        _CUDA,
        hint=_CUDA_HINT,
        target="cuda",
        captures=_CAPTURES,
        precisions={name: {**options, _CAPTURES[0]: "1"} for name, options in _CUDA_PRECISIONS.items()},
        preloads=True,
    ),
    Row("tensorrt", "TensorrtExecutionProvider", target="tensorrt", preloads=True),
    Row(
        "openvino",
        "OpenVINOExecutionProvider",
        target="openvino",
        plugin=PlugIn("onnxruntime_ep_openvino", "get_library_path", "Intel's CPUs, GPUs and NPUs"),
        precisions={"float32": _hint("f32"), "bfloat16": _hint("bf16"), "float16": _hint("f16")},
    ),
    Row(
        "ggml",
        "ggml",
        target="ggml",
        plugin=PlugIn("onnxruntime_ggml", "library_path", "x86-64 and ARM64", {"ORT_GGML_LOG": "error"}),
        # Its own default keeps constants as halves.
        precisions={"float32": {"weights": "f32"}, "float16": {"weights": "f16"}},
    ),
    Row(
        "webgpu",
        "WebGpuExecutionProvider",
        target="webgpu",
        plugin=PlugIn(
            "onnxruntime_ep_webgpu",
            "get_library_path",
            "GPUs with a driver for Vulkan, Metal or Direct3D 12",
            # It asks the driver for a device itself. Of GPUs that onnxruntime does not see, as in containers, and of
            # drivers that compute on the processor, it is offered beside the processor.
            {"ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1"},
            kinds=("GPU", "CPU"),
            driver="on Linux, libvulkan.so.1 and a driver for Vulkan: docs/providers.md",
        ),
    ),
    Row("directml", "DmlExecutionProvider", target="directml"),
    Row("coreml", "CoreMLExecutionProvider", target="coreml"),
    Row("rocm", "ROCMExecutionProvider", target="rocm"),
)


def row_of(name: str) -> Row:
    """The row of a provider by short or full name; of one that has none, what its name says."""
    return next((row for row in ROWS if name.lower() == row.short or name == row.name), Row(name, name))
