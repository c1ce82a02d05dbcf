"""Cases that reduce, scatter, cut and pad."""

from __future__ import annotations

import numpy as np

from tests.support.opset_case import Case, f32, i64

_X = f32(2, 3, 4)
REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
    "ReduceSumSquare",
)
COMPUTED_AXES = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceMean", "ReduceSumSquare")


def reductions() -> list[Case]:
    cases = []
    positive = np.abs(_X) + np.float32(0.5)
    for op in REDUCTIONS:
        for label, axes in (("some", i64([1, -1])), ("one", i64([0])), ("none", i64([])), ("absent", None)):
            for keepdims in (0, 1):
                inputs = (positive,) if axes is None else (positive, axes)
                cases.append(
                    Case(
                        op,
                        18,
                        inputs,
                        {"keepdims": keepdims},
                        constants=(1,),
                        label=f"{label}-{keepdims}",
                        tolerance=1e-6,
                    )
                )
        noop = {"noop_with_empty_axes": 1}
        cases.append(Case(op, 18, (positive, i64([1])), noop, constants=(1,), label="noop-with-axes", tolerance=1e-6))
        if op in COMPUTED_AXES:
            cases.append(Case(op, 18, (positive, i64([2, 0])), label="computed", tolerance=1e-6))
            cases.append(
                Case(op, 18, (positive, i64([-1])), {"keepdims": 0}, label="computed-0", tolerance=1e-6, runtimes="or")
            )
            integers = (i64([[7, 8, 9], [1, 2, 4]]), i64([1]))
            cases.append(Case(op, 18, integers, label="computed-integers", runtimes="o"))
    extremes = ("ReduceMax", "ReduceMin")
    return [*cases, *(Case(op, 20, (_X > 0, i64([1])), constants=(1,), label="bool") for op in extremes)]


def scatters() -> list[Case]:
    cases = []
    rows = i64([[3], [0], [3], [-1], [3], [0]])
    pairs = i64([[[0, 1], [1, 2]], [[0, 1], [-2, -2]]])
    elements = i64([[0, 2, 0, 1], [0, -1, 0, 1], [1, 2, 0, 2]])
    for reduction in ("add", "mul", "max", "min"):
        attributes = {"reduction": reduction}
        for dtype in (np.float32, np.float64, np.int64, np.int32):
            name = f"{reduction}-{np.dtype(dtype).name}"
            data = (f32(5, 3) * 5).astype(dtype)
            cases += [
                Case("ScatterND", 18, (data, rows, (f32(6, 3) * 5).astype(dtype)), attributes, label=f"rows-{name}"),
                Case(
                    "ScatterElements",
                    18,
                    ((f32(4, 4) * 5).astype(dtype), elements, (f32(3, 4) * 5).astype(dtype)),
                    attributes,
                    label=f"columns-{name}",
                ),
            ]
        data = f32(2, 3, 2)
        cases += [
            Case("ScatterND", 18, (data, pairs, f32(2, 2, 2)), attributes, label=f"pairs-{reduction}"),
            Case("ScatterND", 18, (data[..., 0], pairs, f32(2, 2)), attributes, label=f"points-{reduction}"),
            Case("ScatterND", 18, (f32(4), i64([2]), f32()), attributes, label=f"one-{reduction}"),
            Case(
                "ScatterND",
                18,
                (f32(4, 2), np.zeros((0, 1), np.int64), f32(0, 2)),
                attributes,
                label=f"nothing-{reduction}",
            ),
            Case("ScatterND", 18, (f32(6, 2), i64([[4]] * 9), f32(9, 2)), attributes, label=f"always-{reduction}"),
            Case(
                "ScatterElements",
                18,
                (f32(3, 5), i64([[1, 1, 1, -5]] * 2), f32(2, 4)),
                {**attributes, "axis": -1},
                label=f"rows-{reduction}",
            ),
            Case(
                "ScatterElements",
                18,
                (f32(3), np.asarray([1, 1, -2], np.int32), f32(3)),
                attributes,
                label=f"vector-{reduction}",
            ),
        ]
    cases.append(Case("ScatterND", 18, (f32(5, 3), rows[:2], f32(2, 3)), {"reduction": "none"}, label="none"))
    infinite = np.asarray([np.inf, np.nan, 1, 2], np.float32)[:, None]
    cases.append(Case("ScatterND", 16, (f32(5, 1), rows[:4], infinite), {"reduction": "add"}, label="add-infinite"))
    return cases


def shaping() -> list[Case]:
    cases = [
        Case("Shape", 15, (_X,), {"start": start, **({} if end is None else {"end": end})}, label=f"{start}-{end}")
        for start, end in ((0, None), (1, None), (-1, None), (0, -1), (-9, 9), (2, 1), (1, 2))
    ]
    empty = f32(0, 3)
    for constants in ((), (1,)):
        known = "constant" if constants else "computed"
        cases += [
            Case("Reshape", 14, (_X, i64([4, -1])), {"allowzero": 1}, constants=constants, label=f"{known}-free"),
            Case("Reshape", 14, (empty, i64([5, 0])), {"allowzero": 1}, constants=constants, label=f"{known}-zero"),
            Case("Reshape", 14, (_X, i64([0, -1])), {"allowzero": 0}, constants=constants, label=f"{known}-copy"),
            Case(
                "Pad",
                18,
                (_X, i64([1, 0, 2, 1]), None, i64([2, 0])),
                constants=(1, 3) if constants else (),
                label=f"axes-{known}",
            ),
            Case(
                "Pad",
                18,
                (_X, i64([1, 3]), np.asarray(7, np.float32), np.asarray([-2], np.int32)),
                {"mode": "constant"},
                runtimes="r",
                constants=(1, 3) if constants else (3,),
                label=f"value-{known}",
            ),
            Case(
                "Pad",
                18,
                (_X, i64([1, 1]), None, i64([-1])),
                {"mode": "edge"},
                constants=constants,
                label=f"edge-{known}",
            ),
            Case(
                "Pad", 19, (_X, i64([5, 1, 0, 2, 0, 9])), {"mode": "wrap"}, constants=constants, label=f"wrap-{known}"
            ),
            Case(
                "Pad",
                19,
                (_X, i64([5, 7]), None, i64([-2])),
                {"mode": "wrap"},
                constants=(1, 3) if constants else (3,),
                label=f"wrap-axes-{known}",
            ),
        ]
    for count, size in ((2, 4), (3, 7), (3, 6), (1, 5), (4, 7)):
        cases.append(
            Case(
                "Split",
                18,
                (f32(2, size),),
                {"axis": -1, "num_outputs": count},
                outputs=count,
                label=f"{size}-in-{count}",
            )
        )
    cases.append(Case("Split", 18, (f32(5, 2), i64([1, 4])), {"axis": 0}, outputs=2, constants=(1,), label="sizes"))
    image = f32(1, 2, 3, 4)
    linear = {"mode": "linear"}
    cases += [
        Case(
            "Resize",
            18,
            (image, None, np.asarray([2, 3], np.float32)),
            {**linear, "axes": [2, -1]},
            constants=(2,),
            label="scales",
            tolerance=1e-6,
        ),
        Case(
            "Resize",
            18,
            (image, None, None, i64([5, 6])),
            {**linear, "axes": [3, 2]},
            label="sizes",
            runtimes="or",
            tolerance=1e-5,
        ),
        Case(
            "Resize",
            18,
            (image, np.asarray([0.1, 0.2, 0.8, 0.9], np.float32), None, i64([3, 5])),
            {"mode": "linear", "axes": [2, 3], "coordinate_transformation_mode": "tf_crop_and_resize"},
            label="region",
            runtimes="r",
            tolerance=1e-5,
        ),
    ]
    for upper in (0, 1):
        cases += [
            Case("Trilu", 14, (f32(3, 4),), {"upper": upper}, label=f"matrix-{upper}"),
            Case("Trilu", 14, (f32(2, 4, 3), i64(-1)), {"upper": upper}, label=f"below-{upper}"),
            Case("Trilu", 14, (f32(4, 4) > 0,), {"upper": upper}, label=f"bool-{upper}"),
            Case("Trilu", 14, ((f32(4, 4) * 9).astype(np.int64), i64(2)), {"upper": upper}, label=f"above-{upper}"),
        ]
    return cases
