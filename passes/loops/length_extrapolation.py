"""A model for any number of steps, of models for some: all that differs between them is formulas of the number.

A trace writes a loop in Python out step by step. Traces of one step more or less are the same loop once their steps are
rolled up again (`rerolling`), but for constants: sizes, places, numbers of steps, and what is computed of these. One
that has a formula (`step_formulas`) is written as it; of anything else a model for other lengths is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from lstm_lower.graph import provenance
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, Workspace
from lstm_lower.graph.edit import detach
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.values import Array
from lstm_lower.passes.loops.common_subexpression_elimination import CommonSubexpressionElimination
from lstm_lower.passes.loops.rerolling import LoopRerolling
from lstm_lower.passes.loops.step_counts import STEPS, Length
from lstm_lower.passes.loops.views.step_formulas import Formulas, form_of, numbers_said
from lstm_lower.passes.model_pass import Pass
from lstm_lower.records import lengths as records
from lstm_lower.records.lengths import Law, Place

# Corresponding values of the models, the shortest first.
Values = tuple[ir.Value, ...]


class UnlikeError(Exception):
    """The models differ in more than numbers; the message says where.

    Attributes:
        lengths: of which they do.
    """

    lengths: Sequence[Length] = ()


class PiecesPass(Pass):
    """Makes slices of the pieces of a Split, as many as loops have steps, or some unread: their number may be a length.

    Attributes:
        counts: of how many steps loops are.
    """

    def __init__(self, counts: Collection[int] = ()) -> None:
        super().__init__()
        self.counts = counts

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replaces Splits."""
        modified = False
        for node in list(model.graph):
            view = std.Split.of(node, self.context.space.facts)
            if (
                view is not None
                and view.axis is not None
                and view.sizes is not None
                and (len(node.outputs) in self.counts or not all(map(_is_read, node.outputs)))
            ):
                self._slice(node, view.axis, view.sizes)
                modified = True
        return ir.passes.PassResult(model, modified=modified)

    def _slice(self, node: ir.Node, axis: int, sizes: Sequence[int]) -> None:
        b = Builder.before(node, self.context.space)
        x, start = node.inputs[0], 0
        assert x is not None
        for output, size in zip(node.outputs, sizes, strict=True):
            if _is_read(output):
                b.replace(output, b.slice(x, start, start + size, axis))
            start += size
        detach(node)


class FillsPass(Pass):
    """Makes tensors of one number each of constants, which may go by the step, or by how many there are.

    A state that begins as a tensor that a module keeps then begins as one that it makes anew of the same number.

    Attributes:
        weights: names of initializers that shall be learnt.
    """

    def __init__(self, weights: Collection[str] = ()) -> None:
        super().__init__()
        self.weights = frozenset(weights)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replaces ConstantOfShapes, other constants of one number, and what is joined or rearranged of these."""
        # Tensor -> the same made of one number.
        filled: dict[ir.Value, ir.Value] = {}
        for node in list(model.graph):
            b = Builder.before(node, self.context.space)
            for index, x in enumerate(node.inputs):
                if x is not None and (x in filled or (self._is_kept(x) and _fill(b, x, filled))):
                    node.replace_input_with(index, filled[x])
            view = std.ConstantOfShape.of(node, b.facts)
            if view is not None:
                number = b.constant(0, ir.DataType.FLOAT)
                if view.fill is not None:
                    number = b.constant(view.fill.numpy().reshape(()), view.fill.dtype)
                made = b.op(std.Expand, number.value, node.inputs[0])
                filled[made] = made
            elif _is_moved(node, filled) and _fill(b, node.outputs[0], filled):
                made = filled[node.outputs[0]]
            else:
                continue
            b.replace(node.outputs[0], made)
            detach(node)
        return ir.passes.PassResult(model, modified=bool(filled))

    def _is_kept(self, x: ir.Value) -> bool:
        """Whether a tensor is a constant of numbers that is not learnt."""
        made = x.producer() is None or std.Constant.matches(x.producer())
        given = x.is_graph_input() or x.name in self.weights
        return made and not given and x.dtype is not None and x.dtype.is_floating_point()


def _is_moved(node: ir.Node, filled: Mapping[ir.Value, ir.Value]) -> bool:
    """Whether a node joins or rearranges what is of one number."""
    parts = node.inputs if std.Concat.matches(node) else node.inputs[:1] if std.Moving.matches(node) else ()
    return len(node.outputs) == 1 and bool(parts) and all(x in filled for x in parts)


def _fill(b: Builder, x: ir.Value, filled: dict[ir.Value, ir.Value]) -> bool:
    """Makes of a tensor of one number and of known sizes one that is made of it."""
    number, shape, dtype = b.facts.uniform(x), b.facts.shape(x), b.facts.dtype(x)
    sizes = [size for size in shape or () if isinstance(size, int)]
    if number is None or not sizes or dtype is None or shape is None or len(sizes) < len(shape):
        return False
    made = b.op(std.Expand, b.constant(number, dtype), b.ints(*sizes)).value
    filled.update({x: made, made: made})
    return True


def _is_read(value: ir.Value) -> bool:
    return value.is_graph_output() or bool(value.uses())


def rolling_passes(
    weights: Collection[str], tied: Callable[[ir.Graph], Collection[ir.Value]], lengths: Sequence[Length]
) -> list[Pass]:
    """What rolls the steps of a model up, to be compared with those of other lengths; see `LoopRerolling`."""
    counts = {length.steps + more for length in lengths for more in (-1, 0, 1)}
    laws = [(law, length.steps > STEPS) for length in lengths for law in length.laws.values()]
    # Of chunks the last one may be another one, and what they hold be a loop by itself.
    fuller = any(law.rest or (law.slope > 1 and again) for law, again in laws)
    rolling = LoopRerolling(weights, tied, maps=True, counts=counts, fuller=fuller)
    # A step may take several.
    parts = {part for law, _ in laws for part in range(1, law.slope + 1) if law.slope % part == 0}
    pieces = {count * part for count in counts for part in parts}
    return [FillsPass(weights), CommonSubexpressionElimination(), PiecesPass(pieces), rolling, PiecesPass()]


def extrapolated(models: Sequence[ir.Model], lengths: Sequence[Length]) -> ir.Model:
    """The first model with open lengths, which is changed in place.

    Args:
        models: of as many steps as `lengths` say, then one for each length that has one step more of it.
        lengths: the lengths.

    Raises:
        UnlikeError: they differ in more than numbers.
    """
    try:
        return _Extrapolation(models, lengths).run()
    except UnlikeError as error:
        pairs = [(length, [models[0], model]) for length, model in zip(lengths, models[1:], strict=True)]
        error.lengths = [length for length, pair in pairs if not _Extrapolation(pair, [length]).are_alike()] or lengths
        raise


class _Extrapolation:
    """The models side by side.

    Attributes:
        edits: operands that are constants -> what they are in each model, formulas where they differ.
        shapes: values whose shapes go by a length -> their shapes in each model.
        least: how many steps of each length there are in loops of one step, and beside them, at least.
    """

    def __init__(self, models: Sequence[ir.Model], lengths: Sequence[Length]) -> None:
        self.models, self.lengths = models, lengths
        self.facts = [Facts.of(model) for model in models]
        self.edits: dict[tuple[ir.Node, int], tuple[Array, ...]] = {}
        self.shapes: dict[ir.Value, list[Any]] = {}
        self.least = [1] * len(lengths)
        self._alike: set[Values] = set()

    def are_alike(self) -> bool:
        """Whether they differ in numbers alone."""
        try:
            self._compare_all()
        except UnlikeError:
            return False
        return True

    def _compare_all(self) -> None:
        outputs = [tuple(model.graph.outputs) for model in self.models]
        if len({len(each) for each in outputs}) > 1:
            raise UnlikeError("of one more there are more results")
        for values in zip(*outputs, strict=True):
            self._compare(values)

    def run(self) -> ir.Model:
        """Writes the formulas."""
        self._compare_all()
        if any(length.example < least for length, least in zip(self.lengths, self.least, strict=True)):
            raise UnlikeError(f"its first or last ones stand beside the loop, which needs {max(self.least)}")
        graph = self.models[0].graph
        inputs = {str(value.name): value for value in graph.inputs}
        b = Builder(Workspace.of(self.models[0]), graph, before=next(iter(graph)), scope="steps")
        for length in self.lengths:
            first = next(iter(length.laws.values()))
            # A size that does not follow from a number of steps is open in the models, too.
            for (name, axis), law in length.laws.items() if not first.rest else ():
                _set_dim(inputs[name], axis, _dimension(length) if law == first else f"{name}_dim_{axis}")
        for values in self.shapes.items():
            self._open(*values)
        sizes = [_steps(b, inputs, length, least) for length, least in zip(self.lengths, self.least, strict=True)]
        formulas = Formulas(b, sizes, [length.steps for length in self.lengths])
        edits = {place: arrays for place, arrays in self.edits.items() if not _are_identical(arrays)}
        for (node, index), arrays in edits.items():
            operand = node.inputs[index]
            assert operand is not None
            assert operand.dtype is not None
            formula = formulas.of(arrays, operand.dtype)
            if _is_own_place(node, index):
                formula = formulas.not_from_the_end(formula, arrays)
            node.replace_input_with(index, formula.value)
        graph.sort()
        recorded = [length.recorded(least) for length, least in zip(self.lengths, self.least, strict=True)]
        records.write(self.models[0], recorded)
        return self.models[0]

    def _compare(self, values: Values) -> None:
        """Compares values and all that they follow from."""
        if values in self._alike:
            return
        # What a body reads is told where the body is.
        self._alike.add(values)
        self._note_shapes(values)
        nodes = [value.producer() for value in values]
        if all(node is None for node in nodes):
            self._compare_given(values)
            return
        present = tuple(node for node in nodes if node is not None)
        if len(present) < len(values) or len({value.index() for value in values}) > 1:
            raise UnlikeError(self._said(present))
        self._compare_nodes(present)

    def _compare_given(self, values: Values) -> None:
        """Compares inputs and weights."""
        if len({value.name for value in values}) > 1 or not all(
            value.is_graph_input() or value.is_initializer() for value in values
        ):
            raise UnlikeError("they read different values")
        if not _are_identical([value.const_value for value in values]):
            raise UnlikeError(self._said([use.node for use in values[0].uses()]))

    def _compare_nodes(self, nodes: tuple[ir.Node, ...]) -> None:
        first = nodes[0]
        if any(
            node.op_identifier() != first.op_identifier()
            or len(node.inputs) != len(first.inputs)
            or len(node.outputs) != len(first.outputs)
            or node.attributes.keys() != first.attributes.keys()
            for node in nodes
        ):
            raise UnlikeError(self._said(nodes))
        if std.Scan.matches(first):
            self._note_steps([facts.shape(node.inputs[-1]) for facts, node in zip(self.facts, nodes, strict=True)])
        # What nobody reads yet a gradient may.
        for outputs in zip(*(node.outputs for node in nodes), strict=True):
            self._note_shapes(outputs)
        for index in range(len(first.inputs)):
            operands = [node.inputs[index] for node in nodes]
            present = tuple(x for x in operands if x is not None)
            if len(present) == len(nodes):
                self._compare_operand(first, index, present)
            elif present:
                raise UnlikeError(self._said(nodes))
        for key, attribute in first.attributes.items():
            others = [node.attributes[key] for node in nodes]
            if attribute.type == ir.AttributeType.GRAPH:
                self._compare_bodies([each.as_graph() for each in others])
            elif any(not _equal_attributes(attribute, each) for each in others):
                raise UnlikeError(self._said(nodes))

    def _compare_operand(self, node: ir.Node, index: int, values: Values) -> None:
        """Compares operands, as what they are made of or, failing that, by their contents."""
        if all(std.Constant.matches(value.producer()) for value in values):
            self._edit(node, index, values)
            return
        kept = dict(self.edits), dict(self.shapes), set(self._alike)
        try:
            self._compare(values)
        except UnlikeError:
            if values[0].dtype is None or not values[0].dtype.is_integer():
                raise
            self.edits, self.shapes, self._alike = kept
            if any(facts.constant(value) is None for facts, value in zip(self.facts, values, strict=True)):
                raise
            self._edit(node, index, values)

    def _edit(self, node: ir.Node, index: int, values: Values) -> None:
        arrays = []
        for facts, value in zip(self.facts, values, strict=True):
            array = facts.constant(value)
            if array is None:
                raise UnlikeError(self._said([node]))
            arrays.append(array)
        # What is a weight's size in one place and a number of steps by chance in another is equal in the first model.
        before = self.edits.setdefault((node, index), tuple(arrays))
        if any(not _are_identical(each) for each in zip(before, arrays, strict=True)):
            raise UnlikeError(self._said([node]))
        if not _are_identical(arrays) and form_of(arrays) is None:
            raise UnlikeError(f"{self._said([node])} by {numbers_said(arrays)}")

    def _compare_bodies(self, graphs: Sequence[ir.Graph]) -> None:
        for pairs in ([graph.inputs for graph in graphs], [graph.outputs for graph in graphs]):
            if len({len(each) for each in pairs}) > 1:
                raise UnlikeError("loops hand on different states")
        for parameters in zip(*(graph.inputs for graph in graphs), strict=True):
            self._alike.add(parameters)
            self._note_shapes(parameters)
        for results in zip(*(graph.outputs for graph in graphs), strict=True):
            self._compare(results)

    def _note_steps(self, walked: Sequence[Any]) -> None:
        """Notes how few steps a Scan leaves, as one of none is an error."""
        first, *others = (shape[0] if shape and isinstance(shape[0], int) else 0 for shape in walked)
        for number, (length, steps) in enumerate(zip(self.lengths, others, strict=True)):
            if steps > first > 0:
                self.least[number] = max(self.least[number], length.steps - (first - 1) // (steps - first))

    def _note_shapes(self, values: Values) -> None:
        shapes = [facts.shape(value) for facts, value in zip(self.facts, values, strict=True)]
        self.shapes.setdefault(values[0], shapes)

    def _open(self, value: ir.Value, shapes: Sequence[Any]) -> None:
        """Keeps of a shape what does not go by a length."""
        if value.shape is None or value.is_initializer():
            return
        for axis in range(len(value.shape)):
            dims = [None if shape is None or len(shape) != len(value.shape) else shape[axis] for shape in shapes]
            if not isinstance(value.shape[axis], int) or all(dim == dims[0] for dim in dims):
                continue
            grown = [k for k, dim in enumerate(dims[1:]) if dim != dims[0]]
            length = self.lengths[grown[0]]
            place, law = next(iter(length.laws.items()))
            sizes = [length.sizes(length.steps + more)[place] for more in (0, 1)]
            is_length = (
                len(grown) == 1 and law.times is None and not law.rest and [dims[0], dims[grown[0] + 1]] == sizes
            )
            _set_dim(value, axis, _dimension(length) if is_length else None)

    def _said(self, nodes: Sequence[ir.Node]) -> str:
        """Where the module's code makes one of some nodes."""
        for node in nodes:
            if where := provenance.line(node):
                return f"they differ at {where}"
        return "they differ"


def _is_own_place(node: ir.Node, index: int) -> bool:
    """Whether an operand is a place of a step in a loop that was rolled up: no line of the module's code takes it."""
    places = 1 if std.Gather.matches(node) else 2 if std.Slice.matches(node) else 0
    return 1 <= index <= places and not provenance.line(node)


def _dimension(length: Length) -> str:
    name, axis = next(iter(length.laws))
    return f"{name}_dim_{axis}"


def _size(b: Builder, inputs: Mapping[str, ir.Value], place: Place) -> Expr:
    name, axis = place
    return b.op(std.Shape, b.wrap(inputs[name]), start=axis, end=axis + 1).squeeze(0)


def _steps(b: Builder, inputs: Mapping[str, ir.Value], length: Length, least: int) -> Expr:
    """The number of steps, read off the first axis that goes by it; a run fails for other sizes and for fewer steps."""
    first, *_ = laws = list(length.laws.items())
    size = _size(b, inputs, first[0])
    if first[1].times is not None:
        steps = size / _size(b, inputs, first[1].times)
    else:
        steps = size if first[1] == Law() else (size - first[1].offset) / first[1].slope
    for place, law in laws:
        # Equal sizes bear one name.
        if law != first[1] or law.slope > 1 or law.times is not None:
            slope = law.slope if law.times is None else _size(b, inputs, law.times)
            apart = b.op(std.Abs, _size(b, inputs, place) - (steps * slope + law.offset))
            apart = apart / (law.rest + 1) if law.rest else apart
            steps = steps.unsqueeze(0).take(apart)
    # Of fewer steps what stands beside loops might be read as theirs.
    return steps if least == 1 else steps.unsqueeze(0).take((-steps + least).maximum(0))


def _set_dim(value: ir.Value, axis: int, dim: str | None) -> None:
    assert value.shape is not None
    dims = list(value.shape)
    dims[axis] = ir.SymbolicDim(dim)
    value.shape = ir.Shape(dims)


def _are_identical(tensors: Sequence[Any]) -> bool:
    """Whether tensors, or arrays, are the same bit by bit; `None` is like itself alone."""
    first = tensors[0]
    if any(x is None for x in tensors):
        return all(x is None for x in tensors)
    form = first.dtype, first.shape
    return all(x is first or ((x.dtype, x.shape) == form and x.tobytes() == first.tobytes()) for x in tensors)


def _equal_attributes(a: ir.Attr, b: ir.Attr) -> bool:
    if a.type == b.type == ir.AttributeType.TENSOR:
        return _are_identical([a.as_tensor(), b.as_tensor()])
    return a.type == b.type and bool(a.value == b.value)
