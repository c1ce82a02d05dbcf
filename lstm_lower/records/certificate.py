"""The record of a comparison when a step was made: with the framework's own loss, outputs, gradients and updated state.

A front end runs its step beside the framework that the model comes from, at one example and from the same weights, and
records in the step's metadata what it compared and how far it was off. It makes no step that differs
(`lstm_lower.runtime.proof.certification` compares and refuses); what could not be compared is recorded with the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from lstm_lower.dims import format_shape
from lstm_lower.errors import some
from lstm_lower.records.record import Record

METADATA_KEY = "lstm_lower.certificate"

# What is compared. An `update` is the new value of a weight, of an optimizer's slot or of a layer's statistics after
# one step.
Kind = Literal["loss", "output", "gradient", "update"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A comparison with a framework.

    Attributes:
        framework: which framework's results, and of which version, as `PyTorch 2.13.0`; empty where nothing was run.
        sizes: input -> its shape in the example.
        errors: kind -> name -> the largest difference over the largest magnitude that the framework has there; of an
            update over the largest change.
        not_compared: what was left out, a kind, a name or `the step` -> why.
        also: shapes of inputs, where axes are open, at which all of it was compared, too, but what an optimizer makes
            of gradients, which depends on no size.
    """

    framework: str = ""
    sizes: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    errors: Mapping[Kind, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    not_compared: Mapping[str, str] = dataclasses.field(default_factory=dict)
    also: Sequence[Mapping[str, Sequence[int]]] = ()

    def described(self) -> str:
        """The comparison, and what was left out, in a line."""
        counts = [(kind, len(self.errors.get(kind, ()))) for kind in KINDS]
        compared = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts if count)
        told = []
        if compared:
            kind, name, error = self.worst()
            shapes = [
                some([f"{name} {format_shape(shape)}" for name, shape in each.items()])
                for each in (self.sizes, *self.also)
            ]
            told += [f"{compared} compared with {self.framework} at {', and at '.join(shapes)}"]
            told += [f"largest difference {error:.1e} of {kind} '{name}'"]
        told += [f"{name} not compared: {why}" for name, why in self.not_compared.items()]
        return "; ".join(told) or "nothing compared"

    def worst(self) -> tuple[str, str, float]:
        """Kind, name and error of what differs most.

        Raises:
            ValueError: nothing was compared.
        """
        rows = [(kind, name, error) for kind, each in self.errors.items() for name, error in each.items()]
        return max(rows, key=lambda row: row[2])


_RECORD = Record(METADATA_KEY, Certificate, None, version=1, later=["also"])
write, written, parse = _RECORD.write, _RECORD.written, _RECORD.parse
