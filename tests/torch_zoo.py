"""The whole zoo of PyTorch modules: loss and gradients of each against autograd, at the example's sizes and at others.

python -m tests.torch_zoo               # minutes
python -m tests.torch_zoo "lstm_.*"
python -m tests.torch_zoo "transformers_.*"     # needs pip install transformers
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

import numpy as np
import onnx
import torch

import lstm_lower as ll
from lstm_lower.errors import LstmLowerError
from lstm_lower.torch.interface import named_tensors
from tests.support.torch_zoo import CASES, Case
from tests.support.transformers_cases import models

SIZES = ((2, 5), (3, 8), (1, 4))


def projected_loss(result: Any) -> Any:
    """A sum in which every output has a gradient of its own."""
    tensors = [tensor for _, tensor in named_tensors("", result) if tensor.is_floating_point()]
    return sum((tensor * torch.sin(tensor + 1)).mean() for tensor in tensors)


def worst_errors(case: Case) -> list[str]:
    """At each size the largest error of the loss and of all gradients, or why there is none."""
    torch.manual_seed(0)
    module = case.make().train()
    for part in module.modules():
        if isinstance(part, torch.nn.RNNBase) and part.dropout:
            # Dropout stays in the model, and drops nothing.
            part.dropout = 1e-9
    before = {name: value.clone() for name, value in module.state_dict().items()}
    step = ll.from_torch(module, case.inputs(2, 5), projected_loss, example_targets=(), what="gradients")
    session = ll.Session(step)
    weights = {value.name: onnx.numpy_helper.to_array(value) for value in step.graph.initializer}
    inputs = [value.name for value in step.graph.input if value.name not in weights]
    found = []
    for sizes in SIZES:
        example = case.inputs(*sizes)
        module.load_state_dict(before)
        module.zero_grad()
        try:
            got = session.run(dict(zip(inputs, [x.numpy() for x in example], strict=True)))
        except LstmLowerError as error:
            found.append(f"refused: {str(error).splitlines()[0][:100]}")
            continue
        loss = projected_loss(module(*example))
        loss.backward()
        errors = [abs(float(got["loss"]) - loss.item()) / (1 + abs(loss.item()))]
        for name, parameter in module.named_parameters():
            if parameter.grad is not None:
                exact = parameter.grad.numpy()
                errors.append(float(np.abs(got[f"grad/{name}"] - exact).max() / (1 + np.abs(exact).max())))
        found.append(f"{max(errors):.0e}" if max(errors) < 1e-5 else f"WRONG {max(errors):.1e}")
    return found


def main(pattern: str = ".*") -> int:
    """Prints a line for each case; 1 where a number is wrong."""
    warnings.simplefilter("ignore")
    wrong = 0
    for case in [*CASES, *(Case(name, *made) for name, made in models().items())]:
        if not re.fullmatch(pattern, case.name) or not list(case.make().parameters()):
            continue
        try:
            found = worst_errors(case)
        except LstmLowerError as error:
            found = [f"refused: {str(error).splitlines()[0]}"]
        wrong += any("WRONG" in each for each in found)
        print(f"{case.name:26} {', '.join(found)}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
