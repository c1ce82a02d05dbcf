"""The check of the built site finds what is wrong with one; `.ci/run` builds it and has it checked."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SOUND = '<a href="other.html#below">there</a><img src="picture.svg"><a href="https://example.com/">elsewhere</a>'


@pytest.fixture
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_site", ROOT / ".ci/check_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def said(check: ModuleType, site: Path, text: str) -> list[str]:
    """What is said of one page beside another page and a picture."""
    (site / "page.html").write_text(text)
    (site / "other.html").write_text('<h2 id="below">Below</h2>')
    (site / "picture.svg").write_text("<svg/>")
    return [fault for fault in check.faults(site) if fault.startswith("page.html")]


def test_a_sound_page(check: ModuleType, tmp_path: Path) -> None:
    assert said(check, tmp_path, SOUND) == []


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        (SOUND.replace("other.html", "gone.html"), "gone.html#below, which is not there"),
        (SOUND.replace("#below", "#above"), "other.html#above, a page without that anchor"),
        (SOUND.replace("picture.svg", "https://example.com/p.svg"), "fetches https://example.com/p.svg"),
        (SOUND + '<script src="//example.com/a.js"></script>', "fetches //example.com/a.js"),
        (SOUND + '<link rel="stylesheet" href="missing.css">', "missing.css, which is not there"),
    ],
)
def test_faults_of_pages(check: ModuleType, tmp_path: Path, changed: str, fault: str) -> None:
    (found,) = said(check, tmp_path, changed)
    assert found.endswith(fault)


def test_missing_pages_and_names(check: ModuleType, tmp_path: Path) -> None:
    said(check, tmp_path, SOUND)
    found = check.faults(tmp_path)
    assert "docs/install.md is no page" in found
    assert "docs/api.md lacks Trainer" in found
