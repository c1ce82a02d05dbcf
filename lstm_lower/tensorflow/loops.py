"""Loops: a region with what it carries becomes the body of a Loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.graph.facts import Facts
from lstm_lower.passes.loops.trip_count import LoopCount, Uncountable
from lstm_lower.passes.loops.views.linear import Counting, LinearForm, is_size, least
from lstm_lower.passes.loops.views.scalar_evolution import ScalarEvolution
from lstm_lower.passes.loops.views.step_values import StepValues
from lstm_lower.passes.loops.views.variation import BodyVariation
from lstm_lower.passes.loops.views.while_loop import WhileLoop
from lstm_lower.reachability import reached
from lstm_lower.tensorflow.carried_lists import CarriedLists, ListParameter, NeedsTensorError, added
from lstm_lower.tensorflow.packed_lists import WAY_ON
from lstm_lower.tensorflow.regions import LOOP, Op, Region, needed_names
from lstm_lower.tensorflow.state import writes
from lstm_lower.tensorflow.tensor_list import (
    Fresh,
    Rows,
    TensorList,
    as_list,
)
from lstm_lower.tensorflow.translator import Scope, Translator, handlers
from lstm_lower.tensorflow.values import FLOW, INT64, Flow, Handle, Resource, Value

handles = handlers("Loops")


@handles(LOOP)
def _loop(t: Translator, op: Op, scope: Scope) -> list[Value]:
    return _Loop(t, op, scope).run()


class _Loop:
    """One loop."""

    def __init__(self, t: Translator, op: Op, scope: Scope) -> None:
        self.t = t
        self.op = op
        self.scope = scope
        self.condition, self.body = op.regions
        self.initial = [t.value(name, scope) for name in op.inputs]
        self.initial = [
            scope.read(x.cell) if isinstance(x, Handle) and x.cell.reference and not self._passes(i) else x
            for i, x in enumerate(self.initial)
        ]
        self.live = self._live()
        self.ops = self._needed()
        self.shapes: dict[int | Resource, tuple[Any, ...] | None] = {}
        self.forced: dict[int | Resource, str] = {}
        self.elements: dict[int | Resource, TensorList | None] = {}
        self.lists: set[int | Resource] = set()
        self.flows: set[int | Resource] = set()

    def run(self) -> list[Value]:
        while True:
            attempt = _Attempt(self)
            try:
                if attempt.translate():
                    return attempt.emit()
            except NeedsTensorError as error:
                key = attempt.key_of(error.parameter)
                if key is None:
                    raise
                if key in self.forced:
                    raise UnsupportedOpError(f"{self.op}: {error.why}") from error
                self.forced[key] = error.why
                if error.elements is not None:
                    self.elements.setdefault(key, error.elements)

    def _passes(self, number: int) -> bool:
        """Whether an iteration hands a loop variable on as it found it."""
        result = self.body.results[number]
        makers = {op.name: op for op in self.body.ops}
        while result is not None and result != self.body.params[number]:
            op = makers.get(result.rpartition(":")[0])
            if op is None or op.op not in ("Identity", "RefIdentity"):
                behind = self.t.aliases.names.get(result)
                if behind is None:
                    return False
                result = behind
                continue
            result = op.inputs[0]
        return result is not None

    def _live(self) -> list[bool]:
        """Which loop variables anything depends on."""
        count = len(self.initial)
        uses = [self._params_behind(self.body, [result]) for result in self.body.results]
        pending = {i for i in range(count) if f"{self.op.name}:{i}" in self.t.read}
        pending |= self._params_behind(self.condition, self.condition.results)
        pending |= self._params_behind(self.body, [name for op in self.body.ops if writes(op) for name in op.reads()])
        live = set(reached(pending, uses.__getitem__))
        return [i in live for i in range(count)]

    def _params_behind(self, region: Region, names: Iterable[str | None]) -> set[int]:
        """The numbers of the parameters that some tensors of a region depend on."""
        seen = needed_names(region, names, self.t.aliases)
        return {number for number, name in enumerate(region.params) if name in seen}

    def _needed(self) -> list[Op]:
        """The ops of the body that its live results need, or that change something."""
        ops = self.body.ops
        wanted = [name for name, live in zip(self.body.results, self.live, strict=True) if live]
        wanted += [name for op in ops if writes(op) for name in (f"{op.name}:0", *op.reads())]
        makers = {name.rpartition(":")[0] for name in needed_names(self.body, wanted, self.t.aliases)}
        return [op for op in ops if op.name in makers]


class _Attempt:
    """A loop, with assumptions on the shapes of what it carries."""

    def __init__(self, loop: _Loop) -> None:
        self.loop = loop
        self.t = loop.t
        outer = loop.scope
        self.builder = self.t.inner(outer.builder, "body", loop.op.name)
        space, name = self.t.space, loop.op.name
        iteration = space.value(f"{name}/iteration", ir.TensorType(INT64), ())
        going = space.value(f"{name}/going", ir.TensorType(ir.DataType.BOOL), ())
        self.builder.graph.inputs.extend([iteration, going])
        self.iteration = Expr(self.builder, iteration)
        self.scope = Scope(self.builder, outer.floor, outer)
        if any(writes(op) for op in loop.body.ops):
            self.scope.carry = self._carry
        self.parameters: dict[int | Resource, Value] = {}
        self.before: dict[int | Resource, Value] = {}
        self.results: dict[int | Resource, Value] = {}

    def key_of(self, parameter: ListParameter) -> int | Resource | None:
        """Which loop variable or cell a list parameter stands for."""
        return next((key for key, value in self.parameters.items() if value is parameter), None)

    def translate(self) -> bool:
        """Translates the body; whether the assumptions on shapes were right."""
        loop, t = self.loop, self.t
        for number, value in enumerate(loop.initial):
            self.scope.values[loop.body.params[number]] = self._parameter(number, value)
        for op in loop.ops:
            t.op(op, self.scope)
        for number in [key for key in self.parameters if isinstance(key, int)]:
            name = loop.body.results[number]
            assert name is not None
            found = t.value(name, self.scope)
            if isinstance(found, Handle) and found.cell.reference:
                found = self.scope.read(found.cell)
            self.results[number] = found
        for cell in [key for key in self.parameters if isinstance(key, Resource)]:
            self.results[cell] = self.scope.cells[cell]
        fitting = [self._fits(key) for key in self.parameters]
        return all(fitting)

    def _parameter(self, number: int, value: Value) -> Value:
        """What a loop variable is in the body."""
        loop = self.loop
        if not loop.live[number] or loop._passes(number) or isinstance(value, (Flow, Handle)):
            return value
        if number in loop.flows:
            return FLOW
        return self._carry(number, as_list(value) if number in loop.lists else value)

    def _carry(self, key: int | Resource, value: Value) -> Value:
        """What an iteration finds of a value that is carried along."""
        loop = self.loop
        if isinstance(value, TensorList) and key not in loop.forced:
            made: Value = ListParameter(value, self.iteration, self.t.origins)
        else:
            tensor = self._as_tensor(key, value) if isinstance(value, TensorList) else value
            if not isinstance(tensor, Expr):
                raise UnsupportedOpError(f"{loop.op}: carries {type(value).__name__}, which has no form in a model")
            expr = self.t.parameter(self.builder, tensor, "state", loop.shapes.get(key, tensor.shape))
            made = Rows(expr) if isinstance(value, TensorList) else expr
            value = tensor
        self.before[key], self.parameters[key] = value, made
        return made

    def _as_tensor(self, key: int | Resource, value: TensorList) -> Expr:
        """A list as a tensor, with elements like those that the loop was seen to add."""
        like = self.loop.elements.get(key)
        if isinstance(value, Fresh) and value.element_shape is None and like is not None:
            sizes = [self.t.size(dim) for dim in like.element_shape or (None,)]
            if like.element_shape == ():
                return value.zeros(value.length(), self.t.root.constant([], INT64))
            if None not in sizes:
                return value.zeros(value.length(), self.t.root.concat([size for size in sizes if size], 0))
        try:
            return value.rows()
        except NeedsTensorError as error:
            error.elements = error.elements or like
            raise
        except UnsupportedOpError as error:
            way = f"; {WAY_ON}" if isinstance(key, Resource) and WAY_ON not in str(error) else ""
            raise UnsupportedOpError(f"{self.loop.op}: {error}{way}") from error

    def _fits(self, key: int | Resource) -> bool:
        """Whether a carried tensor has the shape after an iteration that it was taken to have before."""
        parameter, result = self.parameters[key], self.results[key]
        if isinstance(parameter, Rows) and isinstance(result, TensorList):
            parameter, result = parameter.tensor, result.rows()
            self.results[key] = result
        if not isinstance(parameter, Expr):
            return True
        if isinstance(result, Flow):
            # What a gradient adds to a flow begins as a number.
            self.loop.flows.add(key)
            return False
        if isinstance(result, TensorList) and key not in self.loop.lists:
            # A list that was an element of a list came in as what it holds.
            self.loop.lists.add(key)
            return False
        if not isinstance(result, Expr):
            raise UnsupportedOpError(
                f"{self.loop.op}: requires a tensor in each iteration, got {type(result).__name__}"
            )
        found = result.shape
        told = self.loop.shapes.get(key, _tensor(self.before[key]).shape)
        if result.value is parameter.value or told is None:
            return True
        assumed = parameter.shape
        if found is None or assumed is None or len(found) != len(told):
            self.loop.shapes[key] = None
            return False
        merged = tuple(dim if a == b else None for dim, a, b in zip(told, assumed, found, strict=True))
        if merged == told:
            return True
        self.loop.shapes[key] = merged
        return False

    def emit(self) -> list[Value]:
        """The Loop, and what its outputs stand for.

        Raises:
            NeedsTensorError: a list is used in a way that has no form without a tensor.
        """
        loop, t, b = self.loop, self.t, self.builder
        lists = CarriedLists(t, loop.op, self.scope, self._evolution(), self._variation())
        finals: dict[int | Resource, Value] = {}
        carried: list[int | Resource] = []
        for key, parameter in self.parameters.items():
            if isinstance(parameter, ListParameter):
                loop.elements[key] = added(self.results[key]) or loop.elements.get(key)
                finals[key] = lists.final(parameter, self.results[key])
            else:
                carried.append(key)
        states = [self._state(key) for key in carried]
        going = self._condition(self.scope, [self.results.get(i, x) for i, x in enumerate(loop.initial)])
        if not states:
            # What makes lists alone counts its iterations.
            states.append(self._counter())
        b.graph.outputs.extend(b.results([going, *(update for _, _, update in states)]))
        outer = loop.scope.builder
        first = self._condition(Scope(outer, loop.scope.floor, loop.scope), loop.initial)
        outer.scope = loop.op.name
        starts = [start for start, _, _ in states]
        made = outer.ops(std.Loop, None, first, *starts, outputs=len(starts), body=b.graph)
        for output, (_, state, _) in zip(made, states, strict=True):
            self._tell(output, state.shape)
        node = made[0].value.producer()
        assert node is not None
        if starts_surely(first.value, t.space.facts):
            node.metadata_props[std.STEPS] = std.AT_LEAST_ONE
        view = WhileLoop(node, t.space)
        lists.steps, lists.trips = StepValues(view, outer), self._counted(view)
        if lists.trips is not None:
            growths = map(view.evolution().growth, (state.value for _, state, _ in states))
            for number, ((start, state, _), growth) in enumerate(zip(states, growths, strict=True)):
                if growth is not None and state.shape == ():
                    made[number] = start + (lists.trips * growth).cast(state.dtype)
        results: list[Value] = [FLOW if i in loop.flows else value for i, value in enumerate(loop.initial)]
        for key, final in [*zip(carried, made, strict=False), *finals.items()]:
            value = Rows(final) if isinstance(self.parameters[key], Rows) else final
            if not isinstance(key, Resource):
                results[key] = value
            elif self.results[key] is not self.parameters[key]:
                loop.scope.cells[key] = value
        return results

    def _counted(self, loop: WhileLoop) -> Expr | None:
        """The number of iterations, where it is known before the loop: nothing else ends that then."""
        try:
            count = LoopCount(loop)
            sources = [*count.counting.sources.values(), *([] if loop.start is None else [loop.start])]
            outer = self.t.innermost(sources)
            before = loop.before() if outer.graph is loop.graph else outer
            count.tell(before)
        except Uncountable:
            return None
        loop.write()
        return self.t.wrap(loop.count(before))

    def _counter(self) -> tuple[Expr, Expr, Expr]:
        """The number of iterations, carried along as the others are."""
        zero = self.t.root.constant(0, INT64)
        count = self.t.parameter(self.builder, zero, "count", ())
        return zero, count, count + 1

    def _state(self, key: int | Resource) -> tuple[Expr, Expr, Expr]:
        """A tensor that is carried: before the loop, as an iteration finds it and leaves it."""
        start, state, update = (_tensor(values[key]) for values in (self.before, self.parameters, self.results))
        return start, state, update.cast(state.dtype)

    def _variation(self) -> BodyVariation:
        t, depth = self.t, self.builder.depth
        tensors = {
            key: _tensor(value) for key, value in self.parameters.items() if not isinstance(value, ListParameter)
        }
        return BodyVariation(
            t.space.facts,
            lambda value: t.depth_of(value) < depth,
            {tensor.value: _tensor(self.results[key]).value for key, tensor in tensors.items()},
        )

    def _evolution(self) -> ScalarEvolution:
        carried = {
            parameter.value: (_tensor(self.before[key]).value, _tensor(self.results[key]).value)
            for key, parameter in self.parameters.items()
            if isinstance(parameter, Expr)
        }
        return ScalarEvolution(self.t.space.facts, self.builder.graph, self.iteration.value, carried)

    def _tell(self, output: Expr, shape: Sequence[Any] | None) -> None:
        """States an output's shape: the body's induction has shown it, where it is known outside of the body."""
        known = self.t.outside(shape, self.builder.depth)
        if known is not None:
            output.builder.set_shape(output, known)

    def _condition(self, scope: Scope, values: Sequence[Value]) -> Expr:
        """The condition of the next iteration from what it would find."""
        region = self.loop.condition
        inner = Scope(scope.builder, scope.floor, scope)
        inner.values.update(zip(region.params, values, strict=True))
        self.t.run(region, inner)
        assert region.results[0] is not None
        return self.t.tensor(region.results[0], inner, self.loop.op)


def _tensor(value: Value) -> Expr:
    found = value.rows() if isinstance(value, TensorList) else value
    if not isinstance(found, Expr):
        raise UnsupportedOpError(f"a loop requires tensors to carry along, got {type(found).__name__}")
    return found


def starts_surely(condition: ir.Value, facts: Facts) -> bool:
    """Whether a loop's first condition holds, if sequences and batches that come from outside are not empty."""
    counting = Counting(facts)
    tests = counting.tests(condition)
    bounds = [_at_least(test.times(-1), counting) for test in tests or ()]
    return tests is not None and all(bound is not None and bound > 0 for bound in bounds)


def _at_least(form: LinearForm, counting: Counting) -> int | None:
    """What a sum of scalars is at least, where sizes are 1 at least."""
    bounds = {term: 1 if is_size(term) else _least_number(counting.sources[term], counting) for term in form.terms}
    return least(form, {term: bound for term, bound in bounds.items() if bound is not None})


def _least_number(value: ir.Value, counting: Counting) -> int | None:
    """What a scalar that is no sum is at least, where it is a choice."""
    maker = counting.facts.maker(value)
    if not isinstance(maker, std.Min | std.Max):
        return None
    forms = [counting.of(x) for x in maker.inputs]
    bounds = [None if form is None else _at_least(form, counting) for form in forms]
    known = [bound for bound in bounds if bound is not None]
    if isinstance(maker, std.Max):
        return max(known, default=None)
    return min(known) if len(known) == len(bounds) else None
