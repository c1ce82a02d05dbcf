"""Definitions, rules and oracles of other packages: those that are installed, and those that a user names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from importlib import metadata
from pathlib import Path

from lstm_lower.errors import InvalidInputError

# A package offers ops by an entry point of this group, whose module registers them when it is imported.
GROUP = "lstm_lower.ops"

_loading = threading.local()


def load_installed() -> bool:
    """Imports the modules that installed packages offer.

    Returns:
        Whether they are all there: not while one of them is just being imported and asks for an op itself.

    Raises:
        InvalidInputError: one of them cannot be imported.
    """
    if getattr(_loading, "now", False):
        return False
    _loading.now = True
    try:
        for entry in metadata.entry_points(group=GROUP):
            try:
                entry.load()
            except InvalidInputError:
                raise
            except Exception as error:
                package = entry.dist.name if entry.dist else entry.value
                text = f"the installed package '{package}' requires its ops in {entry.value} to be importable"
                reason = f"{type(error).__name__}: {error}"
                raise InvalidInputError(f"{text}, got {reason}; mend it or uninstall it") from error
    finally:
        _loading.now = False
    return True


def load(module: str) -> None:
    """Imports a module that registers ops.

    Args:
        module: its name, or the path of a Python file.

    Raises:
        InvalidInputError: it cannot be imported.
    """
    path = Path(module)
    try:
        if path.suffix == ".py" and path.is_file():
            _load_file(path)
        else:
            importlib.import_module(module)
    except InvalidInputError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InvalidInputError(
            f"plugin '{module}' requires a module on Python's path or a Python file, got {reason}"
        ) from error


def _load_file(path: Path) -> None:
    """Executes a file as a module named after its path, which no other module is."""
    spec = importlib.util.spec_from_file_location(str(path), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
