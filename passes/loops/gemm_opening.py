"""Gemm opening: a Gemm in a loop's body is written as the product, the scaling and the sum that it is.

This is the normal form of a contraction for all passes on bodies: MatMul, of operands that Transposes turn, times a
number, plus what is added. `kernel-selection` makes Gemms again.

Precondition: a Gemm whose operands' ranks are known: of MatMul and Add no rank follows where those of the operands are
not known, and a Scan's outputs need one. One with its weight in front is as `kernel-selection` writes it, and stays.

Postcondition: there is none.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.passes.loops.views.dependence import Dependence
from lstm_lower.passes.loops.views.loop import Loop, is_over_blocks, scans_of
from lstm_lower.passes.loops.views.loop_pass import LoopPass


class GemmOpening(LoopPass):
    """Writes Gemm as Transpose, MatMul, Mul and Add."""

    def rewrite(self, loop: Loop) -> bool:
        """Opens the Gemms of one loop."""
        gemms = _closed(loop)
        for gemm in gemms:
            _open(loop, gemm)
        if gemms:
            loop.commit()
        return bool(gemms)

    def faults(self, model: ir.Model) -> Iterator[tuple[ir.Node, str]]:
        """Gemms of bodies that can be opened."""
        for node in scans_of(model.graph):
            for gemm in [] if is_over_blocks(node) else _closed(Loop(node, self.context.space)):
                yield gemm.node, "to be a product and a sum"


def _closed(loop: Loop) -> list[std.Gemm]:
    dependence, rank = Dependence(loop), loop.facts.rank
    gemms = [gemm for node in dependence.order if (gemm := std.Gemm.of(node, loop.facts)) is not None]
    return [
        gemm
        for gemm in gemms
        # A factor of 0 drops its term even if that is not finite.
        if gemm.dtype() is not None
        and gemm.alpha
        and all(x is None or rank(x) is not None for x in gemm.inputs)
        and not (gemm.trans_b and not gemm.trans_a and dependence.is_outside(gemm.a))
    ]


def _open(loop: Loop, gemm: std.Gemm) -> None:
    e, dtype = loop.inside(before=gemm.node), gemm.dtype()
    assert dtype is not None
    a = e.transpose(gemm.a, [1, 0]) if gemm.trans_a else gemm.a
    b = e.transpose(gemm.b, [1, 0]) if gemm.trans_b else gemm.b
    result = e.op(std.MatMul, a, b)
    if gemm.alpha != 1.0:
        result = e.op(std.Mul, result, e.constant(gemm.alpha, dtype))
    if gemm.c is not None and gemm.beta:
        bias = gemm.c if gemm.beta == 1.0 else e.op(std.Mul, gemm.c, e.constant(gemm.beta, dtype))
        result = e.op(std.Add, result, bias)
    loop.substitute(gemm.output, result)
