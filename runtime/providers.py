"""Execution providers of onnxruntime, by short or full name: those it is built with, and plug-ins."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx.parser
import onnxruntime as ort

from lstm_lower.errors import InvalidInputError, nearest
from lstm_lower.extras import needed_by
from lstm_lower.runtime.processor import features, processor

# What is known of each execution provider, a row each.


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
        units: precision -> features of the processor, of which it needs one for that; without them it would compute in
            float32, or slowly, and say nothing.
        preloads: whether the provider needs NVIDIA's libraries, which may lie in packages of their own.
    """

    short: str
    name: str
    plugin: PlugIn | None = None
    hint: str = ""
    target: str | None = None
    captures: tuple[str, str] | None = None
    precisions: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=lambda: {"float32": {}})
    units: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
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
        units={"bfloat16": ("amx_bf16", "avx512_bf16")},
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


# Providers that come as plug-ins: their libraries, loaded when they are first wanted, and their devices.


# The option by which a session asks for another kind of device than the processor.
_KIND = "device_type"

# A model that opens wherever a device does.
_SMALLEST = '<ir_version: 8, opset_import: ["": 18]> smallest (float[1] x) => (float[1] y) { y = Neg(x) }'

# Libraries that this process has loaded; onnxruntime refuses one of a name that it has.
_loaded: set[str] = set()

# Providers, with their options, of which a device has opened in this process.
_opened: set[str] = set()


def is_installed(row: Row) -> bool:
    """Whether onnxruntime is built with a provider, or the package is there that brings it; it may not run here."""
    package = row.plugin is not None and importlib.util.find_spec(row.plugin.package) is not None
    return package or row.name in ort.get_available_providers()


def version(name: str) -> str:
    """The version of the package that brings a provider; nothing of one that onnxruntime is built with."""
    from importlib import metadata  # takes as long as this module

    plugin = row_of(name).plugin
    if plugin is None or importlib.util.find_spec(plugin.package) is None:
        return ""
    return metadata.version(plugin.package)


def plugin_of(row: Row) -> PlugIn | None:
    """The plug-in that brings a provider; `None` for a provider that onnxruntime is built with."""
    # Of plug-ins that are loaded, onnxruntime says that they are available, too.
    built_in = row.name in ort.get_available_providers() and not _offered(row)
    return None if built_in else row.plugin


def devices(row: Row, plugin: PlugIn, options: Mapping[str, Any]) -> tuple[list[Any], dict[str, str]]:
    """The device on which a plug-in is to run.

    Args:
        row: of the provider.
        plugin: the row's.
        options: `device_type` says which kind is wanted, without it the first of the plug-in's kinds that is there.

    Returns:
        onnxruntime's devices, and the options but for what chose them.

    Raises:
        MissingPackageError: its package is not installed.
        InvalidInputError: it does not load, finds no such device, or opens none.
    """
    kinds = (str(options[_KIND]).upper(),) if _KIND in options else plugin.kinds
    offered = _offered(row) or _load(row, plugin)
    chosen = [device for kind in kinds for device in offered if device.device.type.name == kind][:1]
    if not chosen:
        raise InvalidInputError(
            f"provider {row.short!r} requires a device of type {' or '.join(kinds)} among {plugin.machines}, and finds "
            f"none on this machine, got {_hardware()}; providers=['cpu'] runs here"
        )
    others = {key: str(value) for key, value in options.items() if key != _KIND}
    if plugin.driver:
        _open(row, plugin, chosen, others)
    return chosen, others


def _open(row: Row, plugin: PlugIn, chosen: list[Any], options: dict[str, str]) -> None:
    """Opens a session on a device, unless that was done before: what lists devices may not have asked their driver.

    Raises:
        InvalidInputError: the device does not open.
    """
    asked = repr((row.name, sorted(options.items())))
    if asked in _opened:
        return
    session_options = ort.SessionOptions()
    session_options.log_severity_level = 4
    session_options.add_provider_for_devices(chosen, options)
    try:
        ort.InferenceSession(onnx.parser.parse_model(_SMALLEST).SerializeToString(), session_options, enable_fallback=0)
    except Exception as error:
        reason = str(error).splitlines()[0].rpartition("was false. ")[2]
        raise InvalidInputError(
            f"provider {row.short!r} requires one of the {plugin.machines} ({plugin.driver}), and opens none on this "
            f"machine, got {reason!r}; providers=['cpu'] runs here"
        ) from error
    _opened.add(asked)


def _offered(row: Row) -> list[Any]:
    return [device for device in ort.get_ep_devices() if device.ep_name == row.name]


def _load(row: Row, plugin: PlugIn) -> list[Any]:
    """Loads the library, unless that was done before, and returns its devices."""
    with needed_by(f"provider {row.short!r}"):
        package = importlib.import_module(plugin.package)
    if row.name not in _loaded:
        try:
            with _environment(plugin.environment):
                ort.register_execution_provider_library(row.name, getattr(package, plugin.library)())
        except Exception as error:
            raise InvalidInputError(
                f"provider {row.short!r} requires a library that onnxruntime {ort.__version__} loads, got {error}"
            ) from error
        _loaded.add(row.name)
    return _offered(row)


def _hardware() -> str:
    """The kinds and makers of the devices that onnxruntime sees."""
    kinds = {(device.device.type.name, device.device.vendor) for device in ort.get_ep_devices()}
    return ", ".join(f"{kind} by {maker or 'an unknown maker'}" for kind, maker in sorted(kinds))


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets those variables that are not set, for the length of a block."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


Provider = str | tuple[str, dict[str, Any]]
Resolved = tuple[str, dict[str, Any]]

# Asks for the provider that is measured to be the fastest, by what opens a model; options are sizes to measure with.
FASTEST = "fastest"


def fastest_sizes(providers: Sequence[Provider] | Provider | None) -> dict[str, int] | None:
    """The sizes with which the fastest provider is to be found; `None` where providers are named.

    Raises:
        InvalidInputError: further ones are named beside it.
    """
    listed = providers if isinstance(providers, list) else [providers]
    names = [provider[0] if isinstance(provider, tuple) and provider else provider for provider in listed]
    if not any(isinstance(name, str) and name == FASTEST for name in names):
        return None
    match listed:
        case ["fastest"]:
            return {}
        case [("fastest", dict(sizes))]:
            return dict(sizes)
    raise InvalidInputError(f"provider '{FASTEST}' stands alone, or with sizes to measure with, got {providers!r}")


# Session options that hold providers say here which, so that they can open a second session.
_ATTACHED = "lstm_lower.providers"


def resolve(
    providers: Sequence[Provider] | Provider | None,
    precision: str | None = None,
    options: ort.SessionOptions | None = None,
) -> list[Resolved]:
    """Full names of the wanted providers, with their options, each checked to be there.

    What it returned may be given to it again.

    Args:
        providers: short names (`cpu`, `cuda`, `openvino`), full names, or pairs of one and options; `None` means `cpu`.
        precision: in which a provider multiplies and adds, `float32` or a lower one that a provider offers by name.
            Where none are named, it is the first provider of this machine that offers it.
        options: session options, whose own providers count where none are named here.

    Raises:
        InvalidInputError: a provider is not installed, has no device on this machine, or does not offer the precision;
            or the processor has no units for it.
    """
    if providers is None:
        if options is not None and options.has_providers():
            return []
        providers = "cpu" if precision is None else _first_offering(precision)
    if isinstance(providers, str) or (
        isinstance(providers, tuple) and len(providers) == 2 and isinstance(providers[1], dict)
    ):
        providers = [providers]
    if not isinstance(providers, (list, tuple)):
        raise InvalidInputError(f"providers require a list of names, got {providers!r}")
    rows = [_named(provider) for provider in providers]
    if precision is not None and not any(precision in row.precisions for row, _ in rows):
        offered = sorted({name for row, _ in rows for name in row.precisions})
        others = offering(precision)
        raise InvalidInputError(
            f"precision requires one of {offered}, which {[row.short for row, _ in rows]} offer, got {precision!r}"
            f"{f', which {others} offer' if others else ''}"
        )
    for row, given in rows:
        _check_units(row, given, precision)
    return [(row.name, row.configure(given, precision)) for row, given in rows]


def offering(precision: str) -> list[str]:
    """Short names of the providers that offer a precision."""
    return [row.short for row in ROWS if precision in row.precisions]


def _first_offering(precision: str) -> str:
    """The first provider of this machine that offers a precision; `cpu` where none is known to, which says so.

    Raises:
        InvalidInputError: those that offer it are not here, each with its reason.
    """
    reasons = []
    for name in offering(precision):
        try:
            resolve(name, precision)
        except InvalidInputError as error:
            reasons.append(str(error))
        else:
            return name
    if reasons:
        raise InvalidInputError(
            f"precision {precision!r} requires a provider that computes in it, got none on this machine: "
            + "; ".join(reasons)
        )
    return "cpu"


def _check_units(row: Row, options: Mapping[str, Any], precision: str | None) -> None:
    """Checks that the processor computes in a precision, where the provider runs on it and the system tells.

    Raises:
        InvalidInputError: it has no units for that.
    """
    needed, there = row.units.get(precision or "", ()), features()
    if there is None or there.intersection(needed) or str(options.get(_KIND, "CPU")).upper() != "CPU":
        return
    if needed:
        raise InvalidInputError(
            f"precision {precision!r} on provider {row.short!r} requires a processor with {' or '.join(needed)} among "
            f"the flags of /proc/cpuinfo, got {processor()} without; precision='float32' runs here"
        )


def _named(provider: Any) -> tuple[Row, dict[str, Any]]:
    """The row of a provider that is there, and the options that were given with it."""
    match provider:
        case str(name) | (str(name), None):
            options: dict[str, Any] = {}
        case (str(name), dict(options)):
            pass
        case _:
            raise InvalidInputError(f"a provider requires a name, alone or with options, got {provider!r}")
    if name == FASTEST:
        raise InvalidInputError(
            f"provider '{FASTEST}' requires a model to measure: Session, Trainer, and the commands run and train take "
            "it; bench --recommend says which one it is"
        )
    row = row_of(name)
    available = ort.get_available_providers()
    plugin = plugin_of(row)
    if plugin is not None:
        devices(row, plugin, options)
    elif row.name not in available:
        # Of plug-ins that are loaded, onnxruntime says that they are available, too.
        names = [known.short for known in map(row_of, available) if known.plugin is None]
        plugins = [other.short for other in ROWS if other.plugin is not None]
        hint = f"; {row.hint}" if row.hint else ""
        raise InvalidInputError(
            f"provider {name!r} requires one of {names}, which this onnxruntime has, or a plug-in, one of {plugins}"
            f"{nearest(name, [*names, *plugins])}{hint}"
        )
    if row.preloads:
        _preload()
    return row, options


@functools.cache
def _preload() -> str:
    """Loads CUDA's and cuDNN's libraries out of NVIDIA's packages, where no provider looks; says what is missing."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        ort.preload_dlls()
    return said.getvalue()


def check_loaded(session: ort.InferenceSession, providers: Sequence[Resolved]) -> None:
    """Checks that a session has the providers that it was opened with: onnxruntime leaves those out that do not load.

    Raises:
        InvalidInputError: one is missing; the message says which of its libraries are not there, if it is that.
    """
    missing = [row_of(name) for name, _ in providers if name not in session.get_providers()]
    if not missing:
        return
    row = missing[0]
    failures = [line for line in _preload().splitlines() if line.startswith("Failed")] if row.preloads else []
    why = f": {failures[0]}; the extra [cuda] brings them (docs/install.md)" if failures else ""
    raise InvalidInputError(
        f"provider {row.short!r} requires a working installation and its device, got one that fails to load{why}; "
        "providers=['cpu'] runs here"
    )


def attach(options: ort.SessionOptions, providers: Sequence[Resolved]) -> list[Resolved] | None:
    """Puts providers into session options where one of them is a plug-in.

    Args:
        options: changed; the same providers may be attached again.
        providers: as `resolve` returns them.

    Returns:
        What `ort.InferenceSession` has to be given besides: the providers, or `None` where the options hold them.

    Raises:
        InvalidInputError: the options hold other providers.
    """
    plugins = {name: plugin_of(row_of(name)) for name, _ in providers}
    if not any(plugins.values()):
        return list(providers) or None
    wanted = repr(list(providers))
    if options.has_providers():
        if _attached(options) == wanted:
            return None
        raise InvalidInputError("session options that hold providers require the same, or None, got others")
    for name, given in providers:
        plugin = plugins[name]
        if plugin is None:
            options.add_provider(name, {key: str(value) for key, value in given.items()})
        else:
            options.add_provider_for_devices(*devices(row_of(name), plugin, given))
    options.add_session_config_entry(_ATTACHED, wanted)
    return None


def _attached(options: ort.SessionOptions) -> str | None:
    try:
        return str(options.get_session_config_entry(_ATTACHED))
    except RuntimeError:
        return None


def target_of(providers: Sequence[Resolved]) -> str | None:
    """The target in `lower` of the first of the providers, which is to run as much as it can."""
    if not providers:
        return None
    row = row_of(providers[0][0])
    return row.captures[1] if row.captures is not None and is_captured(providers) else row.target


def uncaptured(providers: Sequence[Resolved]) -> list[Resolved]:
    """The same providers, each without its option to capture."""
    options = {name: row_of(name).captures for name, _ in providers}
    return [
        (name, {key: value for key, value in given.items() if (option := options[name]) is None or key != option[0]})
        for name, given in providers
    ]


def is_captured(providers: Sequence[Resolved]) -> bool:
    """Whether the first provider captures a run and replays it (CUDA graphs)."""
    name, options = providers[0] if providers else ("", {})
    captures = row_of(name).captures
    return captures is not None and str(options.get(captures[0], 0)).lower() in ("1", "true")
