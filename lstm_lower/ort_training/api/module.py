"""The model of a training run, in onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from lstm_lower.errors import InvalidInputError, InvalidModelError, some
from lstm_lower.graph.edit import remove_unread
from lstm_lower.ort_training.checkpoint_state import CheckpointState
from lstm_lower.ort_training.graphs import LAZY_RESET
from lstm_lower.records import state as training_state
from lstm_lower.records.model_files import load, save
from lstm_lower.records.state import StatePair
from lstm_lower.runtime.session import Session

Array = np.ndarray[Any, Any]


class Module:
    """A model that is trained and evaluated; its parameters are the checkpoint's.

    Attributes:
        training: whether calls train.
        held: the state that it works on.
        session_options: those it was made with.
    """

    def __init__(
        self,
        train_model_uri: str | os.PathLike[str],
        state: CheckpointState,
        eval_model_uri: str | os.PathLike[str] | None = None,
        device: str = "cpu",
        session_options: ort.SessionOptions | None = None,
    ) -> None:
        """Opens the models.

        Args:
            train_model_uri: `training_model.onnx`.
            state: the checkpoint of the same artifacts. Its arrays stay in the host's memory.
            eval_model_uri: `eval_model.onnx`, needed by `eval` and `export_model_for_inferencing`.
            device: `cpu`, or `cuda` or `cuda:<number>` where onnxruntime has that provider.
            session_options: passed through.

        Raises:
            InvalidInputError: the device or the checkpoint does not fit.
            InvalidModelError: the files are no such models.
        """
        self.training = True
        if not isinstance(state, CheckpointState):
            raise InvalidInputError(f"Module requires a CheckpointState, got {state!r}")
        self.held = state.held
        self._eval_path = None if eval_model_uri is None else Path(eval_model_uri)
        self.session_options = session_options
        self._providers = _providers(device)
        self._train = _Graph(Path(train_model_uri), self._providers, session_options)
        self._eval = None
        if self._eval_path is not None:
            self._eval = _Graph(self._eval_path, self._providers, session_options)
        self._accumulates = False
        self._fill(self._train.initial)
        self._check_parameters()

    def __call__(self, *user_inputs: Any) -> Any:
        """Computes a step: outputs, and in training mode gradients, which are added to those since the last reset.

        Args:
            user_inputs: values of `input_names()`, in that order: arrays, or `OrtValue`s.

        Returns:
            The outputs, one or a tuple: arrays where one of the inputs is an array, else `OrtValue`s.

        Raises:
            InvalidInputError: inputs do not fit, or there is no evaluation model.
        """
        graph = self._train if self.training else self._evaluation("a call in evaluation mode")
        if len(user_inputs) != len(graph.inputs):
            raise InvalidInputError(f"Module requires the inputs {graph.inputs}, got {len(user_inputs)} values")
        self.held.check_numbers()
        plain = any(not isinstance(value, ort.OrtValue) for value in user_inputs)
        values = [value.numpy() if isinstance(value, ort.OrtValue) else value for value in user_inputs]
        outputs = graph.session.run(dict(zip(graph.inputs, values, strict=True)) | self._feeds(graph))
        if self.training:
            self._keep(outputs)
            self._accumulates = True
        results = [outputs[name] for name in graph.outputs]
        if not plain:
            results = [ort.OrtValue.ortvalue_from_numpy(np.asarray(value)) for value in results]
        return results[0] if len(results) == 1 else tuple(results)

    def _feeds(self, graph: _Graph) -> dict[str, Array]:
        held = self.held
        feeds = {name: held.parameters[name] for name in graph.parameters}
        feeds |= {name: held.layers[name] for name in graph.layers}
        if graph is self._train:
            for parameter, pair in graph.accumulators.items():
                feeds[pair.input] = held.gradients.get(parameter, held.parameters[parameter])
            feeds[LAZY_RESET] = np.array([not self._accumulates])
        return feeds

    def _keep(self, found: Mapping[str, Array]) -> None:
        for parameter, pair in self._train.accumulators.items():
            self.held.gradients[parameter] = found[str(pair.output)]
        for name, output in self._train.layers.items():
            if output is not None:
                self.held.layers[name] = found[output]

    def train(self, mode: bool = True) -> Self:
        """Lets calls train, or with `False` evaluate; returns the module."""
        self.training = mode
        return self

    def eval(self) -> Self:
        """Lets calls evaluate; returns the module."""
        return self.train(mode=False)

    def lazy_reset_grad(self) -> None:
        """Lets the next call in training mode begin with new gradients instead of adding to those that there are."""
        self._accumulates = False

    def input_names(self) -> list[str]:
        """The inputs that a call takes in the present mode."""
        return list((self._train if self.training else self._evaluation("input_names in evaluation mode")).inputs)

    def output_names(self) -> list[str]:
        """The outputs that a call gives in the present mode."""
        return list((self._train if self.training else self._evaluation("output_names in evaluation mode")).outputs)

    def get_parameters_size(self, trainable_only: bool = True) -> int:
        """The number of elements of all parameters, or of those that are trained."""
        return sum(self.held.parameters[name].size for name in self._order(trainable_only=trainable_only))

    def get_contiguous_parameters(self, trainable_only: bool = False) -> ort.OrtValue:
        """A copy of the elements of all parameters in one vector, in the order of the training model.

        Raises:
            InvalidInputError: one of them is not in float32.
        """
        self.held.check_numbers()
        parts = [self._floats(name).ravel() for name in self._order(trainable_only=trainable_only)]
        return ort.OrtValue.ortvalue_from_numpy(np.concatenate(parts))

    def copy_buffer_to_parameters(self, buffer: Any, trainable_only: bool = True) -> None:
        """Puts the elements of a vector, as `get_contiguous_parameters` gives one, in the parameters' place.

        Raises:
            InvalidInputError: it is of another size or dtype, or leaves parameters of a nominal state without numbers.
        """
        array = np.asarray(buffer.numpy() if hasattr(buffer, "numpy") else buffer)
        names = self._order(trainable_only=trainable_only)
        size = self.get_parameters_size(trainable_only)
        if array.dtype != np.float32 or array.shape != (size,):
            raise InvalidInputError(f"buffer requires float32[{size}], got {array.dtype}{list(array.shape)}")
        rest = [name for name in self.held.parameters if name not in names]
        if self.held.is_nominal and rest:
            raise InvalidInputError(
                f"a nominal checkpoint requires all its parameters at once, got none of '{rest[0]}'; "
                "trainable_only=False says that the buffer holds all"
            )
        place, new = 0, {}
        for name in names:
            before = self._floats(name)
            new[name] = array[place : place + before.size].reshape(before.shape).copy()
            place += before.size
        self.held.parameters.update(new)
        self.held.is_nominal = False

    def export_model_for_inferencing(
        self, inference_model_uri: str | os.PathLike[str], graph_output_names: Sequence[str]
    ) -> None:
        """Writes the part of the evaluation model that leads to some values, with the parameters in it.

        Raises:
            InvalidInputError: there is no evaluation model, or no such value in it.
            OSError: nothing can be written there.
        """
        self.held.check_numbers()
        self._evaluation("export_model_for_inferencing")
        assert self._eval_path is not None
        model = load(self._eval_path)
        graph = model.graph
        values = {value.name: value for node in graph for value in node.outputs}
        names = list(graph_output_names)
        unknown = [name for name in names if name not in values]
        if unknown or not names or isinstance(graph_output_names, str):
            ends = [value.name for value in graph.outputs]
            raise InvalidInputError(
                f"graph_output_names requires names of values of the evaluation model, such as {some(ends)}, got "
                f"{graph_output_names!r}"
            )
        graph.outputs.clear()
        graph.outputs.extend(values[name] for name in names)
        remove_unread(graph)
        held = self.held.parameters | self.held.layers
        for value in list(graph.inputs):
            if value.name in held:
                value.const_value = ir.tensor(held[value.name], name=value.name)
            if value.name in held or not value.uses():
                graph.inputs.remove(value)
            if value.name in held and value.uses():
                graph.register_initializer(value)
        training_state.write(model, training_state.TrainingState())
        save(model, inference_model_uri)

    def _order(self, *, trainable_only: bool) -> list[str]:
        """Parameters in the order of the training model."""
        return [name for name in self._train.parameters if name in self.held.trainable or not trainable_only]

    def _floats(self, name: str) -> Array:
        value = self.held.parameters[name]
        if value.dtype != np.float32:
            raise InvalidInputError(f"a buffer requires parameters in float32, got '{name}' in {value.dtype}")
        return value

    def _evaluation(self, what: str) -> _Graph:
        if self._eval is None:
            raise InvalidInputError(f"{what} requires Module(..., eval_model_uri=...), got a module without one")
        return self._eval

    def _fill(self, initial: Mapping[str, Array]) -> None:
        """First values of layers, where the checkpoint does not say them."""
        for name, value in initial.items():
            self.held.layers.setdefault(name, value)

    def _check_parameters(self) -> None:
        held = self.held.parameters
        for graph in (self._train, *([self._eval] if self._eval is not None else [])):
            missing = [name for name in graph.parameters if name not in held]
            if missing or set(self._train.accumulators) != set(self.held.trainable):
                raise InvalidInputError(
                    f"{graph.path}: a checkpoint of the same artifacts is required, got one with the parameters "
                    f"{some(list(held))}"
                )


class _Graph:
    """A model of the artifacts in onnxruntime.

    Attributes:
        path: its file.
        session: its session.
        parameters: inputs that are parameters.
        layers: input that a layer carries -> output with its next value, `None` where it stays.
        accumulators: parameter -> its accumulator.
        initial: the first values of what layers carry.
        inputs: the other inputs, in order.
        outputs: the other outputs, in order.
    """

    def __init__(self, path: Path, providers: Any, options: ort.SessionOptions | None) -> None:
        self.path = path
        model = load(path)
        state = training_state.read(model)
        if not state.pairs:
            raise InvalidModelError(
                f"{path}: a model that lstm_lower.ort_training.artifacts.generate_artifacts wrote is required, got one "
                "that records no parameters; ll.lower reads those of onnxruntime-training"
            )
        self.session = Session(model, providers, options)
        self.parameters = [pair.input for pair in state.pairs if pair.role == "weight"]
        gradients = {pair.gradient: pair.input for pair in state.pairs if pair.gradient is not None}
        self.accumulators: dict[str, StatePair] = {}
        self.layers: dict[str, str | None] = {}
        for pair in state.pairs:
            if pair.output in gradients:
                self.accumulators[gradients[pair.output]] = pair
            elif pair.role != "weight":
                self.layers[pair.input] = pair.output
        self.initial = {
            name: value.numpy() for name, value in training_state.initial_values(model).items() if name in self.layers
        }
        own_inputs = {LAZY_RESET, *(pair.input for pair in state.pairs)}
        own_outputs = {pair.output for pair in state.pairs}
        self.inputs = [str(value.name) for value in model.graph.inputs if value.name not in own_inputs]
        self.outputs = [str(value.name) for value in model.graph.outputs if value.name not in own_outputs]


def _providers(device: str) -> Any:
    kind, _, number = str(device).partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise InvalidInputError(f"device requires 'cpu', 'cuda' or 'cuda:<number>', got {device!r}")
    return "cpu" if kind == "cpu" else [("cuda", {"device_id": number or "0"}), "cpu"]
