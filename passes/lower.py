"""`lower`: from a model with composite nodes to one of standard operators, pass by pass."""

from __future__ import annotations

import contextlib
import gc
import os
import typing
from collections.abc import Iterator, Sequence

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from lstm_lower import schemas
from lstm_lower.errors import InvalidModelError, LstmLowerError, UnsupportedOpError
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.verify import VerifyPass, composite_nodes
from lstm_lower.passes.composites import LowerCompositesPass, unsupported_nodes
from lstm_lower.passes.opset.installed import MIN_OPSET
from lstm_lower.passes.opset.versions import ConvertOpsetPass, check_opset
from lstm_lower.passes.pipeline import Trace, optimize_graphs, parse_schedule
from lstm_lower.passes.repair import BlockLSTMV2GradientPass
from lstm_lower.passes.scatter import OrderedScatterPass
from lstm_lower.passes.shapes import InferShapesPass
from lstm_lower.records.model_files import load, to_proto

__all__ = ["collection_paused", "lower", "lowering_passes", "malformed_models_explained", "needed_passes"]


@typing.overload
def lower(
    model: str | os.PathLike[str] | onnx.ModelProto,
    opset: int | None = None,
    schedule: str = "auto",
    *,
    optimize: bool = True,
    repair_v2_gradient: bool = False,
    verify_each: bool = False,
    trace: Trace | None = None,
) -> onnx.ModelProto: ...


@typing.overload
def lower(
    model: ir.Model,
    opset: int | None = None,
    schedule: str = "auto",
    *,
    optimize: bool = True,
    repair_v2_gradient: bool = False,
    verify_each: bool = False,
    trace: Trace | None = None,
) -> ir.Model: ...


def lower(
    model: str | os.PathLike[str] | onnx.ModelProto | ir.Model,
    opset: int | None = None,
    schedule: str = "auto",
    *,
    optimize: bool = True,
    repair_v2_gradient: bool = False,
    verify_each: bool = False,
    trace: Trace | None = None,
) -> onnx.ModelProto | ir.Model:
    """Lowers every recurrent op of a model, and every gradient op of ours around it, to `ai.onnx` operators.

    Args:
        model: a path, a protobuf, or an onnx_ir model. It is not changed. Recurrent ops stand in it as nodes of domain
            `ai.onnx.converters.tensorflow` or `tf`, also inside subgraphs and functions.
        opset: version of `ai.onnx` of the result, 13 to the newest that onnx and onnxruntime share; `None` keeps the
            model's own, raised to 13.
        schedule: how loops run: `auto`, `scan`, `unroll` or `chunk:K`. Only under `auto` may a forward op whose
            training outputs nobody uses become a standard LSTM, GRU or RNN operator.
        optimize: run the loop optimiser; without it the result is what the rules emit, loops as the textbook has them.
        repair_v2_gradient: lower a BlockLSTMGrad that is fed by a BlockLSTMV2 as BlockLSTMGradV2. TensorFlow's
            registered gradient builds such nodes, and their gradients are wrong; without this option they are lowered
            as they stand, with a warning.
        verify_each: verify the graph after every pass.
        trace: collects what every pass did.

    Returns:
        A protobuf for a path or a protobuf, an onnx_ir model for an onnx_ir model. Names of graph inputs and outputs
        and symbolic dimensions are kept. An onnx_ir model keeps weights in external data where they are; a protobuf
        holds them.

    Raises:
        InvalidModelError: the model is malformed, or an operand does not fit its op.
        UnsupportedOpError: the model holds ops that cannot be lowered; every one is named.
        InvalidInputError: opset or schedule is none of the allowed ones.
    """
    check_opset(opset)
    parse_schedule(schedule)
    is_ir = isinstance(model, ir.Model)
    steps = lowering_passes(
        opset,
        schedule,
        optimize=optimize,
        repair_v2_gradient=repair_v2_gradient,
        verify_each=verify_each,
        trace=trace,
    )
    with collection_paused(), malformed_models_explained(model):
        work = copy_model(model) if isinstance(model, ir.Model) else load(model)
        for step in needed_passes(steps, work):
            step(work)
            if verify_each:
                VerifyPass()(work)
        return work if is_ir else to_proto(work)


@contextlib.contextmanager
def malformed_models_explained(model: str | os.PathLike[str] | onnx.ModelProto | ir.Model) -> Iterator[None]:
    """Turns an unforeseen failure into a clear error if the model is to blame for it, which onnx's checker tells.

    Raises:
        InvalidModelError: the model is malformed; otherwise the failure is ours and passes as it is.
    """
    try:
        yield
    except (LstmLowerError, OSError):
        raise
    except Exception as failure:
        try:
            schemas.register()
            proto = (
                model
                if isinstance(model, onnx.ModelProto)
                else ir.to_proto(model if isinstance(model, ir.Model) else load(model))
            )
            onnx.checker.check_model(proto, full_check=True)
        except Exception as reason:  # noqa: BLE001 (whatever the checker breaks on, it is the model)
            raise InvalidModelError(f"the model is malformed: {reason}") from failure
        raise


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Holds back the garbage collector, which would walk the whole growing graph again and again for nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def lowering_passes(
    opset: int | None = None,
    schedule: str = "auto",
    *,
    optimize: bool = True,
    repair_v2_gradient: bool = False,
    verify_each: bool = False,
    trace: Trace | None = None,
) -> list[ir.passes.InPlacePass]:
    """The passes that `lower` runs, for a pipeline of one's own: `onnx_ir.passes.Sequential(*lowering_passes())`."""
    return [
        VerifyPass(),
        CheckSupportedPass(),
        InlineFunctionsPass(),
        VerifyPass(),
        ConvertOpsetPass(opset),
        InferShapesPass(),
        BlockLSTMV2GradientPass(repair=repair_v2_gradient),
        LowerCompositesPass(standard_rnn=parse_schedule(schedule)[0] == "auto"),
        OrderedScatterPass(),
        *([OptimizePass(schedule, verify_each=verify_each, trace=trace)] if optimize else []),
        RemoveUnreadWeightsPass(),
        StandardImportsPass(),
    ]


def needed_passes(steps: Sequence[ir.passes.InPlacePass], model: ir.Model) -> list[ir.passes.InPlacePass]:
    """Those of `lowering_passes` that a model needs: where nothing is to be lowered, nothing is to be optimised either.

    So lowering twice changes nothing.
    """
    if _holds_composites(model):
        return list(steps)
    return [step for step in steps if isinstance(step, _NORMALISING)]


def _holds_composites(model: ir.Model) -> bool:
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    return any(True for graph in graphs for _ in composite_nodes(graph))


class CheckSupportedPass(ir.passes.InPlacePass):
    """Refuses a model with nodes that are neither standard nor lowerable."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Checks.

        Raises:
            UnsupportedOpError: names every such node.
        """
        reasons = unsupported_nodes(model)
        if reasons:
            count = f"{len(reasons)} node{'s' if len(reasons) > 1 else ''} cannot be lowered"
            raise UnsupportedOpError("\n  ".join([f"{count}:", *reasons]))
        return ir.passes.PassResult(model, modified=False)


class InlineFunctionsPass(ir.passes.InPlacePass):
    """Puts the bodies of the model's functions where they are called: attributes and types are known there."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Inlines.

        Raises:
            InvalidModelError: functions call each other in a circle.
        """
        if not model.functions:
            return ir.passes.PassResult(model, modified=False)
        try:
            common_passes.InlinePass()(model)
        except (ValueError, ir.passes.PreconditionError) as error:
            raise InvalidModelError(f"the model's functions cannot be inlined: {error.__cause__ or error}") from error
        model.functions.clear()
        return ir.passes.PassResult(model, modified=True)


class OptimizePass(ir.passes.InPlacePass):
    """The loop optimiser, on a lowered model."""

    def __init__(self, schedule: str = "auto", *, verify_each: bool = False, trace: Trace | None = None) -> None:
        super().__init__()
        self.schedule = schedule
        self.verify_each = verify_each
        self.trace = trace

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Optimises."""
        modified = optimize_graphs(model, schedule=self.schedule, trace=self.trace, verify_each=self.verify_each)
        return ir.passes.PassResult(model, modified=modified)


class RemoveUnreadWeightsPass(ir.passes.InPlacePass):
    """Removes initializers that nothing reads any more; defaults of graph inputs stay."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Removes."""
        initializers = model.graph.initializers
        unread = [
            name
            for name, value in initializers.items()
            if not value.uses() and not value.is_graph_input() and not value.is_graph_output()
        ]
        for name in unread:
            del initializers[name]
        return ir.passes.PassResult(model, modified=bool(unread))


class StandardImportsPass(ir.passes.InPlacePass):
    """Leaves `ai.onnx` as the model's only operator set, with an IR version that knows it."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Removes what nothing uses."""
        imports = model.graph.opset_imports
        others = [domain for domain in imports if domain not in ("", "ai.onnx")]
        for domain in others:
            del imports[domain]
        needed = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", imports.get("", MIN_OPSET))])
        raised = model.ir_version < needed
        model.ir_version = max(model.ir_version, needed)
        return ir.passes.PassResult(model, modified=bool(others) or raised)


# The passes that every model goes through, whether or not it holds anything to lower.
_NORMALISING = (
    CheckSupportedPass,
    InlineFunctionsPass,
    VerifyPass,
    ConvertOpsetPass,
    OrderedScatterPass,
    StandardImportsPass,
)
