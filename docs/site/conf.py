"""The pages as a site: `python -m sphinx -W -c docs/site . build/site`, and open build/site/index.html.

The repository's root is the source, so that a page lies on the site where it lies in the repository, and links are
those of GitHub. Nothing is fetched, neither when the site is built nor when it is read.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import lstm_lower  # noqa: E402  (of this checkout)

project = "lstm-lower"
version = release = lstm_lower.__version__
project_copyright = "Apache-2.0"
extensions = ["myst_parser", "sphinx_copybutton", "sphinx_external_toc", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

external_toc_path = "docs/site/toc.yml"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/*.md",
    "docs/ops/*.md",
    "examples/README.md",
    "examples/*/README.md",
]
exclude_patterns = ["**/node_modules"]

myst_heading_anchors = 4  # named as GitHub names them
suppress_warnings = ["myst.header"]

autodoc_mock_imports = ["keras", "tensorflow", "torch"]
default_role = "literal"  # single backticks in docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
pygments_dark_style = "github-dark"  # the default underlines names, as if they were links
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1b5f91", "color-brand-content": "#1b5f91"},
    "dark_css_variables": {"color-brand-primary": "#7db8e8", "color-brand-content": "#7db8e8"},
}
html_title = "lstm-lower"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_search_summary = False  # summaries would be fetched, which a browser refuses for files on a disk
html_show_sphinx = False

# On GitHub the Python reference is a list; on the site each name is followed by its docstring.
_DIRECTIVE = re.compile(r"^<!-- (auto\w+ \S+) *(.*?) -->$", re.MULTILINE)


def _document(match: re.Match[str]) -> str:
    kind, _, name = match[1].partition(" ")
    options = "".join(f"   :{option}:\n" for option in match[2].split())
    return f"```{{eval-rst}}\n.. {kind}:: {name}\n{options}```"


def _read(_app: Sphinx, name: str, text: list[str]) -> None:
    if name == "docs/api":
        text[0] = _DIRECTIVE.sub(_document, text[0])


def _finish(app: Sphinx, fault: Exception | None) -> None:
    """The README is the first page under the name that servers ask for."""
    if fault is None and app.builder.format == "html":
        shutil.copyfile(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    app.connect("source-read", _read)
    app.connect("build-finished", _finish)
