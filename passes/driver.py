"""The one way in which passes run: on a copy of the model, with every error that a model is to blame for explained."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable
from typing import Concatenate, ParamSpec, Protocol, cast, overload

import onnx
import onnx_ir as ir

from lstm_lower.forks import HeldSetting
from lstm_lower.graph.copies import copy_model
from lstm_lower.passes.malformed import Source, malformed_models_explained
from lstm_lower.passes.model_pass import Context, Pass
from lstm_lower.records import attachments
from lstm_lower.records.model_files import load, to_proto

_NEVER = 1 << 30


P = ParamSpec("P")


class InTheSameForm(Protocol[P]):
    """A function of a model: protobufs for paths and protobufs, onnx_ir models for onnx_ir models."""

    @overload
    def __call__(
        self, model: str | os.PathLike[str] | onnx.ModelProto, *args: P.args, **kwargs: P.kwargs
    ) -> onnx.ModelProto: ...

    @overload
    def __call__(self, model: ir.Model, *args: P.args, **kwargs: P.kwargs) -> ir.Model: ...


def in_the_same_form(function: Callable[Concatenate[Source, P], onnx.ModelProto | ir.Model]) -> InTheSameForm[P]:
    """The function itself, for type checkers."""
    return cast("InTheSameForm[P]", function)


def _hold_old_collections() -> Callable[[], None]:
    before = gc.get_threshold()
    gc.set_threshold(before[0], _NEVER, _NEVER)

    def restore() -> None:
        # Whoever has set other thresholds meanwhile keeps them.
        if gc.get_threshold()[1:] == (_NEVER, _NEVER):
            gc.set_threshold(*before)

    return restore


# Holds back the garbage collector's walks over objects that survived one, which a growing graph sets off.
#
# Young objects, those of other threads too, are collected as ever. On 20,000 nodes the walks over all objects take
# 2.1 of 4.7 s, those over the middle generation 0.1 of 2.5 s; `gc.freeze` takes only the objects from before out of
# them, and without any collection it takes longer: what is left behind falls out of the caches.
old_collections_held = HeldSetting(_hold_old_collections)


def run_passes(
    source: Source,
    steps: Iterable[Pass],
    watch: Callable[[Pass, ir.passes.PassResult], object] | None = None,
    *,
    mapped: bool = False,
) -> ir.Model:
    """Runs passes, one after the other, on a copy of a model.

    Args:
        source: a path, a protobuf or an onnx_ir model. It is not changed.
        steps: the passes.
        watch: told what every pass left.
        mapped: whether large weights of a path stay in its file, as for `load`.

    Raises:
        LstmLowerError: what the passes raise of the model.
        InvalidModelError: the model is malformed.
    """
    with old_collections_held, malformed_models_explained(source):
        model = copy_model(source) if isinstance(source, ir.Model) else load(source, mapped=mapped)
        context = Context(model)
        constants = attachments.references(model)
        for step in steps:
            result = step.share(context)(model)
            if watch is not None:
                watch(step, result)
        context.close()
        attachments.restore(model, constants)
        return model


def transform(source: Source, steps: Iterable[Pass]) -> onnx.ModelProto | ir.Model:
    """Runs passes; the result is an onnx_ir model for an onnx_ir model, a protobuf with weights in it for all others.

    Raises:
        LstmLowerError: what the passes raise of the model.
        InvalidModelError: the model is malformed.
    """
    with old_collections_held:
        model = run_passes(source, steps, mapped=True)
        return model if isinstance(source, ir.Model) else to_proto(model)
