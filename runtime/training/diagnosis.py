"""Where the first infinity or NaN of a step comes from.

The step runs once more without optimisation. Every floating value brings two numbers along, which tell whether all its
elements are finite, and whether one of them is NaN. Values of a loop's body bring them for each of its steps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from lstm_lower.dtypes import is_floating
from lstm_lower.errors import NotFiniteError, shown
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, Workspace
from lstm_lower.graph.edit import operands
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.passes.lower import lower
from lstm_lower.records import state as training_state
from lstm_lower.records.state import TrainingState
from lstm_lower.runtime.serialized import as_written
from lstm_lower.runtime.session import Session
from lstm_lower.runtime.training.learner import OnNan

# What happens at a step whose loss is infinite or NaN.


Array = np.ndarray[Any, Any]


def updates(
    loss: float,
    step: int,
    on_nan: OnNan,
    spoilt: Callable[[], str | None],
    trace: Callable[[], object] | None = None,
) -> bool:
    """Whether a step changes the state.

    Args:
        loss: of the step.
        step: its number, for the message.
        on_nan: what is to become of it where the loss is not finite.
        spoilt: names a weight that is not finite before the step; asked where it stops.
        trace: says where the first such number comes from; asked where the step stops.

    Raises:
        NotFiniteError: the loss is not finite, and `on_nan` is `stop`.
    """
    finite = math.isfinite(loss)
    if not finite and on_nan == "stop":
        origin = "" if trace is None else f"; {trace()}"
        if (name := spoilt()) is not None:
            raise NotFiniteError(
                f"step {step}: the loss must be finite, got {loss}{origin}; '{name}' already held such numbers: a step "
                "whose own loss was finite wrote them, of an infinite feed or gradient; begin again from a checkpoint"
            )
        hint = "; trace_nan names the node that made the first such number" if trace is None else ""
        raise NotFiniteError(
            f"step {step}: the loss must be finite, got {loss}{origin}; the state is as before that step. "
            "A smaller learning rate or clip_norm may prevent it; on_nan 'skip' leaves such steps out, 'ignore' "
            f"goes on regardless{hint}"
        )
    return finite or on_nan == "ignore"


def spoilt(state: TrainingState, read: Callable[[Iterable[str]], Mapping[str, Array]]) -> str | None:
    """The first of the weights that steps update which holds what is infinite or no number; `read` reads them."""
    updated = [pair.input for pair in state.pairs if pair.role == "weight" and pair.output is not None]
    held = read(updated).items()
    return next((name for name, array in held if array.dtype.kind == "f" and not np.isfinite(array).all()), None)


Kind = Literal["nan", "infinity"]

FLOAT = ir.DataType.FLOAT


@dataclasses.dataclass(frozen=True)
class NonFinite:
    """The first value that is not finite.

    Attributes:
        kind: what it holds: NaN, or only infinities.
        value: its name: a feed, a value of the state, or what the node makes.
        op_type: the operator of the node; `None` for a feed or the state.
        node: the node's name; `None` for a feed or the state.
        steps: the number of the step, counted from 0, of each loop that the node is in, the outermost first.
    """

    kind: Kind
    value: str
    op_type: str | None = None
    node: str | None = None
    steps: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.op_type is None:
            return shown(f"'{self.value}' holds {self.kind} before the step")
        where = "".join(f" in step {step} of its loop" for step in reversed(self.steps))
        return shown(f"{self.op_type} '{self.node}' makes the first {self.kind}, in '{self.value}'{where}")


def first_nonfinite(step: ir.Model, feeds: Mapping[str, Array]) -> NonFinite | None:
    """Looks for the first node, in the order of computation, whose result is not finite though its operands are.

    Only nodes on whose results the loss depends, or where it is finite another output that is not, count; and only
    through values that are not finite themselves. Where what comes in is infinite, such as the constants of a mask, it
    is the first node that makes NaN of numbers; and if there is none, what came in.

    Args:
        step: a training step. It is not changed.
        feeds: input -> value, state included.

    Returns:
        What was found; `None` where all is finite.

    Raises:
        InvalidInputError: a feed does not fit.
    """
    model = lower(step, optimize=False)
    flags = _Flags(model)
    session = Session(model, "cpu", as_written())
    wanted = [name for name in flags.names if name in session.outputs]
    flags.results = session.run({name: feeds[name] for name in session.inputs if name in feeds}, wanted)
    return _first(flags, model.graph, flags.ends, ())


class _Flags:
    """Flags that are added to a model, and what came of them.

    Attributes:
        ends: the outputs that the model had, the first of them the loss.
        names: the outputs that were added.
        results: their values.
    """

    def __init__(self, model: ir.Model) -> None:
        self._space = Workspace.of(model)
        loss = training_state.of(model).loss
        self.ends = sorted(model.graph.outputs, key=lambda value: value.name != loss)
        self.results: Mapping[str, Array] = {}
        # Value -> outputs of the graph that hold the two numbers.
        self._outputs: dict[ir.Value, tuple[str, str]] = {}
        added = self._add(model.graph)
        for value, pair in added.items():
            names = []
            for flag in pair:
                flag.name = flag.name or self._space.names.fresh("flag")
                model.graph.outputs.append(flag)
                names.append(str(flag.name))
            self._outputs[value] = (names[0], names[1])
        self.names = [name for pair in self._outputs.values() for name in pair]

    def state(self, value: ir.Value, steps: tuple[int, ...]) -> Kind | None:
        """Entries of a value that are not finite, in a step of each loop that it is in; `None` where all is finite."""
        constant = self._space.facts.constant(value) if value not in self._outputs else None
        if constant is not None and constant.dtype.kind == "f" and not np.isfinite(constant).all():
            return "nan" if np.isnan(constant).any() else "infinity"
        if value not in self._outputs:
            return None
        sums, nans = (np.asarray(self.results[name]) for name in self._outputs[value])
        # A value of an outer graph has fewer steps than the node that reads it.
        place = steps[: sums.ndim]
        return None if np.isfinite(sums[place]) else "nan" if nans[place] > 0 else "infinity"

    def count(self, graph: ir.Graph, steps: tuple[int, ...]) -> int:
        """How many steps a loop took whose body this is, in a step of each loop around it."""
        counts = [
            np.asarray(self.results[self._outputs[value][0]])[steps].shape[0]
            for value in _values(graph)
            if value in self._outputs
        ]
        return min(counts, default=0)

    def _add(self, graph: ir.Graph) -> dict[ir.Value, tuple[ir.Value, ir.Value]]:
        """Adds flags to a graph, and those of the bodies in it to the loops' results."""
        flags: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
        values, nodes = list(_values(graph)), list(graph)
        b = Builder(self._space, graph, scope="finite")
        for node in nodes:
            if not std.Repeated.matches(node) or std.SequenceMap.matches(node):
                continue
            (body,) = subgraphs_of(node)
            inner = self._add(body)
            for value, pair in inner.items():
                outer = []
                for flag in pair:
                    body.outputs.append(flag)
                    node.resize_outputs(len(node.outputs) + 1)
                    node.outputs[-1].name = self._space.names.fresh("flag")
                    outer.append(node.outputs[-1])
                flags[value] = (outer[0], outer[1])
            _say_defaults(node, 2 * len(inner))
        for value in values:
            dtype = self._space.facts.dtype(value)
            if not is_floating(dtype):
                continue
            x = b.wrap(value)
            if dtype not in (FLOAT, ir.DataType.DOUBLE):
                x = x.cast(FLOAT)
            flags[value] = (_sum(x * 0.0).value, _sum(b.op(std.IsNaN, x).cast(FLOAT)).value)
        graph.sort()
        return flags


def _sum(x: Expr) -> Expr:
    """Infinity times zero is NaN."""
    return x.builder.op(std.ReduceSum, x, keepdims=0)


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield from (value for value in node.outputs if value.name)


def _say_defaults(node: ir.Node, added: int) -> None:
    """Further sequences that a Scan makes need their place in its lists of directions and axes, where it has any."""
    for name in ("scan_output_directions", "scan_output_axes"):
        attribute = node.attributes.get(name)
        if attribute is not None and std.Scan.matches(node):
            node.attributes[name] = ir.AttrInt64s(name, [*attribute.as_ints(), *[0] * added])


def _first(flags: _Flags, graph: ir.Graph, ends: Sequence[ir.Value], steps: tuple[int, ...]) -> NonFinite | None:
    """The first one in a graph, in a step of each loop that it is in."""
    bad = [value for value in ends if flags.state(value, steps) is not None]
    if not bad:
        return None
    path = _path(flags, bad[:1], steps)
    nodes = [node for node in graph if any(value in path for value in node.outputs)]
    finite = [node for node in nodes if all(flags.state(x, steps) is None for x in operands(node))]
    numbers = [
        node
        for node in nodes
        if any(flags.state(x, steps) == "nan" for x in node.outputs)
        and all(flags.state(x, steps) != "nan" for x in operands(node))
    ]
    node = next((node for node in (*finite, *numbers) if not std.Constant.matches(node)), None)
    if node is None:
        value = next((x for x in graph.inputs if x in path), bad[0])
        return NonFinite(flags.state(value, steps) or "nan", str(value.name))
    if std.Repeated.matches(node) and not std.SequenceMap.matches(node):
        (body,) = subgraphs_of(node)
        inner = [value for inside in body for value in inside.outputs if value.name]
        for step in range(flags.count(body, steps)):
            deeper = _first(flags, body, [x for x in inner if flags.state(x, (*steps, step))], (*steps, step))
            if deeper is not None:
                return deeper
    value = next(x for x in node.outputs if x in path)
    kind = flags.state(value, steps)
    assert kind is not None
    return NonFinite(kind, str(value.name), node.op_type, node.name, steps)


def _path(flags: _Flags, ends: Sequence[ir.Value], steps: tuple[int, ...]) -> set[ir.Value]:
    """Values that are not finite and that lead to the ends through others like them."""
    path: set[ir.Value] = set()
    waiting = list(ends)
    while waiting:
        value = waiting.pop()
        if value in path or flags.state(value, steps) is None:
            continue
        path.add(value)
        node = value.producer()
        if node is not None:
            waiting += operands(node)
    return path
