"""Evaluation and prediction with a trainer's state, by the graph that travels with a step for that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.edit import remove_unread
from lstm_lower.graph.values import declared_shape
from lstm_lower.passes.tidy import RemoveUnreadWeightsPass
from lstm_lower.passes.training.evaluation import evaluation_of, moved_by, of_all_batches, predictions_of
from lstm_lower.records import evaluation as recorded
from lstm_lower.records import state as training_state
from lstm_lower.records.state import TrainingState
from lstm_lower.runtime import providers as provider_names
from lstm_lower.runtime.serialized import failures_explained
from lstm_lower.runtime.session import Session
from lstm_lower.runtime.training.data.layout import Layout
from lstm_lower.runtime.training.data.opening import Data, open_data
from lstm_lower.runtime.training.data.prefetch import Prefetched
from lstm_lower.runtime.training.data.source import Order, Source
from lstm_lower.runtime.training.data.table import Padding
from lstm_lower.runtime.training.device_state import DeviceState
from lstm_lower.runtime.values import dtype_of

Array = np.ndarray[Any, Any]


class Evaluator:
    """Runs what evaluates a step: no dropout, no statistics of a batch.

    Its sessions read the state where it lies, without a copy. What only predicts needs no targets. State that the
    framework's own evaluation moves, as that of stateful layers, goes from batch to batch, and is put in place at the
    end: what fails or is interrupted has moved nothing. Running totals, in which metrics count, start anew each time.

    Attributes:
        scores: names of the scalar outputs: the loss and metrics.
        names: what the scores are called: `loss`, and metrics as they are.
        predictions: names of the model's own outputs.
        moved: state that evaluating moves, its new value's output -> its input.
    """

    def __init__(
        self,
        step: ir.Model,
        state: DeviceState,
        providers: Sequence[provider_names.Provider] | provider_names.Provider | None = None,
        session_options: ort.SessionOptions | None = None,
    ) -> None:
        """Finds the graph; sessions are made when they are first needed.

        Args:
            step: a training step. It is not changed.
            state: where the state lies.
            providers: as for `Session`.
            session_options: as for `Session`.

        Raises:
            InvalidModelError: what the step records of its evaluation is malformed.
            UnsupportedOpError: it records none, and cannot be cut at its loss with certainty.
        """
        model = evaluation_of(step)
        loss = training_state.read(model).loss or training_state.of(step).loss
        outputs = {value.name or "": value for value in model.graph.outputs}
        self.predictions = predictions_of(model)
        self.moved = {pair.output: pair.input for pair in moved_by(model) if pair.output is not None}
        self._totals = {output: name for name, output in recorded.totals(model).items()}
        self._of_all = of_all_batches(model)
        first = training_state.detach_initial_values(model)
        self._first = {name: np.array(first[name].numpy()) for name in self._totals.values()}
        apart = {*self.predictions, *self.moved, *self._totals}
        self.scores = [name for name, value in outputs.items() if name not in apart and declared_shape(value) == ()]
        self.names = ["loss" if name == loss else name for name in self.scores]
        self._model, self._state = model, state
        self._providers, self._options = providers, session_options
        self._parts: dict[tuple[str, ...], _Part] = {}

    def scoring_source(self, data: Data, padding: Padding | None = None, **options: Any) -> Source:
        """Opens data with all that scores need.

        Raises:
            InvalidInputError: it does not fit, or the evaluation has no scores.
        """
        if not self.scores:
            raise InvalidModelError("evaluating requires an evaluation with a loss or a metric, got one with neither")
        return self._part(self.scores).source(data, padding, options)

    def check(self, source: Source, batch_size: int) -> None:
        """Checks that all samples can be evaluated, before anything is.

        Raises:
            InvalidInputError: there are none, or the model fixes a batch size of which there is no multiple.
        """
        _check_complete(source, Order(self._part(self.scores).batch_size or batch_size, shuffle=False))

    def evaluate(
        self, source: Source, batch_size: int, stopped: Callable[[], bool] = lambda: False
    ) -> dict[str, float] | None:
        """Loss and metrics of all batches by their `names`: means weighted by samples, or what running totals give.

        Args:
            source: see `scoring_source`.
            batch_size: samples per batch, where the source does not make its own.
            stopped: asked after every batch; if true, there is no result.

        Raises:
            InvalidInputError: a batch does not fit, or there is none.
        """
        part, sums, weight = self._part(self.scores), dict.fromkeys(self.scores, 0.0), 0
        order = Order(part.batch_size or batch_size, shuffle=False)
        _check_complete(source, order)
        for feeds, outputs in part.run(source, order):
            samples = source.layout.samples(feeds)
            weight += samples
            for name in self.scores:
                sums[name] += float(outputs[name]) * samples
            if stopped():
                return None
        self._state.assign(part.moved)
        scores = {name: total / max(1, weight) for name, total in sums.items()}
        scores |= {name: float(outputs[name]) for name in self._of_all if name in scores}
        return dict(zip(self.names, scores.values(), strict=True))

    def predict(self, data: Data, batch_size: int, padding: Padding | None = None, **options: Any) -> dict[str, Array]:
        """The model's own outputs for all samples, in their order.

        Args:
            data: as for `open_data`; targets need not be there.
            batch_size: samples per batch, where the data are not made of batches.
            padding: of sequences with different lengths.
            options: as for `open_data`.

        Raises:
            InvalidInputError: the data do not fit, or outputs of several batches cannot be put together.
        """
        if not self.predictions:
            raise InvalidModelError(
                "predicting requires an evaluation with outputs of the model, got one with scores only"
            )
        part = self._part(self.predictions)
        source = part.source(data, padding, options)
        order = Order(part.batch_size or batch_size, shuffle=False)
        _check_complete(source, order)
        collected: dict[str, list[Array]] = {name: [] for name in self.predictions}
        samples: list[int] = []
        for feeds, outputs in part.run(source, order):
            samples.append(source.layout.samples(feeds))
            for name, arrays in collected.items():
                arrays.append(outputs[name])
        joined = {name: part.joined(name, arrays, samples, source.layout) for name, arrays in collected.items()}
        self._state.assign(part.moved)
        return joined

    def _part(self, outputs: Sequence[str]) -> _Part:
        key = tuple(outputs)
        if key not in self._parts:
            totals = self._totals if key == tuple(self.scores) else {}
            model = restricted(self._model, [*outputs, *self.moved, *totals])
            session = Session(model, self._providers, self._options)
            self._parts[key] = _Part(session, self._state, self.moved, totals, self._first if totals else {})
        return self._parts[key]


class _Part:
    """A session for some of the outputs.

    Attributes:
        batch_size: samples per batch where the model fixes them.
        moved: values of the state after the last batch that was run, as far as it moves, by input.
    """

    def __init__(
        self,
        session: Session,
        state: DeviceState,
        moved: Mapping[str, str],
        totals: Mapping[str, str],
        first: Mapping[str, Array],
    ) -> None:
        self._session, self._held = session, state.current
        self._moved, self._totals, self._first = moved, totals, first
        names = state.current()
        self.moved: dict[str, Array] = {}
        self._state = [name for name in session.inputs if name in names]
        apart = names.keys() | first.keys()
        self._declared = {value.name: value for value in session.ort.get_inputs() if value.name not in apart}
        self._outputs = {value.name: value for value in session.ort.get_outputs()}
        self.batch_size = Layout(self._declared.values()).batch_size

    def source(self, data: Data, padding: Padding | None, options: Mapping[str, Any]) -> Source:
        axes = {name: axis for name, axis in (options.get("sample_axis") or {}).items() if name in self._declared}
        layout = Layout(self._declared.values(), axes, self._session.casts)
        rest = {name: value for name, value in options.items() if name != "sample_axis"}
        return open_data(data, layout, _used(padding, layout), **rest)

    def run(self, source: Source, order: Order) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        """Feeds and outputs, batch by batch."""
        binding, held = self._session.ort.io_binding(), self._held()
        shapes, self.moved, totals = dict(self._first), {}, self._first
        for name in self._state:
            binding.bind_ortvalue_input(name, held[name])
            dtype = dtype_of(next(value for value in self._session.ort.get_inputs() if value.name == name))
            shapes[name] = np.broadcast_to(np.zeros((), dtype), held[name].shape())
        with contextlib.closing(Prefetched(source.epoch(order, 0))) as batches:
            for feeds in batches:
                checked = self._session.check_feeds({**shapes, **feeds})
                for name in feeds:
                    binding.bind_cpu_input(name, np.ascontiguousarray(checked[name]))
                for name in self.moved.keys() & set(self._state):
                    binding.bind_cpu_input(name, self.moved[name])
                for name, array in totals.items():
                    binding.bind_cpu_input(name, array)
                for name in self._outputs:
                    binding.bind_output(name)
                with failures_explained() as quiet:
                    self._session.ort.run_with_iobinding(binding, quiet)
                outputs = dict(zip(self._outputs, binding.copy_outputs_to_cpu(), strict=True))
                self.moved = {name: np.asarray(outputs[output], order="C") for output, name in self._moved.items()}
                totals = {name: np.asarray(outputs[output], order="C") for output, name in self._totals.items()}
                yield feeds, outputs

    def joined(self, name: str, arrays: Sequence[Array], samples: Sequence[int], layout: Layout) -> Array:
        """Outputs of several batches as one, along the axis of the samples.

        Raises:
            InvalidInputError: it is not certain which one that is, or other axes differ.
        """
        if len(arrays) == 1:
            return arrays[0]
        axis = self._sample_axis(name, arrays, samples, layout)
        try:
            return np.concatenate(arrays, axis)
        except ValueError as error:
            raise InvalidInputError(
                f"output '{name}' requires one shape in all batches to be put together, got {arrays[0].shape} and "
                "others; predict batch by batch, or with buckets of one length"
            ) from error

    def _sample_axis(self, name: str, arrays: Sequence[Array], samples: Sequence[int], layout: Layout) -> int:
        symbols = {
            size for field in layout.fields.values() if field.shape and isinstance(size := field.shape[field.axis], str)
        }
        declared = list(self._outputs[name].shape)
        named = [axis for axis, size in enumerate(declared) if isinstance(size, str) and size in symbols]
        fitting = [
            axis
            for axis in range(min(array.ndim for array in arrays))
            if all(array.shape[axis] == count for array, count in zip(arrays, samples, strict=True))
        ]
        for candidates in (named, fitting):
            if len(candidates) == 1 and candidates[0] in fitting:
                return candidates[0]
        raise InvalidInputError(
            f"output '{name}' requires an axis of samples, {samples[0]} in the first batch, got {list(arrays[0].shape)}"
            "; predict with a batch_size of all samples"
        )


def restricted(model: ir.Model, outputs: Sequence[str]) -> ir.Model:
    """A copy of a model that computes some of its outputs, with the inputs that these need."""
    part = copy_model(model)
    kept = {value.name: value for value in part.graph.outputs}
    part.graph.outputs[:] = [kept[name] for name in outputs]
    remove_unread(part.graph)
    part.graph.inputs[:] = [value for value in part.graph.inputs if value.uses() or value.is_graph_output()]
    RemoveUnreadWeightsPass()(part)
    left = {str(value.name) for value in (*part.graph.inputs, *part.graph.outputs)}
    state = training_state.read(model)
    pairs = tuple(pair for pair in state.pairs if {pair.input, pair.output} <= left)
    training_state.write(part, TrainingState(pairs, state.loss if state.loss in left else None))
    return part


def _used(padding: Padding | None, layout: Layout) -> Padding:
    """The part of the padding that is about inputs that are there; a prediction lacks the targets."""
    padding = padding or Padding()
    return Padding(
        {name: value for name, value in padding.values.items() if name in layout.fields},
        {name: of for name, of in padding.lengths.items() if name in layout.fields and of in layout.fields},
    )


def _check_complete(source: Source, order: Order) -> None:
    """What is left out at the end would be missing in a mean, or among predictions."""
    source.batches(order)
    fixed = source.layout.batch_size
    if fixed is not None and source.count is not None and source.count % fixed:
        raise InvalidInputError(
            f"data requires a multiple of {fixed} samples, the batch size that the model fixes, got {source.count}"
        )
