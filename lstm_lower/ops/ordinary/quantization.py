"""Definitions of the ops that round numbers to a grid as a quantized model would, and of their gradients.

Signatures: TensorFlow's raw ops of the same names. Symbols: C channels, the last axis. The grid has `2 ** num_bits`
numbers, or one less with `narrow_range`, from `min` to `max`, both moved a little so that zero lies on it.
"""

from __future__ import annotations

from typing import Any

from lstm_lower.dims import agree
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import PAIRED, RawOp, number, shape_of


class _Simulated(RawOp, abstract=True):
    @classmethod
    def verify(cls, call: Call) -> None:
        """TensorFlow's kernels take so many bits."""
        bits = call.attributes["num_bits"]
        if not 2 <= bits <= 16:
            raise call.error("attribute num_bits", "a number from 2 to 16", bits)


class _Fixed(_Simulated, abstract=True):
    @classmethod
    def verify(cls, call: Call) -> None:
        """The grid has an extent."""
        super().verify(call)
        low, high = call.attributes["min"], call.attributes["max"]
        if low >= high:
            raise call.error("attribute max", f"a number above min, {low}", high)


class FakeQuantWithMinMaxArgs(_Fixed):
    """Numbers rounded to a grid between two constants."""


class FakeQuantWithMinMaxArgsGradient(_Fixed, gradients="*S", inputs="*S"):
    """Gradient of FakeQuantWithMinMaxArgs: that of the identity on the grid's range, none beyond."""

    forward = "FakeQuantWithMinMaxArgs"


class FakeQuantWithMinMaxVars(_Simulated, min="", max=""):
    """Numbers rounded to a grid; zeros where `min` and `max` are 0."""


class FakeQuantWithMinMaxVarsGradient(_Simulated, gradients="*S", inputs="*S", min="", max=""):
    """Gradient of FakeQuantWithMinMaxVars: what lies beyond the grid's range goes to its ends."""

    forward = "FakeQuantWithMinMaxVars"


class FakeQuantWithMinMaxVarsPerChannel(_Simulated, inputs="*S C", min="C", max="C"):
    """Numbers rounded to a grid of each channel's own."""


class FakeQuantWithMinMaxVarsPerChannelGradient(_Simulated, gradients="*S C", inputs="*S C", min="C", max="C"):
    """Gradient of FakeQuantWithMinMaxVarsPerChannel."""

    forward = "FakeQuantWithMinMaxVarsPerChannel"


class _Ranged(RawOp, abstract=True, T=PAIRED):
    """An op whose ends are numbers, or vectors with one for each place along `axis` if that is not -1."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Ends for each channel, or for all."""
        shape, axis = shape_of(call, "input"), call.attributes["axis"]
        if axis < -1 or (shape is not None and axis >= len(shape)):
            what = "-1 or more" if shape is None else f"a number from -1 to {len(shape) - 1} (axes of input)"
            raise call.error("attribute axis", what, axis)
        if not call.attributes.get("range_given", True):
            return
        wanted = () if axis == -1 else (None if shape is None else shape[axis],)
        for name in ("input_min", "input_max"):
            found = shape_of(call, name)
            if found is not None and not agree(found, wanted):
                raise call.error(name, f"shape {list(wanted)} (axis {axis} of input)", list(found))


class _Dequantized(_Ranged, abstract=True):
    @classmethod
    def bits(cls, call: Call) -> int | None:
        """The number of bits, where it is known."""
        bits: Any = call.attributes.get("num_bits")
        return bits if isinstance(bits, int) else number(call, "num_bits")

    @classmethod
    def verify(cls, call: Call) -> None:
        """TensorFlow's kernels take so many bits."""
        super().verify(call)
        bits, most = cls.bits(call), 61 if call.attributes["signed_input"] else 62
        if bits is not None and not 1 <= bits <= most:
            raise call.error("num_bits", f"a number from 1 to {most}", bits)


class QuantizeAndDequantizeV2(_Dequantized):
    """Numbers rounded to multiples of a step, so large that `num_bits` bits count all from the least to the largest.

    These are `input_min` and `input_max` with `range_given`, and then ends of what comes out, else the operand's own.
    `signed_input` says whether the numbers of the bits are signed; `narrow_range` leaves out the least of these.
    """


class QuantizeAndDequantizeV3(_Dequantized, num_bits=""):
    """QuantizeAndDequantizeV2 with an operand for the number of bits; halves are rounded to even multiples."""

    static_operands = ("num_bits",)


class QuantizeAndDequantizeV4(QuantizeAndDequantizeV2):
    """QuantizeAndDequantizeV2, but for its gradient in TensorFlow."""


class QuantizeAndDequantizeV4Grad(_Ranged, gradients="*S", input="*S", input_min="*E", input_max="*E"):
    """Gradient of QuantizeAndDequantizeV4: that of the identity from `input_min` to `input_max`, none beyond."""

    forward = "QuantizeAndDequantizeV4"
