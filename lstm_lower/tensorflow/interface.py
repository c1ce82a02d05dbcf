"""The inputs and outputs of an import: which tensors they are, and what they need of the graph."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

from lstm_lower.checkpoints.values import is_foreign, onnx_dtype
from lstm_lower.errors import InvalidInputError, InvalidModelError, nearest
from lstm_lower.reachability import reached
from lstm_lower.tensorflow.files import steps
from lstm_lower.tensorflow.files.functions import OpTable
from lstm_lower.tensorflow.files.views import View
from lstm_lower.tensorflow.graph import NodeDef, label, split_name, tensor_name
from lstm_lower.tensorflow.regions import SILENT
from lstm_lower.tensorflow.sources import GraphSource
from lstm_lower.tensorflow.state import REFERENCES, VARIABLES, is_write

# Ops of checkpoints: what leads to them is bookkeeping, not part of a step.
_BOOKKEEPING = ("SaveV2", "RestoreV2", "MergeV2Checkpoints", "Save", "Restore", "SaveSlices", "RestoreSlice")

# Ops of which no output is what a graph is for.
_NO_RESULTS = (*SILENT, *_BOOKKEEPING, "Const", "Placeholder", "NoOp", "VarIsInitializedOp", "IsVariableInitialized")

# What an output of a graph cannot be.
_RESOURCE, _VARIANT, _STRING = 20, 21, 7


@dataclasses.dataclass
class Interface:
    """What is asked of the graph.

    Attributes:
        inputs: public name -> tensor, in order; `None` for the placeholders that the outputs need.
        outputs: public name -> tensor, in order.
        targets: nodes that must run though no output of theirs is asked for (assignments, groups of them).
        sources: public name -> tensor, where input pipelines hand data over and nobody has said what the inputs are.
        renamed: public name that an output shares with an input -> the one that it has instead.
    """

    inputs: dict[str, str] | None
    outputs: dict[str, str]
    targets: list[str]
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    renamed: dict[str, str] = dataclasses.field(default_factory=dict)

    def apart(self, inputs: Iterable[str]) -> Interface:
        """The same with other names for outputs that have names of inputs, as those have that hand an input on."""
        taken = {*inputs, *self.outputs}
        renamed: dict[str, str] = {}
        for name in inputs:
            if name in self.outputs:
                stem, suffix = (name.removesuffix(":0"), ":0") if name.endswith(":0") else (name, "")
                numbers = itertools.chain([""], map(str, itertools.count(1)))
                other = next(x for x in (f"{stem}/output{number}{suffix}" for number in numbers) if x not in taken)
                taken.add(other)
                renamed[name] = other
        outputs = {renamed.get(name, name): tensor for name, tensor in self.outputs.items()}
        return dataclasses.replace(self, outputs=outputs, renamed={**self.renamed, **renamed})


class Resolver:
    """Finds the tensors that names mean.

    Attributes:
        nodes: the graph's nodes by name.
    """

    def __init__(self, source: GraphSource, nodes: Mapping[str, NodeDef], table: OpTable) -> None:
        self.source = source
        self.nodes = nodes
        self.table = table

    def resolve(self, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> Interface:
        """Finds the tensors that inputs and outputs name; by default the source's own, or the graph's ends.

        Raises:
            InvalidInputError: a name is not to be found, or is named twice.
            InvalidModelError: the graph has no outputs of its own to default to.
        """
        source = self.source
        targets = [node.name for node in self.nodes.values() if is_write(node.op)] if source.side_effects else []
        if outputs is not None:
            found, named = self._find_outputs(outputs)
            targets += named
        elif source.outputs is not None:
            found = {name: tensor_name(tensor) for name, tensor in source.outputs.items()}
        else:
            found, sinks = self._ends()
            targets += sinks
        if not found and not targets:
            raise InvalidModelError(f"{source.label}: at least one output is required, got a graph without any")
        given, sources = source.inputs, dict[str, str]()
        if inputs is not None:
            given = self._find_inputs(inputs)
        else:
            roots, view = [*found.values(), *targets], self._view()
            given = given and {public: x for public, x in given.items() if not is_foreign(view.dtype(x))}
            ends = [end for end in steps.sources(view, roots) if end not in (given or {}).values()]
            sources = {end if source.suffix else end.removesuffix(":0"): end for end in ends}
        if given is not None:
            given = {name: tensor_name(tensor) for name, tensor in given.items()}
            self._check_inputs(given)
        return Interface(given, found, targets, sources).apart([*(given or ()), *sources])

    def _check_inputs(self, inputs: Mapping[str, str]) -> None:
        for public, tensor in inputs.items():
            node = self.nodes[split_name(tensor)[0]]
            if node.op == "Const":
                raise InvalidInputError(
                    f"input '{public}' requires a placeholder, a variable or a computed tensor, got {label(node)}, "
                    "which would stay unconnected; weights='inputs' makes inputs of a frozen graph's weights"
                )

    def _count(self, node: NodeDef) -> int | None:
        """The number of a node's outputs; `None` where it is not known."""
        results = self.table.results(node.op)
        sizes = [None] if results is None else [result.size(node) for result in results]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def _find_outputs(self, names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        found: dict[str, str] = {}
        targets: list[str] = []
        for name in names:
            tensor = self._tensor_of(self.source.outputs, name)
            node = self._node("output", name, tensor)
            if name in found:
                raise InvalidInputError(f"outputs requires names that differ, got '{name}' twice")
            if self._count(node) == 0 or (":" not in name and (is_write(node.op) or node.op in ("NoOp", "Merge"))):
                targets.append(node.name)
                continue
            self._check_number(node, "output", name, tensor)
            found[name] = tensor
        return found, targets

    def _find_inputs(self, names: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in names:
            tensor = self._tensor_of(self.source.inputs, name)
            node = self._node("input", name, tensor)
            self._check_number(node, "input", name, tensor)
            if name in found or tensor in found.values():
                raise InvalidInputError(f"inputs requires names that differ, got '{name}' twice")
            found[name] = tensor
        return found

    def _tensor_of(self, known: Mapping[str, str] | None, name: str) -> str:
        """The tensor that a name means: the source's own name of an argument or result first, then a tensor's.

        With a number behind a colon a name is first of all a tensor's: what a function's second result, which is called
        `output_1`, is has nothing to do with a tensor `output_1:0`.
        """
        known = known or {}
        if name in known or name.partition(":")[0] in self.nodes:
            return tensor_name(known.get(name, name))
        return tensor_name(known.get(name.removesuffix(":0"), name))

    def _node(self, kind: str, name: str, tensor: str) -> NodeDef:
        node = self.nodes.get(split_name(tensor)[0])
        if node is None:
            known = (self.source.inputs if kind == "input" else self.source.outputs) or {}
            near = nearest(name, [*known, *self.nodes])
            raise InvalidInputError(
                f"{kind}s requires tensors of the graph, got '{name}', which it does not hold{near}"
            )
        if node.op in SILENT and split_name(tensor)[1] is not None:
            raise InvalidInputError(f"{kind}s requires tensors of numbers, got '{name}' of {label(node)}")
        return node

    def _check_number(self, node: NodeDef, kind: str, name: str, tensor: str) -> None:
        number, count = split_name(tensor)[1], self._count(node)
        if number is not None and (number < 0 or (count is not None and number >= count)):
            raise InvalidInputError(
                f"{kind}s requires tensors of the graph, got '{name}' of {label(node)}, which has "
                f"{'no such output' if count is None else count}"
            )

    def ancestors(self, roots: Iterable[str]) -> set[str]:
        """Names of the nodes that the roots need, by data or by control."""
        return set(reached(roots, lambda name: [split_name(spelled)[0] for spelled in self.nodes[name].input]))

    def _ends(self) -> tuple[dict[str, str], list[str]]:
        """What a training graph is for: the losses and steps on record, likely ones, or else what nothing reads."""
        source, view = self.source, self._view()
        train_ops = steps.recorded_train_ops(view, source.train_ops)
        train_ops = train_ops or (steps.find_train_ops(view) if steps.has_updates(view) else [])
        if train_ops:
            losses = [name for name in source.losses if split_name(name)[0] in self.nodes] or steps.find_losses(view)
            return {tensor_name(name): tensor_name(name) for name in losses}, train_ops
        return self._sinks(view)

    def _view(self) -> View:
        return View(self.source.graph_def, self.table, self.source.variables)

    def _sinks(self, view: View) -> tuple[dict[str, str], list[str]]:
        """The tensors that nothing reads, and the assignments of a step."""
        read = {tensor_name(name) for node in self.nodes.values() for name in node.input if not name.startswith("^")}
        bookkeeping = {node.name for node in self.nodes.values() if node.op in _BOOKKEEPING}
        ends: dict[str, str] = {}
        targets: list[str] = []
        for node in self.nodes.values():
            if is_write(node.op):
                if not self.ancestors([node.name]) & bookkeeping and not self._is_initializer(node):
                    targets.append(node.name)
            elif node.op not in (*VARIABLES, *_NO_RESULTS):
                count = self._count(node)
                ends |= {
                    f"{node.name}:{number}": f"{node.name}:{number}"
                    for number in range(self._least(node) if count is None else count)
                    if self._is_numeric(node)
                    and not is_foreign(view.dtype(f"{node.name}:{number}"))
                    and f"{node.name}:{number}" not in read
                }
        # Of a node with several outputs, one that is read shows that the others are by-products.
        used = {split_name(name)[0] for name in read}
        return {name: tensor for name, tensor in ends.items() if split_name(tensor)[0] not in used}, targets

    def _least(self, node: NodeDef) -> int:
        """How many outputs a node has at least of which it is not known: one where it computes on numbers."""
        is_silent = node.op in SILENT
        return int(not is_silent and "T" in node.attr and bool(node.attr["T"].type))

    def _is_numeric(self, node: NodeDef) -> bool:
        """Whether a node's outputs are tensors of numbers, as far as its attributes tell."""
        types = [value.type for name, value in node.attr.items() if value.type and not name.startswith("_")]
        return not any(number % 100 in (_RESOURCE, _VARIANT, _STRING) for number in types) and all(
            onnx_dtype(number) is not None for number in types
        )

    def _is_initializer(self, node: NodeDef) -> bool:
        """Whether an assignment only sets a variable to a first value: nothing fed and no variable goes into it."""
        if node.op not in ("Assign", "AssignVariableOp"):
            return False
        target = split_name(node.input[0])[0]
        value = self.ancestors([split_name(node.input[1])[0]])
        others = {self.nodes[name].op for name in value if name != target}
        return not others & {"Placeholder", "ReadVariableOp", "VarHandleOp", *REFERENCES}
