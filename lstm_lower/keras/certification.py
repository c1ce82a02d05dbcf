"""A step beside Keras itself: one update from the same state on the same small batch, in which indices repeat."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import onnx_ir as ir
import tensorflow as tf

from lstm_lower.errors import LstmLowerError
from lstm_lower.graph.copies import copy_model
from lstm_lower.keras.arguments import first_line, is_of
from lstm_lower.keras.step import KerasStep
from lstm_lower.keras.variables import tensorflow_variable
from lstm_lower.passes.randomness import random_outputs
from lstm_lower.records import state as training_state
from lstm_lower.records.certificate import Certificate
from lstm_lower.runtime.proof import certification
from lstm_lower.runtime.proof.certification import NotComparedError, Results
from lstm_lower.runtime.serialized import as_written, open_session
from lstm_lower.runtime.session import Session

Array = np.ndarray[Any, Any]

_ROWS = 4
# What open sizes are tried with, until Keras takes one.
_SIZES = (5, 32, 96)
# Indices lie below, so that they repeat.
_INDICES = 4
# How often weights are moved in their last places, and by how many of these.
_MOVES, _PLACES = 3, 4


def certified(step: KerasStep, model: ir.Model, concrete: Any) -> Certificate:
    """What a comparison of a step with Keras has shown. The Keras model is left as it was.

    Args:
        step: what the model was made of.
        model: the exported step.
        concrete: what TensorFlow made of it.

    Raises:
        UnsupportedOpError: something differs; it is named.
    """
    framework = f"tf-keras {_tf_keras_version()}" if is_of(step.model, "tf_keras") else f"Keras {keras.__version__}"
    random = random_outputs(model)
    beside = _Beside(step, model, concrete, random)
    if "loss" in random:
        why = "it draws random numbers whose generators are no state of the model"
        return Certificate(not_compared={"the step": why})
    with beside.kept():
        before = beside.values()
        try:
            batch, expected = beside.example()
            actual = beside.of_step(batch, before)
        except NotComparedError as error:
            return Certificate(not_compared={"the step": str(error)})
        comparison = certification.compare(
            actual,
            expected,
            moved=lambda: [beside.of_keras(batch, beside.moved(before, seed)) for seed in range(_MOVES)],
            before=before,
            narrow=any("16" in layer.compute_dtype for layer in step.model._flatten_layers() if layer.compute_dtype),
        )
    certification.refuse_differences(f"model '{step.model.name}'", framework, comparison)
    sizes = {str(spec.name): array.shape for spec, array in zip(step.specs, batch, strict=True)}
    left_out = dict.fromkeys(sorted(random), "it depends on random numbers")
    return certification.certificate(framework, sizes, comparison, left_out)


def _tf_keras_version() -> str:
    import tf_keras

    return str(tf_keras.__version__)


class _Beside:
    """A step and its model, with the same state and batch."""

    def __init__(self, step: KerasStep, model: ir.Model, concrete: Any, random: set[str]) -> None:
        self._step, self._model = step, model
        # Traced for the sizes of the batch.
        self._run: Any = concrete if step.reference is None else tf.function(step.reference, autograph=False)
        self._pairs = training_state.read(model).pairs
        self._outputs = {str(value.name) for value in model.graph.outputs} - random
        self._variables = {name: variable for variable, name in step.names.all()}
        theirs = zip(step.slots, step.reference_slots, strict=False)
        self._theirs = {step.names.of(slot): tensorflow_variable(other) for slot, other in theirs}

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """All variables get back their values."""
        held = [(variable, variable.numpy()) for variable in [*self._variables.values(), *self._theirs.values()]]
        try:
            yield
        finally:
            for variable, value in held:
                variable.assign(value)

    def values(self) -> dict[str, Array]:
        """The state that the step reads, by variable."""
        return {name: np.asarray(variable.numpy()) for name, variable in self._variables.items()}

    def moved(self, values: Mapping[str, Array], seed: int) -> dict[str, Array]:
        """Weights that differ in their last places."""
        rng = np.random.default_rng(seed)
        weights = {pair.variable for pair in self._pairs if pair.role == "weight"}

        def each(array: Array) -> Array:
            places = rng.integers(-_PLACES, _PLACES + 1, array.shape)
            return np.asarray(array + places * np.spacing(array), array.dtype)

        return {name: each(array) if name in weights else array for name, array in values.items()}

    def example(self) -> tuple[list[Array], Results]:
        """A batch, and what Keras makes of it.

        Raises:
            NotComparedError: Keras takes none.
        """
        before, reason = self.values(), ""
        for size in _SIZES:
            batch = [self._array(number, spec, size) for number, spec in enumerate(self._step.specs)]
            try:
                return batch, self.of_keras(batch, before)
            except LstmLowerError:
                raise
            except Exception as error:  # noqa: BLE001
                reason = reason or first_line(error)
        raise NotComparedError(f"Keras takes none of the batches that were tried: {reason}")

    def _array(self, number: int, spec: tf.TensorSpec, size: int) -> Array:
        rng = np.random.default_rng(number)
        first, *rest = [*spec.shape, None][: max(spec.shape.rank, 1)]
        shape = [first or _ROWS, *(each or size for each in rest)][: spec.shape.rank]
        kind = np.dtype(spec.dtype.as_numpy_dtype).kind
        if kind == "b":
            return rng.random(shape) < 0.5
        is_input = str(spec.name).partition("/")[0] == "x"
        if kind in "iu":
            found: Array = rng.integers(0, min(_INDICES, self._step.indices if is_input else self._step.classes), shape)
        elif is_input:
            found = rng.standard_normal(shape)
        else:
            # What probabilities, counts and plain numbers may be.
            found = rng.uniform(0.25, 0.75, shape)
        return np.asarray(found, spec.dtype.as_numpy_dtype)

    def of_keras(self, batch: Sequence[Array], values: Mapping[str, Array]) -> Results:
        """What one step of Keras' own makes of a state and a batch."""
        for name, array in values.items():
            self._variables[name].assign(array)
            if name in self._theirs:
                self._theirs[name].assign(array)
        logs = self._run(*(tf.constant(array) for array in batch))
        after = {name: self._theirs.get(name, variable) for name, variable in self._variables.items()}
        results = {name: np.asarray(each) for name, each in logs.items() if name in self._outputs}
        updates = [pair for pair in self._pairs if pair.output in self._outputs and pair.variable in after]
        return {
            "loss": {"loss": results.pop("loss")},
            "output": {name: each for name, each in results.items() if not name.startswith("grad/")},
            "gradient": {name: each for name, each in results.items() if name.startswith("grad/")},
            "update": {str(pair.variable): np.asarray(after[str(pair.variable)].numpy()) for pair in updates},
        }

    def of_step(self, batch: Sequence[Array], values: Mapping[str, Array]) -> Results:
        """What the exported step makes of them."""
        feeds = {str(spec.name): array for spec, array in zip(self._step.specs, batch, strict=True)}
        state = training_state.read(self._model)
        feeds |= {pair.input: values[str(pair.variable)] for pair in state.pairs if pair.variable in values}
        results = self._ran(feeds)
        found = {name: each for name, each in results.items() if name not in {pair.output for pair in state.pairs}}
        return {
            "loss": {"loss": results["loss"]},
            "output": found,
            "gradient": found,
            "update": {str(pair.variable): results[pair.output] for pair in state.pairs if pair.output in results},
        }

    def _ran(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        copy = copy_model(self._model)
        names = [str(value.name) for value in copy.graph.inputs]
        outputs = [str(value.name) for value in copy.graph.outputs]
        options = as_written()
        options.log_severity_level = 4
        given = {name: array for name, array in feeds.items() if name in names}
        try:
            try:
                # As it is: what lowers it is proven elsewhere.
                session = open_session(copy, options, [("CPUExecutionProvider", {})])
            except Exception:  # noqa: BLE001
                session = Session(copy, providers=["cpu"]).ort
            return dict(zip(outputs, session.run(outputs, given), strict=True))
        except Exception as error:
            raise NotComparedError(f"onnxruntime fails with {first_line(error)}") from error
