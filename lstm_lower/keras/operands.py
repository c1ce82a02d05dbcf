"""The inputs and outputs of an exported step: which there are, their names, shapes and dtypes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from lstm_lower.errors import InvalidInputError, LstmLowerError
from lstm_lower.keras.arguments import first_line


@dataclasses.dataclass(frozen=True)
class Operands:
    """What a model takes and returns.

    Attributes:
        inputs: a spec per input, `x`, or `x/<name>` if there are several.
        input_structure: the form in which the model is called with them.
        outputs: the model's results as symbolic tensors, in its own structure.
        output_names: a name per output, flat.
        targets: the structure in which a step of the model's own takes targets, where it is not that of the outputs.
        weighted: per output, whether its samples have weights of their own; `None` for the same for all outputs.
    """

    inputs: list[tf.TensorSpec]
    input_structure: Any
    outputs: Any
    output_names: list[str]
    targets: Any = None
    weighted: Sequence[bool] | None = None

    def packed_inputs(self, tensors: Sequence[Any]) -> Any:
        """The inputs as the model is called with them."""
        return keras.tree.pack_sequence_as(self.input_structure, list(tensors))

    def packed_targets(self, tensors: Sequence[Any]) -> Any:
        """The targets as a step of the model's own takes them."""
        return keras.tree.pack_sequence_as(self.outputs if self.targets is None else self.targets, list(tensors))

    def packed_weights(self, tensors: Sequence[Any]) -> Any:
        """Weights of samples as Keras takes them: none, those of all outputs, or each output's in their structure."""
        if self.weighted is None:
            return tensors[0] if tensors else None
        rest = list(tensors)
        return keras.tree.pack_sequence_as(self.outputs, [rest.pop(0) if each else None for each in self.weighted])

    def weighing(self, given: Any) -> tuple[Operands, list[tf.TensorSpec]]:
        """These operands with weights of samples, and the weights' specs under their public names.

        Args:
            given: a spec, or `True` for one weight per row; or these for each output, in order or by name, where
                outputs without are left out or have `None`.

        Raises:
            InvalidInputError: it is none of these.
        """
        if given is None or given is False:
            return self, []
        names = self.output_names
        if not isinstance(given, (Mapping, list, tuple)):
            return self, [_weight_spec(given, "sample_weight")]
        if (others := isinstance(given, Mapping) and [*given.keys() - {*names}]) or len(given) > len(names):
            raise InvalidInputError(f"sample_weight requires the outputs {names}, got {others or len(given)}")
        each = [given.get(name) for name in names] if isinstance(given, Mapping) else [*given]
        each += [None] * (len(names) - len(each))
        if len(names) == 1:
            return self.weighing(each[0])
        pairs = [(name, weight) for name, weight in zip(names, each, strict=True) if weight is not None]
        weighted = [weight is not None for weight in each]
        specs = [_weight_spec(weight, f"sample_weight/{name}") for name, weight in pairs]
        return dataclasses.replace(self, weighted=weighted), specs

    def taking(self, targets: Any) -> Operands:
        """These operands for targets in a structure of their own, as a step of one's own may take them.

        Args:
            targets: specs; a sequence of as many as there are outputs has these' structure.
        """
        by_order = isinstance(targets, (list, tuple, tf.TensorSpec))
        same = by_order and len(keras.tree.flatten(targets)) == len(self.output_names)
        return self if same or targets is None else dataclasses.replace(self, targets=targets)

    def classes(self) -> int:
        """How many classes each output tells apart at least, if it does."""
        sizes = [output.shape[-1] for output in keras.tree.flatten(self.outputs) if len(output.shape)]
        return min((size for size in sizes if size), default=2)


@dataclasses.dataclass(frozen=True)
class Declared:
    """What a functional model says of its inputs and outputs.

    Attributes:
        inputs: symbolic inputs in the structure in which the model is called with them.
        input_names: a name per input, flat.
        outputs: symbolic outputs in their structure.
    """

    inputs: Any
    input_names: Sequence[str]
    outputs: Any


def _declared(model: Any) -> Declared | None:
    functional = getattr(model, "_functional", None) or model
    inputs = getattr(functional, "_inputs_struct", None)
    if inputs is None:
        return None
    return Declared(inputs, [tensor.name for tensor in keras.tree.flatten(inputs)], functional._outputs_struct)


def is_declared(model: Any) -> bool:
    """Whether a model of Keras 3 says what its inputs are."""
    return _declared(model) is not None


def build(model: keras.Model, given: Any, *, own: bool) -> None:
    """Builds a Keras 3 model that is not built, as `fit` does with its first batch.

    Args:
        model: the model.
        given: as for `of`.
        own: as for `of`. Such a model need not be callable: it may train others.

    Raises:
        InvalidInputError: nothing says what it is built for, or it does not take that.
    """
    if model.built or (own and type(model).call is keras.Model.call):
        return
    if given is None:
        raise InvalidInputError(
            f"model '{model.name}' requires input_spec or data, since it is not built and says nothing of its inputs"
        )
    specs = keras.tree.flatten(given)
    if not all(isinstance(spec, tf.TensorSpec) for spec in specs):
        raise InvalidInputError(f"input_spec requires tf.TensorSpec of the inputs, got {given!r}")
    try:
        _symbolic_outputs(model, specs, given)
    except InvalidInputError:
        if not own:
            raise


def of(model: keras.Model, given: Any, *, own: bool = False) -> Operands:
    """The operands of a built Keras 3 model.

    Args:
        model: the model.
        given: a `tf.TensorSpec`, or several as a sequence, by name of input, or in the structure that a subclassed
            model is called with; `None` for the model's own.
        own: whether the model trains by a step of its own, which may take what the model itself does not: there are no
            outputs then.

    Raises:
        InvalidInputError: the specs do not fit, or a subclassed model lacks them.
    """

    def outputs_of(specs: Sequence[tf.TensorSpec], structure: Any) -> Any:
        try:
            return _symbolic_outputs(model, specs, structure)
        except InvalidInputError:
            if not own:
                raise
            return []

    declared = _declared(model)
    if own and declared is not None and len(keras.tree.flatten(given)) not in (0, len(declared.input_names)):
        declared = None
    return packed(model.name, given, declared, outputs_of, getattr(model, "output_names", None) or ())


def packed(
    model: str,
    given: Any,
    declared: Declared | None,
    outputs_of: Callable[[Sequence[tf.TensorSpec], Any], Any],
    names_of_outputs: Sequence[str] = (),
) -> Operands:
    """The operands of a model.

    Args:
        model: its name, for messages.
        given: as for `of`.
        declared: what it says itself; `None` for a subclassed model.
        outputs_of: specs of the inputs and their structure to symbolic outputs.
        names_of_outputs: what the model calls its outputs, flat.

    Raises:
        InvalidInputError: as for `of`.
    """
    if declared is None:
        if given is None:
            raise InvalidInputError(f"model '{model}' requires input_spec, since it says nothing of its inputs")
        structure, flat = given, keras.tree.flatten(given)
        names = [path or "0" for path in _paths(given)]
    else:
        structure, names = declared.inputs, list(declared.input_names)
        own = keras.tree.flatten(structure)
        flat = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in own] if given is None else _flat(given, names)
    if len(flat) != len(names) or not all(isinstance(spec, tf.TensorSpec) for spec in flat):
        raise InvalidInputError(f"input_spec requires tf.TensorSpec of the inputs {names}, got {given!r}")
    _check_ranks("input_spec", flat, names)
    inputs = named(flat, "x", names)
    outputs = outputs_of(inputs, structure) if declared is None or given is not None else declared.outputs
    count = len(keras.tree.flatten(outputs))
    # The keys of a dictionary are what losses and metrics go by.
    output_names = list((not isinstance(outputs, Mapping) and names_of_outputs) or _paths(outputs))
    if count == 1:
        # A list of one may come back as the one.
        (outputs,) = keras.tree.flatten(outputs)
    if len(output_names) != count:
        output_names = [str(number) for number in range(count)]
    return Operands(inputs, structure, outputs, output_names)


def indices(model: Any) -> int:
    """How many indices each Embedding of a model takes at least; 2 where it has none."""
    layers = [layer for layer in model._flatten_layers() if type(layer).__name__ == "Embedding"]
    return min((int(layer.input_dim) for layer in layers), default=2)


def named(specs: Sequence[tf.TensorSpec], prefix: str, names: Sequence[str]) -> list[tf.TensorSpec]:
    """The specs under their public names: the prefix alone if there is but one."""
    public = [prefix] if len(specs) == 1 else [f"{prefix}/{name}" for name in names]
    return [tf.TensorSpec(spec.shape, spec.dtype, name) for spec, name in zip(specs, public, strict=True)]


def _flat(given: Any, names: Sequence[str]) -> list[Any]:
    """Specs in the order of the inputs."""
    if isinstance(given, Mapping):
        if set(given) != set(names):
            raise InvalidInputError(f"input_spec requires the inputs {list(names)}, got {list(given)}")
        return [given[name] for name in names]
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _symbolic_outputs(model: keras.Model, inputs: Sequence[tf.TensorSpec], structure: Any) -> Any:
    tensors = [keras.KerasTensor(spec.shape, spec.dtype.name) for spec in inputs]
    try:
        return keras.src.backend.compute_output_spec(model, keras.tree.pack_sequence_as(structure, tensors))
    except LstmLowerError:
        raise
    except Exception as error:
        shapes = [f"{spec.dtype.name} {tuple(spec.shape)}" for spec in inputs]
        raise InvalidInputError(
            f"input_spec requires what model '{model.name}' takes, got {', '.join(shapes)}, for which it fails with: "
            f"{first_line(error)}"
        ) from error


def _check_ranks(what: str, specs: Sequence[tf.TensorSpec], names: Sequence[str]) -> None:
    for spec, name in zip(specs, names, strict=True):
        if spec.shape.rank is None:
            place = f" for '{name}'" if name else ""
            raise InvalidInputError(
                f"{what} requires a known number of axes, got one of any shape{place}; None means any size: "
                "tf.TensorSpec((None, 3))"
            )


def _paths(structure: Any) -> list[str]:
    """Where each leaf of a structure is."""
    return [".".join(map(str, path)) for path, _ in keras.tree.flatten_with_path(structure)]


def target_specs(operands: Operands, given: Any, losses: Sequence[Any]) -> list[tf.TensorSpec]:
    """A spec per output for what the loss compares it with.

    Args:
        operands: of the model.
        given: one or several `tf.TensorSpec`, or by name of output; `None` derives them from outputs and losses.
        losses: the loss of each output.

    Raises:
        InvalidInputError: the specs do not fit the outputs.
    """
    if operands.targets is not None:
        flat = keras.tree.flatten(operands.targets)
        _check_ranks("target_spec", flat, names := _paths(operands.targets))
        return named(flat, "y", names)
    names = operands.output_names
    if given is None:
        outputs = keras.tree.flatten(operands.outputs)
        flat = [_derived(output, loss) for output, loss in zip(outputs, losses, strict=True)]
    elif isinstance(given, Mapping):
        unknown = [name for name in given if name not in names]
        if unknown or len(given) != len(names):
            raise InvalidInputError(f"target_spec requires the outputs {names}, got {list(given)}")
        flat = [given[name] for name in names]
    else:
        flat = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(flat) != len(names) or not all(isinstance(spec, tf.TensorSpec) for spec in flat):
        raise InvalidInputError(f"target_spec requires tf.TensorSpec of the outputs {names}, got {given!r}")
    _check_ranks("target_spec", flat, names)
    return named(flat, "y", names)


def _derived(output: Any, loss: Any) -> tf.TensorSpec:
    """Class numbers for losses that are called sparse and for Circle, rows of them for CTC, else the output's spec."""
    given = loss if isinstance(loss, str) else getattr(loss, "name", getattr(loss, "__name__", ""))
    name, shape = str(given).lower(), tuple(output.shape)
    if "sparse" in name or name == "circle":
        return tf.TensorSpec(shape[:-1], tf.int64)
    if name == "ctc":
        return tf.TensorSpec((shape[0], None), tf.int64)
    return tf.TensorSpec(shape, tf.float32)


def _weight_spec(given: Any, name: str) -> tf.TensorSpec:
    if given is True:
        given = tf.TensorSpec([None], tf.float32)
    if not isinstance(given, tf.TensorSpec):
        raise InvalidInputError(f"sample_weight requires True or a tf.TensorSpec, got {given!r}")
    return tf.TensorSpec(given.shape, given.dtype, name)
