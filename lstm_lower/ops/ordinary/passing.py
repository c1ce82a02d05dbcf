"""Definitions of TensorFlow's ops that pass their operands through.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.gradients import COMPLEX, FLOATS, Function
from lstm_lower.ops.ordinary.kinds import EVERYTHING, HandingOn


class Identity(HandingOn):
    """Its input."""


class RefIdentity(HandingOn):
    """Its input, a variable."""


class StopGradient(HandingOn):
    """Its input; in TensorFlow, no gradient goes through it."""


class _Copy(HandingOn, abstract=True):
    """A copy that TensorFlow's debugger reads."""

    class Attrs:
        tensor_name = attr(str, "")
        debug_ops_spec = attr(list[str], [])


class Copy(_Copy):
    """Its input, for a debugger."""


class CopyHost(_Copy):
    """Its input, for a debugger."""


class DebugIdentity(HandingOn):
    """Its input, for a debugger."""

    class Attrs:
        device_name = attr(str, "")
        tensor_name = attr(str, "")
        debug_urls = attr(list[str], [])
        gated_grpc = attr(bool, False)


class DebugIdentityV2(HandingOn):
    """Its input, for a debugger."""

    class Attrs:
        tfdbg_context_id = attr(str, "")
        op_name = attr(str, "")
        output_slot = attr(int, -1)
        tensor_debug_mode = attr(int, -1)
        debug_urls = attr(list[str], [])
        circular_buffer_size = attr(int, 1000)
        tfdbg_run_id = attr(str, "")


class DebugIdentityV3(HandingOn):
    """Its input, for a debugger."""

    class Attrs:
        device_name = attr(str, "")
        tensor_name = attr(str, "")
        io_of_node = attr(str, "")
        is_input = attr(bool, False)
        io_index = attr(int, -1)
        debug_urls = attr(list[str], [])
        gated_grpc = attr(bool, False)


class DeepCopy(Function):
    """Its input."""

    class Types:
        T = (*EVERYTHING, *COMPLEX)


class CheckNumerics(OpDef):
    """Its input; where a number of it is not finite, TensorFlow raises an error with the message."""

    class Types:
        T = FLOATS

    class Inputs:
        tensor = operand("*S")

    class Outputs:
        output = operand("*S")

    class Attrs:
        message = attr(str)


class CheckNumericsV2(CheckNumerics):
    """Its input; the error tells the sign of an infinity."""


class IdentityN(OpDef):
    """Its inputs."""

    class Types:
        T = (*EVERYTHING, *COMPLEX)

    class Inputs:
        input = operand(None, variadic=True, mixed=True)

    class Outputs:
        output = operand(None, variadic=True, mixed=True)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """What is known of the inputs."""
        return [TensorInfo(info.dtype, info.shape) for info in call.lists["input"]]
