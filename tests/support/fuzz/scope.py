"""Graphs that grow node by node; every value carries a sample, which onnxruntime computed for this very node.

A generator therefore needs to know nothing about types and shapes: what onnxruntime refuses is dropped.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.support.fuzz.quick import computed
from tests.support.fuzz.runs import open_session

Array = np.ndarray[Any, Any]
Sample = Array | list[Array]

# Programs are about shapes and structure; large arrays only cost time.
MOST_ELEMENTS = 3000
LARGEST = 1e4
_SUMS = ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceSumSquare", "CumSum")


class Refused(Exception):  # noqa: N818 (nothing went wrong: an idea did not work out)
    """An idea of the generator that does not work out with the values at hand."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A value of a growing graph: a tensor, or a sequence of tensors."""

    name: str
    sample: Sample

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.sample, np.ndarray)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.sample.dtype if isinstance(self.sample, np.ndarray) else np.dtype(object)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sample.shape if isinstance(self.sample, np.ndarray) else ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype.kind == "f"


@dataclasses.dataclass
class Input:
    """A graph input: how it is declared, and what makes feeds for it.

    Attributes:
        name: its name.
        dtype: its dtype.
        axes: a size, or the key of one in the table of open sizes, per axis.
        declared: the dimensions as the model declares them.
        fixed: the only value that it may be fed with, such as a shape; `None` for any.
    """

    name: str
    dtype: np.dtype[Any]
    axes: tuple[int | str, ...]
    declared: list[int | str | None]
    fixed: Array | None = None


class Growth:
    """What all scopes of one program share."""

    def __init__(self, seed: int, *, smooth: bool = False) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.smooth = smooth  # gradients are taken
        self.opset = 0
        halves = [] if smooth else ["float16"] * 2
        self.dtype = np.dtype(self.random.choice(["float32"] * 8 + ["float64"] * 2 + halves))
        self.inputs: list[Input] = []
        self.functions: list[onnx.FunctionProto] = []
        self.within_functions = 0  # how many function bodies are growing
        self.constants: set[str] = set()
        self.given: list[str] = []
        self.taste: list[float] = []  # how much of each idea this program has
        # Bodies that declare sizes as numbers fit no other sizes of the inputs.
        self.pinned = self.chance(0.5)
        # A node means something else to onnxruntime where sizes are 0.
        self.never_empty = False
        self._count = 0

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def fresh(self, stem: str = "v") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def array(self, shape: Sequence[int], dtype: Any = None, kind: str | None = None) -> Array:
        """Values on a coarse grid, so that most sums and products are exact; at times all alike."""
        dtype = np.dtype(dtype or self.dtype)
        kind = kind or self.random.choice(["random"] * 6 + ["zeros", "ones", "alike"])
        if kind == "random":
            if dtype.kind == "f":
                return (self.numbers.integers(-8, 9, shape) / 4).astype(dtype)
            if dtype.kind == "b":
                return self.numbers.integers(0, 2, shape).astype(dtype)
            return self.numbers.integers(0 if dtype.kind == "u" else -3, 5, shape).astype(dtype)
        return np.full(shape, {"zeros": 0, "ones": 1, "alike": self.random.choice([-1, 0.5, 2])}[kind]).astype(dtype)


class Scope:
    """One graph: the outermost, a body of control flow, or a function."""

    def __init__(self, growth: Growth, outer: Scope | None = None, *, is_function: bool = False) -> None:
        self.growth = growth
        self.outer = outer
        self.is_function = is_function
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.values: dict[str, Value] = {}
        self.shadowed: set[str] = set()
        self.read: set[str] = set()  # names that the nodes read

    @property
    def random(self) -> random.Random:
        return self.growth.random

    @property
    def depth(self) -> int:
        return 0 if self.outer is None else self.outer.depth + 1

    @property
    def root(self) -> Scope:
        return self if self.outer is None else self.outer.root

    def chance(self, probability: float) -> bool:
        return self.growth.chance(probability)

    def visible(self) -> dict[str, Value]:
        """Values that a node may read here, outer ones first."""
        outer = {} if self.outer is None else self.outer.visible()
        return {name: value for name, value in outer.items() if name not in self.shadowed} | self.values

    def pick(self, fits: Callable[[Value], bool] = lambda _: True) -> Value:
        """A tensor that fits; those made last, and those of this very graph, more often than others."""
        candidates = [value for value in self.visible().values() if value.is_tensor and fits(value)]
        if not candidates:
            raise Refused("no such value")
        own = [value for value in candidates if value.name in self.values]
        return self.random.choice(candidates + 2 * own + 4 * own[-4:])

    def floats(self, shape: Sequence[int] | None = None, *, least_rank: int = 0) -> Value:
        """A tensor of floats."""
        if shape is not None:
            return self.like(self.growth.dtype, shape)
        return self.pick(lambda value: value.is_float and value.rank >= least_rank)

    def like(self, dtype: Any, shape: Sequence[int]) -> Value:
        """A value of this dtype and shape: one that is there, or a constant."""
        if self.chance(0.75):
            try:
                return self.pick(lambda value: value.dtype == dtype and value.shape == tuple(shape))
            except Refused:
                pass
        return self.constant(self.growth.array(shape, dtype))

    def emit(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: int | Sequence[str] = 1,
        domain: str = "",
        known: Sequence[Sample] | None = None,
        **fields: Any,
    ) -> list[Value]:
        """Adds a node, if onnxruntime can compute it, and if it is not known what it computes.

        Raises:
            Refused: it cannot.
        """
        if op == "Concat" and not self.growth.pinned and any(np.size(value.sample) == 0 for value in inputs if value):
            raise Refused("onnxruntime does not ask whether empty parts fit, and other feeds may make them not")
        operands = ["" if value is None else value.name for value in inputs]
        while operands and not operands[-1]:
            operands.pop()
        names = [self.name() for _ in range(outputs)] if isinstance(outputs, int) else list(outputs)
        node = helper.make_node(op, operands, names, self.growth.fresh("n"), domain=domain, **fields)
        if self.chance(0.03):
            node.name = ""
        read = free_names(node)
        samples = self._evaluate(node, read) if known is None else known
        made = []
        for name, sample in zip(names, samples, strict=True):
            if name:
                made.append(Value(name, sample))
                self.values[name] = made[-1]
        self.nodes.append(node)
        self.read |= read
        return made

    def one(self, op: str, *inputs: Value | None, **fields: Any) -> Value:
        """Adds a node of one output."""
        return self.emit(op, inputs, **fields)[0]

    def constant(self, value: Any, dtype: Any = None) -> Value:
        """A value that is always the same, in one of the forms that models have for it."""
        from tests.support.fuzz.constants import constant

        return constant(self, np.asarray(value, dtype))

    def ints(self, values: Any, *, least: float = 0.0) -> Value:
        """A vector (or scalar) of int64; at times computed from shapes."""
        from tests.support.fuzz.constants import from_shapes

        array = np.asarray(values, np.int64)
        if self.chance(max(0.2, least)):
            try:
                return from_shapes(self, array)
            except Refused:
                pass
        return self.constant(array)

    def initializer(self, array: Array, name: str | None = None) -> Value:
        name = name or self.growth.fresh("c")
        tensor = numpy_helper.from_array(array, name)
        if self.chance(0.2) and array.dtype.name in ("float32", "float64", "int64", "int32"):
            # In the field of its type rather than as bytes.
            tensor = helper.make_tensor(name, tensor.data_type, array.shape, array.reshape(-1).tolist())
        self.initializers.append(tensor)
        self.growth.constants.add(name)
        self.values[name] = Value(name, array)
        return self.values[name]

    def drop(self, value: Value) -> None:
        """Lets nobody read a value; its name stays taken."""
        del self.values[value.name]
        self.read.add(value.name)

    def add_input(self, value: Value) -> Value:
        """Makes a value known that comes in from outside."""
        self.values[value.name] = value
        return value

    def name(self) -> str:
        """A name for a new value; at times one that another graph, not around this one, has used."""
        if self.chance(0.02):
            unseen = [name for name in self.growth.given if name not in self.reserved()]
            if unseen:
                return self.random.choice(unseen)
        name = self.growth.fresh()
        if self.chance(0.02):
            # As passes and exporters name what they make.
            number = name[1:]
            odd = self.random.choice(
                [f"v{int(number) - 1}_1", f"loop/body/{name}", f"{name}:0", f"größe {name}", f"n{number}/Add"]
            )
            name = odd if odd not in self.growth.given else name
        elif self.chance(0.01):
            odd = self.random.choice(
                ["simplified/Constant", "gradient/Constant", "Identity", "x", "shape", "n1/Constant"]
            )
            name = odd if odd not in self.growth.given else name
        self.growth.given.append(name)
        return name

    def reserved(self) -> set[str]:
        """Names that mean something here or around here."""
        outer = set() if self.outer is None else self.outer.reserved()
        return outer | self.read | self.values.keys()

    def input_name(self) -> str:
        """A name for a body's input, at times one that hides a value outside."""
        if self.outer is not None and self.chance(0.03):
            hidden = self.random.choice([*self.outer.visible(), self.growth.fresh()])
            if hidden not in self.values:
                self.shadowed.add(hidden)
                return hidden
        return self.name()

    def _evaluate(self, node: onnx.NodeProto, read: set[str]) -> list[Sample]:
        visible = self.visible()
        samples = {name: visible[name].sample for name in read}
        if node.op_type in _SUMS and any(_beyond_doubles(sample) for sample in samples.values()):
            raise Refused("onnxruntime sums up integers as doubles")
        try:
            results = computed(node, samples) or run_node(node, samples, self.growth)
        except Exception as error:
            raise Refused(str(error)) from error
        for result in results:
            for array in result if isinstance(result, list) else [result]:
                self._check_size(array)
        return results

    def _check_size(self, array: Array) -> None:
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiubO" or array.size > MOST_ELEMENTS:
            raise Refused("too large, or no array")
        wild = array.dtype.kind == "f" and not np.all(np.abs(array.astype(np.float64)) < LARGEST)
        if wild and not self.chance(0.05):
            raise Refused("infinite or very large")


def _beyond_doubles(sample: Sample) -> bool:
    """Whether there are integers that a double does not hold."""
    return (
        isinstance(sample, np.ndarray)
        and sample.dtype.kind in "iu"
        and bool((np.abs(sample.astype(float)) > 2.0**53).any())
    )


def free_names(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, in its subgraphs too."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]:
            inner = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
            for child in graph.node:
                names |= free_names(child) - inner
                inner.update(child.output)
            names |= {value.name for value in graph.output} - inner
    return names


def tensor_in(type_: onnx.TypeProto) -> onnx.TypeProto.Tensor:
    """The type of a tensor, by itself or in an optional value."""
    return type_.optional_type.elem_type.tensor_type if type_.HasField("optional_type") else type_.tensor_type


def type_of(sample: Sample, shape: Sequence[int | str | None] | None = None) -> onnx.TypeProto:
    """The type of a sample, its shape as given or its own."""
    if isinstance(sample, list):
        if not sample:
            raise Refused("an empty sequence has no type")
        return helper.make_sequence_type_proto(
            helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(sample[0].dtype), None)
        )
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(sample.dtype), shape)


def run_node(node: onnx.NodeProto, samples: Mapping[str, Sample], growth: Growth) -> list[Sample]:
    """Computes one node in onnxruntime; a left-out output counts as an empty array."""
    graph = onnx.GraphProto(name="node", node=[node])
    feeds = {}
    for name, sample in samples.items():
        if name in growth.constants and isinstance(sample, np.ndarray):
            graph.initializer.append(numpy_helper.from_array(sample, name))
            continue
        shape = sample.shape if isinstance(sample, np.ndarray) else None
        graph.input.append(helper.make_value_info(name, type_of(sample, shape)))
        feeds[name] = sample
    present = [name for name in node.output if name]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in present)
    model = helper.make_model(graph, opset_imports=imports(growth), functions=growth.functions, ir_version=10)
    results = dict(zip(present, open_session(model).run(None, feeds), strict=True))
    return [results.get(name, np.zeros(0, np.float32)) for name in node.output]


def imports(growth: Growth) -> list[onnx.OperatorSetIdProto]:
    """The operator sets of a program."""
    local = [helper.make_opsetid("local", 1)] if growth.functions else []
    return [helper.make_opsetid("", growth.opset), *local]
