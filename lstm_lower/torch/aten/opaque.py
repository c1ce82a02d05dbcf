"""Nodes that stand in a trace for what is no operator of PyTorch's: marks, and gradients within a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from lstm_lower.graph.builder import Expr, detached
from lstm_lower.torch.aten.registry import Call, translates
from lstm_lower.torch.aten.tracing import OPAQUE
from lstm_lower.torch.nodes import DOMAIN


@translates(OPAQUE)
def _node(
    n: Call,
    inputs: Sequence[Expr | None],
    name: str,
    keys: Sequence[str],
    values: Sequence[int],
    *_: Any,
) -> Sequence[Expr]:
    domain, op_type = name.split("::")
    if domain == DOMAIN:
        assert op_type == "Stop", name
        return [detached(x) for x in inputs if x is not None]
    names = n.b.names
    count = len(n.results)
    own = names.fresh(f"{n.b.scope}/{op_type}")
    outputs = [
        ir.Value(name=names.part(own, place, count), type=None if dtype is None else ir.TensorType(dtype))
        for place, dtype in enumerate(n.dtypes)
    ]
    attributes = [ir.AttrInt64(key, value) for key, value in zip(keys, values, strict=True)]
    operands = [None if x is None else x.value for x in inputs]
    n.b.place(ir.Node(domain, op_type, operands, attributes, outputs=outputs, name=own))
    n.translation.import_domain(domain)
    results = [n.b.wrap(value) for value in outputs]
    for x, fake in zip(results, n.results, strict=True):
        n.told(x, fake)
    return results
