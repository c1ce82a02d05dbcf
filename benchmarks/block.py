"""What is timed of the block family: models and arrays of one op, given shapes, saved activations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

from benchmarks.floors import Product
from lstm_lower import opdef
from lstm_lower.runtime.proof.oracles.registry import ORACLES

Array = np.ndarray[Any, Any]
DOMAIN = "ai.onnx.converters.tensorflow"
# What each op is timed against.
_OTHERS = ("textbook", "floor", "tensorflow", "pytorch", "floor-pytorch")
RIVALS = {"BlockLSTMGrad": ("openvino", "openvino-bfloat16", *_OTHERS, "autocast"), "BlockLSTM": _OTHERS}
VARIANTS = ("plain", "peephole", "v2", "half", "short", "dynamic", "vanishing")


@dataclasses.dataclass(frozen=True)
class Case:
    """What is timed.

    Attributes:
        op: `BlockLSTMGrad` (backward, activations given), `BlockLSTM` (forward), or another op of the block family.
        shape: T, B, I, H.
        variant: `plain`, `peephole`, `v2`, `half`, `short` (seq_len_max is 9/10 of T), `dynamic` (symbolic sizes) or
            `vanishing` (forget gates of one half, the gradient of h at the last step only).
    """

    op: str
    shape: tuple[int, int, int, int]
    variant: str = "plain"

    @property
    def op_type(self) -> str:
        """The op, in the version that the variant asks for."""
        return f"{self.op}V2" if self.variant == "v2" else self.op


def arrays(case: Case, seed: int = 0) -> dict[str, Array]:
    """Operands of a case: small random weights, saved activations from the float64 oracle of the forward op."""
    T, B, I, H = case.shape  # noqa: E741
    random = np.random.default_rng(seed)

    def normal(*shape: int, scale: float = 1.0) -> Array:
        return (random.standard_normal(shape, np.float32) * np.float32(scale)).astype(np.float32)

    operands: dict[str, Array] = {
        "seq_len_max": np.asarray(T * 9 // 10 if case.variant == "short" else T, np.int64),
        "x": normal(T, B, I),
        "cs_prev": normal(B, H, scale=0.1),
        "h_prev": normal(B, H, scale=0.1),
        "w": normal(I + H, 4 * H, scale=(I + H) ** -0.5),
        "wci": normal(H, scale=0.1),
        "wcf": normal(H, scale=0.1),
        "wco": normal(H, scale=0.1),
        "b": normal(4 * H, scale=0.1),
    }
    if case.op == "BlockLSTMGrad":
        operands |= _activations(case, operands)
        operands["cs_grad"] = np.zeros((T, B, H), np.float32)
        operands["h_grad"] = normal(T, B, H)
        if case.variant == "vanishing":
            operands["f"][:] = 0.5
            operands["w"] *= np.float32(0.1)
            operands["h_grad"][:-1] = 0
    if case.variant == "half":
        operands = {name: v.astype(np.float16) if v.dtype == np.float32 else v for name, v in operands.items()}
    return operands


def _activations(case: Case, operands: dict[str, Array]) -> dict[str, Array]:
    """The forward op's outputs, in float32 and without the oracle's patience for large sizes."""
    forward = "BlockLSTMV2" if case.variant == "v2" else "BlockLSTM"
    options = {"use_peephole": case.variant == "peephole", "cell_clip": 0.0}
    results = ORACLES[forward](**operands, **options)
    return {name: np.ascontiguousarray(value, np.float32) for name, value in results.items()}


def attributes(case: Case) -> dict[str, Any]:
    """Attributes of a case."""
    given: dict[str, Any] = {"use_peephole": case.variant == "peephole"}
    if case.op == "BlockLSTM":
        given["cell_clip"] = 0.0
    return given


def model(case: Case, operands: dict[str, Array]) -> onnx.ModelProto:
    """The model of one composite node; cs_grad is zeros that the graph knows of, as in a real training graph."""
    definition = opdef.REGISTRY[case.op_type]
    sizes = dict(zip("TBIH", case.shape, strict=True))
    dynamic = case.variant == "dynamic"
    nodes: list[onnx.NodeProto] = []
    inputs: list[onnx.ValueInfoProto] = []
    constants: list[onnx.TensorProto] = []
    for operand in definition.inputs:
        value = operands[operand.name]
        element = helper.np_dtype_to_tensor_dtype(value.dtype)
        if operand.name == "seq_len_max":
            constants.append(onnx.numpy_helper.from_array(value, operand.name))
        elif operand.name == "cs_grad":
            zero = onnx.numpy_helper.from_array(np.zeros(1, value.dtype))
            nodes.append(helper.make_node("Shape", ["cs"], ["cs_shape"]))
            nodes.append(helper.make_node("ConstantOfShape", ["cs_shape"], ["cs_grad"], value=zero))
        else:
            shape: list[int | str] = list(value.shape)
            if dynamic and value.ndim == 3:
                shape = ["T", "B", value.shape[2]]
            elif dynamic and value.shape == (sizes["B"], sizes["H"]):
                shape = ["B", value.shape[1]]
            inputs.append(helper.make_tensor_value_info(operand.name, element, shape))
    given = attributes(case)
    flags: dict[str, Any] = {name: int(value) if isinstance(value, bool) else value for name, value in given.items()}
    names = [operand.name for operand in definition.inputs]
    outputs = [f"{output.name}_out" for output in definition.outputs]
    nodes.append(helper.make_node(case.op_type, names, outputs, name=case.op, domain=DOMAIN, **flags))
    element = helper.np_dtype_to_tensor_dtype(operands["x"].dtype)
    results = [helper.make_tensor_value_info(name, element, None) for name in outputs]
    graph = helper.make_graph(nodes, "bench", inputs, results, constants)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def feeds(case: Case, operands: dict[str, Array]) -> dict[str, Array]:
    """What a session of the case's model is fed."""
    definition = opdef.REGISTRY[case.op_type]
    names = {operand.name for operand in definition.inputs} - {"seq_len_max", "cs_grad"}
    return {name: value for name, value in operands.items() if name in names}


def floor_products(case: Case) -> list[Product]:
    """The matrix products that every implementation of the case computes, one after the other, and nothing else.

    Backward: T products [B,4H]x[4H,H], one [T*B,4H]x[4H,I] and one [I+H,T*B]x[T*B,4H]. Forward: T products
    [B,H]x[H,4H] and one [T*B,I]x[I,4H].
    """
    T, B, I, H = case.shape  # noqa: E741
    rows = T * B
    if case.op == "BlockLSTMGrad":
        return [
            Product((B, 4 * H), (4 * H, H), T),
            Product((rows, 4 * H), (4 * H, I)),
            Product((rows, I + H), (rows, 4 * H), turned=True),
        ]
    return [Product((B, H), (H, 4 * H), T), Product((rows, I), (I, 4 * H))]


def in_pytorch(case: Case, *, bfloat16: bool = False) -> Callable[[], Any]:
    """PyTorch's `nn.LSTM`: backward alone for a gradient op, forward alone for a forward one.

    Args:
        case: what is timed.
        bfloat16: whether the forward pass ran under `torch.autocast`.
    """
    import torch

    _, _, I, H = case.shape  # noqa: E741
    operands = arrays(case)
    lstm = torch.nn.LSTM(I, H)
    x = torch.tensor(operands["x"], requires_grad=True)
    states = [torch.tensor(operands[name][None], requires_grad=True) for name in ("h_prev", "cs_prev")]
    if case.op != "BlockLSTMGrad":

        def forward() -> Any:
            with torch.no_grad():
                return lstm(x, tuple(states))

        return forward
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        output, _ = lstm(x, tuple(states))
    gradient = torch.tensor(operands["h_grad"]).to(output.dtype)
    wanted = [x, *states, *lstm.parameters()]

    def backward() -> Any:
        return torch.autograd.grad(output, wanted, gradient, retain_graph=True)

    return backward
