"""Products, normalizations, recurrent layers, attention, losses and quantization."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Sequence
from typing import ClassVar

import onnx_ir as ir

from lstm_lower.errors import InvalidModelError, requires
from lstm_lower.graph.standard.images import Filtering
from lstm_lower.graph.standard.reductions import AlongAxis
from lstm_lower.graph.standard.view import Attribute, Operand, Optional, Standard, counted, text

# Matrix products and layers.


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
        closed = [rank for rank in ranks if rank is not None]
        return Equation.of(written, closed) if len(closed) == len(ranks) else None


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


# Normalizations: operators that scale a tensor by its own statistics. Channels are axis 1.


class Normalization(Standard, abstract=True):
    """Of its first operand."""

    data = Operand(0)
    epsilon = Attribute("epsilon", 1e-5)


class Affine(Normalization, abstract=True):
    """Scales and shifts the result."""

    scale = Operand(1)
    bias = Operand(2)


# The opset from which an attribute of a BatchNormalization says whether it trains.
_TRAINING_MODE = 14


class BatchNormalization(Affine):
    """Statistics over all axes but the channels'."""

    running_mean = Operand(3, "a running mean")
    running_variance = Operand(4, "a running variance")
    momentum = Attribute("momentum", 0.9)

    @property
    def training_mode(self) -> bool:
        """Whether the statistics are those of the batch; before opset 14 more outputs than Y ask for that."""
        if self.facts.opset < _TRAINING_MODE:
            return any(value.name for value in self.node.outputs[1:])
        return bool(self.attribute("training_mode", 0))


# The opset from which scale and bias of a GroupNormalization belong to channels.
_OF_CHANNELS = 21


class GroupNormalization(Affine):
    """Scale and bias belong to groups before opset 21, to channels since."""

    num_groups = Attribute("num_groups", 1)

    @property
    def of_groups(self) -> bool:
        """Whether scale and bias belong to groups."""
        return self.facts.opset < _OF_CHANNELS


class InstanceNormalization(Affine): ...


class LayerNormalization(AlongAxis):
    """Statistics over all axes from `axis` on."""

    scale = Operand(1)
    bias = Optional(2)
    epsilon = Attribute("epsilon", 1e-5)

    @property
    def stash(self) -> ir.DataType:
        """The dtype of the statistics that it gives."""
        return ir.DataType(self.attribute("stash_type", 1))


class RMSNormalization(AlongAxis):
    """Over all axes from `axis` on, whose mean stays."""

    scale = Operand(1)
    epsilon = Attribute("epsilon", 1e-5)


class MeanVarianceNormalization(Normalization):
    axes = Attribute("axes", (0, 2, 3))


class LpNormalization(AlongAxis):
    p = Attribute("p", 2)


class LRN(Normalization):
    """Over `size` neighbouring channels."""

    alpha = Attribute("alpha", 1e-4)
    beta = Attribute("beta", 0.75)
    shift = Attribute("bias", 1.0)
    size = Attribute("size", 1)


# ONNX's own recurrent layers.


# Activations by their lower-case names, with the values that alpha and beta have where a node gives none; `None` where
# ONNX names no such value: Affine and ScaledTanh are no operators any more. One that takes no alpha takes no entry.
_ALPHA: dict[str, float | None] = {
    "affine": None,
    "elu": 1.0,
    "hardsigmoid": 0.2,
    "leakyrelu": 0.01,
    "scaledtanh": None,
    "thresholdedrelu": 1.0,
}
_BETA: dict[str, float | None] = {"affine": 0.0, "hardsigmoid": 0.5, "scaledtanh": None}
_WITHOUT_VALUES = frozenset(("relu", "sigmoid", "softplus", "softsign", "tanh"))
_BOUNDED = frozenset(("hardsigmoid", "sigmoid", "softsign", "tanh"))

_BACKWARDS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclasses.dataclass(frozen=True)
class Activation:
    """A function within a cell.

    Attributes:
        name: its name in lower case.
        alpha: its first parameter; 0 where it has none.
        beta: its second parameter; 0 where it has none.
    """

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    @property
    def is_bounded(self) -> bool:
        """Whether its values lie within -1..1."""
        return self.name in _BOUNDED


class Recurrent(Standard, abstract=True):
    """x `[T, B, I]`, w `[D, G*H, I]`, r `[D, G*H, H]`, bias `[D, 2*G*H]`, lengths `[B]`, initial_h `[D, B, H]`.

    Where `layout` is 1, the batch stands first in x, in states and in results.

    Attributes:
        default_activations: of one direction.
    """

    default_activations: ClassVar[tuple[str, ...]]
    x = Operand(0)
    w = Operand(1)
    r = Operand(2)
    bias = Optional(3)
    lengths = Optional(4)
    initial_h = Optional(5)
    layout = Attribute("layout", 0)

    @property
    def backwards(self) -> tuple[bool, ...]:
        """For each direction whether it walks from the last step to the first.

        Raises:
            InvalidModelError: there is no such direction.
        """
        direction = self.attribute("direction", "forward")
        if direction not in _BACKWARDS:
            raise self._fault("direction", f"one of {', '.join(_BACKWARDS)}", direction)
        return _BACKWARDS[direction]

    @property
    def clip(self) -> float | None:
        """The bound of what activations are applied to.

        Raises:
            InvalidModelError: it bounds nothing.
        """
        clip: float | None = self.attribute("clip", None)
        if clip is not None and not clip > 0:
            raise self._fault("clip", "a bound above 0, or none", clip)
        return clip

    @property
    def activations(self) -> tuple[tuple[Activation, ...], ...]:
        """The functions of each direction, in the order in which the operator names them.

        Raises:
            InvalidModelError: a function is not known, or functions or values that they need are missing.
        """
        each, directions = len(self.default_activations), len(self.backwards)
        given = self.attribute("activations", None) or self.default_activations * directions
        # RNN's schema has two as the default, also for one direction.
        names = [name.lower() for name in given[: each * directions]]
        if len(names) < each * directions:
            raise self._fault("activations", f"{each * directions} functions", len(names))
        # Only functions that take a value use one up.
        values = {key: iter(self.attribute(f"activation_{key}", ())) for key in ("alpha", "beta")}
        chosen = []
        for name in names:
            if name not in _ALPHA and name not in _WITHOUT_VALUES:
                raise self._fault("activations", f"functions among {sorted({*_ALPHA, *_WITHOUT_VALUES})}", name)
            taken = {}
            for key, defaults in (("alpha", _ALPHA), ("beta", _BETA)):
                value = next(values[key], defaults[name]) if name in defaults else 0.0
                if value is None:
                    raise self._fault(f"activation_{key}", f"a value for {name}, which has no default", "none")
                taken[key] = value
            chosen.append(Activation(name, **taken))
        return tuple(tuple(chosen[start : start + each]) for start in range(0, len(chosen), each))

    def _fault(self, attribute: str, what: str, got: object) -> InvalidModelError:
        return InvalidModelError(requires(self.op_type, self.node.name, attribute, what, got))


class LSTM(Recurrent):
    """Gates i, o, f, c; activations of gates, cell input and cell state. peepholes `[D, 3*H]` of i, o, f."""

    default_activations = ("Sigmoid", "Tanh", "Tanh")
    initial_c = Optional(6)
    peepholes = Optional(7)
    input_forget = Attribute("input_forget", 0)


class GRU(Recurrent):
    """Gates z, r, h; activations of gates and hidden gate."""

    default_activations = ("Sigmoid", "Tanh")
    linear_before_reset = Attribute("linear_before_reset", 0)


class RNN(Recurrent):
    """One gate and its activation."""

    default_activations = ("Tanh",)


# Attention, losses and quantization.


class Attention(Standard): ...


class LinearAttention(Standard): ...


class CausalConvWithState(Standard): ...


class RotaryEmbedding(Standard):
    cosines = Operand(1, "cosines of a rotary embedding")
    sines = Operand(2, "sines of a rotary embedding")


class ClassLoss(Standard, abstract=True):
    """A loss of scores and of class numbers, which are 0 .. C-1 or the one that is ignored."""

    labels = Operand(1)
    ignored: Attribute[int | None] = Attribute("ignore_index", None)


class SoftmaxCrossEntropyLoss(ClassLoss): ...


class NegativeLogLikelihoodLoss(ClassLoss): ...


_SCALES, _ZERO_POINTS = "scales of quantized numbers", "zero points of quantized numbers"


class Scaled(Standard, abstract=True):
    """Between numbers and the integers that stand for them, by a scale for all, for each of an axis, or for a block."""

    data = Operand(0)
    scale = Operand(1, _SCALES)
    zero_point = Optional(2, _ZERO_POINTS)
    block_size = Attribute("block_size", 0)

    @property
    def axis(self) -> int | None:
        """The axis that has a scale for each element, or for each block of them."""
        return counted(self.attribute("axis", 1), self.rank())


class QuantizeLinear(Scaled): ...


class DequantizeLinear(Scaled): ...


class DynamicQuantizeLinear(Standard):
    data = Operand(0)


class MatMulInteger(Standard):
    a_zero_point = Optional(2, _ZERO_POINTS)
    b_zero_point = Optional(3, _ZERO_POINTS)


class ConvInteger(Filtering):
    x_zero_point = Optional(2, _ZERO_POINTS)
    w_zero_point = Optional(3, _ZERO_POINTS)


class QLinear(Standard, abstract=True):
    """Of quantized numbers, to quantized numbers."""

    a_scale = Operand(1, _SCALES)
    b_scale = Operand(4, _SCALES)
    y_scale = Operand(6, _SCALES)


class QLinearMatMul(QLinear): ...


class QLinearConv(QLinear): ...
