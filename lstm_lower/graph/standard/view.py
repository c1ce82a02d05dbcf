"""Typed views of ONNX's own operators: what a node's operands and attributes mean, the same for every opset.

A view names the operands, fills in defaults, counts axes from the front and reads axes, steps and sizes where they are
in the opset at hand (an attribute or an operand). A part that is only known at run time is `None`. Everything else
about an operator (shape inference, constant folding, batching over all steps) is registered for its view, see `Facet`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeGuard, TypeVar, overload

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidModelError, LstmLowerError, UnsupportedOpError, requires

if TYPE_CHECKING:
    from lstm_lower.graph.values import Array, Dim, Shape


T = TypeVar("T")
R = TypeVar("R")

VIEWS: dict[str, type[Standard]] = {}

# Views read, and rules write, the forms that operators have from this opset on (axes of ReduceSum, Squeeze and Split as
# operands). Older models have no views until they are raised to it.
OLDEST_VIEWED = 13


class Knowledge(Protocol):
    """Questions of views and their facets about values; `lstm_lower.graph.facts.Facts` answers."""

    @property
    def opset(self) -> int: ...
    def view(self, node: ir.Node | None) -> Standard | None: ...
    def maker(self, value: ir.Value | None) -> Standard | None: ...
    def type(self, value: ir.Value | None) -> ir.TypeProtocol | None: ...
    def dtype(self, value: ir.Value | None) -> ir.DataType | None: ...
    def shape(self, value: ir.Value | None) -> Shape | None: ...
    def rank(self, value: ir.Value | None) -> int | None: ...
    def same_shape(self, a: ir.Value | None, b: ir.Value | None) -> bool: ...
    def elements(self, value: ir.Value | None, unknown: int = 64) -> int: ...
    def constant(self, value: ir.Value | None) -> Array | None: ...
    def entries(self, value: ir.Value | None) -> tuple[Dim, ...] | None: ...
    def uniform(self, value: ir.Value | None) -> float | None: ...
    def finite(self, value: ir.Value | None) -> bool: ...


class Operand:
    """An operand that every node of the operator has.

    Attributes:
        index: its place.
        setting: what it is where it belongs to how the operator computes, and is no weight.
    """

    def __init__(self, index: int, setting: str = "") -> None:
        self.index = index
        self.setting = setting

    @overload
    def __get__(self, view: None, owner: type) -> Self: ...
    @overload
    def __get__(self, view: Standard, owner: type) -> ir.Value: ...
    def __get__(self, view: Standard | None, owner: type) -> ir.Value | Self:
        if view is None:
            return self
        value = view.node.inputs[self.index]
        assert value is not None
        return value


class Optional(Operand):
    """An operand that may be left out, `None` then."""

    @overload  # type: ignore[override]
    def __get__(self, view: None, owner: type) -> Self: ...
    @overload
    def __get__(self, view: Standard, owner: type) -> ir.Value | None: ...
    def __get__(self, view: Standard | None, owner: type) -> ir.Value | Self | None:
        return self if view is None else view.operand(self.index)


class Attribute(Generic[T]):
    """An attribute, or its default where the node omits it."""

    def __init__(self, name: str, default: T) -> None:
        self.name = name
        self.default = default

    @overload
    def __get__(self, view: None, owner: type) -> Self: ...
    @overload
    def __get__(self, view: Standard, owner: type) -> T: ...
    def __get__(self, view: Standard | None, owner: type) -> T | Self:
        return self if view is None else view.attribute(self.name, self.default)


class Standard:
    """Base of all views.

    Attributes:
        op_type: the operator's name, that of the class.
        domain: where it is from; "" is ONNX's own.
        node: the node.
        facts: what is known of the values around it.
        commutative: whether its operands may change places.
        linear: the operands in which it is linear, each by itself.
        settings: operands that are no weights, with what each is.
        since: where the operator gives axes or sizes as operands instead of attributes: the opset that began it.
    """

    __slots__ = ("facts", "node")

    op_type: ClassVar[str] = ""
    domain: ClassVar[str] = ""
    commutative: ClassVar[bool] = False
    linear: ClassVar[tuple[int, ...]] = ()
    settings: ClassVar[Mapping[int, str]] = {}

    def __init_subclass__(cls, *, abstract: bool = False, op_type: str = "", domain: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not abstract:
            cls.op_type, cls.domain = op_type or cls.__name__, domain
            operands = [part for kind in cls.__mro__ for part in vars(kind).values() if isinstance(part, Operand)]
            cls.settings = {operand.index: operand.setting for operand in operands if operand.setting}
            VIEWS[cls.op_type] = cls

    def __init__(self, node: ir.Node, facts: Knowledge) -> None:
        self.node = node
        self.facts = facts

    @classmethod
    def matches(cls, node: ir.Node | None) -> TypeGuard[ir.Node]:
        """Whether a node is of this operator, or of one of this kind."""
        if node is None:
            return False
        if cls.op_type:
            return node.op_type == cls.op_type and node.domain == cls.domain
        kind = VIEWS.get(node.op_type)
        return kind is not None and issubclass(kind, cls) and node.domain == kind.domain

    @classmethod
    def of(cls, node: ir.Node | None, facts: Knowledge) -> Self | None:
        """The node's view; `None` when it is of another operator, or refers to an attribute of a function."""
        view = facts.view(node)
        return view if isinstance(view, cls) else None

    @property
    def inputs(self) -> tuple[ir.Value | None, ...]:
        """All operands; `None` for those left out."""
        return tuple(self.node.inputs)

    @property
    def output(self) -> ir.Value:
        """The first output."""
        return self.node.outputs[0]

    @property
    def label(self) -> str:
        """The node's name, or its first output's where it has none."""
        return self.node.name or self.output.name or "?"

    def operand(self, index: int) -> ir.Value | None:
        """An operand by position, `None` when it is left out."""
        inputs = self.node.inputs
        return inputs[index] if index < len(inputs) else None

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute's value, or the default where the node omits it, rounded to float32 as in a node."""
        attribute = self.node.attributes.get(name)
        if attribute is not None:
            return attribute.value
        return float(np.float32(default)) if isinstance(default, float) else default

    def dtype(self, index: int = 0) -> ir.DataType | None:
        """The element type of an operand."""
        return self.facts.dtype(self.operand(index))

    def shape(self, index: int = 0) -> Shape | None:
        """The shape of an operand."""
        return self.facts.shape(self.operand(index))

    def rank(self, index: int = 0) -> int | None:
        """The rank of an operand."""
        return self.facts.rank(self.operand(index))

    @property
    def demanded_rank(self) -> int | None:
        """The rank that the first operand must have, where the operator, or another operand, tells it."""
        return None

    @property
    def disputed_axes(self) -> tuple[int, ...]:
        """The axes of results whose sizes are others in onnxruntime than in onnx's inference, or may be."""
        return ()

    def _length(self, index: int) -> int | None:
        """The known length of an operand that is a vector."""
        shape = self.shape(index)
        return shape[0] if shape and isinstance(shape[0], int) else None

    def constant(self, index: int) -> Array | None:
        """An operand's value where it is known."""
        return self.facts.constant(self.operand(index))

    def ints(self, index: int, name: str) -> tuple[int, ...] | None:
        """Integers given by an attribute or, since some opset, an operand; `None` when left out or unknown."""
        given = self.node.attributes.get(name)
        if given is not None:
            return tuple(given.value)
        array = self.constant(index)
        return None if array is None else tuple(int(x) for x in array.reshape(-1))

    def known_rank(self, index: int = 0) -> int:
        """The rank of an operand, for a gradient that cannot be written without.

        Raises:
            UnsupportedOpError: it is not known.
        """
        rank = self.rank(index)
        if rank is None:
            got = undeclared(self.operand(index))
            raise self.unsupported(f"input {index}, for its gradient,", "a known rank", got)
        return rank

    def unsupported(self, what: str, required: str, got: object) -> UnsupportedOpError:
        """The error of a rule that cannot rewrite the node."""
        return UnsupportedOpError(requires(self.node.op_type, self.label, what, required, got))

    def says(self, index: int, name: str) -> bool:
        """Whether integers are given at all, known or not."""
        return name in self.node.attributes or self.operand(index) is not None


def undeclared(value: ir.Value | None) -> str:
    """Words of an error for a shape that is needed but unknown, and the way on."""
    name = "?" if value is None else value.name
    return f"none; declare a shape (value_info) for '{name}' or for what it is computed from"


def text(attribute: str | bytes) -> str:
    """A string, which files and models in memory write differently."""
    return attribute.decode(errors="replace") if isinstance(attribute, bytes) else attribute


def constant_of(value: ir.Value | None) -> Array | None:
    """The value of a constant (an initializer that is no graph input, or a Constant node), else `None`."""
    if value is None:
        return None
    if value.const_value is not None:
        return None if value.is_graph_input() else value.const_value.numpy()
    node = value.producer()
    if node is None or node.op_type != "Constant" or node.domain != "":
        return None
    for name, attribute in node.attributes.data.items():
        if attribute.is_ref():
            return None
        if name == "value":
            # Not as_tensor(), whose protocol check takes longer than all the rest.
            return np.asarray(attribute.value.numpy())
        if name in ("value_int", "value_ints"):
            return np.asarray(attribute.value, np.int64)
        if name in ("value_float", "value_floats"):
            return np.asarray(attribute.value, np.float32)
    return None


def counted(axis: int, rank: int | None) -> int | None:
    """An axis counted from the front; `None` when it is not known or out of range."""
    if axis >= 0 and rank is None:
        return axis
    if rank is None or not -rank <= axis < rank:
        return None
    return axis % rank


def all_counted(axes: tuple[int, ...] | None, rank: int | None) -> tuple[int, ...] | None:
    """Axes counted from the front; `None` when one of them is not known."""
    if axes is None:
        return None
    axes_or_none = [counted(axis, rank) for axis in axes]
    from_front = tuple(axis for axis in axes_or_none if axis is not None)
    return from_front if len(from_front) == len(axes) else None


class Facet(Generic[R]):
    """Rules of one kind, registered for views. A rule for a kind of operators serves all of them without their own.

    @infers(Pad)
    def _(pad: Pad) -> Inferred: ...

    A rule is a formula: it takes for granted that operands fit each other. Where it breaks, they do not, and the node
    is what an `InvalidModelError` says.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._rules: dict[type[Standard], R] = {}
        self._found: dict[type[Standard], R | None] = {}

    def __call__(self, *views: type[Standard]) -> Callable[[R], R]:
        """Registers a rule."""

        def register(rule: R) -> R:
            told = guarded(rule)
            for view in views:
                if view in self._rules:
                    raise KeyError(f"{self.name} of {view.__name__} is already registered")
                self._rules[view] = told
            self._found.clear()
            return rule

        return register

    def of(self, view: type[Standard]) -> R | None:
        """The rule for an operator, its own or that of its nearest kind."""
        if view not in self._found:
            kinds: Any = view.__mro__
            self._found[view] = next((self._rules[kind] for kind in kinds if kind in self._rules), None)
        return self._found[view]


def guarded(rule: Any) -> Any:
    """The rule, with what operands break that do not fit each other (Slice's axes and starts, say) told of the node."""

    @functools.wraps(rule)
    def checked(*arguments: Any) -> Any:
        try:
            return rule(*arguments)
        except LstmLowerError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            view = next(argument for argument in arguments if isinstance(argument, Standard))
            text = "operands and attributes that fit each other"
            raise InvalidModelError(requires(view.node.op_type, view.label, "the node", text, error)) from error

    return checked
