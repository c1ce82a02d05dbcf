"""The public names against a recorded list: docs/stability.md says what is promised of them."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main

import lstm_lower
from lstm_lower import extend, passes
from lstm_lower.cli.main import app
from tests.conftest import Golden

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTED = re.findall(
    r"^<!-- auto(?:function|class|exception|module) lstm_lower\.(\S+)",
    (ROOT / "docs" / "api.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def signature(function: Any, *, of_class: bool = False) -> str:
    """Arguments with their defaults, as far as Python tells; what they are annotated with may change."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        return ""
    given = parameters[1:] if of_class and inspect.isfunction(function) else parameters
    return str(inspect.Signature([x.replace(annotation=inspect.Parameter.empty) for x in given]))


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class, and those that it inherits from a class of ours that is not listed."""
    listed = {path.rpartition(".")[2] for path in DOCUMENTED}
    ours = [base for base in kind.__mro__ if base.__module__.startswith("lstm_lower")]
    heirs = [base for base in ours if base is kind or base.__name__ not in listed]
    for name, value in inspect.getmembers(kind):
        if not name.startswith("_") and any(name in vars(base) for base in heirs):
            yield name, value


def lines(name: str, value: Any) -> Iterator[str]:
    """A function, or a class with its members, or a module with its functions, a line each."""
    if isinstance(value, ModuleType):
        for inner, function in inspect.getmembers(value, inspect.isfunction):
            if not inner.startswith("_") and function.__module__ == value.__name__:
                yield from lines(f"{name}.{inner}", function)
    elif isinstance(value, type):
        yield name if issubclass(value, Exception | Enum) else name + signature(value)
        for inner, member in members(value):
            yield f"{name}.{inner}" + (signature(member, of_class=True) if callable(member) else "")
    else:
        yield name + signature(value) if callable(value) else name


def documented() -> Iterator[str]:
    """What docs/api.md lists."""
    for path in DOCUMENTED:
        module, _, name = path.rpartition(".")
        parent = importlib.import_module(".".join(filter(None, ["lstm_lower", module])))
        # A module is no attribute of its folder before something imports it.
        value = getattr(parent, name, None) or importlib.import_module(f"lstm_lower.{path}")
        yield from lines(path, value)


def exported(module: ModuleType) -> Iterator[str]:
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        yield from [name] if isinstance(value, ModuleType) else lines(name, value)


def commands() -> Iterator[str]:
    """Every command with its arguments and options."""
    for name, command in sorted(typer.main.get_group(app).commands.items()):
        for parameter in command.params:
            spelt = [*parameter.opts, *parameter.secondary_opts]
            words = ", ".join(spelt) if parameter.param_type_name == "option" else parameter.name.upper()
            yield f"{name} {words}" + (" (required)" if parameter.required else "")


def keys() -> Iterator[str]:
    """What docs/bundle.md says of the keys of training.json."""
    page = (ROOT / "docs" / "bundle.md").read_text(encoding="utf-8")
    section = page.split("\n## training.json\n")[1].split("\n## ")[0]
    for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE):
        yield from re.findall(r"`(\w+)`", row)


def test_public_names_are_the_recorded_ones(golden: Golden) -> None:
    for framework in ("tensorflow", "torch"):
        pytest.importorskip(framework)
    golden(
        "public_names",
        **{
            "lstm_lower": "\n".join(lstm_lower.__all__),
            "lstm_lower, as docs/api.md lists it": "\n".join(documented()),
            "lstm_lower.extend": "\n".join(exported(extend)),
            "lstm_lower.passes": "\n".join(exported(passes)),
            "lstm-lower": "\n".join(commands()),
            "training.json": "\n".join(keys()),
        },
    )
