"""Functions whose gradient is one of their own: `torch.autograd.Function`.

In a trace the result stands beside its gradient: the nodes of `backward`, from seeds in the place of the result's
gradient to the operands' gradients. Where a gradient is taken they are copied with the one that comes in for the seeds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch
import torch.utils.checkpoint
from torch import Tensor

from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.graph.copies import Copier, copy_model
from lstm_lower.graph.edit import detach, remove_unread
from lstm_lower.graph.edit import operands as reads
from lstm_lower.graph.inference import Inferred, infers
from lstm_lower.graph.standard.view import Operand
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.gradients.registry import Cotangents, Gradients, differentiates, stops, unbroadcast
from lstm_lower.passes.gradients.reverse import between
from lstm_lower.passes.model_pass import Pass
from lstm_lower.replacement import all_replaced, replaced
from lstm_lower.torch.aten.registry import node_operator

_DOMAIN = "lstm_lower.torch.own"
# Derivatives of functions in backward functions.
_ORDERS = 3


class OwnGradient(std.Standard, domain=_DOMAIN):
    """Results with a gradient of their own.

    Operands: as many results and seeds as there are outputs; then the function's operands, and as many gradients.
    Results and gradients have a mark that no gradient flows through them.
    """

    @property
    def groups(self) -> tuple[Sequence[ir.Value], ...]:
        """Results, seeds, operands and their gradients."""
        count, given = len(self.node.outputs), [x for x in self.inputs if x is not None]
        rest = given[2 * count :]
        return given[:count], given[count : 2 * count], rest[: len(rest) // 2], rest[len(rest) // 2 :]


class Underivable(std.Standard, domain=_DOMAIN):
    """Results, and a function's operands, with a gradient of an order that is too high to be written."""


class Seed(std.Standard, domain=_DOMAIN):
    """What stands for the gradient of its operand."""

    data = Operand(0)


stops(Seed)


_OWN_GRADIENT = node_operator(
    "own_gradient(Tensor[] results, Tensor[] seeds, Tensor[] operands, Tensor[] gradients) -> Tensor[]",
    _DOMAIN,
    OwnGradient.__name__,
)
_UNDERIVABLE = node_operator(
    "underivable(Tensor[] results, Tensor[] operands) -> Tensor[]", _DOMAIN, Underivable.__name__
)
_SEED = node_operator("seed(Tensor[] values) -> Tensor[]", _DOMAIN, Seed.__name__)


@infers(OwnGradient, Underivable, Seed)
def _as_operands(op: std.Standard) -> Inferred:
    return [(op.dtype(index), op.shape(index)) for index in range(len(op.node.outputs))]


@differentiates(OwnGradient)
def _own_gradient(op: OwnGradient, b: Builder, dys: Cotangents) -> Gradients:
    results, seeds, operands, gradients = op.groups
    # What is behind the marks that keep gradients from flowing here: through the copy they flow.
    found = [reads(mark)[0] for value in gradients if (mark := value.producer()) is not None]
    cotangents = {seed: dys[index].value for index, seed in enumerate(seeds)}
    copier = Copier(cotangents, captures=True, name=b.names.another)
    assert op.node.graph is not None
    b.place(*copier.nodes(between(op.node.graph, seeds, found)))
    made = [b.wrap(copier.values.get(value) or value) for value in found]
    summed = [unbroadcast(dx, b.wrap(x)) for dx, x in zip(made, operands, strict=True)]
    return [None] * len(results) * 2 + summed


@differentiates(Underivable)
def _underivable(op: Underivable, b: Builder, dys: Cotangents) -> Gradients:  # noqa: ARG001
    raise UnsupportedOpError(
        f"a torch.autograd.Function that is called in backward functions requires derivatives of at most {_ORDERS} "
        "orders, got one more; a backward that is written in operations of tensors has all"
    )


def tied(graph: ir.Graph) -> set[ir.Value]:
    """Values between seeds and the results that the gradients belong to, for which others stand in a gradient."""
    found: set[ir.Value] = set()
    for each in graph:
        if Seed.matches(each) or (not OwnGradient.matches(each) and any(x in found for x in reads(each))):
            found.update(each.outputs)
    return found


class OwnGradientsTakenPass(Pass):
    """Leaves the results of functions with a gradient of their own: all gradients are taken.

    Of seeds that something still reads, as of a step of a loop, nothing comes of it.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Leaves them."""
        nodes = [each for each in all_nodes(model.graph) if each.domain == _DOMAIN]
        for each in nodes:
            for old, new in zip(each.outputs, reads(each), strict=False):
                replace(old, new, self.context.space)
        if nodes:
            detach(*nodes)
            remove_unread(model.graph)
            model.graph.opset_imports.pop(_DOMAIN, None)
        return ir.passes.PassResult(model, modified=bool(nodes))


def results_alone(model: ir.Model) -> ir.Model:
    """A copy of a model without gradients of functions' own; the model itself, if it has none."""
    if not any(each.domain == _DOMAIN for each in all_nodes(model.graph)):
        return model
    copy = copy_model(model)
    OwnGradientsTakenPass()(copy)
    return copy


class _Context(torch.autograd.function.FunctionCtx):
    """What `forward` leaves for `backward`."""

    def __init__(self, name: str, operands: Sequence[Any]) -> None:
        self._name = name
        self.needs_input_grad = tuple(map(_is_real, operands))

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        return getattr(self, "to_save", ())

    def mark_dirty(self, *tensors: Any) -> None:  # noqa: ARG002
        raise UnsupportedOpError(
            f"{self._name} requires a forward that leaves its operands as they are, got one that calls mark_dirty; "
            "make a new tensor in it"
        )


def _is_real(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _real(values: Sequence[Any]) -> dict[int, Tensor]:
    return {place: x for place, x in enumerate(values) if _is_real(x)}


def _leaves_context(cls: type[Any]) -> bool:
    """Whether its `forward` leaves to `setup_context` what `backward` reads."""
    return cls.setup_context is not torch.autograd.Function.setup_context


def _check(cls: type[Any], operands: Sequence[Any]) -> None:
    tensors = [x for x in operands if isinstance(x, Tensor)]
    if any(map(torch._C._functorch.is_batchedtensor, tensors)):
        what, got, way = "to be called outside of vmap", "a call within", "a function of a whole batch needs none"
    elif any(x.is_complex() for x in tensors):
        what, got, way = "operands of real numbers", "complex ones", "torch.view_as_real makes such of them"
    else:
        return
    raise UnsupportedOpError(f"{cls.__name__}, a torch.autograd.Function, requires {what}, got {got}; {way}")


def own_gradients_traced(functions: Functions) -> contextlib.AbstractContextManager[None]:
    """Writes nodes of functions with a gradient of their own."""

    def in_place_of(before: Any) -> Any:
        def apply(cls: type[Any], *operands: Any) -> Any:
            if cls is torch.utils.checkpoint.CheckpointFunction:
                return computed_once(*operands)
            if cls is torch.nn.modules._functions.CrossMapLRN2d:
                raise UnsupportedOpError(
                    "CrossMapLRN2d requires sums over neighbouring channels, got PyTorch's, which keep the first in "
                    "all windows, and gradients that are not theirs; nn.LocalResponseNorm takes the same arguments"
                )
            if cls.__module__.startswith("torch."):
                return before.__get__(None, cls)(*operands)
            return functions.applied(cls, operands)

        return classmethod(apply)

    kind = torch.autograd.Function
    kept = [(each, "forward", functions.forward_of(each)) for each in _of_users(kind)]
    return all_replaced((kind, "apply", in_place_of(vars(kind)["apply"])), *kept)


def computed_once(function: Callable[..., Any], _preserve: bool, *operands: Any) -> Any:
    """What a reentrant checkpoint computes: without gradients where no operand of its own has one, as in PyTorch."""
    differentiable = any(x.requires_grad for x in operands if isinstance(x, Tensor))
    with torch.set_grad_enabled(torch.is_grad_enabled() and differentiable):
        return function(*operands)


def _of_users(kind: type[Any]) -> set[type[Any]]:
    """The kinds of functions that are none of PyTorch's."""
    found = {each for part in kind.__subclasses__() for each in (part, *_of_users(part))}
    return {each for each in found if not each.__module__.startswith("torch.")}


class Functions:
    """The functions of a trace.

    A `backward` may apply the function that it belongs to, of which there is one more for each order of derivatives.
    """

    def __init__(self) -> None:
        self._order, self._enabled = 1, True

    def switch(self, enabled: bool) -> Any:
        """Follows the code as it records gradients, or none."""
        self._enabled = enabled
        return NotImplemented

    def forward_of(self, cls: type[Any]) -> Any:
        """What PyTorch's own `apply`, kept as in `scan = Scan.apply`, calls as `forward`, without gradients."""
        forward, skipped = cls.forward, 0 if _leaves_context(cls) else 1

        def called(*operands: Any) -> Any:
            if torch.is_grad_enabled() or not self._enabled:
                return forward(*operands)
            with torch._C.DisableTorchFunction():
                torch._C._set_grad_enabled(self._enabled)
            return self.applied(cls, operands[skipped:])

        return staticmethod(called)

    def applied(self, cls: type[Any], operands: Sequence[Any]) -> Any:
        """What `cls.apply` is in a trace."""
        _check(cls, operands)
        context = _Context(cls.__name__, operands)
        # Of what stands in `forward` no gradient is taken.
        with replaced(self, "_order", _ORDERS + 1):
            if _leaves_context(cls):
                result = cls.forward(*operands)
                cls.setup_context(context, operands, result)
            else:
                result = cls.forward(context, *operands)
        made = list(result) if isinstance(result, (tuple, list)) else [result]
        real = {place: y.detach() for place, y in _real(made).items()}
        made = [real.get(place, y) for place, y in enumerate(made)]
        if torch.is_grad_enabled():
            outputs = self._with_gradient(cls, context, operands, made)
            for place, y in zip(real, outputs, strict=True):
                made[place] = y
        return tuple(made) if isinstance(result, (tuple, list)) else made[0]

    def _with_gradient(
        self, cls: type[Any], context: _Context, operands: Sequence[Any], results: Sequence[Any]
    ) -> list[Tensor]:
        """The real ones among results, with the function's gradient."""
        real = _real(results)
        if self._order > _ORDERS:
            return _UNDERIVABLE([*real.values()], [x for x in operands if _is_real(x)])
        seeds = {place: _SEED([y])[0] for place, y in real.items()}
        # As in PyTorch a result without a gradient has one of zeros.
        given = [torch.zeros_like(y) if isinstance(y, Tensor) else None for y in results]
        given = [seeds.get(place, dy) for place, dy in enumerate(given)]
        backward = cls.vjp if cls.backward is torch.autograd.Function.backward else cls.backward
        with replaced(self, "_order", self._order + 1):
            # What `once_differentiable` wraps has derivatives here.
            found = getattr(backward, "__wrapped__", backward)(context, *given)
        gradients = found if isinstance(found, (tuple, list)) else (found,)
        if len(gradients) < len(operands):
            raise InvalidInputError(
                f"backward of {cls.__name__} requires a gradient or None for each of {len(operands)} arguments of "
                f"forward, got {len(gradients)}"
            )
        there = zip(operands, gradients, strict=False)
        pairs = [(x, dx) for x, dx in there if _is_real(x) and isinstance(dx, Tensor)]
        return _OWN_GRADIENT(
            [*real.values()], [*seeds.values()], [x for x, _ in pairs], [dx.detach() for _, dx in pairs]
        )
