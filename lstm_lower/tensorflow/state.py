"""State made explicit: reads and assignments of variables become inputs and outputs of a graph without effects.

The nodes are walked in an order that TensorFlow itself could run them in; along the way each variable has a current
value, which reads see and assignments replace. Where nothing orders a read and an assignment, the read comes first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from lstm_lower.errors import InvalidModelError, UnsupportedOpError
from lstm_lower.tensorflow.graph import (
    Graph,
    NodeDef,
    Tensor,
    Writer,
    argument_sizes,
    label,
    op_def_of,
    output_dtypes,
    tensor_name,
)
from lstm_lower.tensorflow.optimizers import formula_of
from lstm_lower.tensorflow.sources import Variable

INT32 = tf.int32.as_datatype_enum

REFERENCES = ("Variable", "VariableV2", "TemporaryVariable", "AutoReloadVariable")

_ASSIGNMENTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Assign": lambda old, value: value,  # noqa: ARG005
    "AssignAdd": lambda old, value: old + value,
    "AssignSub": lambda old, value: old - value,
}
_CONTROL_FLOW = ("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase")
_SCATTERS = ("ScatterAdd", "ScatterSub", "ScatterUpdate")


@dataclasses.dataclass
class State:
    """One variable during the walk.

    Attributes:
        variable: its name and value at the start.
        start: the placeholder of its value at the start.
        now: its current value.
        written: whether an assignment was met.
    """

    variable: Variable
    start: Tensor
    now: Tensor
    written: bool = False


@dataclasses.dataclass
class Explicit:
    """A graph without effects.

    Attributes:
        writer: holds the graph.
        states: the variables, by the node that stood for them.
        tensors: full tensor name of the original graph -> tensor.
    """

    writer: Writer
    states: dict[str, State]
    tensors: dict[str, Tensor]


def is_write(node: NodeDef) -> bool:
    """Whether the node changes a variable."""
    return _base(node.op) in (*_ASSIGNMENTS, *_SCATTERS) or formula_of(node.op) is not None or _is_other_write(node.op)


def _is_other_write(op: str) -> bool:
    return op.startswith(("ResourceApply", "ResourceSparseApply", "ResourceScatter", "SparseApply", "Assign"))


def _base(op: str) -> str:
    """`Assign` for AssignVariableOp, `ScatterAdd` for ResourceScatterAdd, and so on."""
    return op.removesuffix("VariableOp").removeprefix("Resource")


def make_explicit(
    graph: Graph, names: set[str], variables: Mapping[str, Variable], replaced: Mapping[str, Tensor], writer: Writer
) -> Explicit:
    """Walks the named nodes.

    Args:
        graph: the graph without calls.
        names: the nodes to walk; their inputs are among them.
        variables: node that stands for a variable -> variable, where the source knows it.
        replaced: full tensor name -> the tensor to read in its place (inputs that cut the graph).
        writer: where the new graph goes.

    Raises:
        UnsupportedOpError: a node uses a variable in a way that has no functional form; all such nodes are named.
        InvalidModelError: the graph has a cycle.
    """
    walk = _Walk(graph, dict(variables), writer, dict(replaced))
    for node in graph.order(names, late=is_write):
        walk.visit(node)
    if walk.reasons:
        raise UnsupportedOpError("\n".join(walk.reasons))
    return Explicit(writer, walk.states, walk.tensors)


class _Walk:
    def __init__(
        self, graph: Graph, variables: dict[str, Variable], writer: Writer, tensors: dict[str, Tensor]
    ) -> None:
        self.graph = graph
        self.variables = variables
        self.writer = writer
        self.tensors = tensors
        self.states: dict[str, State] = {}
        # Tensor that stands for a variable itself, not for its value -> the variable's node.
        self.handles: dict[str, str] = {}
        self.references: set[str] = set()
        self.reasons: list[str] = []

    def visit(self, node: NodeDef) -> None:
        inputs = [tensor_name(name) for name in node.input if not name.startswith("^")]
        handle = self.handles.get(inputs[0]) if inputs else None
        if self._is_variable(node):
            self._declare(node)
        elif node.op in ("NoOp", "DisableCopyOnRead") or (handle is not None and self._alias(node, handle)):
            return
        elif handle is not None and (rule := self._rule(node)) is not None:
            rule(node, inputs, self.states[handle])
        else:
            self._copy(node, inputs)

    def _is_variable(self, node: NodeDef) -> bool:
        return node.name in self.variables or node.op in (*REFERENCES, "VarHandleOp")

    def _declare(self, node: NodeDef) -> None:
        """A placeholder takes the variable's place; it counts as an input only if something reads it."""
        variable = self.variables.get(node.name) or Variable(node.name)
        self.variables[node.name] = variable
        dtype = _variable_dtype(node, variable)
        name = node.name if variable.name == node.name else self.writer.fresh(variable.name)
        given = self.tensors.get(f"{node.name}:0")
        start = given or self.writer.placeholder(dtype, _variable_shape(node, variable), name)
        self.states[node.name] = State(variable, start, start)
        self.handles[f"{node.name}:0"] = node.name
        if node.op in REFERENCES:
            self.references.add(f"{node.name}:0")

    def _alias(self, node: NodeDef, handle: str) -> bool:
        """An Identity of a resource, or a RefIdentity, stands for the variable too."""
        source = tensor_name(node.input[0])
        if node.op == "RefIdentity" or (node.op == "Identity" and source not in self.references):
            self.handles[f"{node.name}:0"] = handle
            if source in self.references:
                self.references.add(f"{node.name}:0")
            return True
        return False

    def _rule(self, node: NodeDef) -> Callable[[NodeDef, list[str], State], None] | None:
        base = _base(node.op)
        if base in _ASSIGNMENTS:
            return self._assign
        if base in _SCATTERS:
            return self._scatter
        if formula_of(node.op) is not None:
            return self._apply
        return {
            "ReadVariableOp": self._read,
            "Identity": self._read,
            "ResourceGather": self._gather,
            "ResourceGatherNd": self._gather_nd,
            "VariableShape": self._shape,
            "VarIsInitializedOp": self._initialized,
            "IsVariableInitialized": self._initialized,
        }.get(node.op)

    def _value(self, name: str) -> Tensor:
        """The tensor that a node reads under a name: of a reference variable, its current value."""
        if name in self.tensors:
            return self.tensors[name]
        if name not in self.handles:
            raise InvalidModelError(f"'{name}' requires a node that makes a tensor, since another reads it, got none")
        return self.states[self.handles[name]].now

    def _emit(self, node: NodeDef, op: str, operands: Iterable[Tensor], dtype: int, **types: int) -> NodeDef:
        """Writes a node under the name of the one it replaces."""
        result = self.writer.op(op, operands, dtype, node.name, **types)
        self.tensors.setdefault(f"{node.name}:0", result)
        return self.writer.graph_def.node[-1]

    def _read(self, node: NodeDef, inputs: list[str], state: State) -> None:  # noqa: ARG002
        self._emit(node, "Identity", [state.now], state.now.dtype, T=state.now.dtype)

    def _gather(self, node: NodeDef, inputs: list[str], state: State) -> None:
        axis = self.writer.constant(node.attr["batch_dims"].i, INT32)
        indices = self._value(inputs[1])
        operands = [state.now, indices, axis]
        made = self._emit(
            node, "GatherV2", operands, state.now.dtype,
            Tparams=state.now.dtype, Tindices=indices.dtype, Taxis=INT32,
        )  # fmt: skip
        made.attr["batch_dims"].i = node.attr["batch_dims"].i

    def _gather_nd(self, node: NodeDef, inputs: list[str], state: State) -> None:
        indices = self._value(inputs[1])
        dtype = state.now.dtype
        self._emit(node, "GatherNd", [state.now, indices], dtype, Tparams=dtype, Tindices=indices.dtype)

    def _shape(self, node: NodeDef, inputs: list[str], state: State) -> None:  # noqa: ARG002
        out_type = node.attr["out_type"].type or INT32
        self._emit(node, "Shape", [state.now], out_type, T=state.now.dtype, out_type=out_type)

    def _initialized(self, node: NodeDef, inputs: list[str], state: State) -> None:  # noqa: ARG002
        self.tensors.setdefault(f"{node.name}:0", self.writer.constant(value=True, dtype=tf.bool.as_datatype_enum))

    def _write(self, node: NodeDef, state: State, value: Tensor) -> None:
        state.now, state.written = value, True
        if not node.op.startswith("Resource") and not node.op.endswith("VariableOp"):
            # Ops on reference variables return the reference.
            name = f"{node.name}:0"
            self.handles[name] = next(key for key, found in self.states.items() if found is state)
            self.references.add(name)

    def _assign(self, node: NodeDef, inputs: list[str], state: State) -> None:
        self._write(node, state, _ASSIGNMENTS[_base(node.op)](state.now, self._value(inputs[1])))

    def _scatter(self, node: NodeDef, inputs: list[str], state: State) -> None:
        old, indices, updates = state.now, self._value(inputs[1]), self._value(inputs[2])
        base, write = _base(node.op), self.writer
        if base == "ScatterUpdate":
            axis = write.constant(-1, INT32)
            columns = write.op("ExpandDims", [indices, axis], indices.dtype, T=indices.dtype, Tdim=INT32)
            operands = [old, columns, updates]
            self._write(
                node, state, write.op("TensorScatterUpdate", operands, old.dtype, T=old.dtype, Tindices=indices.dtype)
            )
            return
        shape = write.op("Shape", [old], INT32, T=old.dtype, out_type=INT32)
        index = write.constant(0, INT32)
        rows = write.op("GatherV2", [shape, index, index], INT32, Tparams=INT32, Tindices=INT32, Taxis=INT32)
        operands = [updates, indices, rows]
        types = {"T": old.dtype, "Tindices": indices.dtype, "Tnumsegments": INT32}
        total = write.op("UnsortedSegmentSum", operands, old.dtype, **types)
        self._write(node, state, old + total if base == "ScatterAdd" else old - total)

    def _apply(self, node: NodeDef, inputs: list[str], state: State) -> None:
        formula, op_def = formula_of(node.op), op_def_of(node.op)
        assert formula is not None
        assert op_def is not None
        names = [name for name, _, _ in argument_sizes(node, op_def.input_arg)]
        operands = {name: self._value(source) for name, source in zip(names, inputs, strict=True)}
        options = {
            name: node.attr[name].b if name in node.attr else default
            for name, default in (("use_nesterov", False), ("update_slots", True))
        }
        slots = {
            name: self.handles[source] for name, source in zip(names, inputs, strict=True) if source in self.handles
        }
        for name, value in formula(**operands, **options).items():
            slot = self.states[slots[name]]
            slot.now, slot.written = value, True
        self._write(node, state, state.now)

    def _copy(self, node: NodeDef, inputs: list[str]) -> None:
        """Any other node, and with it the values of the reference variables that it reads."""
        handles = [name for name in inputs if name in self.handles]
        taken = [name for name in handles if name not in self.references]
        if taken or is_write(node):
            names = [f"variable '{self.states[self.handles[name]].variable.name}'" for name in taken or handles]
            what = ", ".join(names) or "a resource that is no variable of the source"
            advice = "; read it before, and pass its value" if node.op in _CONTROL_FLOW else ""
            self.reasons.append(f"{label(node)}: no form without effects is known for its use of {what}{advice}")
        if not self.reasons:
            self.writer.copy(node, [self._value(name).name for name in inputs])
        # After a fault the walk goes on for the sake of further ones.
        for number, dtype in enumerate(output_dtypes(node)):
            name = f"{node.name}:{number}"
            self.tensors.setdefault(name, Tensor(self.writer, name, dtype))


def _variable_dtype(node: NodeDef, variable: Variable) -> int:
    if variable.value is not None:
        return int(tf.as_dtype(variable.value.dtype).as_datatype_enum)
    return int(node.attr["dtype"].type)


def _variable_shape(node: NodeDef, variable: Variable) -> Any:
    if variable.value is not None:
        return tf.TensorShape(variable.value.shape).as_proto()
    shape = node.attr["shape"].shape
    return None if shape.unknown_rank else shape
