"""Writes the small training graphs of `tensorflow_loops/`: graph, checkpoint, what was fed and what came of it.

    python -m tests.data.record_tensorflow_loops

needs TensorFlow with tf-keras. `graphs.tar.xz` has the files `.meta`, `.index`, `.data-00000-of-00001` and `.npz`, as
TensorFlow writes them, of every graph that the tests take of the forms and of the grid.
"""

from __future__ import annotations

import lzma
import tarfile
import tempfile
from pathlib import Path

from tests.tensorflow.loops.checks import Maker
from tests.tensorflow.loops.grid import PART, REFUSED, SOME_FORMS

FOLDER = Path(__file__).parent / "tensorflow_loops"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Maker(Path(folder)) as maker:
        archive(maker, FOLDER / "graphs.tar.xz")


def archive(maker: Maker, target: Path) -> None:
    """Packs every graph that the tests take."""
    # Filters of a large dictionary, since graphs repeat each other.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
    with lzma.open(target, "wb", filters=filters) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        made = [maker.graph(name) for name in (*SOME_FORMS, *PART, *REFUSED)]
        for suffix in (".meta", ".index", ".data-00000-of-00001", ".npz"):
            for meta in made:
                path = meta.with_suffix(suffix)
                about = tarfile.TarInfo(path.name)
                about.size = path.stat().st_size
                with path.open("rb") as opened:
                    tar.addfile(about, opened)
    print(f"{target.name}: {target.stat().st_size} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
