"""The options of a trainer as an edit of the graph: accumulate, clip, update."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.standard.view import constant_of
from lstm_lower.passes.formulas.special_functions import sum_of_squares
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.training.optimizers import BY_NAME, Optimizer, working_dtype
from lstm_lower.passes.training.step import TrainingStep, needed
from lstm_lower.passes.training.torch_optimizers import BY_NAME as TORCH_BY_NAME
from lstm_lower.passes.training.updates import Group, attach, groups_of
from lstm_lower.records import recipe
from lstm_lower.records import state as training_state
from lstm_lower.records.attachments import MODULE_KEY

# What the name of a running average of a weight ends in.
AVERAGE = "ema"
# The input that counts how often averages were moved.
AVERAGED = "averaged"

# Gradient clipping.


_FLOAT = ir.DataType.FLOAT


def by_global_norm(gradients: Sequence[Expr], limit: float) -> list[Expr]:
    """Scales all gradients by one factor so that the norm of all their elements together is at most `limit`.

    Gradients below the limit are unchanged. The norm is computed in float32, or float64 where a gradient is float64.

    Source: Pascanu, Mikolov and Bengio, 2013, algorithm 1.
    """
    wide = ir.DataType.DOUBLE if any(gradient.dtype == ir.DataType.DOUBLE for gradient in gradients) else _FLOAT
    squares = [sum_of_squares(gradient.cast(wide)) for gradient in gradients]
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    norm = total.sqrt()
    # A norm of zero must not divide; beyond the limit the maximum is the norm itself.
    factor = limit / norm.maximum(limit)
    return [gradient * factor.cast(gradient.dtype) for gradient in gradients]


def by_value(gradients: Sequence[Expr], limit: float) -> list[Expr]:
    """Limits every element to -limit .. limit."""
    return [gradient.maximum(-limit).minimum(limit) for gradient in gradients]


@dataclasses.dataclass
class TrainingOptionsPass(Pass):
    """Changes what a training step does with its gradients.

    The gradient of each weight must be among the model's outputs. Gradients are accumulated first, then clipped, then
    read by the updates. A model that lacks updates gets those of `optimizer`.

    Attributes:
        optimizer: updates for weights that have none, by one optimizer or one per group; `None` when the model brings
            its own. Names mean PyTorch's formulas and defaults in a step of a PyTorch module, Keras' in others.
        clip_norm: limit of the norm of all gradients together.
        clip_value: limit of each element.
        accumulate: number of steps whose gradients are averaged into one update.
        ema: share that running averages of the weights keep at each update.
    """

    optimizer: Optimizer | Sequence[Group] | str | None = None
    clip_norm: float | None = None
    clip_value: float | None = None
    accumulate: int = 1
    ema: float | None = None

    def __post_init__(self) -> None:
        if self.optimizer is not None:
            groups_of(self.optimizer)
        for name in ("clip_norm", "clip_value"):
            limit = getattr(self, name)
            number = isinstance(limit, (int, float, np.integer, np.floating))
            if limit is not None and not (number and 0 < limit <= sys.float_info.max):
                raise InvalidInputError(f"{name} requires a positive number, got {limit}")
        steps: Any = self.accumulate
        if not isinstance(steps, (int, np.integer)) or not 1 <= steps < 2**31:
            raise InvalidInputError(f"accumulate requires a number of steps, at least 1, got {steps}")
        share: Any = self.ema
        if share is not None and not (isinstance(share, (int, float, np.floating)) and 0 <= share < 1):
            raise InvalidInputError(f"ema requires a share of at least 0 and below 1, got {share}")

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the step.

        Raises:
            InvalidModelError: the model exposes no gradients, or its updates do not read them; or with `optimizer`,
                it has updates already.
        """
        unchanged = self.clip_norm is None and self.clip_value is None and self.accumulate == 1 and self.ema is None
        if self.optimizer is None and unchanged:
            return ir.passes.PassResult(model, modified=False)
        step = TrainingStep(model, training_state.of(model))
        self._check(step)
        gate = _Accumulation(step, self.accumulate) if self.accumulate > 1 else None
        if self.clip_norm is not None:
            limit = self.clip_norm
            step.replace_gradients("clip_norm", lambda gradients: by_global_norm(gradients, limit))
        if self.clip_value is not None:
            bound = self.clip_value
            step.replace_gradients("clip_value", lambda gradients: by_value(gradients, bound))
        if self.optimizer is not None:
            attach(step, groups_of(self.optimizer, TORCH_BY_NAME if MODULE_KEY in model.metadata_props else BY_NAME))
        if self.ema is not None:
            _average(step, self.ema)
        if gate is not None:
            gate.close()
        step.save()
        recipe.add(model, limits={**recipe.parse(model.metadata_props).limits, **self._limits()})
        return ir.passes.PassResult(model, modified=True)

    def _limits(self) -> dict[str, float]:
        """The options that are no defaults."""
        given = {"clip_norm": self.clip_norm, "clip_value": self.clip_value, "ema": self.ema}
        steps = {"accumulate": self.accumulate} if self.accumulate > 1 else {}
        return steps | {name: float(value) for name, value in given.items() if value is not None}

    def _check(self, step: TrainingStep) -> None:
        updated = [pair.input for pair in step.state.pairs if pair.role == "weight" and pair.output is not None]
        if not step.gradients:
            raise InvalidModelError(
                "training options require the weights' gradients among the outputs, got none that updates read; where "
                "the loss is scaled, use the options of the model's own optimizer"
            )
        if self.optimizer is not None and updated:
            raise InvalidModelError(f"optimizer requires a model without updates, got one that updates '{updated[0]}'")
        missing = [name for name in updated if name not in step.gradients]
        if missing:
            raise InvalidModelError(
                f"training options require a gradient of '{missing[0]}' among the outputs that its update reads, got "
                "none; use the options of Keras' optimizer where occurrences of an Embedding's rows are told apart"
            )


def _average(step: TrainingStep, share: float) -> None:
    """Adds running averages of the weights after each update, which begin with the first one's.

    Source: `torch.optim.swa_utils.AveragedModel` with `get_ema_multi_avg_fn`.
    """
    b = step.builder("ema")
    count = step.add_input(AVERAGED, np.asarray(0, np.int64))
    kept = b.where(b.wrap(count).equals(0), 0.0, b.constant(share, ir.DataType.DOUBLE))
    for pair in list(step.state.pairs):
        if pair.role != "weight" or pair.output is None:
            continue
        new = b.wrap(step.outputs[pair.output])
        wide = new.cast(working_dtype(new.dtype))
        mean = step.add_input_like(f"{pair.input.removesuffix(':0')}/{AVERAGE}", step.inputs[pair.input], wide.dtype)
        before = b.wrap(mean)
        following = wide + (before - wide) * kept.cast(wide.dtype)
        step.add_pair(mean, following, "slot", variable=f"{pair.variable or pair.input}/{AVERAGE}")
    step.add_pair(count, b.wrap(count) + 1, "counter")


class _Accumulation:
    """Sums gradients over a number of steps, and lets state change only in the last one of them."""

    def __init__(self, step: TrainingStep, count: int) -> None:
        self.step = step
        self._plain = list(step.state.pairs)
        self._raw = dict(step.gradients)
        counter = step.add_input("accumulated_steps", np.asarray(0, np.int64))
        sums = [
            step.add_input_like(f"{name.removesuffix(':0')}/accumulated", step.inputs[name], working_dtype(dtype))
            for name, value in step.gradients.items()
            if (dtype := value.dtype) is not None
        ]
        totals: list[Expr] = []

        def mean(gradients: list[Expr]) -> list[Expr]:
            for gradient, before in zip(gradients, sums, strict=True):
                total = gradient.builder.wrap(before)
                totals.append(total + gradient.cast(total.dtype))
            return [(total / count).cast(gradient.dtype) for total, gradient in zip(totals, gradients, strict=True)]

        b = step.builder("accumulate")
        following = b.wrap(counter) + 1
        self.last = following.equals(count)
        restarted = b.where(self.last, 0, following)
        step.replace_gradients("accumulate", mean)
        b = step.builder("accumulate")
        kept = [b.where(self._last(b), b.zeros_like(total), total) for total in map(_in(b), totals)]
        self._own = [step.add_pair(value, total, "slot") for value, total in zip(sums, kept, strict=True)]
        self._own.append(step.add_pair(counter, restarted, "counter"))

    def _last(self, b: Builder) -> Expr:
        return b.wrap(self.last.value)

    def close(self) -> None:
        """Gates what depends on the gradients, what only updates read, and the counters that count them.

        State that the step computes without looking at gradients (moving statistics, say) changes in every step, and
        so does what the gradients themselves depend on (the state of a random number generator).
        """
        step = self.step
        read = step.dependents(self._raw.values())
        before_gradients = needed(self._raw.values())
        weights = [step.outputs[pair.output] for pair in step.state.pairs if pair.output and pair.role == "weight"]
        before_updates = needed(value for value in weights if value in read)
        for pair in step.state.pairs:
            if pair.output is None or pair in self._own:
                continue
            before = step.inputs[pair.input]
            of_updates = before not in before_gradients and (pair.role == "counter" or before in before_updates)
            if of_updates or (pair.role != "counter" and step.outputs[pair.output] in read):
                step.replace_output(
                    pair.output,
                    "accumulate",
                    lambda new, before=before: new.builder.where(  # type: ignore[misc]
                        self._last(new.builder), new, new.builder.wrap(before)
                    ),
                )


def _in(b: Builder) -> Callable[[Expr], Expr]:
    return lambda expr: b.wrap(expr.value)


# A learning rate that is a constant of the graph becomes an input.


@dataclasses.dataclass
class LearningRateInputPass(Pass):
    """Makes a scalar constant the input `learning_rate`, with the constant as its default.

    Attributes:
        value: name of the constant (an initializer or a Constant node's output) or of an input.
    """

    value: str

    def __post_init__(self) -> None:
        if not isinstance(self.value, str):
            raise InvalidInputError(f"learning_rate_input requires a name, got {self.value!r}")

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the graph.

        Raises:
            InvalidModelError: there is no such value, or it is no floating-point scalar constant.
        """
        step = TrainingStep(model, training_state.of(model))
        name = self.value
        if name not in step.inputs:
            old = _find(model, name)
            constant = constant_of(old)
            if old is None or constant is None or constant.size != 1 or constant.dtype.kind != "f":
                what = "none" if old is None else "another value"
                raise InvalidModelError(f"learning rate '{name}' requires a scalar constant of that name, got {what}")
            new = step.add_input("learning_rate" if name != "learning_rate" else "learning_rate_input", constant)
            old.replace_all_uses_with(new)
            assert new.name is not None
            name = new.name
        step.state = dataclasses.replace(step.state, learning_rate=name)
        step.save()
        return ir.passes.PassResult(model, modified=True)


def _find(model: ir.Model, name: str) -> ir.Value | None:
    if name in model.graph.initializers:
        return model.graph.initializers[name]
    return next((value for node in model.graph for value in node.outputs if value.name == name), None)
