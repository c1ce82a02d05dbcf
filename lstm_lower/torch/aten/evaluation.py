"""Evaluation mode, read off a trace of a module that trains.

PyTorch's layers only hand on to their operators whether they train, as does `F.dropout(x, p, self.training)`. Where
nothing else asks, evaluation is the same trace with other operands for these calls, which takes no second one.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import sys
import types
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from lstm_lower.replacement import replaced
from lstm_lower.torch.aten.decompositions import simple
from lstm_lower.torch.aten.recurrent import RECURRENT
from lstm_lower.torch.aten.registry import innermost_line
from lstm_lower.torch.interface import Step
from lstm_lower.torch.source import innermost

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


# Functions of PyTorch that take from other code whether it trains, with place and name of that operand.
_HANDED = (
    (nn.functional.dropout, 2, "training"),
    (torch.dropout, 2, "train"),
    (nn.functional.scaled_dot_product_attention, 4, "dropout_p"),
)
# Their operators.
_DROPPING = {aten.dropout.default, aten.dropout_.default, aten.scaled_dot_product_attention.default}
# Statements without others in them.
_SIMPLE = (ast.AnnAssign, ast.Assign, ast.AugAssign, ast.Expr, ast.Return)

# File, and the first and the last line of a statement.
Place = tuple[str, int, int]


class TrainingReads:
    """What asks whether a module trains while that runs.

    Attributes:
        others: whether something does that hands it on to nothing but operators.
        handed: statements of other code than PyTorch's layers that hand it on to all operators in them -> whose mode.
    """

    def __init__(self) -> None:
        self.others = False
        self.handed: dict[Place, set[nn.Module]] = {}

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Stands in the place of `nn.Module.training`, which is where such questions can be seen."""

        def get(module: nn.Module) -> bool:
            frame = sys._getframe(1)
            if frame.f_code not in _CODE and _within_step(frame):
                self._note(module, frame)
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

    def _note(self, module: nn.Module, frame: types.FrameType) -> None:
        path = frame.f_code.co_filename
        statement = innermost(Path(path), frame.f_lineno)
        if isinstance(statement, _SIMPLE) and _is_handed_on(statement, {**frame.f_globals, **frame.f_locals}):
            place = path, statement.lineno, statement.end_lineno or 0
            self.handed.setdefault(place, set()).add(module)
        else:
            self.others = True


def _is_handed_on(statement: ast.stmt, names: Mapping[str, Any]) -> bool:
    """Whether all that a statement does with a mode is to hand it on, to all operators in it that ask for one."""
    asked = sum(isinstance(node, ast.Attribute) and node.attr == "training" for node in ast.walk(statement))
    given = [
        _operand(call, place, name)
        for call in ast.walk(statement)
        if isinstance(call, ast.Call)
        for function, place, name in _HANDED
        if function is _called(call.func, names)
    ]
    return asked == len(given) and all(map(_is_mode, given))


def _called(function: ast.expr, names: Mapping[str, Any]) -> Any:
    """What a name, or one within modules of Python, stands for; `None` for what cannot be said without running code."""
    match function:
        case ast.Name(name):
            return names.get(name)
        case ast.Attribute(holder, name) if isinstance(module := _called(holder, names), types.ModuleType):
            return vars(module).get(name)
    return None


def _operand(call: ast.Call, place: int, name: str) -> ast.expr | None:
    named = [each.value for each in call.keywords if each.arg == name]
    return next(iter([*named, *call.args[place:]]), None)


def _is_mode(operand: ast.expr | None) -> bool:
    """Whether it is `self.training`, or `p if self.training else 0.0`."""
    match operand:
        case ast.Attribute(attr="training") | ast.IfExp(test=ast.Attribute(attr="training"), orelse=ast.Constant(0)):
            return True
    return False


def _within_step(frame: types.FrameType | None) -> bool:
    while frame is not None and frame.f_code is not Step.forward.__code__:
        frame = frame.f_back
    return frame is not None


# Call -> operands that are others in evaluation mode.
Evaluated = Mapping[Node, Mapping[str, Any]]


def evaluated_calls(
    program: ExportedProgram, step: nn.Module, handed: Mapping[Place, Collection[nn.Module]]
) -> Evaluated | None:
    """The calls that evaluation mode changes; `None` where the trace does not tell.

    Args:
        program: the trace.
        step: what was traced.
        handed: see `TrainingReads`.
    """
    if simple(program) is not program or any(map(_changes_kind, step.modules())):
        return None
    if not set(step.modules()).issuperset(itertools.chain.from_iterable(handed.values())):
        # Nobody sets the mode of what is none of its parts.
        return None
    parts = dict(step.named_modules(remove_duplicate=False))
    graphs = (part.graph for part in program.graph_module.modules() if isinstance(part, GraphModule))
    calls = {}
    for node in (node for graph in graphs for node in graph.nodes if node.target in _EVALUATED):
        around = list((node.meta.get("nn_module_stack") or {}).values())
        place = innermost_line(node.meta.get("stack_trace") or "")
        if not around or around[-1][0] not in parts or place is None:
            return None
        if type(parts[around[-1][0]]).forward in _LAYERS:
            if not _is_without_statistics(node):
                calls[node] = _EVALUATED[node.target]
        elif node.target in _DROPPING and any(
            path == place[0] and first <= place[1] <= last for path, first, last in handed
        ):
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
