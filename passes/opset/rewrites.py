"""The tables of rewrites between the forms of an operator, and what a rewrite sees of its node."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
from onnx.defs import onnx_opset_version

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import OLDER_FORMS, Builder, Expr
from lstm_lower.graph.operator_versions import changes, default_attributes, form


class Site(std.Standard, abstract=True):
    """The view of a node of any operator and version that is to be written in another form.

    A rewrite may change the node's attributes and inputs in place.

    Attributes:
        builder: emits nodes before it, for the version of the form asked for.
        target: the version that the whole model is moved to, for error texts.
    """

    def __init__(self, node: ir.Node, builder: Builder, target: int) -> None:
        super().__init__(node, builder.facts)
        self.builder = builder
        self.target = target

    @property
    def operator(self) -> type[std.Standard]:
        """The node's operator."""
        return std.VIEWS[self.node.op_type]

    def has(self, index: int) -> bool:
        """Whether an input is given."""
        return self.operand(index) is not None

    def input(self, index: int) -> Expr:
        """An input that is given."""
        value = self.node.inputs[index]
        assert value is not None
        return self.builder.wrap(value)

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or the default when it is absent.

        Raises:
            UnsupportedOpError: it is a reference to a function's attribute, whose value is not known.
        """
        attribute = self.node.attributes.get(name)
        if attribute is not None and attribute.is_ref():
            raise self.unsupported(f"attribute {name}", "a value", "a reference to an attribute of the function")
        return super().attribute(name, default)

    def attributes(self, *without: str) -> dict[str, Any]:
        """All attributes but some."""
        return {name: self.attribute(name) for name in self.node.attributes if name not in without}

    def drop(self, name: str) -> None:
        """Removes an attribute."""
        self.node.attributes.pop(name, None)

    def set(self, name: str, value: Any) -> None:
        """Sets an attribute."""
        self.node.attributes[name] = ir.convenience.convert_attribute(name, value)

    def set_inputs(self, *inputs: Expr | None) -> None:
        """Replaces all inputs; absent ones at the end are left away."""
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        self.node.resize_inputs(len(inputs))
        for index, expr in enumerate(inputs):
            self.node.replace_input_with(index, None if expr is None else expr.value)

    def known_dtype(self, index: int = 0) -> ir.DataType | None:
        """The element type of an input, for rewrites that only rare types need; `None` when it is not known."""
        return super().dtype(index)

    def dtype(self, index: int = 0) -> ir.DataType:
        """The element type of an input.

        Raises:
            UnsupportedOpError: it is not known.
        """
        dtype = self.known_dtype(index)
        if dtype is None:
            raise self.unsupported(f"input {index}", f"a known type to be written in opset {self.target}", "none")
        return dtype

    def rank(self, index: int = 0) -> int:
        """The rank of an input.

        Raises:
            UnsupportedOpError: it is not known.
        """
        rank = super().rank(index)
        if rank is None:
            raise self.unsupported(
                f"input {index}", f"a known rank to be written in opset {self.target}", "an unknown one"
            )
        return rank

    def numbers(self, index: int, operand: str, since: int | None = None) -> list[int]:
        """The whole numbers in an input; `since` is the version from which they may be computed.

        Raises:
            UnsupportedOpError: they are computed.
        """
        constant = self.constant(index)
        if constant is None:
            raise self.computed(operand, since)
        return [int(number) for number in constant.reshape(-1)]

    def computed(self, operand: str, since: int | None) -> UnsupportedOpError:
        """The error for an input that is not known before the model runs."""
        way = "" if since is None else f" below opset {since} (the model is moved to {self.target})"
        return self.unsupported(operand, f"a constant{way}", "a computed value")

    def too_new(self, operand: str, since: int) -> UnsupportedOpError:
        """The error for something that an older version cannot say."""
        return self.unsupported(operand, f"opset {since} or newer", self.target)


# What takes the place of the node's outputs; `None` keeps the node, which the rewrite may have changed.
Rewrite = Callable[[Site], Sequence[Expr | None] | None]

BEFORE: dict[tuple[str, int], Rewrite] = {}
SINCE: dict[tuple[str, int], Rewrite] = {}


@functools.cache
def _steps(op_type: str, opset: int) -> tuple[int, ...]:
    """The versions at which an operator's newest form is to be written otherwise, on the way down to an opset."""
    steps = changes(op_type, onnx_opset_version(), opset)
    return tuple(step for step in steps if (op_type, step) in BEFORE or form(op_type, step - 1) is None)


def older_form(node: ir.Node, builder: Builder) -> Sequence[Expr | None] | None:
    """Writes a node of its operator's newest form in the builder's opset: what becomes of it, or `None` if it stays.

    Raises:
        UnsupportedOpError: the opset cannot say it.
    """
    for step in _steps(node.op_type, builder.opset):
        site = Site(node, builder, builder.opset)
        results = step_down(site, step)
        if results is not None:
            return results
        if form(node.op_type, step - 1) is None:
            raise site.too_new("the operator", step)
    return None


def step_down(site: Site, version: int) -> Sequence[Expr | None] | None:
    """Writes a node in the form before a version: what becomes of it, or `None` if it stays, changed or not."""
    node = site.node
    rewrite = BEFORE.get((node.op_type, version))
    results = None if rewrite is None else rewrite(site)
    newer, older = form(node.op_type, version), form(node.op_type, version - 1)
    # A form that was deprecated when it was superseded meant something else.
    if results is None and newer is not None and older is not None and not older.deprecated:
        for name in tuple(default_attributes(newer, older, node)):
            site.drop(name)
    return results


def before(version: int, *ops: type[std.Standard]) -> Callable[[Rewrite], Rewrite]:
    """Registers a rewrite from an operator's form of a version to its previous form."""
    return _register(BEFORE, version, ops)


def since(version: int, *ops: type[std.Standard]) -> Callable[[Rewrite], Rewrite]:
    """Registers a rewrite to an operator's form of a version from its previous form."""
    return _register(SINCE, version, ops)


def _register(
    table: dict[tuple[str, int], Rewrite], version: int, ops: tuple[type[std.Standard], ...]
) -> Callable[[Rewrite], Rewrite]:
    def decorate(rewrite: Rewrite) -> Rewrite:
        for op in ops:
            assert (op.op_type, version) not in table
            table[op.op_type, version] = std.guarded(rewrite)
        return rewrite

    return decorate


OLDER_FORMS.update(dict.fromkeys(std.VIEWS, older_form))
