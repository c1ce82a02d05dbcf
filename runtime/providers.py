"""Execution providers of onnxruntime, by short or full name: those it is built with, and plug-ins."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Sequence
from typing import Any

import onnxruntime as ort

from lstm_lower.errors import InvalidInputError, nearest
from lstm_lower.runtime import provider_plugins
from lstm_lower.runtime.provider_table import ROWS, Row, row_of

Provider = str | tuple[str, dict[str, Any]]
Resolved = tuple[str, dict[str, Any]]

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
        options: session options, whose own providers count where none are named here.

    Raises:
        InvalidInputError: a provider is not installed, has no device on this machine, or does not offer the precision.
    """
    if providers is None:
        if options is not None and options.has_providers():
            return []
        providers = "cpu"
    if isinstance(providers, str) or (
        isinstance(providers, tuple) and len(providers) == 2 and isinstance(providers[1], dict)
    ):
        providers = [providers]
    if not isinstance(providers, (list, tuple)):
        raise InvalidInputError(f"providers require a list of names, got {providers!r}")
    rows = [_named(provider) for provider in providers]
    if precision is not None and not any(precision in row.precisions for row, _ in rows):
        offered = sorted({name for row, _ in rows for name in row.precisions})
        raise InvalidInputError(
            f"precision requires one of {offered}, which {[row.short for row, _ in rows]} offer, got {precision!r}"
        )
    return [(row.name, row.configure(given, precision)) for row, given in rows]


def _named(provider: Any) -> tuple[Row, dict[str, Any]]:
    """The row of a provider that is there, and the options that were given with it."""
    match provider:
        case str(name) | (str(name), None):
            options: dict[str, Any] = {}
        case (str(name), dict(options)):
            pass
        case _:
            raise InvalidInputError(f"a provider requires a name, alone or with options, got {provider!r}")
    row = row_of(name)
    available = ort.get_available_providers()
    plugin = provider_plugins.plugin_of(row)
    if plugin is not None:
        provider_plugins.devices(row, plugin, options)
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
    plugins = {name: provider_plugins.plugin_of(row_of(name)) for name, _ in providers}
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
            options.add_provider_for_devices(*provider_plugins.devices(row_of(name), plugin, given))
    options.add_session_config_entry(_ATTACHED, wanted)
    return None


def _attached(options: ort.SessionOptions) -> str | None:
    try:
        return str(options.get_session_config_entry(_ATTACHED))
    except RuntimeError:
        return None


def target_of(providers: Sequence[Resolved]) -> str | None:
    """What `lower` calls the first of the providers, which is to run as much as it can."""
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
