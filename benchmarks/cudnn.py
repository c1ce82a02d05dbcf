"""What is timed of the cuDNN family.

Forward and backward in one graph (op `CudnnRNN`) against PyTorch's forward and backward, and the backward op alone (op
`CudnnRNNBackprop`), whose forward output is at hand. A variant is a mode, perhaps followed by `-2x2`: two layers,
both directions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

from benchmarks.block import DOMAIN, Case
from benchmarks.floors import Product
from lstm_lower import opdef
from lstm_lower.layouts import ParamsLayout
from lstm_lower.runtime.proof.oracles.registry import ORACLES

Array = np.ndarray[Any, Any]

VARIANTS = ("lstm", "lstm-2x2", "gru", "gru-2x2")
# What each op is timed against.
RIVALS = {
    "CudnnRNN": ("textbook", "floor", "pytorch", "floor-pytorch"),
    "CudnnRNNBackprop": ("sequential", "floor", "floor-sequential"),
}
FORWARD = ("input", "input_h", "input_c", "params")
STATES = ("output", "output_h", "output_c")


def layout_of(case: Case) -> ParamsLayout:
    """The network of a case."""
    mode, _, size = case.variant.partition("-")
    layers, directions = (2, 2) if size == "2x2" else (1, 1)
    return ParamsLayout(mode, layers, directions, case.shape[2], case.shape[3])


def arrays(case: Case, seed: int = 0) -> dict[str, Array]:
    """Operands of CudnnRNNBackprop, those of the forward op among them; `output` only where it is timed alone."""
    layout, random = layout_of(case), np.random.default_rng(seed)
    steps, batch, width, units = case.shape
    states = (layout.pseudo_layers, batch, units)
    cell = states if layout.rnn_mode == "lstm" else ()
    shapes = {
        "input": (steps, batch, width), "input_h": states, "input_c": cell, "params": (layout.size,),
        "output": (steps, batch, layout.output_size), "output_h": states, "output_c": cell,
        "output_backprop": (steps, batch, layout.output_size), "output_h_backprop": states, "output_c_backprop": cell,
        "reserve_space": (0,),
    }  # fmt: skip
    operands = {name: np.asarray(random.standard_normal(shape), np.float32) for name, shape in shapes.items()}
    operands["params"] = operands["params"] * np.float32(units**-0.5)
    if case.op == "CudnnRNNBackprop":
        given = {name: operands[name] for name in FORWARD}
        results = ORACLES["CudnnRNN"](**given, **attributes(case))
        operands |= {name: results[name].astype(np.float32) for name in STATES}
    return operands


def attributes(case: Case) -> dict[str, Any]:
    """Attributes of both ops."""
    layout = layout_of(case)
    return {
        "rnn_mode": layout.rnn_mode,
        "direction": "bidirectional" if layout.directions == 2 else "unidirectional",
    }


def model(case: Case, operands: dict[str, Array], *, hide_output: bool = False) -> onnx.ModelProto:
    """The model of a case.

    Args:
        case: what is timed.
        operands: its arrays.
        hide_output: put a node between the graph's input `output` and the backward op, so that the lowering takes it
            for a computed one and recomputes the forward pass step by step.
    """
    backward, forward = opdef.REGISTRY["CudnnRNNBackprop"], opdef.REGISTRY["CudnnRNN"]
    made = [output.name for output in forward.outputs]
    names = [operand.name for operand in backward.inputs]
    results = [output.name for output in backward.outputs]
    nodes = []
    if case.op == "CudnnRNN":
        nodes.append(helper.make_node("CudnnRNN", FORWARD, made, name="forward", domain=DOMAIN, **attributes(case)))
        fed, outputs = [name for name in names if name not in made], ["output", *results]
    else:
        fed, outputs = names, results
    read = names
    if hide_output:
        nodes.append(helper.make_node("Add", ["output", "nothing"], ["hidden"]))
        read = ["hidden" if name == "output" else name for name in names]
    nodes.append(helper.make_node(backward.op_type, read, results, name="backward", domain=DOMAIN, **attributes(case)))
    graph = helper.make_graph(
        nodes,
        "bench",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, operands[name].shape) for name in fed],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [onnx.numpy_helper.from_array(np.zeros(1, np.float32), "nothing")] if hide_output else [],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)], ir_version=8
    )


def floor_products(case: Case) -> list[Product]:
    """The matrix products that an op cannot leave out, and nothing else.

    Of forward and backward these are two per step and four over all steps, for each pseudo-layer. A backward op alone
    has the output at hand, from which the recurrent side of the top layer's gates follows in one product.
    """
    steps, batch, _, units = case.shape
    layout, rows = layout_of(case), steps * batch
    products: list[Product] = []
    for row in layout.table:
        gates, width = row.W.shape
        alone = case.op == "CudnnRNNBackprop" and row.layer == layout.num_layers - 1
        products += [
            Product((rows, width), (width, gates)),
            Product((rows, units), (units, gates)) if alone else Product((batch, units), (units, gates), steps),
            Product((batch, gates), (gates, units), steps),
            Product((rows, gates), (gates, width)),
            Product((rows, gates), (rows, width), turned=True),
            Product((rows, gates), (rows, units), turned=True),
        ]
    return products


def in_pytorch(case: Case, device: str = "cpu") -> Callable[[], Any]:
    """PyTorch's forward and backward, on a device by PyTorch's name; for the end of a GPU's run the caller waits."""
    import torch

    from lstm_lower.weights import unpack_torch

    layout, operands = layout_of(case), arrays(case)
    kind = torch.nn.LSTM if layout.rnn_mode == "lstm" else torch.nn.GRU
    module = kind(layout.input_size, layout.num_units, layout.num_layers, bidirectional=layout.directions == 2)
    weights = unpack_torch(operands["params"], layout)
    module.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    states = ("input_h", "input_c") if layout.rnn_mode == "lstm" else ("input_h",)
    module.to(device)
    leaves = [torch.tensor(operands[name], device=device, requires_grad=True) for name in ("input", *states)]
    wanted = [*leaves, *module.parameters()]
    cotangents = [torch.tensor(operands[f"output{name[5:]}_backprop"], device=device) for name in ("input", *states)]

    def run() -> Any:
        output, final = module(leaves[0], tuple(leaves[1:]) if len(leaves) == 3 else leaves[1])
        finals = final if isinstance(final, tuple) else (final,)
        return torch.autograd.grad([output, *finals], wanted, cotangents)

    return run
