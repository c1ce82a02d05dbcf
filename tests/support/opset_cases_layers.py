"""Cases of arithmetic, functions and layers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from tests.support.opset_case import Array, Case, f32, i64


def arithmetic() -> list[Case]:
    cases = []
    small = np.asarray([100, 7, 3, 127, 1], np.int64)
    other = np.asarray([100, 2, 5, 127, 3], np.int64)
    for dtype in (np.int8, np.int16, np.uint8, np.uint16):
        sign = -1 if np.issubdtype(dtype, np.signedinteger) else 1
        operands = (small.astype(dtype), (sign * other).astype(dtype))
        cases += [
            Case(op, 14, operands, label=np.dtype(dtype).name, runtimes="r")
            for op in ("Add", "Sub", "Mul", "Div")
            # Division truncates; onnx.reference rounds down.
            if op != "Div" or sign == 1
        ]
    half = f32(2, 5).astype(np.float16)
    bfloat = f32(2, 5).astype(ml_dtypes.bfloat16)
    cases += [
        Case("Add", 14, (f32(3), f32(3))),
        Case("Relu", 14, (np.asarray([-3, 0, 5], np.int32),)),
        Case("Relu", 14, (np.asarray([-3, 0, 5], np.int8),), label="int8"),
        Case("Relu", 14, (f32(4),), label="float"),
        Case("CumSum", 14, (half, i64(1)), {"reverse": 1}, label="float16", runtimes="r", tolerance=1e-2),
        Case("CumSum", 14, (f32(2, 5), i64(1)), {"exclusive": 1}),
        Case(
            "IsInf",
            20,
            (np.asarray([np.inf, -np.inf, np.nan, 1], np.float16),),
            {"detect_negative": 0},
            label="float16",
        ),
        Case("IsInf", 20, (np.asarray([np.inf, -np.inf, np.nan, 1], np.float32),)),
        Case(
            "ConstantOfShape",
            20,
            (i64([2, 3]),),
            {"value": helper.make_tensor("", TensorProto.BFLOAT16, [1], [1.5])},
            label="bfloat16",
            runtimes="r",
            forms=("static", "open"),
        ),
        Case("BitwiseNot", 18, (np.asarray([0, 5, -7], np.int32),)),
        Case("BitwiseNot", 18, (np.asarray([0, 5, 2**40], np.uint64),), label="uint64"),
        Case("CastLike", 15, (f32(3) * 9, i64([1]))),
        Case("CastLike", 24, (f32(3) * 9, f32(1).astype(np.float16)), {"saturate": 0}, label="saturate", runtimes="r"),
        Case(
            "Cast",
            24,
            (f32(3) * 9,),
            {"to": TensorProto.INT32, "saturate": 0, "round_mode": "down"},
            label="notes",
            runtimes="r",
        ),
        Case("Cast", 23, (bfloat,), {"to": TensorProto.FLOAT}, label="bfloat16", runtimes="r"),
        Case("Mod", 28, (i64([-7, 7]), i64([3, -3])), runtimes="r"),
        Case("Range", 27, tuple(np.asarray(value, np.float32) for value in (1, 5, 0.5)), runtimes="r"),
        Case(
            "Range",
            27,
            tuple(np.asarray(value, np.float16) for value in (1, 5, 0.5)),
            label="float16",
            runtimes="o",
            origin="r",
            tolerance=1e-3,
        ),
    ]
    for exclusive in (0, 1):
        for reverse in (0, 1):
            cases.append(
                Case(
                    "CumProd",
                    26,
                    (f32(3, 4, 2), i64(-2)),
                    {"exclusive": exclusive, "reverse": reverse},
                    constants=(1,),
                    label=f"{exclusive}-{reverse}",
                    runtimes="r" if not reverse else "o",
                    origin="r",
                    tolerance=1e-6,
                )
            )
    return cases


def functions() -> list[Case]:
    x = f32(2, 4, 6)
    image = f32(2, 4, 3, 3)
    scale, bias = f32(4), f32(4)
    near = {"tolerance": 1e-5}
    heads = f32(1, 2, 3, 4)
    return [
        Case("HardSwish", 14, (x,), **near),
        Case("Mish", 18, (x,), **near),
        Case("Gelu", 20, (x,), **near),
        Case("Gelu", 20, (x,), {"approximate": "tanh"}, label="tanh", **near),
        Case("Swish", 24, (x,), {"alpha": 1.3}, runtimes="r", **near),
        Case("LayerNormalization", 17, (x, f32(6), f32(6)), {"axis": -1}, **near),
        Case(
            "LayerNormalization",
            17,
            (x, f32(4, 6)),
            {"axis": 1, "epsilon": 1e-2},
            outputs=3,
            label="statistics",
            **near,
        ),
        Case("LayerNormalization", 17, (x, f32(6), f32(6)), {"axis": 1}, label="broadcast", runtimes="o", **near),
        Case("RMSNormalization", 23, (x, f32(6)), {"axis": -1}, **near),
        Case("GroupNormalization", 21, (image, scale, bias), {"num_groups": 2}, **near),
        Case(
            "GroupNormalization",
            18,
            (image, f32(2), f32(2)),
            {"num_groups": 2},
            label="per-group",
            runtimes="o",
            **near,
        ),
        Case("CenterCropPad", 18, (x, i64([3, 8])), {"axes": [1, 2]}),
        Case("HannWindow", 17, (i64(6),), {"periodic": 0}, **near),
        Case("HammingWindow", 17, (i64(6),), **near),
        Case("BlackmanWindow", 17, (i64(6),), **near),
        Case("AffineGrid", 20, (f32(2, 2, 3), i64([2, 2, 3, 4])), {"align_corners": 1}, **near),
        Case("AffineGrid", 20, (f32(1, 2, 3), i64([1, 2, 3, 4])), label="one image", **near),
        Case("Attention", 23, (heads, f32(1, 2, 5, 4), f32(1, 2, 5, 4)), {"is_causal": 1}, **near),
        Case("Attention", 24, (heads, f32(1, 2, 5, 4), f32(1, 2, 5, 4)), label="24", **near),
        Case("RotaryEmbedding", 23, (heads, f32(1, 3, 2), f32(1, 3, 2)), **near),
        Case("Celu", 28, (x.astype(np.float64),), {"alpha": 2.0}, label="double", runtimes="r", **near),
        Case("SpaceToDepth", 28, (f32(1, 2, 4, 4),), {"blocksize": 2, "mode": "CRD"}, label="CRD", runtimes="r"),
        Case("SpaceToDepth", 28, (f32(1, 2, 4, 4),), {"blocksize": 2, "mode": "DCR"}, label="DCR", runtimes="r"),
        Case("SwiGLU", 28, (f32(2, 6), f32(2, 6)), runtimes="r", **near),
    ]


def networks() -> list[Case]:
    image = f32(2, 3, 4)
    channel = [np.abs(f32(3)) + np.float32(0.1) for _ in range(4)]
    half = [value.astype(np.float16) for value in (image, *channel)]
    cases = [
        Case("BatchNormalization", 15, (image, *channel), {"training_mode": 0}, runtimes="o", tolerance=1e-5),
        Case(
            "BatchNormalization",
            15,
            (image, *channel),
            {"training_mode": 1, "momentum": 0.8},
            outputs=3,
            label="training",
            tolerance=1e-5,
        ),
        Case(
            "BatchNormalization",
            14,
            tuple(half),
            {"training_mode": 1},
            outputs=3,
            label="half",
            tolerance=5e-3,
            runtimes="r",
        ),
        Case("AveragePool", 19, (image,), {"kernel_shape": [2], "dilations": [1]}, tolerance=1e-6),
        Case("LpPool", 18, (image,), {"kernel_shape": [2], "dilations": [1], "ceil_mode": 0, "p": 2}, tolerance=1e-5),
        Case(
            "GridSample",
            20,
            (f32(1, 2, 4, 4), f32(1, 3, 3, 2)),
            {"mode": "cubic"},
            only=(19, 16),
            runtimes="o",
            tolerance=1e-5,
        ),
        Case("GridSample", 20, (f32(1, 2, 4, 4), f32(1, 3, 3, 2)), {"mode": "nearest"}, only=(16,), label="nearest"),
        Case(
            "RoiAlign",
            16,
            (f32(1, 1, 6, 6), np.asarray([[0, 0, 4, 5]], np.float32), i64([0])),
            {"coordinate_transformation_mode": "output_half_pixel", "output_height": 2, "output_width": 3},
            tolerance=1e-6,
            runtimes="o",
        ),
        Case("DFT", 20, (f32(2, 5, 4, 1), None, i64(1)), constants=(2,), only=(17, 19), tolerance=1e-4),
        Case("DFT", 20, (f32(2, 5, 4, 1),), only=(17,), label="default", tolerance=1e-4),
        Case(
            "QuantizeLinear",
            21,
            (f32(2, 3) * 9, np.asarray(0.3, np.float32)),
            {"output_dtype": TensorProto.INT8, "saturate": 1},
            label="int8",
        ),
        Case(
            "QuantizeLinear",
            23,
            (f32(2, 3) * 9, np.asarray(0.3, np.float32), np.asarray(4, np.uint8)),
            {"output_dtype": TensorProto.UINT8, "precision": TensorProto.FLOAT, "block_size": 0},
            label="notes",
            runtimes="r",
        ),
        Case(
            "DequantizeLinear",
            23,
            (np.asarray([1, 9], np.int8), np.asarray(0.3, np.float32)),
            {"output_dtype": TensorProto.FLOAT},
            label="notes",
            runtimes="o",
        ),
    ]
    for op, gates, states in (("LSTM", 4, 2), ("GRU", 3, 1), ("RNN", 1, 1)):
        batch, steps, size, hidden = 2, 3, 4, 5
        inputs: list[Array | None] = [
            f32(batch, steps, size),
            f32(1, gates * hidden, size),
            f32(1, gates * hidden, hidden),
        ]
        inputs += [None, None, *[f32(batch, 1, hidden) for _ in range(states)]]
        cases.append(
            Case(
                op,
                14,
                tuple(inputs),
                {"hidden_size": hidden, "layout": 1},
                outputs=1 + states,
                runtimes="",
                label="batch-first",
            )
        )
        inputs[0] = np.swapaxes(inputs[0], 0, 1).copy()
        inputs[5:] = [f32(1, batch, hidden) for _ in range(states)]
        cases.append(
            Case(
                op,
                14,
                tuple(inputs),
                {"hidden_size": hidden, "layout": 0},
                outputs=1 + states,
                tolerance=1e-5,
                runtimes="o",
            )
        )
    return cases
