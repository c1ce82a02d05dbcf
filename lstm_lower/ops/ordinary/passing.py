"""Definitions of TensorFlow's ops that pass their operands through.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.ops.raw import RawOp


class Identity(RawOp):
    """Its input."""


class RefIdentity(RawOp):
    """Its input, a variable."""


class StopGradient(RawOp):
    """Its input; in TensorFlow, no gradient goes through it."""


class Copy(RawOp):
    """Its input, for a debugger."""


class CopyHost(RawOp):
    """Its input, for a debugger."""


class DebugIdentity(RawOp):
    """Its input, for a debugger."""


class DebugIdentityV2(RawOp):
    """Its input, for a debugger."""


class DebugIdentityV3(RawOp):
    """Its input, for a debugger."""


class DeepCopy(RawOp):
    """Its input."""


class CheckNumerics(RawOp):
    """Its input; where a number of it is not finite, TensorFlow raises an error with the message."""


class CheckNumericsV2(RawOp):
    """Its input; the error tells the sign of an infinity."""


class IdentityN(RawOp):
    """Its inputs."""
