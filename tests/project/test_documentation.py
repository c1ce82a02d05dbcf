"""Everything that the pages tell a reader to run is run, or named with the reason why it is not."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main

from benchmarks.__main__ import app as benchmarks_app
from lstm_lower.cli.main import app
from tests.support import documentation
from tests.support.documentation import (
    COMMANDS,
    EXAMPLES,
    JAVASCRIPT,
    NOT_RUN,
    PAGES,
    PYTHON,
    QUICKER,
    ROOT,
    SHOWN,
    Block,
)

RUN_OR_SHOWN = (COMMANDS, PYTHON, JAVASCRIPT, *SHOWN)

# tests/project/test_examples.py runs the pages of the examples.
HERE = [page for page in PAGES if EXAMPLES not in page.parents]


def without_tensorflow(programs: list[list[tuple[Block, Block | None]]]) -> list[list[tuple[Block, Block | None]]]:
    """The programs that need neither TensorFlow nor a file that one with TensorFlow writes."""
    kept, files = [], set()
    for program in programs:
        text = "".join(block.text for block, _ in program)
        named = set(re.findall(r'"([\w.]+\.onnx)"', text))
        if re.search(r"import (tensorflow|keras)|from_keras", text) or named & files:
            files |= named
        else:
            kept.append(program)
    return kept


def pages_with(language: str) -> list[Path]:
    return [page for page in HERE if documentation.blocks(page, language)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return documentation.place_to_run(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with(PYTHON), ids=lambda page: page.stem)
def test_python(page: Path, folder: Path) -> None:
    """The programs of one page in order; where TensorFlow is missing, those that do without."""
    programs = documentation.programs(page)
    if importlib.util.find_spec("tensorflow") is None:
        programs = without_tensorflow(programs)
    if importlib.util.find_spec("torch") is None:
        programs = [program for program in programs if not any("import torch" in block.text for block, _ in program)]
    if importlib.util.find_spec("ray") is None:
        programs = [program for program in programs if not any("workers=" in block.text for block, _ in program)]
    if programs:
        documentation.run_programs(programs, folder)
    if len(programs) < len(documentation.programs(page)):
        pytest.skip("the others need TensorFlow, PyTorch or Ray")


# A word of a command -> the package of an extra that it asks for.
OF_EXTRAS = {"--workers": "ray", "--torch-device": "torch"}


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with(COMMANDS), ids=lambda page: page.stem)
def test_commands(page: Path, folder: Path) -> None:
    done = []
    for block in documentation.blocks(page, COMMANDS):
        for command in documentation.commands(block):
            if any(word in command and importlib.util.find_spec(of) is None for word, of in OF_EXTRAS.items()):
                continue
            words = documentation.words(command) if documentation.why_not(command) is None else []
            # Two commands may have the same quicker one.
            if words and not (command in QUICKER and words in done):
                documentation.run(words, folder)
                done.append(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_is_run_or_shown(page: Path) -> None:
    """A language that nobody runs must be one of those that nobody can; nor does code hide in an indented block."""
    unknown = [block.place for block in documentation.blocks(page) if block.language not in RUN_OR_SHOWN]
    assert unknown == []
    fences = re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(documentation.blocks(page))
    hidden = re.findall(r"^ {4,}(?:python|pip|lstm-lower|import|\$) .*", documentation.prose(page), re.MULTILINE)
    assert hidden == []
    roles = {(block.language, block.role) for block in documentation.blocks(page)}
    assert {role for role in roles if role[1]} <= {(PYTHON, "continued"), ("text", "printed")}
    # What is only shown is no command.
    for block in documentation.blocks(page):
        if block.language == "text":
            assert not re.search(r"^\$? ?(?:python|pip|lstm-lower) ", block.text, re.MULTILINE), block.place


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_can_be_run(page: Path) -> None:
    for block in documentation.blocks(page, COMMANDS):
        for command in documentation.commands(block):
            if documentation.why_not(command) is None:
                documentation.words(command)


def test_no_exception_is_left_over() -> None:
    known = [
        command
        for page in PAGES
        for block in documentation.blocks(page, COMMANDS)
        for command in documentation.commands(block)
    ]
    assert [start for start in NOT_RUN if not any(command.startswith(start) for command in known)] == []
    assert [command for command in QUICKER if command not in known] == []
    for command, quicker in QUICKER.items():
        assert command.split()[:2] == quicker.split()[:2]
        assert {word for word in command.split() if word.startswith("-")} <= set(quicker.split())


PROGRAMS = {"lstm-lower": app, "python -m benchmarks": benchmarks_app}


@functools.cache
def commands_of(program: str) -> Mapping[str, Any]:
    return typer.main.get_command(PROGRAMS[program]).commands


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_in_the_prose_exist(page: Path) -> None:
    """Commands that a sentence mentions have options that exist, and scripts that exist."""
    for text in documentation.inline_commands(page):
        program = next((start for start in PROGRAMS if text.startswith(f"{start} ")), None)
        if program is None:
            _, first, *rest = text.split()
            script = rest[0].replace(".", "/") + ".py" if first == "-m" else first
            script = re.sub("^lstm_lower/(passes|runtime)/", r"\1/", script)
            known = ("pytest", "build", "sphinx", "lstm_lower", "benchmarks")
            assert (ROOT / script).is_file() or (first == "-m" and rest[0] in known), text
            continue
        commands = commands_of(program)
        first, *rest = text.removeprefix(f"{program} ").split()
        if first == "--help":
            continue
        # `lstm-lower lower | inspect | run` lists commands.
        for name in text.removeprefix(f"{program} ").split(" | ") if "|" in text else [first]:
            assert name in commands, text
        options = {
            option for parameter in commands[first].params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        assert {word for word in rest if re.match("--?[a-z]", word)} <= options | {"--help"}, text


def test_every_page_is_linked() -> None:
    """From the README a reader reaches every page, and no link leads nowhere."""
    reached, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in reached:
            continue
        reached.add(page)
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", documentation.prose(page)):
            if not target.startswith("https://"):
                path = (page.parent / target).resolve()
                assert path.exists(), f"{page.relative_to(ROOT)}: {target}"
                if path.suffix == ".md":
                    ahead.append(path)
    assert set(PAGES) <= reached


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_are_there(page: Path) -> None:
    folders = "lstm_lower|passes|runtime|tests|benchmarks|docs|examples"
    named = re.findall(rf"`((?:{folders})/[\w./-]*)`", documentation.prose(page))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_programs_that_do_without_tensorflow() -> None:
    pages = {page.stem: documentation.programs(page) for page in HERE}
    assert without_tensorflow(pages["tensorflow"]) == []
    assert 0 < len(pages["tour"]) - len(without_tensorflow(pages["tour"])) <= 3
    assert without_tensorflow(pages["cudnn"]) == pages["cudnn"]


def test_the_page_on_ops_shows_the_example() -> None:
    """Everything in the example's module, and its pyproject.toml, stands on the page."""
    page, example = ROOT / "docs/adding-an-op.md", EXAMPLES / "plugin_op"
    shown = "".join(block.text for block in documentation.blocks(page, PYTHON))
    parts = (example / "leaky_integrator.py").read_text().split("\n\n\n")
    parts[0] = parts[0].partition("\n\n")[2]
    assert [part for part in parts if part.strip("\n") not in shown] == []
    assert (example / "pyproject.toml").read_text() in [block.text for block in documentation.blocks(page, "toml")]
