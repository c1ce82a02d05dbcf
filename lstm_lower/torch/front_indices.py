"""Indices that PyTorch takes from 0 on only: a negative one, which ONNX counts from the end, fails as it does there.

`x[i]`, `take`, `put`, `index_put` and `index_fill` count negative ones from the end in PyTorch, too; what stands here
refuses them (PyTorch 2.13, on the processor).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnxscript import opset18 as op
from torch import Tensor, fx
from torch.nn import functional

from lstm_lower.passes.formulas.indices import from_front
from lstm_lower.torch.functions import node
from lstm_lower.torch.nodes import DOMAIN, Formula, Traced

# Operator -> the position of its indices, as a function and in place.
_INDICES = {
    "embedding": 1,
    "gather": 2,
    "index_add": 2,
    "index_copy": 2,
    "index_reduce": 2,
    "index_select": 2,
    "scatter": 2,
    "scatter_add": 2,
    "scatter_reduce": 2,
}


@torch.library.custom_op("lstm_lower::from_front", mutates_args=())
def _from_front(indices: Tensor) -> Tensor:
    """Indices none of which is negative."""
    return indices.clone()


@_from_front.register_fake
def _(indices: Tensor) -> Tensor:
    return torch.empty_like(indices)


def mark_front_indices(program: torch.export.ExportedProgram) -> None:
    """Marks in a trace, and in the traces within it, the indices of operators that take none from the end."""
    for part in program.graph_module.modules():
        if not isinstance(part, fx.GraphModule):
            continue
        for each in list(part.graph.nodes):
            place = _INDICES.get(_name(each.target)) if each.op == "call_function" else None
            indices = None if place is None or place >= len(each.args) else each.args[place]
            if not isinstance(indices, fx.Node) or place is None:
                continue
            with part.graph.inserting_before(each):
                marked = part.graph.call_function(torch.ops.lstm_lower.from_front.default, (indices,))
            marked.meta = dict(indices.meta)
            each.update_arg(place, marked)
        part.recompile()


def _name(target: Any) -> str:
    """The name of one of PyTorch's own operators, without the mark of what works in place."""
    own = isinstance(target, torch._ops.OpOverload) and target.namespace == "aten"
    return target._schema.name.removeprefix("aten::").removesuffix("_") if own else ""


def _marked(indices: Any) -> Any:
    """A node of ours: which indices cannot be negative shows when the whole model is there."""
    found = op.Identity(indices)
    made = found.producer()
    made.domain, made.op_type = DOMAIN, "FromFront"
    return found


def _from_front_of(n: Traced) -> list[Any]:
    return [from_front(n.operand(0))]


def _class_of(n: Traced) -> list[Any]:
    """Elements of 0, 1, ... below a size, which are looked up in these."""
    return [n.operand(1).take(from_front(n.operand(0)))]


def _one_hot(tensor: Tensor, num_classes: Any = -1) -> Any:
    """Of classes that there are: ONNX's own makes zeros of others. An open number of them the exporter fixes."""
    is_open = isinstance(num_classes, torch.SymInt)
    if not is_open and num_classes < 0:
        return NotImplemented
    classes = torch.arange(num_classes)
    (number,) = node(f"{DOMAIN}::ClassOf", [tensor, classes], {}, [(classes, tensor.shape)])
    return (number.unsqueeze(-1) == classes).to(torch.int64) if is_open else functional.one_hot(number, num_classes)


TRANSLATION: dict[Callable[..., Any], Callable[..., Any]] = {torch.ops.lstm_lower.from_front.default: _marked}
FORMULAS: dict[str, Formula] = {"FromFront": _from_front_of, "ClassOf": _class_of}
CLASSES: dict[Any, Callable[..., Any]] = {functional.one_hot: _one_hot}
