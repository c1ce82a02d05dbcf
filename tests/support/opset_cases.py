"""Single operators in the newest form that they are moved down from, or the oldest that they are moved up from."""

from __future__ import annotations

import numpy as np

from tests.support.opset_case import Case, f32, i64
from tests.support.opset_cases_layers import arithmetic, functions, networks
from tests.support.opset_cases_older import older
from tests.support.opset_cases_tensors import REDUCTIONS, reductions, scatters, shaping

_X = f32(2, 3, 4)

DOWNWARDS = [*reductions(), *scatters(), *shaping(), *arithmetic(), *functions(), *networks()]
UPWARDS = [
    *older(),
    *(
        Case(
            op,
            13,
            (np.abs(_X),),
            {"axes": [-1, 0], "keepdims": keepdims},
            only=(18, 26),
            label=f"{keepdims}",
            tolerance=1e-6,
        )
        for op in REDUCTIONS
        for keepdims in (0, 1)
    ),
    *(Case(op, 13, (np.abs(_X) + 1,), only=(18, 26), label="all", tolerance=1e-5) for op in REDUCTIONS),
    Case("Split", 13, (f32(2, 6),), {"axis": 1}, outputs=3, only=(17, 18, 26)),
    Case("Split", 13, (f32(2, 6), i64([1, 5])), {"axis": 1}, outputs=2, only=(18, 26), label="sizes"),
    Case("Pad", 13, (_X, i64([1, 0, 0, 0, 0, 2])), only=(18, 26)),
    Case(
        "Resize",
        13,
        (f32(1, 1, 2, 3), None, np.asarray([1, 1, 2, 2], np.float32)),
        {"mode": "linear"},
        only=(18, 19, 26),
        tolerance=1e-5,
    ),
    Case("GridSample", 16, (f32(1, 2, 4, 4), f32(1, 3, 3, 2)), {"mode": "bicubic"}, only=(20, 26), tolerance=1e-5),
    Case("GridSample", 16, (f32(1, 2, 4, 4), f32(1, 3, 3, 2)), only=(20, 26), label="default", tolerance=1e-5),
    Case(
        "RoiAlign",
        13,
        (f32(1, 1, 6, 6), np.asarray([[0, 0, 4, 5]], np.float32), i64([0])),
        {"output_height": 2, "output_width": 3},
        only=(16, 21),
        runtimes="o",
        tolerance=1e-6,
    ),
    Case("DFT", 17, (f32(2, 5, 4, 1),), only=(20, 26), tolerance=1e-4),
    Case("DFT", 17, (f32(2, 5, 4, 1),), {"axis": 2}, only=(20, 26), label="axis", tolerance=1e-4),
    Case(
        "GroupNormalization",
        18,
        (f32(2, 4, 3, 3), f32(2), f32(2)),
        {"num_groups": 2},
        only=(21, 26),
        runtimes="o",
        tolerance=1e-5,
    ),
    Case(
        "BatchNormalization", 13, (f32(2, 3, 4), *[np.abs(f32(3)) for _ in range(4)]), only=(14, 15, 26), tolerance=1e-5
    ),
    Case("ScatterND", 13, (f32(5, 3), i64([[1], [4]]), f32(2, 3)), only=(16, 18, 26)),
    Case("Shape", 13, (_X,), only=(15, 26)),
    Case("Reshape", 13, (_X, i64([0, -1])), only=(14, 26)),
    Case("AveragePool", 13, (f32(2, 3, 4),), {"kernel_shape": [2]}, only=(19, 26), tolerance=1e-6),
]
