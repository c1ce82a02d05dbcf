"""Examples of inputs and targets: what they may be, and one run of the user's own code on them before anything else."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lstm_lower.errors import InvalidInputError, LstmLowerError, UnsupportedOpError, some
from lstm_lower.passes.training.losses import target_names
from lstm_lower.torch.hooks import refuse_others
from lstm_lower.torch.interface import (
    ModuleOperands,
    attributes_kept,
    checked_loss,
    leaves,
    named_tensors,
    parts,
)
from lstm_lower.torch.memory import Memory
from lstm_lower.torch.pytorch_errors import raised
from lstm_lower.torch.trials import Writes, undone
from lstm_lower.torch.wrappers import unlike_numbers


def checked(what: str, value: Any) -> None:
    """Refuses examples of which something would not be an input, but a constant, without a word.

    Args:
        what: the argument's name, for messages.
        value: tensors, nested in tuples, lists, mappings, named tuples and dataclasses, beside numbers and the like.

    Raises:
        InvalidInputError: it holds arrays, tensors without numbers, or objects that hide tensors.
        UnsupportedOpError: it holds sparse, nested or quantized tensors.
    """
    for name, part in leaves("", value):
        where = f" under '{name}'" if name else ""
        if isinstance(part, Tensor):
            _check_tensor(what, where, part)
        elif isinstance(part, np.ndarray):
            raise InvalidInputError(
                f"{what} requires tensors, got an array of NumPy{where}; torch.from_numpy(x) makes a tensor of it"
            )
        elif not _is_constant(part) and _hides_tensors(part):
            raise InvalidInputError(
                f"{what} requires tensors in tuples, lists, mappings, named tuples or dataclasses, got "
                f"{type(part).__name__}{where}, which holds tensors that would be constants; let forward take them one "
                "by one"
            )


def _check_tensor(what: str, where: str, value: Tensor) -> None:
    said = unlike_numbers(value)
    if said == "nested":
        raise UnsupportedOpError(
            f"{what} requires tensors with one size per axis, got a nested one{where}; take "
            "torch.nested.to_padded_tensor(x, 0.0) of it, and the lengths as one more input"
        )
    if said is not None:
        way = "x.dequantize()" if value.is_quantized else "x.to_dense()"
        raise UnsupportedOpError(f"{what} requires dense tensors, got a {said} one{where}; take {way} of it")
    if value.is_meta or isinstance(value, torch._subclasses.FakeTensor):
        raise InvalidInputError(
            f"{what} requires tensors with numbers, got one of shape {list(value.shape)}{where} without any; "
            "torch.zeros or torch.randn of that shape is an example"
        )


def _is_constant(value: Any) -> bool:
    kinds = (bool, int, float, complex, str, bytes, enum.Enum, np.generic, torch.dtype, torch.device, torch.Generator)
    return value is None or isinstance(value, (*kinds, type))


def _hides_tensors(value: Any, depth: int = 3) -> bool:
    """Whether an object that is no container has tensors among what it holds."""
    if isinstance(value, (Tensor, np.ndarray)):
        return True
    if depth == 0 or _is_constant(value) or callable(value):
        return False
    held = list(value) if isinstance(value, (set, frozenset)) else [part for _, part in parts(value)]
    held = held or list(getattr(value, "__dict__", {}).values())
    held += [getattr(value, name, None) for name in getattr(type(value), "__slots__", ())]
    return any(_hides_tensors(part, depth - 1) for part in held)


def run_once(
    module: nn.Module, operands: ModuleOperands, loss: Any, targets: Sequence[Tensor] | None, *, whole: bool
) -> Any:
    """Runs a module, and a loss of its result, on the examples as PyTorch does; nothing is changed by it.

    Args:
        module: the module.
        operands: its example inputs.
        loss: a loss that PyTorch can compute; `None` for none.
        targets: what the loss takes behind the result; `None` if there are no examples of them.
        whole: whether the loss takes all that the module returns, instead of the first tensor of it.

    Returns:
        What the module returns.

    Raises:
        InvalidInputError: PyTorch fails on them, or there is nothing to make a loss of.
        UnsupportedOpError: the module remembers something from call to call.
    """
    refuse_others(module)
    with undone(module), Writes(dict(module.named_parameters())):
        memory = Memory(module)
        args, kwargs = operands.filled([tensor.clone() for tensor in operands.tensors])
        named = _named(operands.names, operands.tensors)
        with _told("example_inputs", f"{_name(module)}.forward", named, "module"):
            result = module(*args, **kwargs)
        memory.check(result, operands)
        if not whole and not named_tensors("", result):
            raise InvalidInputError(
                f"a loss requires a forward that returns tensors, got {type(result).__name__} of {_name(module)}; "
                "return a tensor, or several in a tuple, mapping or dataclass"
            )
        if loss is None or targets is None:
            return result
        taken = result if whole else named_tensors("", result)[0][1]
        named = [("a result", taken)] if isinstance(taken, Tensor) else []
        named += _named(target_names(len(targets)), targets)
        with _told("example_targets", _name(loss), named, "loss"), _no_state(loss):
            value = loss(taken, *(target.clone() for target in targets))
        checked_loss(value)
        return result


@contextlib.contextmanager
def _told(what: str, function: str, operands: Sequence[tuple[str, Tensor]], called: str) -> Iterator[None]:
    """Says of an error of the user's code which examples it is called with."""
    try:
        yield
    except LstmLowerError:
        raise
    except Exception as error:
        given = ", ".join(f"{name} {str(x.dtype).removeprefix('torch.')} {list(x.shape)}" for name, x in operands)
        raise InvalidInputError(
            f"{what} requires what {function} runs with in PyTorch, got {given or 'none'}, for which it fails with "
            f"{raised(error)}; call the {called} with them to see where"
        ) from error


def _named(names: Sequence[str], tensors: Sequence[Tensor]) -> list[tuple[str, Tensor]]:
    return [(f"'{name}'", x) for name, x in zip(names, tensors, strict=True)]


@contextlib.contextmanager
def _no_state(loss: Any) -> Iterator[None]:
    """Refuses a loss that changes its buffers, which are none of a step."""
    if not isinstance(loss, nn.Module):
        yield
        return
    before = dict(loss.named_buffers())
    with attributes_kept(loss):
        with Writes(before) as writes:
            yield
        changed = [name for name, x in loss.named_buffers() if x is not before.get(name) or name in writes.written]
    if changed:
        raise UnsupportedOpError(
            f"loss requires no state of its own, got a forward of {_name(loss)} that changes {some(changed)}; make it "
            "a part of the module, let forward return the loss by a name, as in {'objective': ...}, and give that name "
            "as loss"
        )


def _name(called: Any) -> str:
    return str(getattr(called, "__name__", None) or type(called).__name__)
