"""What each operator of ATen means: a function of its call and operands that emits a formula.

A translation is registered by the overloads that it is of and is called as `(n, *args, **kwargs)`, with the operands of
the call as PyTorch's schema orders them: defaults that a call leaves out are those of the function, which states them.

- Tensors are `Expr`; complex ones too, of dtype complex64 or complex128, which a pass takes apart later.
- Sizes and other numbers of a trace are `int`, `float` or `bool` where they are known, else scalar expressions: int64,
  double or bool without axes.
- Lists are lists of these, `None` stays, and dtypes are PyTorch's. Keywords that say where and how a tensor lies in
  memory (`device`, `layout`, `pin_memory`, `memory_format`, `non_blocking`) never arrive.

It returns an expression, a sequence of them for an operator of several results (`None` for one that nothing reads), or
`None` for one without results. Results are cast to the dtypes that PyTorch states.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import from_torch_dtype, to_torch_dtype
from torch import Tensor
from torch.utils._pytree import tree_map_only

from lstm_lower.dtypes import is_complex
from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.values import Dim
from lstm_lower.torch.aten.sizes import Sizes
from lstm_lower.torch.aten.tracing import operator
from lstm_lower.torch.pytorch_errors import is_users

Result = Expr | Sequence[Expr | None] | None
Formula = Callable[..., Result]
F = TypeVar("F", bound=Formula)

# A size: known, or a scalar int64 expression.
Size = int | Expr

TRANSLATIONS: dict[Any, Formula] = {}
# Of complex numbers, where that is another formula than of real ones.
_OF_COMPLEX: dict[Any, Formula] = {}


def translates(*overloads: Any, of_complex: bool = False) -> Callable[[F], F]:
    """Registers the translation of operators: overloads of ATen's, or operators of higher order.

    Args:
        overloads: the operators.
        of_complex: the formula holds where the first operand is a tensor of complex numbers, and another one elsewhere.
    """
    table = _OF_COMPLEX if of_complex else TRANSLATIONS

    def register(formula: F) -> F:
        table.update(dict.fromkeys(overloads, formula))
        return formula

    return register


def translation(operator: Any, operands: Sequence[Any]) -> Formula | None:
    """The translation of a call of an operator; `None` where it has none."""
    first = operands[0] if operands else None
    own = _OF_COMPLEX.get(operator) if isinstance(first, Expr) and is_complex(first.dtype) else None
    return own or TRANSLATIONS.get(operator)


class Translating(Protocol):
    """The translation of a program, as formulas see it.

    Attributes:
        sizes: the open sizes of the trace.
    """

    sizes: Sizes

    def import_domain(self, domain: str) -> None:
        """Lets the model hold nodes of another domain."""

    def graph(self, module: torch.fx.GraphModule, operands: Sequence[Any], b: Builder) -> list[Any]:
        """Translates a graph within the program, of operands, into a builder's; returns its results."""


class AtenCall:
    """A call of an operator in a trace.

    Attributes:
        translation: the translation that it is part of.
        node: the call.
        b: emits its formula.
        changes: operand that it changes in place -> the new value.
    """

    def __init__(self, translation: Translating, node: torch.fx.Node, b: Builder) -> None:
        self.translation = translation
        self.node = node
        self.b = b
        self.changes: dict[torch.fx.Node, Expr] = {}

    def change(self, index: int, value: Expr) -> None:
        """Gives an operand another value from here on, in its dtype."""
        changed = self.node.args[index]
        assert isinstance(changed, torch.fx.Node)
        self.changes[changed] = value.cast(from_torch_dtype(changed.meta["val"].dtype))

    @property
    def results(self) -> list[Any]:
        """PyTorch's values of the results: fake tensors and symbolic numbers, which have shapes and dtypes alone."""
        value = self.node.meta.get("val")
        return list(value) if isinstance(value, (tuple, list)) else [value]

    @property
    def dtypes(self) -> list[ir.DataType | None]:
        """Dtypes of the results; `None` for what is no tensor."""
        return [from_torch_dtype(x.dtype) if isinstance(x, torch.Tensor) else None for x in self.results]

    @property
    def dtype(self) -> ir.DataType:
        """Dtype of the first result."""
        dtype = self.dtypes[0]
        assert dtype is not None
        return dtype

    @property
    def shapes(self) -> list[list[Size]]:
        """Sizes of the results."""
        return [self.sizes(x.shape) if isinstance(x, torch.Tensor) else [] for x in self.results]

    @property
    def shape(self) -> list[Size]:
        """Sizes of the first result."""
        return self.sizes(self.results[0].shape)

    def fake(self, index: int) -> Any:
        """PyTorch's value of an operand: a fake tensor, a symbolic or plain number, or a list of these."""
        return tree_map_only(torch.fx.Node, lambda node: node.meta.get("val"), self.node.args[index])

    def size(self, number: Any) -> Any:
        """A symbolic number of PyTorch's as a plain one where it is known, else as a scalar expression."""
        return self.translation.sizes.number(number)

    def sizes(self, numbers: Any) -> list[Size]:
        """Symbolic numbers, or the sizes of a fake tensor, as `size` has them."""
        return [self.size(x) for x in (numbers.shape if isinstance(numbers, torch.Tensor) else numbers)]

    def vector(self, sizes: Sequence[Size]) -> Expr:
        """An int64 vector of sizes."""
        return self.b.sizes([x if isinstance(x, int) else x.cast(ir.DataType.INT64).unsqueeze(0) for x in sizes])

    def count(self, sizes: Sequence[Size]) -> Size:
        """The product of sizes."""
        known = math.prod(x for x in sizes if isinstance(x, int))
        result: Size = known
        for x in sizes:
            if isinstance(x, Expr):
                result = x if isinstance(result, int) and result == 1 else x * result
        return result

    def reshape(self, x: Expr, sizes: Sequence[Size]) -> Expr:
        """Another shape for the same elements."""
        unknown = [axis for axis, size in enumerate(sizes) if isinstance(size, Expr)]
        if len(unknown) == 1 and 0 not in sizes:
            # What a single open size is, follows from the others.
            return x.reshape(*[size if isinstance(size, int) else -1 for size in sizes])
        if 0 in sizes:
            return self.b.op(std.Reshape, x, self.vector(sizes), allowzero=1)
        return self.b.op(std.Reshape, x, self.vector(sizes))

    def scalar(self, value: Any, dtype: ir.DataType | torch.dtype) -> Expr:
        """A number, known or not, as a tensor without axes."""
        dtype = from_torch_dtype(dtype) if isinstance(dtype, torch.dtype) else dtype
        return value.cast(dtype) if isinstance(value, Expr) else self.b.constant(value, dtype)

    def promoted(self, *operands: Any, dtype: ir.DataType | None = None) -> list[Expr]:
        """Operands, tensors and numbers, in one dtype: a given one, else what PyTorch's rules of promotion say."""
        dtype = self.common_dtype(*operands) if dtype is None else dtype
        return [self.scalar(x, dtype) for x in operands]

    def common_dtype(self, *operands: Any) -> ir.DataType:
        """The dtype that PyTorch computes with tensors and numbers in."""
        ranked: dict[int, list[torch.dtype]] = {}
        for x in operands:
            # Tensors with axes decide before those without, and these before numbers.
            rank = 2 if not isinstance(x, Expr) else int(x.shape == ())
            ranked.setdefault(rank, []).append(to_torch_dtype(x.dtype) if isinstance(x, Expr) else _of_number(x))
        result, *others = (functools.reduce(torch.promote_types, ranked[rank]) for rank in sorted(ranked))
        for dtype in others:
            if _category(dtype) > _category(result):
                result = torch.promote_types(result, dtype) if _category(result) == 2 else dtype
        return from_torch_dtype(result)

    def of_domain(self, domain: str, op_type: str, operands: Sequence[Expr], **attributes: int) -> list[Expr]:
        """Emits a node of a domain of ours, which a pass takes out later; its results are as the trace states them."""
        own, count = self.b.names.fresh(f"{self.b.scope}/{op_type}"), len(self.results)
        outputs = [
            ir.Value(name=self.b.names.part(own, place, count), type=None if dtype is None else ir.TensorType(dtype))
            for place, dtype in enumerate(self.dtypes)
        ]
        held = [ir.AttrInt64(key, value) for key, value in attributes.items()]
        self.b.place(ir.Node(domain, op_type, [x.value for x in operands], held, outputs=outputs, name=own))
        self.translation.import_domain(domain)
        return [self.told(self.b.wrap(y), fake) for y, fake in zip(outputs, self.results, strict=True)]

    def refuse(self, what: str, way: str) -> UnsupportedOpError:
        """An error for a use of the operator that has no translation, with what to do about it."""
        return UnsupportedOpError(f"{called(self.node)} requires {what}; {way}")

    def told(self, x: Expr, fake: Any) -> Expr:
        """A result of which the trace knows sizes that do not follow from the operands."""
        dims: list[Dim | None] = [self.translation.sizes.dim(size) for size in fake.shape]
        return self.b.set_shape(x, dims)


def called(node: torch.fx.Node) -> str:
    """The operator of a call, and the line that calls it, as far as the trace tells."""
    name = str(getattr(node.target, "_opname", node.target)).strip("_")
    where = line(node.meta.get("stack_trace") or "")
    return f"{name}, which {where} calls," if where else f"{name} '{node.name}'"


def line(stack: str) -> str | None:
    """The innermost line of the user's code in a stack that PyTorch has noted, else of PyTorch's, as `file.py:12`."""
    lines = _lines(stack)
    place = next((each for each in reversed(lines) if is_users(Path(each[0]))), lines[-1] if lines else None)
    return f"{Path(place[0]).name}:{place[1]}" if place else None


def innermost_line(stack: str) -> tuple[str, int] | None:
    """The file and number of the innermost line, whose ever it is."""
    return lines[-1] if (lines := _lines(stack)) else None


def _lines(stack: str) -> list[tuple[str, int]]:
    """Files and numbers, but of lines that PyTorch has written for a trace."""
    frames = re.findall(r'File "(?!<eval_with_key>)([^"]+)", line (\d+)', stack)
    return [(file, int(number)) for file, number in frames]


def _of_number(x: Any) -> torch.dtype:
    """The dtype of one of Python's numbers, as far as promotion goes."""
    if isinstance(x, bool):
        return torch.bool
    if isinstance(x, int):
        return torch.int64
    default = torch.get_default_dtype()
    return default.to_complex() if isinstance(x, complex) else default


def _category(dtype: torch.dtype) -> int:
    """0 for booleans, 1 for integers, 2 for real and 3 for complex numbers: only a higher one changes a dtype."""
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_floating_point else int(dtype != torch.bool)


def node_operator(schema: str, domain: str, op_type: str, *, like: int = 0) -> Callable[..., list[Tensor]]:
    """Declares an operator of ours on lists of tensors that becomes a node of a domain, with their number as `count`.

    Args:
        schema: of the operator.
        domain: of the node.
        op_type: of the node.
        like: which of the lists has the sizes of the results.

    Returns:
        The overload, to be called in traces.
    """

    @operator(schema)
    def declared(*groups: Sequence[Tensor]) -> list[Tensor]:
        return [x.new_empty(x.shape) for x in groups[like]]

    @translates(declared)
    def _node(n: AtenCall, *groups: Sequence[Expr]) -> Sequence[Expr]:
        return n.of_domain(domain, op_type, [x for group in groups for x in group], count=len(groups[0]))

    return declared
