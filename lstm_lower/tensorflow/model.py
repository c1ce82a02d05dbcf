"""The ONNX model of a TensorFlow graph: inputs, state and outputs around what the translator makes of its regions."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from lstm_lower.checkpoints.values import onnx_dtype, shape_of
from lstm_lower.dtypes import PARTS, is_integer
from lstm_lower.errors import InvalidInputError, InvalidModelError, LstmLowerError, UnsupportedOpError, some
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.opdef import DOMAIN, definition
from lstm_lower.passes.rules.registry import RULES
from lstm_lower.records.checkpoint_keys import CheckpointKey
from lstm_lower.records.state import Role, StatePair
from lstm_lower.tensorflow import (  # noqa: F401 (they register what is done with their ops)
    conditionals,
    generators,
    list_ops,
    loops,
    plain,
    updates,
)
from lstm_lower.tensorflow.files.pipelines import is_source
from lstm_lower.tensorflow.graph import label, split_name, tensor_name
from lstm_lower.tensorflow.interface import Interface, Resolver
from lstm_lower.tensorflow.regions import BRANCH, LOOP, Aliases, Region
from lstm_lower.tensorflow.sources import Array, GraphSource, Variable
from lstm_lower.tensorflow.state import REFERENCES, VARIABLES, initializer_of, initializes
from lstm_lower.tensorflow.tensor_types import OperandShapes, Shape, Sizes, merged_shape, tensor_type
from lstm_lower.tensorflow.translator import HANDLERS, Scope, Translator
from lstm_lower.tensorflow.values import Handle, Resource

# Finds out dtype and shape of a tensor from what makes it; `None` for what cannot be told.
Infer = Callable[[str], tuple[ir.DataType | None, Sizes | None]]


@dataclasses.dataclass
class ConvertedGraph:
    """What a graph became.

    Attributes:
        label: the source for messages.
        model: the model.
        inputs: names of the inputs proper.
        values: name of a variable's input -> its value, or `None` where the source has none.
        states: the record for the metadata.
        scalars: inputs whose rank nothing tells, taken as scalars.
        loss: the output that a training step minimises, where that is certain.
        sources: inputs that take the place of an input pipeline, which nobody asked for, and the ops that they are of.
        initializer: what gives variables without a value their first ones, where the graph has it.
        translated: how many ops have become operators of ONNX's.
        renamed: name that an output shares with an input -> the one that it has instead.
        keys: where a checkpoint has the values of state.
    """

    label: str
    model: ir.Model
    inputs: list[str]
    values: dict[str, Array | None]
    states: list[StatePair]
    scalars: list[str]
    loss: str | None
    sources: list[str]
    initializer: str | None
    translated: int
    renamed: dict[str, str]
    keys: list[CheckpointKey]


class OpenRankError(InvalidInputError):
    """Inputs whose rank the graph leaves open do not fit as scalars.

    Attributes:
        names: the inputs.
    """

    def __init__(self, names: Sequence[str], reason: LstmLowerError) -> None:
        super().__init__(
            f"shapes requires the sizes of inputs whose rank the graph leaves open, got none of {some(names)}; as "
            f"scalars they do not fit: {reason}"
        )
        self.names = list(names)


class ModelBuilder:
    """Builds the model of one graph.

    Attributes:
        cut: full names of the tensors that come from outside.
    """

    def __init__(
        self,
        source: GraphSource,
        resolver: Resolver,
        interface: Interface,
        shapes: Mapping[str, Shape],
        opset: int,
        infer: Infer,
    ) -> None:
        self.source = source
        self.nodes, self.table = resolver.nodes, resolver.table
        self.interface = interface
        self.shapes = shapes
        self.opset = opset
        self.infer = infer
        self.scalars: list[str] = []
        given = interface.inputs or {}
        self.variable_inputs = {
            split_name(tensor)[0]: public for public, tensor in given.items() if self._is_variable(tensor)
        }
        self.cut = [tensor for tensor in given.values() if not self._is_variable(tensor)]
        self.cut += [*interface.sources.values(), *(f"{name}:0" for name in source.constants)]
        self.fixed = OperandShapes(self.nodes.values())

    def _is_variable(self, tensor: str) -> bool:
        name = split_name(tensor)[0]
        return name in self.source.variables or (name in self.nodes and self.nodes[name].op in VARIABLES)

    def build(self, region: Region, aliases: Aliases) -> ConvertedGraph:
        """Translates the graph's region.

        Raises:
            UnsupportedOpError: ops that cannot be converted.
            InvalidModelError: the graph is broken.
            InvalidInputError: a name or shape that was asked for does not fit.
        """
        self._check_ops(region)
        read = [*_reads(region), *self.interface.outputs.values()]
        t = self.t = Translator(self.opset, aliases, read)
        self.scope = Scope(t.root, t.root)
        inputs = dict(self.interface.inputs or {})
        if self.interface.inputs is None:
            inputs = {f"{op.name}:0": f"{op.name}:0" for op in region.ops if self._is_fed(op)}
            self.interface = self.interface.apart(inputs)
        inputs = {**self.interface.sources, **inputs}
        unfed = [f"{op.name}:0" for op in _all_ops(region) if self._is_fed(op)]
        unfed = [tensor for tensor in unfed if tensor not in inputs.values()]
        if unfed:
            raise InvalidInputError(
                f"inputs requires every placeholder that the outputs need, got none of {some(unfed)}; name them too"
            )
        unknown = set(self.shapes) - {*inputs, *self.interface.outputs}
        self.taken = {*inputs, *self.interface.outputs}
        made = {
            public: self._input(public, tensor) for public, tensor in inputs.items() if not self._is_variable(tensor)
        }
        states = self._variables(region)
        unknown -= {public for public, _ in states.values()}
        if unknown:
            raise InvalidInputError(f"shapes requires names of inputs or outputs, got {some(sorted(unknown))}")
        for name, value in self.source.constants.items():
            dtype = ir.DataType.from_numpy(value.dtype)
            self.scope.values[f"{name}:0"] = t.constant(value, dtype, name)
        try:
            t.run(region, self.scope)
        except LstmLowerError as error:
            if not self.scalars:
                raise
            raise OpenRankError(self.scalars, error) from error
        return self._finished(inputs, made, states)

    def _is_fed(self, op: Any) -> bool:
        return op.op in ("Placeholder", "PlaceholderV2") and op.name not in {
            **self.source.variables, **self.source.constants
        }  # fmt: skip

    def _check_ops(self, region: Region) -> None:
        """Refuses ops that no conversion is known for, all kinds of them at once."""
        missing: dict[str, list[str]] = {}
        for op in _all_ops(region):
            if not is_convertible(op.op) and op.op not in (LOOP, BRANCH):
                missing.setdefault(op.op, []).append(f"'{op.name}'")
        if missing:
            reasons = [f"{kind} {some(names, 3)}: no conversion is known for it" for kind, names in missing.items()]
            cut = f"Name tensors behind them as inputs, where the graph is then cut,{self._before(missing)}"
            way = f"{cut} or define the ops in a plug-in. `lstm-lower inspect` proposes inputs and outputs."
            if "ReduceDataset" in missing or not {*filter(is_source, missing)} <= {op.op for op in region.ops}:
                way = "A model's data are fed, so that no loop can fetch them: import the step of one batch instead."
            raise UnsupportedOpError("\n".join([*reasons, way]))

    def _before(self, missing: dict[str, list[str]]) -> str:
        """What an op reads that the outputs end in, since nothing lies behind it: a decoder's logits, say."""
        ending = {split_name(tensor)[0] for tensor in self.interface.outputs.values()}
        before = [
            f"'{name}:{number or 0}'"
            for names in missing.values()
            for op in names
            if (node := self.nodes.get(op.strip("'"))) is not None and node.name in ending
            for name, number in map(split_name, node.input[:1])
        ]
        return f" or what they read as outputs ({some(sorted(set(before)), 3)})," if before else ""

    def _input(self, public: str, tensor: str) -> ir.Value:
        """A graph input for a tensor."""
        name, number = split_name(tensor)
        node = self.nodes[name]
        dtype, shape = tensor_type(node, number or 0, self.source.graph_def.versions.producer, self.table)
        asked = public in self.shapes
        if not node.op.startswith("Placeholder") and (dtype is None or (shape is None and not asked)):
            inferred, shape = self.infer(tensor)
            dtype = inferred if dtype is None else dtype
        if dtype is None:
            raise InvalidInputError(f"input '{public}' requires a tensor of numbers, got one of {label(node)}")
        if shape is None or None in shape:
            shape = self.fixed.shape(tensor, shape)
        if shape is None and not asked:
            shape = ()
            self.scalars.append(public)
        value = self._value(public, dtype, shape)
        self.scope.values[tensor] = Expr(self.t.root, value)
        return value

    def _named(self, value: ir.Value) -> ir.Value:
        """Notes where a size is to be had that is known by its name."""
        for axis, dim in enumerate(value.shape or ()):
            if isinstance(dim, ir.SymbolicDim) and dim.value is not None:
                self.t.dims.setdefault(dim.value, (Expr(self.t.root, value), axis))
        return value

    def _value(self, public: str, dtype: ir.DataType, shape: Sequence[int | None] | None) -> ir.Value:
        """A value that comes from outside, its open dimensions named."""
        asked = self.shapes.get(public)
        sizes = merged_shape(public, shape, asked)
        stem = public.removesuffix(":0")
        named = None
        if sizes is not None:
            given = asked if asked is not None else [None] * len(sizes)
            named = [
                size if size is not None else name if isinstance(name, str) else f"{stem}_dim{axis}"
                for axis, (size, name) in enumerate(zip(sizes, given, strict=True))
            ]
        self.t.space.names.fresh(public)
        shape_ = None if named is None else ir.Shape(named)
        return self._named(ir.Value(name=public, type=ir.TensorType(dtype), shape=shape_))

    def _variables(self, region: Region) -> dict[Resource, tuple[str, ir.Value]]:
        """A cell for each variable of the graph, and the value that it starts with."""
        present = {op.name for op in _all_ops(region)}
        first = {op.inputs[0] for op in region.ops if initializes(op)}
        known = dict(self.source.variables)
        for name, node in self.nodes.items():
            if node.op in VARIABLES and name not in known:
                known[name] = Variable(name, dtype=node.attr["dtype"].type, shape=shape_of(node.attr["shape"].shape))
        found: dict[Resource, tuple[str, ir.Value]] = {}
        self.records: dict[Resource, Variable] = {}
        for name, variable in known.items():
            if name not in present:
                continue
            node = self.nodes.get(name)
            dtype = onnx_dtype(variable.dtype)
            if dtype is None:
                raise UnsupportedOpError(
                    f"variable '{variable.name}' requires a dtype of numbers, got {variable.dtype}"
                )
            cell = Resource(variable.name, dtype, reference=node is not None and node.op in (*REFERENCES, "Const"))
            public = self.variable_inputs.get(name) or self._free(variable.name)
            shape = variable.shape
            if variable.has_value and variable.value is not None:
                shape = variable.value.shape
            if shape is None and public not in self.shapes:
                raise InvalidInputError(
                    f"variable '{variable.name}' requires a known rank, got one that the graph leaves open; name a "
                    f"checkpoint with its value, or say shapes={{'{public}': [...]}}"
                )
            value = self._value(public, dtype, shape)
            self.t.variables[name] = cell
            start = self.scope.cells[cell] = Expr(self.t.root, value)
            cell.unset = start if f"{name}:0" in first else None
            self.records[cell] = variable
            found[cell] = public, value
        return found

    def _free(self, name: str) -> str:
        """A public name for a variable's value: its own, unless an argument or a result has that one."""
        suffix = self.source.suffix
        candidates = itertools.chain([name], (f"{name}/value{number or ''}" for number in itertools.count()))
        public = next(f"{candidate}{suffix}" for candidate in candidates if f"{candidate}{suffix}" not in self.taken)
        self.taken.add(public)
        return public

    def _finished(
        self, inputs: Mapping[str, str], made: Mapping[str, ir.Value], states: dict[Resource, tuple[str, ir.Value]]
    ) -> ConvertedGraph:
        """Outputs, and the inputs that are needed."""
        t, graph = self.t, self.t.model.graph
        outputs: dict[str, Expr] = {}
        for public, tensor in self.interface.outputs.items():
            found = t.value(tensor, self.scope)
            if isinstance(found, Handle):
                found = self.scope.read(found.cell)
            if found is None or not isinstance(found, Expr):
                found = t.tensor(tensor, self.scope, f"output '{public}'")
            outputs[public] = found
        new: dict[Resource, str] = {}
        for cell, (_, value) in states.items():
            now = self.scope.read(cell)
            assert isinstance(now, Expr)
            if now.value is not value:
                new[cell] = self._free(f"{cell.name}/new")
                outputs[new[cell]] = now
        graph.outputs.extend(self._outputs(outputs))
        values: dict[str, Array | None] = {}
        pairs: list[StatePair] = []
        keys: list[CheckpointKey] = []
        unread = {x for x in self.interface.sources if not (made[x].uses() or made[x].is_graph_output())}
        ordered = [made[public] for public in inputs if public in made and public not in unread]
        for cell, (public, value) in states.items():
            is_asked = public in self.variable_inputs.values()
            used = bool(value.uses()) or value.is_graph_output() or is_asked
            if not used:
                # What is assigned without being read has no old value, and so nothing to carry on.
                continue
            ordered.append(value)
            variable = self.records[cell]
            if not is_asked:
                values[public] = variable.value
            pairs.append(StatePair(public, new.get(cell), _role(variable, value.dtype), variable=variable.name))
            keys += _key(public, variable, value.dtype)
        graph.inputs.extend(ordered)
        makers = {x: self.nodes[split_name(tensor)[0]].op for x, tensor in self.interface.sources.items()}
        sources = [f"{public} ({op})" for public, op in makers.items() if public not in unread]
        missing = [pair.variable or "" for pair in pairs if pair.input in values and values[pair.input] is None]
        initializer = initializer_of(self.nodes, missing) if missing else None
        loss = self._loss(pairs)
        return ConvertedGraph(
            self.source.label, t.model, list(inputs), values, pairs, self.scalars, loss, sources, initializer,
            t.translated, self.interface.renamed, keys,
        )  # fmt: skip

    def _loss(self, pairs: Sequence[StatePair]) -> str | None:
        """Of the scalars asked for of a training step the one called loss, the one recorded as one, or the only one."""
        if not any(pair.output for pair in pairs):
            return None
        asked = self.interface.outputs
        outputs = [value for value in self.t.model.graph.outputs if value.dtype and value.dtype.is_floating_point()]
        scalars = [x.name for x in outputs if x.shape is not None and x.shape.rank() == 0 and x.name in asked]
        recorded = {tensor_name(name) for name in self.source.losses}
        called = [name for name in scalars if name and name.removesuffix(":0") == "loss"]
        found = called or [name for name in scalars if asked[name] in recorded] or scalars
        return found[0] if len(found) == 1 else None

    def _outputs(self, outputs: Mapping[str, Expr]) -> list[ir.Value]:
        t = self.t
        found: list[ir.Value] = []
        for public, expr in outputs.items():
            if expr.builder.depth:
                raise InvalidModelError(f"output '{public}' requires a tensor outside of loops, got one within")
            asked = self.shapes.get(public)
            if asked is not None and expr.shape is None:
                # Zeros stand for sizes as they are, and another rank is an error when the model runs.
                expr = expr.reshape(*[0] * len(asked))
            value = expr.value
            if value.producer() is None or value in found or value.name in outputs:
                t.root.scope = public
                value = t.root.op(std.Identity, expr).value
            value.name = public
            value.type = t.space.facts.type(value)
            shape = t.space.facts.shape(value)
            if shape is None:
                raise UnsupportedOpError(
                    f"output '{public}' requires a known rank, got one known at run time only; "
                    f"give it by shapes=, such as shapes={{'{public}': [None]}} for a vector"
                )
            value.shape = ir.Shape([dim if isinstance(dim, int | str) else None for dim in shape])
            found.append(value)
        return found


def is_convertible(op: str) -> bool:
    """Whether there is a conversion for an op; how it is used may still be more than it can."""
    found = definition(DOMAIN, op)
    return op in HANDLERS or (found is not None and found in RULES)


def _role(variable: Variable, dtype: ir.DataType | None) -> Role:
    if variable.trainable:
        return "weight"
    return "counter" if is_integer(dtype) else "slot"


def _key(public: str, variable: Variable, dtype: ir.DataType | None) -> list[CheckpointKey]:
    """Where a checkpoint has a variable's value, unless that is a tensor of the variable's name."""
    box = None if variable.box is None else tuple((side.start, side.stop) for side in variable.box)
    key = CheckpointKey(public, variable.key or variable.name, box, dtype in PARTS)
    return [] if key == CheckpointKey(public, variable.name) else [key]


def _all_ops(region: Region) -> list[Any]:
    return [x for op in region.ops for x in (op, *(y for inner in op.regions for y in _all_ops(inner)))]


def _reads(region: Region) -> list[str]:
    names = [name for name in region.results if name is not None]
    for op in region.ops:
        names += op.inputs
        for inner in op.regions:
            names += _reads(inner)
    return names
