"""SavedModels of TensorFlow 2: objects, the functions that they have, and what these capture."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lstm_lower.checkpoints import messages, values
from lstm_lower.checkpoints.bundle import OBJECT_GRAPH, Checkpoint, object_graph
from lstm_lower.errors import InvalidInputError, InvalidModelError, some
from lstm_lower.tensorflow.files.functions import OpTable, function_graph
from lstm_lower.tensorflow.files.variables import check_fits
from lstm_lower.tensorflow.sources import GraphSource, Variable, unique

# The child of the root that holds the signatures.
_SIGNATURES = "signatures"

DEFAULT_SIGNATURE = "serving_default"
_VALUE = "VARIABLE_VALUE"

# Files and folders that a SavedModel consists of; others in its folder are somebody else's.
_FILES = ("saved_model.pb", "saved_model.pbtxt", "fingerprint.pb", "keras_metadata.pb")
_FOLDERS = ("variables", "assets", "assets.extra")


def files_of(folder: Path) -> list[Path]:
    """The files that a SavedModel in a folder consists of."""
    below = [path for name in _FOLDERS for path in (folder / name).rglob("*")]
    return [path for path in (*(folder / name for name in _FILES), *below) if path.is_file()]


def has_functions(meta: Any) -> bool:
    """Whether a MetaGraphDef is TensorFlow 2's, whose signatures are functions."""
    return bool(meta.object_graph_def.concrete_functions)


def functions_of(meta: Any) -> dict[str, str]:
    """Name -> function, of the signatures, and of the root's own methods that were traced once.

    Without signatures those that were traced several times count, too: `step`, `step_1`, ... in the order of traces.
    """
    nodes = meta.object_graph_def.nodes
    signatures: dict[str, str] = {}
    for name, index in ((child.local_name, child.node_id) for child in (nodes[0].children if nodes else ())):
        if name == _SIGNATURES:
            for signature, node in _children(nodes, index):
                if node.HasField("bare_concrete_function"):
                    signatures[signature] = node.bare_concrete_function.concrete_function_name
    methods = {
        name: node.function.concrete_functions for name, node in _children(nodes, 0) if node.HasField("function")
    }
    found = {name: traced[0] for name, traced in methods.items() if len(traced) == 1}
    taken = set(found)
    for name, traced in methods.items() if not signatures else ():
        if len(traced) > 1:
            found |= {unique(name, taken): function for function in traced}
    return found | signatures


def _children(nodes: Any, index: int) -> Iterator[tuple[str, Any]]:
    if not 0 <= index < len(nodes):
        return
    for child in nodes[index].children:
        if 0 <= child.node_id < len(nodes):
            yield child.local_name, nodes[child.node_id]


def choose(names: list[str], signatures: list[str], asked: str | None, label: str) -> str:
    """The signature that is asked for, or the usual one, or the only one.

    Args:
        names: all that may be asked for.
        signatures: those that one may be chosen of.
        asked: the one that is asked for.
        label: the SavedModel.

    Raises:
        InvalidInputError: it is not among them, or there are several.
    """
    if asked is None:
        likely = signatures or names
        asked = DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in likely else likely[0] if len(likely) == 1 else None
    if asked is None or asked not in names:
        got = "none" if asked is None else f"'{asked}'"
        raise InvalidInputError(
            f"signature (--signature) requires one of {some(sorted(names)) or 'none'} of {label}, got {got}"
        )
    return asked


def function_source(meta: Any, name: str, label: str, checkpoint: Checkpoint | None) -> GraphSource:
    """The function of a name as a source.

    Raises:
        InvalidModelError: the SavedModel is broken.
    """
    return _Reader(meta, label, checkpoint).source(functions_of(meta)[name])


def all_variables(meta: Any, label: str, checkpoint: Checkpoint | None) -> dict[str, Variable]:
    """Every variable of a SavedModel, by a name of its own; errors as `function_source`'s."""
    reader, nodes = _Reader(meta, label, checkpoint), meta.object_graph_def.nodes
    keys = reader.keys()
    return {
        name: reader.variable(nodes[index].variable, name, keys.get(index)) for index, name in reader.names().items()
    }


@dataclasses.dataclass
class _Reader:
    meta: Any
    label: str
    checkpoint: Checkpoint | None

    def source(self, name: str) -> GraphSource:
        graph_def = self.meta.graph_def
        op_defs = {op.name: op for op in self.meta.meta_info_def.stripped_op_list.op}
        table = OpTable(graph_def.library.function, op_defs)
        function, saved = table.functions.get(name), self.meta.object_graph_def.concrete_functions.get(name)
        if function is None or saved is None:
            raise InvalidModelError(f"{self.label}: function '{name}' must be in the library, got none")
        graph = function_graph(function, table, graph_def)
        source = GraphSource(graph.graph_def, self.label, side_effects=True, suffix="", op_defs=op_defs)
        own = len(graph.arguments) - len(saved.bound_inputs)
        if own < 0:
            raise InvalidModelError(f"{self.label}: function '{name}' requires an argument for all that it captures")
        self._capture(source, dict(zip(graph.arguments[own:], saved.bound_inputs, strict=True)))
        source.inputs, taken = {}, set[str]()
        for node in graph.graph_def.node[:own]:
            named = messages.attribute(node, "_user_specified_name").s.decode("utf-8", "replace")
            source.inputs[unique(named or node.name, taken)] = f"{node.name}:0"
        names = _result_names(saved.output_signature, len(graph.results))
        tensors = (result if ":" in result else f"{result}:0" for result in graph.results)
        source.outputs = dict(zip(names, tensors, strict=True))
        return source

    def _capture(self, source: GraphSource, captured: dict[str, int]) -> None:
        """Says what stands behind the arguments that are no operands of a call."""
        nodes, keys, names = self.meta.object_graph_def.nodes, self.keys(), self.names()
        constants = {node.name: node for node in self.meta.graph_def.node if node.op == "Const"}
        for argument, index in captured.items():
            if not 0 <= index < len(nodes):
                raise InvalidModelError(f"{self.label}: '{argument}' requires an object to refer to, got {index}")
            node = nodes[index]
            if node.HasField("variable"):
                source.variables[argument] = self.variable(node.variable, names[index], keys.get(index))
            elif node.HasField("constant"):
                constant = constants.get(node.constant.operation)
                if constant is None:
                    what = f"constant '{node.constant.operation}'"
                    raise InvalidModelError(f"{self.label}: {what} must be in the graph, got none")
                tensor = messages.attribute(constant, "value").tensor
                source.constants[argument] = values.tensor_value(tensor, f"Const '{constant.name}'")

    def variable(self, saved: Any, name: str, key: str | None) -> Variable:
        """A variable, with the value under a key of the checkpoint."""
        shape = values.shape_of(saved.shape)
        checkpoint = self.checkpoint
        if checkpoint is None or key is None or key not in checkpoint.tensors:
            return Variable(name, None, saved.trainable, shape, saved.dtype)
        stored = checkpoint.tensors[key]
        check_fits(checkpoint, name, (saved.dtype, shape), (stored.dtype, stored.shape))
        return Variable(name, lambda: checkpoint.read(key), saved.trainable, stored.shape, stored.dtype, key)

    def names(self) -> dict[int, str]:
        """Object -> the name of the variable that it is, the same whichever function is looked at."""
        taken = set[str]()
        nodes = enumerate(self.meta.object_graph_def.nodes)
        return {index: unique(node.variable.name, taken) for index, node in nodes if node.HasField("variable")}

    def keys(self) -> dict[int, str]:
        """Object -> the key of its value in the checkpoint: both are graphs of objects, with a root and named edges."""
        nodes = self.meta.object_graph_def.nodes
        if self.checkpoint is None or not nodes:
            return {}
        if OBJECT_GRAPH not in self.checkpoint.tensors:
            return {index: node.variable.name for index, node in enumerate(nodes) if node.HasField("variable")}
        others = object_graph(self.checkpoint).nodes
        matched, pending = dict[int, int](), [(0, 0)]
        slots: list[tuple[int, int]] = []
        while pending or slots:
            if not pending:
                pending += self._slots(nodes, others, matched, slots.pop())
                continue
            here, there = pending.pop()
            if here in matched or not (0 <= here < len(nodes) and 0 <= there < len(others)):
                continue
            matched[here] = there
            named = {child.local_name: child.node_id for child in others[there].children}
            pending += [
                (child.node_id, named[child.local_name]) for child in nodes[here].children if child.local_name in named
            ]
            if nodes[here].slot_variables:
                slots.append((here, there))
        return {
            here: attribute.checkpoint_key
            for here, there in matched.items()
            for attribute in others[there].attributes
            if attribute.name == _VALUE
        }

    @staticmethod
    def _slots(nodes: Any, others: Any, matched: dict[int, int], pair: tuple[int, int]) -> list[tuple[int, int]]:
        """An optimizer's slots are named by the variable that each is of."""
        here, there = pair
        named = {
            (slot.original_variable_node_id, slot.slot_name): slot.slot_variable_node_id
            for slot in others[there].slot_variables
        }
        found = []
        for slot in nodes[here].slot_variables:
            key = (matched.get(slot.original_variable_node_id, -1), slot.slot_name)
            if key in named:
                found.append((slot.slot_variable_node_id, named[key]))
        return found


def _result_names(structure: Any, count: int) -> list[str]:
    """Names of a function's results in their order: keys or fields, else `output_0`, `output_1`, ..."""
    kind = structure.WhichOneof("kind")
    if kind == "dict_value":
        names = sorted(structure.dict_value.fields)
    elif kind == "named_tuple_value":
        names = [pair.key for pair in structure.named_tuple_value.values]
    else:
        names = []
    return names if len(names) == count else [f"output_{number}" for number in range(count)]


def read_saved_model(content: bytes, *, text: bool, label: str) -> Any:
    """The MetaGraphDef of a SavedModel; of several, which differ in their tags, the one to train, else the first.

    Raises:
        InvalidModelError: there is none.
    """
    parse = messages.parse_text if text else messages.parse
    saved = parse(messages.SavedModel, content, label)
    if not saved.meta_graphs:
        raise InvalidModelError(f"{label}: a SavedModel requires a graph, got none")
    training = (meta for meta in saved.meta_graphs if "train" in meta.meta_info_def.tags)
    return next(training, saved.meta_graphs[0])
