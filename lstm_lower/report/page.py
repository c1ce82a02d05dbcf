"""The page of a report: the files beside this one and the contents, in one HTML file that loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
import string
from importlib import resources
from typing import Any

from lstm_lower.errors import shown

# In the order in which they stand in the page; each may use what earlier ones define.
SCRIPTS = (
    "vendor/dagre.min.js",
    "dom.js",
    "states.js",
    "tree.js",
    "layout.js",
    "drawing.js",
    "pane.js",
    "details.js",
    "panels.js",
    "main.js",
)
_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)


def page(contents: dict[str, Any]) -> str:
    """The page that shows contents.

    Names in a model are anybody's: all contents are data in the page, which its scripts show as text. A policy allows
    the page's own scripts and styles alone, by their hashes, and no request.
    """
    scripts = [_file(name) for name in SCRIPTS]
    style = _file("report.css")
    policy = {
        "default-src": ["'none'"],
        "script-src": [_hash(script) for script in scripts],
        "style-src": [_hash(style)],
        "img-src": ["data:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }
    return string.Template(_file("report.html")).substitute(
        policy="; ".join(f"{name} {' '.join(sources)}" for name, sources in policy.items()),
        title=html.escape(shown(contents["name"])),
        style=style,
        contents=_data(contents),
        licence=html.escape(_file("vendor/dagre.LICENSE")),
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )


def _file(name: str) -> str:
    text = resources.files("lstm_lower.report").joinpath("page", name).read_text(encoding="utf-8")
    # A browser's tools would look for the map of a file that was made smaller.
    return _MAP.sub("", text)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(contents: dict[str, Any]) -> str:
    """JSON that ends no script, whatever is in it."""
    text = json.dumps(_showable(contents), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _showable(data: Any) -> Any:
    """Texts as a page may show them, and NaN and infinities, which JSON lacks, as text."""
    if isinstance(data, str):
        return shown(data, lines=True)
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, dict):
        return {_showable(key): _showable(value) for key, value in data.items()}
    return [_showable(item) for item in data] if isinstance(data, (list, tuple)) else data
