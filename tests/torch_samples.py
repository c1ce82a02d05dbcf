"""PyTorch's own samples of its operators: loss and gradients of each against autograd.

python -m tests.torch_samples                   # an hour: three samples of each of 500 operators
python -m tests.torch_samples cumsum "nn.functional.*pool" --samples 10

Each floating operand is a parameter, the loss a weighted sum of all results. A line says `right`, how far off the worst
is, or why there is none. What PyTorch computes in float64 is the truth: an error is one where ours is much larger than
that of PyTorch's own float32.
"""

from __future__ import annotations

import argparse
import collections
import copy
import re
import sys
import types
import unittest
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import lstm_lower as ll
from lstm_lower.errors import LstmLowerError

WRONG, WORSE = 1e-3, 10.0
DIFFERENT = {
    "cholesky_inverse": "PyTorch's gradient has numbers above the diagonal, which the operator does not read",
    "cholesky_solve": "as cholesky_inverse",
    "nn.functional.ctc_loss": "PyTorch's gradient holds for scores that come from log_softmax",
    "bfloat16": "results of operations are not rounded to bfloat16 (docs/torch.md)",
}
RANDOM = re.compile(r"normal|uniform|dropout|rrelu|bernoulli|multinomial|cauchy|exponential|geometric|multi_head|rand")


class Sample(nn.Module):
    """An operator with its operands."""

    def __init__(self, operator: Any, operands: list[Any], options: dict[str, Any]) -> None:
        super().__init__()
        self.operator = operator
        self.operands = [self._held(each) for each in operands]
        self.options = {name: self._held(each) for name, each in options.items()}

    def _held(self, value: Any) -> Any:
        """A tensor's name among parameters and buffers, by which it is found, or what it is."""
        if isinstance(value, (tuple, list)) and any(isinstance(part, Tensor) for part in value):
            return [self._held(part) for part in value]
        if not isinstance(value, Tensor):
            return lambda: value
        name = f"x{len(self._parameters) + len(self._buffers)}"
        if value.is_floating_point():
            self.register_parameter(name, nn.Parameter(value.detach().clone().contiguous()))
        else:
            self.register_buffer(name, value.detach().clone())
        return name

    def _found(self, held: Any, zero: Tensor) -> Any:
        if isinstance(held, list):
            return [self._found(part, zero) for part in held]
        if not isinstance(held, str):
            return held()
        value = getattr(self, held)
        return value + zero if value.is_floating_point() else value

    def forward(self, zero: Tensor) -> Tensor:
        operands = [self._found(each, zero) for each in self.operands]
        result = self.operator(*operands, **{name: self._found(each, zero) for name, each in self.options.items()})
        total = zero.sum()
        for number, x in enumerate(each for each in _tensors(result) if each.is_floating_point()):
            weights = torch.cos(torch.arange(x.numel(), dtype=x.dtype) * 1.3 + number)
            total = total + (x * weights.reshape(x.shape)).sum()
        return total


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for part in result:
            yield from _tensors(part)


def _by_autograd(sample: Sample, zero: Tensor) -> dict[str, Any]:
    loss = sample(zero)
    loss.backward()
    found = {f"grad/{name}": x.grad.to_dense().numpy() for name, x in sample.named_parameters() if x.grad is not None}
    return {"loss": loss.detach().numpy(), **found}


def _error(got: Any, truth: Any) -> float:
    x, y = np.asarray(got, np.float64), np.asarray(truth, np.float64)
    finite = np.isfinite(y)
    if x.shape != y.shape or not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return float("inf")
    return float(np.abs(x - y)[finite].max(initial=0) / (np.abs(y[finite]).max(initial=0) + 1e-6))


def outcome(sample: Sample) -> tuple[str, str]:
    """What is found of a sample, in a word, and the rest of the line."""
    zero = torch.zeros(1)
    wide = copy.deepcopy(sample).double()
    try:
        torch.manual_seed(0)
        theirs = _by_autograd(sample, zero)
        torch.manual_seed(0)
        truth = _by_autograd(wide, zero.double())
    except Exception as error:  # noqa: BLE001
        return "without a gradient in PyTorch", str(error).splitlines()[0][:100]
    sample.zero_grad()
    try:
        step = ll.from_torch(sample, zero, lambda loss: loss, example_targets=(), what="gradients")
        got = ll.Session(step).run({"zero": zero.numpy()})
    except LstmLowerError as error:
        return "refused", str(error).splitlines()[0][:160]
    worst = 0.0
    for name, value in truth.items():
        error, own = (_error(each.get(name, np.zeros_like(value)), value) for each in (got, theirs))
        worst = max(worst, error if error > WORSE * own else min(error, WRONG / 2))
    return ("wrong" if worst > WRONG else "right"), f"{worst:.1e}"


def main() -> int:
    """Prints a line for each sample that is not right, and counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[".*"], help="patterns of operators' names")
    parser.add_argument("--samples", type=int, default=3, help="of each operator, from the first to the last")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    # What PyTorch's module of samples imports beside them.
    unused: Any = types.ModuleType("expecttest")
    unused.TestCase = unittest.TestCase
    sys.modules.setdefault("expecttest", unused)
    from torch.testing._internal.common_methods_invocations import op_db

    counts: collections.Counter[str] = collections.Counter()
    for operator in op_db:
        name = ".".join(filter(None, (operator.name, operator.variant_test_name)))
        left_out = RANDOM.search(name) or "sparse" in name or not operator.supports_autograd
        if left_out or not any(re.fullmatch(pattern, name) for pattern in arguments.names):
            continue
        samples = list(operator.sample_inputs("cpu", torch.float32, requires_grad=False))
        for number in sorted({round(place) for place in np.linspace(0, len(samples) - 1, arguments.samples)}):
            given = samples[number]
            word, rest = outcome(Sample(operator.op, [given.input, *given.args], dict(given.kwargs)))
            if word == "wrong" and operator.name in DIFFERENT:
                word, rest = "different", DIFFERENT[operator.name]
            counts[word] += 1
            if word != "right":
                print(f"{name} {number}: {word}, {rest}", flush=True)  # noqa: T201
    print(", ".join(f"{count} {word}" for word, count in counts.items()))  # noqa: T201
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
