"""The passes that make a lowered model one that a target runs, and the check that it is one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import captures
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.subgraphs import all_nodes, with_inner
from lstm_lower.passes.decompositions.decompose import DecomposePass
from lstm_lower.passes.inline import InlineFunctionsPass
from lstm_lower.passes.loops.closed_bodies import ClosedBodies
from lstm_lower.passes.loops.views.loop import is_scan, scans_of
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.rewriting import Results
from lstm_lower.passes.targets.cpu import CPU
from lstm_lower.passes.targets.target import Lack, RuntimeTarget

# Of a model that a target cannot run at all, not every node is worth naming.
_NAMED = 8


def legalizing_passes(target: RuntimeTarget = CPU, *, silent: bool = False) -> list[Pass]:
    """The end of every way through lstm-lower: what makes a model one that a target runs as it is meant.

    Args:
        target: the target.
        silent: mend, and refuse, only what the target would compute otherwise without a word.
    """
    if target is CPU:
        return [LegalizePass()]
    closing: list[Pass] = [ClosedBodies()] if target.closed_bodies and not silent else []
    return [LegalizePass(target, silent=silent), *closing, CheckTargetPass(target, silent=silent)]


class RowsPass(DecomposePass):
    """Writes nodes that rows of a table are about by the formulas of these rows, or of their operators.

    Attributes:
        rows: the rows; the first that a node is of counts.
    """

    def __init__(self, rows: Iterable[Lack]) -> None:
        super().__init__(lambda node: self.row_of(node) is not None)
        self.rows = tuple(rows)
        self._by_type: dict[str, tuple[Lack, ...]] = {}

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites, at every nesting level."""
        if not any(self.row_of(node) for node in all_nodes(model.graph)):
            return ir.passes.PassResult(model, modified=False)
        return super().call(model)

    def about(self, op_type: str) -> tuple[Lack, ...]:
        """The rows about an operator."""
        rows = self._by_type.get(op_type)
        if rows is None:
            kind = std.VIEWS.get(op_type)
            rows = tuple(row for row in self.rows if kind is not None and issubclass(kind, row.op))
            self._by_type[op_type] = rows
        return rows

    def row_of(self, node: ir.Node) -> Lack | None:
        """The row that a node is of."""
        rows = self.about(node.op_type)
        view = self.context.space.facts.view(node) if rows else None
        if view is not None:
            # No generator: asked of every node, which mostly is of no row.
            for row in rows:
                if row.holds(view):
                    return row
        return None

    def formula(self, node: ir.Node, builder: Builder) -> Results | None:
        """The row's own formula before the operator's."""
        row, view = self.row_of(node), builder.facts.view(node)
        if row is None or view is None or row.formula is None:
            return super().formula(node, builder)
        return row.formula(view, builder)


class LegalizePass(RowsPass):
    """Writes what a target lacks in simpler operators.

    What a target has no kernel for is onnxruntime's own: rows of `CPU` serve every target. Functions are inlined where
    they may hold what has to be written, of which only their callers know enough.

    Precondition: the model is well formed.

    Attributes:
        target: the target.
    """

    def __init__(self, target: RuntimeTarget = CPU, *, silent: bool = False, slow: bool = False) -> None:
        """Prepares.

        Args:
            target: the target.
            silent: write only what the target would compute otherwise without a word.
            slow: write what it takes long for, too.
        """
        self.target = target
        own = target.rows(silent=silent and target is not CPU, slow=slow)
        super().__init__([*own, *(CPU.rows() if target is not CPU else ())])

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites.

        Raises:
            InvalidModelError: see `InlineFunctionsPass`, `DecomposePass`.
            UnsupportedOpError: see `InlineFunctionsPass`.
        """
        inlined = self._is_suspected(model) and InlineFunctionsPass().share(self.context)(model).modified
        return ir.passes.PassResult(model, super().call(model).modified or inlined)

    def _is_suspected(self, model: ir.Model) -> bool:
        """Whether there are functions that may hold what has to be written, or hide the types of what may be."""
        if not model.functions or self.target is not CPU:
            return bool(model.functions)
        nodes = itertools.chain(all_nodes(model.graph), *map(all_nodes, model.functions.values()))
        return any(row.suspected for node in nodes for row in self.about(node.op_type))

    def formula(self, node: ir.Node, builder: Builder) -> Results | None:
        """The row's, unless it needs a type that the target does not have: what is refused is the model's own node."""
        results = super().formula(node, builder)
        made = [output for emitted in builder.emitted for output in emitted.outputs]
        if self.target.without and any(builder.facts.dtype(output) in self.target.without for output in made):
            builder.discard_unread()
            return None
        return results

    def ensures(self, model: ir.Model) -> None:
        """Nothing is left that onnxruntime's own kernels do not run, unless the target has not all types.

        Raises:
            ir.passes.PostconditionError: something is.
        """
        if self.target.without:
            # What needs them stays as it is, and is refused.
            return
        facts, rows = Facts.of(model), [row for row in self.rows if row in CPU.lacks]
        for node in all_nodes(model.graph):
            view = facts.view(node)
            if view is not None and any(row.holds(view) for row in rows):
                raise ir.passes.PostconditionError(f"{node.op_type} '{node_label(node)}' is none that onnxruntime runs")


class CheckTargetPass(Pass):
    """Refuses a model that a target does not run, and changes nothing.

    Attributes:
        target: the target.
        silent: whether only what it would compute otherwise without a word is refused.
    """

    preserves = True

    def __init__(self, target: RuntimeTarget, *, silent: bool = False) -> None:
        super().__init__()
        self.target = target
        self.silent = silent

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Checks.

        Raises:
            UnsupportedOpError: names the nodes that are in the way, and what to do.
        """
        faults = [*self._types(model), *self._nodes(model)]
        if not self.silent:
            # What computes open sizes is gone once they are known.
            made = [output for node in all_nodes(model.graph) for output in node.outputs]
            faults = self._sizes(model.graph.inputs) or [*faults, *self._loops(model), *self._sizes(made)]
        if faults:
            more = [f"and {len(faults) - _NAMED} more"] if len(faults) > _NAMED else []
            what = f"target '{self.target.name}' requires a model with"
            raise UnsupportedOpError("\n  ".join([what, *faults[:_NAMED], *more]))
        return ir.passes.PassResult(model, modified=False)

    def _nodes(self, model: ir.Model) -> list[str]:
        facts = self.context.space.facts
        found = []
        for node in all_nodes(model.graph):
            view = facts.view(node)
            fault = None if view is None else self.target.fault(view, silent=self.silent)
            if fault is not None:
                loop = "; --dim or sizes={...} fixes its number of steps" if is_scan(node) else ""
                found.append(f"{fault}, got '{node_label(node)}'{loop}")
        return found

    def _loops(self, model: ir.Model) -> list[str]:
        """Faults of the loops that the target runs."""
        scans = scans_of(model.graph)
        inner = {node for scan in scans for node in all_nodes(scan.attributes["body"].as_graph())}
        found = []
        for scan in scans:
            if not self.target.nested_loops and scan in inner:
                found.append(f"no loop in a loop, got '{node_label(scan)}'; schedule unroll takes them apart")
            if self.target.closed_bodies and (read := captures(scan)):
                found.append(f"no loop that reads from outside, got '{node_label(scan)}', which reads '{read[0].name}'")
        return found

    def _types(self, model: ir.Model) -> list[str]:
        """Element types that it does not have as they are, but for scalars inside, such as an optimizer's constants."""
        facts = self.context.space.facts
        interface = {*model.graph.inputs, *model.graph.outputs}
        without = frozenset() if self.silent else self.target.without
        outside = frozenset() if self.silent else self.target.leaves
        found: dict[ir.DataType, ir.Value] = {}
        for graph in with_inner(model.graph):
            values = [*graph.inputs, *graph.initializers.values(), *(out for node in graph for out in node.outputs)]
            for value in values:
                dtype = facts.dtype(value)
                shown = value in interface
                narrowed = dtype in self.target.narrowed and (shown or facts.elements(value) > 1)
                if dtype is not None and (narrowed or dtype in without or (shown and dtype in outside)):
                    found.setdefault(dtype, value)
        return [f"no {dtype.name.lower()}, got '{value.name}'" for dtype, value in found.items()]

    def _sizes(self, values: Iterable[ir.Value]) -> list[str]:
        """The first of the values with an open size, where sizes have to be known."""
        for value in values if self.target.fixed_sizes else ():
            shape = self.context.space.facts.shape(value)
            if shape is None or not all(isinstance(size, int) for size in shape):
                written = "unknown" if shape is None else list(map(str, shape))
                return [f"no open sizes, got {written} of '{value.name}'; --dim or sizes={{...}} fixes them"]
        return []
