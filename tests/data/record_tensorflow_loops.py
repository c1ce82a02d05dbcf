"""Writes the small training graphs under `tensorflow_loops/`: graph, checkpoint, what was fed and what came of it.

    python -m tests.data.record_tensorflow_loops

needs TensorFlow with tf-keras. What a training step does not need is taken out of a few graphs, each in an archive that
holds the files `.meta`, `.index` and `.data-00000-of-00001` as bytes besides what was recorded. `graphs.tar.xz` has
these four files, as TensorFlow writes them, of every graph that the tests take of the forms and of the grid.
"""

from __future__ import annotations

import lzma
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.meta_graph_pb2 import MetaGraphDef

from tests.tensorflow.loops.checks import Maker
from tests.tensorflow.loops.grid import PART, REFUSED, SOME_FORMS

FOLDER = Path(__file__).parent / "tensorflow_loops"

NAMES = (
    "v1/gru/lengths/momentum",
    "v1/block/whole/sgd",
    "v1/arrays/lengths/adam",
    "v1/cond/whole/sgd",
    "v1/nested/whole/sgd",
    "v1/decoder/whole/rmsprop",
    "v1/loop_in_cond",
    "v1/warm_up",
    "v1/counted_in_branch",
    "v2/basic/lengths/sgd",
    "v2/arrays/whole/sgd",
    "v2/decoder/whole/sgd",
    "v2/cond/whole/sgd",
    "v2/switch_case",
)

COLLECTIONS = ("trainable_variables", "variables")
ATTRIBUTES = ("_output_shapes", "_class", "_num_original_outputs", "parallel_iterations")


def stripped(meta: MetaGraphDef) -> MetaGraphDef:
    """A graph without what the training step does not need."""
    found = MetaGraphDef()
    found.CopyFrom(meta)
    for name in [name for name in found.collection_def if name not in COLLECTIONS]:
        del found.collection_def[name]
    for field in ("saver_def", "object_graph_def", "meta_info_def"):
        found.ClearField(field)
    nodes = {node.name: node for node in meta.graph_def.node}
    needed, pending = set(), ["loss", "train"]
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending += [source.lstrip("^").partition(":")[0] for source in nodes[name].input]
    del found.graph_def.node[:]
    found.graph_def.node.extend(node for name, node in nodes.items() if name in needed)
    functions = found.graph_def.library.function
    for held in (found.graph_def.node, *(function.node_def for function in functions)):
        for node in held:
            for name in ATTRIBUTES:
                node.attr.pop(name, None)
            node.ClearField("experimental_debug_info")
    for function in functions:
        function.ClearField("arg_attr")
    return found


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory() as folder, Maker(Path(folder)) as maker:
        for name in NAMES:
            made = maker.graph(name)
            meta = stripped(MetaGraphDef.FromString(made.read_bytes()))
            held = {f"file/{path.name}": path.read_bytes() for path in made.parent.glob(f"{made.stem}.*[0-9x]")}
            held[f"file/{made.name}"] = meta.SerializeToString(deterministic=True)
            with np.load(made.with_suffix(".npz")) as recorded:
                arrays = dict(recorded)
            target = FOLDER / f"{made.stem}.npz"
            np.savez_compressed(target, **arrays, **{key: np.frombuffer(data, np.uint8) for key, data in held.items()})
            print(f"{target.name}: {target.stat().st_size} bytes")  # noqa: T201
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
