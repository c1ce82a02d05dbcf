"""Lowering of the op on bits."""

from __future__ import annotations

from lstm_lower.dtypes import dtype_name
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import INTEGERS, RawOp
from lstm_lower.passes.rules.registry import Node, lowers


class Bitcast(RawOp, T=INTEGERS, type=INTEGERS):
    """The same bits, read as integers with or without a sign."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Both dtypes have as many bits, so that shapes stay."""
        given, wanted = call.types.get("T"), call.attributes["type"]
        if given is not None and given.itemsize != wanted.itemsize:
            raise call.error("attribute type", f"integers of as many bits as {dtype_name(given)}", dtype_name(wanted))


@lowers(Bitcast, repeatable=True)
def bitcast(n: Node, _: Builder) -> Expr:
    """A Cast, which lets integers of as many bits wrap."""
    return n.moved("input").cast(n.call.attributes["type"])
