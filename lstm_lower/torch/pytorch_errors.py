"""What PyTorch's errors go back to, in a line for a message."""

from __future__ import annotations

import functools
import re
import traceback
import types
from pathlib import Path

import torch

from lstm_lower.errors import first_line

# Whose lines are not the user's.
_OWN = (Path(torch.__file__).parent, Path(__file__).parents[1])


def cause(error: BaseException) -> str:
    """What an error goes back to, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)


def raised(error: BaseException) -> str:
    """What an error goes back to, in a line, with the line of the user's code that it comes from."""
    where = [f" ({Path(frame.f_code.co_filename).name}:{line})" for frame, line in frames(error)][-1:]
    return "".join([cause(error), *where])


def is_users(code: Path | types.FrameType) -> bool:
    """Whether a file, or a frame, is of the user's code: neither PyTorch's nor ours."""
    return _is_file_of_users(str(code) if isinstance(code, Path) else code.f_code.co_filename)


@functools.lru_cache(maxsize=4096)
def _is_file_of_users(file: str) -> bool:
    return not any(own in Path(file).parents for own in _OWN)


def frames(error: BaseException) -> list[tuple[types.FrameType, int]]:
    """Frames of the user's code, and their lines, that an error and what it goes back to come from."""
    found = []
    held: BaseException | None = error
    while held is not None:
        found += [(frame, line) for frame, line in traceback.walk_tb(held.__traceback__) if is_users(frame)]
        held = held.__cause__
    return found


def told(error: Exception) -> str:
    """What PyTorch or lstm-lower raised unexpectedly on a module, for `explained`."""
    return (
        f"a module that it can follow, got {cause(error)}; export its parts one by one to find which to write "
        "with other PyTorch operations"
    )


def way_around(error: BaseException) -> str:
    """What to write in place of what cannot be traced."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, torch._subclasses.fake_tensor.DataDependentOutputException):
        return (
            "it cannot trace what Python makes of a tensor's values, such as torch.equal in a check; leave the check "
            "out, or compare by torch.where"
        )
    if not isinstance(error, torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode):
        return "write that with other PyTorch operations on tensors"
    if re.search(r"Size-like symbols: \w*\d", str(error)):
        return (
            "it cannot trace a branch over how many elements values select, as a loss over mined pairs has; weigh all "
            "of them instead: torch.where(mask, x, 0.0).sum() / mask.sum()"
        )
    if "Could not extract specialized integer" in str(error):
        return (
            "it cannot trace a loop in Python, or a list, of as many steps as values say (ll.scan(cell, state, "
            "torch.arange(int(n))) is a loop of any number), nor x[i] of a tensor i of no axes (x[i.view(1)] it can)"
        )
    return (
        "it cannot trace branches and loops that depend on values of tensors; use torch.where, torch.cond, or "
        "lengths as inputs, make what a solver goes by (torchdiffeq's times) a buffer, whose values are known, and "
        "give pad_packed_sequence the total_length beside tensors of this length"
    )
