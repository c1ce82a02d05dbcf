"""The package as it is installed: its folders, version, public names, and what importing it costs."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import lstm_lower

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = {"lstm_lower": "lstm_lower", "passes": "lstm_lower.passes", "runtime": "lstm_lower.runtime"}


def package_folders() -> list[str]:
    """Import names of every folder below the three source folders that holds Python files."""
    names = set()
    for folder, name in SOURCES.items():
        for path in (ROOT / folder).rglob("*.py"):
            inner = path.parent.relative_to(ROOT / folder).parts
            names.add(".".join([name, *inner]))
    return sorted(names)


def test_package_list_equals_folders() -> None:
    assert sorted(PYPROJECT["tool"]["setuptools"]["packages"]) == package_folders()


def test_every_package_folder_has_an_init() -> None:
    folders = [path.parent for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_version_equals_metadata() -> None:
    assert metadata.version("lstm-lower") == lstm_lower.__version__


def test_marked_as_typed() -> None:
    assert (ROOT / "lstm_lower" / "py.typed").is_file()
    assert "py.typed" in PYPROJECT["tool"]["setuptools"]["package-data"]["lstm_lower"]


# Public name -> the package that it needs, and the extra that has it.
NEEDED = {"from_keras": ("tensorflow", "tensorflow"), "from_torch": ("torch", "torch"), "scan": ("torch", "torch")}


@pytest.mark.parametrize("name", lstm_lower.__all__)
def test_public_name_resolves(name: str) -> None:
    package, extra = NEEDED.get(name, ("numpy", ""))
    if importlib.util.find_spec(package) is None:
        with pytest.raises(ImportError, match=rf"pip install 'lstm-lower\[{extra}\]'"):
            getattr(lstm_lower, name)
        return
    assert getattr(lstm_lower, name) is not None
    assert name in dir(lstm_lower)


@pytest.mark.parametrize("name", ["benchmarks", "examples", "tests"])
def test_what_lies_beside_the_package_is_not_in_it(name: str) -> None:
    assert importlib.util.find_spec(f"lstm_lower.{name}") is None


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lowr'"):
        lstm_lower.lowr  # noqa: B018


def test_console_script_resolves() -> None:
    module, _, name = PYPROJECT["project"]["scripts"]["lstm-lower"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def loaded_modules(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after `code`."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    output = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(output.stdout.split())


def test_bare_import_is_light() -> None:
    loaded = loaded_modules("import lstm_lower")
    assert not loaded & {"tensorflow", "tf2onnx", "torch", "onnx", "onnx_ir", "onnxruntime", "numpy", "typer"}


def test_help_is_light() -> None:
    assert not loaded_modules("import lstm_lower.cli.main") & {"onnx", "onnx_ir", "onnxruntime", "numpy"}


def test_core_needs_neither_tensorflow_nor_torch() -> None:
    everything = [
        ".".join([SOURCES[folder], *path.relative_to(ROOT / folder).with_suffix("").parts])
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
        and not {"tensorflow", "keras", "torch"} & set(path.relative_to(ROOT).parts)
    ]
    imports = "\n".join(f"import {name}" for name in everything)
    assert not loaded_modules(imports) & {"tensorflow", "tf2onnx", "torch", "keras"}


def text_files() -> dict[Path, str]:
    """Every text file of the project's own folders, but for this one."""
    folders = ["lstm_lower", "passes", "runtime", "benchmarks", "tests", "examples", "docs", ".ci"]
    inner = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    inner = [path for path in inner if not {"__pycache__", "node_modules"} & set(path.parts)]
    texts = {}
    for path in [*ROOT.glob("*.*"), *inner]:
        if path.is_file() and path.name != ".git" and path != Path(__file__).resolve():
            content = path.read_bytes()
            if b"\0" not in content:
                texts[path] = content.decode("utf-8", "replace")
    return texts


def test_no_file_names_a_private_place() -> None:
    private = re.compile(r"(?<![\w.])/(?:work|home|root|Users)/\w|\.\./shared\b|file:///")
    texts = text_files()
    assert len(texts) > 50
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line}"
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if private.search(line)
    ]
    assert found == []
