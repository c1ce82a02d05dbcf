"""The forms of a user's model that are compared: as it is, lowered, and optimised under every schedule asked for."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from lstm_lower.errors import LstmLowerError
from lstm_lower.graph.copies import copy_model
from lstm_lower.passes.composites import is_to_lower
from lstm_lower.passes.lower import lower
from lstm_lower.passes.pipeline import optimize
from lstm_lower.records.content_kinds import is_tensorflow
from lstm_lower.records.model_files import as_proto, save
from lstm_lower.runtime.serialized import keeps_small_weights_outside

Form = Literal["original", "lowered", "optimised"]
FORMS: tuple[Form, ...] = ("original", "lowered", "optimised")


@dataclasses.dataclass(frozen=True)
class FormedModel:
    """One form of the model.

    Attributes:
        form: `original`: the file itself, or a copy with small weights inside, where onnxruntime would not read them;
            `lowered`: its recurrent ops as their formulas, loops as the textbook has them; `optimised`: what `lower`
            returns, or `optimize` of a model without such ops.
        schedule: of an optimised one.
        target: the runtime that it is lowered for; `None` for none in particular.
        path: the file; `None` where there is none.
        seconds: it took to make.
        absence: why there is no file.
    """

    form: Form
    schedule: str | None
    target: str | None
    path: Path | None = None
    seconds: float | None = None
    absence: str | None = None

    @property
    def name(self) -> str:
        """`original`, `lowered`, `optimised scan`."""
        return self.form if self.schedule is None else f"{self.form} {self.schedule}"


def formed_models(
    path: str | os.PathLike[str],
    source: ir.Model,
    folder: Path,
    *,
    forms: Sequence[Form],
    schedules: Sequence[str],
    targets: Sequence[str | None] = (None,),
    sizes: Mapping[str, int] | None = None,
) -> Iterator[FormedModel]:
    """Makes the forms of a model.

    Args:
        path: the file that it came from.
        source: the model; it is not changed.
        folder: where to write files to.
        forms: which ones.
        schedules: of the optimised ones.
        targets: what they are lowered for, see `lower`; the original is what it is.
        sizes: open sizes that are fixed in all but the original.

    Yields:
        Each form as it is made; one that is the same graph as another is absent and says so.
    """
    seen: dict[tuple[str | None, bytes], str] = {}
    asked = [
        FormedModel(form, schedule, target)
        for form in forms
        for schedule in (schedules if form == "optimised" else [None])
        for target in ([None] if form == "original" else targets)
    ]
    for number, made in enumerate(asked):
        if made.form == "original" and is_tensorflow(Path(path)):
            yield dataclasses.replace(made, absence="a TensorFlow graph, which onnxruntime does not read")
            continue
        start = time.perf_counter()
        try:
            model = _formed(source, made, sizes)
        except LstmLowerError as error:
            yield dataclasses.replace(made, absence=f"cannot be made: {error}")
            continue
        seconds = time.perf_counter() - start
        same = seen.setdefault((made.target, _identity(model)), made.name)
        if same != made.name:
            yield dataclasses.replace(made, absence=f"the same graph as {same}", seconds=seconds)
        elif made.form == "original" and not keeps_small_weights_outside(source):
            yield dataclasses.replace(made, path=Path(path))
        else:
            target = folder / f"{number}.onnx"
            save(model, target)
            yield dataclasses.replace(made, path=target, seconds=None if made.form == "original" else seconds)


def _formed(source: ir.Model, made: FormedModel, sizes: Mapping[str, int] | None) -> ir.Model:
    if made.form == "original":
        return copy_model(source) if keeps_small_weights_outside(source) else source
    if made.schedule is None:
        return lower(source, optimize=False, target=made.target, sizes=sizes)
    if made.target is not None or is_to_lower(source):
        return lower(source, schedule=made.schedule, target=made.target, sizes=sizes)
    return optimize(lower(source, sizes=sizes), made.schedule)


def _identity(model: ir.Model) -> bytes:
    """A digest that equal graphs have in common; weights one by one, since no message may exceed 2 GB."""
    graph = as_proto(model).graph
    digest = hashlib.sha256()
    for weight in graph.initializer:
        digest.update(weight.SerializeToString(deterministic=True))
    del graph.initializer[:]
    digest.update(graph.SerializeToString(deterministic=True))
    return digest.digest()
