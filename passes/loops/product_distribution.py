"""Product distribution: a product of a concatenation, and slices of a product, become products of the parts.

Precondition: any Scan. `concat(x, h) @ w` is `x @ w[:I] + h @ w[I:]`, and the part that does not need the carried
state can then be hoisted. `(g @ w)[:, :I]` is `g @ w[:, :I]`, and a part that only leaves the loop can then be sunk;
where that is the only part that is read, the others are not computed.

Postcondition: no product of the body mixes parts that can leave the loop with parts that cannot, and none is cut once.
"""

from __future__ import annotations

import dataclasses
import itertools

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder
from lstm_lower.graph.facts import Facts
from lstm_lower.passes.loops.gemm_opening import GemmOpening
from lstm_lower.passes.loops.views.dependence import Dependence, Level
from lstm_lower.passes.loops.views.loop import Loop
from lstm_lower.passes.loops.views.loop_pass import LoopPass


class ProductDistribution(LoopPass):
    """Splits products along concatenations and slices where one part can leave the loop and another cannot."""

    needs = (GemmOpening,)

    def rewrite(self, loop: Loop) -> bool:
        """Distributes the products of one loop."""
        modified, dependence = False, Dependence(loop)
        recurrent = dependence.recurrent()
        for node in dependence.order:
            if not std.MatMul.matches(node) or dependence.node_level(node) != Level.CARRIED:
                continue
            if self._split_slices(loop, dependence, recurrent, node) or self._split_concat(loop, dependence, node):
                modified = True
        if modified:
            loop.commit()
        return modified

    def _split_concat(self, loop: Loop, dependence: Dependence, node: ir.Node) -> bool:
        for side in (0, 1):
            value, other = node.inputs[side], node.inputs[1 - side]
            concat = loop.facts.maker(value)
            if other is None or not isinstance(concat, std.Concat) or concat.node.graph is not loop.body:
                continue
            rank, other_rank = loop.facts.rank(value), loop.facts.rank(other)
            if rank is None or other_rank is None or min(rank, other_rank) < 2:
                continue
            if concat.axis != (rank - 1 if side == 0 else rank - 2):
                continue
            groups = _groups(dependence, concat)
            if len(groups) < 2 or dependence.level(other) == Level.CARRIED:
                continue
            if all(group.level == Level.CARRIED for group in groups):
                continue
            axis = other_rank - 2 if side == 0 else other_rank - 1
            editor = loop.inside(before=node)
            ends = self._ends(editor, groups, -1 if side == 0 else -2)
            if ends is None:
                self.refuse(node, "the sizes of what it concatenates are not known outside the loop")
                continue
            terms: list[ir.Value] = []
            start: int | ir.Value = 0
            for group, end in zip(groups, ends, strict=True):
                part = editor.concat(group.values, concat.axis)
                cut = editor.slice(other, start, end, axis)
                terms.append(editor.op(std.MatMul, *((part, cut) if side == 0 else (cut, part))))
                start = end
            result = terms[0]
            for term in terms[1:]:
                result = editor.op(std.Add, result, term)
            loop.substitute(node.outputs[0], result)
            return True
        return False

    @staticmethod
    def _ends(editor: Builder, groups: list[_Group], axis: int) -> list[int | ir.Value] | None:
        """Where each group ends along the inner axis; the last one at the end."""
        ends: list[int | ir.Value] = []
        total: int | ir.Value = 0
        for group in groups[:-1]:
            for value in group.values:
                shape = editor.facts.shape(value)
                dim = None if shape is None else shape[axis]
                if isinstance(dim, int) and isinstance(total, int):
                    total += dim
                    continue
                if value.producer() is not None or shape is None:
                    return None
                size = editor.size(value, axis).value
                total = (
                    size
                    if total == 0
                    else editor.op(std.Add, editor.ints(total).value if isinstance(total, int) else total, size)
                )
            ends.append(total)
        return [*ends, END]

    def _split_slices(self, loop: Loop, dependence: Dependence, recurrent: set[ir.Node], node: ir.Node) -> bool:
        product, weight = node.outputs[0], node.inputs[1]
        rank, weight_rank = loop.facts.rank(product), loop.facts.rank(weight)
        readers = dependence.readers(product)
        if weight is None or rank is None or weight_rank is None or weight_rank < 2 or product in set(loop.results()):
            return False
        if dependence.level(weight) != Level.INVARIANT or not readers:
            return False
        cuts = [cut for reader in readers for cut in _cuts(loop.facts, reader, product, rank)]
        if not cuts or len(cuts) < sum(len(reader.outputs) for reader in readers):
            return False
        updates = {state.update for state in loop.states}
        needed = [
            cut.value in updates or any(reader in recurrent for reader in dependence.readers(cut.value)) for cut in cuts
        ]
        # Columns that are not taken need not be computed, wherever the one part is needed.
        if len(cuts) > 1 and (all(needed) or not any(needed)):
            return False
        for cut in cuts:
            editor = loop.inside(before=cut.node)
            columns = editor.slice(weight, cut.start, cut.end, weight_rank - 1)
            part = editor.op(std.MatMul, node.inputs[0], columns)
            loop.substitute(cut.value, part)
        return True


@dataclasses.dataclass(frozen=True)
class _Group:
    """Neighbouring parts of a concatenation that can, or cannot, leave the loop."""

    values: list[ir.Value]
    level: Level


def _groups(dependence: Dependence, concat: std.Concat) -> list[_Group]:
    groups: list[_Group] = []
    for value in concat.parts:
        level = dependence.level(value)
        if groups and (groups[-1].level == Level.CARRIED) == (level == Level.CARRIED):
            groups[-1] = _Group([*groups[-1].values, value], max(level, groups[-1].level))
        else:
            groups.append(_Group([value], level))
    return groups


@dataclasses.dataclass(frozen=True)
class _Cut:
    """A range of a product's last axis that a node takes."""

    node: ir.Node
    value: ir.Value
    start: int | ir.Value
    end: int | ir.Value


def _cuts(facts: Facts, node: ir.Node, product: ir.Value, rank: int) -> list[_Cut]:
    """What a Slice or Split takes of a product's columns; empty when it is something else."""
    if list(node.inputs).count(product) != 1 or node.inputs[0] is not product:
        return []
    view = facts.view(node)
    if isinstance(view, std.Slice) and view.axes == (rank - 1,) and view.steps == (1,):
        return [_Cut(node, view.output, view.starts, view.ends)]
    if isinstance(view, std.Split) and view.axis == rank - 1 and view.sizes is not None:
        ends = list(itertools.accumulate(view.sizes))
        return [_Cut(node, *cut) for cut in zip(node.outputs, (0, *ends), ends, strict=False)]
    return []
