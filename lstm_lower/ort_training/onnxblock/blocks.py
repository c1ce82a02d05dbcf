"""Blocks of one operator each, of which larger ones are built, named as onnxruntime-training names them."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np
import onnx
from onnx import numpy_helper

from lstm_lower.errors import InvalidInputError, UnsupportedOpError, some
from lstm_lower.graph import standard as std
from lstm_lower.ops import ort_arrays
from lstm_lower.ops.ort_elementwise import MICROSOFT
from lstm_lower.ort_training.onnxblock.accessor import add_node, current

Array = np.ndarray[Any, Any]


class Block(abc.ABC):
    """Stacks nodes on the current model; subclasses say in `build` which.

    Attributes:
        base: the model, which `build` may edit in place.
    """

    base: onnx.ModelProto

    def __init__(self, temp_file_name: str = "temp.onnx") -> None:  # noqa: ARG002 (theirs)
        """Makes a block.

        Args:
            temp_file_name: not read: nothing is written before the artifacts are.
        """
        super().__init__()

    @abc.abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Adds nodes; takes and returns names of values."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls `build` on the current model."""
        self.base = current().model
        return self.build(*args, **kwargs)


def add_constant(value: Any, token: str) -> str:
    """Adds an initializer to the current model and returns its name."""
    accessor = current()
    name = accessor.fresh(token)
    accessor.model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return name


def declaration(name: str) -> onnx.ValueInfoProto:
    """The declaration of an input, an output or another value in the current model.

    Raises:
        InvalidInputError: it declares nothing.
    """
    graph = current().model.graph
    declared: dict[str, onnx.ValueInfoProto] = {
        value.name: value for value in (*graph.value_info, *graph.output, *graph.input)
    }
    if name not in declared:
        raise InvalidInputError(
            f"'{name}' must be declared by the model, as {some(list(declared))} are, got a name that is not; "
            "onnx.shape_inference.infer_shapes declares what nodes make"
        )
    return declared[name]


class _Unary(Block):
    """One node of one operand."""

    view: ClassVar[type[std.Standard]]

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self._attributes = attributes

    def build(self, input_name: str) -> str:
        """Adds the node."""
        return add_node(self.view.op_type, [input_name], f"{self.view.op_type.lower()}_output", **self._attributes)


class _Binary(Block):
    """One node of two operands."""

    view: ClassVar[type[std.Standard]]

    def build(self, input_name1: str, input_name2: str) -> str:
        """Adds the node."""
        return add_node(self.view.op_type, [input_name1, input_name2], f"{self.view.op_type.lower()}_output")


class Add(_Binary):
    """The sum."""

    view = std.Add


class Sub(_Binary):
    """The difference."""

    view = std.Sub


class Mul(_Binary):
    """The product of elements."""

    view = std.Mul


class Div(_Binary):
    """The quotient of elements."""

    view = std.Div


class Sigmoid(_Unary):
    """The logistic function."""

    view = std.Sigmoid


class Softplus(_Unary):
    """The logarithm of one and the exponential."""

    view = std.Softplus


class Log(_Unary):
    """The natural logarithm."""

    view = std.Log


class Neg(_Unary):
    """The negative."""

    view = std.Neg


class Abs(_Unary):
    """The absolute value."""

    view = std.Abs


class _Reduction(_Unary):
    """A reduction over all axes."""

    def __init__(self, keepdims: bool = True) -> None:
        super().__init__(keepdims=int(keepdims))


class ReduceMean(_Reduction):
    """The mean of all elements."""

    view = std.ReduceMean


class ReduceSum(_Reduction):
    """The sum of all elements."""

    view = std.ReduceSum


class Pow(Block):
    """A power with a constant exponent."""

    def __init__(self, exponent: float) -> None:
        super().__init__()
        self._exponent = exponent

    def build(self, pow_input_name: str) -> str:
        """Adds the node."""
        exponent = add_constant(np.float32(self._exponent), "pow_exponent")
        return add_node(std.Pow.op_type, [pow_input_name, exponent], "pow_output")


class Clip(Block):
    """Limits of elements."""

    def __init__(self, clip_min: float | None = None, clip_max: float | None = None) -> None:
        super().__init__()
        self._limits = {"clip_min": clip_min, "clip_max": clip_max}

    def build(self, clip_input_name: str) -> str:
        """Adds the node."""
        limits = ["" if x is None else add_constant(np.float32(x), token) for token, x in self._limits.items()]
        return add_node(std.Clip.op_type, [clip_input_name, *limits], "clip_output")


class Constant(Block):
    """A number, an initializer of shape [1]."""

    def __init__(self, value_float: float) -> None:
        super().__init__()
        self._value = value_float

    def build(self) -> str:
        """Adds the initializer."""
        return add_constant(np.array([self._value], np.float32), "initializer")


class Cast(Block):
    """Elements in another dtype."""

    def __init__(self, to: int) -> None:
        super().__init__()
        self._to = to

    def build(self, cast_input_name: str) -> str:
        """Adds the node."""
        return add_node(std.Cast.op_type, [cast_input_name], "cast.output", to=self._to)


class SequenceConstruct(Block):
    """A sequence of tensors."""

    def build(self, *sequence_input_names: str) -> str:
        """Adds the node."""
        return add_node(std.SequenceConstruct.op_type, list(sequence_input_names), "sequenceconstruct_output")


class ReduceAllL2(Block):
    """The root of the sum of squares of all elements of all operands."""

    def build(self, *reduce_node_input_names: str) -> str:
        """Adds the node."""
        name = add_node(
            ort_arrays.ReduceAllL2.op_type, list(reduce_node_input_names), "reducealll2_output", domain=MICROSOFT
        )
        declared = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [])
        self.base.graph.value_info.append(declared)
        return name


class PassThrough(Block):
    """Hands on the names that it gets."""

    def build(self, *input_names: str) -> Sequence[str]:
        """Adds nothing."""
        return input_names


class InputLike(Block):
    """An input of the model of the dtype and shape of another value."""

    def __init__(self, like: str) -> None:
        super().__init__()
        self._like = like

    def build(self, input_name: str | None = None) -> str:
        """Adds the input."""
        added = onnx.ValueInfoProto()
        added.CopyFrom(declaration(self._like))
        added.name = input_name or current().fresh("input")
        self.base.graph.input.append(added)
        return added.name


class Linear(Block):
    """A fully connected layer with weights drawn from the normal distribution."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        alpha: float = 1.0,
        beta: float = 1.0,
    ) -> None:
        super().__init__()
        self._shapes = [("linear.weight", (in_features, out_features)), *([("linear.bias", (out_features,))] * bias)]
        self._attributes: dict[str, Any] = {"alpha": float(alpha), "beta": float(beta)}

    def build(self, linear_input_name: str) -> str:
        """Adds the weights and the node."""
        rng = np.random.default_rng()
        weights = [add_constant(rng.standard_normal(shape, np.float32), token) for token, shape in self._shapes]
        return add_node(std.Gemm.op_type, [linear_input_name, *weights], "linear.output", **self._attributes)


def LabelEncoder(*_: Any, **__: Any) -> NoReturn:  # noqa: N802 (a class of theirs)
    """Refused: its operator stands in `ai.onnx.ml`.

    Raises:
        UnsupportedOpError: always.
    """
    raise UnsupportedOpError(
        "LabelEncoder requires the domain ai.onnx.ml, which is not supported here; encode labels before they are fed"
    )
