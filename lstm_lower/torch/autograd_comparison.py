"""A step beside PyTorch's autograd: loss, outputs, gradients, and what one update makes of the state.

They are compared at the example, and where sizes are open at others. The step runs as it does in a `Session`. Weights
that are the same in all elements, and inputs, get other values for it on both sides: behind a gate of zero no gradient
would be seen. Random draws are given equal. PyTorch's optimizer is handed the step's own gradients, since some
optimizers make a whole step of what is noise in a gradient.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from lstm_lower.errors import UnsupportedOpError, some
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.values import declared_shape
from lstm_lower.passes.training.losses import Loss
from lstm_lower.records import least_sizes
from lstm_lower.records import state as training_state
from lstm_lower.records.certificate import Certificate, Kind
from lstm_lower.replacement import replaced
from lstm_lower.runtime.kernels import lacking, only_processor
from lstm_lower.runtime.proof import certification
from lstm_lower.runtime.proof.certification import NotComparedError, Results, StepComparison
from lstm_lower.runtime.serialized import default_options, open_session
from lstm_lower.runtime.values import dtype_of
from lstm_lower.torch import losses, optimizers
from lstm_lower.torch.axes import Axes
from lstm_lower.torch.export import Traced
from lstm_lower.torch.given_draws import BY_SHAPE, PLAN, PLANS, GivenDraws, given
from lstm_lower.torch.interface import ModuleOperands, checked_loss, copied_weights, named_tensors, numbers
from lstm_lower.torch.pytorch_errors import first_line
from lstm_lower.torch.size_comparison import OpenSizes, Sizes
from lstm_lower.torch.trials import Trials, undone
from lstm_lower.torch.variation import Variation

Array = np.ndarray[Any, Any]

_FRAMEWORK = f"PyTorch {torch.__version__}"
# How often weights are moved in their last places, and by how many of these.
_MOVES, _PLACES = 3, 4
# Targets that nobody gave an example of lie between these: what probabilities, counts and plain numbers may be.
_LOWEST, _HIGHEST = 0.25, 0.75
# Namespaces of operators whose gradients are PyTorch's own, or written by us.
_OF_PYTORCH = {"aten", "prims", "prim", "onnx_symbolic", "higher_order", "quantized_decomposed", "torchvision"}


class OtherSizesError(Exception):
    """A step is another one than its module where sizes are others than the example's.

    Attributes:
        axes: input -> axis that must have the example's size -> how they differ.
    """

    def __init__(self, axes: Axes) -> None:
        super().__init__(f"{axes}")
        self.axes = axes


class _FailedRunError(Exception):
    """The step fails; the message is onnxruntime's."""


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
class TorchStep:
    """A step and what it was made of.

    Attributes:
        step: with its updates.
        traced: the trace that it is of.
        operands: the example inputs.
        loss: as `from_torch` takes it.
        formula: our formula of it, or an output's name.
        targets: the example targets.
        trained: names of the parameters that are to have gradients.
        names: identity of each parameter -> its name.
        what: see `from_torch`.
        optimizer: see there.
    """

    step: ir.Model
    traced: Traced
    operands: ModuleOperands
    loss: Any
    formula: Loss | str
    targets: Sequence[Tensor]
    trained: Collection[str]
    names: Mapping[int, str]
    what: str
    optimizer: Any

    @property
    def module(self) -> nn.Module:
        """The module."""
        return self.traced.step.module


def certified(made: TorchStep) -> Certificate:
    """What a comparison of a step with PyTorch has shown; the step records the least sizes that it takes.

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
    certification.refuse_differences(type(made.module).__name__, _FRAMEWORK, comparison, **_way(made))
    example = beside.sizes()
    if axes := beside.differing_axes():
        raise OtherSizesError(axes)
    least_sizes.write(made.step, beside.least())
    return certification.certificate(_FRAMEWORK, example, comparison, beside.left_out, also=beside.also)


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
    foreign = sorted({op._schema.name for op in called if op.namespace not in _OF_PYTORCH})
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
        self._made, self._step, self._sizes = made, made.traced.step, sizes
        self._state = training_state.read(made.step)
        self._inputs = [_varied(x) for x in made.operands.tensors]
        self._variation = Variation(made.module, made.step)
        # What the step's state is fed with.
        self._first: dict[str, Array] = {}
        self._draws: GivenDraws | None = None
        # Whether the step has drawn as often as the module.
        self._matched = False
        # Parameters by the names that the step has for them.
        named = {made.names.get(id(x), ""): x for x in made.module.parameters()}
        self._parameters: dict[str, Tensor] = {name: x for name, x in named.items() if name in made.trained}
        values = [node.meta.get("val") for node in made.traced.program.graph.nodes]
        self._narrow = any(getattr(value, "dtype", None) in (torch.bfloat16, torch.float16) for value in values)
        self._targets: Sequence[Tensor] = made.targets
        # Targets of the example, where others are to be like them.
        self._before: Sequence[Tensor] = ()
        # Whether the module has taken the sizes that were tried last, and their shapes.
        self._taken, self._shapes = True, self.sizes()
        self._measure = self._loss()

    def sizes(self) -> dict[str, Sequence[int]]:
        """The shapes of inputs and targets."""
        return {name: list(x.shape) for name, x in self._examples()}

    def compared(self) -> StepComparison:
        """The comparison at the example.

        Raises:
            UnsupportedOpError: onnxruntime does not take the step, or it fails.
        """
        model, self._told = given(self._made.step) or (self._made.step, True)
        self._drawing = model is not self._made.step
        self._session = self._opened(model)
        self._buffers = self._of_fixed_shapes()
        try:
            return self._comparison(self._of_module_or_example)
        except _FailedRunError as error:
            raise UnsupportedOpError(
                f"{type(self._made.module).__name__} requires a step that onnxruntime runs at the example, got {error}"
            ) from error

    def least(self) -> dict[str, dict[int, int]]:
        """Input -> axis over which a loop goes -> the least number of steps from which on the step does not fail.

        Raises:
            OtherSizesError: it computes something else for fewer steps than are traced.
        """
        found: dict[str, dict[int, int]] = {}
        for symbol, traced in self._sizes.traced.items():
            failed = [size for size in range(1, traced) if self._fails(symbol, size)]
            for name, sizes in self._sizes.of(symbol, failed[-1] + 1).items() if failed else ():
                found.setdefault(name, {}).update(sizes)
        return {name: sizes for name, sizes in found.items() if sizes}

    def _fails(self, symbol: Any, size: int) -> bool:
        fault = self._fault({**self._sizes.example, symbol: size})
        if fault and not fault.raised:
            raise OtherSizesError(self._sizes.axes({symbol: fault.said}))
        return fault is not None

    def differing_axes(self) -> Axes:
        """Input -> open axis -> how the step differs from the module where that axis has another size.

        Open sizes become those for which the module's code decides otherwise, and more than twice as large, or larger
        by a little where the module does not take so much. Sizes that it refuses say nothing. A size of 1 that nobody
        decides by is not tried: what a module squeezes stays in its step.
        """
        # An error at a size that the code sets apart tells whoever feeds it.
        alone = {
            symbol: fault.said
            for symbol, sizes in self._sizes.alone()
            if (fault := self._fault(sizes)) and not fault.raised
        }
        if alone:
            return self._sizes.axes(alone)
        for grown in self._sizes.grown():
            together = self._fault(grown)
            if together is None and self._taken:
                self.also.append(self._shapes)
                return {}
            example = self._sizes.example
            said = {
                symbol: fault.said
                for symbol, size in grown.items()
                if (fault := self._fault({**example, symbol: size}) or self._unless_taken(symbol))
            }
            if together is not None and not said:
                said = dict.fromkeys(grown, together.said)
            if said:
                return self._sizes.axes(said)
        return {}

    def _unless_taken(self, symbol: Any) -> _Fault | None:
        """How they differ where the module has not taken a size that grew a little."""
        example = self._sizes.example
        return None if self._taken else self._fault({**example, symbol: 2 * example[symbol]})

    def _fault(self, sizes: Sizes) -> _Fault | None:
        """How the step differs from the module at some sizes; nothing where the module does not take them."""
        kept = self._inputs, self._targets
        whole = self._targets if self._step.loss is not None else ()
        tensors = self._sizes.inputs(Trials(self._step, [*self._inputs, *whole]), sizes)
        count = len(self._inputs)
        self._inputs = tensors[:count]
        self._targets, self._before = (tensors[count:], ()) if whole else ((), self._targets)
        self._taken = True
        try:
            comparison = self._comparison(self._of_module)
            self._shapes = self.sizes()
        except _FailedRunError as error:
            return _Fault(f"a step with {error} for {self._said()}", raised=True)
        except Exception:  # noqa: BLE001
            self._taken = False
            return None
        else:
            told = [f"{each.kind} of '{each.name}' ({each.said})" for each in comparison.differences]
            return _Fault(f"a step with another {told[0]} for {self._said()}") if told else None
        finally:
            self._inputs, self._targets = kept

    def _said(self) -> str:
        return ", ".join(f"'{name}' of shape {list(x.shape)}" for name, x in self._examples())

    def _comparison(self, run: Callable[[], dict[Kind, dict[str, Array | None]]]) -> StepComparison:
        """The comparison with what the module computes; with draws that are all alike only where others say nothing."""
        with self._variation.of_module():
            for plan in PLANS if self._drawing else (None,):
                self._draws = None if plan is None else GivenDraws(plan)
                comparison = self._with_draws(run)
                if not comparison.differences or (plan is BY_SHAPE and self._matched and not self._narrow):
                    break
            return comparison

    def _with_draws(self, run: Callable[[], dict[Kind, dict[str, Array | None]]]) -> StepComparison:
        expected = run()
        if self._draws is not None and self._draws.unknown:
            raise NotComparedError("forward draws random numbers that no other side can be given")
        got = self._of_step()
        before = {name: numbers(_real(x)) for name, x in (*self._step.states().items(), *self._parameters.items())}
        updates = {
            name: x
            for name, x in expected["update"].items()
            if x is not None and name in before and (name in got["update"] or not _same(x, before[name]))
        }
        compare = functools.partial(certification.compare, got, moved=self._moved, before=before, narrow=self._narrow)
        comparison = compare({**expected, "update": updates})
        without = {name for name, x in expected["gradient"].items() if x is None}
        # Autograd's gradients are let go first: they take as much memory as what is made of the step's.
        expected.clear()
        return comparison.joined(compare({"update": self._updates(got, without)}))

    # PyTorch's side.

    def _loss(self) -> Callable[..., Any] | None:
        """The loss in PyTorch; `None` where the module returns it."""
        formula = self._made.formula
        if isinstance(formula, str) and self._step.loss is None:
            return None
        if self._step.loss is not None:
            traced: Callable[..., Any] = self._step.loss
            return traced
        assert isinstance(formula, Loss)
        function = losses.in_torch(self._made.loss) or losses.counterpart(formula)
        if function is None:
            raise NotComparedError(f"the loss {type(formula).__name__} is none of PyTorch's")
        return functools.partial(_of_first, function)

    def _of_module_or_example(self) -> dict[Kind, dict[str, Array | None]]:
        """With the example as it is where a module does not take other numbers."""
        with contextlib.suppress(Exception):
            found = self._of_module()
            loss = found["loss"]["loss"]
            if loss is not None and np.isfinite(loss).all():
                return found
        self._inputs = list(self._made.operands.tensors)
        try:
            return self._of_module()
        except Exception as error:
            raise NotComparedError(f"PyTorch fails with {first_line(error)}") from error

    def _of_module(self) -> dict[Kind, dict[str, Array | None]]:
        with self._run() as (named, loss, wanted):
            gradients = _gradients(loss, wanted)
            update: dict[str, Array | None] = {}
            if self._made.what == "train":
                # Copies, since what a module changes is undone.
                update = {name: numbers(x).copy() for name, x in self._step.states().items() if not x.is_complex()}
            outputs: dict[str, Array | None] = {name: numbers(x).copy() for name, x in named.items() if x is not loss}
        return {
            "loss": {"loss": numbers(loss).reshape(())},
            "output": outputs,
            "gradient": {name: None if x is None else numbers(_real(x)) for name, x in gradients.items()},
            "update": update,
        }

    @contextlib.contextmanager
    def _run(self) -> Iterator[tuple[dict[str, Tensor], Tensor, Mapping[str, Tensor]]]:
        """Outputs and loss of the module, and what gradients are taken of."""
        inputs = [x.detach().clone() for x in self._inputs]
        if self._draws is not None:
            # Each run draws the same.
            self._draws = GivenDraws(self._draws.plan)
        wanted: dict[str, Tensor] = self._parameters if self._made.what in ("train", "gradients") else {}
        if self._made.what == "input_gradient":
            wanted = {
                name: x.requires_grad_()
                for name, x in zip(self._made.operands.names, inputs, strict=True)
                if x.is_floating_point()
            }
        with undone(self._step), _weights_kept(self._step), self._draws or contextlib.nullcontext():
            copied_weights(self._step, parameters=False)
            # A leaf may be changed in place; a parameter of a group of its own may not.
            args, kwargs = self._made.operands.filled([x.view_as(x) if x.requires_grad else x for x in inputs])
            result = self._made.module(*args, **kwargs)
            flat = [x for _, x in named_tensors("", result)]
            names = self._step.names.outputs[self._step.loss is not None :]
            named = dict(zip(names, flat, strict=True))
            if self._measure is None:
                loss = named[str(self._made.formula)]
            else:
                self._targets = self._targets or self._fitting_targets(flat)
                loss = checked_loss(self._measure(result, *(x.clone() for x in self._targets)))
            yield named, loss, wanted

    def _moved(self) -> Sequence[Results]:
        """Results from weights and inputs that differ in their last places; what is whole stays so."""
        found: list[Results] = []
        generator = torch.Generator().manual_seed(0)
        own: list[Tensor] = [x for x in self._made.module.parameters() if x.is_floating_point()]
        self._inputs = [x.clone() for x in self._inputs]
        own += [x for x in self._inputs if x.is_floating_point() and bool((x != x.round()).any())]
        kept = [x.detach().clone() for x in own]
        for _ in range(_MOVES):
            try:
                for x in own:
                    share = 2 * torch.rand(x.shape, generator=generator).to(x.device) - 1
                    x.data.mul_(
                        1 + share.to(torch.promote_types(x.dtype, torch.float32)) * _PLACES * torch.finfo(x.dtype).eps
                    )
                with contextlib.suppress(Exception):
                    found.append(self._of_module())
            finally:
                for x, values in zip(own, kept, strict=True):
                    x.data.copy_(values)
        return found

    # The step's side.

    def _opened(self, model: ir.Model) -> Any:
        copy = copy_model(model)
        self._variation.put_into(copy)
        self._first = _taken_out(copy)
        options = default_options()
        # A run that fails is a result like others.
        options.log_severity_level = 4
        # Threads that wait for so few runs would take a processor.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            # It is legalized already, all that a Session does beside this.
            session = open_session(copy, options, [("CPUExecutionProvider", {})])
        except Exception as error:
            raise self._refused(error, model) from error
        if any(dtype_of(declared) is None for declared in (*session.get_inputs(), *session.get_outputs())):
            raise NotComparedError("it takes or returns numbers of a dtype that numpy has not")
        return session

    def _refused(self, refused: Exception, model: ir.Model) -> Exception:
        """The error for a step that onnxruntime does not take; kernels may be those of other devices."""
        node, name = lacking(refused, model), type(self._made.module).__name__
        if node is not None and not only_processor():
            return NotComparedError(f"onnxruntime fails with {first_line(refused)}")
        if node is None:
            return UnsupportedOpError(
                f"{name} requires operations whose formulas onnxruntime accepts, got: "
                f"{first_line(refused)}; write them with other PyTorch operations"
            )
        return UnsupportedOpError(
            f"{name} requires operations that onnxruntime computes on the processor, got {node}, for which it has no "
            "kernel; use module.float() and examples in float32 (trainer.to_torch copies weights back into a module of "
            "any dtype)"
        )

    def _of_step(self) -> Results:
        session = self._session
        known = {value.name for value in session.get_inputs()}
        feeds = self._first | {name: numbers(x) for name, x in self._examples() if name in known}
        if self._draws is not None:
            feeds[PLAN] = np.asarray(self._draws.plan)
        pairs = self._state.pairs
        wanted = [value.name for value in session.get_outputs()]
        try:
            results = self._run_bound(feeds)
        except Exception as error:
            raise _FailedRunError(f"onnxruntime's error {first_line(error)}") from error
        if self._draws is not None:
            shapes = [results[name] for name in wanted[len(self._made.step.graph.outputs) :]]
            self._matched = self._told and [len(x) for x in shapes] == [len(x) for x in self._draws.shapes]
        gradients = {name.removeprefix("grad/"): x for name, x in results.items() if name.startswith("grad/")}
        return {
            "loss": {"loss": results[str(self._state.loss)].reshape(())},
            "output": results,
            "gradient": gradients,
            "update": {pair.input: results[pair.output] for pair in pairs if pair.output is not None},
        }

    def _of_fixed_shapes(self) -> dict[str, Array]:
        """Arrays for gradients and new states."""
        new = {pair.output for pair in self._state.pairs}
        return {
            declared.name: np.empty(declared.shape, dtype_of(declared))
            for declared in self._session.get_outputs()
            if (declared.name in new or declared.name.startswith("grad/"))
            and all(isinstance(size, int) for size in declared.shape)
        }

    def _run_bound(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The step's results; gradients and new states lie in arrays of ours, which each run fills anew.

        onnxruntime would return copies.
        """
        binding = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(array))
        for declared in self._session.get_outputs():
            held = self._buffers.get(declared.name)
            if held is None:
                binding.bind_output(declared.name)
            else:
                binding.bind_output(declared.name, "cpu", 0, held.dtype, held.shape, held.ctypes.data)
        self._session.run_with_iobinding(binding)
        outputs = zip(self._session.get_outputs(), binding.get_outputs(), strict=True)
        return {
            declared.name: self._buffers[declared.name] if declared.name in self._buffers else x.numpy()
            for declared, x in outputs
        }

    def _examples(self) -> list[tuple[str, Tensor]]:
        """Inputs and targets by name."""
        names = ["target"] if len(self._targets) == 1 else [f"target_{number}" for number in range(len(self._targets))]
        return [*zip(self._made.operands.names, self._inputs, strict=True), *zip(names, self._targets, strict=True)]

    def _fitting_targets(self, results: Sequence[Tensor]) -> Sequence[Tensor]:
        """Targets of the shapes that the step declares, like examples or else with numbers that its loss takes."""
        inputs = {str(value.name): value for value in self._made.step.graph.inputs}
        outputs = {str(value.name): value for value in self._made.step.graph.outputs}
        shapes = [(inputs.get(name), x) for name, x in zip(self._made.operands.names, self._inputs, strict=True)]
        shapes += [(outputs.get(name), x) for name, x in zip(self._step.names.outputs, results, strict=False)]
        sizes = {
            dim: size
            for value, x in shapes
            for dim, size in zip((value and declared_shape(value)) or (), x.shape, strict=False)
        }
        fitting: list[Tensor] = []
        for number in itertools.count():
            value = inputs.get(f"target_{number}") or (inputs.get("target") if number == 0 else None)
            if value is None:
                return fitting
            shape = [dim if isinstance(dim, int) else sizes.get(dim) for dim in declared_shape(value) or ()]
            if any(size is None for size in shape) or value.dtype is None:
                raise NotComparedError(f"example_targets are required, whose shapes '{value.name}' does not tell")
            known = [size for size in shape if size is not None]
            if self._before:
                fitting.append(Trials(self._step, self._before).resized(number, known))
            else:
                fitting.append(_target(value.dtype, known, results[0]))
        raise AssertionError

    def _updates(self, got: Results, without: Collection[str]) -> dict[str, Array]:
        """What PyTorch's optimizer makes of the weights, given the step's gradients, which it may change.

        Args:
            got: the step's results.
            without: names of weights for which autograd has no gradient.
        """
        if self._made.what != "train":
            return {}
        if not optimizers.is_torch(self._made.optimizer):
            self.left_out["updates of weights"] = "the optimizer is none of PyTorch's"
            return {}
        exact = {name: x for name, x in self._parameters.items() if x.dtype in (torch.float32, torch.float64)}
        if len(exact) < len(self._parameters):
            self.left_out["updates of weights in half precision"] = "they are rounded otherwise"
        taken = {name: None if name in without else _like(got["gradient"].get(name), x) for name, x in exact.items()}
        copies = {name: nn.Parameter(x.detach().clone()) for name, x in self._parameters.items()}
        for name, x in taken.items():
            copies[name].grad = x
        try:
            narrow = optimizers.stepped(
                self._made.optimizer, {id(x): copies[name] for name, x in self._parameters.items()}
            )
        except Exception as error:  # noqa: BLE001
            self.left_out["updates of weights"] = f"PyTorch's optimizer fails with {first_line(error)}"
            return {}
        if narrow:
            self.left_out["updates of weights"] = "PyTorch's optimizer rounds to halves or bfloat16, the step does not"
            return {}
        return {name: numbers(copies[name]) for name in exact}


def _of_first(loss: Callable[..., Any], result: Any, *targets: Tensor) -> Any:
    return loss(named_tensors("", result)[0][1], *targets)


def _taken_out(model: ir.Model) -> dict[str, Array]:
    """First values of inputs, which become required: onnxruntime would hold copies of initializers."""
    first = {
        str(value.name): value.const_value.numpy()
        for value in model.graph.inputs
        if value.const_value is not None and value.const_value.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)
    }
    for name in first:
        model.graph.initializers.pop(name).const_value = None
    return first


def _varied(x: Tensor) -> Tensor:
    """Other numbers in place of equal ones, as examples of shapes have."""
    if not x.is_floating_point() or x.numel() < 2 or bool((x != x.flatten()[0]).any()):
        return x
    return torch.rand(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype).to(x.device)


def _target(dtype: ir.DataType, shape: Sequence[int], prediction: Tensor) -> Tensor:
    if dtype.is_floating_point():
        shares = torch.rand(list(shape), generator=torch.Generator().manual_seed(1))
        return (_LOWEST + (_HIGHEST - _LOWEST) * shares).to(torch.from_numpy(np.zeros(0, dtype.numpy())).dtype)
    classes = prediction.shape[1] if prediction.dim() > 1 else prediction.numel()
    count = int(np.prod(shape))
    return (torch.arange(count) % max(classes, 1)).reshape(list(shape)).to(torch.int64)


def _same(a: Array, b: Array) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def _like(array: Array | None, x: Tensor) -> Tensor:
    return torch.zeros_like(x) if array is None else torch.from_numpy(array).to(x)


def _real(x: Tensor) -> Tensor:
    """Complex numbers as pairs."""
    return torch.view_as_real(x.detach().resolve_conj()) if x.is_complex() else x


def _gradients(loss: Tensor, wanted: Mapping[str, Tensor]) -> dict[str, Tensor | None]:
    """Gradients of a loss, those included that functions add up themselves in their backward."""
    if not wanted or not loss.requires_grad:
        return dict.fromkeys(wanted)
    before = {name: x.grad for name, x in wanted.items()}
    try:
        for x in wanted.values():
            x.grad = None
        found: Sequence[Tensor | None] = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
        added = [x.grad for x in wanted.values()]
    finally:
        for name, x in wanted.items():
            x.grad = before[name]
    both = zip(wanted, found, added, strict=True)
    return {name: dx if more is None else more if dx is None else dx + more for name, dx, more in both}


@contextlib.contextmanager
def _weights_kept(step: nn.Module) -> Iterator[None]:
    """Undoes what a module changes of its parameters, and computes nothing twice for the sake of memory."""
    kept = [(x, x.detach().clone()) for x in step.parameters() if not x.requires_grad]
    plain = staticmethod(lambda function, _preserve, *operands: function(*operands))
    module: Any = torch.utils.checkpoint
    try:
        with (
            replaced(module.CheckpointFunction, "apply", plain),
            replaced(module, "_checkpoint_without_reentrant_generator", lambda *_, **__: iter([None])),
        ):
            yield
    finally:
        for x, values in kept:
            x.data.copy_(values)
