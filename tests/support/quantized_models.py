"""Small networks as onnxruntime's quantizers write them, with weights and activations of integers."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

Array = np.ndarray[Any, Any]

_HEAD = '<ir_version: 8, opset_import: ["" : 17]> f (float[B,{sizes}] x) => (float[B,3] y) '

# What a network reads, its nodes, and the shapes of its weights.
_NETWORKS: Mapping[str, tuple[tuple[int, ...], str, Mapping[str, tuple[int, ...]]]] = {
    "mlp": (
        (8,),
        "{ a = Gemm(x, w1, b1)  r = Relu(a)  c = MatMul(r, w2)  y = Add(c, b2) }",
        {"w1": (8, 16), "b1": (16,), "w2": (16, 3), "b2": (3,)},
    ),
    "cnn": (
        (3, 8, 8),
        """{ a = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)  r = Relu(a)
        p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)  c = Conv(p, w2, b2)  s = Sigmoid(c)
        g = GlobalAveragePool(s)  f = Flatten(g)  y = Gemm(f, w3, b3) }""",
        {"w1": (4, 3, 3, 3), "b1": (4,), "w2": (6, 4, 3, 3), "b2": (6,), "w3": (6, 3), "b3": (3,)},
    ),
    "lstm": (
        (5, 8),
        """{ t = Transpose<perm = [1, 0, 2]>(x)  s, h = LSTM<hidden_size = 6>(t, w1, r1, b1)
        k = Constant<value = int64[1] {0}>()  q = Squeeze(h, k)  c = MatMul(q, w2)  y = Add(c, b2) }""",
        {"w1": (1, 24, 8), "r1": (1, 24, 6), "b1": (1, 48), "w2": (6, 3), "b2": (3,)},
    ),
    "crnn": (
        (3, 8, 6),
        """{ a = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)  r = Relu(a)  t = Transpose<perm = [3, 0, 1, 2]>(r)
        k = Constant<value = int64[3] {0, 0, 32}>()  f = Reshape(t, k)  s, h = LSTM<hidden_size = 6>(f, w2, r2, b2)
        z = Constant<value = int64[1] {0}>()  q = Squeeze(h, z)  c = MatMul(q, w3)  y = Add(c, b3) }""",
        {
            "w1": (4, 3, 3, 3),
            "b1": (4,),
            "w2": (1, 24, 32),
            "r2": (1, 24, 6),
            "b2": (1, 48),
            "w3": (6, 3),
            "b3": (3,),
        },
    ),
    "transformer": (
        (6, 8),
        """{ q = MatMul(x, wq)  k = MatMul(x, wk)  v = MatMul(x, wv)  kt = Transpose<perm = [0, 2, 1]>(k)
        s = MatMul(q, kt)  z = Constant<value = float {0.35}>()  sz = Mul(s, z)  a = Softmax(sz)  o = MatMul(a, v)
        u = MatMul(o, wo)  ub = Add(u, bo)  h = Add(ub, x)  m = ReduceMean<axes = [-1]>(h)  d = Sub(h, m)
        dd = Mul(d, d)  vv = ReduceMean<axes = [-1]>(dd)  e = Constant<value = float {0.00001}>()  ve = Add(vv, e)
        sd = Sqrt(ve)  n = Div(d, sd)  f1 = MatMul(n, w1)  f1b = Add(f1, b1)  f1r = Relu(f1b)  f2 = MatMul(f1r, w2)
        f2b = Add(f2, b2)  l = Add(f2b, n)  p = ReduceMean<axes = [1], keepdims = 0>(l)  c = MatMul(p, w3)
        y = Add(c, b3) }""",
        {
            **dict.fromkeys(("wq", "wk", "wv", "wo"), (8, 8)),
            "bo": (8,),
            "w1": (8, 16),
            "b1": (16,),
            "w2": (16, 8),
            "b2": (8,),
            "w3": (8, 3),
            "b3": (3,),
        },
    ),
}
KINDS = tuple(_NETWORKS)
FORMATS = ("dynamic", "qdq", "qoperator")


def data(kind: str, count: int = 16) -> Array:
    """Samples for a network."""
    return np.random.default_rng(1).standard_normal((count, *_NETWORKS[kind][0])).astype(np.float32)


def network(kind: str, **weights: Array) -> onnx.ModelProto:
    """A network of floats; with other weights in place of its own."""
    sizes, text, shapes = _NETWORKS[kind]
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(_HEAD.format(sizes=",".join(map(str, sizes))) + text)
    for name, shape in shapes.items():
        own = random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) if len(shape) > 1 else 4)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights.get(name, own.astype(np.float32)), name))
    return model


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, kind: str) -> None:
        self._left: Iterator[Array] = iter(np.split(data(kind), 4))

    def get_next(self) -> dict[str, Array] | None:
        batch = next(self._left, None)
        return None if batch is None else {"x": batch}


@functools.cache
def _file(kind: str, form: str, folder: Path) -> Path:
    source, target = folder / f"{kind}.onnx", folder / f"{kind}_{form}.onnx"
    onnx.save(network(kind), source)
    if form == "dynamic":
        quantize_dynamic(source, target, weight_type=QuantType.QInt8)
    else:
        quantize_static(
            source,
            target,
            _Samples(kind),
            quant_format=QuantFormat.QDQ if form == "qdq" else QuantFormat.QOperator,
            per_channel=form == "qdq",
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            # As is usual: sums and statistics of normalizations have no place among 256 numbers.
            op_types_to_quantize=["MatMul"] if kind == "transformer" else None,
        )
    return target


def quantized(kind: str, form: str, folder: Path) -> onnx.ModelProto:
    """A network of integers: `dynamic`, `qdq`, `qoperator`, or `int4` (of matrices), or `float`."""
    if form == "int4":
        packing = MatMulNBitsQuantizer(network(kind), block_size=16, is_symmetric=True)
        packing.process()
        return packing.model.model
    return network(kind) if form == "float" else onnx.load(_file(kind, form, folder))


def dequantized(kind: str, model: onnx.ModelProto) -> onnx.ModelProto:
    """The network of floats with the numbers that a model's integers stand for as weights."""
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    weights = {}
    for name, shape in _NETWORKS[kind][2].items():
        if name in arrays:
            weights[name] = arrays[name]
        scale = arrays.get(f"{name}_scale")
        if scale is not None:
            integers = arrays[f"{name}_quantized"]
            # An LSTM of integers has its weights transposed.
            integers = integers.swapaxes(1, 2) if integers.shape != shape else integers
            weights[name] = _numbers(integers, scale, arrays[f"{name}_zero_point"])
    return network(kind, **weights)


def _numbers(integers: Array, scale: Array, zero: Array) -> Array:
    # Scales are of columns of a matrix, and of the first axis of a convolution's weight.
    axis = 0 if scale.size == 1 or integers.ndim > 2 else integers.ndim - 1
    form = [1] * integers.ndim
    form[axis] = -1
    return ((integers.astype(np.float32) - zero.reshape(form)) * scale.reshape(form)).astype(np.float32)
