"""Providers that come as plug-ins: their libraries, loaded when they are first wanted, and their devices."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import onnx.parser
import onnxruntime as ort

from lstm_lower.errors import InvalidInputError
from lstm_lower.extras import needed_by
from lstm_lower.runtime.provider_table import PlugIn, Row

# The option by which a session asks for another kind of device than the processor.
_KIND = "device_type"

# A model that opens wherever a device does.
_SMALLEST = '<ir_version: 8, opset_import: ["": 18]> smallest (float[1] x) => (float[1] y) { y = Neg(x) }'

# Libraries that this process has loaded; onnxruntime refuses one of a name that it has.
_loaded: set[str] = set()

# Providers, with their options, of which a device has opened in this process.
_opened: set[str] = set()


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
    found = {(device.device.type.name, device.device.vendor) for device in ort.get_ep_devices()}
    return ", ".join(f"{kind} by {maker or 'an unknown maker'}" for kind, maker in sorted(found))


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
