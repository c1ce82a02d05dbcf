"""What evaluates a training step: recorded where the step is made, derived from it where nothing is recorded."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx.compose
import onnx_ir as ir

from lstm_lower.errors import InvalidModelError, UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.edit import remove_unread
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.standard.view import constant_of
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import declared_shape
from lstm_lower.passes.inline import InlineFunctionsPass
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.randomness import draws
from lstm_lower.passes.tidy import RemoveUnreadWeightsPass
from lstm_lower.passes.training.losses import Loss
from lstm_lower.passes.training.objective import LossFunction, ObjectivePass
from lstm_lower.passes.training.step import needed, source_of
from lstm_lower.records import evaluation as recorded
from lstm_lower.records import names
from lstm_lower.records import state as training_state
from lstm_lower.records.state import StatePair, TrainingState

_WAY_ON = (
    "; ll.from_keras, ll.from_torch and ll.from_onnx make steps that carry what evaluates them, and so does "
    "lstm_lower.passes.training.evaluation.record with a model that one has"
)


def evaluation_of(step: ir.Model) -> ir.Model:
    """What evaluates a training step: the recorded model, or else the step's own forward part where that is certain.

    Args:
        step: a training step. It is not changed.

    Returns:
        A model whose inputs are inputs of the step, all required, and whose outputs are the loss, metrics, the
        predictions (`predictions_of`), and new values of what evaluating moves (`moved_by`).

    Raises:
        InvalidModelError: the record is malformed.
        UnsupportedOpError: the step records nothing, and its forward part is random, moves state by itself, or uses
            statistics of the batch.
    """
    attached = recorded.of(step)
    return _derived(step) if attached is None else attached


def predictions_of(evaluation: ir.Model) -> list[str]:
    """Names of the outputs of an evaluation that are the model's own.

    Where they are not recorded, they are outputs other than the loss that are no single numbers; among these, those
    that need fewer inputs than the loss, if there are such.
    """
    predictions = recorded.predictions(evaluation)
    if predictions is not None:
        return predictions
    state = training_state.read(evaluation)
    loss, moved = state.loss, {pair.output for pair in state.pairs}
    outputs = {str(value.name): value for value in evaluation.graph.outputs if value.name not in moved}
    chosen = [name for name, value in outputs.items() if name != loss and declared_shape(value) != ()]
    if loss is None:
        return chosen
    inputs = set(evaluation.graph.inputs)
    wanted = needed([outputs[loss]]) & inputs
    fewer = [name for name in chosen if needed([outputs[name]]) & inputs < wanted]
    return fewer or chosen


def moved_by(evaluation: ir.Model) -> list[StatePair]:
    """The state of the step that evaluating moves, as calls of stateful layers do."""
    own = recorded.totals(evaluation)
    return [pair for pair in training_state.read(evaluation).pairs if pair.output is not None and pair.input not in own]


def of_all_batches(evaluation: ir.Model) -> list[str]:
    """Outputs about all batches so far, since they are computed from running totals; these are not among them."""
    own = recorded.totals(evaluation)
    values = [value for value in evaluation.graph.outputs if value.name not in own.values()]
    return [str(value.name) for value in values if own.keys() & {read.name for read in needed([value])}]


def check_unmoving(evaluation: ir.Model) -> None:
    """Refuses an evaluation for whoever does not carry its state on.

    Raises:
        UnsupportedOpError: it moves state.
    """
    if moved := moved_by(evaluation):
        raise UnsupportedOpError(
            f"a model that evaluates or predicts requires state that stays, got '{moved[0].input}', which evaluating "
            "moves; trainer.evaluate and trainer.predict carry it on"
        )


def prediction_of(evaluation: ir.Model) -> ir.Model:
    """The part of an evaluation that makes predictions; targets are no inputs of it.

    Raises:
        InvalidModelError: the evaluation has no predictions.
        UnsupportedOpError: evaluating moves state.
    """
    check_unmoving(evaluation)
    names = predictions_of(evaluation)
    if not names:
        raise InvalidModelError(
            "predictions require a step made of a model with outputs besides loss and metrics, got one without; "
            "outputs of ll.from_tensorflow may name them"
        )
    work = copy_model(evaluation)
    _cut(work, [value for value in work.graph.outputs if value.name in names])
    training_state.write(work, TrainingState())
    return work


def record(
    step: ir.Model, evaluation: ir.Model, predictions: Sequence[str] | None = None, *, moving: bool = False
) -> bool:
    """Records what evaluates a step, unless it is random, moves what it reads, or uses statistics of the batch.

    Args:
        step: the step; its metadata are changed.
        evaluation: a model with a loss (`lstm_lower.state` names it), in its form for inference. What is state of the
            step is an input of it, or an initializer of that name. State that the step lacks is a running total if it
            has a first value; new values of all else are left out. It is not changed.
        predictions: outputs that are the model's own; `None` for what `predictions_of` finds.
        moving: whether evaluating moves the state that it reads, as the framework does it.

    Returns:
        Whether it is recorded.
    """
    work = copy_model(evaluation)
    InlineFunctionsPass()(work)
    own = training_state.read(work)
    ends = {str(value.name): value for value in work.graph.outputs}
    state = {pair.input for pair in training_state.read(step).pairs}
    changed = [pair for pair in own.pairs if pair.output is not None and not _stays(work, pair)]
    first = {name: tensor for name, tensor in training_state.initial_values(work).items() if name not in state}
    moves = _read(work, [pair for pair in changed if pair.input in first or (moving and pair.input in state)])
    moved = {pair.input for pair in changed if pair not in moves}
    for name in sorted(state & set(work.graph.initializers)):
        value = work.graph.initializers[name]
        if value not in work.graph.inputs:
            work.graph.inputs.append(value)
    left_out = {pair.output for pair in own.pairs if pair not in moves}
    _cut(work, [value for name, value in ends.items() if name not in left_out])
    totals = {pair.input: first[pair.input].numpy() for pair in moves if pair.input in first}
    training_state.write(work, TrainingState(moves, own.loss), totals)
    work.metadata_props.pop(recorded.METADATA_KEY, None)
    step.metadata_props.pop(recorded.METADATA_KEY, None)
    # Feeds are cast for both alike.
    names.write(work, names.CASTS, sorted(names.parse(step.metadata_props, names.CASTS)))
    inputs = {str(value.name) for value in work.graph.inputs}
    step_inputs = {str(value.name) for value in step.graph.inputs}
    if inputs & moved or inputs - step_inputs - totals.keys() or _uncertain(work) is not None:
        return False
    recorded.write(step, work, predictions_of(work) if predictions is None else predictions)
    return True


def record_predictions(step: ir.Model, predicting: ir.Model) -> bool:
    """Records, for a step that returns scores alone, a model of the same weights that predicts.

    Loss and metrics are those of the step's own forward part, where it is certain that this evaluates it.

    Args:
        step: the step; its metadata are changed.
        predicting: a model whose inputs are inputs of the step. It is not changed.

    Returns:
        Whether it is recorded: not where the step predicts itself, nor where the model does not fit it.
    """
    outputs = [str(value.name) for value in predicting.graph.outputs]
    if any(pair.output is not None for pair in training_state.read(predicting).pairs):
        return False
    work = copy_model(predicting)
    training_state.detach_initial_values(work)
    loss = None
    try:
        measuring = _derived(step)
    except UnsupportedOpError:
        pass
    else:
        ends = {value.name for value in (*measuring.graph.inputs, *measuring.graph.outputs)}
        if predictions_of(measuring) or not ends.isdisjoint(outputs):
            return False
        loss = training_state.read(measuring).loss
        work = _side_by_side(measuring, work)
    training_state.write(work, TrainingState((), loss))
    return record(step, work, outputs)


def _side_by_side(first: ir.Model, second: ir.Model) -> ir.Model:
    """One model of two, which share inputs of the same name."""
    options = {"rename_inputs": False, "rename_outputs": False}
    one, other = (
        onnx.compose.add_prefix(ir.to_proto(model), prefix, **options)
        for model, prefix in ((first, "measured/"), (second, "predicted/"))
    )
    shared = {value.name for value in one.graph.input}
    one.graph.input.extend(value for value in other.graph.input if value.name not in shared)
    one.graph.node.extend(other.graph.node)
    one.graph.initializer.extend(other.graph.initializer)
    one.graph.output.extend(other.graph.output)
    domains = {imported.domain for imported in one.opset_import}
    one.opset_import.extend(imported for imported in other.opset_import if imported.domain not in domains)
    return ir.from_proto(one)


class EvaluationPass(Pass):
    """Runs the passes that make a step of a model, and records what evaluates it: the model as it was before them."""

    def __init__(self, loss: str | Loss | LossFunction, what: str, steps: Sequence[Pass]) -> None:
        """Prepares.

        Args:
            loss: see `from_onnx`.
            what: see `from_onnx`; only `train` and `gradients` are evaluated.
            steps: the passes.
        """
        super().__init__()
        self._loss, self._steps = loss, steps
        self._wanted = what in ("train", "gradients")

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Runs them."""
        before = copy_model(model) if self._wanted else None
        modified = False
        for step in self._steps:
            step.verify_each = self.verify_each
            modified |= step.share(self.context)(model).modified
        if before is None:
            return ir.passes.PassResult(model, modified=modified)
        moved = {pair.output for pair in training_state.read(before).pairs}
        outputs = [str(value.name) for value in before.graph.outputs if value.name not in moved]
        InferenceFormPass()(before)
        ObjectivePass(self._loss, None, "forward")(before)
        named = isinstance(self._loss, str) and self._loss in outputs
        record(model, before, None if named else outputs)
        return ir.passes.PassResult(model, modified=True)


class InferenceFormPass(Pass):
    """Gives layers the form that they have in inference: nothing is dropped, running statistics are used.

    Layers whose mode is an input, and statistics of a batch that something else reads, stay as they are.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the graph."""
        modified = False
        for node in list(all_nodes(model.graph)):
            if std.Dropout.matches(node) and len(node.inputs) > 2:
                training = node.inputs[2]
                if training is not None and constant_of(training) is not None:
                    node.replace_input_with(2, None)
                    modified = True
            view = std.BatchNormalization.of(node, self.context.space.facts)
            if view is not None and (view.training_mode or len(node.outputs) > 1):
                modified |= _use_running_statistics(model, node)
        return ir.passes.PassResult(model, modified=modified)


def _use_running_statistics(model: ir.Model, node: ir.Node) -> bool:
    """Changes a normalization; running statistics that it returned among the graph's outputs are no outputs then."""
    if any(value.uses() for value in node.outputs[1:]):
        return False
    kept = [value for value in model.graph.outputs if value not in node.outputs[1:]]
    if len(kept) < len(model.graph.outputs):
        model.graph.outputs.clear()
        model.graph.outputs.extend(kept)
    if any(value.is_graph_output() for value in node.outputs[1:]):
        return False  # of a loop's body
    node.resize_outputs(1)
    node.attributes.pop("training_mode", None)
    return True


def _derived(step: ir.Model) -> ir.Model:
    """The forward part of a step that records nothing."""
    work = copy_model(step)
    InlineFunctionsPass()(work)
    state = training_state.of(work)
    forward = _Forward(work, state)
    reason = forward.reason()
    if reason is None:
        _cut(work, forward.outputs)
        reason = _uncertain(work)
    if reason is not None:
        raise UnsupportedOpError(
            f"a step that records no evaluation requires one that can be cut at its loss, got {reason}{_WAY_ON}"
        )
    training_state.write(work, TrainingState((), state.loss))
    recorded.PREDICTIONS.write(work, predictions_of(work))
    return work


class _Forward:
    """The part of a step that leads to its loss, and what its state does.

    Attributes:
        outputs: the loss and all outputs that are neither state nor computed from gradients.
    """

    def __init__(self, model: ir.Model, state: TrainingState) -> None:
        self._model = model
        self._inputs = {str(value.name): value for value in model.graph.inputs}
        self._ends = {str(value.name): value for value in model.graph.outputs}
        self._state = state
        self._data = {
            v for n, v in self._inputs.items() if n not in {p.input for p in state.pairs} | {state.learning_rate}
        }
        self._gradients = {source_of(self._ends[p.gradient]) for p in state.pairs if p.gradient is not None}
        apart = {name for p in state.pairs for name in (p.output, p.gradient)} - {state.loss}
        self.outputs = [
            value for name, value in self._ends.items() if name not in apart and not needed([value]) & self._gradients
        ]
        self._read = needed(self.outputs)

    def reason(self) -> str | None:
        """Why the part is no evaluation; `None` where it is one."""
        if not self.outputs:
            return "one without loss and outputs"
        for pair in self._state.pairs:
            if pair.output is None or _stays(self._model, pair) or self._is_trained(pair):
                continue
            if self._inputs[pair.input] in self._read:
                return f"state '{pair.input}', which the loss reads and each step moves, as layers in training mode do"
            if needed([self._ends[pair.output]]) & self._data:
                return f"state '{pair.input}', which follows the data, as statistics of layers in training mode do"
        return None

    def _is_trained(self, pair: StatePair) -> bool:
        """Whether gradients are what changes a value."""
        assert pair.output is not None
        if self._gradients:
            return bool(needed([self._ends[pair.output]]) & self._gradients)
        if self._inputs[pair.input] in self._read:
            return pair.role == "weight"
        # An optimizer's own state is read where weights are updated.
        updates = [
            self._ends[other.output]
            for other in self._state.pairs
            if other.output is not None and other.role == "weight" and self._inputs[other.input] in self._read
        ]
        return self._inputs[pair.input] in needed(updates)


def _stays(model: ir.Model, pair: StatePair) -> bool:
    """Whether a step hands a value on as it is."""
    after = next(value for value in model.graph.outputs if value.name == pair.output)
    return source_of(after).name == pair.input


def _uncertain(model: ir.Model) -> str | None:
    """What in a model evaluates differently from time to time, or from batch to batch."""
    facts = Facts.of(model)
    for node in all_nodes(model.graph):
        if draws(node, facts):
            return f"{node.op_type} '{node_label(node)}', which draws random numbers"
        view = std.BatchNormalization.of(node, facts)
        if view is not None and view.training_mode:
            return f"{node.op_type} '{node_label(node)}', which uses statistics of the batch"
    return None


def _read(model: ir.Model, pairs: Sequence[StatePair]) -> tuple[StatePair, ...]:
    """Those among pairs on which outputs of a model that are no state depend, now or after some batches."""
    state = {pair.output for pair in training_state.read(model).pairs}
    read: set[str] = set()
    while True:
        wanted = [v for v in model.graph.outputs if v.name not in state or v.name in read]
        inputs = {value.name for value in needed(wanted)}
        more = {str(pair.output) for pair in pairs if pair.input in inputs}
        if more <= read:
            return tuple(pair for pair in pairs if pair.output in read)
        read |= more


def _cut(model: ir.Model, outputs: Sequence[ir.Value]) -> None:
    """Leaves of a graph what some outputs need; defaults of inputs are left out."""
    model.graph.outputs.clear()
    model.graph.outputs.extend(outputs)
    remove_unread(model.graph)
    training_state.detach_initial_values(model)
    kept = [value for value in model.graph.inputs if value.uses() or value.is_graph_output()]
    model.graph.inputs.clear()
    model.graph.inputs.extend(kept)
    RemoveUnreadWeightsPass()(model)
