"""A training step cut at its gradients: a half that computes them, and a half that updates by them.

What happens between the two is the caller's: gradients of several machines are summed, those of several steps added up.

The **gradient half** takes state and data to the loss, all outputs that do not depend on gradients, the gradients, and
the new values of state that the forward computation itself moves on: statistics of batch normalization, the places of
random generators. The **update half** takes state and gradients to all other new values. Clipping and accumulation
belong to it, so do learning rates, schedules and counters of updates.

Both halves have the step's names. A gradient is an output of the one and an input of the other, under one name.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Mapping

import onnx
import onnx_ir as ir

from lstm_lower.errors import InvalidModelError
from lstm_lower.graph.builder import Workspace
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.edit import operands, redirect, remove_unread
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.standard.view import constant_of
from lstm_lower.graph.structure import verify_structure
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.driver import run_passes
from lstm_lower.passes.malformed import malformed_models_explained
from lstm_lower.passes.randomness import draws
from lstm_lower.passes.tidy import SortPass
from lstm_lower.passes.training.step import TrainingStep
from lstm_lower.records import state as training_state
from lstm_lower.records.state import StatePair, TrainingState


@dataclasses.dataclass(frozen=True)
class Halves:
    """The two halves of a training step.

    Attributes:
        gradients: state and data -> loss, outputs, gradients, statistics, streams. Its record of state has the pairs
            that it reads, with an output where it moves them on.
        updates: state and gradients -> new state, and outputs that depend on gradients.
        state: the whole step's record.
        statistics: inputs of state that the gradient half computes anew from data.
        streams: inputs of state that the gradient half moves on without looking at data, since the gradients read
            them: random generators, above all.
    """

    gradients: ir.Model
    updates: ir.Model
    state: TrainingState
    statistics: frozenset[str]
    streams: frozenset[str]


def split(model: str | os.PathLike[str] | onnx.ModelProto | ir.Model) -> Halves:
    """Cuts a training step at its gradients.

    Args:
        model: a step with updates, whose record of state names the gradients that they read. It is not changed.

    Returns:
        The halves; one after the other they compute what the step does.

    Raises:
        InvalidModelError: the step has no updates or no recorded gradients, or an update reads data or a gradient that
            is not recorded, such as that of a scaled loss; the message names it.
    """
    whole = run_passes(model, [SortPass()])
    verify_structure(whole)
    with malformed_models_explained(whole):
        return _Cut(whole).halves()


class _Cut:
    """Where a step is cut, and what lies on which side."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.step = TrainingStep(model, training_state.of(model))
        self.state = self.step.state
        if all(pair.output is None for pair in self.state.pairs):
            raise InvalidModelError(
                "a split requires a step with updates, got one that ends at its gradients; an optimizer adds them: "
                "TrainingOptionsPass('adam'), or the argument of from_onnx, from_torch, from_keras and Trainer"
            )
        if not self.step.gradients:
            raise InvalidModelError(
                "a split requires the weights' gradients among the outputs that the updates read, got none; where the "
                "loss is scaled, train without scaling"
            )
        self.names = self._names()
        state_inputs = {pair.input for pair in self.state.pairs}
        self.data = [name for name in self.step.inputs if name not in (*state_inputs, self.state.learning_rate)]
        self.late = self.step.dependents(self.names)
        self.from_data = self._around_cuts([self.step.inputs[name] for name in self.data])

    def _names(self) -> dict[ir.Value, str]:
        """The values that are cut, by the outputs that show them; constants need no cut."""
        names: dict[ir.Value, str] = {}
        for pair in self.state.pairs:
            if pair.gradient is None:
                continue
            value = self.step.gradients[pair.input]
            if value.producer() is not None and constant_of(value) is None:
                names.setdefault(value, pair.gradient)
        return names

    def _around_cuts(self, sources: Iterable[ir.Value]) -> set[ir.Value]:
        """What depends on values by a way that does not lead through a recorded gradient."""
        reached = set(sources)
        for node in self.model.graph:
            if any(value in reached and value not in self.names for value in operands(node)):
                reached.update(node.outputs)
        return reached

    def halves(self) -> Halves:
        """Sorts the outputs into halves, and builds these."""
        shown = {pair.gradient for pair in self.state.pairs if pair.gradient is not None}
        new = {pair.output: pair for pair in self.state.pairs if pair.output is not None}
        first = [
            name
            for name, value in self.step.outputs.items()
            if name not in new and (name in shown or not self._depends_on_gradients(name, value))
        ]
        read = self._inputs_of([self.step.outputs[name] for name in first])
        statistics, streams, updated = [], [], []
        for name, pair in new.items():
            value = self.step.outputs[name]
            if self._depends_on_gradients(name, value):
                updated.append(name)
            elif value in self.from_data:
                self._check_statistic(pair)
                statistics.append(pair)
            elif pair.input in read:
                streams.append(pair)
            else:
                updated.append(name)
        first += [str(pair.output) for pair in (*statistics, *streams)]
        second = [name for name in self.step.outputs if name not in first]
        return Halves(
            self._gradient_half(first),
            self._update_half(second),
            self.state,
            frozenset(pair.input for pair in statistics),
            frozenset(pair.input for pair in streams),
        )

    def _depends_on_gradients(self, name: str, value: ir.Value) -> bool:
        """Whether an output belongs to the update half.

        Raises:
            InvalidModelError: it reads data, too.
        """
        if value not in self.late:
            return False
        if value in self.from_data or name == self.state.loss:
            raise InvalidModelError(
                f"a split requires outputs that read data or the recorded gradients, got '{name}', which reads both: "
                "an update by another gradient than the recorded one, an output to leave out, or a lowered model: "
                "split it before it is lowered"
            )
        return True

    def _check_statistic(self, pair: StatePair) -> None:
        if pair.role == "weight" or pair.gradient is not None:
            raise InvalidModelError(
                f"a split requires weights whose updates read the recorded gradients, got '{pair.input}', whose new "
                f"value reads data by another way; record its gradient, or its role as 'slot' where it is a statistic"
            )

    def _inputs_of(self, values: Iterable[ir.Value]) -> set[str]:
        """Names of the graph's inputs that values are computed from."""
        needed = set(values)
        for node in reversed(list(self.model.graph)):
            if any(value in needed for value in node.outputs):
                needed.update(operands(node))
        return {name for name, value in self.step.inputs.items() if value in needed}

    def _gradient_half(self, outputs: Collection[str]) -> ir.Model:
        half = copy_model(self.model)
        # Data that nothing reads is fed all the same.
        _keep(half, outputs, self.data)
        self._record(half, self.state.loss, gradients=True)
        return half

    def _update_half(self, outputs: Collection[str]) -> ir.Model:
        half = copy_model(self.model)
        names = Workspace.of(half).names
        results = {value.name: value for node in half.graph for value in node.outputs}
        shown = {value.name: value for value in half.graph.outputs}
        given = []
        for cut, name in self.names.items():
            old, output = results[cut.name], shown[name]
            value = ir.Value(name=name, type=output.type or old.type, shape=output.shape or old.shape)
            redirect(old, value)
            given.append(value)
        kept = [name for name in outputs if name not in self.names.values()]
        half.graph.inputs.extend(given)
        for value in (*(results[cut.name] for cut in self.names), *(shown[name] for name in self.names.values())):
            value.name = names.fresh(f"unread/{value.name}")
        _keep(half, kept, [str(value.name) for value in given] + self._written(kept))
        self._refuse_chance(half)
        self._record(half, None, gradients=False)
        return half

    def _written(self, outputs: Collection[str]) -> list[str]:
        """State that the half has new values of, which is an input even where nothing reads the old one."""
        return [pair.input for pair in self.state.pairs if pair.output in outputs]

    def _refuse_chance(self, half: ir.Model) -> None:
        facts = Facts.of(half)
        random = next((node for node in all_nodes(half.graph) if draws(node, facts)), None)
        if random is not None:
            raise InvalidModelError(
                f"a split requires updates that chance has no part in, got {random.op_type} '{random.name}', which is "
                "drawn anew wherever updates are computed; make the numbers an input"
            )

    def _record(self, half: ir.Model, loss: str | None, *, gradients: bool) -> None:
        inputs = {value.name for value in half.graph.inputs}
        outputs = {value.name for value in half.graph.outputs}
        pairs = tuple(
            dataclasses.replace(
                pair,
                output=pair.output if pair.output in outputs else None,
                gradient=pair.gradient if gradients else None,
            )
            for pair in self.state.pairs
            if pair.input in inputs
        )
        rate = self.state.learning_rate
        training_state.write(half, TrainingState(pairs, loss, rate if rate in inputs else None))


def _keep(model: ir.Model, outputs: Collection[str], inputs: Collection[str]) -> None:
    """Leaves of a model what some outputs need, and some inputs."""
    graph = model.graph
    by_name: Mapping[str | None, ir.Value] = {value.name: value for value in graph.outputs}
    kept = [by_name[name] for name in outputs]
    graph.outputs.clear()
    graph.outputs.extend(kept)
    remove_unread(graph)
    read = [value for value in graph.inputs if value.name in inputs or value.uses() or value in kept]
    gone = [str(value.name) for value in graph.inputs if value not in read]
    gone += [name for name, value in graph.initializers.items() if not value.uses() and value not in (*kept, *read)]
    graph.inputs.clear()
    graph.inputs.extend(read)
    for name in gone:
        if name in graph.initializers:
            del graph.initializers[name]
