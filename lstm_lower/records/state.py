"""The state of a training step: which input is which output's next value, and where the first values are.

A training step reads weights, optimizer slots and counters as graph inputs and returns their new values as graph
outputs. Two things let a training loop be driven from the file alone:

**The pairing** is in the model's metadata under the key `lstm_lower.state`, as JSON:

    {"version": 1,
     "loss": "loss:0",
     "learning_rate": "learning_rate:0",
     "pairs": [{"input": "lstm/kernel:0", "output": "lstm/kernel_new:0", "role": "weight",
                "gradient": "grad_kernel:0", "variable": "sequential/lstm/kernel"}, ...]}

`input` is the graph input that holds the value before the step; `output` the graph output that holds it after the
step, `null` when the step only computes gradients. `role` is `weight` (what the model has learned), `slot` (a moment
or velocity of the optimizer, the moving statistics of a layer) or `counter` (an iteration number, a power of a decay
rate, the state of a random number generator). `gradient` is the graph output that holds the loss's gradient with
respect to the weight, `null` when the model does not return it; `variable` the name in the framework that the model
came from, or `null`. `loss` is the scalar output that is minimised, or `null`; `learning_rate` the scalar input that
scales the updates, or `null`. All other inputs are data.

What a model does not record can still be read off its names, see `of`.

**The initial values** are the inputs' defaults, as ONNX has them: an initializer of the input's name. A plain
onnxruntime loop may omit these inputs in its first step. Weights beyond protobuf's 2 GB lie in external data, as
any initializer does (`records.model_files.save`). No pass may take such a value for a constant, since the input can
be fed (`graph.standard.view.constant_of`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

import numpy as np
import onnx_ir as ir

from lstm_lower.dims import format_shape
from lstm_lower.dtypes import native
from lstm_lower.errors import InvalidInputError, InvalidModelError, repeated
from lstm_lower.graph.values import declared_shape
from lstm_lower.records.record import Record

METADATA_KEY = "lstm_lower.state"

Role = Literal["weight", "slot", "counter"]
Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class StatePair:
    """A value that a training step carries on.

    Attributes:
        input: name of the graph input with the value before the step.
        output: name of the graph output with the value after the step; `None` when there is none.
        role: what the value is.
        gradient: name of the graph output with the loss's gradient with respect to it, or `None`.
        variable: its name in the framework that the model came from, or `None`.
    """

    input: str
    output: str | None
    role: Role = "weight"
    gradient: str | None = None
    variable: str | None = None


@dataclasses.dataclass(frozen=True)
class TrainingState:
    """The record of a model's training state.

    Attributes:
        pairs: the state, in the order of the graph's inputs.
        loss: name of the scalar output that is minimised, or `None`.
        learning_rate: name of the scalar input that scales the updates, or `None`.
    """

    pairs: tuple[StatePair, ...] = ()
    loss: str | None = None
    learning_rate: str | None = None


def write(model: ir.Model, state: TrainingState, initial_values: Mapping[str, Array] | None = None) -> None:
    """Records the state in a model, in place of what it recorded before.

    Args:
        model: the model; pairs are checked against its inputs and outputs.
        state: the pairs and the loss.
        initial_values: input name -> value; these become the inputs' defaults. Inputs that are not named keep theirs.

    Raises:
        InvalidModelError: a name is no input or output, or two ends of a pair differ in dtype or shape.
        InvalidInputError: the state is none.
    """
    if not isinstance(state, TrainingState):
        raise InvalidInputError(f"state requires a TrainingState, got {state!r}")
    verify(model, state)
    inputs = {value.name: value for value in model.graph.inputs}
    for name, array in (initial_values or {}).items():
        set_default(model, _input(inputs, name), array)
    model.metadata_props.update(metadata(state))


_RECORD = Record(METADATA_KEY, TrainingState, TrainingState(), version=1, later=["learning_rate"])


def metadata(state: TrainingState) -> dict[str, str]:
    """The metadata entry that records a state; `write` adds it to a model."""
    return {METADATA_KEY: _RECORD.written(state)}


def parse(metadata_props: Mapping[str, str]) -> TrainingState:
    """Reads the state from metadata, for example `session.get_modelmeta().custom_metadata_map`.

    Raises:
        InvalidModelError: the record is malformed.
    """
    return _RECORD.parse(metadata_props)


def read(model: ir.Model) -> TrainingState:
    """Reads the state that a model records; without pairs when it records none.

    Raises:
        InvalidModelError: the record is malformed or does not fit the graph.
    """
    state = parse(model.metadata_props)
    verify(model, state)
    return state


def of(model: ir.Model) -> TrainingState:
    """The state that a model records, completed by what its names say (see `infer`).

    Raises:
        InvalidModelError: the record is malformed or does not fit the graph.
    """
    recorded, inferred = read(model), infer(model)
    by_input = {pair.input: pair for pair in inferred.pairs}
    pairs = []
    for pair in recorded.pairs or inferred.pairs:
        named = by_input.get(pair.input, pair)
        pairs.append(
            dataclasses.replace(pair, output=pair.output or named.output, gradient=pair.gradient or named.gradient)
        )
    state = TrainingState(
        tuple(pairs), recorded.loss or inferred.loss, recorded.learning_rate or inferred.learning_rate
    )
    verify(model, state)
    return state


def infer(model: ir.Model) -> TrainingState:
    """Reads the state off the names of a model that records none.

    An input `w` or `w:0` is a weight if there is an output `new_w` (its new value) or `grad_w` (its gradient) of the
    same dtype and shape; a scalar output `loss` is the loss, a scalar input `learning_rate` or `lr` the learning rate.
    """
    outputs = {_plain(value.name): value for value in model.graph.outputs}
    pairs, learning_rate = [], None
    for value in model.graph.inputs:
        assert value.name is not None
        plain = _plain(value.name)
        after, gradient = (_same(value, outputs.get(f"{prefix}_{plain}")) for prefix in ("new", "grad"))
        if after is not None or gradient is not None:
            pairs.append(StatePair(value.name, after, "weight", gradient))
        elif plain in ("learning_rate", "lr") and value.shape is not None and value.shape.rank() == 0:
            learning_rate = value.name
    loss = outputs.get("loss")
    scalar = loss is not None and loss.shape is not None and loss.shape.rank() == 0
    return TrainingState(tuple(pairs), loss.name if loss is not None and scalar else None, learning_rate)


def _plain(name: str | None) -> str:
    return (name or "").removesuffix(":0")


def _same(before: ir.Value, after: ir.Value | None) -> str | None:
    if after is None or before.dtype != after.dtype or declared_shape(before) != declared_shape(after):
        return None
    return after.name


def verify(model: ir.Model, state: TrainingState) -> None:
    """Checks that a state's names, dtypes and shapes are the graph's.

    Raises:
        InvalidModelError: they are not.
    """
    inputs = {value.name: value for value in model.graph.inputs}
    outputs = {value.name: value for value in model.graph.outputs}
    if state.loss is not None and state.loss not in outputs:
        raise InvalidModelError(f"loss '{state.loss}' must be a graph output")
    if state.learning_rate is not None and state.learning_rate not in inputs:
        raise InvalidModelError(f"learning rate '{state.learning_rate}' must be a graph input")
    for pair in state.pairs:
        if pair.role not in get_args(Role):
            raise InvalidModelError(f"state '{pair.input}' requires a role of {get_args(Role)}, got {pair.role!r}")
        if pair.input not in inputs:
            raise InvalidModelError(f"state '{pair.input}' must be a graph input")
        for end in (pair.output, pair.gradient):
            if end is not None and end not in outputs:
                raise InvalidModelError(f"state '{pair.input}': '{end}' must be a graph output")
        if pair.output is not None:
            _check_equal(inputs[pair.input], outputs[pair.output])
    for what in ("input", "output"):
        names = [name for pair in state.pairs if (name := getattr(pair, what)) is not None]
        if twice := repeated(names):
            raise InvalidModelError(f"state {what} '{twice[0]}' requires one pair, got {names.count(twice[0])}")


def _check_equal(before: ir.Value, after: ir.Value) -> None:
    if before.dtype != after.dtype:
        raise InvalidModelError(
            f"state '{before.name}' requires dtype {before.dtype}, got {after.dtype} after the step"
        )
    wanted, got = declared_shape(before), declared_shape(after)
    if wanted is None or got is None:
        return
    pairs = zip(wanted, got, strict=False)
    if len(wanted) != len(got) or any(isinstance(x, int) and isinstance(y, int) and x != y for x, y in pairs):
        raise InvalidModelError(
            f"state '{before.name}' requires shape {format_shape(wanted)}, got {format_shape(got)} after the step"
        )


def set_initial_value(model: ir.Model, name: str, array: Array) -> None:
    """Gives a graph input a default value.

    Raises:
        InvalidModelError: there is no such input, or the value has another dtype or shape.
    """
    set_default(model, _input({value.name: value for value in model.graph.inputs}, name), array)


def set_learning_rate(model: ir.Model, rate: float) -> None:
    """Gives the learning rate another first value.

    Raises:
        InvalidInputError: the model has no such input, or the value is no finite number.
    """
    name = of(model).learning_rate
    if name is None:
        raise InvalidInputError("learning_rate requires a model with a learning-rate input (learning_rate_input=...)")
    if not math.isfinite(rate):
        raise InvalidInputError(f"learning_rate requires a finite number, got {rate}")
    value = next(value for value in model.graph.inputs if value.name == name)
    dtype = value.dtype or ir.DataType.FLOAT
    set_default(model, value, np.asarray(rate, dtype.numpy()))


def _input(inputs: Mapping[str | None, ir.Value], name: str) -> ir.Value:
    if name not in inputs:
        raise InvalidModelError(f"initial value '{name}' must be a graph input")
    return inputs[name]


def set_default(model: ir.Model, value: ir.Value, array: Array) -> None:
    """Gives a graph input a default value, as `set_initial_value`, where the input itself is at hand."""
    name = value.name
    assert name is not None
    tensor = ir.tensor(native(array, f"initial value '{name}'"), name=name)
    if value.dtype is not None and value.dtype != tensor.dtype:
        raise InvalidModelError(f"initial value '{name}' requires dtype {value.dtype}, got {tensor.dtype}")
    shape = declared_shape(value)
    if shape is not None:
        pairs = zip(shape, array.shape, strict=False)
        if len(shape) != array.ndim or any(isinstance(dim, int) and dim != size for dim, size in pairs):
            raise InvalidModelError(
                f"initial value '{name}' requires shape {format_shape(shape)}, got {format_shape(array.shape)}"
            )
    value.const_value = tensor
    model.graph.initializers[name] = value


def initial_values(model: ir.Model) -> dict[str, ir.TensorProtocol]:
    """The defaults of a model's inputs by name; external data is not read until it is used."""
    return {
        value.name: value.const_value
        for value in model.graph.inputs
        if value.name is not None and value.const_value is not None
    }


def detach_initial_values(model: ir.Model, kept: Collection[str] = ()) -> dict[str, ir.TensorProtocol]:
    """Takes the defaults out of a model, but for some, so that its inputs must be fed, and returns them."""
    values = {name: tensor for name, tensor in initial_values(model).items() if name not in kept}
    for value in model.graph.inputs:
        if value.name in values:
            del model.graph.initializers[value.name]
            value.const_value = None
    return values
