"""Whether a written model computes what the module does, at sizes beside the example's: both run, and are compared.

PyTorch says which decisions a module's code takes by sizes (`branches`), but not those of its own functions, nor those
that are taken while a trace becomes ONNX. What follows from them shows where the model runs beside the module.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import sympy
import torch
from torch import Tensor

from lstm_lower.errors import UnsupportedOpError, some
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Workspace
from lstm_lower.graph.copies import copy_model
from lstm_lower.runtime.proof.comparison import Array, errors
from lstm_lower.runtime.serialized import as_written, open_session
from lstm_lower.runtime.values import dtype_of
from lstm_lower.torch.axes import Axes
from lstm_lower.torch.branches import sizes_to_try
from lstm_lower.torch.given_draws import BY_SHAPE, PLAN, PLANS, GivenDraws, given
from lstm_lower.torch.interface import Step, numbers
from lstm_lower.torch.open_lengths import Length
from lstm_lower.torch.trials import RefusedError, Trials
from lstm_lower.torch.variation import Variation

# An error over the largest magnitude that no rounding explains, by the bytes of a number.
_WRONG = {8: 1e-6, 4: 1e-3, 2: 0.1}
# An error over the largest sum of the magnitudes of a result's terms that is rounding, however small the result is.
_ROUNDED = {8: 5e-9, 4: 5e-6, 2: 5e-3}
# Numbers of steps that are fewer than those that are traced.
_FEW = {1, 2, 3}
# Of how many elements inputs may be that are three times as large as the example.
_LARGE = 1 << 20

Sizes = Mapping[Any, int]


@dataclasses.dataclass(frozen=True)
class _Fault:
    """How a model differs from its module.

    Attributes:
        said: how.
        raised: whether the model fails.
    """

    said: str
    raised: bool = False


class Comparison:
    """A module beside its model, at the module's weights, but for those that might hide something."""

    def __init__(
        self,
        step: Step,
        program: torch.export.ExportedProgram,
        names: Sequence[str],
        tensors: Sequence[Tensor],
        model: ir.Model,
        lengths: Sequence[Length] = (),
    ) -> None:
        """Opens the model, unless onnxruntime refuses it (`refused`).

        Args:
            step: the module, and perhaps its loss.
            program: its trace.
            names: of its inputs.
            tensors: the example.
            model: the trace as a model, outputs in the step's order.
            lengths: axes that are open in the model and not in the trace.
        """
        self._step, self._names, self._tensors = step, names, tensors
        values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
        # Of each input the size of each axis: a number, a symbol, or a formula of symbols.
        self._shapes = [
            [getattr(getattr(size, "node", None), "expr", size) for size in values[name].shape]
            for name in program.graph_signature.user_inputs
        ]
        steps = [sympy.Symbol(f"steps_{number}") for number in range(len(lengths))]
        for symbol, length in zip(steps, lengths, strict=True):
            for name, axis in length.places:
                self._shapes[list(names).index(name)][axis] = symbol
        self._example: dict[Any, int] = {
            size: tensor.shape[axis]
            for shape, tensor in zip(self._shapes, tensors, strict=True)
            for axis, size in enumerate(shape)
            if getattr(size, "is_symbol", False)
        }
        self._decided = sizes_to_try(program)
        # Loops may have first and last steps of their own, which few steps have not all.
        self._decided |= {size: _FEW for shape in self._shapes for size in shape if size in steps}
        self._trials = Trials(step, tensors)
        # Of bfloat16 within, of which a result need not tell.
        narrow = any(getattr(value, "dtype", None) == torch.bfloat16 for value in _values(program))
        self._wrong = _WRONG[2] if narrow else 0.0
        self._written = model
        self._outputs = [str(value.name) for value in model.graph.outputs]
        # The same with its draws given to it, if there are any, and whether their shapes are told; which they are.
        self._model, self._told = given(model) or (model, True)
        self._draws: GivenDraws | None = None
        # None where onnxruntime has no kernels, or numpy no numbers, of a dtype.
        self._session: Any = None
        self._options = as_written()
        # A run that fails is a result like others.
        self._options.log_severity_level = 4
        self.refused: Exception | None = None
        self._variation = Variation(step.module, model)
        try:
            session = self._opened(model)
            if self._model is not model:
                session = self._opened(self._model)
        except Exception as error:  # noqa: BLE001
            self.refused = error
        else:
            if all(dtype_of(declared) is not None for declared in (*session.get_inputs(), *session.get_outputs())):
                self._session = session

    def differing_axes(self) -> Axes:
        """Input -> open axis -> how the model differs from the module where that axis has another size.

        Open sizes grow by a little, and threefold, and become those for which the module's code decides otherwise.
        Sizes that the module itself refuses say nothing. A size of 1 that nobody decides by is not tried: what a
        module squeezes stays in its model.

        Raises:
            UnsupportedOpError: they differ at the example's own sizes.
        """
        uncompared = self._axes(
            dict.fromkeys(self._decided, _Fault("forward decides by it, and cannot be compared here"))
        )
        if self._session is None:
            return uncompared
        try:
            fault = self._fault(self._example)
        except RefusedError:
            return uncompared
        if fault is not None:
            changed = self._step.moved_weights
            also = f", where forward changes {some(changed)} in place" if changed else ""
            raise UnsupportedOpError(
                f"{type(self._step.module).__name__} requires a model that computes what forward does, got {fault.said}"
                f"{also}; export its parts one by one to find which to write with other PyTorch operations"
            )
        alone = ((symbol, size) for symbol, sizes in self._decided.items() for size in sizes)
        faults = {
            symbol: found
            for symbol, size in alone
            # An error at a size that the code sets apart tells whoever feeds it.
            if (found := self._alone(symbol, size)) and not found.raised
        }
        if faults:
            return self._axes(faults)
        for grown in self._growths():
            together = {symbol: grown(number, size) for number, (symbol, size) in enumerate(self._example.items())}
            fault = None
            try:
                fault = self._fault(together)
                if fault is None:
                    continue
            except RefusedError:
                pass
            faults = {
                symbol: found
                for symbol, size in together.items()
                if (found := self._alone(symbol, size, 2 * self._example[symbol]))
            }
            if fault is not None and not faults:
                faults = dict.fromkeys(together, fault)
            if faults:
                return self._axes(faults)
        return {}

    def _growths(self) -> Iterator[Callable[[int, int], int]]:
        # Sizes that are equal become unequal.
        yield lambda number, size: size + 1 + number
        if sum(tensor.numel() for tensor in self._tensors) <= _LARGE:
            yield lambda number, size: 3 * size + number

    def _alone(self, symbol: Any, *sizes: int) -> _Fault | None:
        """How they differ where a single size is another one, the first that the module takes."""
        for size in sizes:
            try:
                return self._fault({**self._example, symbol: size})
            except RefusedError:
                continue
        return None

    def _axes(self, faults: Mapping[Any, _Fault]) -> Axes:
        found: Axes = {}
        for name, shape in zip(self._names, self._shapes, strict=True):
            for axis, size in enumerate(shape):
                for symbol in getattr(size, "free_symbols", set()) & faults.keys():
                    found.setdefault(name, {})[axis] = faults[symbol].said
        return found

    def _fault(self, sizes: Sizes) -> _Fault | None:
        """How the model differs from the module at some sizes, whatever random numbers both are given."""
        inputs = [self._of_size(number, sizes) for number in range(len(self._tensors))]
        if self._model is self._written:
            return self._difference(inputs)
        for plan in PLANS:
            self._draws = GivenDraws(plan)
            fault = self._difference(inputs)
            # Draws that are all alike hide what is wrong with their sizes; packed sequences have fewer axes.
            if fault is None or (plan is BY_SHAPE and self._draws.matched and not self._wrong):
                break
        return fault

    def _difference(self, inputs: Sequence[Tensor]) -> _Fault | None:
        shapes = ", ".join(f"'{name}' of shape {list(x.shape)}" for name, x in zip(self._names, inputs, strict=True))
        expected = self._of_module(inputs)
        try:
            got = self._of_model(inputs)
        except Exception as error:  # noqa: BLE001
            said = f"a written model with onnxruntime's error for {shapes}: {str(error).splitlines()[0]}"
            return _Fault(said, raised=True)
        for name, actual in got.items():
            if actual.shape != expected[name].shape:
                wanted = list(expected[name].shape)
                return _Fault(
                    f"a written model with '{name}' of shape {list(actual.shape)}, not {wanted}, for {shapes}"
                )
        if lost := [name for name in self._step.names.states if self._is_lost(name, expected, got)]:
            return _Fault(f"a written model that does not change {some(lost)} as forward does for {shapes}")
        different = [name for name, actual in got.items() if _differ(actual, expected[name], self._wrong)]
        if not different or (self._draws is not None and self._draws.unknown):
            return None
        terms = self._terms(inputs)
        different = [name for name in different if not self._is_rounded(got[name], expected[name], terms[name])]
        if not different:
            return None
        worst = errors(got[different[0]], expected[different[0]])[1]
        same = "" if self._draws is None else ", where both draw the same random numbers"
        return _Fault(f"a written model with an error of {worst:.1e} in '{different[0]}' for {shapes}{same}")

    def _is_lost(self, buffer: str, expected: Mapping[str, Array], got: Mapping[str, Array]) -> bool:
        """Whether the module changes a buffer that the model does not."""
        new = f"new_{buffer}"
        if new in got:
            return False
        before = numbers(operator.attrgetter(buffer)(self._step.module))
        return expected[new].shape != before.shape or not np.array_equal(
            expected[new], before, equal_nan=before.dtype.kind in "fc"
        )

    def _is_rounded(self, actual: Array, expected: Array, terms: Array) -> bool:
        """Whether a result is so much smaller than its terms that their rounding is all that differs."""
        wide = 2 if self._wrong else expected.dtype.itemsize
        return expected.dtype.kind == "f" and errors(actual, expected)[0] <= _ROUNDED[wide] * float(terms.max())

    def _of_size(self, number: int, sizes: Sizes) -> Tensor:
        x = self._tensors[number]
        shape = [_size(size, sizes, x.shape[axis]) for axis, size in enumerate(self._shapes[number])]
        return self._trials.resized(number, shape)

    def _of_module(self, inputs: Sequence[Tensor]) -> dict[str, Array]:
        with self._variation.of_module(), self._draws or contextlib.nullcontext():
            results = self._trials.results(inputs)
        names = self._step.names
        outputs = [*names.outputs, *(f"new_{name}" for name in names.states)]
        return {name: numbers(result) for name, result in zip(outputs, results, strict=True)}

    def _terms(self, inputs: Sequence[Tensor]) -> dict[str, Array]:
        """Result -> sum of the magnitudes of the terms that it is the sum of, as far as the model tells."""
        return self._run(self._opened(self._model, _magnitudes_summed), inputs)

    def _opened(self, model: ir.Model, form: Callable[[ir.Model], ir.Model] = lambda model: model) -> Any:
        with self._variation.of_model(model):
            return open_session(form(model), self._options, [("CPUExecutionProvider", {})])

    def _of_model(self, inputs: Sequence[Tensor]) -> dict[str, Array]:
        return self._run(self._session, inputs)

    def _run(self, session: Any, inputs: Sequence[Tensor]) -> dict[str, Array]:
        known = {value.name for value in session.get_inputs()}
        feeds = {name: numbers(x) for name, x in zip(self._names, inputs, strict=True) if name in known}
        if self._draws is not None:
            feeds[PLAN] = np.asarray(self._draws.plan)
        results = session.run(None, feeds)
        if self._draws is not None:
            axes = [len(shape) for shape in results[len(self._outputs) :]]
            self._draws.matched = self._told and axes == [len(shape) for shape in self._draws.shapes]
        return dict(zip(self._outputs, results, strict=False))


def _values(program: torch.export.ExportedProgram) -> Iterator[Any]:
    graphs = (part.graph for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule))
    return (node.meta.get("val") for graph in graphs for node in graph.nodes)


def _size(size: Any, sizes: Sizes, default: int) -> int:
    value = size.subs(sizes) if hasattr(size, "subs") else size
    return int(value) if getattr(value, "is_Integer", isinstance(value, int)) else default


def _differ(actual: Array, expected: Array, wrong: float) -> bool:
    """Whether results differ by more than rounding, and by more than `wrong` of the largest magnitude."""
    if expected.dtype.kind != "f":
        return not np.array_equal(actual, expected)
    finite = np.isfinite(expected)
    if not np.array_equal(actual[~finite], expected[~finite], equal_nan=True):
        return True
    return errors(actual[finite], expected[finite])[1] > max(wrong, _WRONG[expected.dtype.itemsize])


def _magnitudes_summed(model: ir.Model) -> ir.Model:
    """A copy of a model whose floating outputs are sums of the magnitudes of their terms."""
    copy = copy_model(model)
    emitter = Builder(Workspace.of(copy), copy.graph)
    for place, value in enumerate(copy.graph.outputs):
        if value.dtype is not None and value.dtype.is_floating_point():
            copy.graph.outputs[place] = _magnitude(emitter, value)
    return copy


def _magnitude(emitter: Builder, value: ir.Value | None) -> ir.Value:
    assert value is not None
    node, facts = value.producer(), emitter.facts
    view = facts.view(node)
    if node is not None and view is not None:
        first, *rest = [*node.inputs, None]
        if isinstance(view, std.Mul) and facts.constant(first) is not None:
            first, rest = rest[0], [first]
        if isinstance(view, (std.Add, std.Sub)):
            return emitter.op(std.Add, _magnitude(emitter, first), _magnitude(emitter, rest[0]))
        if isinstance(view, std.Neg):
            return _magnitude(emitter, first)
        if isinstance(view, std.Div) or (isinstance(view, std.Mul) and facts.constant(rest[0]) is not None):
            return emitter.op(type(view), _magnitude(emitter, first), emitter.op(std.Abs, rest[0]))
        if view.linear == (0,):
            return emitter.repeat(node, [_magnitude(emitter, first), *node.inputs[1:]])[0]
    return emitter.op(std.Abs, value)
