"""Definitions of the ops that round numbers to a grid as a quantized model would, and of their gradients.

Signatures: TensorFlow's raw ops of the same names. Symbols: C channels, the last axis. The grid has `2 ** num_bits`
numbers, or one less with `narrow_range`, from `min` to `max`, both moved a little so that zero lies on it.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, OpDef, attr, operand


class _Simulated(OpDef, abstract=True):
    class Attrs:
        num_bits = attr(int, 8)
        narrow_range = attr(bool, False)

    @classmethod
    def verify(cls, call: Call) -> None:
        """TensorFlow's kernels take so many bits."""
        bits = call.attributes["num_bits"]
        if not 2 <= bits <= 16:
            raise call.error("attribute num_bits", "a number from 2 to 16", bits)


class _Fixed(_Simulated, abstract=True):
    class Attrs(_Simulated.Attrs):
        min = attr(float, -6.0)
        max = attr(float, 6.0)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The grid has an extent."""
        super().verify(call)
        low, high = call.attributes["min"], call.attributes["max"]
        if low >= high:
            raise call.error("attribute max", f"a number above min, {low}", high)


class FakeQuantWithMinMaxArgs(_Fixed):
    """Numbers rounded to a grid between two constants."""

    class Inputs:
        inputs = operand("*S", "float32")

    class Outputs:
        outputs = operand("*S", "float32")


class FakeQuantWithMinMaxArgsGradient(_Fixed):
    """Gradient of FakeQuantWithMinMaxArgs: that of the identity on the grid's range, none beyond."""

    forward = "FakeQuantWithMinMaxArgs"

    class Inputs:
        gradients = operand("*S", "float32")
        inputs = operand("*S", "float32")

    class Outputs:
        backprops = operand("*S", "float32")


class FakeQuantWithMinMaxVars(_Simulated):
    """Numbers rounded to a grid; zeros where `min` and `max` are 0."""

    class Inputs:
        inputs = operand("*S", "float32")
        min = operand("", "float32")
        max = operand("", "float32")

    class Outputs:
        outputs = operand("*S", "float32")


class FakeQuantWithMinMaxVarsGradient(_Simulated):
    """Gradient of FakeQuantWithMinMaxVars: what lies beyond the grid's range goes to its ends."""

    forward = "FakeQuantWithMinMaxVars"

    class Inputs:
        gradients = operand("*S", "float32")
        inputs = operand("*S", "float32")
        min = operand("", "float32")
        max = operand("", "float32")

    class Outputs:
        backprops_wrt_input = operand("*S", "float32")
        backprop_wrt_min = operand("", "float32")
        backprop_wrt_max = operand("", "float32")


class FakeQuantWithMinMaxVarsPerChannel(_Simulated):
    """Numbers rounded to a grid of each channel's own."""

    class Inputs:
        inputs = operand("*S C", "float32")
        min = operand("C", "float32")
        max = operand("C", "float32")

    class Outputs:
        outputs = operand("*S C", "float32")


class FakeQuantWithMinMaxVarsPerChannelGradient(_Simulated):
    """Gradient of FakeQuantWithMinMaxVarsPerChannel."""

    forward = "FakeQuantWithMinMaxVarsPerChannel"

    class Inputs:
        gradients = operand("*S C", "float32")
        inputs = operand("*S C", "float32")
        min = operand("C", "float32")
        max = operand("C", "float32")

    class Outputs:
        backprops_wrt_input = operand("*S C", "float32")
        backprop_wrt_min = operand("C", "float32")
        backprop_wrt_max = operand("C", "float32")
