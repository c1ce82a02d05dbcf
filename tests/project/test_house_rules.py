"""Rules of the house that a machine can count: where operators are named, and how long a file may be."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import onnx

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}

# The views of ONNX's operators name them. What the other folders name is TensorFlow's, though some names are the same:
# nodes of its graphs, the forward op of a gradient, the op that an oracle is of.
NAMED_IN = (
    "lstm_lower/graph/standard",
    "lstm_lower/keras/",
    "lstm_lower/ops/",
    "lstm_lower/tensorflow/",
    "runtime/proof/oracles/",
)

LONGEST = 800
GENERATED = {"lstm_lower/raw_ops.py"}


def sources(*folders: str) -> dict[str, str]:
    """Texts of the Python files below some folders."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def operators_named() -> dict[str, int]:
    """File -> number of strings that are an ONNX operator's name."""
    found = {}
    for name, text in sources("lstm_lower", "passes", "runtime").items():
        if name.startswith(NAMED_IN):
            continue
        constants = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
        count = sum(isinstance(value, str) and value in OPERATORS for value in constants)
        if count:
            found[name] = count
    return found


def test_operators_are_named_in_one_place() -> None:
    """What `Pad` means stands in its view; a pass that names it in quotes knows it a second time."""
    assert operators_named() == {}


def test_no_file_is_long() -> None:
    everything = sources("lstm_lower", "passes", "runtime", "benchmarks", "examples", "tests", ".ci")
    long = {name for name, text in everything.items() if text.count("\n") > LONGEST}
    assert long - GENERATED == set()


OPTIONAL = {"keras", "pyarrow", "ray", "sklearn", "tensorflow", "torch"}


def test_tests_ask_for_what_may_not_be_installed() -> None:
    """`pytest` alone collects every test where none of the extras is there."""
    unasked = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        asked: set[str] = set()
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if "importorskip" in ast.dump(statement):
                asked |= {node.value for node in ast.walk(statement) if isinstance(node, ast.Constant)}
            elif isinstance(statement, ast.Import | ast.ImportFrom):
                names = (
                    [a.name for a in statement.names] if isinstance(statement, ast.Import) else [statement.module or ""]
                )
                unasked += [f"{path.name}: {name}" for name in names if name.partition(".")[0] in OPTIONAL - asked]
    assert unasked == []


def test_every_page_is_in_the_menu() -> None:
    """A page of docs/ has a line in the site's menu, and a line has a page."""
    menu = (ROOT / "docs/site/toc.yml").read_text(encoding="utf-8")
    listed = re.findall(r"file: (docs/\S+)$", menu, re.MULTILINE)
    pages = {path.relative_to(ROOT).with_suffix("").as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert sorted(listed) == sorted(pages), "docs/site/toc.yml lists the pages of docs/"


def test_no_conflict_is_left_in_a_page() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/*.md")]
    marks = re.compile("^(<{7} |={7}$|>{7} )", re.MULTILINE)
    assert [page.name for page in pages if marks.search(page.read_text(encoding="utf-8"))] == []


def test_changelog_is_for_users() -> None:
    """A release is at most 120 lines, whatever number of commits it has: what a user can do, not what was done."""
    releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert {text.split("\n")[0]: text.count("\n") for text in releases if text.count("\n") > 120} == {}
