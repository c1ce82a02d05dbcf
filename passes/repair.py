"""TensorFlow's wrong gradient of BlockLSTMV2: found, reported, and repaired on request."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from lstm_lower.errors import LstmLowerWarning, warn
from lstm_lower.graph.bindings import composite_nodes, definition_of
from lstm_lower.graph.form import node_label
from lstm_lower.opdef import Arranged
from lstm_lower.ops.block import BlockLSTMGrad, BlockLSTMGradV2, BlockLSTMV2
from lstm_lower.passes.model_pass import Pass


class WrongGradientWarning(LstmLowerWarning):
    """The model's own gradients are wrong, and lowering keeps them so."""


class BlockLSTMV2GradientPass(Pass):
    """Finds BlockLSTMGrad nodes fed by a BlockLSTMV2.

    TensorFlow registers one gradient function for both forward ops, and it builds BlockLSTMGrad, which reads the gates
    as i, c, f, o, where BlockLSTMV2 packs them as i, f, c, o.

    Attributes:
        repair: turn such nodes into BlockLSTMGradV2 instead of warning.
    """

    def __init__(self, *, repair: bool = False) -> None:
        super().__init__()
        self.repair = repair

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Warns or repairs."""
        found = list(_fed_wrongly(model))
        for node in found:
            if self.repair:
                node.op_type = BlockLSTMGradV2.op_type
                continue
            warn(
                f"BlockLSTMGrad '{node_label(node)}' is fed by a BlockLSTMV2, whose gates are in another order: "
                "its gradients are wrong, in TensorFlow as here. repair_v2_gradient=True lowers it as "
                "BlockLSTMGradV2.",
                WrongGradientWarning,
            )
        return ir.passes.PassResult(model, modified=self.repair and bool(found))

    def ensures(self, model: ir.Model) -> None:
        """Under `repair`, no such node is left.

        Raises:
            ir.passes.PostconditionError: one is.
        """
        if self.repair and (left := list(_fed_wrongly(model))):
            raise ir.passes.PostconditionError(f"BlockLSTMGrad '{node_label(left[0])}' is fed by a BlockLSTMV2")


def _fed_wrongly(model: ir.Model) -> Iterator[ir.Node]:
    for graph in [model.graph, *(function.graph for function in model.functions.values())]:
        for node, definition in composite_nodes(graph):
            if definition is BlockLSTMGrad and _fed_by_v2(node):
                yield node


def _fed_by_v2(node: ir.Node) -> bool:
    operands = Arranged.of(BlockLSTMGrad.inputs, node.inputs, {}).single
    producers = [value.producer() for name in ("i", "f", "ci") if (value := operands.get(name)) is not None]
    return any(producer is not None and definition_of(producer) is BlockLSTMV2 for producer in producers)
