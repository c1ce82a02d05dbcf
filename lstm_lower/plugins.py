"""Definitions, rules and oracles of other packages: those that are installed, and those that a user names."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import threading
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from lstm_lower import forks
from lstm_lower.errors import InvalidInputError

# A package offers ops by an entry point of this group, whose module registers them when it is imported.
GROUP = "lstm_lower.ops"

_loading = threading.local()

# Every module that has registered something.
_contributors: set[str] = set()


def load_package(package: str) -> None:
    """Imports every module of a package, and of the packages in it; each registers what it defines."""
    with forks.uncut():
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
            if module.ispkg:
                load_package(module.name)


def load_installed() -> bool:
    """Imports the modules that installed packages offer.

    Returns:
        Whether they are all there: not while one of them is just being imported and asks for an op itself.

    Raises:
        InvalidInputError: one of them cannot be imported, or registers nothing.
    """
    if getattr(_loading, "now", False):
        return False
    _loading.now = True
    try:
        for entry in metadata.entry_points(group=GROUP):
            package = f"package '{entry.dist.name}'" if entry.dist else "folder on Python's path"
            what = f"the entry point {entry.name} = {entry.value} (group {GROUP}) of the installed {package}"
            _import(what, entry.value.partition(":")[0].strip(), "mend or uninstall it")
    finally:
        _loading.now = False
    return True


def load(modules: Sequence[str]) -> None:
    """Imports modules that register ops.

    Args:
        modules: the name of each, or the path of a Python file.

    Raises:
        InvalidInputError: one of them cannot be imported, or registers nothing.
    """
    if modules:
        # What is installed is there first, so that a name that is taken is this module's fault.
        load_installed()
    for module in modules:
        what, hint = f"plugin '{module}'", "name a module on Python's path or a Python file that defines ops"
        if module.endswith(".py"):
            _import(what, str(Path(module).resolve()), hint, file=True)
        else:
            _import(what, module, hint)


def contributes(module: str) -> None:
    """Notes that a module has registered something."""
    _contributors.add(module)


def _import(what: str, module: str, hint: str, *, file: bool = False) -> None:
    """Imports a module, or executes a file as a module named after its path, which no other module is."""
    requirement = f"{what} requires a module that can be imported and registers ops"
    try:
        with forks.uncut():
            if file:
                _execute(module)
            else:
                importlib.import_module(module)
    # Whoever ends the process when imported is no better than who raises.
    except (Exception, SystemExit) as error:
        raise InvalidInputError(f"{requirement}, got {type(error).__name__}: {error}; {hint}") from error
    # It may leave them to other modules of its package.
    top = module if file else module.partition(".")[0]
    if not any(name == top or name.startswith(f"{top}.") for name in _contributors):
        raise InvalidInputError(f"{requirement}, got no definition, rule or oracle; {hint}")


def _execute(path: str) -> None:
    spec = importlib.util.spec_from_file_location(path, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path]
        raise
