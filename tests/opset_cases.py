"""Single operators in the newest form that they are moved down from, or the oldest that they are moved up from."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """One node with its operands.

    Attributes:
        op: operator.
        opset: version of its form.
        inputs: operands in order; `None` for one that is left out.
        attributes: attributes.
        outputs: how many outputs; those named in `skipped` get no name.
        constants: positions of operands that are initializers.
        label: what is special.
        runtimes: `o` onnxruntime, `r` onnx.reference: those that implement the forms on both sides.
        origin: runtime of the expected results where it is another than the first of `runtimes`.
        forms: forms of the model, as `model` takes them, that can be moved.
        tolerance: relative error allowed; 0 asks for equal bits.
        only: target versions; all boundaries down to 13 when empty.
    """

    op: str
    opset: int
    inputs: tuple[Array | None, ...]
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    outputs: int = 1
    constants: tuple[int, ...] = ()
    label: str = ""
    runtimes: str = "or"
    origin: str = ""
    forms: tuple[str, ...] = ("static", "open", "nested")
    tolerance: float = 0.0
    only: tuple[int, ...] = ()

    def __str__(self) -> str:
        return "-".join(str(part) for part in (self.op, self.opset, self.label) if part)

    @property
    def feeds(self) -> dict[str, Array]:
        """The operands that are graph inputs."""
        return {
            f"x{index}": value
            for index, value in enumerate(self.inputs)
            if value is not None and index not in self.constants
        }

    @property
    def names(self) -> list[str]:
        """Names of the outputs."""
        return [f"y{index}" for index in range(self.outputs)]

    def node(self) -> onnx.NodeProto:
        """The node."""
        inputs = ["" if value is None else f"x{index}" for index, value in enumerate(self.inputs)]
        return helper.make_node(self.op, inputs, self.names, name="node", **self.attributes)

    def model(self, *, form: str = "static", results: list[Array]) -> onnx.ModelProto:
        """A model of the node.

        Args:
            form: `static` sizes, `open` sizes, or `nested` in a branch that captures the operands.
            results: expected values of the outputs, which give dtypes and ranks.
        """
        inputs = [_info(name, value, is_open=form == "open") for name, value in self.feeds.items()]
        if self.op == "ScatterND":
            # How many axes are indexed has to be known.
            inputs[1].type.tensor_type.shape.dim[-1].dim_value = self.feeds["x1"].shape[-1]
        initializers = [
            numpy_helper.from_array(value, f"x{index}")
            for index, value in enumerate(self.inputs)
            if value is not None and index in self.constants
        ]
        if form == "nested":
            inner = [f"inner_{name}" for name in self.names]
            node = self.node()
            node.output[:] = inner
            outputs = [_info(name, value, is_open=True) for name, value in zip(inner, results, strict=True)]
            branch = helper.make_graph([node], "branch", [], outputs)
            condition = helper.make_node(
                "Constant", [], ["condition"], value=numpy_helper.from_array(np.ones((), bool))
            )
            other = onnx.GraphProto()
            other.CopyFrom(branch)
            other.name = "other"
            for proto in (*other.node, *other.output):
                if isinstance(proto, onnx.NodeProto):
                    proto.name = "other_node"
                    proto.output[:] = [f"other_{name}" for name in proto.output]
                else:
                    proto.name = f"other_{proto.name}"
            nodes = [
                condition,
                helper.make_node("If", ["condition"], self.names, then_branch=branch, else_branch=other),
            ]
        else:
            nodes = [self.node()]
        outputs = [_info(name, value, is_open=True) for name, value in zip(self.names, results, strict=True)]
        graph = helper.make_graph(nodes, "case", inputs, outputs, initializer=initializers)
        opset = helper.make_opsetid("", self.opset)
        ir_version = helper.find_min_ir_version_for([opset])
        return helper.make_model(graph, opset_imports=[opset], ir_version=ir_version)


def _info(name: str, value: Array, *, is_open: bool) -> onnx.ValueInfoProto:
    shape: list[int | str | None] = [None] * value.ndim if is_open else list(value.shape)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape)


_RANDOM = np.random.default_rng(7)


def f32(*shape: int) -> Array:
    """Random numbers."""
    return _RANDOM.standard_normal(shape).astype(np.float32)


def i64(*values: Any) -> Array:
    """int64."""
    return np.asarray(values if len(values) != 1 else values[0], np.int64)


_X = f32(2, 3, 4)
_REDUCTIONS = (
    ("ReduceL1", np.abs),
    ("ReduceL2", np.abs),
    ("ReduceLogSum", np.log),
    ("ReduceLogSumExp", np.positive),
    ("ReduceMax", np.positive),
    ("ReduceMean", np.positive),
    ("ReduceMin", np.positive),
    ("ReduceProd", np.positive),
    ("ReduceSumSquare", np.square),
)
COMPUTED_AXES = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceMean", "ReduceSumSquare")


def _reductions() -> list[Case]:
    cases = []
    positive = np.abs(_X) + np.float32(0.5)
    for op, _ in _REDUCTIONS:
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
        # onnx.reference leaves the elementwise part of some reductions out, and so does onnxruntime of others.
        cases.append(Case(op, 18, (positive, i64([1])), noop, constants=(1,), label="noop-with-axes", tolerance=1e-6))
        if op in COMPUTED_AXES:
            cases.append(Case(op, 18, (positive, i64([2, 0])), label="computed", tolerance=1e-6))
            cases.append(
                Case(op, 18, (positive, i64([-1])), {"keepdims": 0}, label="computed-0", tolerance=1e-6, runtimes="or")
            )
    extremes = ("ReduceMax", "ReduceMin")
    return [*cases, *(Case(op, 20, (_X > 0, i64([1])), constants=(1,), label="bool") for op in extremes)]


def _scatters() -> list[Case]:
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


def _shaping() -> list[Case]:
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
            Case("Trilu", 14, ((f32(4, 4) * 9).astype(np.int64), i64(2)), {"upper": upper}, label=f"above-{upper}"),
        ]
    return cases


def _arithmetic() -> list[Case]:
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


def _functions() -> list[Case]:
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
        Case(
            "AffineGrid",
            20,
            (f32(2, 2, 3), i64([2, 2, 3, 4])),
            {"align_corners": 1},
            forms=("static", "nested"),
            **near,
        ),
        Case("Attention", 23, (heads, f32(1, 2, 5, 4), f32(1, 2, 5, 4)), {"is_causal": 1}, **near),
        Case("Attention", 24, (heads, f32(1, 2, 5, 4), f32(1, 2, 5, 4)), label="24", **near),
        Case("RotaryEmbedding", 23, (heads, f32(1, 3, 2), f32(1, 3, 2)), **near),
        Case("Celu", 28, (x.astype(np.float64),), {"alpha": 2.0}, label="double", runtimes="r", **near),
        Case("SpaceToDepth", 28, (f32(1, 2, 4, 4),), {"blocksize": 2, "mode": "CRD"}, label="CRD", runtimes="r"),
        Case("SpaceToDepth", 28, (f32(1, 2, 4, 4),), {"blocksize": 2, "mode": "DCR"}, label="DCR", runtimes="r"),
        Case("SwiGLU", 28, (f32(2, 6), f32(2, 6)), runtimes="r", **near),
    ]


def _networks() -> list[Case]:
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


DOWNWARDS = [*_reductions(), *_scatters(), *_shaping(), *_arithmetic(), *_functions(), *_networks()]
UPWARDS = [
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
        for op, _ in _REDUCTIONS
        for keepdims in (0, 1)
    ),
    *(Case(op, 13, (np.abs(_X) + 1,), only=(18, 26), label="all", tolerance=1e-5) for op, _ in _REDUCTIONS),
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
