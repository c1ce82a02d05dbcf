"""A PyTorch module as a model: traced by `torch.export`, translated operator by operator (`aten`)."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.export import Dim

from lstm_lower.errors import LstmLowerError, UnsupportedOpError, some
from lstm_lower.graph import standard as std
from lstm_lower.passes.bounds import BoundsPass
from lstm_lower.passes.driver import run_passes
from lstm_lower.passes.gradient_preparation import preparing_passes
from lstm_lower.passes.loops.length_extrapolation import UnlikeError, extrapolated, rolling_passes
from lstm_lower.passes.loops.step_counts import MORE_STEPS, STEPS, Length, open_in_trace, products
from lstm_lower.passes.targets.formulas import may_be_of_nothing, mean_by_count
from lstm_lower.passes.targets.legalize import RowsPass
from lstm_lower.passes.targets.target import Lack
from lstm_lower.passes.training.step import source_of
from lstm_lower.passes.widening import WideningPass
from lstm_lower.records import lengths as records
from lstm_lower.records.lengths import Law, Place
from lstm_lower.torch.aten.evaluation import Evaluated, TrainingReads, evaluated_calls
from lstm_lower.torch.aten.recurrent import unchecked_packs
from lstm_lower.torch.aten.sizes import OpenSizeError
from lstm_lower.torch.aten.storage import check_apart
from lstm_lower.torch.aten.translate import translate
from lstm_lower.torch.axes import BY_ITSELF, Axes, DynamicShapes, Requested, check_open, choices, of_pictures, requested
from lstm_lower.torch.branches import (
    Bounds,
    axes_of,
    bounds_of,
    decided_axes,
    decisions,
    left_open,
    open_axes,
    sizes_of,
)
from lstm_lower.torch.checks import values_unchecked
from lstm_lower.torch.control_flow import any_length, batches_first
from lstm_lower.torch.derivatives import derivatives_written, with_inner_gradients
from lstm_lower.torch.hooks import refuse_others
from lstm_lower.torch.interception import Interception
from lstm_lower.torch.interface import ModuleOperands, Step, are_equal, attributes_kept, first_names, weights
from lstm_lower.torch.lengths import Calls, Counting, Lengths
from lstm_lower.torch.modules import traceable_modules
from lstm_lower.torch.own_gradients import Functions, own_gradients_traced, tied
from lstm_lower.torch.pytorch_errors import raised, way_around
from lstm_lower.torch.size_arithmetic import logarithms_allowed, open_arithmetic, open_numbers
from lstm_lower.torch.trials import RefusedError, Trials, quiet
from lstm_lower.torch.wrappers import eagerly

# What PyTorch means by operators for which ONNX leaves something open: the mean of nothing is NaN.
_MEANT_OTHERWISE = (Lack(std.ReduceMean, "of what may be nothing", may_be_of_nothing, formula=mean_by_count),)


@dataclasses.dataclass(frozen=True)
class Exported:
    """A module as a model.

    Attributes:
        model: its inputs are tensors of `forward`, its initializers parameters and buffers under PyTorch's names.
        states: buffer -> output with its value after the step, where the step changes it.
        fixed: axes whose sizes are those of the example, and why.
        traced: the trace that it is of.
        left_open: those among these that forward itself leaves open.
    """

    model: ir.Model
    states: dict[str, str]
    fixed: Axes
    traced: Traced
    left_open: Axes = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Traced:
    """A module as PyTorch traces it.

    Attributes:
        step: the module with flat tensors in and out.
        program: the trace.
        names: of its inputs.
        tensors: the example.
        reasons: axes whose sizes are those of the example, and why, as far as tracing tells.
        wanted: which axes are to be open.
        closed: axes that were to have the example's size, and why.
        read: buffers over whose values the module's code branches.
        steps: those of the closed axes over which loops in Python go.
        lengths: numbers of steps of loops in Python, of which the trace has few.
        longer: traces of one step more of each.
        reads: what asks whether it trains.
        evaluated: calls that have other operands than in the trace: it is of a module that trains, and this is not.
    """

    step: Step
    program: torch.export.ExportedProgram
    names: list[str]
    tensors: list[Tensor]
    reasons: Axes
    wanted: Requested
    closed: Axes
    read: Collection[str] = ()
    steps: Axes = dataclasses.field(default_factory=dict)
    lengths: Sequence[Length] = ()
    longer: Sequence[torch.export.ExportedProgram] = ()
    reads: TrainingReads = dataclasses.field(default_factory=TrainingReads)
    evaluated: Evaluated = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def bounds(self) -> Bounds:
        """Axes that are open up to some size."""
        found = bounds_of(self.program, self.names)
        for length in self.lengths:
            found |= {place: min(found.get(place, bound), bound) for place, bound in length.bounds.items()}
        return found

    def in_evaluation(self) -> Traced | None:
        """The same of the module in evaluation mode; `None` where that takes a trace of its own."""
        if self.reads.others:
            return None
        evaluated = [evaluated_calls(program, self.step, self.reads.handed) for program in (self.program, *self.longer)]
        calls = [each for each in evaluated if each is not None]
        if len(calls) < len(evaluated):
            return None
        return dataclasses.replace(self, evaluated={node: given for each in calls for node, given in each.items()})

    def same_as(self, other: Traced) -> bool:
        """Whether two traces of a module compute the same, for all sizes as far as its code tells.

        Later steps than are traced may be others in one of them.
        """
        constants, others = self.program.constants, other.program.constants
        return (
            not self.lengths
            and not other.lengths
            and _code(self.program) == _code(other.program)
            and open_axes(self.program, self.names) == open_axes(other.program, self.names)
            and sorted(map(str, decisions(self.program))) == sorted(map(str, decisions(other.program)))
            and constants.keys() == others.keys()
            and all(are_equal(value, others[name]) for name, value in constants.items())
        )


def _code(program: torch.export.ExportedProgram) -> list[str]:
    """What a trace and the traces within it compute, as Python."""
    return [part.code for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule)]


def export(module: nn.Module, example_inputs: Any, dynamic_shapes: DynamicShapes = "auto", **options: Any) -> Exported:
    """Exports a module in the mode that it is in, training or evaluation; see `trace`."""
    tracing = functools.partial(trace, module, example_inputs, dynamic_shapes, **options)
    return settled(tracing(), tracing)[1]


def settled(traced: Traced, tracing: Callable[..., Traced]) -> tuple[Traced, Exported]:
    """The model of a trace, with as many open axes as can be, and its trace.

    Args:
        traced: the trace to begin with.
        tracing: traces the module again with axes `closed`.

    Raises:
        InvalidInputError: axes that are to be open cannot be.
        UnsupportedOpError: PyTorch cannot trace it, or an operator has no translation.
    """
    while True:
        sizes = sizes_of(traced.program, traced.names)  # a formula that decides by an open size makes a number of it
        try:
            exported = write(traced)
        except OpenSizeError as error:
            found = axes_of(sizes, dict.fromkeys(error.symbols, error.reason))
            if not found:
                raise
            traced = tracing(**closed_further(traced, found))
        except UnlikeError as error:
            few = traced.lengths[0].steps < MORE_STEPS
            options = {"few": MORE_STEPS} if few else steps_closed(traced, f"{error}", error.lengths)
            traced = tracing(**{"closed": traced.closed, "steps": traced.steps, **options})
        else:
            return traced, exported


def closed_further(traced: Traced, differing: Axes, ends: Bounds | None = None) -> dict[str, Any]:
    """Arguments of `trace` for one whose axes are closed, or bounded, in which a step is another one than its module.

    Args:
        traced: a trace.
        differing: axis -> how they differ.
        ends: axis of a number of steps -> up to how many they do not, and why more do.

    Raises:
        InvalidInputError: such an axis is to be open.
    """
    wrong = [length for length in traced.lengths if differing.keys() & length.laws.keys()]
    if ended := {place: end for length in wrong if (end := (ends or {}).get(place := length.place))}:
        return {"ends": {length.place: length.most for length in traced.lengths if length.most} | ended}
    if wrong:
        how = next(differing[place] for length in wrong for place in length.laws if place in differing)
        return steps_closed(traced, f"for other lengths it has {how}", wrong)
    check_open(traced.wanted, differing)
    return {"closed": traced.closed | differing, "steps": traced.steps}


def steps_closed(traced: Traced, why: str, lengths: Iterable[Length] | None = None) -> dict[str, Any]:
    """Arguments of `trace` for one whose loops, some or all, have as many steps as the example has."""
    chosen = traced.lengths if lengths is None else [*lengths]
    if any(each.takes_rests and each.steps < MORE_STEPS for each in chosen):
        # Whole chunks may do.
        return {"closed": traced.closed, "steps": traced.steps, "few": MORE_STEPS}
    fixed = _steps_fixed(chosen, why)
    return {"closed": traced.closed | fixed, "steps": traced.steps | fixed}


def _steps_fixed(lengths: Iterable[Length], why: str) -> Axes:
    """Axes over which loops go, and why they have the example's size."""
    return {
        place: f"a loop in Python goes over {length.example} steps ({length.line}); {why}"
        for length in lengths
        for place in length.laws
    }


def _held(
    step: Step, names: Sequence[str], products: Iterable[tuple[Place, int, Place]]
) -> contextlib.AbstractContextManager[Any]:
    """Traces with axes that are so many times others, of any size."""

    def check(_: Any, inputs: tuple[Tensor, ...]) -> None:
        given = dict(zip(names, inputs, strict=True))
        for (name, axis), number, (other, times) in products:
            torch._check(given[name].shape[axis] == number * given[other].shape[times])  # type: ignore[no-untyped-call]

    return step.register_forward_pre_hook(check)


def trace(
    module: nn.Module,
    example_inputs: Any,
    dynamic_shapes: DynamicShapes = "auto",
    *,
    loss: Any = None,
    example_targets: Sequence[Tensor] = (),
    target_names: Sequence[str] = (),
    what: str = "train",
    closed: Axes | None = None,
    steps: Axes | None = None,
    few: int = STEPS,
    ends: Bounds | None = None,
) -> Traced:
    """Traces a module in the mode that it is in, training or evaluation.

    Args:
        module: the module; it is not changed.
        example_inputs: see `from_torch`.
        dynamic_shapes: see there.
        loss: a function of the module's result and targets, whose result becomes the output `loss`.
        example_targets: what the loss takes beside the module's result.
        target_names: their names.
        what: see `from_torch`.
        closed: axes that are to have the example's size, and why.
        steps: those of them over which loops in Python go.
        few: how many steps of other loops are traced.
        ends: axes of loops -> up to how many steps they are open, and why.

    Raises:
        InvalidInputError: the example inputs do not fit.
        UnsupportedOpError: PyTorch cannot trace it.
    """
    operands = ModuleOperands.of(module, example_inputs)
    names = [*operands.names, *target_names]
    # A view cannot be traced everywhere.
    tensors = [tensor.detach().clone() for tensor in (*operands.tensors, *example_targets)]
    wanted = requested(dynamic_shapes, names, tensors)
    step = Step(module, operands, loss, target_names)
    step.varying = len(operands.names) if what == "input_gradient" else 0
    trials, counting = Trials(step, names, tensors), Counting()
    calls: Calls = {}
    with contextlib.suppress(RefusedError), any_length():
        step.follow(trials.moved(counting))
        calls = counting.calls
    steps = steps or {}
    closed = (of_pictures(module, names, tensors) if wanted == "auto" else {}) | (closed or {})
    lengths = Lengths(trials, calls, wanted, closed, few)
    reads, found, longer = TrainingReads(), None, []
    tracing = functools.partial(_traced, step, names, lengths, reads)
    try:
        while found != lengths.found:
            found = [*lengths.found]
            # Each of a loop's lengths has a trace of its own.
            apart = {place: "" for each in found for place in each.given}
            with _held(step, names, products(found)):
                program, reasons, read = tracing(wanted, closed | apart)
            axes = open_axes(program, names)
            lengths.found = open_in_trace(lengths.found, found, apart.keys() | axes, trials.sizes)
        for each in lengths.found:
            with _held(step, names, products(lengths.found, each)):
                longer.append(_captured(step, names, lengths.tensors(each), axes, reads)[0])
    except Exception as error:
        if not lengths.found:
            raise
        fixed = _steps_fixed(lengths.found, f"of other numbers PyTorch makes no trace: {raised(error)}")
        closed, steps, lengths.found, longer = closed | fixed, steps | fixed, [], []
        program, reasons, read = tracing(wanted, closed)
    found = [dataclasses.replace(each, most=(ends or {}).get(each.place)) for each in lengths.found]
    return Traced(step, program, names, tensors, reasons, wanted, closed, read, steps, found, longer, reads)


def write(traced: Traced) -> Exported:
    """Writes a trace as a model.

    Raises:
        InvalidInputError: axes that are to be open cannot be.
        UnsupportedOpError: PyTorch cannot write it.
    """
    exported = _extended(traced) if traced.lengths else _translated(traced)
    BoundsPass({place: most for place, (most, _) in traced.bounds.items()})(exported.model)
    bounds = [records.Length({name: {axis: Law()}}, 1, *bound) for (name, axis), bound in traced.bounds.items()]
    records.write(exported.model, [*records.parse(exported.model.metadata_props), *bounds])
    opened = left_open(traced.program, exported.fixed, Trials(traced.step, traced.names, traced.tensors), traced.names)
    fixed = exported.fixed | opened
    check_open(traced.wanted, fixed)
    return dataclasses.replace(exported, fixed=fixed, left_open=opened)


def _extended(traced: Traced) -> Exported:
    """Writes a trace of few steps, and those of one more, as a model of any number of them."""
    exported = _translated(traced)
    longer = (_translated(dataclasses.replace(traced, program=program)) for program in traced.longer)
    rolling = rolling_passes([name for name, _ in weights(traced.step.module)], tied, traced.lengths)
    rolled = [run_passes(each.model, [*preparing_passes(), *rolling]) for each in (exported, *longer)]
    model = extrapolated(rolled, traced.lengths)
    opened = {place for length in traced.lengths for place in length.laws}
    fixed = {place: why for place, why in exported.fixed.items() if place not in opened}
    return dataclasses.replace(exported, model=model, fixed=fixed)


def _translated(traced: Traced) -> Exported:
    """Writes a trace as a model by translations of ours.

    Raises:
        UnsupportedOpError: an operator has no translation.
    """
    step, names = traced.step, traced.names
    laws = {place: law for length in traced.lengths for place, law in length.laws.items()}
    outputs = [*step.names.outputs, *(f"new_{name}" for name in step.names.states)]
    with quiet(), logarithms_allowed(), torch.no_grad():
        first = first_names(step.module)
        held = {f"module.{name}": first[id(x)] for name, x in weights(step.module)}
        model = translate(traced.program, names, outputs, held, traced.evaluated, laws)
    shapes = {str(value.name): value.shape or () for value in model.graph.inputs}
    known = [(name, axis) for name, shape in shapes.items() for axis, size in enumerate(shape) if isinstance(size, int)]
    fixed = {place: traced.reasons.get(place, BY_ITSELF) for place in known}
    WideningPass()(model)
    RowsPass(_MEANT_OTHERWISE)(model)
    model = with_inner_gradients(model)
    states = _changed(model, step.names.states)
    _check_branches(traced, states)
    module = step.module
    check_apart(
        [*module.named_parameters(), *module.named_buffers()],
        {*states, *(name for name, x in module.named_parameters() if x.requires_grad)},
    )
    return Exported(model, states, fixed, traced)


def _changed(model: ir.Model, states: Sequence[str]) -> dict[str, str]:
    """Buffers that the step changes, with their outputs; outputs of the others are dropped."""
    found = {}
    for name in states:
        output = next(value for value in model.graph.outputs if value.name == f"new_{name}")
        source = source_of(output)
        if source.is_initializer() and source.name == name:
            model.graph.outputs.remove(output)
        else:
            found[name] = f"new_{name}"
    return found


def _check_branches(traced: Traced, states: Mapping[str, str]) -> None:
    if branching := sorted(set(traced.read) & set(states)):
        raise UnsupportedOpError(
            f"{type(traced.step.module).__name__} requires a forward that does the same in every step, got a branch "
            f"over the value of {some(branching)}, which forward changes; if it marks what is done in the first step "
            "alone, call the module once in training mode, module(x), before; if it is a place, x[i.view(1)] does for "
            "x[i]; what counts steps must not count (performer-pytorch: module.fix_projection_matrices_())"
        )


def _traced(
    step: Step, names: Sequence[str], lengths: Lengths, reads: TrainingReads, wanted: Requested, closed: Axes
) -> tuple[torch.export.ExportedProgram, Axes, Collection[str]]:
    """The traced step with as many open axes as can be; of those that are not, why; buffers of branches."""
    reasons, tensors = dict(closed), lengths.tensors()
    # What was open, and why it cannot be.
    failed: list[tuple[set[Place], Exception]] = []
    trials = Trials(step, names, tensors)
    for choice in choices(names, tensors, wanted):
        axes = choice - closed.keys()
        if any(axes == opened for opened, _ in failed):
            continue
        try:
            program, read = _captured(step, names, tensors, axes, reads)
            while decided := decided_axes(program, names, trials, lengths):
                # Only what stands in a trace for all sizes may be open.
                reasons |= decided
                axes = axes - decided.keys()
                program, read = _captured(step, names, tensors, axes, reads)
        except LstmLowerError:
            raise
        except Exception as error:  # noqa: BLE001
            failed.append((axes, error))
        else:
            # The fewer axes are open, the more it is one of these that an error is about.
            for opened, fault in reversed(failed):
                reasons = dict.fromkeys(opened - axes, f"PyTorch's trace with it open fails: {raised(fault)}") | reasons
            return program, reasons, read
    # The last fails for no open axis.
    _, fault = failed[-1]
    raise UnsupportedOpError(
        f"{type(step.module).__name__} requires a forward that torch.export can trace, got: {raised(fault)}; "
        f"{way_around(fault)}"
    ) from fault


def _captured(
    step: Step, names: Sequence[str], tensors: Sequence[Tensor], axes: Container[Place], reads: TrainingReads
) -> tuple[torch.export.ExportedProgram, Collection[str]]:
    given = zip(names, tensors, strict=True)
    shapes = tuple({axis: Dim.AUTO for axis in range(x.dim()) if (name, axis) in axes} for name, x in given)

    def captured() -> tuple[torch.export.ExportedProgram, Collection[str]]:
        functions = Functions()
        intercepting = Interception(step, functions)
        begun = step.register_forward_pre_hook(lambda _, inputs: intercepting.vary(inputs[: step.varying]))
        with quiet(), _tracing(step, functions), attributes_kept(step), reads.recorded(), intercepting, begun:
            program = torch.export.export(step, tuple(tensors), dynamic_shapes=(shapes,), strict=False)
        return program, intercepting.known.read

    return open_numbers(captured)


@contextlib.contextmanager
def _tracing(module: nn.Module, functions: Functions) -> Iterator[None]:
    """Traces with gradients, and lets an axis stay open whose example size is 1."""
    refuse_others(module)
    with (
        torch.enable_grad(),
        torch.fx.experimental._config.patch(backed_size_oblivious=True),  # type: ignore[attr-defined]
        traceable_modules(),
        open_arithmetic(),
        logarithms_allowed(),
        unchecked_packs(),
        values_unchecked(),
        own_gradients_traced(functions),
        derivatives_written(),
        eagerly(),
        any_length(),
        batches_first(),
    ):
        yield
