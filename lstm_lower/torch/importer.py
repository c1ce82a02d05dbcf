"""`from_torch`: a PyTorch module and a loss as a training step."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import onnx
import onnx_ir as ir
from torch import nn

from lstm_lower.arguments import explained
from lstm_lower.errors import InvalidInputError, LstmLowerWarning, UnsupportedOpError, some, warn
from lstm_lower.graph.copies import copy_model
from lstm_lower.passes.driver import old_collections_held, run_passes
from lstm_lower.passes.gradient_preparation import preparing_passes
from lstm_lower.passes.loops.rerolling import LoopRerolling
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.targets.legalize import legalizing_passes
from lstm_lower.passes.training import evaluation
from lstm_lower.passes.training.evaluation import EvaluationPass
from lstm_lower.passes.training.layers import LayerStatePass
from lstm_lower.passes.training.losses import BY_NAME, Loss, resolve, target_names
from lstm_lower.passes.training.objective import ObjectivePass, UnvaryingLossError
from lstm_lower.passes.training.options import TrainingOptionsPass
from lstm_lower.records import certificate, holdings
from lstm_lower.records import state as training_state
from lstm_lower.records.lengths import by_input
from lstm_lower.records.origin import Origin
from lstm_lower.records.state import Role, StatePair
from lstm_lower.torch import examples, losses, optimizers, pytorch_errors, states
from lstm_lower.torch.autograd_comparison import Asked, OtherSizesError, TorchStep, certified, gradients_unseen
from lstm_lower.torch.axes import DynamicShapes
from lstm_lower.torch.export import Exported, Traced, closed_further, settled, steps_closed, trace
from lstm_lower.torch.interface import ModuleOperands, as_tensors, brief, named_tensors
from lstm_lower.torch.own_gradients import OwnGradientsTakenPass, results_alone, tied
from lstm_lower.torch.size_comparison import OpenSizes
from lstm_lower.torch.wrappers import module_of


class FixedStepsWarning(LstmLowerWarning):
    """A loop in Python fixes how long sequences are, or other code a size that forward itself leaves open."""


# Metadata: input -> axis -> why its size is fixed, as JSON.
FIXED_AXES = "lstm_lower.fixed_axes"
# How many times the example's size a bound of an axis is at least that nobody is warned of.
_FAR = 16

What = Literal["train", "gradients", "input_gradient", "forward"]
Frozen = Literal["constant", "state"]


@explained(pytorch_errors.told)
def from_torch(
    module: nn.Module,
    example_inputs: Any,
    loss: str | Loss | nn.Module | Callable[..., Any],
    optimizer: Any = None,
    *,
    example_targets: Any = None,
    dynamic_shapes: DynamicShapes = "auto",
    what: What = "train",
    schedule_steps: int | None = None,
    frozen: Frozen = "constant",
    check: bool = True,
) -> onnx.ModelProto:
    """Makes a training step of a PyTorch module, in its current mode (training or evaluation).

    Args:
        module: any module that `torch.export` can trace. It is not changed.
        example_inputs: what `forward` takes: a tensor, a tuple by position, or a mapping by name.
        loss: a loss of PyTorch, module or function, or of `lstm_lower.passes.training.losses`, or its name there, of
            the module's first output; any other function or module of the module's result and targets, which is traced;
            or the name of an output of the module.
        optimizer: one of `torch.optim`, with its groups and state, or a scheduler of one; or one of
            `lstm_lower.passes.training`, its name, or groups. `None` leaves it to the trainer.
        example_targets: a tensor, or several in a tuple, as the loss takes them after the module's result. Required if
            the loss is traced; otherwise they give the dtypes and shapes of targets.
        dynamic_shapes: `auto` keeps every axis open that the module's code allows, but of pictures, which convolutions
            over two or three axes take, the batch alone; a mapping of inputs to open axes; `None` fixes all axes.
        what: `train` for a step that updates its state, `gradients` for `loss` and `grad/<parameter>`,
            `input_gradient` for `loss` and `grad/<input>`, `forward` for `loss`.
        schedule_steps: total number of updates for which a scheduler that calls Python functions, such as LambdaLR, is
            run in advance; its rates become a table, and a step beyond its end fails. Schedulers with a formula need
            none.
        frozen: what weights are that no step changes: `constant`, or `state` that `trainer.load_state_dict` replaces,
            such as a discriminator's, a teacher's or those of a target network.
        check: whether to run the step beside PyTorch, at the example, and to refuse it if its loss, outputs, gradients
            or updates differ; and at other sizes, and to fix axes in which they do. What was compared is in the
            metadata (`lstm_lower.certificate`) and in `print(trainer)`. Without it axes by whose size forward decides
            have the example's.

    Returns:
        A model to be handed to `ll.Trainer` or `ll.lower`. Inputs are named after `forward`'s parameters, targets
        `target` (`target_0`, ... where there are several), the state after parameters and buffers; outputs are `loss`,
        the module's own (`output`, `output_0`, ..., or the names of fields and keys), `grad/<name>` and the new state.
        The evaluation graph of a step that trains (`lstm_lower.evaluation`) is the module in evaluation mode with its
        loss. The metadata say under `lstm_lower.fixed_axes` which axes of inputs have the example's size, and why.

    Raises:
        InvalidInputError: an argument does not fit.
        UnsupportedOpError: PyTorch cannot export the module, gradients flow through operators without a rule, or the
            step does not compute what PyTorch does.
    """
    module = module_of(module)
    for name, value, known in (("what", what, get_args(What)), ("frozen", frozen, get_args(Frozen))):
        if value not in known:
            raise InvalidInputError(f"{name} requires one of {known}, got {value!r}")
    if optimizer is not None and what != "train":
        raise InvalidInputError(f"optimizer requires what='train', got {what!r}")
    optimizer = optimizers.configured(optimizer)
    optimizers.check(optimizer, schedule_steps)
    examples.checked("example_inputs", example_inputs)
    targets = [] if example_targets is None else as_tensors("example_targets", example_targets)
    examples.checked("example_targets", targets)
    formula, traced = _loss(loss, has_targets=example_targets is not None)
    if isinstance(formula, Loss) and targets and len(targets) != formula.count:
        raise InvalidInputError(
            f"example_targets requires {formula.count} of {type(formula).__name__}, got {len(targets)}; a list is "
            "several targets, torch.tensor([...]) is one"
        )
    operands = ModuleOperands.of(module, example_inputs)
    names = target_names(len(targets), operands.names)
    run = losses.in_torch(loss)
    whole = traced is not None
    result = examples.run_once(module, operands, run, targets if targets or whole else None, whole=whole)
    repeats = isinstance(formula, Loss) and losses.by_element(formula)
    repeats = repeats and any(target.shape != named_tensors("", result)[0][1].shape for target in targets)
    # It holds copies of all weights.
    del result
    if run is not None and repeats:
        # PyTorch repeats the smaller one, which formulas of ours do not.
        formula, traced = "loss", losses.of_first(run)
    tracing = functools.partial(
        trace,
        module,
        example_inputs,
        dynamic_shapes,
        loss=traced,
        example_targets=targets if traced is not None else (),
        target_names=names if traced is not None else (),
        what=what,
    )
    if isinstance(formula, Loss) and targets:
        formula = losses.WithExamples(loss=formula, examples=targets)
    making = _Making(module, operands, loss, formula, targets, optimizer, what, schedule_steps, frozen, check)
    # Traces are many objects, too.
    with old_collections_held:
        while True:
            try:
                step, exported = making.step(tracing)
                break
            except _OtherwiseError as error:
                tracing = functools.partial(tracing, **error.options)
        _tell(module, step, exported, check=check)
        return ir.to_proto(step)


class _OtherwiseError(Exception):
    """A module has to be traced otherwise.

    Attributes:
        options: arguments of `trace`.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(f"{options}")
        self.options = options


@dataclasses.dataclass(frozen=True)
class _Making(Asked):
    """What a step is made of; see `from_torch`."""

    schedule_steps: int | None
    frozen: Frozen
    check: bool

    def step(self, tracing: Callable[..., Traced]) -> tuple[ir.Model, Exported]:
        """A step, and the model that it is made of.

        Raises:
            _OtherwiseError: it has to be made of another trace.
        """
        module, optimizer, what = self.module, self.optimizer, self.what
        trains = what in ("train", "gradients")
        exported, evaluated = _forms(module, tracing, evaluates=trains)
        if evaluated is not None:
            evaluated = _stateless(evaluated)
            if (plain := results_alone(evaluated.model)) is not evaluated.model:
                evaluated = dataclasses.replace(evaluated, model=plain)
        if trains and (changed := exported.traced.step.moved_weights):
            raise UnsupportedOpError(
                f"{type(module).__name__} requires a forward that leaves its parameters as they are, got "
                f"{some(changed)} changed in place; make a new tensor of them instead (`w = self.weight / 2`)"
            )
        trained = _trained(module, exported.model, optimizer) if trains else {}
        read = {name for form in (exported, evaluated) if form is not None for name in states.read_in(form.model)}
        changing = {*trained, *exported.states}
        others: dict[str, str | None] = {}
        if self.frozen == "state":
            others = dict.fromkeys(sorted(states.held_in(module, read) - changing))
            changing |= set(others)
        making: list[Pass] = [LayerStatePass(), ObjectivePass(self.formula, frozenset(trained), what)]
        if evaluated is exported:
            making = [EvaluationPass(self.formula, what, making)]
        passes: list[Pass] = [
            ModuleStatePass(others),
            *preparing_passes(),
            # A loop in Python comes as its steps.
            LoopRerolling(changing, tied),
            *making,
            OwnGradientsTakenPass(),
            ModuleStatePass(exported.states if what == "train" else {}),
            OptimizerPass(trained, optimizer, self.schedule_steps),
            *legalizing_passes(),
        ]
        try:
            step = run_passes((exported if what == "train" else _stateless(exported)).model, passes)
        except UnvaryingLossError as error:
            if way := gradients_unseen(exported.traced):
                raise UnsupportedOpError(f"{error}; {way}") from error
            raise
        self._certify(TorchStep(step, exported.traced, self, trained))
        if evaluated is not None and evaluated is not exported:
            self._record_evaluation(
                step, evaluated, changing, known=evaluated.traced.program is exported.traced.program
            )
        if trains:
            holdings.write(step, states.held_by(module, step, read))
        return step, exported

    def _certify(self, made: TorchStep, *, known: bool = False) -> None:
        """Compares a step with PyTorch, and records that; only at the example where others are known of its trace."""
        traced = made.traced
        if not self.check:
            decided = OpenSizes(traced).decided("forward decides by it, and check=False compares nothing")
            if decided and traced.wanted == "auto":
                raise _OtherwiseError(closed_further(traced, decided))
            return
        try:
            certificate.write(made.step, certified(made, known=known))
        except OtherSizesError as error:
            raise _OtherwiseError(closed_further(traced, error.axes, error.ends)) from error
        except UnsupportedOpError as error:
            if not traced.lengths:
                raise
            raise _OtherwiseError(steps_closed(traced, f"as one of any length it is refused: {error}")) from error

    def _record_evaluation(
        self, step: ir.Model, evaluated: Exported, changing: Collection[str], *, known: bool
    ) -> None:
        """Records the module in evaluation mode, with the loss, as what evaluates the step."""
        model = evaluated.model
        outputs = [str(value.name) for value in model.graph.outputs]
        passes = [*preparing_passes(), LoopRerolling(changing, tied), ObjectivePass(self.formula, None, "forward")]
        # The step trains all the same; whoever evaluates it hears what is missing.
        with contextlib.suppress(UnsupportedOpError):
            made = run_passes(model, [*passes, *legalizing_passes()])
            with evaluation_mode(self.module):
                forward = dataclasses.replace(self, what="forward")
                self._certify(TorchStep(made, evaluated.traced, forward, {}), known=known)
            evaluation.record(step, made, None if self.formula in outputs else outputs)


def _forms(module: nn.Module, tracing: Callable[..., Traced], *, evaluates: bool) -> tuple[Exported, Exported | None]:
    """The module as it is, and in evaluation mode: the same object where they are the same, `None` if it has none."""
    trained, exported = settled(tracing(), tracing)
    if not evaluates:
        return exported, None
    with evaluation_mode(module) as changed:
        if not changed:
            return exported, exported
        with contextlib.suppress(UnsupportedOpError):
            if (derived := trained.in_evaluation()) is not None:
                return exported, settled(derived, tracing)[1] if derived.evaluated else exported
        try:
            other = tracing(closed=trained.closed, steps=trained.steps)
            if other.same_as(trained):
                return exported, exported
            other, evaluated = settled(other, tracing)
        except UnsupportedOpError:
            # The step trains all the same; whoever evaluates it hears what is missing.
            return exported, None
    if other.closed != trained.closed:
        # A step and what evaluates it take the same sizes.
        exported = settled(tracing(closed=other.closed, steps=other.steps), tracing)[1]
    return exported, evaluated


def _stateless(exported: Exported) -> Exported:
    """The same without the new values of buffers."""
    if not exported.states:
        return exported
    model = copy_model(exported.model)
    for value in [x for x in model.graph.outputs if x.name in exported.states.values()]:
        model.graph.outputs.remove(value)
    return dataclasses.replace(exported, model=model, states={})


def _tell(module: nn.Module, step: ir.Model, exported: Exported, *, check: bool) -> None:
    """Records why axes have the example's size; warns of those that forward leaves open, and of what is uncompared."""
    step.metadata_props[FIXED_AXES] = json.dumps(by_input(exported.fixed))
    traced, name = exported.traced, type(module).__name__
    example = dict(zip(traced.names, traced.tensors, strict=True))
    if near := [
        f"axis {axis} of '{x}' up to {most} ({line})"
        for (x, axis), (most, line) in traced.bounds.items()
        if most < _FAR * example[x].shape[axis]
    ]:
        warn(
            f"{name} has axes that are open up to a bound, which larger sizes are refused by: {some(near)}; an "
            "example beyond it makes a step of what forward does there",
            FixedStepsWarning,
        )
    compared = certificate.parse(step.metadata_props)
    for what in ("the step", "other sizes"):
        if compared and not compared.also and (why := compared.not_compared.get(what)):
            warn(f"{name}: of {what} nothing was compared ({why}); check=False takes it as it is")
    if traced.wanted != "auto":
        return
    if not check and (lines := [length.line for length in traced.lengths]):
        warn(
            f"{name} has loops in Python whose later steps are taken to be like the first ones ({some(lines)}), which "
            "check=True compares with PyTorch; dynamic_shapes that names their axes takes them as they are"
        )
    if told := [f"axis {axis} of '{x}' ({why})" for (x, axis), why in exported.left_open.items()]:
        loops = traced.steps.keys() & exported.left_open.keys()
        way = "ll.scan(cell, state, xs) in place of a loop whose steps do the same leaves their number open, and "
        warn(
            f"{name} fixes sizes in a trace that its forward leaves open: {some(told)} cannot be of "
            f"another size; {way if loops else ''}dynamic_shapes that names the open axes takes the others as they are",
            FixedStepsWarning,
        )


def _loss(loss: Any, *, has_targets: bool) -> tuple[Loss | str, Any]:
    """What makes the loss of the exported model, and what is traced."""
    formula = losses.formula_of(loss)
    if formula is not None:
        return formula, None
    if isinstance(loss, type):
        raise InvalidInputError(
            f"loss requires a loss module or a function, got the class {loss.__name__}; make one of it: "
            f"{loss.__name__}()"
        )
    if isinstance(loss, str):
        return (resolve(loss) if loss.lower() in BY_NAME else loss), None
    if isinstance(loss, nn.Module) and any(True for _ in loss.parameters()):
        raise InvalidInputError(
            f"loss requires no parameters of its own, got {some([name for name, _ in loss.named_parameters()])} of "
            f"{type(loss).__name__}, which no step would train; make it a part of the module, let forward return the "
            "loss by a name, as in {'objective': ...}, and give that name as loss"
        )
    if not callable(loss):
        raise InvalidInputError(
            f"loss requires a name, a loss module or a function of the module's result and targets, got {brief(loss)}"
        )
    if not has_targets:
        name = getattr(loss, "__name__", type(loss).__name__)
        raise InvalidInputError(
            f"a loss that is traced requires example_targets, got none for {name}; () says that it takes none"
        )
    return "loss", loss


def _trained(module: nn.Module, model: ir.Model, optimizer: Any) -> dict[str, nn.Parameter]:
    """The parameters that are to have gradients, by name."""
    # A model has the first name of what has several.
    held = dict(module.named_parameters())
    wanted = {name: x for name, x in held.items() if x.requires_grad}
    if optimizers.is_torch(optimizer):
        groups = optimizers.apart(optimizer)[1].param_groups
        own = {id(x) for group in groups for x in group["params"]}
        wanted = {name: x for name, x in wanted.items() if id(x) in own}
        if own - set(map(id, held.values())):
            raise InvalidInputError(
                f"optimizer requires parameters of the module, such as {some([*held])}, got others; make it of "
                "module.parameters()"
            )
    if any(value.uses() for value in model.graph.initializers.values() if value.name in wanted):
        return wanted
    required = f"a forward that reads parameters, got one that reads none of {some(sorted(wanted))};"
    if not held:
        required = f"a module with parameters, got {type(module).__name__} without any;"
    elif not wanted:
        required = (
            f"parameters that require gradients, but none of {some([*held])} does; "
            "module.requires_grad_() makes all require them, and"
        )
    raise InvalidInputError(f"from_torch requires {required} what='input_gradient' or 'forward' needs none")


@contextlib.contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[bool]:
    """A module in evaluation mode, and whether it was in another; each part has its own mode again afterwards."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield bool(training)
    finally:
        # Set, as it was: what `torch.compile` puts around a module hands it on.
        for part in training:
            part.training = True


@dataclasses.dataclass
class ModuleStatePass(Pass):
    """Makes buffers, and parameters without a gradient, part of a step's state.

    Attributes:
        states: buffer or parameter -> output with its next value; `None` where no step changes it.
    """

    states: Mapping[str, str | None]

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Records them."""
        recorded = training_state.read(model)
        pairs: Sequence[StatePair] = recorded.pairs
        for name, output in self.states.items():
            value = model.graph.initializers[name]
            if value not in model.graph.inputs:
                model.graph.inputs.append(value)
            number = value.dtype is not None and value.dtype.is_integer()
            role: Role = "weight" if output is None else "counter" if number else "slot"
            pairs = [*pairs, StatePair(name, output, role, None, name)]
        training_state.write(model, dataclasses.replace(recorded, pairs=tuple(pairs)))
        Origin("torch").write(model)
        return ir.passes.PassResult(model, modified=True)


@dataclasses.dataclass
class OptimizerPass(Pass):
    """Adds the updates of an optimizer.

    Attributes:
        trained: the parameters that are to have gradients, which PyTorch's optimizers know, by name.
        optimizer: see `from_torch`.
        schedule_steps: see there.
    """

    trained: Mapping[str, nn.Parameter]
    optimizer: Any
    schedule_steps: int | None

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Adds them."""
        if not optimizers.is_torch(self.optimizer):
            return TrainingOptionsPass(self.optimizer)(model)
        weights = {pair.input for pair in training_state.read(model).pairs if pair.gradient is not None}
        names = {id(x): name for name, x in self.trained.items() if name in weights}
        optimizers.attach(self.optimizer, model, names, self.schedule_steps)
        return ir.passes.PassResult(model, modified=True)
