"""Normalizations: operators that scale a tensor by its own statistics. Channels are axis 1."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph.standard.base import Attribute, Operand, Optional, Standard
from lstm_lower.graph.standard.reductions import AlongAxis


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
