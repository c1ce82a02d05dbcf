"""Nodes that stand in a trace for what PyTorch has no operator for, `torch.onnx.ops.symbolic_multi_out`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch.onnx.ops import _symbolic_impl as symbolic

from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.torch.aten.registry import Call, translates
from lstm_lower.torch.nodes import DOMAIN
from lstm_lower.torch.recurrent import FORMULAS


class _Opaque:
    """A node as formulas see it: operands and attributes.

    Attributes:
        b: emits the formula.
        operands: expressions; `None` for one that is left out.
    """

    def __init__(self, b: Builder, operands: Sequence[Expr | None], attributes: dict[str, Any]) -> None:
        self.b = b
        self.operands = list(operands)
        self._attributes = attributes

    def operand(self, index: int) -> Expr:
        """An operand that is never left out."""
        found = self.operands[index]
        assert found is not None
        return found

    def attribute(self, name: str) -> Any:
        """An attribute's value."""
        return self._attributes[name]


@translates(torch.ops.onnx_symbolic._symbolic_multi_out.default)
def _node(
    n: Call,
    inputs: Sequence[Expr | None],
    op_type: str,
    onnx_dtypes: Sequence[int],
    *,
    attr_keys: Sequence[str],
    attr_types: Sequence[str],
    attr_pos: Sequence[tuple[int, int]],
    attr_ints: Sequence[int],
    attr_floats: Sequence[float],
    attr_strs: Sequence[str],
    domain: str = "",
    **_: Any,
) -> Sequence[Expr | None]:
    encoded = symbolic.EncodedAttrs(
        list(attr_keys), list(attr_types), list(attr_pos), list(attr_ints), list(attr_floats), list(attr_strs)
    )
    attributes = encoded.to_dict()
    if domain == DOMAIN:
        return FORMULAS[op_type](_Opaque(n.b, inputs, attributes))  # type: ignore[arg-type]
    count = len(n.results)
    name = n.b.names.fresh(f"{n.b.scope}/{op_type}")
    outputs = [
        ir.Value(name=n.b.names.part(name, place, count), type=ir.TensorType(dtype), shape=None)
        for place, dtype in enumerate(n.dtypes)
        if dtype is not None
    ]
    attrs = [ir.convenience.convert_attribute(key, value) for key, value in attributes.items()]
    values = [None if x is None else x.value for x in inputs]
    n.b.place(ir.Node(domain, op_type, values, attrs, outputs=outputs, name=name))
    n.translation.import_domain(domain)
    results = [n.b.wrap(value) for value in outputs]
    for x, fake in zip(results, n.results, strict=True):
        n.told(x, fake)
    return results
