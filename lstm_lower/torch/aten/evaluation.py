"""Evaluation mode, read off a trace of a module that trains.

PyTorch's layers only hand on to their operators whether they train. Where nothing else asks, evaluation is the same
trace with other operands for these calls, which takes no second one.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from lstm_lower.replacement import replaced
from lstm_lower.torch.aten.decompositions import simple
from lstm_lower.torch.aten.recurrent import RECURRENT
from lstm_lower.torch.interface import Step

aten = torch.ops.aten

# Functions that ask whether they train for nothing but the operands below.
_LAYERS = tuple(
    kind.forward
    for kind in (
        nn.Dropout,
        nn.modules.batchnorm._BatchNorm,
        nn.GRU,
        nn.LSTM,
        nn.MultiheadAttention,
        nn.RNN,
        # These look for kernels of their own, which compute the same.
        nn.TransformerEncoder,
        nn.TransformerEncoderLayer,
    )
)
_CODE = {layer.__code__ for layer in _LAYERS}

# Operator -> operands of its calls by such layers, with their values in evaluation mode.
_EVALUATED: Mapping[Any, Mapping[str, Any]] = {
    aten.dropout.default: {"train": False},
    aten.dropout_.default: {"train": False},
    aten.batch_norm.default: {"training": False},
    # Normalization counts batches.
    aten.add_.Tensor: {"other": 0},
    aten.scaled_dot_product_attention.default: {"dropout_p": 0.0},
    RECURRENT: {"dropout": 0.0},
}


class TrainingReads:
    """What asks whether a module trains while that runs.

    Attributes:
        others: whether something does that is none of PyTorch's layers.
    """

    def __init__(self) -> None:
        self.others = False

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Stands in the place of `nn.Module.training`, which is where such questions can be seen."""

        def get(module: nn.Module) -> bool:
            frame = sys._getframe(1)
            self.others |= frame.f_code not in _CODE and _within_step(frame)
            try:
                trains: bool = vars(module)["training"]
            except KeyError as error:
                raise AttributeError("training") from error
            return trains

        def put(module: nn.Module, trains: bool) -> None:
            self.others |= _within_step(sys._getframe(1))
            vars(module)["training"] = trains

        with replaced(nn.Module, "training", property(get, put)):
            yield


def _within_step(frame: types.FrameType | None) -> bool:
    while frame is not None and frame.f_code is not Step.forward.__code__:
        frame = frame.f_back
    return frame is not None


# Call -> operands that are others in evaluation mode.
Evaluated = Mapping[Node, Mapping[str, Any]]


def evaluated_calls(program: ExportedProgram, step: nn.Module) -> Evaluated | None:
    """The calls that evaluation mode changes; `None` where the trace does not tell."""
    if simple(program) is not program or any(map(_changes_kind, step.modules())):
        return None
    parts = dict(step.named_modules(remove_duplicate=False))
    graphs = (part.graph for part in program.graph_module.modules() if isinstance(part, GraphModule))
    calls = {}
    for node in (node for graph in graphs for node in graph.nodes if node.target in _EVALUATED):
        around = list((node.meta.get("nn_module_stack") or {}).values())
        if not around or around[-1][0] not in parts:
            return None
        if type(parts[around[-1][0]]).forward in _LAYERS and not _is_without_statistics(node):
            calls[node] = _EVALUATED[node.target]
    return calls


def _changes_kind(part: nn.Module) -> bool:
    """Whether normalization takes statistics in evaluation that it has not in training, or writes them otherwise."""
    if not isinstance(part, nn.modules.batchnorm._NormBase) or part.running_mean is None:
        return False
    return not part.track_running_stats or part.momentum is None


def _is_without_statistics(node: Node) -> bool:
    return node.target is aten.batch_norm.default and node.args[3] is None


def replace_operands(node: Node, args: list[Any], kwargs: dict[str, Any], others: Mapping[str, Any]) -> None:
    """Puts operands, by their names in the operator's schema, in the places of those of a call that are given."""
    if others:
        assert isinstance(node.target, torch._ops.OpOverload)
        for place, each in enumerate(node.target._schema.arguments[: len(args)]):
            args[place] = others.get(each.name, args[place])
        kwargs |= {name: value for name, value in others.items() if name in kwargs}
