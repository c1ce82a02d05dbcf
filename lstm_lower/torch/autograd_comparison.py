"""A step beside PyTorch's autograd: loss, outputs, gradients, and what one update makes of the state.

They are compared at the example, and where sizes are open at others. The step runs as it does in a `Session`, but that
onnxruntime folds no constants. Weights that are the same in all elements, and inputs, get other values for it on both
sides: behind a gate of zero no gradient would be seen. Random draws are given equal. PyTorch's optimizer is handed the
step's own gradients, since some optimizers make a whole step of what is noise in a gradient.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from lstm_lower.errors import UnsupportedOpError, first_line, some
from lstm_lower.passes.training.losses import Loss, target_names
from lstm_lower.reachability import reached
from lstm_lower.records import lengths
from lstm_lower.records import state as training_state
from lstm_lower.records.certificate import Certificate, Kind
from lstm_lower.replacement import replaced
from lstm_lower.runtime.kernels import lacking, only_processor
from lstm_lower.runtime.proof import certification
from lstm_lower.runtime.proof.certification import Agreed, Expected, NotComparedError, Results, StepComparison
from lstm_lower.runtime.proof.comparison import distance
from lstm_lower.runtime.proof.step_parts import is_gradient, part_of
from lstm_lower.runtime.proof.step_runs import FailedRunError, StepRun
from lstm_lower.torch import losses, optimizers
from lstm_lower.torch.axes import Axes
from lstm_lower.torch.branches import Bounds
from lstm_lower.torch.export import Traced
from lstm_lower.torch.given_draws import BY_SHAPE, PLAN, PLANS, GivenDraws, given
from lstm_lower.torch.interface import ModuleOperands, Step, checked_loss, named_tensors, numbers
from lstm_lower.torch.own_gradients import computed_once
from lstm_lower.torch.size_comparison import OpenSizes, Sizes
from lstm_lower.torch.targets import Targets
from lstm_lower.torch.trials import RefusedError, undone
from lstm_lower.torch.variation import OtherRounding, Variation

Array = np.ndarray[Any, Any]
# What is left of a gradient when it has been looked at, by its name, and what was left of what it is added to.
_Taken = Callable[[str, Array, Any], Array | Agreed]
# What a step computes; its gradients are let go one by one.
_OfStep = dict[Kind, dict[str, Array]]

_FRAMEWORK = f"PyTorch {torch.__version__}"
# How often results are rounded otherwise at the most.
_MOVES = 24
# Weights whose updates are compared at once: a share of all, and bytes beside it.
_SHARE, _AT_ONCE = 4, 1 << 22
# Namespaces of operators whose gradients are PyTorch's own, or written by us.
_SEEN = {"aten", "prims", "prim", "onnx_symbolic", "higher_order", "quantized_decomposed", "torchvision", "lstm_lower"}


def _added(_: str, x: Array, former: Any) -> Array:
    return x if former is None else x + former


class OtherSizesError(Exception):
    """A step is another one than its module where sizes are others than the example's.

    Attributes:
        axes: input -> axis that must have the example's size, or end -> how they differ.
        ends: axis of a number of steps -> up to how many they do not, and why more do.
    """

    def __init__(self, axes: Axes, ends: Bounds | None = None) -> None:
        super().__init__(f"{axes}")
        self.axes, self.ends = axes, ends


@dataclasses.dataclass(frozen=True)
class _Fault:
    """How a step differs from its module.

    Attributes:
        said: how.
        raised: whether the step fails.
    """

    said: str
    raised: bool = False


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a step is asked of, see `from_torch`; `formula` is ours of the loss, or an output's name."""

    module: nn.Module
    operands: ModuleOperands
    loss: Any
    formula: Loss | str
    targets: Sequence[Tensor]
    optimizer: Any
    what: str


@dataclasses.dataclass(frozen=True)
class TorchStep:
    """A step and what it was made of.

    Attributes:
        step: with its updates.
        traced: the trace that it is of.
        asked: what for.
        trained: the parameters that are to have gradients, by name.
    """

    step: ir.Model
    traced: Traced
    asked: Asked
    trained: Mapping[str, Tensor]


def certified(made: TorchStep, *, known: bool = False) -> Certificate:
    """What a comparison of a step with PyTorch has shown; the step records the least lengths that it takes.

    Args:
        made: the step.
        known: whether another step of the same trace has been compared at other sizes, which are not tried again.

    Raises:
        OtherSizesError: something differs where open sizes are others than the example's.
        UnsupportedOpError: something differs at the example, or onnxruntime does not take the step; it is named.
    """
    sizes = OpenSizes(made.traced)
    try:
        beside = _Beside(made, sizes)
        comparison = beside.compared()
    except NotComparedError as error:
        if axes := sizes.decided("forward decides by it, and cannot be compared here"):
            raise OtherSizesError(axes) from error
        return Certificate(not_compared={"the step": str(error)})
    certification.refuse_differences(type(made.asked.module).__name__, _FRAMEWORK, comparison, **_way(made))
    example = beside.sizes()
    if not known:
        beside.check_other_sizes()
    also = [*beside.also]
    if sizes.example and not also and not known:
        beside.left_out.setdefault("other sizes", "PyTorch takes none of those that were tried")
    # Bounds, which count no steps, stand behind.
    least = itertools.chain(beside.least(), itertools.repeat(1))
    recorded = zip(lengths.parse(made.step.metadata_props), least, strict=False)
    lengths.write(made.step, [dataclasses.replace(each, least=max(each.least, steps)) for each, steps in recorded])
    return certification.certificate(_FRAMEWORK, example, comparison, beside.left_out, also=also)


def _way(made: TorchStep) -> dict[str, str]:
    """What to do about a difference: the module may call operators that others have registered, or change weights."""
    traced = made.traced
    if traced.step.moved_weights:
        return {"way": f"forward changes {some(traced.step.moved_weights)} in place: make a new tensor of it instead"}
    return {"way": way} if (way := gradients_unseen(traced)) else {}


def gradients_unseen(traced: Traced) -> str:
    """What to do about operators that others have registered, whose gradients a trace lacks; `""` without any."""
    graphs = [part.graph for part in traced.program.graph_module.modules() if isinstance(part, torch.fx.GraphModule)]
    called = {node.target for graph in graphs for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    foreign = sorted({op._schema.name for op in called if op.namespace not in _SEEN})
    if not foreign:
        return ""
    return (
        f"a trace does not see the gradients of operators that torch.library registers ({some(foreign)}): call "
        "their torch.autograd.Function, or the formulas in PyTorch, in forward instead"
    )


class _Beside:
    """A step and its module, with the same weights, inputs and draws.

    Attributes:
        left_out: what is not compared -> why.
        also: shapes beside the example's at which they are compared.
    """

    def __init__(self, made: TorchStep, sizes: OpenSizes) -> None:
        self.left_out: dict[str, str] = {}
        self.also: list[dict[str, Sequence[int]]] = []
        self._made, self._asked, self._step, self._sizes = made, made.asked, made.traced.step, sizes
        self._state = training_state.read(made.step)
        self._inputs = [_varied(x) for x in made.asked.operands.tensors]
        self._variation = Variation(made.asked.module, made.step)
        self._draws: GivenDraws | None = None
        # Weights that forward writes into: the step runs when it has.
        self._first = {name: numbers(x).copy() for name, x in self._step.changed.items()}
        # Whether the step has drawn as often as the module.
        self._matched = False
        values = [node.meta.get("val") for node in made.traced.program.graph.nodes]
        self._narrow = any(getattr(value, "dtype", None) in (torch.bfloat16, torch.float16) for value in values)
        self._targets = Targets(made.step, made.asked.formula, self._loss(), made.asked.targets)
        # Whether updates are still to be computed from the step's gradients.
        self._updates_follow = made.asked.what == "train"
        # Whether the module has taken the sizes that were tried last, and whether that shows anything.
        self._taken, self._shows = True, True

    def sizes(self) -> dict[str, Sequence[int]]:
        """The shapes of inputs and targets."""
        return {name: list(x.shape) for name, x in self._examples()}

    def compared(self) -> StepComparison:
        """The comparison at the example.

        Raises:
            UnsupportedOpError: onnxruntime does not take the step, or it fails.
        """
        name, states = type(self._asked.module).__name__, self._step.states()
        updated = {pair.output for pair in self._state.pairs if pair.input not in states}
        model = part_of(self._made.step, [x.name for x in self._made.step.graph.outputs if x.name not in updated])
        self._own = [str(value.name) for value in model.graph.outputs]
        self._told = given(model)
        self._variation.put_into(model)
        self._session = _opened(model, name)
        try:
            with self._variation.of_module():
                self._choose_inputs()
                comparison = self._comparison()
                return comparison.joined(self._updates())
        except FailedRunError as error:
            raise UnsupportedOpError(
                f"{name} requires a step that onnxruntime runs at the example, got {error}"
            ) from error
        except RefusedError as error:
            raise NotComparedError(f"PyTorch fails with {first_line(error.__cause__ or error)}") from error

    def least(self) -> Iterator[int]:
        """Of each length the least number of steps that the module takes, from which on the step does not fail.

        Raises:
            OtherSizesError: it computes something else for fewer steps than are traced.
        """
        for symbol, length in self._sizes.lengths.items():
            least, taken = 1, False
            for size in range(1, length.steps):
                fault = self._fault({**self._sizes.example, symbol: size})
                if fault and not fault.raised:
                    raise OtherSizesError(self._sizes.axes({symbol: fault.said}))
                taken |= self._taken and not fault
                least = least if taken and not fault else size + 1
            yield least

    def check_other_sizes(self) -> None:
        """Compares them where open sizes are others than the example's.

        Open sizes become those for which the module's code decides otherwise, and more than twice as large, or larger
        by a little where the module does not take so much. Sizes that it refuses say nothing. A size of 1 that nobody
        decides by is not tried: what a module squeezes stays in its step.

        Raises:
            OtherSizesError: the step is another one than the module where some axes have other sizes.
        """
        alone: dict[Any, str] = {}
        ends: Bounds = {}
        for size in self._sizes.alone():
            symbol = size.symbol
            fault = None if symbol in alone else self._fault({**self._sizes.example, symbol: size.number})
            # An error at a size that the code sets apart tells whoever feeds it.
            if fault and (size.end is not None or not (fault.raised and size.where)):
                alone[symbol] = size.where + fault.said
                ends |= {} if size.end is None else {self._sizes.lengths[symbol].place: size.end}
        if alone:
            raise OtherSizesError(self._sizes.axes(alone), ends)
        for grown in self._sizes.grown():
            together = self._fault(grown)
            if together is None and self._shows:
                return
            said = {
                symbol: self._sizes.where.get(symbol, "") + fault.said
                for symbol, size in grown.items()
                if (fault := self._fault({**self._sizes.example, symbol: size}) or self._unless_shown(symbol))
            }
            if together is not None or said:
                raise OtherSizesError(self._sizes.axes(said or dict.fromkeys(grown, together.said if together else "")))

    def _unless_shown(self, symbol: Any) -> _Fault | None:
        """How they differ where the module has not taken a size that grew a little."""
        example = self._sizes.example
        return None if self._shows else self._fault({**example, symbol: 2 * example[symbol]})

    def _fault(self, sizes: Sizes) -> _Fault | None:
        """How the step differs from the module at some sizes; nothing where that does not take them, or overflows."""
        kept = self._inputs, self._targets
        whole = () if isinstance(self._asked.formula, Loss) else self._targets.values
        tensors = self._sizes.inputs([*self._inputs, *whole], sizes)
        count = len(self._inputs)
        self._inputs = tensors[:count]
        self._targets = self._targets.resized(tensors[count:])
        self._taken, self._shows, self._updates_follow = True, True, False
        try:
            with self._variation.of_module():
                differences = self._comparison().differences
            self.also += [] if differences or not self._shows else [self.sizes()]
        except FailedRunError as error:
            return _Fault(f"a step that fails where forward does not, with {error}, for {self._said()}", raised=True)
        except Exception as error:  # noqa: BLE001
            self._taken = self._shows = False
            self.left_out |= {"other sizes": str(error)} if isinstance(error, NotComparedError) else {}
            return None
        else:
            told = [f"{each.kind} of '{each.name}' ({each.said})" for each in differences if self._shows]
            return _Fault(f"a step with another {told[0]} for {self._said()}") if told else None
        finally:
            self._inputs, self._targets = kept

    def _said(self) -> str:
        return ", ".join(f"'{name}' of shape {list(x.shape)}" for name, x in self._examples())

    def _comparison(self) -> StepComparison:
        """The comparison with what the module computes; with draws that are all alike only where others say nothing."""
        for plan in PLANS if self._told is not None else (None,):
            self._draws = None if plan is None else GivenDraws(plan)
            comparison = self._with_draws()
            if not comparison.differences or (plan is BY_SHAPE and self._matched and not self._narrow):
                break
        return comparison

    def _with_draws(self) -> StepComparison:
        got, expected = self._both()
        if self._draws is not None:
            if self._draws.unknown:
                raise NotComparedError("forward draws random numbers that no other side can be given")
            self._matched = bool(self._told) and self._drawn == [len(x) for x in self._draws.shapes]
        before = {name: numbers(x) for name, x in self._step.states().items()}
        updates = {
            name: x
            for name, x in expected["update"].items()
            if isinstance(x, np.ndarray) and name in before and (name in got["update"] or distance(x, before[name]) > 0)
        }
        self._gradients = {name: x for name, x in got["gradient"].items() if x is not None}
        without = {name for name, x in expected["gradient"].items() if x is None}
        self._without = without - self._read_by_branches()
        expected = {**expected, "update": updates}
        return certification.compare(got, expected, moved=self._moved, before=before, narrow=self._narrow)

    def _read_by_branches(self) -> set[str]:
        """Parameters that PyTorch's `cond` has gradients of, zeros of those that another branch than runs reads alone.

        Where a size decides, it runs as Python's `if` does.
        """
        program = self._made.traced.program
        paths, read = program.graph_signature.inputs_to_parameters, []
        for cond in program.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond):
            branches = [program.graph_module.get_submodule(x.target).graph for x in cond.args[1:3]]
            given = zip(cond.args[3], *(x.find_nodes(op="placeholder") for x in branches), strict=True)
            if isinstance(getattr(cond.args[0], "meta", {}).get("val"), Tensor):
                read += [x for x, *within in given if any(each.users for each in within)]
        found = [paths[x.name] for x in reached(read, lambda x: x.all_input_nodes) if x.name in paths]
        held = {id(self._step.get_parameter(path)) for path in found}
        return {name for name, x in self._made.trained.items() if id(x) in held}

    def _both(self) -> tuple[Results, Expected]:
        """What the step and the module compute.

        A gradient is let go as soon as it agrees: all would take as much memory as the weights.
        """
        got: _OfStep = {}

        def taken(name: str, x: Array, former: Any) -> Array | Agreed:
            nonlocal got
            if isinstance(former, Agreed):
                # The step's is as good.
                got = got if name in got["gradient"] else self._of_step()
                former = got["gradient"][name]
            if former is not None:
                return _added(name, x, former)
            found = certification.agreed(got["gradient"].get(name), x, narrow=self._narrow)
            if found is not None and not self._updates_follow:
                del got["gradient"][name]
            return found or x

        try:
            counts = [sum(x.numel() for x in tensors) for tensors in (self._asked.operands.tensors, self._inputs)]
            if (self._targets.values or self._targets.example) and counts[0] <= counts[1]:
                # First, where targets are known: what the module keeps for its gradients is not there yet. Where it
                # fails, the module may, too; on few elements, which it may refuse, the step could divide by zero.
                with contextlib.suppress(FailedRunError, NotComparedError):
                    self._targets.fit(dict(self._examples()))
                    got = self._of_step()
            shapes = self._targets.shapes
            with self._run() as (named, loss, wanted):
                got = got if got and shapes == self._targets.shapes else self._of_step()
                expected = self._of_run(named, loss, wanted, taken)
                return got, expected
        except (FailedRunError, NotComparedError):
            raise
        except Exception as error:
            raise RefusedError from error

    # PyTorch's side.

    def _loss(self) -> Callable[..., Any] | None:
        """The loss in PyTorch; `None` where the module returns it."""
        loss = self._asked.loss
        traced: Callable[..., Any] | None = self._step.loss
        if traced is not None or isinstance(self._asked.formula, str):
            return traced
        function = losses.in_torch(loss) or losses.counterpart(loss)
        if function is None:
            raise NotComparedError(f"the loss {type(loss).__name__} is none of PyTorch's")
        return losses.of_first(function)

    def _choose_inputs(self) -> None:
        """Takes the example as it is where a module does not take other numbers."""
        example = list(self._asked.operands.tensors)
        if all(map(operator.is_, self._inputs, example)):
            return
        with contextlib.suppress(Exception), self._run() as (_, loss, _):
            if bool(loss.isfinite().all()):
                return
        self._inputs = example

    def _of_run(
        self, named: Mapping[str, Tensor], loss: Tensor, wanted: Mapping[str, Tensor], taken: _Taken = _added
    ) -> Expected:
        gradients = _gradients(loss, wanted, taken)
        update: dict[str, Array] = {}
        if self._asked.what == "train":
            # Copies, since what a module changes is undone.
            update = {name: numbers(x).copy() for name, x in self._step.states().items() if not x.is_complex()}
        return {
            "loss": {"loss": numbers(loss).reshape(())},
            "output": {name: numbers(x).copy() for name, x in named.items() if x is not loss},
            "gradient": gradients,
            "update": update,
        }

    @contextlib.contextmanager
    def _run(self) -> Iterator[tuple[dict[str, Tensor], Tensor, Mapping[str, Tensor]]]:
        """Outputs and loss of the module, and what gradients are taken of."""
        inputs = [x.detach().clone() for x in self._inputs]
        if self._draws is not None:
            # Each run draws the same.
            self._draws = GivenDraws(self._draws.plan)
        wanted = self._made.trained
        if self._asked.what == "input_gradient":
            wanted = {
                name: x.requires_grad_()
                for name, x in zip(self._asked.operands.names, inputs, strict=True)
                if x.is_floating_point()
            }
        with undone(self._step), _weights_kept(self._step), self._draws or contextlib.nullcontext():
            # A leaf may be changed in place; a parameter of a group of its own may not.
            args, kwargs = self._asked.operands.filled([x.view_as(x) if x.requires_grad else x for x in inputs])
            result = self._asked.module(*args, **kwargs)
            flat = [x for _, x in named_tensors("", result)]
            names = self._step.names.outputs[self._step.loss is not None :]
            named = dict(zip(names, flat, strict=True))
            if self._targets.measure is None:
                loss = named[str(self._asked.formula)]
            else:
                self._targets.fit({**dict(self._examples()), **named}, flat[0])
                loss = checked_loss(self._targets.loss(result, flat[0].shape))
            self._shows &= bool(loss.isfinite().all())
            yield named, loss, wanted

    def _moved(self) -> Iterator[Results]:
        """Results in float64; then from what differs in last places: weights, inputs, and all that is rounded."""
        held = [*self._asked.module.parameters(), *self._asked.module.buffers(), *self._inputs, *self._targets.values]
        found: Results = {}
        with contextlib.suppress(Exception), contextlib.ExitStack() as entered:
            entered.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float64)
            entered.enter_context(_holding({x: x.data.double() for x in held if x.is_floating_point() and x.is_leaf}))
            found = self._of_run(*entered.enter_context(self._run()))  # type: ignore[assignment]
        yield found
        own: list[Tensor] = [x for x in self._asked.module.parameters() if x.is_floating_point()]
        own += [x for x in self._inputs if x.is_floating_point() and bool((x != x.round()).any())]
        for rounding in map(OtherRounding, range(_MOVES)):
            with (
                contextlib.suppress(Exception),
                _holding({x: rounding.moved(x.data) for x in own}),
                rounding,
                self._run() as run,
            ):
                found = self._of_run(*run)  # type: ignore[assignment]
            yield found

    # The step's side.

    def _of_step(self) -> _OfStep:
        feeds = self._first | {name: numbers(x) for name, x in self._examples()}
        if self._draws is not None:
            feeds[PLAN] = np.asarray(self._draws.plan)
        results = self._session.results(feeds)
        self._drawn = [len(results[name]) for name in self._session.outputs[len(self._own) :]]
        gradients = {name.removeprefix("grad/"): x for name, x in results.items() if is_gradient(name)}
        return {
            "loss": {"loss": results[str(self._state.loss)].reshape(())},
            "output": {name: results[name] for name in self._step.names.outputs if name in results},
            "gradient": gradients,
            "update": {pair.input: results[pair.output] for pair in self._state.pairs if pair.output in results},
        }

    def _examples(self) -> list[tuple[str, Tensor]]:
        """Inputs and targets by name."""
        names = [*self._asked.operands.names, *target_names(len(self._targets.values))]
        return list(zip(names, [*self._inputs, *self._targets.values], strict=True))

    # What an update makes of the weights.

    def _updates(self) -> StepComparison:
        """The comparison with what PyTorch's optimizer makes of weights, given the step's gradients."""
        outputs = {
            pair.input: pair.output for pair in self._state.pairs if pair.output and pair.output not in self._own
        }
        if self._asked.what != "train":
            return StepComparison({})
        if not optimizers.is_torch(self._asked.optimizer):
            self.left_out["updates of weights"] = "the optimizer is none of PyTorch's"
            self._updating(outputs.values())
            return StepComparison({})
        exact = {name: x for name, x in self._made.trained.items() if x.dtype not in (torch.float16, torch.bfloat16)}
        if len(exact) < len(self._made.trained):
            self.left_out["updates of weights in half precision"] = "they are rounded otherwise"
        comparison = StepComparison({})
        try:
            for weights in _divided(exact, by_weight=optimizers.is_by_weight(self._asked.optimizer)):
                own = {name: outputs[name] for name in weights if name in outputs}
                comparison = comparison.joined(self._updated(weights, own))
        except NotComparedError as error:
            self.left_out["updates of weights"] = str(error)
            return StepComparison({})
        return comparison

    def _updated(self, weights: Mapping[str, Tensor], outputs: Mapping[str, str]) -> StepComparison:
        """The comparison of some weights, whose gradients are let go."""
        results = self._updating(outputs.values())
        got = {name: results[output] for name, output in outputs.items()}
        expected = self._by_optimizer(weights)
        before = {name: numbers(x) for name, x in weights.items()}
        for name in weights:
            self._gradients.pop(name, None)
        return certification.compare({"update": got}, {"update": expected}, before=before, narrow=self._narrow)

    def _updating(self, outputs: Collection[str]) -> dict[str, Array]:
        """New values of weights by the step."""
        if not outputs:
            return {}
        gradients = {f"grad/{name}": x for name, x in self._gradients.items()}
        part = part_of(self._made.step, outputs, gradients)
        self._variation.put_into(part)
        return _opened(part, type(self._asked.module).__name__).results(gradients)

    def _by_optimizer(self, weights: Mapping[str, Tensor]) -> dict[str, Array]:
        """New values of weights; it may change the gradients.

        Raises:
            NotComparedError: the optimizer fails, or rounds otherwise.
        """
        copies = {name: nn.Parameter(x.detach().clone()) for name, x in weights.items()}
        for name, x in copies.items():
            if name not in self._without:
                # Zeros are a gradient, too, by which weights decay.
                own = torch.from_numpy(self._gradients.get(name, numbers(torch.zeros_like(x))))
                x.grad = (torch.view_as_complex(own) if x.is_complex() else own).to(x)
        try:
            narrow = optimizers.stepped(self._asked.optimizer, {id(x): copies[name] for name, x in weights.items()})
        except Exception as error:
            raise NotComparedError(f"PyTorch's optimizer fails with {first_line(error)}") from error
        if narrow:
            raise NotComparedError("PyTorch's optimizer rounds to halves or bfloat16, the step does not")
        return {name: numbers(x) for name, x in copies.items()}


def _opened(model: ir.Model, name: str) -> StepRun:
    """A step, or a part of it, in onnxruntime.

    Raises:
        NotComparedError: its kernels are those of other devices.
        UnsupportedOpError: onnxruntime does not take it.
    """
    try:
        return StepRun(model)
    except NotComparedError:
        raise
    except Exception as error:
        node, said = lacking(error, model), first_line(error)
        if node is not None and not only_processor():
            raise NotComparedError(f"onnxruntime fails with {said}") from error
        required = f"whose formulas onnxruntime accepts, got: {said}; write them with other PyTorch operations"
        if node is not None:
            required = (
                f"that onnxruntime computes on the processor, got {node}, for which it has no kernel; use "
                "module.float() and examples in float32 (trainer.to_torch copies weights back into a module of any "
                "dtype)"
            )
        raise UnsupportedOpError(f"{name} requires operations {required}") from error


def _divided(weights: Mapping[str, Tensor], *, by_weight: bool) -> Iterator[Mapping[str, Tensor]]:
    """Weights a few at a time, the largest last: what is made of all would take several times their memory."""
    whole = sum(x.nbytes for x in weights.values())
    limit = whole // _SHARE + _AT_ONCE if by_weight else whole + 1
    order = sorted(weights.items(), key=lambda pair: pair[1].nbytes if whole > limit else 0)
    ends = itertools.accumulate(x.nbytes for _, x in order)
    for _, group in itertools.groupby(zip(ends, order, strict=True), lambda each: each[0] // limit):
        yield dict(pair for _, pair in group)


@contextlib.contextmanager
def _holding(others: Mapping[Tensor, Tensor]) -> Iterator[None]:
    """Lets tensors hold other numbers, and no gradients."""
    kept = [(x, x.data, x.grad) for x in others]
    try:
        for x, other in others.items():
            x.grad, x.data = None, other
        yield
    finally:
        for x, values, gradient in kept:
            x.data, x.grad = values, gradient


def _varied(x: Tensor) -> Tensor:
    """Other numbers in place of equal ones, as examples of shapes have."""
    if not x.is_floating_point() or x.numel() < 2 or bool((x != x.flatten()[0]).any()):
        return x
    return torch.rand(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype).to(x.device)


def _gradients(loss: Tensor, wanted: Mapping[str, Tensor], taken: _Taken) -> Mapping[str, Array | Agreed | None]:
    """Gradients of a loss as they are made, those included that functions add up themselves in their backward."""
    found: dict[str, Array | Agreed | None] = dict.fromkeys(wanted)
    if not wanted or not loss.requires_grad:
        return found

    def take(name: str, x: Tensor) -> None:
        assert x.grad is not None
        found[name], x.grad = taken(name, numbers(x.grad), found[name]), None

    with contextlib.ExitStack() as held:
        for name, x in wanted.items():
            held.callback(setattr, x, "grad", x.grad)
            x.grad = None
            hook: Any = x.register_post_accumulate_grad_hook(functools.partial(take, name))  # type: ignore[no-untyped-call]
            held.callback(hook.remove)
        torch.autograd.backward(loss, inputs=list(wanted.values()))
        for name, x in wanted.items():
            if x.grad is not None:
                take(name, x)
    return found


@contextlib.contextmanager
def _weights_kept(step: Step) -> Iterator[None]:
    """Undoes what a module changes of its parameters, and computes nothing twice for the sake of memory."""
    module: Any = torch.utils.checkpoint
    with (
        _holding({x: x.data.clone() for x in step.changed.values()}),
        replaced(module.CheckpointFunction, "apply", staticmethod(computed_once)),
        replaced(module, "_checkpoint_without_reentrant_generator", lambda *_, **__: iter([None])),
    ):
        yield
