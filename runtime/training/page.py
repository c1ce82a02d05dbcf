"""A page that trains a bundle in a browser: a folder that any static server serves."""

from __future__ import annotations

import shutil
from pathlib import Path

from lstm_lower.errors import InvalidInputError
from lstm_lower.records.files import atomic_files, check_place

# Built from runtime/javascript, where the sources are, by its `npm run build`: a wheel is made without Node.
_BUILT = Path(__file__).parents[1] / "javascript" / "dist"
_PACKAGE = ("index.js", "worker.js")
_PAGE = ("index.html", "page.css", "page.js")
BUNDLE = "bundle"

# The version of onnxruntime-node and onnxruntime-web that tests train bundles with, which the page takes.
NPM_VERSION = "1.30.0"
# Where the page takes onnxruntime-web from, and by provider the files of it that it takes.
ELSEWHERE = f"https://cdn.jsdelivr.net/npm/onnxruntime-web@{NPM_VERSION}/dist/"
_BESIDE = "onnxruntime-web"
_WASM = "ort-wasm-simd-threaded"
_RUNTIME = {
    "wasm": ("ort.wasm.min.mjs", f"{_WASM}.mjs", f"{_WASM}.wasm"),
    "webgpu": ("ort.webgpu.min.mjs", f"{_WASM}.asyncify.mjs", f"{_WASM}.asyncify.wasm"),
}


def files_of(onnxruntime_web: Path | None, *, webgpu: bool = False) -> dict[str, Path]:
    """The files of a page beside its bundle: where each goes, and where it is now.

    Args:
        onnxruntime_web: the folder of the npm package, as in `node_modules`; `None` where the page takes it from a
            public server.
        webgpu: whether the page computes on GPUs, too.

    Raises:
        InvalidInputError: the package's folder lacks a file.
    """
    files = {name: _BUILT / name for name in _PACKAGE} | {name: _BUILT / "page" / name for name in _PAGE}
    if onnxruntime_web is None:
        return files
    names = [*_RUNTIME["wasm"], *(_RUNTIME["webgpu"] if webgpu else ())]
    held = {f"{_BESIDE}/{name}": onnxruntime_web / "dist" / name for name in names}
    for path in held.values():
        if not path.is_file():
            raise InvalidInputError(
                f"the npm package onnxruntime-web requires {path.relative_to(onnxruntime_web)}, got {onnxruntime_web} "
                f"without it; npm install onnxruntime-web@{NPM_VERSION} makes node_modules/onnxruntime-web"
            )
    return files | held


def write_page(folder: Path, files: dict[str, Path]) -> None:
    """Writes a page into a folder with a bundle.

    Args:
        folder: the folder; the page trains what is in its folder `bundle`.
        files: see `files_of`.

    Raises:
        OSError: nothing can be written there.
    """
    check_place(*(folder / name for name in files if "/" not in name))
    inner = {name.partition("/")[2]: path for name, path in files.items() if "/" in name}
    if inner:
        with atomic_files(folder / _BESIDE) as written:
            for name, path in inner.items():
                shutil.copyfile(path, written / name)
    with atomic_files(folder, first="index.html") as written:
        for name, path in files.items():
            if "/" not in name:
                shutil.copyfile(path, written / name)
        if inner:
            page = written / "index.html"
            page.write_text(page.read_text(encoding="utf-8").replace(ELSEWHERE, f"{_BESIDE}/"), encoding="utf-8")
