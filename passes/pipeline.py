"""The optimisation pipeline: passes on loops, run to a fixed point."""

from __future__ import annotations

import collections
import copy
import dataclasses
import os
import typing
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from lstm_lower.arguments import size
from lstm_lower.errors import InvalidInputError
from lstm_lower.graph import standard as std
from lstm_lower.graph.bindings import composite_nodes
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.dump import dump
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of, with_inner
from lstm_lower.passes.catalog import chosen
from lstm_lower.passes.driver import run_passes, transform
from lstm_lower.passes.inline import InlineLoopsPass
from lstm_lower.passes.loops.algebraic_simplification import AlgebraicSimplification
from lstm_lower.passes.loops.batch_axis_contraction import BatchAxisContraction
from lstm_lower.passes.loops.code_sinking import CodeSinking
from lstm_lower.passes.loops.common_subexpression_elimination import CommonSubexpressionElimination
from lstm_lower.passes.loops.concat_fusion import ConcatFusion
from lstm_lower.passes.loops.concatenation_recognition import ConcatenationRecognition
from lstm_lower.passes.loops.dead_code_elimination import DeadCodeElimination
from lstm_lower.passes.loops.final_values import FinalValues
from lstm_lower.passes.loops.induction_variables import InductionVariables
from lstm_lower.passes.loops.initial_addition import InitialAddition
from lstm_lower.passes.loops.kernel_selection import KernelSelection
from lstm_lower.passes.loops.layout_assignment import LayoutAssignment
from lstm_lower.passes.loops.loop_invariant_code_motion import LoopInvariantCodeMotion
from lstm_lower.passes.loops.loop_reversal import LoopReversal
from lstm_lower.passes.loops.loop_to_scan import LoopToScan
from lstm_lower.passes.loops.loop_unrolling import LoopUnrolling, SingleStepUnrolling
from lstm_lower.passes.loops.product_distribution import ProductDistribution
from lstm_lower.passes.loops.product_fusion import ProductFusion
from lstm_lower.passes.loops.reassociation import Reassociation
from lstm_lower.passes.loops.recomputation_elimination import RecomputationElimination
from lstm_lower.passes.loops.reduction_recognition import ReductionRecognition
from lstm_lower.passes.loops.rerolling import LoopRerolling, cost, has_equal_products
from lstm_lower.passes.loops.sigmoid_recognition import SigmoidRecognition
from lstm_lower.passes.loops.strip_mining import StripMining
from lstm_lower.passes.loops.trip_count import TripCount
from lstm_lower.passes.loops.vectorization import Vectorization
from lstm_lower.passes.loops.views.loop import scans_of
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.model_pass import Context, Pass
from lstm_lower.passes.opset.conversion import ConvertOpsetPass
from lstm_lower.passes.shapes import InferShapesPass
from lstm_lower.passes.targets.cpu import CPU
from lstm_lower.passes.targets.legalize import LegalizePass, legalizing_passes
from lstm_lower.passes.targets.target import RuntimeTarget
from lstm_lower.passes.tidy import NameOutputsPass, SortPass, StatedDefaultsPass, UniqueNamesPass, VerifyPass
from lstm_lower.passes.trace import Trace
from lstm_lower.records.files import check_place
from lstm_lower.records.model_files import has_external_data, save

__all__ = ["OptimizePass", "Trace", "optimize", "optimizing_passes", "parse_schedule"]

# A fixed point is reached in fewer; each round must earn the next one by a change.
MOST_ROUNDS = 12


def parse_schedule(schedule: str) -> tuple[str, int]:
    """Reads `auto`, `scan`, `unroll` or `chunk:K`.

    Raises:
        InvalidInputError: it is not one of these.
    """
    kind, _, count = str(schedule).partition(":")
    steps = size(count)
    if kind == "chunk" and steps:
        return kind, steps
    if schedule in ("auto", "scan", "unroll"):
        return schedule, 0
    raise InvalidInputError(f"schedule requires auto, scan, unroll or chunk:K, got {schedule!r}")


# Behind each group: what a pass leaves behind is simplified before the next one looks. One run of each on a graph
# without subgraphs leaves nothing for a second one.
CLEANING = (AlgebraicSimplification, CommonSubexpressionElimination, DeadCodeElimination)
COUNTING = (TripCount, InductionVariables)
# Work leaves bodies, whichever pass makes it free to.
LEAVING = (
    # What turns a sequence round or transposes it stands between the work and what that reads.
    LoopReversal,
    LayoutAssignment,
    # A product or a sum of which a part can leave is divided so that it does; what stays is joined again.
    ProductDistribution,
    Reassociation,
    ProductFusion,
    ConcatFusion,
    # Before the loop, as sums over all steps, and behind it.
    LoopInvariantCodeMotion,
    ReductionRecognition,
    CodeSinking,
    # What is done part by part then, such as products that are added up, is done on the whole.
    BatchAxisContraction,
    Vectorization,
)


def _everywhere(_model: ir.Model) -> bool:
    return True


def _is_nested(model: ir.Model) -> bool:
    return any(subgraphs_of(node) for node in model.graph)


def _has_scans(model: ir.Model) -> bool:
    return bool(scans_of(model.graph))


def _has_loops(model: ir.Model) -> bool:
    return any(std.Loop.matches(node) for node in all_nodes(model.graph))


@dataclasses.dataclass(frozen=True)
class Stage:
    """Passes that run one after the other.

    Attributes:
        passes: in their order.
        once: whether each runs once; else they run, and those that clean up, until none of them changes anything.
        schedules: `unroll`, `chunk` or others, where the stage is for these alone.
        steps: the length of the blocks for which the stage is alone.
    """

    passes: tuple[type[LoopPass], ...] = ()
    once: bool = False
    schedules: tuple[str, ...] = ()
    steps: int | None = None


# What a model has to hold, as it is then, for the stages that follow.
PLAN: tuple[tuple[Callable[[ir.Model], bool], tuple[Stage, ...]], ...] = (
    # Before algebra changes the form.
    (_is_nested, (Stage((SigmoidRecognition,), once=True),)),
    (_everywhere, (Stage(),)),
    (
        _is_nested,
        (
            Stage(COUNTING),
            # Of a Scan's results more is known, so that further Loops may be counted.
            Stage((ConcatenationRecognition, LoopToScan, *COUNTING)),
        ),
    ),
    (
        _has_scans,
        (
            # What no step reads would be divided with the loop.
            Stage((FinalValues, InitialAddition)),
            # Before products are divided: nothing leaves a block of one step.
            Stage((StripMining,), once=True, schedules=("chunk",), steps=1),
            Stage((SingleStepUnrolling,)),
            # A product that is cut in every step is cut once for a block otherwise.
            Stage((ProductDistribution, ProductFusion)),
            # Before work leaves bodies: it then stops at a block.
            Stage((StripMining,), once=True, schedules=("auto", "chunk")),
            Stage(LEAVING),
            # What has left is computed over all steps, and may be computed in the steps as well.
            Stage((RecomputationElimination,)),
            # Others would not see through the forms that kernels want.
            Stage((KernelSelection,), once=True),
            Stage(),
        ),
    ),
    (_has_scans, (Stage((LoopUnrolling,), once=True, schedules=("unroll",)), Stage(schedules=("unroll",)))),
    # What was a loop in another one's body is work that may leave that body.
    (_has_scans, (Stage(LEAVING, schedules=("unroll",)),)),
    # Sizes and constants of what was a loop in a Loop's body.
    (_has_loops, (Stage(COUNTING),)),
)


class OptimizePass(Pass):
    """The loop optimiser: runs groups of passes on loops, each group to a fixed point.

    Precondition: a model of opset 13 or newer, nodes in an order in which they can run, names unique
    (`UniqueNamesPass`).

    Attributes:
        trace: what every pass did and refused.
        target: what runs the result.
        rolls: whether equal steps in a row may become loops again.
    """

    preserves = True

    def __init__(
        self, schedule: str = "auto", *, trace: Trace | None = None, target: RuntimeTarget = CPU, rolls: bool = True
    ) -> None:
        """Prepares.

        Args:
            schedule: how loops run.
            trace: collects what every pass did.
            target: what runs the result.
            rolls: try equal steps in a row as loops, too, which takes several times as long. Never where the schedule
                writes loops out.

        Raises:
            InvalidInputError: the schedule is not one of the allowed values.
        """
        super().__init__()
        self.kind, self.block = parse_schedule(schedule)
        self.rolls = rolls and self.kind != "unroll"
        self.trace = trace if trace is not None else Trace()
        self.target = target

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Optimises a model."""
        context = self.context
        context.trace = self.trace
        # Formulas are optimised as all else is.
        modified = LegalizePass(self.target).share(context)(model).modified
        first = len(self.trace.changes)
        rolled = self._rolled(model)
        modified |= self._optimized(model)
        if rolled is not None and self._takes(model, rolled):
            self.trace.changes[first:] = rolled.trace.changes
            modified = True
        self._note(model, modified=modified)
        return ir.passes.PassResult(model, modified)

    def _rolled(self, model: ir.Model) -> OptimizePass | None:
        """The driver that has optimised a copy in which equal steps in a row are loops again, if there are any."""
        if not self.rolls or not any(map(has_equal_products, with_inner(model.graph))):
            return None
        work = copy_model(model)
        context = Context(work)
        other = copy.copy(self)
        other.share(context)
        other.context, other.trace = context, Trace(dump=self.trace.dump)
        context.trace, other._flat = other.trace, False
        if not other._run(work, LoopRerolling().share(context), 1):
            return None
        other._optimized(work)
        return other

    def _takes(self, model: ir.Model, rolled: OptimizePass) -> bool:
        """Takes the form with loops where that costs less."""
        work, space = rolled.context.model, rolled.context.space
        if cost(work.graph, space.facts) >= cost(model.graph, self.context.space.facts):
            self.trace.refuse(LoopRerolling.name, "steps", "as a loop they would take longer")
            return False
        model.graph = work.graph
        # Names and facts were those of the other nodes.
        self.context.changed(preserved=False)
        rolled.context.close()
        if self.trace.watch is not None:
            self.trace.watch(LoopRerolling.name, 1, model)
        return True

    def _optimized(self, model: ir.Model) -> bool:
        """Optimises a model as it is; returns whether something changed."""
        context, modified = self.context, False
        self._flat = not _is_nested(model)
        for holds, stages in PLAN:
            # Nothing begins to nest.
            for stage in stages if holds is _everywhere or (not self._flat and holds(model)) else ():
                modified |= self._stage(model, stage)
        # For kernels, what the passes know in another form.
        if self._run(model, LegalizePass(self.target, slow=True).share(context), 1):
            modified = True
            self._fixed_point(model, [CommonSubexpressionElimination(context), DeadCodeElimination(context)])
        return modified

    def _note(self, model: ir.Model, *, modified: bool) -> None:
        """Says why a model's loops are as they were."""
        found = composite_nodes(model.graph)
        composites = collections.Counter(node.op_type for node, definition in found if not definition.stock)
        if composites:
            counts = ", ".join(f"{count} {op}" for op, count in sorted(composites.items()))
            self.trace.note(f"{counts}: recurrent ops have loops only after lowering; run lower first")
        elif not modified:
            loops = any(std.Scan.matches(node) or std.Loop.matches(node) for node in all_nodes(model.graph))
            self.trace.note(f"nothing to do: the model has no loops{' that could be better' if loops else ''}")

    def _stage(self, model: ir.Model, stage: Stage) -> bool:
        """Runs the passes of a stage, where it is for the schedule."""
        if (stage.schedules and self.kind not in stage.schedules) or stage.steps not in (None, self.block):
            return False
        passes = [self._instance(kind) for kind in stage.passes]
        if stage.once:
            return sum([self._run(model, step, 1) for step in passes]) > 0
        return self._fixed_point(model, [*passes, *map(self._instance, CLEANING)])

    def _instance(self, kind: type[LoopPass]) -> LoopPass:
        if kind is StripMining:
            return StripMining(self.context, kind=self.kind, steps=self.block)
        return kind(self.context)

    def _fixed_point(self, model: ir.Model, passes: Sequence[LoopPass]) -> bool:
        """Runs passes until none of them changes anything."""
        modified = False
        for number in range(1, MOST_ROUNDS + 1):
            changed = False
            for step in passes:
                changed |= self._run(model, step, number)
            modified |= changed
            if not changed:
                break
        return modified

    def _run(self, model: ir.Model, step: Pass, number: int) -> bool:
        if self.context.settled.get(type(step)) == self.context.changes:
            return False
        before = dump(model) if self.trace.dump else None
        step.verify_each = self.verify_each
        if not step(model).modified:
            return False
        if self._flat and type(step) in CLEANING:
            self._settle(step)
        self.trace.changed(step.name, number, before, dump(model) if self.trace.dump else None)
        if self.trace.watch is not None:
            self.trace.watch(step.name, number, model)
        return True

    def _settle(self, step: Pass) -> None:
        """Settles the passes that cannot have anything to do after a change."""
        settled, changes = self.context.settled, self.context.changes
        settled[type(step)] = changes
        if isinstance(step, DeadCodeElimination):
            # Without loops, what was not read had no effect.
            settled.update({kind: changes for kind, count in settled.items() if count == changes - 1})


Passes = Sequence[str | ir.passes.PassBase]


@typing.overload
def optimize(
    model: str | os.PathLike[str] | onnx.ModelProto,
    schedule: str = "auto",
    *,
    passes: Passes | None = None,
    out: None = None,
    trace: Trace | None = None,
    verify_each: bool = False,
) -> onnx.ModelProto: ...


@typing.overload
def optimize(
    model: ir.Model,
    schedule: str = "auto",
    *,
    passes: Passes | None = None,
    out: None = None,
    trace: Trace | None = None,
    verify_each: bool = False,
) -> ir.Model: ...


@typing.overload
def optimize(
    model: str | os.PathLike[str] | onnx.ModelProto | ir.Model,
    schedule: str = "auto",
    *,
    passes: Passes | None = None,
    out: str | os.PathLike[str],
    trace: Trace | None = None,
    verify_each: bool = False,
) -> Path: ...


def optimize(
    model: str | os.PathLike[str] | onnx.ModelProto | ir.Model,
    schedule: str = "auto",
    *,
    passes: Passes | None = None,
    out: str | os.PathLike[str] | None = None,
    trace: Trace | None = None,
    verify_each: bool = False,
) -> onnx.ModelProto | ir.Model | Path:
    """Runs the loop optimiser, or passes of one's own choice, on any ONNX model.

    The loop optimiser makes Scans of Loops with a known number of steps, and of equal steps in a row, first. Sums and
    products are regrouped, so results agree up to rounding.

    Args:
        model: a path, a protobuf or an onnx_ir model. It is not changed.
        schedule: how loops run: `auto`, `scan`, `unroll` or `chunk:K`.
        passes: names of passes (docs/passes.md lists them) or passes of `onnx_ir`'s form that work in place, in the
            order in which each runs once; `None` for the loop optimiser.
        out: a file for the result, which is written whole or not at all. Weights that lie in external data are copied
            from file to file, to `<name>.<hash>.data`, and never held in memory.
        trace: collects what every pass did, and why candidates were left alone.
        verify_each: verify the graph, and what each pass promises, after every pass.

    Returns:
        The path of the result where it is written. Otherwise a protobuf for a path or a protobuf, an onnx_ir model for
        an onnx_ir model. Opset 13 or newer.

    Raises:
        InvalidModelError: the model is malformed.
        InvalidInputError: the schedule or a pass is not one of the allowed values.
        OSError: the result cannot be written.
    """
    steps = optimizing_passes(schedule, passes=passes, trace=trace, verify_each=verify_each)
    if out is None:
        return transform(model, steps)
    path = Path(out)
    check_place(path)
    optimized = run_passes(model, steps)
    save(optimized, path, external_data=has_external_data(optimized) or None)
    return path


def optimizing_passes(
    schedule: str = "auto", *, passes: Passes | None = None, trace: Trace | None = None, verify_each: bool = False
) -> list[Pass]:
    """The passes that `optimize` runs, for a pipeline of one's own.

    Raises:
        InvalidInputError: the schedule or a pass is not one of the allowed values.
    """
    # It may be among the passes of a user's choice, too.
    optimiser = OptimizePass(schedule, trace=trace)
    own = optimiser if passes is None else chosen(passes, {optimiser.name: lambda: optimiser}, trace)
    steps = [*preparing_steps(), own, *legalizing_passes()]
    # What is sorted is not known to be well formed yet.
    for step in steps[1:]:
        step.verify_each = verify_each
    return steps


def preparing_steps() -> list[Pass]:
    """The passes that bring a model into the form that passes on loops require."""
    return [
        SortPass(),
        VerifyPass(),
        ConvertOpsetPass(),
        InlineLoopsPass(),
        NameOutputsPass(),
        UniqueNamesPass(),
        StatedDefaultsPass(),
        InferShapesPass(),
    ]
