"""A module, its loss and its optimizer as a script that runs by itself."""

from __future__ import annotations

import dataclasses
import itertools
import linecache
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

HEADER = """\
import math
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.round(x * 4) / 4

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (x.abs() < 1)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return -ctx.factor * dy, None


def total(result):
    parts = result if isinstance(result, (tuple, list)) else result.values() if isinstance(result, dict) else [result]
    return sum((x * torch.sin(x + 1)).mean() for x in parts if x.is_floating_point())
"""

_COUNT = itertools.count()


@dataclasses.dataclass(frozen=True)
class Input:
    """An input of the module: its name, and an expression of batch size `b` and length `t`."""

    name: str
    text: str


@dataclasses.dataclass
class Line:
    """Lines of `forward` that belong together.

    Attributes:
        text: of them.
        makes: names of the tensors that they make.
        setup: lines of `__init__` that they need.
    """

    text: str
    makes: list[str]
    setup: list[str]

    def reads(self) -> set[str]:
        return set(re.findall(r"\b[vx]\d+\b", self.text)) - set(self.makes)


@dataclasses.dataclass
class Program:
    """A random module and what trains it.

    Attributes:
        inputs: of the module.
        lines: of `forward`.
        outputs: names that it returns.
        loss: an expression, as `from_torch` takes it.
        targets: expressions of `y`, the first output.
        optimizer: an expression of `module`.
        what: as `from_torch` takes it.
        training: whether the module is in training mode.
        form: `nested` if inputs after the first come in a mapping, `mapping` if outputs do.
    """

    inputs: list[Input]
    lines: list[Line]
    outputs: list[str]
    loss: str
    targets: list[str]
    optimizer: str
    what: str = "train"
    training: bool = True
    form: str = "tensor"

    def source(self) -> str:
        """The script."""
        setup = [text for line in self.lines for text in line.setup]
        body = [text for line in self.lines for text in line.text.splitlines()]
        names = [given.name for given in self.inputs]
        taken = ", ".join(names)
        if self.form == "nested":
            body = [f"{name} = given['{name}']" for name in names[1:]] + body
            taken = f"{names[0]}, given"
        returned = self.outputs[0] if len(self.outputs) == 1 else f"({', '.join(self.outputs)})"
        if self.form == "mapping":
            returned = "{" + ", ".join(f"'{name}': {name}" for name in self.outputs) + "}"
        samples = [given.text for given in self.inputs]
        example = ", ".join(samples)
        if self.form == "nested":
            rest = ", ".join(f"'{name}': {text}" for name, text in zip(names[1:], samples[1:], strict=True))
            example = f"{samples[0]}, {{{rest}}}"
        return "\n".join(
            [
                HEADER,
                "",
                "class Module(nn.Module):",
                "    def __init__(self):",
                "        super().__init__()",
                *(f"        {text}" for text in setup),
                "",
                f"    def forward(self, {taken}):",
                *(f"        {text}" for text in body),
                f"        return {returned}",
                "",
                "",
                "def inputs(b, t):",
                f"    return ({example},)",
                "",
                "",
                "def targets(y):",
                f"    return ({''.join(f'{text}, ' for text in self.targets)})",
                "",
                "",
                f"loss = {self.loss}",
                "",
                "",
                "def optimizer(module):",
                f"    return {self.optimizer}",
                "",
                "",
                f"what = {self.what!r}",
                f"training = {self.training}",
                "",
            ]
        )

    def loaded(self) -> dict[str, Any]:
        """What the script defines."""
        return loaded(self.source())

    def kept(self) -> Program:
        """The same without lines that nothing reads; lines that change a tensor in place begin with a copy of it."""
        needed = set(self.outputs)
        lines: list[Line] = []
        for line in reversed(self.lines):
            if needed & set(line.makes):
                needed |= line.reads()
                lines.append(line)
            elif _attributes(" ".join(line.setup)) & _attributes(" ".join(each.text for each in lines)):
                lines.append(Line("", [], line.setup))  # a layer that another line has, too
        return dataclasses.replace(self, lines=lines[::-1])

    def smaller(self) -> Iterator[Program]:
        """Programs that say less, those that say least first."""
        for line in self.lines:
            for name in line.makes:
                if self.outputs != [name]:
                    yield dataclasses.replace(self, outputs=[name], loss=PLAIN, targets=[]).kept()
        if len(self.outputs) > 1:
            for name in self.outputs:
                yield dataclasses.replace(self, outputs=[one for one in self.outputs if one != name]).kept()
        if self.optimizer != SGD:
            yield dataclasses.replace(self, optimizer=SGD)
        if self.loss != PLAIN:
            yield dataclasses.replace(self, loss=PLAIN, targets=[])
        if self.form != "tensor":
            yield dataclasses.replace(self, form="tensor")
        if len(self.inputs) > 1:
            for given in self.inputs:
                if not any(given.name in line.reads() for line in self.lines):
                    yield dataclasses.replace(self, inputs=[one for one in self.inputs if one is not given])
        for place, line in enumerate(self.lines):
            # What a line makes is replaced by what it reads.
            for other in sorted(line.reads()) if len(line.makes) == 1 else []:
                rest = [_renamed(each, line.makes[0], other) for each in self.lines[place + 1 :]]
                outputs = [other if name == line.makes[0] else name for name in self.outputs]
                yield dataclasses.replace(self, lines=self.lines[:place] + rest, outputs=outputs)


PLAIN = "lambda result, *targets: total(result)"
SGD = "torch.optim.SGD(module.parameters(), lr=0.1)"


def _attributes(text: str) -> set[str]:
    return set(re.findall(r"self\.[a-z]\d+", text))


def _renamed(line: Line, old: str, new: str) -> Line:
    makes = [new if name == old else name for name in line.makes]
    return Line(re.sub(rf"\b{old}\b", new, line.text), makes, line.setup)


def loaded(source: str) -> dict[str, Any]:
    """What a script defines; its lines are found by tracebacks and by `inspect`."""
    name = f"<random module {next(_COUNT)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    # PyTorch's compiler looks for functions by the name of their module.
    module = sys.modules["random_module"] = types.ModuleType("random_module")
    exec(compile(source, name, "exec"), vars(module))
    return vars(module)
