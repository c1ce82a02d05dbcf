"""The record of a comparison when a step was made: with the framework's own loss, outputs, gradients and updated state.

A front end runs its step beside the framework that the model comes from, at one example and from the same weights, and
records in the step's metadata what it compared and how far it was off. It makes no step that differs
(`lstm_lower.runtime.proof.certification` compares and refuses); what could not be compared is recorded with the reason.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import onnx_ir as ir

from lstm_lower.dims import format_shape
from lstm_lower.errors import InvalidModelError, damage_told, some

METADATA_KEY = "lstm_lower.certificate"
_VERSION = 1

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
        also: shapes of inputs, where axes are open, at which all of it was compared, too.
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


def write(model: ir.Model, certificate: Certificate) -> None:
    """Records a certificate in a model, in place of what it recorded before."""
    model.metadata_props[METADATA_KEY] = written(certificate)


def written(certificate: Certificate) -> str:
    """A certificate as metadata have it."""
    return json.dumps({"version": _VERSION, **dataclasses.asdict(certificate)}, separators=(",", ":"))


def parse(metadata_props: Mapping[str, str]) -> Certificate | None:
    """Reads the certificate from metadata, for example a session's; `None` where there is none.

    Raises:
        InvalidModelError: the record is malformed.
    """
    text = metadata_props.get(METADATA_KEY)
    if text is None:
        return None
    what = f"metadata '{METADATA_KEY}' requires the form that lstm-lower writes, got {text[:80]!r}"
    with damage_told(lambda _: InvalidModelError(what)):
        entries = json.loads(text)
        version = entries["version"]
        errors: dict[Kind, dict[str, float]] = {
            kind: {str(name): float(error) for name, error in entries["errors"].get(kind, {}).items()} for kind in KINDS
        }
        certificate = Certificate(
            str(entries["framework"]),
            _shapes(entries["sizes"]),
            {kind: each for kind, each in errors.items() if each},
            {str(name): str(why) for name, why in entries["not_compared"].items()},
            [_shapes(each) for each in entries.get("also", ())],
        )
    if version != _VERSION:
        raise InvalidModelError(f"metadata '{METADATA_KEY}' requires version {_VERSION}, got {version!r}")
    return certificate


def _shapes(entries: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {str(name): [int(size) for size in shape] for name, shape in entries.items()}
