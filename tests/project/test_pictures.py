"""Pictures: one style, colours for light and for dark pages, the same file for the same content."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from lstm_lower import pictures

ROOT = Path(__file__).parents[2]


def drawn(path: Path) -> str:
    with pictures.picture(path, height=2) as figure:
        axes = figure.subplots()
        axes.plot([1, 2, 3], color=pictures.ORANGE)
        axes.set_title("a title")
    return path.read_text()


def test_every_colour_has_one_for_dark_pages(tmp_path: Path) -> None:
    svg = drawn(tmp_path / "one.svg")
    assert f'[style*="stroke: {pictures.ORANGE}"] {{ stroke: {pictures.DARK[pictures.ORANGE]} !important }}' in svg
    assert f'[style*="fill: {pictures.PAPER}"]' in svg
    used = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", re.sub(r"(?s)<style.*?</style>", "", svg)))
    assert used <= set(pictures.DARK) | {"#000000"}
    assert svg.count("<!-- a title -->") == 1


def test_equal_content_gives_equal_files(tmp_path: Path) -> None:
    assert drawn(tmp_path / "one.svg") == drawn(tmp_path / "other.svg")


def test_nothing_is_written_where_drawing_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), pictures.picture(tmp_path / "one.svg", height=2):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_the_architecture_is_drawn_as_its_script_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["architecture.py", "--out", str(tmp_path)])
    runpy.run_path(str(ROOT / "docs/pictures/architecture.py"), run_name="__main__")
    texts = [
        re.findall(r"<!-- (.*?) -->", (folder / "architecture.svg").read_text())
        for folder in (ROOT / "docs/images", tmp_path)
    ]
    assert texts[0] == texts[1]
    assert "passes on loops" in texts[0]


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("docs/images/*.svg")) + sorted(ROOT.glob("examples/*/*.svg")), ids=lambda path: path.stem
)
def test_every_svg_can_be_read_on_a_dark_page(path: Path) -> None:
    assert "@media (prefers-color-scheme: dark)" in path.read_text()
