"""Everything that a package of ops of one's own needs: definitions, lowering rules, oracles, finite differences.

`docs/adding-an-op.md` adds an op with it. A package offers its ops by an entry point of the group `lstm_lower.ops`; a
module that is imported, named by `--plugin` or run in a notebook needs none.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.runtime.proof.oracles.finite_differences import Pairing, check_backward, pairs
from lstm_lower.runtime.proof.oracles.registry import oracle

__all__ = [
    "Call",
    "DType",
    "Node",
    "OpDef",
    "Pairing",
    "TensorInfo",
    "attr",
    "check_backward",
    "lowers",
    "operand",
    "oracle",
    "pairs",
]
