"""Dependencies point one way: from the command line down to the errors, and each library has its own place."""

from __future__ import annotations

import ast
import functools
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# From the bottom up. A unit, a module or a folder of the package, may import units of the layers below its own; units
# of one layer do not know each other.
LAYERS = (
    ("errors",),
    ("arguments", "budget", "dims", "dtypes", "extras", "forks", "reachability", "replacement", "telemetry"),
    ("declarations", "plugins"),
    ("registry",),
    ("opdef",),
    ("layouts", "signatures", "spatial"),
    ("ops",),
    ("graph", "op_reference", "raw_ops_source", "schemas", "weights"),
    ("records",),
    ("checkpoints", "pictures"),
    ("passes",),
    ("onnx", "runtime"),
    ("tensorflow",),
    ("extend", "keras", "ort_training", "raw_ops", "report", "torch"),
    ("cli",),
    ("__main__",),
    ("benchmarks",),
)
RANK = {unit: rank for rank, units in enumerate(LAYERS) for unit in units}

# Library -> the only places that import it.
LIBRARIES = {
    "keras": ("lstm_lower/keras/", "benchmarks/"),
    "matplotlib": ("lstm_lower/pictures.py",),
    "onnxruntime": ("runtime/", "passes/opset/installed.py", "lstm_lower/ort_training/api/", "benchmarks/"),
    "pyarrow": ("runtime/training/data/files.py",),
    "ray": ("runtime/training/parallel/pool.py",),
    "safetensors": ("runtime/training/checkpoint.py",),
    "tensorboard": ("lstm_lower/checkpoints/messages.py", "runtime/training/tensorboard.py"),
    "tensorflow": ("lstm_lower/tensorflow/", "lstm_lower/keras/", "benchmarks/"),
    "tf2onnx": ("lstm_lower/tensorflow/", "benchmarks/"),
    "torch": ("lstm_lower/torch/", "benchmarks/"),
    "typer": ("lstm_lower/cli/", "benchmarks/"),
}

# What still points the other way. This list only gets shorter.
EXCEPTIONS: set[tuple[str, str]] = set()


# Imports against the direction of their folder: what a method does is written above the class that has it.
UPWARDS = {
    ("runtime/feeds_cudnn.py", "lstm_lower.runtime.proof.oracles.registry"),
    ("runtime/feeds_cudnn.py", "lstm_lower.runtime.proof.reference"),
    ("runtime/session.py", "lstm_lower.runtime.measuring.fastest"),
    ("runtime/training/trainable.py", "lstm_lower.runtime.training.parallel.trainer"),
    ("runtime/training/trainer.py", "lstm_lower.runtime.training.bundle"),
}


def module_name(path: Path) -> str:
    """What a file of the repository is imported as."""
    parts = [*path.with_suffix("").parts]
    if parts[0] in ("passes", "runtime"):
        parts.insert(0, "lstm_lower")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imports(path: Path) -> list[str]:
    """What a file imports, wherever in it, absolute as the house rules want it: modules, and names of modules."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, path
            found += (f"{node.module}.{alias.name}" for alias in node.names)
    return found


FILES = {
    path.relative_to(ROOT).as_posix(): path
    for folder in ("lstm_lower", "passes", "runtime", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
    # Names of the package are imported lazily there, and once more for type checkers.
    if path != ROOT / "lstm_lower/__init__.py"
}
MODULES = {module_name(Path(name)) for name in FILES}


def unit_of(module: str) -> str:
    first, *rest = module.split(".")
    return rest[0] if first == "lstm_lower" and rest else first


@functools.cache
def known_modules(path: Path) -> frozenset[str]:
    """The modules of the project that a file imports."""
    found = set()
    for name in imports(path):
        module = name if name in MODULES else name.rpartition(".")[0]
        if module in MODULES:
            found.add(module)
    return frozenset(found)


@functools.cache
def wrong_ways() -> set[tuple[str, str]]:
    found = set()
    for name, path in FILES.items():
        own = unit_of(module_name(Path(name)))
        for module in known_modules(path):
            other = unit_of(module)
            if other != own and RANK[other] >= RANK[own]:
                found.add((name, module))
    return found


def test_every_unit_has_its_layer() -> None:
    assert {unit_of(module) for module in MODULES} == set(RANK)


def test_dependencies_point_one_way() -> None:
    assert wrong_ways() - EXCEPTIONS == set()


def test_no_exception_is_left_over() -> None:
    assert EXCEPTIONS - wrong_ways() == set(), "good: take these off the list"


def members(folder: str, *, without: set[tuple[str, str]] = frozenset()) -> dict[str, set[str]]:
    """What is in a folder, files and folders, and what each of them imports of the others, for types alone too."""
    found: dict[str, set[str]] = {}
    for name, path in FILES.items():
        own = member_of(module_name(Path(name)), folder)
        others = {member_of(module, folder) for module in known_modules(path) if (name, module) not in without}
        if own is not None:
            found.setdefault(own, set()).update(other for other in others if other not in (own, None))
    return found


def member_of(module: str, folder: str) -> str | None:
    inside = module.startswith(f"{folder}.") or module == folder
    return module.removeprefix(folder).lstrip(".").partition(".")[0] or "__init__" if inside else None


@pytest.mark.parametrize("folder", sorted({module.rpartition(".")[0] for module in MODULES} - {""}))
def test_no_circle_in_a_folder(folder: str) -> None:
    """A folder's files and folders can be read in an order in which each knows only what was read before."""
    graphlib.TopologicalSorter(members(folder, without=UPWARDS)).prepare()


@pytest.mark.parametrize(("name", "module"), sorted(UPWARDS))
def test_no_way_up_is_left_over(name: str, module: str) -> None:
    assert module in known_modules(ROOT / name), "good: take it off the list"


def test_rules_import_no_oracle() -> None:
    """One mistake must not hide in both."""
    for name, path in FILES.items():
        if name.startswith("passes/"):
            assert not any("proof" in imported.split(".") for imported in imports(path)), name


@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_have_their_place(library: str) -> None:
    importers = {name for name, path in FILES.items() if any(it.split(".")[0] == library for it in imports(path))}
    assert {name for name in importers if not name.startswith(LIBRARIES[library])} == set()
