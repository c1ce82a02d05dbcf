"""Symbolic dimensions of operands: parsing `"I+H 4*H"` and unifying the symbols over one node.

A shape is written as blank-separated dimensions, each a sum of symbols with integer factors. A leading or trailing
`*S` stands for any number of dimensions, bound as a whole.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from lstm_lower.errors import InvalidInputError, MisfitError


class SizeIdentity:
    """A size that is known by its identity alone: equal where that is."""

    __slots__ = ()

    def __str__(self) -> str:
        return "?"


# A known size, the name of a symbolic one, one known by identity, or nothing known.
Dim = int | str | SizeIdentity | None
Shape = Sequence[Dim]


def is_name(dim: str) -> bool:
    """Whether a dimension's name is one, which stands for one size; some exporters write `?` for every open one."""
    return any(map(str.isalnum, dim))


# More axes than any runtime's tensor has: what says more is damaged.
MAX_RANK = 64

_TERM = re.compile(r"(?:(\d+)\*)?([A-Za-z_]\w*)|(\d+)")


@dataclasses.dataclass(frozen=True)
class LinearDim:
    """A dimension `sum(factor * symbol) + constant`, for example `I+H` or `4*H`."""

    terms: tuple[tuple[str, int], ...]
    constant: int
    text: str

    @property
    def symbol(self) -> str | None:
        """The symbol when the dimension is just that symbol, else `None`."""
        if self.constant == 0 and len(self.terms) == 1 and self.terms[0][1] == 1:
            return self.terms[0][0]
        return None

    def value(self, sizes: dict[str, Dim]) -> int | None:
        """The size when every symbol has a known one, else `None`."""
        total = self.constant
        for symbol, factor in self.terms:
            size = sizes.get(symbol)
            if not isinstance(size, int):
                return None
            total += factor * size
        return total

    def dim(self, sizes: dict[str, Dim]) -> Dim:
        """The size, or the name of the symbolic one when the dimension is a lone symbol."""
        return sizes.get(self.symbol) if self.symbol is not None else self.value(sizes)


@dataclasses.dataclass(frozen=True)
class ShapeSpec:
    """A parsed shape; `rest` names the `*S` part, which stands first when `rest_first`."""

    dims: tuple[LinearDim, ...]
    rest: str | None
    rest_first: bool
    text: str

    def split(self, shape: Shape) -> tuple[Sequence[Dim], tuple[Dim, ...] | None] | None:
        """Divides an actual shape into the single dimensions and the `*S` part; `None` when the rank does not fit."""
        if self.rest is None:
            return (shape, None) if len(shape) == len(self.dims) else None
        count = len(shape) - len(self.dims)
        if count < 0:
            return None
        if self.rest_first:
            return shape[count:], tuple(shape[:count])
        return shape[: len(self.dims)], tuple(shape[len(self.dims) :])


def parse_dim(text: str) -> LinearDim:
    """Parses one dimension, for example `I+H`."""
    factors: dict[str, int] = {}
    constant = 0
    for part in text.split("+"):
        match = _TERM.fullmatch(part)
        if match is None:
            raise InvalidInputError(f"a dimension requires a sum of terms as in 4*H+I+1, got {text!r}")
        factor, symbol, number = match.groups()
        if number is not None:
            constant += int(number)
        else:
            factors[symbol] = factors.get(symbol, 0) + int(factor or 1)
    return LinearDim(tuple(factors.items()), constant, text)


def parse_shape(text: str) -> ShapeSpec:
    """Parses a shape, for example `"T B I"`, `""` for a scalar, or `"*S C"`."""
    parts = text.split()
    rest_at = [index for index, part in enumerate(parts) if part.startswith("*")]
    if len(rest_at) > 1 or (rest_at and rest_at[0] not in (0, len(parts) - 1)):
        raise InvalidInputError(f"a shape requires at most one *rest, the first or the last, got {text!r}")
    rest = parts.pop(rest_at[0])[1:] if rest_at else None
    dims = tuple(parse_dim(part) for part in parts)
    return ShapeSpec(dims, rest, bool(rest_at) and rest_at[0] == 0, text)


def format_shape(shape: Shape) -> str:
    """`[T, 3, ?]`: known sizes, names of symbolic ones, `?` for nothing known."""
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"


def unknown_sizes(rank: Dim) -> tuple[Dim, ...] | None:
    """A shape of which only the rank is known; `None` where that is not, or higher than that of any tensor."""
    return (None,) * rank if isinstance(rank, int) and 0 <= rank <= MAX_RANK else None


def agree(first: Shape | None, second: Shape | None) -> bool:
    """Whether two shapes may be one and the same, as far as they are known."""
    if first is None or second is None:
        return True
    return len(first) == len(second) and starts(first, second)


def starts(whole: Shape, part: Shape) -> bool:
    """Whether a shape may start with another, as far as they are known."""
    pairs = zip(whole, part, strict=False)
    clash = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)
    return len(part) <= len(whole) and not clash


def broadcast_shapes(first: Shape, second: Shape) -> tuple[Dim, ...] | None:
    """The shape that two broadcast to; `None` where they do not."""
    rank = max(len(first), len(second))
    pairs = zip((1,) * (rank - len(first)) + tuple(first), (1,) * (rank - len(second)) + tuple(second), strict=True)
    merged: list[Dim] = []
    for a, b in pairs:
        if isinstance(a, int) and isinstance(b, int) and a != b and 1 not in (a, b):
            return None
        merged.append(_common(a, b))
    return tuple(merged)


def _common(first: Dim, second: Dim) -> Dim:
    """The size that two sizes broadcast to; of an open one and a known one other than 1 the known one."""
    if first == 1 or first == second:
        return second
    if second == 1 or isinstance(first, int):
        return first
    return second if isinstance(second, int) else None


class Unifier:
    """Binds the symbols of one node's operands to sizes, in the operands' order.

    Attributes:
        sizes: symbol -> size, name, or `None`. Known sizes win over names.
        rests: `*S` symbol -> dimensions.
    """

    def __init__(self) -> None:
        self.sizes: dict[str, Dim] = {}
        self.rests: dict[str, tuple[Dim, ...]] = {}
        self._origin: dict[str, str] = {}
        self._pending: list[tuple[str, ShapeSpec, LinearDim, int, Shape]] = []

    def add(self, operand: str, spec: ShapeSpec, shape: Shape) -> None:
        """Adds one operand's actual shape.

        Raises:
            MisfitError: the rank or a size contradicts the specification or an earlier operand.
        """
        parts = spec.split(shape)
        if parts is None:
            required = f"rank {len(spec.dims)}" if spec.rest is None else f"rank {len(spec.dims)} or more"
            raise MisfitError(operand, f"{required} [{', '.join(spec.text.split())}]", f"{format_shape(shape)}")
        dims, rest = parts
        for dim, actual in zip(spec.dims, dims, strict=True):
            if dim.symbol is not None:
                self._bind(operand, spec, dim.symbol, actual, shape)
            elif isinstance(actual, int):
                self._pending.append((operand, spec, dim, actual, shape))
        if rest is not None and spec.rest is not None:
            self._bind_rest(operand, spec, rest, shape)

    def solve(self) -> None:
        """Solves the compound dimensions added so far, which binds further symbols.

        Raises:
            MisfitError: a compound dimension cannot hold.
        """
        progress = True
        while progress:
            progress = False
            for operand, spec, dim, actual, shape in self._pending:
                unknown = [(s, f) for s, f in dim.terms if not isinstance(self.sizes.get(s), int)]
                if len(unknown) != 1:
                    continue
                symbol, factor = unknown[0]
                others = [(self.sizes[s], f) for s, f in dim.terms if s != symbol]
                known = dim.constant + sum(f * size for size, f in others if isinstance(size, int))
                size, remainder = divmod(actual - known, factor)
                if remainder or size < 0:
                    raise MisfitError(operand, self._required(spec), format_shape(shape))
                self.sizes[symbol] = size
                self._origin[symbol] = operand
                progress = True
        for operand, spec, dim, actual, shape in self._pending:
            value = dim.value(self.sizes)
            if value is not None and value != actual:
                raise MisfitError(operand, self._required(spec), format_shape(shape))

    def shape(self, spec: ShapeSpec) -> tuple[Dim, ...] | None:
        """The shape that a specification has under the bindings; `None` when its rank is open."""
        dims = tuple(dim.dim(self.sizes) for dim in spec.dims)
        if spec.rest is None:
            return dims
        rest = self.rests.get(spec.rest)
        if rest is None:
            return None
        return rest + dims if spec.rest_first else dims + rest

    def _bind(self, operand: str, spec: ShapeSpec, symbol: str, actual: Dim, shape: Shape) -> None:
        bound = self.sizes.get(symbol)
        if isinstance(bound, int) and isinstance(actual, int) and bound != actual:
            raise MisfitError(operand, self._required(spec), format_shape(shape))
        if bound is None or (isinstance(actual, int) and not isinstance(bound, int)):
            self.sizes[symbol] = actual
            if isinstance(actual, int):
                self._origin[symbol] = operand

    def _bind_rest(self, operand: str, spec: ShapeSpec, rest: tuple[Dim, ...], shape: Shape) -> None:
        assert spec.rest is not None
        bound = self.rests.get(spec.rest)
        if bound is None:
            self.rests[spec.rest] = rest
            self._origin[spec.rest] = operand
            return
        if not agree(bound, rest):
            raise MisfitError(operand, self._required(spec), format_shape(shape))
        self.rests[spec.rest] = tuple(b if isinstance(b, int) else a for a, b in zip(bound, rest, strict=True))

    def _required(self, spec: ShapeSpec) -> str:
        """`shape [B, H] = [2, 4] (B from x, H from cs_prev)`."""
        symbolic = "[" + ", ".join(spec.text.split()) + "]"
        dims = self.shape(spec)
        known = "" if dims is None else f" = {format_shape([d if isinstance(d, int) else None for d in dims])}"
        symbols = [s for dim in spec.dims for s, _ in dim.terms] + ([spec.rest] if spec.rest else [])
        origins = [f"{s} from {self._origin[s]}" for s in dict.fromkeys(symbols) if s in self._origin]
        return f"shape {symbolic}{known}" + (f" ({', '.join(origins)})" if origins else "")
