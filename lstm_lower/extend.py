"""Everything that a package of ops of one's own needs: definitions, lowering rules, oracles, finite differences.

Rules for gradients of ONNX's operators, and decompositions of these, are registered with it as well.

`docs/adding-an-op.md` adds an op with it. A package offers its ops by an entry point of the group `lstm_lower.ops`; a
module that is imported, named by `--plugin` or run in a notebook needs none.
"""

from __future__ import annotations

from lstm_lower.graph import standard
from lstm_lower.graph.builder import Builder, Expr, sigmoid, tanh
from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.passes.decompositions import decomposes
from lstm_lower.passes.gradients.registry import Cotangents, differentiates
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.runtime.proof.oracles.finite_differences import Pairing, check_backward, pairs
from lstm_lower.runtime.proof.oracles.registry import oracle

__all__ = [
    "Builder",
    "Call",
    "Cotangents",
    "DType",
    "Expr",
    "Node",
    "OpDef",
    "Pairing",
    "TensorInfo",
    "attr",
    "check_backward",
    "decomposes",
    "differentiates",
    "lowers",
    "operand",
    "oracle",
    "pairs",
    "sigmoid",
    "standard",
    "tanh",
]
