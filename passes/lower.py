"""`lower`: from a model with composite nodes to one of standard operators, pass by pass."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.passes.branches import ConstantBranchPass
from lstm_lower.passes.complex_numbers import RealPartsPass
from lstm_lower.passes.composites import LowerCompositesPass, is_to_lower, unsupported_nodes
from lstm_lower.passes.driver import in_the_same_form, transform
from lstm_lower.passes.inline import InlineFunctionsPass
from lstm_lower.passes.malformed import Source
from lstm_lower.passes.model_pass import MODIFIED, Pass
from lstm_lower.passes.opset.conversion import ConvertOpsetPass, check_opset
from lstm_lower.passes.pipeline import OptimizePass, Trace, parse_schedule
from lstm_lower.passes.repair import BlockLSTMV2GradientPass
from lstm_lower.passes.shapes import InferShapesPass
from lstm_lower.passes.targets.fixed_sizes import FixedSizesPass
from lstm_lower.passes.targets.legalize import legalizing_passes
from lstm_lower.passes.targets.table import target_of
from lstm_lower.passes.tidy import (
    NameOutputsPass,
    RemoveUnreadWeightsPass,
    SortPass,
    StandardImportsPass,
    StatedDefaultsPass,
    UniqueNamesPass,
    VerifyPass,
)
from lstm_lower.passes.training_graphs import TrainingGraphPass
from lstm_lower.records import origin

__all__ = ["lower", "lowering_passes"]


@in_the_same_form
def lower(
    model: Source,
    opset: int | None = None,
    schedule: str = "auto",
    *,
    optimize: bool = True,
    repair_v2_gradient: bool = False,
    verify_each: bool = False,
    trace: Trace | None = None,
    target: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> onnx.ModelProto | ir.Model:
    """Lowers a model's recurrent ops, and lstm-lower's other ops around them, to `ai.onnx` operators.

    Args:
        model: a path, a protobuf, or an onnx_ir model. It is not changed. Recurrent ops are nodes of the domain
            `ai.onnx.converters.tensorflow` or `tf`, also inside subgraphs and functions.
        opset: version of `ai.onnx` of the result, 13 to the newest that onnx and onnxruntime share; `None` keeps the
            model's own, raised to 13.
        schedule: how loops run: `auto`, `scan`, `unroll` or `chunk:K`. Only under `auto` can a forward op whose
            training outputs are unused become a standard LSTM, GRU or RNN operator.
        optimize: run the loop optimiser; without it the result is what the rules emit, loops as the textbook has them.
        repair_v2_gradient: lower a BlockLSTMGrad that is fed by a BlockLSTMV2 as BlockLSTMGradV2. TensorFlow's
            registered gradient builds such nodes, and their gradients are wrong; without this option they are lowered
            as they are, with a warning.
        verify_each: verify the graph after every pass.
        trace: collects what every pass did.
        target: the runtime that the result is for, one of `lstm_lower.passes.targets.table`: `coreml`, `cpu`, `cuda`,
            `cuda-graph`, `directml`, `ggml`, `openvino`, `rocm`, `tensorrt`, `webgpu` or `webgpu-web`. Operators that
            it lacks are replaced by others, also in models without recurrent ops. Without one the result runs on all
            of onnxruntime's own providers, and is written for its kernels on processors where these want another form.
        sizes: name of an open size of an input, or its place (`x.2`) -> number. A loop whose length is fixed in this
            way can be unrolled.

    Returns:
        A protobuf for a path or a protobuf, an onnx_ir model for an onnx_ir model. Names of graph inputs and outputs
        and symbolic dimensions are kept, and so are defaults of inputs, which onnxruntime-node and -web cannot feed
        (`export_training` writes files for every runtime). An onnx_ir model keeps weights in external data where they
        are; a protobuf holds them.

    Raises:
        InvalidModelError: the model is malformed, or an operand does not fit its op.
        UnsupportedOpError: the model holds ops that cannot be lowered, or that the target cannot run; they are named.
        InvalidInputError: opset, schedule, target or a size is not one of the allowed values.
    """
    steps = lowering_passes(
        opset,
        schedule,
        optimize=optimize,
        repair_v2_gradient=repair_v2_gradient,
        verify_each=verify_each,
        trace=trace,
        target=target,
        sizes=sizes,
    )
    return transform(model, steps)


def lowering_passes(
    opset: int | None = None,
    schedule: str = "auto",
    *,
    optimize: bool = True,
    repair_v2_gradient: bool = False,
    verify_each: bool = False,
    trace: Trace | None = None,
    target: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> list[Pass]:
    """The passes that `lower` runs, for a pipeline of one's own: `onnx_ir.passes.Sequential(*lowering_passes())`.

    Errors are those of `lower`; `Sequential` makes them the `__cause__` of an `onnx_ir.passes.PassError`.

    Raises:
        InvalidInputError: opset, schedule, target or a size is not one of the allowed values.
    """
    check_opset(opset)
    aim = target_of(target)
    schedule = aim.schedule(schedule)
    steps: list[Pass] = [
        SortPass(),
        TrainingGraphPass(),
        VerifyPass(),
        CheckSupportedPass(everything=target is not None),
        InlineFunctionsPass(),
        *([FixedSizesPass(sizes)] if sizes else []),
        NameOutputsPass(),
        UniqueNamesPass(),
        ConvertOpsetPass(opset),
        StatedDefaultsPass(),
        WhereMarked(MODIFIED, ConstantBranchPass()),
        WhereMarked(_COMPOSITE, InferShapesPass()),
        BlockLSTMV2GradientPass(repair=repair_v2_gradient),
        LowerCompositesPass(standard_rnn=parse_schedule(schedule)[0] == "auto"),
        RealPartsPass(),
        *([WhereMarked(_COMPOSITE, OptimizePass(schedule, trace=trace, target=aim, rolls=False))] if optimize else []),
        *legalizing_passes(aim),
        WhereMarked(_COMPOSITE, RemoveUnreadWeightsPass()),
        StandardImportsPass(),
    ]
    # What is sorted is not known to be well formed yet.
    for step in steps[1:]:
        step.verify_each = verify_each
    return steps


# Mark, in a model's `meta`, of one that held composite nodes when its lowering began, or that a source had imported.
_COMPOSITE = "lstm_lower.composite"


class CheckSupportedPass(Pass):
    """Refuses a model with nodes that are neither standard nor lowerable, and marks one that holds any to lower.

    Attributes:
        everything: whether models without such nodes are marked, too.
    """

    def __init__(self, *, everything: bool = False) -> None:
        super().__init__()
        self.everything = everything

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Checks.

        Raises:
            UnsupportedOpError: names every such node.
        """
        reasons = unsupported_nodes(model)
        if reasons:
            count = f"{len(reasons)} node{'s' if len(reasons) > 1 else ''} cannot be lowered"
            raise UnsupportedOpError("\n  ".join([f"{count}:", *reasons]), about=reasons)
        model.meta[_COMPOSITE] = self.everything or is_to_lower(model)
        imported = model.metadata_props.pop(origin.METADATA_KEY, None) is not None
        return ir.passes.PassResult(model, modified=imported)


class WhereMarked(Pass):
    """Runs a pass on a model that bears a mark; others stay as they are, so that lowering twice changes nothing."""

    def __init__(self, mark: str, step: Pass) -> None:
        super().__init__()
        self.name = step.name
        self.mark = mark
        self.step = step
        self.preserves = step.preserves

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Runs it."""
        if not model.meta.get(self.mark, False):
            return ir.passes.PassResult(model, modified=False)
        self.step.verify_each = self.verify_each
        return self.step.share(self.context)(model)
