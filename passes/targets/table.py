"""A table of what each target cannot run; schedules and legalising passes follow from it.

What stands of OpenVINO, ggml and WebGPU here was found by running onnx's own node tests on them, and operators on
numbers at their edges: what they claim and compute otherwise, what they fail on, and what they leave to the processor.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.dtypes import is_floating
from lstm_lower.errors import InvalidInputError
from lstm_lower.graph import standard as std
from lstm_lower.passes.decompositions.arrays import PARTS
from lstm_lower.passes.targets import formulas
from lstm_lower.passes.targets.cpu import CPU
from lstm_lower.passes.targets.target import Lack, RuntimeTarget, Views

_WIDE = frozenset({ir.DataType.DOUBLE})
_SMALL_FLOATS = frozenset(
    {
        ir.DataType.FLOAT8E4M3FN,
        ir.DataType.FLOAT8E4M3FNUZ,
        ir.DataType.FLOAT8E5M2,
        ir.DataType.FLOAT8E5M2FNUZ,
        ir.DataType.FLOAT4E2M1,
    }
)
_OTHER_INTEGERS = frozenset(
    {ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64}
)


def _open_choice(view: std.Where) -> bool:
    """Whether it chooses among floats of which one may be infinite or none."""
    dtype = view.dtype(1)
    return (dtype is None or is_floating(dtype)) and not (view.facts.finite(view.yes) and view.facts.finite(view.no))


def _other_pad(view: std.Pad) -> bool:
    return view.operand(3) is not None or view.mode != "constant"


def _many(view: std.Concat | std.Split) -> bool:
    return max(len(view.inputs), len(view.node.outputs)) > PARTS


def _several(view: std.Standard) -> bool:
    return len(view.inputs) != 2


_INTEGERS = frozenset({ir.DataType.INT32, ir.DataType.UINT32})
_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16})
# WGSL's `pow` is that of a logarithm, whose error the exponent multiplies: 3e-4 of 0.999 ** 10000.
_SMALL_EXPONENT = 8


def _in_floats(view: std.Standard) -> bool:
    return view.dtype() in _FLOATS


def _indices(view: std.MaxPool) -> bool:
    read = any(value.uses() or value.is_graph_output() for value in view.node.outputs[1:])
    return _in_floats(view) and (read or view.storage_order != 0)


def _volume(view: std.Standard) -> bool:
    """Whether there are three axes of places or more."""
    return (view.facts.rank(view.operand(0)) or 0) > 4


def _coarse_power(view: std.Pow) -> bool:
    """Whether all is of types that WGSL has, and the result not one of a small, known exponent."""
    if view.dtype(1) not in _FLOATS | _INTEGERS or view.dtype(0) not in _FLOATS | _INTEGERS:
        return False
    exponent = view.facts.uniform(view.operand(1))
    return view.dtype(0) in _INTEGERS or exponent is None or abs(exponent) > _SMALL_EXPONENT


def _open_logarithm(view: std.Log) -> bool:
    return _in_floats(view) and not formulas.is_above_zero(view)


# Operands that onnxruntime's kernels for GPUs read on the host; what the device computes is copied there first.
_ON_THE_HOST: dict[type[std.Standard], tuple[int, ...]] = {
    std.AffineGrid: (1,),
    std.ConstantOfShape: (0,),
    std.CumSum: (1,),
    std.Dropout: (1, 2),
    std.Expand: (1,),
    std.OneHot: (1,),
    std.Pad: (1, 3),
    std.Range: (0, 1, 2),
    std.Reduction: (1,),
    std.Reshape: (1,),
    std.Resize: (1, 2, 3),
    std.Slice: (1, 2, 3, 4),
    std.Split: (1,),
    std.Squeeze: (1,),
    std.Tile: (1,),
    std.TopK: (1,),
    std.Trilu: (1,),
    std.Unsqueeze: (1,),
}


def _computed(view: std.Standard) -> bool:
    positions = next(places for op, places in _ON_THE_HOST.items() if isinstance(view, op))
    return any(view.operand(place) is not None and view.constant(place) is None for place in positions)


_GGML: Views = (
    *(std.Abs, std.Add, std.And, std.Atan, std.Cast, std.Ceil, std.Clip, std.Concat, std.Constant, std.ConstantOfShape),
    *(std.Cos, std.CumSum, std.Div, std.Elu, std.Equal, std.Exp, std.Expand, std.Flatten, std.Floor, std.Gather),
    *(std.GatherElements, std.Gemm, std.Greater, std.GreaterOrEqual, std.Identity, std.IsNaN, std.LeakyRelu, std.Less),
    *(std.LessOrEqual, std.Log, std.MatMul, std.Max, std.Min, std.Mul, std.Neg, std.Not, std.Or, std.Pad, std.Pow),
    *(std.Range, std.Reciprocal, std.ReduceLogSum, std.ReduceMax, std.ReduceMean, std.ReduceMin, std.ReduceProd),
    *(std.ReduceSum, std.Relu, std.Reshape, std.Round, std.ScatterElements, std.ScatterND, std.Shape, std.Sigmoid),
    *(std.Sin, std.Slice, std.Softmax, std.Split, std.Sqrt, std.Squeeze, std.Sub, std.Tanh, std.TopK, std.Transpose),
    *(std.Unsqueeze, std.Where),
)

_WEBGPU = RuntimeTarget(
    "webgpu",
    lacks=(
        # The loop runs on the processor and hands the device's kernels in its body what lies there.
        Lack(std.ControlFlow, fails=True),
        *(Lack(std.NonZero), Lack(std.Unique), Lack(std.Compress)),
        # What WGSL guarantees of these is 5e-4, 7e-5 and less: drivers compute them so.
        Lack(std.Sin, "in float32", _in_floats, silent=True, formula=formulas.in_float64),
        Lack(std.Cos, "in float32", _in_floats, silent=True, formula=formulas.in_float64),
        Lack(std.Tan, "in float32", _in_floats, silent=True, formula=formulas.tangent),
        Lack(std.Acos, silent=True, formula=formulas.arc_cosine),
        Lack(std.Pow, "with an open or large exponent", _coarse_power, silent=True, formula=formulas.power),
        # It leaves open what these are of zero and below; a driver makes -88 and the logarithm of -x of it.
        Lack(std.Log, "of any number", _open_logarithm, silent=True, formula=formulas.logarithm),
        # It is made of sines.
        Lack(std.DFT, silent=True),
        Lack(std.MaxPool, "with indices", _indices, fails=True, formula=formulas.largest_in_float64),
        Lack(std.ConvTranspose, "along three axes", _volume, fails=True),
        Lack(std.GridSample, "along three axes", _volume, fails=True),
        Lack(std.Conv, "along three axes in groups", lambda v: _volume(v) and v.group != 1, fails=True),
        Lack(std.BatchNormalization, "that trains", lambda view: view.training_mode != 0, fails=True),
        Lack(std.Resize, "with antialias", lambda view: view.attribute("antialias", 0) != 0, fails=True),
    ),
    # Integers that it does not have either run on the processor, as int64 does.
    without=_SMALL_FLOATS | {ir.DataType.BFLOAT16, ir.DataType.STRING},
    leaves=_WIDE,
)

TARGETS = {
    target.name: target
    for target in (
        RuntimeTarget(
            "openvino",
            lacks=(
                Lack(std.LSTM, "with peepholes", lambda view: view.peepholes is not None, silent=True),
                Lack(std.BitShift, silent=True),
                Lack(std.TopK, "whose order among equal numbers is told", silent=True),
                Lack(std.Tile, silent=True),
                Lack(std.SpaceToDepth, silent=True),
                Lack(std.SequenceMap),
            ),
            # Integers of 64 bits are of 32 there: random numbers, which are made of them, come from unsigned ones.
            without=_SMALL_FLOATS,
            narrowed=_WIDE | {ir.DataType.UINT64, ir.DataType.UINT32},
            closed_bodies=True,
            nested_loops=False,
        ),
        RuntimeTarget(
            "ggml",
            runs=_GGML,
            lacks=(
                Lack(std.ControlFlow),
                Lack(std.Max, "of other than two operands", _several, silent=True),
                Lack(std.Min, "of other than two operands", _several, silent=True),
                Lack(std.Pad, "with axes, or with another thing than a constant", _other_pad),
                # It multiplies both by zeros and ones.
                Lack(std.Where, "among numbers that may not be finite", _open_choice, silent=True),
                Lack(std.Scatter, "with a reduction", lambda view: view.attribute("reduction", "none") != "none"),
            ),
            without=_SMALL_FLOATS | _OTHER_INTEGERS | {ir.DataType.BFLOAT16, ir.DataType.STRING},
            narrowed=_WIDE,
        ),
        # Loops and branches are decided on the host: a capture of what the device does cannot hold them.
        RuntimeTarget(
            "cuda-graph",
            lacks=(
                *(Lack(std.ControlFlow), Lack(std.NonZero), Lack(std.Unique), Lack(std.Compress), Lack(std.Shape)),
                *(
                    Lack(std.Size),
                    Lack(std.NonMaxSuppression),
                    Lack(std.Concat, "of many parts", _many),
                    Lack(std.Split, "into many parts", _many),
                ),
                *(Lack(op, "whose sizes, places or axes are computed by the device", _computed) for op in _ON_THE_HOST),
            ),
            without=frozenset({ir.DataType.STRING}),
            fixed_sizes=True,
        ),
        # Nothing is known that they lack. Forms for onnxruntime's kernels on processors, which a model has where no
        # target is named, would only add kernels here.
        *(RuntimeTarget(name) for name in ("coreml", "cuda", "directml", "rocm", "tensorrt")),
        CPU,
        _WEBGPU,
        # onnxruntime-web's build with WebGPU is without kernels for float64, on the processor, too.
        dataclasses.replace(
            _WEBGPU, name="webgpu-web", without=_WEBGPU.without | _WIDE, leaves=frozenset[ir.DataType]()
        ),
    )
}


def target_of(name: str | None) -> RuntimeTarget:
    """A target by name; onnxruntime's own kernels where none is named.

    Raises:
        InvalidInputError: there is none of that name.
    """
    if name is None:
        return CPU
    if str(name) not in TARGETS:
        raise InvalidInputError(f"target requires one of {sorted(TARGETS)}, got {name!r}")
    return TARGETS[name]
