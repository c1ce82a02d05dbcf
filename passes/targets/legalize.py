"""The passes that make a lowered model one that a target runs, and the check that it is one."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import captures
from lstm_lower.graph.form import node_label
from lstm_lower.graph.subgraphs import all_nodes, with_inner
from lstm_lower.passes.base import Pass
from lstm_lower.passes.decompositions.decompose import DecomposePass
from lstm_lower.passes.loops.closed_bodies import ClosedBodies
from lstm_lower.passes.loops.views.loop import is_scan, scans_of
from lstm_lower.passes.rewriting import Results
from lstm_lower.passes.targets.table import Target

# Of a model that a target cannot run at all, not every node is worth naming.
_NAMED = 8


class DecomposeForTargetPass(DecomposePass):
    """Writes operators that a target lacks in simpler ones, where a formula is known.

    Attributes:
        target: the target.
        silent: only those that it computes otherwise without a word.
    """

    def __init__(self, target: Target, *, silent: bool = False) -> None:
        super().__init__(self._is_lacking)
        self.target = target
        self.silent = silent

    def _is_lacking(self, node: ir.Node) -> bool:
        view = self.context.space.facts.view(node)
        return view is not None and self.target.fault(view, silent=self.silent) is not None

    def formula(self, node: ir.Node, builder: Builder) -> Results | None:
        """The target's own formula before the one of all targets."""
        view = builder.facts.view(node)
        lack = None if view is None else self.target.lack(view, silent=self.silent)
        if lack is None or lack.formula is None:
            return super().formula(node, builder)
        results = lack.formula(view, builder)
        made = [output for emitted in builder.emitted for output in emitted.outputs]
        if any(builder.facts.dtype(output) in self.target.without for output in made):
            # Not without another type than the model has: what is refused is the model's own node.
            builder.discard_unread()
            return None
        return results


def legalizing_passes(target: Target) -> list[Pass]:
    """What makes an optimised model one for a target, and refuses it where that is not certain."""
    closing: list[Pass] = [ClosedBodies()] if target.closed_bodies else []
    return [DecomposeForTargetPass(target), *closing, CheckTargetPass(target)]


class CheckTargetPass(Pass):
    """Refuses a model that a target does not run, and changes nothing.

    Attributes:
        target: the target.
        silent: whether only what it would compute otherwise without a word is refused.
    """

    preserves = True

    def __init__(self, target: Target, *, silent: bool = False) -> None:
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
        """What of the loops that the target runs is not as it must be."""
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
