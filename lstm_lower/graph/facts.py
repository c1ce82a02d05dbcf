"""Facts about a model's values: type, shape, contents, a uniform value, whether finite.

One memoised evaluator over the facets of operators. It writes nothing into the model; what it keeps does not grow with
the numbers in a model: the Range to 2**40 is a length here, not an array. Chains of any length are walked without
recursion. Since no pass changes what a value stands for, what is known of a value stays true when the graph around it
changes; a pass that gives a value another meaning says so by `forget`.

A dimension that a rule infers takes precedence; what the model declares fills in the rest.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

from lstm_lower.dtypes import is_integer
from lstm_lower.errors import LstmLowerError
from lstm_lower.graph import bindings, onnx_inference, operator_versions
from lstm_lower.graph import standard as std
from lstm_lower.graph.folding import LARGEST, OF_SHAPES, folds
from lstm_lower.graph.inference import Inferred, Type, infers
from lstm_lower.graph.standard.view import constant_of
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.graph.uniform import uniform_constant, uniforms
from lstm_lower.graph.values import (
    MOST_ENTRIES,
    Alternatives,
    Array,
    Dim,
    Partial,
    Shape,
    certain_first,
    declared_shape,
    empty,
    filled,
    is_certain,
    merged,
    open_entries,
)
from lstm_lower.opdef import Call, TensorInfo

# The operands that the parameters of a body are given by the node that holds it.


class BodyParameters:
    """Knows, of every parameter of a body, the node that holds the body and the parameter's position."""

    def __init__(self) -> None:
        self._places: dict[ir.Value, tuple[ir.Node, int]] = {}

    def enter(self, nodes: Iterable[ir.Node]) -> None:
        """Takes up the parameters of nodes' bodies, and of those within them."""
        pending = [nodes]
        while pending:
            for node in pending.pop():
                for graph in subgraphs_of(node):
                    self._places.update((parameter, (node, index)) for index, parameter in enumerate(graph.inputs))
                    pending.append(graph)

    def forget(self, value: ir.Value) -> None:
        """Forgets a value that is no longer a parameter."""
        self._places.pop(value, None)

    def operand(self, value: ir.Value) -> ir.Value | None:
        """The operand at a parameter's position."""
        node, index = self._places.get(value, (None, 0))
        return node.inputs[index] if node is not None and index < len(node.inputs) else None

    def sequence(self, value: ir.Value, facts: Facts) -> ir.Value | None:
        """The sequence of which a Scan's parameter is one element."""
        node, index = self._places.get(value, (None, 0))
        view = facts.view(node)
        return self.operand(value) if isinstance(view, std.Scan) and index >= view.states else None

    def inferred(self, value: ir.Value, facts: Facts) -> tuple[Type, Partial | None]:
        """Consequences for a parameter of what is handed to it."""
        node, index = self._places.get(value, (None, 0))
        view, outer = facts.view(node), self.operand(value)
        if isinstance(view, std.Loop) and index < 2:
            return ir.DataType.BOOL if index else ir.DataType.INT64, None
        if outer is None:
            return None, None
        if isinstance(view, std.Scan):
            shape: Partial | None = facts.shape(outer)
            if index >= view.states and shape:
                axis = view.input_axes[index - view.states] % len(shape)
                shape = (*shape[:axis], *shape[axis + 1 :])
            return facts.dtype(outer), shape
        if isinstance(view, std.Loop):
            # The shape may change from iteration to iteration.
            return facts.type(outer), None
        if isinstance(view, std.SequenceMap):
            type_ = facts.type(outer)
            return (type_.elem_type if isinstance(type_, ir.SequenceType) else type_), None
        return None, None


# The values that must be known before a fact of another value can be.


def neighbours(facts: Facts, value: ir.Value) -> Iterable[ir.Value]:
    """Values that type and shape of a value may follow from."""
    node = value.producer()
    if node is None:
        outer = facts.parameters.operand(value)
        return () if outer is None else (outer,)
    if not node.attributes.data:
        return [x for x in node.inputs if x is not None]
    return [*(x for x in node.inputs if x is not None), *(x for graph in subgraphs_of(node) for x in graph.outputs)]


def operands(facts: Facts, value: ir.Value) -> Iterable[ir.Value]:
    """Values that a value is computed from; a Scan's parameter from its sequence."""
    node = value.producer()
    if node is not None:
        return [x for x in node.inputs if x is not None]
    sequence = facts.parameters.sequence(value, facts)
    return () if sequence is None else (sequence,)


def small_operands(facts: Facts, value: ir.Value) -> Iterable[ir.Value]:
    """Operands whose contents tell that of a value: none where no rule would look at them."""
    view = None if value.const_value is not None else facts.maker(value)
    if view is None or len(view.node.outputs) != 1 or isinstance(view, OF_SHAPES) or folds.of(type(view)) is None:
        return ()
    return [x for x in view.node.inputs if x is not None]


_SIZES = (ir.DataType.INT32, ir.DataType.INT64)
# Ways in which ranks of operands may go together.
_MOST_SUPPOSED = 64
# Stands for contents that nobody asked for.
_UNASKED = np.empty(0)
_TENSORS = {dtype: ir.TensorType(dtype) for dtype in ir.DataType}
# Members of enumerations are looked up only once for what is asked most.
_UNDEFINED = ir.DataType.UNDEFINED

T = TypeVar("T")


def _listed(fact: object) -> object:
    """A fact in a form that can be compared."""
    return fact.tolist() if isinstance(fact, np.ndarray) else fact


class Facts:
    """Facts about the values of one model.

    Attributes:
        opset: the model's version of `ai.onnx`.
        infos: memo of `bindings.bind_node`.
        calls: memo of `bindings.bind_node`.
        parameters: what the parameters of bodies stand for.
        alternatives: of values of unknown rank, the shapes that they may have, as far as they are known.
        asked: nodes that simplifications were asked of, with the operands that they had then.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.infos: dict[ir.Value, TensorInfo] = {}
        self.calls: dict[Hashable, Call] = {}
        self.alternatives: dict[ir.Value, Alternatives] = {}
        self.asked: dict[ir.Node, Sequence[ir.Value | None]] = {}
        # What may follow anew: nodes that read something else, `None` for those that are not known.
        self._revised: list[ir.Node | None] = []
        self._views: dict[ir.Node | None, std.Standard | None] = {None: None}
        self._types: dict[ir.Value, ir.TypeProtocol | None] = {}
        self._shapes: dict[ir.Value, Shape | None] = {}
        self._uncertain: set[ir.Value] = set()
        self._told: dict[ir.Value, tuple[Dim | None, ...]] = {}
        self._contents: dict[ir.Value, Array | None] = {}
        self._uniform: dict[ir.Value, float | None] = {}
        self._finite: dict[ir.Value, bool] = {}
        self.parameters = BodyParameters()

    @classmethod
    def of(cls, model: ir.Model) -> Facts:
        """The facts of a model."""
        facts = cls(operator_versions.opset_of(model))
        facts.enter(*model.graph)
        return facts

    def enter(self, *nodes: ir.Node) -> None:
        """Records what the parameters of nodes' bodies, at every nesting level, stand for."""
        self.parameters.enter(nodes)

    def look_again(self) -> None:
        """Forgets what is uncertain, since more may follow after a change of the graph. What is known stays true."""
        self._revised.clear()
        self.infos.clear()
        self.asked.clear()
        for value in self._uncertain:
            self._shapes.pop(value, None)
            self._types.pop(value, None)
        self._uncertain.clear()
        self._contents = {
            x: array for x, array in self._contents.items() if array is not None and array.dtype != object
        }
        self._uniform = {x: number for x, number in self._uniform.items() if number is not None}
        self._finite = {x: finite for x, finite in self._finite.items() if finite}

    def revise(self) -> None:
        """Looks again at what reads other values than before, and at what follows from that, as far as more does."""
        for node in self._revised:
            if node is None:
                self.look_again()
                return
            for value in [*node.outputs, *(x for graph in subgraphs_of(node) for x in graph.inputs)]:
                if node.graph is not None and self._learns(value):
                    for user, _ in value.uses():
                        self.asked.pop(user, None)
                        self._revised.append(user)
                    # What is handed out of a graph is not followed.
                    self._revised += [None] * value.is_graph_output()
        self._revised.clear()

    def _learns(self, value: ir.Value) -> bool:
        """Finds out anew what was asked of a value and is uncertain; whether it is something else than before."""
        content = self._contents.get(value, _UNASKED)
        uncertain: dict[Callable[[ir.Value], object], tuple[dict[ir.Value, Any], bool]] = {
            self.shape: (self._shapes, value in self._uncertain),
            self._content: (self._contents, content is None or content.dtype == object),
            self.uniform: (self._uniform, self._uniform.get(value, 0.0) is None),
            self.finite: (self._finite, not self._finite.get(value, True)),
        }
        before = [(ask, memo.pop(value)) for ask, (memo, is_open) in uncertain.items() if is_open]
        self._uncertain.discard(value)
        self.infos.pop(value, None)
        return any(_listed(ask(value)) != _listed(fact) for ask, fact in before)

    def clear(self) -> None:
        """Forgets everything: views and facts hold each other, and constants the files that they are mapped from."""
        vars(self).update(vars(Facts(self.opset)))

    def kept(self, value: ir.Value) -> tuple[ir.TypeProtocol | None, Shape | None]:
        """Type and shape as far as they were asked for already."""
        return self._types.get(value), self._shapes.get(value)

    def tell(self, value: ir.Value, shape: Sequence[Dim | None]) -> None:
        """Adds what a pass knows of a value's shape besides what follows from its operands."""
        self._told[value] = tuple(shape)
        self._keep(value, filled(value, certain_first(tuple(shape), self.shape(value))))

    def assuming(self, shapes: Mapping[ir.Value, Shape | None], inside: Container[ir.Value]) -> Facts:
        """Facts as they were if some values had given shapes; nothing known of the values `inside` is taken over."""
        assumed = Facts(self.opset)
        assumed.parameters = self.parameters
        assumed._told = {value: shape for value, shape in self._told.items() if value not in inside}
        assumed._types = {value: type_ for value, type_ in self._types.items() if value not in inside}
        assumed._shapes = {value: shape for value, shape in self._shapes.items() if value not in inside}
        for value, shape in shapes.items():
            assumed._types[value] = self.type(value)
            assumed._keep(value, shape)
        return assumed

    def forget(self, *values: ir.Value) -> None:
        """Forgets values whose meaning has changed, or that are gone."""
        for value in values:
            self.parameters.forget(value)
            self._told.pop(value, None)
            self.alternatives.pop(value, None)
            for memo in (self._types, self._shapes, self._contents, self._uniform, self._finite, self.infos):
                memo.pop(value, None)

    def alike(self, value: ir.Value, known: ir.Value) -> None:
        """Takes over type and shape of a value that another is made just like, where the shape is known for certain."""
        if known in self._shapes and known not in self._uncertain:
            self._types[value], self._shapes[value] = self._types[known], self._shapes[known]

    def replaced(self, old: ir.Value, new: ir.Value, around: ir.Graph | None = None) -> bool:
        """Keeps for a value what is known of the one that it replaces; whether that told more of its shape."""
        # Not asked anew: the node that made the old value may be half taken apart.
        before, shape = self.shape(new), self._shapes.get(old, declared_shape(old))
        self._revised += [node for node, _ in old.uses()]
        self._revised += [None] * (before != shape and old.is_graph_output())
        if self.type(new) is None:
            self._types[new] = self._types.get(old, old.type)
        # What a branch says of a value from outside need not hold elsewhere; a Scan always runs in the graph `around`.
        if shape is None or shape == before or new.graph not in (old.graph, around):
            return False
        self._keep(new, filled(new, certain_first(before, shape)))
        return self._shapes[new] != before

    def view(self, node: ir.Node | None) -> std.Standard | None:
        """The view of a node of ONNX's own operators; `None` for others, in older models, and in a function's form."""
        # Asked first: to raise takes about as long as to make a view.
        if node not in self._views:
            assert node is not None
            kind = std.VIEWS.get(node.op_type) if self.opset >= std.OLDEST_VIEWED else None
            kind = kind if kind is not None and kind.domain == node.domain else None
            attributes = node.attributes.data
            refers = bool(attributes) and any(attribute.is_ref() for attribute in attributes.values())
            self._views[node] = None if kind is None or refers else kind(node, self)
        return self._views[node]

    def maker(self, value: ir.Value | None) -> std.Standard | None:
        """The view of the node that makes a value."""
        return None if value is None else self.view(value.producer())

    def type(self, value: ir.Value | None) -> ir.TypeProtocol | None:
        """A value's type, of tensors and others."""
        if value is not None and value not in self._types:
            self._walk(self._shapes, value, neighbours, self._shape_of)
        return None if value is None else self._types[value]

    def dtype(self, value: ir.Value | None) -> ir.DataType | None:
        """A tensor's element type."""
        type_ = None if value is None else self._types.get(value) or self.type(value)
        return type_.dtype if isinstance(type_, ir.TensorType) and type_.dtype != _UNDEFINED else None

    def shape(self, value: ir.Value | None) -> Shape | None:
        """A tensor's dimensions: sizes, names, or identities of open ones; `None` when the rank is unknown."""
        if value is not None and value not in self._shapes:
            self._walk(self._shapes, value, neighbours, self._shape_of)
        return None if value is None else self._shapes[value]

    def rank(self, value: ir.Value | None) -> int | None:
        """A tensor's number of dimensions."""
        shape = self.shape(value)
        return None if shape is None else len(shape)

    def same_shape(self, a: ir.Value | None, b: ir.Value | None) -> bool:
        """Whether two tensors are known to have equal shapes."""
        shape = self.shape(a)
        return shape is not None and shape == self.shape(b)

    def elements(self, value: ir.Value | None, unknown: int = 64) -> int:
        """The number of a tensor's elements; an unknown dimension counts as `unknown`."""
        shape = self.shape(value)
        dims = (None, None) if shape is None else shape
        return math.prod(dim if isinstance(dim, int) else unknown for dim in dims)

    def constant(self, value: ir.Value | None) -> Array | None:
        """A tensor's value where it is known now: a constant's, or what follows from constants and sizes."""
        if value is None:
            return None
        content = self._contents[value] if value in self._contents else self._content(value)
        if content is None:
            # Contents are small; a constant may be large.
            return constant_of(value)
        return None if content.dtype == object else content

    def entries(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """The entries of an integer vector (of a scalar: the one): numbers, sizes by name or identity, or unknown ones.

        Returns:
            `None` when not even their number is known, or when there are too many to be sizes.
        """
        if value is None:
            return None
        content = self._content(value)
        if content is None or content.dtype.kind not in "iuO" or content.ndim > 1 or content.size > MOST_ENTRIES:
            return None
        return tuple(content.reshape(-1).tolist())

    def uniform(self, value: ir.Value | None) -> float | None:
        """The value that a tensor of numbers holds everywhere; `None` when it differs or is not known."""
        if value is None:
            return None
        memo = self._uniform
        if value in memo:
            return memo[value]
        view = self.maker(value)
        rule = None if view is None else uniforms.of(type(view))
        if view is None or (rule is not None and not all(map(memo.__contains__, view.node.inputs))):
            return self._walk(memo, value, operands, self._uniform_of)
        memo[value] = number = None if rule is None else rule(view)
        return number

    def finite(self, value: ir.Value | None) -> bool:
        """Whether a value surely holds neither infinities nor NaN; only then may a zero swallow it."""
        return value is not None and self._walk(self._finite, value, operands, self._finite_of)

    def _walk(
        self,
        memo: dict[ir.Value, T],
        value: ir.Value,
        needs: Callable[[Facts, ir.Value], Iterable[ir.Value]],
        compute: Callable[[ir.Value], T],
    ) -> T:
        """Computes a property of a value after that of all values that it depends on, without recursion."""
        if value in memo:
            return memo[value]
        if all(map(memo.__contains__, needs(self, value))):
            # The usual case, a walk of one step.
            memo[value] = fact = compute(value)
            return fact
        stack = [value]
        entered: set[ir.Value] = set()
        while stack:
            top = stack[-1]
            if top in memo:
                stack.pop()
            elif top in entered:
                stack.pop()
                memo[top] = compute(top)
            else:
                entered.add(top)
                stack += [x for x in needs(self, top) if x not in memo and x not in entered]
        return memo[value]

    def _shape_of(self, value: ir.Value) -> Shape | None:
        """The shape; the type is kept on the way, and so is what concerns the node's other outputs."""
        node = value.producer()
        if node is None:
            # The default of an input is only one of the values that it may have.
            if value.const_value is not None and not value.is_graph_input():
                return self._settle(value, value.const_value.dtype, tuple(map(int, value.const_value.shape.numpy())))
            return self._settle(value, *self.parameters.inferred(value, self))
        for output, (type_, partial) in zip(node.outputs, self._inferred(node), strict=False):
            if output not in self._shapes:
                self._shapes[output] = self._settle(output, type_, partial)
        return self._shapes[value] if value in self._shapes else self._settle(value, None, None)

    def _settle(
        self, value: ir.Value, type_: ir.TypeProtocol | ir.DataType | None, partial: Partial | Alternatives | None
    ) -> Shape | None:
        if isinstance(type_, ir.DataType):
            type_ = _TENSORS[type_]
        self._types[value] = type_ if type_ is not None else value.type
        if partial is not None and not isinstance(partial, Alternatives) and is_certain(partial):
            # Nothing that is declared could tell more.
            return partial  # type: ignore[return-value]
        view, told = self.maker(value), self._told.get(value)
        declared = declared_shape(value, None if view is None else view.disputed_axes)
        if isinstance(partial, Alternatives):
            self.alternatives[value] = partial
            partial = partial.chosen(declared, None if told is None else len(told))
            declared = None if partial is None else declared
        shape = filled(value, merged(value, certain_first(partial, told), declared))
        if shape is None or not is_certain(shape):
            self._uncertain.add(value)
        return shape

    def _keep(self, value: ir.Value, shape: Shape | None) -> None:
        self._shapes[value] = shape
        self.infos.pop(value, None)
        (self._uncertain.add if shape is None or not is_certain(shape) else self._uncertain.discard)(value)

    def _inferred(self, node: ir.Node) -> Inferred:
        view = self.view(node)
        if view is None and node.domain != "":
            return bindings.inferred(node, self) or []
        rule = None if view is None else infers.of(type(view))
        results = rule(view) if rule is not None else onnx_inference.inferred(node, self)
        if not self.alternatives:
            return results
        undecided = dict.fromkeys(x for x in node.inputs if x in self.alternatives and self._shapes[x] is None)
        return self._supposing(node, list(undecided), results) if undecided and not subgraphs_of(node) else results

    def _supposing(self, node: ir.Node, undecided: Sequence[ir.Value], found: Inferred) -> Inferred:
        """The shapes that a node's results may have where ranks of operands only show at run time."""
        choices = [self.alternatives[value].shapes for value in undecided]
        results: list[list[Partial]] = [[] for _ in node.outputs]
        for shapes in itertools.product(*choices) if math.prod(map(len, choices)) <= _MOST_SUPPOSED else ():
            supposed = Facts(self.opset)
            for value in [x for x in node.inputs if x is not None]:
                supposed._types[value], supposed._shapes[value] = self._types[value], self._shapes[value]
                supposed._contents[value] = self._content(value)
            for value, shape in zip(undecided, shapes, strict=True):
                supposed._shapes[value] = filled(value, shape)
            # Not every node takes operands of every rank.
            with contextlib.suppress(LstmLowerError, LookupError, ValueError):
                for result, (_, partial) in zip(results, supposed._inferred(node), strict=False):
                    result.extend([partial] if isinstance(partial, tuple) else [])
        pairs = zip(found, results, strict=False)
        return [(t, s if s or not shapes else Alternatives(tuple(dict.fromkeys(shapes)))) for (t, s), shapes in pairs]

    def _content(self, value: ir.Value) -> Array | None:
        shape, contents = self.shape(value), self._contents
        if shape and 0 in shape and (nothing := empty(shape, self.dtype(value))) is not None:
            contents[value] = nothing
            return nothing
        view = self.maker(value)
        # The usual case. What follows from shapes is sizes.
        if view is not None and view.node.inputs and self.dtype(value) not in _SIZES:
            first = view.node.inputs[0]
            if (first in contents and contents[first] is None) or folds.of(type(view)) is None:
                contents[value] = None
                return None
        return self._walk(self._contents, value, small_operands, self._content_of)

    def _content_of(self, value: ir.Value) -> Array | None:
        """Entries of a small tensor; of integers that may be sizes each one that is not known is an identity."""
        content = self._computed(value)
        if content is not None or self.dtype(value) not in _SIZES:
            return content
        return open_entries(value, self.shape(value))

    def _computed(self, value: ir.Value) -> Array | None:
        view = self.maker(value)
        if view is None or isinstance(view, std.Constant):
            small = value.const_value is None or self.elements(value) <= LARGEST
            array = constant_of(value) if small else None
            return array if array is not None and array.size <= LARGEST and array.dtype.kind in "iufb" else None
        rule = folds.of(type(view))
        if rule is None or len(view.node.outputs) != 1:
            return None
        operands: list[Array | None] = []
        if not isinstance(view, OF_SHAPES):
            operands = [None if x is None else self._contents[x] for x in view.node.inputs]
            if operands[0] is None:
                return None
        result = rule(view, operands)
        if result is None or result.size > LARGEST:
            return None
        dtype = self.dtype(value)
        if result.dtype == object and dtype in _SIZES and all(isinstance(size, int) for size in result.flat):
            # What was taken out of sizes of which some are open may hold none of these.
            return result.astype(dtype.numpy())
        return result

    def _uniform_of(self, value: ir.Value) -> float | None:
        view = self.maker(value)
        if view is None:
            sequence = self.parameters.sequence(value, self)
            return uniform_constant(value, self) if sequence is None else self._uniform[sequence]
        rule = uniforms.of(type(view))
        return None if rule is None else rule(view)

    def _finite_of(self, value: ir.Value) -> bool:
        if (number := self.uniform(value)) is not None:
            return bool(np.isfinite(number))
        dtype = self.dtype(value)
        if is_integer(dtype) or dtype == ir.DataType.BOOL:
            return True
        view = self.maker(value)
        return isinstance(view, std.Moving | std.Identity) and self.finite(view.node.inputs[0])
