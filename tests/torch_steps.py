"""PyTorch's optimizers on recurrent classifiers, at changing batch sizes and lengths: losses against PyTorch's.

    python -m tests.torch_steps                 # 100 steps of each, minutes
    python -m tests.torch_steps 1000 "LSTM.*"   # more steps of some

Beside the difference stands PyTorch's own from the same steps in float64: training magnifies what rounding differs by.
"""

from __future__ import annotations

import re
import sys

import numpy as np

from tests.support.torch_steps import KINDS, OPTIMIZERS, losses

# Largest difference of a loss.
LIMITS = {"SGD": 1e-5}
LIMIT = 1e-4


def main(steps: str = "100", pattern: str = ".*") -> int:
    """Prints a line for each module and optimizer; 1 where a loss is off by more than the limit."""
    wrong = 0
    print(f"{'':18}{'first':>8} {'last':>8}  difference  PyTorch's from float64")
    for kind in KINDS:
        for optimizer in OPTIMIZERS:
            if not re.fullmatch(pattern, f"{kind} {optimizer}"):
                continue
            ours, theirs, exact = losses(kind, optimizer, int(steps))
            off, own = (float(np.abs(np.subtract(found, theirs)).max()) for found in (ours, exact))
            failed = off > LIMITS.get(optimizer, LIMIT)
            wrong += failed
            mark = "  WRONG" if failed else ""
            print(f"{kind:5} {optimizer:12}{ours[0]:8.4f} {ours[-1]:8.4f}     {off:.1e}  {own:.1e}{mark}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
