"""Kinds of files and folders: ONNX, or which of TensorFlow's graphs; recognised by the content, not the name."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import re
from pathlib import Path

from lstm_lower.records.wire import DamageError, fields


class Kind(enum.Enum):
    """Kinds of files and folders that may hold a model."""

    ONNX = "ONNX model"
    GRAPH_DEF = "GraphDef"
    META_GRAPH = "MetaGraphDef"
    SAVED_MODEL = "SavedModel"


@dataclasses.dataclass(frozen=True)
class Content:
    """The contents of a file or folder.

    Attributes:
        kind: what it is.
        path: the file to read.
        text: whether it is in protobuf's text form.
    """

    kind: Kind
    path: Path
    text: bool = False


# What files are called that may be nothing else.
_NAMES = (".pb", ".pbtxt", ".meta")
_SAVED_MODELS = ("saved_model.pb", "saved_model.pbtxt")

# More than a kind can be hidden behind: the first field of each tells it, and the beginning of that is enough.
_HEAD = 1 << 16

_NODE = re.compile(rb"[A-Za-z0-9.][\w.\\/>-]*")
_OP = re.compile(rb"[A-Za-z_][\w.>]*")
_TEXT = re.compile(r"(?:\s|#[^\n]*\n)*([a-z_]+)\s*[:{<]")
_NO_TEXT = re.compile(rb"[\0-\x08\x0e-\x1f]")

# Names that the text form of each kind may begin with.
_BEGINNINGS = {
    "saved_model_schema_version": Kind.SAVED_MODEL,
    "meta_graphs": Kind.SAVED_MODEL,
    "node": Kind.GRAPH_DEF,
    "versions": Kind.GRAPH_DEF,
    "library": Kind.GRAPH_DEF,
    "ir_version": Kind.ONNX,
    **dict.fromkeys(
        ("meta_info_def", "graph_def", "saver_def", "collection_def", "signature_def", "object_graph_def"),
        Kind.META_GRAPH,
    ),
}


def content_of(path: Path) -> Content | None:
    """The kind of what a path holds, or `None` where neither its content nor its name tells.

    A prefix of TensorFlow's checkpoints stands for the graph beside it, `PREFIX.meta`.

    Raises:
        OSError: it cannot be read.
    """
    if path.is_dir():
        saved = next((path / name for name in _SAVED_MODELS if (path / name).is_file()), None)
        return None if saved is None else Content(Kind.SAVED_MODEL, saved, saved.suffix == ".pbtxt")
    beside = path.with_name(f"{path.name}.meta")
    if not path.exists() and beside.is_file():
        return content_of(beside)
    if not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD)
    text = head.strip() != b"" and not _NO_TEXT.search(head)
    kind = _kind_of_text(head) if text else _kind_of_bytes(head)
    if kind is None and path.suffix in _NAMES:
        # Too short, or too broken, to be told: what reads it will say so.
        named = path.name in _SAVED_MODELS
        text = text or path.suffix == ".pbtxt"
        kind = Kind.SAVED_MODEL if named else Kind.META_GRAPH if path.suffix == ".meta" else Kind.GRAPH_DEF
    return None if kind is None else Content(kind, path, text)


def is_tensorflow(path: Path) -> bool:
    """Whether a path leads to one of TensorFlow's graphs, by content; by name where it leads to nothing."""
    try:
        content = content_of(path)
    except OSError:
        return False
    if content is None:
        # A folder of checkpoints stands for the graph beside the latest.
        return (path / "checkpoint").is_file() if path.is_dir() else path.suffix in _NAMES
    return content.kind is not Kind.ONNX


def _kind_of_text(head: bytes) -> Kind | None:
    match = _TEXT.match(head.decode("utf-8", "replace"))
    return None if match is None else _BEGINNINGS.get(match[1])


def _kind_of_bytes(head: bytes) -> Kind | None:
    first = _first(head)
    leading, second = first.get(1), first.get(2)
    if isinstance(leading, int):
        # A version in front: of the SavedModel's schema, or of ONNX's intermediate representation.
        return Kind.SAVED_MODEL if isinstance(second, bytes) and _is_meta_graph(_first(second)) else Kind.ONNX
    if _is_node(leading):
        return Kind.GRAPH_DEF
    return Kind.META_GRAPH if _is_meta_graph(first) else None


def _first(content: bytes) -> dict[int, int | bytes]:
    """The first value of each field, as far as the bytes are whole."""
    values: dict[int, int | bytes] = {}
    with contextlib.suppress(DamageError):
        for number, value in fields(content):
            values.setdefault(number, value)
    return values


def _is_node(content: int | bytes | None) -> bool:
    """Whether bytes begin with a node's name and op."""
    if not isinstance(content, bytes):
        return False
    first = _first(content)
    name, op = first.get(1), first.get(2)
    return isinstance(name, bytes) and isinstance(op, bytes) and bool(_NODE.fullmatch(name) and _OP.fullmatch(op))


def _is_meta_graph(first: dict[int, int | bytes]) -> bool:
    """Whether these are the fields of a MetaGraphDef: what it says of itself, and the graph."""
    about, graph = first.get(1), first.get(2)
    if isinstance(graph, bytes) and _is_node(_first(graph).get(1)):
        return True
    told = _first(about) if isinstance(about, bytes) else {}
    # The list of ops, tags, TensorFlow's version.
    ops, version = told.get(2), told.get(5)
    return (isinstance(ops, bytes) and ops[:1] == b"\n") or (isinstance(version, bytes) and version[:1].isdigit())
