"""One operator with its operands, as a model in several forms."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """One node with its operands.

    Attributes:
        op: operator.
        opset: version of its form.
        inputs: operands in order; `None` for one that is left out.
        attributes: attributes.
        outputs: how many outputs.
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
        node = helper.make_node(self.op, inputs, self.names, name="node")
        for name, value in self.attributes.items():
            # An empty list is one of integers.
            kind = onnx.AttributeProto.INTS if value == [] else None
            node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
        return node

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
        # Before 4, initializers had to be inputs.
        ir_version = max(helper.find_min_ir_version_for([opset]), 4)
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
