"""Definitions of TensorFlow's products of matrices.

Signatures: TensorFlow's raw ops of the same names. Symbols: I, J rows and columns of the product, K what is added up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from lstm_lower import dims
from lstm_lower.dims import Dim
from lstm_lower.opdef import Call, Operand
from lstm_lower.ops.raw import COMPLEX, COMPUTED, RawOp

_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
# The label of any number of axes in an equation.
ELLIPSIS = "..."

_TRANSPOSED = {"I K": dims.parse_shape("K I"), "K J": dims.parse_shape("J K")}


class MatMul(RawOp, a="I K", b="K J"):
    """The product of two matrices, each of which may be transposed."""

    @classmethod
    def shape_spec(cls, operand: Operand, attributes: Mapping[str, Any]) -> dims.ShapeSpec | None:
        """A transposed operand has its sizes the other way round."""
        spec = operand.spec
        return _TRANSPOSED[spec.text] if spec is not None and attributes.get(f"transpose_{operand.name}") else spec


class _BatchMatMul(RawOp, abstract=True):
    """Products of matrices, which are the last two axes; where `adj` says so, the transposed conjugate of one.

    Attributes:
        broadcasts: whether the axes before them do.
    """

    broadcasts: ClassVar[bool] = True

    @classmethod
    def verify(cls, call: Call) -> None:
        """Both are matrices that fit."""
        x, y = call.operands["x"].shape, call.operands["y"].shape
        for name, shape in (("x", x), ("y", y)):
            if shape is not None and len(shape) < 2:
                raise call.error(name, "rank 2 or more", f"rank {len(shape)}")
        if x is None or y is None:
            return
        inner, other = x[-2 if call.attributes["adj_x"] else -1], y[-1 if call.attributes["adj_y"] else -2]
        if isinstance(inner, int) and isinstance(other, int) and inner != other:
            raise call.error("y", f"{inner} {'columns' if call.attributes['adj_y'] else 'rows'} (as x)", list(y))
        if not cls.broadcasts and not dims.agree(x[:-2], y[:-2]):
            raise call.error("y", f"a shape that starts with {list(x[:-2])} (as x)", list(y))
        if dims.broadcast_shapes(x[:-2], y[:-2]) is None:
            raise call.error("y", f"batches that broadcast with {list(x[:-2])} (as x)", list(y))


class BatchMatMul(_BatchMatMul):
    """Products of matrices, the batches of one shape."""

    broadcasts = False


class BatchMatMulV2(_BatchMatMul):
    """Products of matrices, of batches that broadcast."""


class BatchMatMulV3(
    _BatchMatMul,
    Ta=(*COMPUTED, "uint8", "int8", "int16"),
    Tb=(*COMPUTED, "uint8", "int8", "int16"),
    Tout=(*COMPUTED, "int16"),
):
    """Products of matrices of any dtypes, in a third one; the batches broadcast."""


@dataclasses.dataclass(frozen=True)
class Equation:
    """Einstein's summation: labels of the operands' axes and of the result's; an ellipsis is one label.

    Attributes:
        inputs: labels of each operand.
        output: labels of the result.
    """

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Equation | None:
        """Reads `ij,jk->ik`; `None` where it is no equation."""
        left, arrow, right = text.replace(" ", "").partition("->")
        terms = [tuple(_labels(term)) for term in (*left.split(","), right)]
        single = all(label == ELLIPSIS or label.isalpha() for term in terms for label in term)
        if not arrow or not single or any(term.count(ELLIPSIS) > 1 for term in terms):
            return None
        *inputs, output = terms
        known = {label for term in inputs for label in term}
        return cls(tuple(inputs), output) if set(output) <= known else None

    @property
    def diagonal(self) -> bool:
        """Whether the result has a label twice, and zeros off that diagonal."""
        return len(set(self.output)) != len(self.output)


def _labels(term: str) -> list[str]:
    before, ellipsis, behind = term.partition(ELLIPSIS)
    return [*before, *([ellipsis] if ellipsis else []), *behind]


class Einsum(RawOp, T=(*COMPUTED, *COMPLEX)):
    """Einstein's summation over the axes of one tensor or two."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are as many operands as the equation has, of its ranks and sizes."""
        text, infos = call.attributes["equation"], call.lists["inputs"]
        equation = Equation.of(text)
        if equation is None:
            raise call.error("attribute equation", "labels as in ij,jk->ik", repr(text))
        if equation.diagonal and ELLIPSIS in equation.output:
            raise call.error("attribute equation", "each label once beside an ellipsis in the result", repr(text))
        if len(equation.inputs) != len(infos) or len(infos) > 2:
            raise call.error("inputs", f"one for each of {len(equation.inputs)} terms, two at most", len(infos))
        sizes: dict[str, Dim] = {}
        rest: tuple[Dim, ...] | None = ()
        for number, (labels, info) in enumerate(zip(equation.inputs, infos, strict=True)):
            if info.shape is None:
                rest = None if ELLIPSIS in labels else rest
                continue
            free = len(info.shape) - len(labels) + (ELLIPSIS in labels)
            if free < 0 or (free and ELLIPSIS not in labels):
                raise call.error(f"inputs[{number}]", f"an axis for each label of {''.join(labels)}", list(info.shape))
            split = labels.index(ELLIPSIS) if ELLIPSIS in labels else len(labels)
            named = [*info.shape[:split], *info.shape[split + free :]]
            if rest is not None:
                before, rest = rest, dims.broadcast_shapes(rest, info.shape[split : split + free])
                if rest is None:
                    what = f"an ellipsis that broadcasts with {list(before)} (as that before)"
                    raise call.error(f"inputs[{number}]", what, list(info.shape))
            for label, dim in zip([label for label in labels if label != ELLIPSIS], named, strict=True):
                known = sizes.setdefault(label, dim)
                if isinstance(known, int) and isinstance(dim, int) and known != dim:
                    raise call.error(f"inputs[{number}]", f"size {known} at label {label}", list(info.shape))
                sizes[label] = known if isinstance(known, int) else dim
