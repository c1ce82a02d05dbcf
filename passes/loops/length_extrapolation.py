"""A model for any number of steps, of models for some: all that differs between them is formulas of the number.

A trace writes a loop in Python out step by step. Traces of one step more or less are the same loop once their steps are
rolled up again (`rerolling`), but for constants: sizes, places, numbers of steps. One that grows by as much with each
step is written as a formula; of anything else a model for other lengths is not known.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import provenance
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, Workspace
from lstm_lower.graph.edit import detach
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.values import Array
from lstm_lower.passes.formulas.sizes import scalar, up_to
from lstm_lower.passes.loops.rerolling import LEAST_STEPS
from lstm_lower.passes.model_pass import Pass
from lstm_lower.records import lengths as records
from lstm_lower.records.lengths import Law, Place

# Corresponding values of the models, the shortest first.
Values = tuple[ir.Value, ...]


@dataclasses.dataclass(frozen=True)
class Length:
    """A number of steps.

    Attributes:
        laws: inputs and axes whose sizes go by it -> how.
        example: how many there are in the example.
        steps: how many there are in the model that all others are compared with.
        line: a line of the module's code that runs once a step.
        guessed: whether a step reads numbers whose formula is guessed from those of the first steps.
    """

    laws: Mapping[Place, Law]
    example: int
    steps: int
    line: str
    guessed: bool = False

    def sizes(self, steps: int) -> dict[Place, int]:
        """The sizes of the axes for so many steps, those of others being the example's."""
        return {place: law.slope * steps + law.offset for place, law in self.laws.items()}

    def recorded(self) -> records.Length:
        """What a model records of it."""
        return records.Length(records.by_input(self.laws))


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
    """Makes tensors of one number each, as many as a loop has steps, of constants, which may go by the step."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replaces ConstantOfShapes of one shape."""
        filled: dict[ir.Value | None, list[ir.Node]] = {}
        for node in model.graph:
            if std.ConstantOfShape.matches(node):
                filled.setdefault(node.inputs[0], []).append(node)
        many = [nodes for nodes in filled.values() if len(nodes) >= LEAST_STEPS]
        for node in itertools.chain(*many):
            b = Builder.before(node, self.context.space)
            view = std.ConstantOfShape.of(node, b.facts)
            number = b.constant(0, ir.DataType.FLOAT)
            if view is not None and view.fill is not None:
                number = b.constant(view.fill.numpy().reshape(()), view.fill.dtype)
            b.replace(node.outputs[0], b.op(std.Expand, number, node.inputs[0]))
            detach(node)
        return ir.passes.PassResult(model, modified=bool(many))


def _is_read(value: ir.Value) -> bool:
    return value.is_graph_output() or bool(value.uses())


def extrapolated(models: Sequence[ir.Model], lengths: Sequence[Length]) -> tuple[ir.Model, Sequence[Length]]:
    """The first model with open lengths, which is changed in place, and the lengths with what is known of them then.

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
        edits: operands to be written as formulas -> what they are in each model.
        shapes: values whose shapes go by a length -> their shapes in each model.
    """

    def __init__(self, models: Sequence[ir.Model], lengths: Sequence[Length]) -> None:
        self.models, self.lengths = models, lengths
        self.facts = [Facts.of(model) for model in models]
        self.edits: dict[tuple[ir.Node, int], tuple[Array, ...]] = {}
        self.shapes: dict[ir.Value, list[Any]] = {}
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

    def run(self) -> tuple[ir.Model, Sequence[Length]]:
        """Writes the formulas."""
        self._compare_all()
        graph = self.models[0].graph
        inputs = {str(value.name): value for value in graph.inputs}
        b = Builder(Workspace.of(self.models[0]), graph, before=next(iter(graph)), scope="steps")
        for length in self.lengths:
            first = next(iter(length.laws.values()))
            for (name, axis), law in length.laws.items():
                _set_dim(inputs[name], axis, _dimension(length) if law == first else f"{name}_dim_{axis}")
        for values in self.shapes.items():
            self._open(*values)
        sizes = [_steps(b, inputs, length) for length in self.lengths]
        formulas = _Formulas(b, sizes, [length.steps for length in self.lengths])
        for (node, index), arrays in self.edits.items():
            operand = node.inputs[index]
            assert operand is not None
            assert operand.dtype is not None
            formula = formulas.of(arrays, operand.dtype)
            if _is_own_place(node, index):
                formula = formulas.not_from_the_end(formula, arrays)
            node.replace_input_with(index, formula.value)
        graph.sort()
        records.write(self.models[0], [length.recorded() for length in self.lengths])
        guessed = any(form is not None and form.is_guessed for form in map(_form, self.edits.values()))
        return self.models[0], [dataclasses.replace(length, guessed=guessed) for length in self.lengths]

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
        if _are_identical(arrays):
            return
        before = self.edits.setdefault((node, index), tuple(arrays))
        if any(not np.array_equal(a, b) for a, b in zip(before, arrays, strict=True)):
            raise UnlikeError(self._said([node]))
        if _form(arrays) is None:
            raise UnlikeError(f"{self._said([node])} by {_numbers_said(arrays)}")

    def _compare_bodies(self, graphs: Sequence[ir.Graph]) -> None:
        for pairs in ([graph.inputs for graph in graphs], [graph.outputs for graph in graphs]):
            if len({len(each) for each in pairs}) > 1:
                raise UnlikeError("loops hand on different states")
        for parameters in zip(*(graph.inputs for graph in graphs), strict=True):
            self._alike.add(parameters)
            self._note_shapes(parameters)
        for results in zip(*(graph.outputs for graph in graphs), strict=True):
            self._compare(results)

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
            is_length = len(grown) == 1 and law.times is None and [dims[0], dims[grown[0] + 1]] == sizes
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


def _steps(b: Builder, inputs: Mapping[str, ir.Value], length: Length) -> Expr:
    """The number of steps, read off the first axis that goes by it; other sizes than the laws' make a run fail."""
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
            steps = steps.unsqueeze(0).take(apart)
    return steps


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


@dataclasses.dataclass
class _Formulas:
    """Constants as formulas of lengths.

    Attributes:
        b: emits in front of the model's nodes.
        sizes: the lengths, scalars.
        steps: which they are in the first model; there is one more of each in another one.
    """

    b: Builder
    sizes: Sequence[Expr]
    steps: Sequence[int]

    def of(self, arrays: Sequence[Array], dtype: ir.DataType) -> Expr:
        """The formula for what an operand is in each model."""
        form = _form(arrays)
        assert form is not None
        if form.ratio is not None:
            numbers = self._numbers(form).cast(ir.DataType.DOUBLE)
            powers = self.b.constant(form.ratio, ir.DataType.DOUBLE) ** numbers * float(form.first.item()) + form.offset
            return powers.reshape(*(-1 if axis == form.axis else 1 for axis in range(form.first.ndim))).cast(dtype)
        x = self._whole(form)
        if form.apart is not None:
            rank = form.first.ndim + 1
            column = self._numbers(form).reshape(-1, *[1] * (rank - 1)) * self.b.constant(form.apart)
            x = self.b.move_axis(column + x.unsqueeze(0), 0, form.axis, rank)
        if form.is_function:
            x = x.cast(ir.DataType.DOUBLE)
            divisor = self._linear(form.divisor) if form.divisor else 1
            if isinstance(divisor, Expr):
                # By 0, as a share of one step has no place among others, a run fails.
                divisor = divisor.unsqueeze(0).take((1 - divisor).maximum(0)).cast(x.dtype)
            x = form.function.written(x / divisor)
        return x.cast(dtype)

    def not_from_the_end(self, x: Expr, arrays: Sequence[Array]) -> Expr:
        """Places, none of which is negative; for so few steps that one would be, a run fails."""
        first, *others = (array.astype(np.int64) for array in arrays)
        least = first - sum((x - first) * (steps - 1) for x, steps in zip(others, self.steps, strict=True))
        if first.min() < 0 or np.min(least) >= 0:
            return x
        below = (-x).reshape(-1).maximum(0).reduce(std.ReduceMax, 0, keepdims=False)
        return x.unsqueeze(0).take(below)

    def _numbers(self, form: _Form) -> Expr:
        return up_to(self.b, self._linear(form.counts))

    def _whole(self, form: _Form) -> Expr:
        """Each element by itself."""
        shape = form.first.shape
        numbers = np.stack([x.reshape(-1) for x in (form.first, *form.slopes)], axis=1)
        elements = [self._linear(each) for each in numbers]
        if shape == ():
            return scalar(self.b, elements[0])
        row = self.b.sizes([x.unsqueeze(0) if isinstance(x, Expr) else x for x in elements])
        return row if len(shape) == 1 else row.reshape(*shape)

    def _linear(self, numbers: Sequence[int]) -> int | Expr:
        """A number of the first model that grows by so much with each step of each length."""
        first, *slopes = map(int, numbers)
        result: int | Expr = first - sum(slope * steps for slope, steps in zip(slopes, self.steps, strict=True))
        for slope, size in zip(slopes, self.sizes, strict=True):
            if slope:
                term = size if slope == 1 else size * slope
                result = term if isinstance(result, int) and result == 0 else term + result
        return result


@dataclasses.dataclass(frozen=True)
class _Function:
    """A function that a module's code may take of a step's number.

    Attributes:
        of: the function.
        inverse: its inverse where the first steps are.
        written: writes it.
    """

    of: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    written: Callable[[Expr], Expr]


def _writes(*ops: type[std.Unary]) -> Callable[[Expr], Expr]:
    return lambda x: functools.reduce(lambda made, op: made.builder.op(op, made), ops, x)


_WHOLE = _Function(np.positive, np.positive, _writes())
_INVERSE = _Function(np.reciprocal, np.reciprocal, _writes(std.Reciprocal))
_ROOTS = (
    _Function(np.sqrt, np.square, _writes(std.Sqrt)),
    _Function(lambda x: 1 / np.sqrt(x), lambda x: 1 / np.square(x), _writes(std.Sqrt, std.Reciprocal)),
    _Function(np.log, np.exp, _writes(std.Log)),
)
_FUNCTIONS = (
    _WHOLE,
    _INVERSE,
    *_ROOTS,
    _Function(np.square, np.sqrt, lambda x: x * x),
    _Function(np.exp, np.log, _writes(std.Exp)),
    _Function(np.sin, np.arcsin, _writes(std.Sin)),
    _Function(np.cos, np.arccos, _writes(std.Cos)),
)


@dataclasses.dataclass(frozen=True)
class _Form:
    """A function of whole numbers by lengths, `first + slopes * (length - steps)`, over a divisor.

    Attributes:
        first: in the first model.
        slopes: how much they grow with each length.
        function: what the constant is of them.
        divisor: what they are divided by before, in the first model, and how much that grows with each length.
        apart: of a row of numbers their distance; `first` is the first of them.
        ratio: of a row of any numbers, each of which is a multiple of the one before, that multiple.
        offset: what is added to each of these.
        axis: along which they lie.
        counts: how many there are in the first model, and how many more with each length.
    """

    first: Array
    slopes: Sequence[Array]
    function: _Function = _WHOLE
    divisor: Sequence[int] = ()
    apart: Array | None = None
    ratio: float | None = None
    offset: float = 0.0
    axis: int = 0
    counts: Sequence[int] = ()

    @property
    def is_function(self) -> bool:
        """Whether it is no whole number."""
        return bool(self.divisor) or self.function != _WHOLE

    @property
    def is_guessed(self) -> bool:
        """Whether it may be a function of another kind for other numbers."""
        return self.ratio is not None or bool(self.divisor) or self.function not in {_WHOLE, _INVERSE}

    def far(self) -> float:
        """What stands far behind in a row of the first model."""
        if self.ratio is not None:
            return self.offset + float(self.first.item()) * self.ratio**_FAR
        assert self.apart is not None
        place = self.first.reshape(-1)[0] + self.apart.reshape(-1)[0] * np.float64(_FAR)
        with np.errstate(all="ignore"):
            return float(self.function.of(place / (self.divisor[0] if self.divisor else 1)))


def _form(arrays: Sequence[Array]) -> _Form | None:
    """The formula of what a constant is in each model, if there is one."""
    for function in (_WHOLE, _INVERSE, *_ROOTS):
        whole = _whole_numbers(arrays, function)
        if whole is None:
            continue
        form = _linear(whole) or (_rows(whole) if function in {_WHOLE, _INVERSE} else None)
        if form is not None:
            return dataclasses.replace(form, function=function)
    if (form := _fractions(arrays)) is not None:
        return form
    forms = [*_progressions(arrays), *_powers(arrays)]
    # Slow ones are all alike at their beginning: of which one they are so few do not say.
    alike = all(np.isclose(form.far(), forms[0].far(), rtol=_NEAR, atol=0) for form in forms)
    return forms[0] if forms and alike else None


# Into how many parts 1 may be divided, of which constants are so many.
_MOST_PARTS = 1000


def _fractions(arrays: Sequence[Array]) -> _Form | None:
    """Numbers of parts of 1, such as tenths."""
    if arrays[0].dtype.kind != "f" or not all(np.isfinite(x).all() for x in arrays):
        return None
    parts = 1
    for number in np.concatenate([x.reshape(-1) for x in arrays]):
        parts = math.lcm(parts, Fraction(float(number)).limit_denominator(_MOST_PARTS).denominator)
        if parts > _MOST_PARTS:
            return None
    counts = [np.rint(x.astype(np.float64) * parts).astype(np.int64) for x in arrays]
    if any(((count / parts).astype(x.dtype) != x).any() for count, x in zip(counts, arrays, strict=True)):
        return None
    form = _linear(counts) or _rows(counts)
    return form and dataclasses.replace(form, divisor=_grown([parts] * len(arrays)))


# A step far behind those that are traced, and how near to each other formulas are there that are the same.
_FAR, _NEAR = 1000, 1e-4
# Elements of a row at least that are told to be a function of their places.
_LEAST_ROW = 4


def _progressions(arrays: Sequence[Array]) -> Iterator[_Form]:
    """Functions of numbers at equal distances that are decimal fractions, or have a common divisor, in a row."""
    kinds = {(x.dtype.kind, x.dtype.itemsize >= _LEAST_BYTES, x.size == max(x.shape, default=0)) for x in arrays}
    if kinds != {("f", True, True)} or min(x.size for x in arrays) < _LEAST_ROW:
        return
    rows = [x.reshape(-1).astype(np.float64) for x in arrays]
    eps = float(np.finfo(arrays[0].dtype).eps)
    for function in _FUNCTIONS:
        with np.errstate(all="ignore"):
            begins = [function.inverse(row[:2]) for row in rows]
        if not np.isfinite(begins).all():
            continue
        for divisors in _divisors(begins, [len(row) - 1 for row in rows]):
            whole = [
                np.rint(first * divisor) + np.rint((second - first) * divisor) * np.arange(len(row))
                for row, (first, second), divisor in zip(rows, begins, divisors, strict=True)
            ]
            with np.errstate(all="ignore"):
                made = [function.of(x / divisor) for x, divisor in zip(whole, divisors, strict=True)]
            near = zip(made, rows, strict=True)
            if all(np.allclose(x, row, rtol=2 * eps, atol=eps * np.abs(row).max()) for x, row in near):
                shaped = [x.astype(np.int64).reshape(array.shape) for x, array in zip(whole, arrays, strict=True)]
                if (form := _rows(shaped)) is not None:
                    yield dataclasses.replace(form, function=function, divisor=_grown(divisors))
                    break


# Decimals of such fractions: with more an exponential is like each power.
_DECIMALS = 4
# Bytes of numbers whose digits tell functions apart.
_LEAST_BYTES = 4


def _divisors(begins: Sequence[Array], parts: Sequence[int]) -> Iterator[list[int]]:
    """What the first numbers of rows that have so many distances may have been divided by."""
    apart = [abs(float(second - first)) for first, second in begins]
    shares = [[max(round(part / x), 1) for x in apart] for part in (1, 2) if all(x * 10**_DIGITS > 1 for x in apart)]
    for digits in range(_DECIMALS + 1):
        for each in ([1] * len(begins), parts):
            yield [10**digits * divisor for divisor in each]
    yield from shares


def _numbers_said(arrays: Sequence[Array]) -> str:
    """Constants for which there is no formula, and what to do."""
    longest = max(arrays, key=lambda x: x.size).reshape(-1)
    said = ", ".join([*(f"{x:.4g}" for x in longest[:3].tolist()), *(["..."] if longest.size > 3 else [])])
    return (
        f"numbers of which no formula is known ({said}): made of "
        "torch.arange before the loop, and taken from there in each step, they are of any length"
    )


# Digits of a decay or the like, which is a decimal fraction as a rule, that rounding leaves of it.
_DIGITS = 6


def _powers(arrays: Sequence[Array]) -> Iterator[_Form]:
    """Powers of one number, more of them in some models, or what is missing from each to 1."""
    rows, shape = [x.reshape(-1) for x in arrays], arrays[0].shape
    if arrays[0].dtype.kind != "f" or any(x.size != max((3, *x.shape)) for x in arrays):
        return
    near = 2 * float(np.finfo(arrays[0].dtype).eps)
    for offset in (0.0, 1.0):
        start, second = (float(x) - offset for x in rows[0][:2])
        ratio = float(f"{second / start:.{_DIGITS}g}") if start else 0.0
        made = [offset + start * ratio ** np.arange(len(row)) for row in rows]
        if start and all(np.allclose(row, x, rtol=near, atol=0) for row, x in zip(rows, made, strict=True)):
            counts = _grown([len(row) for row in rows])
            first = np.full([1] * len(shape), start)
            yield _Form(first, [], ratio=ratio, offset=offset, axis=int(np.argmax(shape)), counts=counts)


def _grown(counts: Sequence[int]) -> list[int]:
    return [counts[0], *(count - counts[0] for count in counts[1:])]


def _whole_numbers(arrays: Sequence[Array], function: _Function) -> list[Array] | None:
    """What constants are a function of, where it is integers."""
    if arrays[0].dtype.kind in "iu":
        return [x.astype(np.int64) for x in arrays] if function == _WHOLE else None
    if arrays[0].dtype.kind != "f":
        return None
    found = []
    for x in arrays:
        with np.errstate(all="ignore"):
            near = np.rint(function.inverse(x.astype(np.float64)))
            exact = function.of(near).astype(x.dtype)
        if not np.array_equal(exact, x) or np.abs(near).max(initial=0) > 1 << 24:
            return None
        found.append(near.astype(np.int64))
    return found


def _linear(arrays: Sequence[Array]) -> _Form | None:
    first, *others = arrays
    return _Form(first, [x - first for x in others]) if all(x.shape == first.shape for x in others) else None


def _rows(arrays: Sequence[Array]) -> _Form | None:
    """Rows of numbers at equal distances, longer in some models."""
    first = arrays[0]
    if any(x.ndim != first.ndim for x in arrays):
        return None
    axes = {axis for x in arrays for axis in range(first.ndim) if x.shape[axis] != first.shape[axis]}
    if len(axes) != 1 or min(x.shape[next(iter(axes))] for x in arrays) < 2:
        return None
    axis = axes.pop()
    rows = [np.moveaxis(x, axis, 0) for x in arrays]
    apart = rows[0][1] - rows[0][0]
    if any((np.diff(row, axis=0) != apart).any() for row in rows):
        return None
    form, counts = _linear([row[0] for row in rows]), _grown([len(row) for row in rows])
    return form and dataclasses.replace(form, apart=apart, axis=axis, counts=counts)
