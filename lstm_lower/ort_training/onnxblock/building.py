"""Blocks that end in models: a forward model, and the models of a training run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from lstm_lower.errors import InvalidInputError, InvalidModelError, some
from lstm_lower.ort_training import graphs
from lstm_lower.ort_training.onnxblock.accessor import current
from lstm_lower.ort_training.onnxblock.blocks import Block
from lstm_lower.passes.lower import lower
from lstm_lower.records.model_files import to_proto

Parameters = tuple[list[onnx.TensorProto], list[onnx.TensorProto]]


def _with_outputs(model: onnx.ModelProto, names: str | Sequence[str]) -> onnx.ModelProto:
    """The model with these outputs, declared as shape inference finds them."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except Exception as error:
        raise InvalidModelError(f"blocks require a model whose shapes can be inferred: {error}") from error
    declared = {value.name: value for value in (*inferred.graph.value_info, *inferred.graph.output)}
    outputs = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in outputs if name not in declared]
    if unknown or not outputs:
        got = f"'{unknown[0]}'" if unknown else "none"
        raise InvalidInputError(f"outputs require names of values that nodes make, such as {some(list(declared))}, "
                                f"got {got}")  # fmt: skip
    chosen = [declared[name] for name in outputs]
    del inferred.graph.output[:]
    inferred.graph.output.extend(chosen)
    return inferred


class ForwardBlock(Block):
    """A block whose result is a model that computes what `build` returns the name of; operators are ONNX's."""

    def __init__(self) -> None:
        super().__init__()
        self._model: onnx.ModelProto | None = None

    def to_model_proto(self) -> onnx.ModelProto:
        """The model.

        Raises:
            InvalidInputError: the block has not been called.
        """
        if self._model is None:
            raise InvalidInputError("a forward model requires the block to be called on a model first, got no call")
        return self._model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls `build` and makes the model."""
        output = super().__call__(*args, **kwargs)
        self._model = lower(_with_outputs(self.base, output), opset=max(_opset(self.base), _OLDEST))
        return output


# Optimizers map over sequences.
_OLDEST = 17


def _opset(model: onnx.ModelProto) -> int:
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


class TrainingBlock(Block):
    """A block whose results are a training and an evaluation model; the first name that `build` returns is the loss."""

    def __init__(self) -> None:
        super().__init__()
        self._trainable: dict[str, bool] = {}
        self._parameters: Parameters | None = None
        self._models: tuple[onnx.ModelProto, onnx.ModelProto] | None = None

    def requires_grad(self, argument_name: str, value: bool = True) -> None:
        """Says of a parameter that it is trained, or with `False` that it is frozen.

        Of others nothing is known outside of the models: they are constants.
        """
        self._trainable[argument_name] = value

    def parameters(self) -> Parameters:
        """Trained and frozen parameters.

        Raises:
            InvalidInputError: the block has not been called.
        """
        if self._parameters is None:
            raise InvalidInputError("parameters require the block to be called on a model first, got no call")
        return self._parameters

    def to_model_proto(self) -> tuple[onnx.ModelProto, onnx.ModelProto]:
        """The training and the evaluation model.

        Raises:
            InvalidInputError: the block has not been called.
        """
        if self._models is None:
            raise InvalidInputError("training models require the block to be called on a model first, got no call")
        return self._models

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls `build` and makes the models."""
        output = super().__call__(*args, **kwargs)
        model = _with_outputs(self.base, output)
        held = {weight.name: weight for weight in model.graph.initializer}
        order = [name for name in held if name in self._trainable]
        order += [name for name in self._trainable if name not in held]
        trained = [name for name in order if self._trainable[name]]
        frozen = [name for name in order if not self._trainable[name]]
        training = graphs.training_graph(model, trained, frozen)
        self._models = (to_proto(training), to_proto(graphs.evaluation_graph(model, training)))
        self._parameters = ([held[name] for name in trained], [held[name] for name in frozen])
        current().model.CopyFrom(self._models[0])
        return output
