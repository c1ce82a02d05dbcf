"""What goes into a model and comes out of it, and a program that runs it with onnxruntime and numpy alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

import onnx_ir as ir

from lstm_lower.graph.dump import type_text
from lstm_lower.graph.values import declared_shape
from lstm_lower.records import state as training_state
from lstm_lower.records.state import TrainingState

# Of symbolic dimensions in the program.
_SIZE = 4


class Port(TypedDict):
    """An input or output.

    Attributes:
        name: its name.
        type: its type, as `f32[T,B,4]`.
        role: what it is: `data`, `weight`, `slot`, `counter`, `learning rate`, `loss`, `gradient`, `result`.
        partner: of an input of the state the output with its next value, and the other way round; else empty.
        has_value: whether an input has an initial value.
    """

    name: str
    type: str
    role: str
    partner: str
    has_value: bool


def ports(model: ir.Model) -> tuple[list[Port], list[Port]]:
    """The inputs and outputs of a model, in order."""
    state = training_state.of(model)
    roles: dict[str, tuple[str, str]] = {pair.input: (pair.role, pair.output or "") for pair in state.pairs}
    made: dict[str, tuple[str, str]] = {pair.output: (pair.role, pair.input) for pair in state.pairs if pair.output}
    made |= {pair.gradient: ("gradient", pair.input) for pair in state.pairs if pair.gradient}
    if state.learning_rate is not None:
        roles[state.learning_rate] = ("learning rate", "")
    if state.loss is not None:
        made[state.loss] = ("loss", "")
    return (
        [_port(value, *roles.get(value.name or "", ("data", ""))) for value in model.graph.inputs],
        [_port(value, *made.get(value.name or "", ("result", ""))) for value in model.graph.outputs],
    )


def _port(value: ir.Value, role: str, partner: str) -> Port:
    has_value = value.const_value is not None
    return Port(name=value.name or "", type=type_text(value), role=role, partner=partner, has_value=has_value)


def program(model: ir.Model, file: str) -> str:
    """A program that trains the lowered model, or runs one that carries no state on; with data to be replaced.

    Args:
        model: the lowered model.
        file: what it is called.
    """
    state = training_state.of(model)
    moving = {pair.input: pair.output for pair in state.pairs if pair.output is not None}
    inputs = {value.name or "": value for value in model.graph.inputs}
    required = [name for name, value in inputs.items() if value.const_value is None]
    sizes = sorted({dim for name in required for dim in declared_shape(inputs[name]) or () if isinstance(dim, str)})
    of_state = [name for name in required if name in moving]
    data = [name for name in required if name not in moving and name != state.learning_rate]
    lines = ["import numpy as np", "import onnxruntime as ort", "", "rng = np.random.default_rng(0)"]
    lines += [f"size = {{{', '.join(f'{name!r}: {_SIZE}' for name in sizes)}}}"] if sizes else []
    lines += [f"session = ort.InferenceSession({file!r})"]
    if moving:
        lines += ["# The state before the first step; what has an initial value in the file may be omitted."]
        lines += _table("state", of_state, inputs, scale="0.1 * ")
        lines += _table("moving", [], {}, entries=[f"{name!r}: {output!r}" for name, output in moving.items()])
    lines += ["# Your data."]
    lines += _table("batch", data, inputs)
    if state.learning_rate is not None and state.learning_rate in required:
        lines += [f"batch[{state.learning_rate!r}] = {_filled(inputs[state.learning_rate], '0.01')}"]
    if not moving:
        return "\n".join([*lines, "results = session.run(None, batch)", *_shown(), ""])
    return "\n".join([*lines, *_loop(state), ""])


def _shown() -> list[str]:
    return ["for output, result in zip(session.get_outputs(), results):", "    print(output.name, np.shape(result))"]


def _loop(state: TrainingState) -> list[str]:
    if state.loss is None:
        run = "    new = session.run([*moving.values()], {**state, **batch})"
        return ["for step in range(100):", run, "    state.update(zip(moving, new))"]
    return [
        "for step in range(100):",
        f"    loss, *new = session.run([{state.loss!r}, *moving.values()], {{**state, **batch}})",
        "    state.update(zip(moving, new))",
        "    if step % 10 == 0:",
        "        print(step, loss)",
    ]


def _table(
    name: str, keys: Iterable[str], values: dict[str, ir.Value], *, scale: str = "", entries: list[str] | None = None
) -> list[str]:
    rows = [f"{key!r}: {_random(values[key], scale)}" for key in keys] if entries is None else entries
    return [f"{name} = {{", *(f"    {row}," for row in rows), "}"] if rows else [f"{name} = {{}}"]


def _random(value: ir.Value, scale: str) -> str:
    """An expression for random values of an input."""
    dtype, shape = _dtype(value), _shape(value)
    if dtype.startswith(("float", "bfloat")):
        return f"({scale}rng.standard_normal({shape})).astype({dtype!r})"
    return f"np.zeros({shape}, {dtype!r})"


def _filled(value: ir.Value, text: str) -> str:
    return f"np.full({_shape(value)}, {text}, {_dtype(value)!r})"


def _dtype(value: ir.Value) -> str:
    return "float32" if value.dtype is None else str(value.dtype.numpy())


def _shape(value: ir.Value) -> str:
    dims = [f"size[{dim!r}]" if isinstance(dim, str) else str(dim or _SIZE) for dim in declared_shape(value) or ()]
    return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"
