"""The last steps of an import: initial values and metadata of the ONNX model, and its verification."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir

from lstm_lower import schemas
from lstm_lower.dtypes import parts_of
from lstm_lower.errors import InvalidInputError, InvalidModelError, LstmLowerWarning, UnsupportedOpError, some, warn
from lstm_lower.graph.edit import remove_unread
from lstm_lower.graph.verify import verify
from lstm_lower.passes.complex_numbers import RealPartsPass
from lstm_lower.passes.composites import unsupported_nodes
from lstm_lower.passes.targets.legalize import legalizing_passes
from lstm_lower.passes.tidy import RemoveUnreadWeightsPass
from lstm_lower.records import checkpoint_keys
from lstm_lower.records import state as training_state
from lstm_lower.records.origin import Origin
from lstm_lower.records.state import StatePair, TrainingState
from lstm_lower.registry import DOMAIN
from lstm_lower.tensorflow.model import ConvertedGraph


class MissingValuesWarning(LstmLowerWarning):
    """The source has no values of weights, so that each run must be fed them."""


class PipelineWarning(LstmLowerWarning):
    """Inputs take the place of an input pipeline that the source holds."""


class RenamedOutputsWarning(LstmLowerWarning):
    """Outputs that the source calls as it calls inputs have other names."""


class UnknownRankWarning(LstmLowerWarning):
    """Nothing tells the rank of inputs, which are taken as scalars."""


def finish(made: ConvertedGraph, *, weights: str | None, state: Mapping[str, str], demanded: bool) -> onnx.ModelProto:
    """Completes and verifies the model.

    Raises:
        InvalidInputError: `state` names something that the model does not have, a variable has no value, or an input
            that the caller named leads nowhere.
        UnsupportedOpError: the model holds nodes that are neither standard nor ours.
        InvalidModelError: the model is not valid; the conversion is at fault.
    """
    model = made.model
    for step in (RealPartsPass(), *legalizing_passes()):
        step(model)
    remove_unread(model.graph)
    RemoveUnreadWeightsPass()(model)
    if demanded:
        _check_connected(made)
    weights = _set_initial_values(made, weights)
    constants = set(made.values) if weights == "initializers" else set()
    pairs = [pair for pair in made.states if pair.input not in constants] + _extra_pairs(model, state)
    if pairs:
        model.metadata_props.update(training_state.metadata(TrainingState(tuple(pairs), made.loss)))
    checkpoint_keys.write(model, [key for key in made.keys if key.input not in constants])
    Origin("tensorflow", made.translated).write(model)
    if not any(node.domain == DOMAIN for node in ir.traversal.RecursiveGraphIterator(model.graph)):
        model.graph.opset_imports.pop(DOMAIN, None)
    proto = _verified(model)
    if made.sources:
        warn(
            f"{made.label}: the input pipeline is left out: what it hands over is fed, as inputs {some(made.sources)}; "
            "inputs= names others",
            PipelineWarning,
        )
    if made.renamed:
        names = some([f"'{old}' is '{new}'" for old, new in made.renamed.items()])
        warn(
            f"{made.label}: outputs require names that no input has: output {names}; outputs= leaves it out",
            RenamedOutputsWarning,
        )
    if made.scalars:
        warn(
            f"{made.label}: the rank of {some(made.scalars)} is not known: taken as scalars; shapes says otherwise",
            UnknownRankWarning,
        )
    return proto


def _check_connected(made: ConvertedGraph) -> None:
    """Every input that the caller named must lead to an output."""
    inputs = {value.name: value for value in made.model.graph.inputs}
    lost = [name for name in made.inputs if name in inputs and not _leads_on(inputs[name])]
    if lost:
        raise InvalidInputError(
            f"inputs requires tensors that an output depends on, got {some([repr(name) for name in lost])}, "
            "which none does"
        )


def _leads_on(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _set_initial_values(made: ConvertedGraph, weights: str | None) -> str:
    """Gives the inputs of variables their values; makes them constants where that is asked for."""
    graph = made.model.graph
    missing = [name for name, value in made.values.items() if value is None]
    if weights == "initializers" and missing:
        raise InvalidInputError(
            f"weights='initializers' requires values of the variables, got a source without values of "
            f"{some(missing)}; name a checkpoint, or use weights='inputs'"
        )
    if weights is None:
        # What a step assigns, the next one finds: as constants its weights would never change.
        is_step = any(pair.output is not None for pair in made.states)
        weights = "inputs" if missing or is_step else "initializers"
        if missing:
            drawn = f"; outputs=['{made.initializer}'] imports what draws them" if made.initializer else ""
            warn(
                f"{made.label}: no values of {some(missing)} were found: they are inputs that each run must be fed, "
                f"unless a checkpoint is named that has them{drawn}",
                MissingValuesWarning,
            )
    inputs = {value.name: value for value in graph.inputs}
    for name, array in made.values.items():
        if array is None:
            continue
        value = inputs[name]
        assert value.type is not None
        array = parts_of(array) if np.iscomplexobj(array) else array
        value.const_value = ir.Tensor(array, dtype=value.dtype, name=name)
        graph.register_initializer(value)
    if weights == "initializers":
        kept = [value for value in graph.inputs if value.name not in made.values]
        graph.inputs.clear()
        graph.inputs.extend(kept)
    return weights


def _extra_pairs(model: ir.Model, state: Mapping[str, str]) -> list[StatePair]:
    inputs = {value.name for value in model.graph.inputs}
    outputs = {value.name for value in model.graph.outputs}
    for old, new in state.items():
        if old not in inputs or new not in outputs:
            raise InvalidInputError(f"state requires pairs of an input and an output, got '{old}' and '{new}'")
    return [StatePair(old, new, variable=old.removesuffix(":0")) for old, new in state.items()]


def _verified(model: ir.Model) -> onnx.ModelProto:
    reasons = unsupported_nodes(model)
    if reasons:
        raise UnsupportedOpError("\n".join(reasons), about=reasons)
    verify(model)
    proto = ir.to_proto(model)
    schemas.register()
    try:
        onnx.checker.check_model(proto, full_check=proto.ByteSize() < 2**30)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidModelError(f"the converted model must be valid ONNX, got: {reason}") from error
    return proto
