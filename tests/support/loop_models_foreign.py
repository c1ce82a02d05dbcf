"""Random Scans as exporters and source transformations write them: an axis too many, gate by gate, padded sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.support.loop_models import LoopModel

B, H, N = 2, 3, 2
OPSET = 18
Shape = tuple[int, ...]
ROWS, SEEDED = (B, H), (B, H, N)


class _Body:
    """Grows a body from pools of values by shape."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.pool: list[tuple[str, Shape]] = []
        self.nodes: list[onnx.NodeProto] = []
        self.count = 0

    def make(self, op: str, inputs: list[str], shape: Shape | None, outputs: int = 1, **attributes: Any) -> list[str]:
        names = [f"v{self.count + index}" for index in range(outputs)]
        self.count += outputs
        self.nodes.append(helper.make_node(op, inputs, names, name=f"n_{names[0]}", **attributes))
        if shape is not None:
            self.pool += [(name, shape) for name in names]
        return names

    def op(self, op: str, inputs: list[str], shape: Shape | None, **attributes: Any) -> str:
        return self.make(op, inputs, shape, **attributes)[0]

    def ints(self, *values: int) -> str:
        tensor = numpy_helper.from_array(np.asarray(values, np.int64))
        return self.op("Constant", [], None, value=tensor)

    def pick(self, shape: Shape) -> str:
        fitting = [name for name, own in self.pool if own == shape]
        return self.draw(st.sampled_from(fitting + fitting[-3:]))

    def grow(self) -> None:
        kind = self.draw(
            st.sampled_from(
                ["turned", "turned", "seeded", "seeded", "parallel", "summed", "cut", "padded", "expanded", "written"]
            )
        )
        getattr(self, f"_{kind}")()

    def _turned(self) -> None:
        first = self.op("Transpose", [self.pick(SEEDED)], None, perm=[2, 0, 1])
        if self.draw(st.booleans()):
            first = self.op("Tanh", [first], None)
        product = self.op("MatMul", [first, self.draw(st.sampled_from(["w0", "w1"]))], None)
        self.op("Transpose", [product], SEEDED, perm=[1, 2, 0])

    def _seeded(self) -> None:
        other = self.draw(st.sampled_from(["seeded", "rows", "unary"]))
        if other == "unary":
            self.op(self.draw(st.sampled_from(["Tanh", "Neg", "Sigmoid"])), [self.pick(SEEDED)], SEEDED)
            return
        factor = self.pick(SEEDED)
        if other == "rows":
            factor = self.op("Unsqueeze", [self.pick(ROWS), self.ints(-1)], None)
        self.op(self.draw(st.sampled_from(["Add", "Mul", "Sub"])), [self.pick(SEEDED), factor], SEEDED)

    def _parallel(self) -> None:
        rows = self.pick(ROWS)
        for weight in ("w0", "w1", "w2")[: self.draw(st.integers(2, 3))]:
            product = self.op("MatMul", [rows, weight], ROWS)
            if self.draw(st.booleans()):
                self.op("Add", [self.pick(ROWS), product], ROWS)

    def _summed(self) -> None:
        total = self.op("MatMul", [self.pick(ROWS), "w0"], None)
        for weight in ("w1", "w2")[: self.draw(st.integers(1, 2))]:
            total = self.op("Add", [total, self.op("MatMul", [self.pick(ROWS), weight], None)], None)
        self.op("Add", [total, self.pick(ROWS)], ROWS)

    def _cut(self) -> None:
        wide = self.op("MatMul", [self.pick(ROWS), "wide"], None)
        if self.draw(st.booleans()):
            parts = self.make("Split", [wide], None, 2, axis=1, num_outputs=2)
        else:
            bounds = [[self.ints(x) for x in (start, start + H, 1)] for start in (0, H)]
            parts = [self.op("Slice", [wide, *own], None) for own in bounds]
        work = self.draw(st.sampled_from(["Add", "Mul", "bias", "Tanh", "Transpose", "sum"]))
        if work == "sum":
            summed = [self.op("ReduceSum", [part, self.ints(0)], None, keepdims=1) for part in parts]
            self.op("Add", [self.pick(ROWS), summed[1]], ROWS)
            parts = [self.op("Add", [self.pick(ROWS), summed[0]], None), parts[1]]
        elif work == "Transpose":
            turned = [self.op("Transpose", [part], None, perm=[1, 0]) for part in parts]
            parts = [self.op("Transpose", [part], None, perm=[1, 0]) for part in turned]
        elif work == "Tanh":
            parts = [self.op("Tanh", [part], None) for part in parts]
        elif work == "bias":
            parts = [self.op("Add", [part, f"bias{index}"], None) for index, part in enumerate(parts)]
        else:
            parts = [self.op(work, [part, self.pick(ROWS)], None) for part in parts]
        self.pool += [(part, ROWS) for part in parts]
        joined = self.op("Concat", parts[:: self.draw(st.sampled_from([1, -1]))], None, axis=1)
        self.op("MatMul", [joined, "tall"], ROWS)

    def _padded(self) -> None:
        left = self.op("Pad", [self.pick(ROWS), self.ints(0, 0, 0, H)], None)
        right = self.op("Pad", [self.pick(ROWS), self.ints(0, H, 0, 0)], None)
        total = self.op("Add", [left, right], None)
        self.op("MatMul", [total, "tall"], ROWS)

    def _expanded(self) -> None:
        self.op("Expand", [self.pick(SEEDED), self.ints(B, 1, 1)], SEEDED)

    def _written(self) -> None:
        one = self.op("Constant", [], None, value=numpy_helper.from_array(np.float32(1)))
        power = self.op("Exp", [self.op("Neg", [self.pick(ROWS)], None)], None)
        self.op("Div", [one, self.op("Add", [power, one], None)], ROWS)

    def accumulators(self) -> list[tuple[str, Shape, str]]:
        found = []
        for index in range(self.draw(st.integers(0, 2))):
            turned = self.op("Transpose", [self.pick(SEEDED)], None, perm=[2, 0, 1])
            kind = self.draw(st.sampled_from(["rows", "seeded", "invariant"]))
            left = {"rows": ROWS, "seeded": SEEDED}.get(kind)
            if left is None:
                addend = self.op("MatMul", [turned, "w2"], None)
                shape: Shape = (N, B, H)
            else:
                order = [1, 0] if left == ROWS else [2, 1, 0]
                other = self.op("Transpose", [self.pick(left)], None, perm=order)
                addend = self.op("MatMul", [other, turned], None)
                shape = (N, H, H)
            if self.draw(st.booleans()):
                addend, shape = self.op("Transpose", [addend], None, perm=[1, 2, 0]), (*shape[1:], N)
                addend = self.op("Expand", [addend, self.ints(*shape[:2], 1)], None)
            total = self.op("Add", [f"sum{index}_in", addend], None)
            found.append((f"sum{index}", shape, total))
        return found


def _turned_round(draw: Any, names: list[str], steps: int) -> tuple[list[onnx.NodeProto], list[str]]:
    """Turns some sequences round in time, in one way or the other; the nodes and what to read now."""
    nodes: list[onnx.NodeProto] = []
    found = []
    for name in names:
        way = draw(st.sampled_from(["", "", "Slice", "Gather"]))
        constants = {"last": [-1], "end": [np.iinfo(np.int64).min + 1], "axis": [0], "order": range(steps)[::-1]}
        for key, value in constants.items() if way else ():
            tensor = numpy_helper.from_array(np.asarray(value, np.int64))
            nodes.append(helper.make_node("Constant", [], [f"{name}_{key}"], value=tensor))
        if way:
            keys = ("last", "end", "axis", "last") if way == "Slice" else ("order",)
            nodes.append(helper.make_node(way, [name, *(f"{name}_{key}" for key in keys)], [f"{name}_turned"]))
        found.append(f"{name}_turned" if way else name)
    return nodes, found


def _info(name: str, shape: tuple[int | str, ...] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


@st.composite
def foreign_models(draw: Any) -> LoopModel:
    """A model of one such Scan."""
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    steps = draw(st.integers(1, 3))
    shapes: dict[str, Shape] = {
        **dict.fromkeys(("w0", "w1", "w2"), (H, H)),
        "wide": (H, 2 * H),
        "tall": (2 * H, H),
        **dict.fromkeys(("bias0", "bias1"), (H,)),
    }
    body = _Body(draw)
    states: list[tuple[str, Shape]] = [("h", ROWS), ("s", SEEDED)]
    inputs: list[tuple[str, Shape]] = [("x", ROWS), ("y", SEEDED)]
    body.pool = [(f"{name}_in", shape) for name, shape in (*states, *inputs)]
    for _ in range(draw(st.integers(2, 7))):
        body.grow()
    updates = [body.pick(shape) for _, shape in states]
    sums = body.accumulators()
    states += [(name, shape) for name, shape, _ in sums]
    updates += [total for *_, total in sums]
    made = [(body.pick(shape), shape) for shape in draw(st.lists(st.sampled_from([ROWS, SEEDED]), max_size=3))]
    results = [*zip(updates, (shape for _, shape in states), strict=True), *made]
    body.nodes += [helper.make_node("Identity", [value], [f"r{at}"]) for at, (value, _) in enumerate(results)]
    parameters = [_info(f"{name}_in", shape) for name, shape in (*states, *inputs)]
    # Exporters leave sizes open.
    seeds = draw(st.sampled_from([N, "seeds"]))
    declared = [_info(f"r{at}", tuple("?" for _ in shape)) for at, (_, shape) in enumerate(results)]
    for value in (*parameters, *declared):
        for dim in value.type.tensor_type.shape.dim:
            if draw(st.booleans()):
                dim.Clear()
    graph = helper.make_graph(body.nodes, "body", parameters, declared)
    backwards = draw(st.integers(0, 1))
    outside, turned = _turned_round(draw, [name for name, _ in inputs], steps)
    scan = helper.make_node(
        "Scan",
        [*(name for name, _ in states), *turned],
        [f"z{at}" for at in range(len(results))],
        name="loop",
        body=graph,
        num_scan_inputs=len(inputs),
        scan_input_directions=[backwards] * len(inputs),
        **({"scan_output_directions": [backwards] * len(made)} if made else {}),
    )
    shapes.update(states)
    shapes.update((name, (steps, *shape)) for name, shape in inputs)
    feeds = {name: (random.standard_normal(shape) * 0.5).astype(np.float32) for name, shape in shapes.items()}
    open_sizes = {"s": 2, "y": 3}
    model_inputs = [
        _info(name, tuple(seeds if open_sizes.get(name) == axis else dim for axis, dim in enumerate(shape)))
        for name, shape in shapes.items()
    ]
    sequences = [f"z{at}" for at in range(len(states), len(results))]
    behind, made_round = _turned_round(draw, sequences, steps)
    outputs = [_info(name, None) for name in (*(f"z{at}" for at in range(len(states))), *dict.fromkeys(made_round))]
    outer = helper.make_graph([*outside, scan, *behind], "model", model_inputs, outputs)
    model = helper.make_model(outer, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    return LoopModel(model, feeds)
