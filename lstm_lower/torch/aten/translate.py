"""From `torch.export`'s program to a model: its graph walked once, each call by the translation of its operator."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
import sympy
import torch
from onnx_ir.tensor_adapters import TorchTensor, from_torch_dtype
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._pytree import tree_leaves, tree_map_only

from lstm_lower.errors import UnsupportedOpError, first_line
from lstm_lower.graph import provenance
from lstm_lower.graph.builder import Builder, Expr, Workspace
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.names import Names
from lstm_lower.graph.scopes import record
from lstm_lower.passes.complex_numbers import RealPartsPass
from lstm_lower.records.lengths import Law, Place
from lstm_lower.torch.aten import (  # noqa: F401
    activations,
    arrays,
    attention,
    cells,
    control_flow,
    creation,
    elementwise,
    images,
    indexing,
    layers,
    linear_algebra,
    losses,
    masks,
    pooling,
    quantization,
    random,
    recurrent,
    reductions,
    special,
    spectra,
)
from lstm_lower.torch.aten.changes import TensorNames, in_place, needed
from lstm_lower.torch.aten.control_flow import CHECKS
from lstm_lower.torch.aten.decompositions import simple
from lstm_lower.torch.aten.evaluation import Evaluated, replace_operands
from lstm_lower.torch.aten.registry import AtenCall, Formula, called, line, translation
from lstm_lower.torch.aten.sizes import Alike, OpenSizeError, Sizes
from lstm_lower.torch.aten.sizes import formula as size_formula

OPSET = 18

# Larger constants are initializers.
_INLINE = 64
# Where and how a tensor lies in memory.
_OF_MEMORY = {"device", "layout", "pin_memory", "memory_format", "non_blocking"}


class Translation:
    """The translation of one program.

    Attributes:
        model: the model under construction.
        b: emits at the end of its graph.
        sizes: the open sizes of the trace.
    """

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        names: Sequence[str],
        outputs: Sequence[str],
        weights: Mapping[str, str],
        evaluated: Evaluated,
        alike: Alike,
    ) -> None:
        graph = ir.Graph([], [], nodes=[], opset_imports={"": OPSET}, name="torch")
        self.model = ir.Model(graph, ir_version=10)
        taken = Names([*names, *outputs, *program.state_dict, *program.constants, *weights.values()])
        self.b = Builder(Workspace(taken, Facts.of(self.model), OPSET), graph, scope="graph")
        self.sizes = Sizes(self.b, alike)
        self._program = program
        self._names = iter(names)
        self._outputs = outputs
        self._weights = weights
        self._evaluated = evaluated
        self._tensors: Mapping[str, Any] = {**program.constants, **program.state_dict}
        own = program.graph_signature
        self._held = {weights.get(name, name) for name in (*own.parameters, *own.buffers)}
        self._initializers: dict[str, Expr] = {}

    def import_domain(self, domain: str) -> None:
        """Lets the model hold nodes of another domain."""
        self.model.graph.opset_imports.setdefault(domain, 1)

    def run(self) -> ir.Model:
        """Translates the program."""
        signature = self._program.graph_signature
        operands = []
        placeholders = [node for node in self._program.graph.nodes if node.op == "placeholder"]
        for spec, node in zip(signature.input_specs, placeholders, strict=True):
            if spec.kind == InputKind.USER_INPUT:
                operands.append(self._input(node))
            elif spec.target is not None and isinstance(self._tensors.get(spec.target), torch.Tensor):
                operands.append(self.stored(spec.target, self._tensors[spec.target]))
            elif spec.kind == InputKind.CUSTOM_OBJ and isinstance(self._tensors.get(spec.target), torch.Generator):
                raise UnsupportedOpError(
                    f"{called(next(iter(node.users), node))} requires PyTorch's default generator, got one of its own; "
                    "leave generator= out, and make what is to be the same in every step a buffer"
                )
            else:
                raise UnsupportedOpError(f"a trace requires operands that are tensors, got {spec.kind} '{spec.target}'")
        fakes = [node.meta["val"] for node in placeholders]
        for x, fake in zip(operands, fakes, strict=True):
            # Open sizes are known before any formula of them is read.
            self.sizes.name(x, fake)
        for x, fake in zip(operands, fakes, strict=True):
            self.b.set_shape(x, [self.sizes.dim(size) for size in fake.shape])
            self.sizes.read_off(x, fake)
        results = self.graph(self._program.graph_module, operands, self.b)
        kept = [
            x
            for spec, x in zip(signature.output_specs, results, strict=True)
            if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        ]
        values = self.b.results([self.b.wrap(x.value) for x in kept])
        for value, name in zip(values, self._outputs, strict=True):
            value.name = name
        self.model.graph.outputs.extend(values)
        for value in self.model.graph.initializers.values():
            self.model.graph.inputs.remove(value)
        RealPartsPass()(self.model)
        return self.model

    def _input(self, node: torch.fx.Node) -> Expr:
        name, fake = next(self._names), node.meta["val"]
        if not isinstance(fake, torch.Tensor):
            raise UnsupportedOpError(f"example_inputs requires tensors, got '{name}' of {type(fake).__name__}")
        value = ir.Value(name=name, type=ir.TensorType(from_torch_dtype(fake.dtype)))
        self.model.graph.inputs.append(value)
        return self.b.wrap(value)

    def stored(self, name: str, tensor: torch.Tensor) -> Expr:
        """A parameter, buffer or constant, whose memory is not copied."""
        name = self._weights.get(name, name)
        if name not in self._initializers:
            self._initializers[name] = self._stored(name, tensor.detach())
        return self._initializers[name]

    def _stored(self, name: str, tensor: torch.Tensor) -> Expr:
        if name not in self._held and tensor.numel() <= _INLINE:
            return self.b.constant(TorchTensor(tensor).numpy(), from_torch_dtype(tensor.dtype))
        held = TorchTensor(tensor.contiguous(), name=name)
        value = ir.Value(name=name, type=ir.TensorType(held.dtype), shape=held.shape, const_value=held)
        self.model.graph.initializers[name] = value
        # Nobody is to take present values for what they will always be, nor to read much.
        self.model.graph.inputs.append(value)
        return self.b.wrap(value)

    def graph(self, module: torch.fx.GraphModule, operands: Sequence[Any], b: Builder) -> list[Any]:
        """Translates a graph, the program's or one within it, whose results it returns.

        Args:
            module: the graph.
            operands: what its parameters stand for, expressions and numbers.
            b: emits into the graph that it becomes.
        """
        values: dict[torch.fx.Node, Any] = {}
        names = TensorNames(module.graph)
        # What is made of operands from outside belongs to this graph, too: a branch that is not taken computes nothing.
        rest = iter(tree_map_only(Expr, lambda x: b.wrap(x.value), list(operands)))
        for node in needed(module.graph):
            match node.op:
                case "placeholder":
                    values[node] = next(rest)
                case "get_attr":
                    values[node] = self._attribute(module, node)
                case "output":
                    returned = node.args[0]
                    returned = returned if isinstance(returned, (tuple, list)) else [returned]
                    return [self._operand(x, values) if isinstance(x, torch.fx.Node) else x for x in returned]
                case _ if node.target not in CHECKS and not _is_formula(node):
                    call = AtenCall(self, node, b)
                    values[node] = self._call(call, values)
                    for x, value in call.changes.items():
                        values |= dict.fromkeys(names.of(x), value)
        return []

    def _attribute(self, module: torch.fx.GraphModule, node: torch.fx.Node) -> Any:
        held: Any = operator.attrgetter(str(node.target))(module)
        return self.stored(f"{node.target}", held) if isinstance(held, torch.Tensor) else held

    def _operand(self, node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
        return self.sizes.number(node.meta["val"]) if _is_formula(node) else values[node]

    def _call(self, call: AtenCall, values: Mapping[torch.fx.Node, Any]) -> Any:
        node, b = call.node, call.b
        operand = functools.partial(self._operand, values=values)
        args, kwargs = tree_map_only(torch.fx.Node, operand, (list(node.args), dict(node.kwargs)))
        if node.target is operator.getitem:
            return args[0][args[1]]
        args, kwargs = tree_map_only((torch.SymInt, torch.SymFloat, torch.SymBool), self.sizes.number, (args, kwargs))
        replace_operands(node, args, kwargs, self._evaluated.get(node, {}))
        formula = translation(node.target, args) or in_place(node.target)
        b.scope = node.name
        kwargs = {key: value for key, value in kwargs.items() if key not in _OF_MEMORY}
        first = len(b.emitted)
        if formula is None:
            raise UnsupportedOpError(f"{called(node)} requires a translation, got none; {_way_around(node.target)}")
        result = self._typed(call, self._of_formula(formula, call, args, kwargs))
        place = line(node.meta.get("stack_trace") or "")
        for emitted in b.emitted[first:]:
            record(emitted, _modules_around(node))
            provenance.record_line(emitted, place)
        self.sizes.bind_results(node, result)
        if in_place(node.target):
            call.change(0, result)
        return self.sizes.number(node.meta["val"]) if _is_number(node) else result

    def _of_formula(self, formula: Formula, call: AtenCall, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        try:
            return formula(call, *args, **kwargs)
        except (TypeError, AttributeError, LookupError) as error:
            # Attributes and counts of results are numbers, which an expression is not.
            if isinstance(error, TypeError) and (symbols := _symbols(call.node)):
                raise OpenSizeError(symbols, f"{called(call.node)} requires it as a number") from error
            raise UnsupportedOpError(
                f"{called(call.node)} requires operands that its translation takes, got {first_line(error)}; write it "
                "with other PyTorch operations"
            ) from error

    def _typed(self, call: AtenCall, result: Any) -> Any:
        """Results with the dtypes and shapes that the trace states."""
        if isinstance(result, Expr):
            fake = call.results[0]
            return self._as_stated(call, result, fake)
        if isinstance(result, Sequence):
            return [self._as_stated(call, x, fake) for x, fake in zip(result, call.results, strict=True)]
        return result

    def _as_stated(self, call: AtenCall, x: Any, fake: Any) -> Any:
        if not isinstance(x, Expr) or not isinstance(fake, torch.Tensor):
            return x
        x = x.cast(from_torch_dtype(fake.dtype))
        shape = x.shape
        if shape is None or not all(isinstance(dim, (int, str)) for dim in shape):
            call.told(x, fake)
        return x


def translate(
    program: torch.export.ExportedProgram,
    names: Sequence[str],
    outputs: Sequence[str],
    weights: Mapping[str, str] | None = None,
    evaluated: Evaluated | None = None,
    laws: Mapping[Place, Law] | None = None,
) -> ir.Model:
    """A program as a model.

    Args:
        program: what `torch.export` has traced.
        names: of its inputs.
        outputs: names of its results.
        weights: names of parameters and buffers in the program with those in the model, where these are others.
        evaluated: calls that have other operands than in the program.
        laws: of axes of its inputs that go by numbers of steps.

    Returns:
        A model whose initializers are parameters, buffers and large constants.

    Raises:
        UnsupportedOpError: an operator has no translation, or none of this use of it.
    """
    alike = _alike(program, names, laws or {})
    return Translation(simple(program, alike), names, outputs, weights or {}, evaluated or {}, alike).run()


def _alike(program: torch.export.ExportedProgram, names: Sequence[str], laws: Mapping[Place, Law]) -> Alike:
    """Of sizes that go by numbers of chunks those with as many as the program has."""
    fakes = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    found: dict[sympy.Symbol, range] = {}
    for name, placeholder, x in zip(
        names, program.graph_signature.user_inputs, program.example_inputs[0], strict=False
    ):
        for axis, size in enumerate(x.shape):
            law = laws.get((name, axis))
            if law is not None and law.rest:
                found[size_formula(fakes[placeholder].shape[axis])] = law.alike(size)
    return found


def _symbols(node: torch.fx.Node) -> set[sympy.Symbol]:
    """The open sizes that stand among the operands of a call, as numbers."""
    values = [x.meta.get("val") if isinstance(x, torch.fx.Node) else x for x in tree_leaves((node.args, node.kwargs))]
    return {symbol for x in values if isinstance(x, torch.SymInt) for symbol in size_formula(x).free_symbols}


def _is_formula(node: torch.fx.Node) -> bool:
    """Whether a call makes a number of others, which is written where it is read."""
    return node.op == "call_function" and _is_number(node) and not node.meta.get("unbacked_bindings")


def _is_number(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))


def _way_around(target: Any) -> str:
    """What to write in place of an operator."""
    namespace = getattr(target, "namespace", "aten")
    if namespace in ("aten", "prims"):
        return "write it with other PyTorch operations"
    way = "call formulas in PyTorch in place of it"
    if namespace == "transformers":
        way = "model.set_experts_implementation('batched_mm') computes experts by PyTorch's operations"
    return f"torch.library registers it for {namespace}: {way}"


def _modules_around(node: torch.fx.Node) -> list[str]:
    """The modules that a call stands in, from the outermost."""
    stack: Mapping[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    return [path for path, _ in stack.values()]
