"""Cases of the losses over alignments."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.support.ctc_cases import CASES
from tests.support.ordinary.case import Case


def cases() -> Iterator[Case]:
    # TensorFlow computes those of float64 in float32, too.
    for case in [case for case in CASES[:9] if case.dtype == "float32"]:
        operands, attributes = case.operands(), case.attributes()
        yield Case("CTCLoss", case.id, {**operands}, attributes, oracle=not case.runs)
        # Its blank is the first class; TensorFlow has no kernel for processors.
        turned = operands | {
            "inputs": np.roll(operands["inputs"], 1, 2),
            "labels_values": operands["labels_values"] + 1,
        }
        yield Case("CTCLossV2", case.id, turned, attributes, oracle=True)
