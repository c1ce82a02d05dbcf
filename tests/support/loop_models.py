"""Random Scans for property tests: loops that no recurrent network ever made."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

B, H = 2, 3
OPSET = 18
Shape = tuple[int, ...]
SHAPES: list[Shape] = [(B, H), (B, H), (H,), (B, 1), ()]
UNARY = ["Sigmoid", "Tanh", "Neg", "Abs", "Identity"]
BINARY = ["Add", "Add", "Mul", "Mul", "Sub"]


@dataclasses.dataclass
class LoopModel:
    """A model around one Scan, with values for its inputs."""

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]


class _Body:
    """Grows a body op by op from a pool of typed values."""

    def __init__(self, draw: Any, captured: dict[str, Shape]) -> None:
        self.draw = draw
        self.pool: list[tuple[str, Shape]] = list(captured.items())
        self.nodes: list[onnx.NodeProto] = []
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def add(self, op: str, inputs: list[str], shape: Shape, **attributes: Any) -> str:
        name = self.fresh()
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n_{name}", **attributes))
        self.pool.append((name, shape))
        return name

    def constant(self, value: Any) -> str:
        name = self.fresh()
        tensor = numpy_helper.from_array(np.asarray(value))
        self.nodes.append(helper.make_node("Constant", [], [name], name=f"n_{name}", value=tensor))
        return name

    def pick(self, *shapes: Shape) -> tuple[str, Shape]:
        fitting = [entry for entry in self.pool if entry[1] in shapes] if shapes else self.pool
        # Later values more often, so that chains grow.
        return self.draw(st.sampled_from(fitting + fitting[-4:]))

    def matrix(self) -> str:
        """A value of shape [B, H]."""
        return self.pick((B, H))[0]

    def grow(self) -> None:
        kind = self.draw(
            st.sampled_from(
                ["binary", "binary", "binary", "unary", "matmul", "concat", "slices", "reduce", "where", "if", "gates"]
            )
        )
        getattr(self, f"_{kind}")()

    def _binary(self) -> None:
        (a, left), (b, right) = self.pick(), self.pick()
        try:
            shape = np.broadcast_shapes(left, right)
        except ValueError:
            return
        self.add(self.draw(st.sampled_from(BINARY)), [a, b], shape)

    def _unary(self) -> None:
        a, shape = self.pick()
        self.add(self.draw(st.sampled_from(UNARY)), [a], shape)

    def _matmul(self) -> None:
        if self.draw(st.booleans()):
            self.add("MatMul", [self.matrix(), "w"], (B, H))
        else:
            transposed = self.draw(st.integers(0, 1))
            self.add("Gemm", [self.matrix(), "w", "bias"], (B, H), transB=transposed, alpha=0.5)

    def _concat(self) -> None:
        joined = self.add(
            "Concat", [self.matrix(), self.matrix()], (B, 2 * H), axis=self.draw(st.sampled_from([1, -1]))
        )
        self.add("MatMul", [joined, "w_tall"], (B, H))

    def _slices(self) -> None:
        product = self.add("MatMul", [self.matrix(), "w_wide"], (B, 2 * H))
        if self.draw(st.booleans()):
            for start, end in ((0, H), (H, np.iinfo(np.int64).max)):
                bounds = [self.constant(np.array([bound], np.int64)) for bound in (start, end, 1)]
                self.add("Slice", [product, *bounds], (B, H))
        else:
            left, right = self.fresh(), self.fresh()
            self.nodes.append(
                helper.make_node("Split", [product], [left, right], axis=1, num_outputs=2, name=f"n_{left}")
            )
            self.pool += [(left, (B, H)), (right, (B, H))]

    def _reduce(self) -> None:
        keep = self.draw(st.integers(0, 1))
        axes = self.constant(np.array([1], np.int64))
        self.add("ReduceSum", [self.matrix(), axes], (B, 1) if keep else (B,), keepdims=keep)

    def _where(self) -> None:
        a, b = self.matrix(), self.matrix()
        condition = self.fresh()
        self.nodes.append(helper.make_node("Less", [a, b], [condition], name=f"n_{condition}"))
        self.add("Where", [condition, a, self.matrix()], (B, H))

    def _gates(self) -> None:
        count = self.draw(st.integers(2, 3))
        parts = [self.add("Mul", [self.matrix(), self.matrix()], (B, H)) for _ in range(count)]
        joined = self.fresh()
        self.nodes.append(helper.make_node("Concat", parts, [joined], axis=1, name=f"n_{joined}"))
        axes = self.constant(np.array([1], np.int64))
        self.add("ReduceSum", [joined, axes], (B, 1))

    def _if(self) -> None:
        """A branch that captures values of the body and of the outermost graph."""
        inner, other = self.fresh(), self.fresh()
        then = helper.make_graph(
            [helper.make_node("Mul", [self.matrix(), "bias"], [inner])], f"then_{inner}", [], [_info(inner)]
        )
        orelse = helper.make_graph(
            [helper.make_node("Neg", [self.matrix()], [other])], f"else_{other}", [], [_info(other)]
        )
        self.add("If", ["flag"], (B, H), then_branch=then, else_branch=orelse)


def _info(name: str, shape: tuple[int | str, ...] | None = None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


@st.composite
def loop_models(draw: Any, steps: st.SearchStrategy[int] | None = None) -> LoopModel:
    """A model of one random Scan between a few ordinary nodes."""
    length = draw(steps if steps is not None else st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    shapes: dict[str, Shape] = {"w": (H, H), "w_tall": (2 * H, H), "w_wide": (H, 2 * H), "bias": (H,)}
    feeds: dict[str, np.ndarray] = {name: _values(random, shape) for name, shape in shapes.items()}
    body = _Body(draw, {"bias": (H,)})
    count = draw(st.integers(1, 3))
    states = [(f"state{index}", draw(st.sampled_from([(B, H), (B, H), (H,)]))) for index in range(count)]
    inputs: list[tuple[str, Shape, int, int]] = []
    for index in range(draw(st.integers(1, 3))):
        shape = draw(st.sampled_from([(B, H), (B, H), (H,), (B, 1)])) if index else (B, H)
        axis = draw(st.sampled_from([0, 0, 1, -1]))
        inputs.append((f"x{index}", shape, axis, draw(st.integers(0, 1))))
    body.pool += [(f"{name}_in", shape) for name, shape in states] + [
        (f"{name}_t", shape) for name, shape, _, _ in inputs
    ]
    for _ in range(draw(st.integers(2, 9))):
        body.grow()
    updates = [_update(draw, body, name, shape) for name, shape in states]
    accumulators = _accumulators(draw, body)
    states += [(name, shape) for name, shape, _ in accumulators]
    updates += [update for _, _, update in accumulators]
    outputs = [draw(st.sampled_from(body.pool)) for _ in range(draw(st.integers(1, 3)))]
    forms = [(draw(st.sampled_from([0, 0, -1])) if shape else 0, draw(st.integers(0, 1))) for _, shape in outputs]
    results = []
    for position, (value, shape) in enumerate([*((u, s) for u, (_, s) in zip(updates, states, strict=True)), *outputs]):
        body.nodes.append(helper.make_node("Identity", [value], [f"r{position}"], name=f"n_r{position}"))
        results.append(_info(f"r{position}", shape))
    parameters = [_info(f"{name}_in", shape) for name, shape in states]
    parameters += [_info(f"{name}_t", shape) for name, shape, _, _ in inputs]
    graph = helper.make_graph(body.nodes, "body", parameters, results)
    scan_outputs = [f"y{position}" for position in range(len(results))]
    scan = helper.make_node(
        "Scan",
        [*(name for name, _ in states), *(name for name, *_ in inputs)],
        scan_outputs,
        name="loop",
        body=graph,
        num_scan_inputs=len(inputs),
        scan_input_axes=[axis for *_, axis, _ in inputs],
        scan_input_directions=[direction for *_, direction in inputs],
        scan_output_axes=[axis for axis, _ in forms],
        scan_output_directions=[direction for _, direction in forms],
    )
    for name, shape in states:
        feeds[name] = _values(random, shape)
    for name, shape, axis, _ in inputs:
        feeds[name] = np.moveaxis(_values(random, (length, *shape)), 0, axis)
    # Some results stay unread: dead outputs and dead states.
    kept = [name for name in scan_outputs if draw(st.integers(0, 3))] or scan_outputs[:1]
    # Time may be known only at run time.
    length_name = draw(st.sampled_from([None, "T"]))
    axes = {name: axis % (len(shape) + 1) for name, shape, axis, _ in inputs}
    model_inputs = []
    for name, array in feeds.items():
        dims: list[int | str] = list(array.shape)
        if name in axes and length_name is not None:
            dims[axes[name]] = length_name
        model_inputs.append(_info(name, tuple(dims)))
    model_inputs.append(_info("flag", (), TensorProto.BOOL))
    feeds["flag"] = np.asarray(draw(st.booleans()))
    outer = helper.make_graph([scan], "model", model_inputs, [_info(name) for name in kept])
    model = helper.make_model(outer, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    return LoopModel(model, feeds)


def _update(draw: Any, body: _Body, name: str, shape: Shape) -> str:
    """A state's next value: anything of its shape, itself passed through included."""
    return draw(st.sampled_from([entry[0] for entry in body.pool if entry[1] == shape] + [f"{name}_in"]))


def _accumulators(draw: Any, body: _Body) -> list[tuple[str, Shape, str]]:
    """Carried sums: of values, of reductions, and of products with and without transposes."""
    found: list[tuple[str, Shape, str]] = []
    for index in range(draw(st.integers(0, 2))):
        name = f"sum{index}"
        kind = draw(st.sampled_from(["value", "reduced", "product", "gemm", "scaled"]))
        shape: Shape = (H, H) if kind in ("product", "gemm") else (H,) if kind == "reduced" else (B, H)
        if kind == "value":
            addend = body.matrix()
        elif kind == "scaled":
            addend = body.add("MatMul", [body.matrix(), "w"], (B, H))
        elif kind == "reduced":
            axes = body.constant(np.array([0], np.int64))
            addend = body.add("ReduceSum", [body.matrix(), axes], (H,), keepdims=0)
        elif kind == "product":
            turned = body.add("Transpose", [body.matrix()], (H, B), perm=[1, 0])
            addend = body.add("MatMul", [turned, body.matrix()], (H, H))
        else:
            addend = body.add("Gemm", [body.matrix(), body.matrix()], (H, H), transA=1)
        total = body.fresh()
        op = draw(st.sampled_from(["Add", "Sub"]))
        body.nodes.append(helper.make_node(op, [f"{name}_in", addend], [total], name=f"n_{total}"))
        if draw(st.integers(0, 3)) == 0:
            # A sum whose every value is read is no accumulator.
            body.pool.append((total, shape))
        found.append((name, shape, total))
    return found


def _values(random: np.random.Generator, shape: Shape) -> np.ndarray:
    return (random.standard_normal(shape) * 0.5).astype(np.float32)
