"""Checks a built site: links and anchors lead somewhere, nothing is fetched, every page and public name is there.

Usage: python .ci/check_site.py build/site
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import lstm_lower

ROOT = Path(__file__).resolve().parents[1]
# Elements of a page that a browser fetches without being asked -> where from.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "srcset"}
ELSEWHERE = {"raw_ops"}  # its functions are the ops of docs/ops.md


class Page(HTMLParser):
    """What a page links to, what it fetches, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.fetched: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag in FETCHED and FETCHED[tag] in found:
            self.fetched.add(found[FETCHED[tag]])
        if tag == "a" and "href" in found:
            self.links.add(found["href"])


def faults(site: Path) -> list[str]:
    """What is wrong with a site, a line each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        for target in sorted(page.links | page.fetched):
            parts = urlsplit(target)
            if parts.scheme in ("http", "https") or parts.netloc:
                # Links to elsewhere are for the reader to follow; from here they cannot be reached.
                found += [f"{name} fetches {target}"] if target in page.fetched else []
            elif not parts.scheme:
                at = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                if not at.is_file():
                    found.append(f"{name} links to {target}, which is not there")
                elif parts.fragment and at in pages and unquote(parts.fragment) not in pages[at].anchors:
                    found.append(f"{name} links to {target}, a page without that anchor")
    sources = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "ops").glob("*.md"), *ROOT.glob("examples/*/README.md")]
    made = {source: site / source.relative_to(ROOT).with_suffix(".html") for source in sources}
    found += [f"{source.relative_to(ROOT)} is no page" for source, page in made.items() if page not in pages]
    api = pages.get(site / "docs" / "api.html", Page(""))
    names = [name for name in lstm_lower.__all__ if name not in ELSEWHERE]
    return found + [f"docs/api.md lacks {name}" for name in names if f"lstm_lower.{name}" not in api.anchors]


def main() -> None:
    """Prints the faults, and fails where there are any."""
    site = Path(sys.argv[1]).resolve()
    found = faults(site)
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
