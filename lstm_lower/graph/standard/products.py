"""Matrix products and layers."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Sequence

from lstm_lower.graph.standard.base import Attribute, Operand, Optional, Standard, text


class Product(Standard, abstract=True):
    """A product of matrices."""

    linear = (0, 1)
    a = Operand(0)
    b = Operand(1)


class MatMul(Product): ...


class Gemm(Product):
    """`alpha * a' @ b' + beta * c` of matrices."""

    c = Optional(2)
    alpha = Attribute("alpha", 1.0)
    beta = Attribute("beta", 1.0)
    trans_a = Attribute("transA", 0)
    trans_b = Attribute("transB", 0)


class Einsum(Standard):
    """Einstein's summation, in the forms that numpy has."""

    @property
    def equation(self) -> Equation | None:
        """A letter for each axis; `None` where ranks are not known, which terms without an ellipsis tell."""
        written = text(self.attribute("equation", ""))
        terms = written.replace(" ", "").partition("->")[0].split(",")
        ranks = [self.rank(index) for index in range(len(self.node.inputs))]
        if len(ranks) == len(terms):
            told = [None if "." in term else len(term) for term in terms]
            ranks = [own if rank is None else rank for rank, own in zip(ranks, told, strict=True)]
        known = [rank for rank in ranks if rank is not None]
        return Equation.of(written, known) if len(known) == len(ranks) else None


@dataclasses.dataclass(frozen=True)
class Equation:
    """An equation of Einstein's with a letter for each axis, those of an ellipsis too.

    Attributes:
        inputs: of each operand.
        output: of the result.
        spread: the letters of the longest ellipsis; others have the last ones of these.
    """

    inputs: tuple[str, ...]
    output: str
    spread: str

    @classmethod
    def of(cls, equation: str, ranks: Sequence[int]) -> Equation | None:
        """Reads one; `None` where it does not fit the ranks.

        Without an arrow the result has the ellipsis and then what stands only once, by the alphabet.
        """
        left, arrow, right = equation.replace(" ", "").partition("->")
        terms = left.split(",")
        letters = left.replace("...", "")
        extra = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=False)]
        if len(terms) != len(ranks) or any(
            count < 0 or (count and "..." not in t) for t, count in zip(terms, extra, strict=True)
        ):
            return None
        most = max(extra, default=0)
        spread = "".join(c for c in string.ascii_letters if c not in left)[:most]
        inputs = tuple(term.replace("...", spread[most - count :]) for term, count in zip(terms, extra, strict=True))
        once = "".join(sorted(c for c in set(letters) if c.isalpha() and letters.count(c) == 1))
        return cls(inputs, right.replace("...", spread) if arrow else spread + once, spread)

    def written(self, term: str) -> str:
        """Letters of an ellipsis, which stand together, as an ellipsis."""
        own = "".join(label for label in term if label in self.spread)
        return term.replace(own, "...") if own else term
