"""Recurrent models as other projects export them, for the loop optimiser to work on.

Each function exports one model of the sizes T (steps), B (batch), I (inputs) and H (units); its package is imported
where it is used. Seeds are fixed, so that the same packages export the same model.
"""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

Sizes = tuple[int, int, int, int]


def onnx_ad_lstm_gradient(sizes: Sizes) -> onnx.ModelProto:
    """The adjoint of an ONNX LSTM node by onnx-ad: a Scan, and a Scan over its tape with an axis of seed directions."""
    import onnx_ad

    T, B, I, H = sizes  # noqa: E741
    node = helper.make_node("LSTM", ["x", "w", "r", "b", "", "h0", "c0"], ["y"], hidden_size=H)
    shapes = {
        "x": [T, B, I],
        "w": [1, 4 * H, I],
        "r": [1, 4 * H, H],
        "b": [1, 8 * H],
        "h0": [1, B, H],
        "c0": [1, B, H],
    }
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [T, 1, B, H])
    graph = helper.make_graph([node], "lstm", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    adjoint: onnx.ModelProto = onnx_ad.reverse(model, layout="onnx")
    return adjoint


def torch_gru(sizes: Sizes) -> onnx.ModelProto:
    """A scan over `torch.nn.GRUCell`, exported by torch.onnx through onnxscript: a Scan of Gemms and Splits."""
    import torch
    from torch._higher_order_ops.scan import scan

    T, B, I, H = sizes  # noqa: E741

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.GRUCell(I, H)

        def forward(self, x: Any, h: Any) -> Any:
            def step(state: Any, element: Any) -> Any:
                state = self.cell(element, state)
                return state, state.clone()

            return scan(step, h, x, dim=0)

    torch.manual_seed(0)
    arguments = (torch.zeros(T, B, I), torch.zeros(B, H))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(Network().eval(), arguments, dynamo=True, verbose=False)
    assert program is not None
    stream = io.BytesIO()
    stream.write(program.model_proto.SerializeToString())
    model = onnx.load_from_string(stream.getvalue())
    _forget_sources(model.graph)
    return model


def jax2onnx_lstm(sizes: Sizes) -> onnx.ModelProto:
    """An LSTM by `jax.lax.scan`, exported by jax2onnx: a Loop that gathers its elements by the iteration number."""
    import jax

    def lstm(x: Any, h: Any, c: Any, w: Any, r: Any, b: Any) -> Any:
        def step(state: Any, element: Any) -> Any:
            h, c = _jax_cell(element @ w + state[0] @ r + b, state[1])
            return (h, c), h

        return jax.lax.scan(step, (h, c), x)

    T, B, I, H = sizes  # noqa: E741
    return _jax_export(lstm, [(T, B, I), (B, H), (B, H), (I, 4 * H), (H, 4 * H), (4 * H,)])


def jax2onnx_lstm_gradient(sizes: Sizes) -> onnx.ModelProto:
    """The gradient of that LSTM as a second scan, forward over reversed sequences, weight gradients summed in it.

    jax2onnx exports no scan that runs backwards, which `jax.grad` of a scan is; hence the reversed sequences. It writes
    the products of `jax.vjp` that contract over rows without the transposition they need; hence only the gates are
    differentiated by `jax.vjp`.
    """
    import jax
    import jax.numpy as jnp

    def gradient(x: Any, h: Any, c: Any, w: Any, r: Any, b: Any, dy: Any) -> Any:
        def forward(state: Any, element: Any) -> Any:
            h, c = state
            z = element @ w + h @ r + b
            return _jax_cell(z, c), (h, c, z)

        def backward(state: Any, element: Any) -> Any:
            dh, dc, dw, dr, db = state
            x, h, c, z, dy = element
            dz, dc = jax.vjp(_jax_cell, z, c)[1]((dh + dy, dc))
            sums = dw + jnp.transpose(x) @ dz, dr + jnp.transpose(h) @ dz, db + dz.sum(axis=0)
            return (dz @ jnp.transpose(r), dc, *sums), dz @ jnp.transpose(w)

        tape = jax.lax.scan(forward, (h, c), x)[1]
        zeros = [jnp.zeros_like(value) for value in (h, c, w, r, b)]
        reversed_sequences = [jnp.flip(value, 0) for value in (x, *tape, dy)]
        (dh, dc, dw, dr, db), dx = jax.lax.scan(backward, tuple(zeros), tuple(reversed_sequences))
        return jnp.flip(dx, 0), dh, dc, dw, dr, db

    T, B, I, H = sizes  # noqa: E741
    return _jax_export(gradient, [(T, B, I), (B, H), (B, H), (I, 4 * H), (H, 4 * H), (4 * H,), (T, B, H)])


def _jax_cell(z: Any, c: Any) -> Any:
    import jax
    import jax.numpy as jnp

    i, f, g, o = jnp.split(z, 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _jax_export(function: Callable[..., Any], shapes: list[tuple[int, ...]]) -> onnx.ModelProto:
    import jax
    import jax.numpy as jnp
    from jax2onnx import to_onnx

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        exported = to_onnx(function, [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes])
        onnx.save(exported, path)
        return onnx.load(path)


def _forget_sources(graph: onnx.GraphProto) -> None:
    """Removes the notes on source lines, which are most of the file and name the folders of who exported."""
    graph.ClearField("doc_string")
    del graph.metadata_props[:]
    for value in [*graph.input, *graph.output, *graph.value_info]:
        del value.metadata_props[:]
    for node in graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _forget_sources(attribute.g)


EXPORTERS: dict[str, tuple[tuple[str, ...], Callable[[Sizes], onnx.ModelProto]]] = {
    "onnx_ad_lstm_gradient": (("onnx_ad",), onnx_ad_lstm_gradient),
    "torch_gru": (("torch", "onnxscript"), torch_gru),
    "jax2onnx_lstm": (("jax2onnx",), jax2onnx_lstm),
    "jax2onnx_lstm_gradient": (("jax2onnx",), jax2onnx_lstm_gradient),
}
