"""Files and messages of TensorFlow's graphs as sources."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from lstm_lower.checkpoints import messages
from lstm_lower.checkpoints.bundle import Checkpoint, find_checkpoint, open_checkpoint
from lstm_lower.errors import InvalidInputError, InvalidModelError, LstmLowerWarning, some, warn
from lstm_lower.records.content_kinds import Content, Kind, content_of
from lstm_lower.records.files import other_kind, protect
from lstm_lower.tensorflow.files import saved_model
from lstm_lower.tensorflow.files.variables import check_found, graph_variables
from lstm_lower.tensorflow.sources import GraphSource

_CLASSES = {"GraphDef": messages.GraphDef, "MetaGraphDef": messages.MetaGraphDef}


# What a SavedModel lacks of which only variables were saved.
NOTHING_SAVED = (
    "a signature, or a tf.function of the object itself that was called or has an input_signature, is required; got "
    "none: tf.saved_model.save(..., signatures=) saves one"
)


class IncompleteCheckpointWarning(LstmLowerWarning):
    """Of a checkpoint beside a graph only the index is there: the graph has no values of its variables."""


@dataclasses.dataclass
class GraphFile:
    """A graph as a file or message holds it, before anything is chosen of it.

    Attributes:
        kind: what it is.
        label: the file for messages.
        graph_def: its graph.
        meta: the MetaGraphDef that this is of; an empty one for a bare graph.
        path: the file, if it is one.
        checkpoint: where values of its variables are, if anywhere.
        asked: whether that checkpoint was asked for.
    """

    kind: Kind
    label: str
    graph_def: Any
    meta: Any
    path: Path | None = None
    checkpoint: Checkpoint | None = None
    asked: bool = False

    @property
    def functions(self) -> dict[str, str]:
        """Name -> function, of a SavedModel of TensorFlow 2."""
        return saved_model.functions_of(self.meta) if saved_model.has_functions(self.meta) else {}

    @property
    def is_empty(self) -> bool:
        """Whether it is a SavedModel of TensorFlow 2 whose graph only saves and restores."""
        return bool(self.meta.object_graph_def.nodes) and not self.functions and not self.signatures

    @property
    def signatures(self) -> list[str]:
        """Names of the signatures that TensorFlow itself makes no bookkeeping of."""
        return sorted(name for name in self.meta.signature_def if not name.startswith("__saved_model"))


def open_file(path: Path, signature: str | None = None, checkpoint: Path | None = None) -> GraphSource:
    """Opens a file or folder.

    Raises:
        InvalidModelError: it is broken.
        InvalidInputError: it has no such signature, or the checkpoint is of something else.
        FileNotFoundError: there is no such file.
    """
    return source_of(read_file(path, checkpoint), signature)


def read_file(path: Path, checkpoint: Path | None = None) -> GraphFile:
    """Reads a graph's file, and opens the checkpoint that belongs to it; errors as `open_file`'s."""
    content = _content(path)
    label = str(path)
    parse = messages.parse_text if content.text else messages.parse
    protect(content.path)
    data = content.path.read_bytes()
    if content.kind is Kind.SAVED_MODEL:
        folder = content.path.parent
        protect(*saved_model.files_of(folder))
        meta = saved_model.read_saved_model(data, text=content.text, label=label)
        beside = find_checkpoint(folder / "variables" / "variables")
        file = GraphFile(content.kind, label, meta.graph_def, meta, folder)
    elif content.kind is Kind.META_GRAPH:
        meta = parse(messages.MetaGraphDef, data, label)
        beside = find_checkpoint(content.path) if content.path.suffix == ".meta" else None
        file = GraphFile(content.kind, label, meta.graph_def, meta, content.path)
    elif content.kind is Kind.GRAPH_DEF:
        graph_def, beside = parse(messages.GraphDef, data, label), None
        file = GraphFile(content.kind, label, graph_def, messages.MetaGraphDef(), content.path)
    else:
        raise InvalidModelError(f"{path}: a GraphDef is required, got an {content.kind.value}")
    if not file.graph_def.node and not file.graph_def.library.function:
        raise InvalidModelError(f"{path}: a TensorFlow graph is required, got a file without any node")
    return _with_checkpoint(file, checkpoint, beside)


def _content(path: Path) -> Content:
    found = content_of(path)
    if found is not None:
        return found
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    values = find_checkpoint(path)
    beside = None if values is None else content_of(values)
    if beside is not None:
        return beside
    if values is not None:
        got = f"values of a checkpoint, whose graph is in {values.name}.meta where there is one"
        raise InvalidModelError(f"{path}: a graph is required, got {got}; checkpoint= takes values for a graph")
    if path.is_dir():
        raise InvalidModelError(f"{path}: a SavedModel is required, got a folder without saved_model.pb")
    raise InvalidModelError(f"{path}: a GraphDef is required, got {_kind(path)}")


def _kind(path: Path) -> str:
    found = other_kind(path)
    return "another kind of file" if found is None else f"a {found}"


def _with_checkpoint(file: GraphFile, asked: Path | None, beside: Path | None) -> GraphFile:
    if asked is not None or beside is not None:
        found = open_checkpoint(asked or beside or Path())
        if asked is None and found.missing:
            warn(
                f"{file.label}: its checkpoint is not read, since {some(found.missing)} is missing beside it; fetch it "
                "or name another checkpoint",
                IncompleteCheckpointWarning,
            )
            return file
        file.checkpoint, file.asked = found, asked is not None
    return file


def open_message(message: Any, checkpoint: Path | None = None) -> GraphSource:
    """Opens a GraphDef or MetaGraphDef, of whichever library's class.

    Raises:
        InvalidModelError: it cannot be read.
        InvalidInputError: it is another message, or the checkpoint is of something else.
    """
    name = getattr(message.DESCRIPTOR, "name", "")
    if name not in _CLASSES:
        raise InvalidInputError(f"source requires a GraphDef or a MetaGraphDef, got {name or type(message).__name__}")
    ours = messages.as_ours(_CLASSES[name], message)
    kind = Kind.GRAPH_DEF if name == "GraphDef" else Kind.META_GRAPH
    meta = messages.MetaGraphDef() if name == "GraphDef" else ours
    graph_def = ours if name == "GraphDef" else ours.graph_def
    return source_of(_with_checkpoint(GraphFile(kind, f"the {name}", graph_def, meta), checkpoint, None), None)


def source_of(file: GraphFile, signature: str | None) -> GraphSource:
    """What a file holds as a source.

    Raises:
        InvalidModelError: it is broken.
        InvalidInputError: it has no such signature, or the checkpoint is of something else.
    """
    functions, signatures = file.functions, file.signatures
    if functions:
        own = [name for name in signatures if name in functions]
        chosen = saved_model.choose(list(functions), own, signature, file.label)
        source = saved_model.function_source(file.meta, chosen, f"{file.label} ({chosen})", file.checkpoint)
        _check_asked(file, source)
        return source
    if file.is_empty:
        raise InvalidModelError(f"{file.label}: {NOTHING_SAVED}")
    if signature is not None and not signatures:
        raise InvalidInputError(f"signature requires a SavedModel as the source, got {file.label}, which has none")
    source = whole(file)
    if signature is not None or (signatures and file.kind is Kind.SAVED_MODEL):
        chosen = saved_model.choose(signatures, signatures, signature, file.label)
        _apply_signature(source, file.meta.signature_def[chosen], chosen)
    return source


def whole(file: GraphFile) -> GraphSource:
    """A file's graph as a source, whatever its signatures are; errors as `source_of`'s."""
    collections = file.meta.collection_def
    source = GraphSource(
        file.graph_def, file.label, variables=graph_variables(file.graph_def, collections, file.checkpoint),
        train_ops=collection(collections, "train_op"), losses=collection(collections, "losses"),
        op_defs={op.name: op for op in file.meta.meta_info_def.stripped_op_list.op},
    )  # fmt: skip
    _check_asked(file, source)
    return source


def _check_asked(file: GraphFile, source: GraphSource) -> None:
    if file.asked and file.checkpoint is not None:
        check_found(source.variables.values(), file.checkpoint)


def collection(collections: Any, key: str) -> list[str]:
    """The names in a collection of nodes or tensors."""
    return list(dict.fromkeys(collections[key].node_list.value)) if key in collections else []


def _apply_signature(source: GraphSource, signature: Any, name: str) -> None:
    source.label = f"{source.label} ({name})"
    source.suffix = ""
    for kind, infos in (("input", signature.inputs), ("output", signature.outputs)):
        for public, info in infos.items():
            if not info.name:
                what = f"{kind} '{public}' of signature '{name}'"
                raise InvalidModelError(f"{source.label}: {what} must be one tensor, got a composite one")
    source.inputs = {public: signature.inputs[public].name for public in sorted(signature.inputs)}
    source.outputs = {public: signature.outputs[public].name for public in sorted(signature.outputs)}
