"""Derivatives that a module takes of its own values: `torch.autograd.grad`, and the transforms of `torch.func`.

PyTorch cannot trace its own backward pass. Here a derivative is a node in a trace, of which a pass makes the gradient
that any other part of a model has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.differentiate import differentiable
from lstm_lower.passes.driver import run_passes
from lstm_lower.passes.gradient_preparation import preparing_passes
from lstm_lower.passes.gradients.activity import Activity
from lstm_lower.passes.gradients.reverse import ReverseMode
from lstm_lower.passes.model_pass import Pass
from lstm_lower.replacement import all_replaced
from lstm_lower.torch.aten.registry import node_operator

Function = Callable[..., Any]
# The domain of two nodes. Gradient: results, as many seeds, and operands -> the operands' gradients. Primal: a value
# that is an operand by itself, whatever else it is read by.
_DOMAIN = "lstm_lower.torch.derivatives"
# A derivative is written for each row of a Jacobian.
_ROWS = 256


_GRADIENT = node_operator(
    "gradient(Tensor[] results, Tensor[] seeds, Tensor[] operands) -> Tensor[]", _DOMAIN, "Gradient", like=2
)
_PRIMAL = node_operator("primal(Tensor[] values) -> Tensor[]", _DOMAIN, "Primal")


def _refused(what: str, way: str) -> UnsupportedOpError:
    return UnsupportedOpError(f"a derivative inside forward or loss requires {what}; {way}")


def _checked(values: Sequence[Any]) -> list[Tensor]:
    for x in values:
        if torch._C._functorch.is_batchedtensor(x):
            raise _refused(
                "to be outside of vmap, got one within",
                "the gradient of a sum over samples holds that of each of them, where samples do not mix",
            )
        if not isinstance(x, Tensor) or not x.is_floating_point():
            got = f"{x.dtype}" if isinstance(x, Tensor) else type(x).__name__
            raise _refused(f"tensors of real numbers, got {got}", "torch.view_as_real makes such of complex ones")
    return list(values)


def _gradients(outputs: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any]) -> list[Tensor]:
    """The gradients of the sum of outputs, each times its seed."""
    results, operands = _checked(outputs), _checked(inputs)
    ones = [torch.ones_like(y) if seed is None else seed for y, seed in zip(results, seeds, strict=True)]
    return _GRADIENT(results, _checked(ones), operands)


def _apart(value: Any) -> Any:
    """The same values as a place of their own, with respect to which derivatives are."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    return _PRIMAL(_checked([value]))[0]


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,  # noqa: ARG001
    create_graph: bool = False,
    only_inputs: bool = True,  # noqa: ARG001
    allow_unused: bool | None = None,  # noqa: ARG001
    is_grads_batched: bool = False,
    materialize_grads: bool = False,  # noqa: ARG001
) -> tuple[Any, ...]:
    """`torch.autograd.grad`; zeros where nothing flows."""
    if is_grads_batched:
        raise _refused("is_grads_batched=False, got True", "a call for each of grad_outputs does the same")
    results = _tuple(outputs)
    seeds = (None,) * len(results) if grad_outputs is None else _tuple(grad_outputs)
    found = _gradients(results, _tuple(inputs), seeds)
    return tuple(found) if create_graph else tuple(x.detach() for x in found)


def _chosen(values: tuple[Any, ...], argnums: Any) -> Any:
    if argnums is None:
        return values
    return values[argnums] if isinstance(argnums, int) else tuple(values[place] for place in argnums)


def _moved_apart(values: tuple[Any, ...], argnums: Any) -> tuple[Any, ...]:
    places = range(len(values)) if argnums is None else [place % len(values) for place in _tuple(argnums)]
    return tuple(tree_map(_apart, x) if place in places else x for place, x in enumerate(values))


def _vjp(func: Function, *primals: Any, argnums: Any = None, has_aux: bool = False) -> Any:
    given = _moved_apart(primals, argnums)
    result, *aux = func(*given) if has_aux else (func(*given),)
    leaves, spec = tree_flatten(_chosen(given, argnums))

    def pulled(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:  # noqa: ARG001
        return tree_unflatten(_gradients(tree_leaves(result), leaves, tree_leaves(cotangents)), spec)

    return (result, pulled, *aux)


def _jvp(
    func: Function,
    primals: Any,
    tangents: Any,
    argnums: Any,
    *,
    strict: bool = False,  # noqa: ARG001
    has_aux: bool = False,
) -> Any:
    """The derivative along tangents is that of the gradient, which is linear in its seed, along them."""
    result, pulled, *aux = _vjp(func, *primals, argnums=argnums, has_aux=has_aux)
    leaves, spec = tree_flatten(result)
    seeds = [_apart(torch.zeros_like(y)) for y in leaves]
    rows = tree_leaves(pulled(tree_unflatten(seeds, spec)))
    return (result, tree_unflatten(_gradients(rows, seeds, tree_leaves(tangents)), spec), *aux)


def _grad_and_value(func: Function, argnums: Any, has_aux: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def called(*given: Any) -> Any:
        return func(*given, **kwargs)

    value, pulled, *aux = _vjp(called, *args, argnums=argnums, has_aux=has_aux)
    return pulled(None), ((value, *aux) if has_aux else value)


def _for_each(func: Function, *_: Any, **__: Any) -> Function:
    """What is called for each row of a basis, whose number becomes that of the example."""

    def called(*args: Any) -> Any:
        leaves, spec = tree_flatten(args)
        rows = int(leaves[0].shape[0])
        if rows > _ROWS:
            raise _refused(
                f"a Jacobian of at most {_ROWS} rows, got {rows}", "torch.func.vjp and jvp are products with it"
            )
        made = [tree_flatten(func(*tree_unflatten([x.select(0, row) for x in leaves], spec))) for row in range(rows)]
        stacked = map(torch.stack, zip(*(parts for parts, _ in made), strict=True))
        return tree_unflatten([*stacked], made[0][1])

    return called


def _backward(*_: Any, **__: Any) -> None:
    raise _refused("torch.autograd.grad, got a call of backward", "grad(loss, inputs, create_graph=True) is the same")


def derivatives_written() -> contextlib.AbstractContextManager[None]:
    """Makes nodes of derivatives that a module takes while it is traced."""
    transforms: Any = torch._functorch.eager_transforms
    return all_replaced(
        (torch.autograd, "grad", _grad),
        (transforms, "_vjp_with_argnums", _vjp),
        (transforms, "_jvp_with_argnums", _jvp),
        (transforms, "grad_and_value_impl", _grad_and_value),
        (transforms, "vmap", _for_each),
        (torch.autograd, "backward", _backward),
    )


def with_inner_gradients(model: ir.Model) -> ir.Model:
    """A model whose nodes of the domain are formulas.

    Raises:
        UnsupportedOpError: one of them has none.
    """
    if not any(node.domain == _DOMAIN for node in all_nodes(model.graph)):
        return model
    return run_passes(model, [*preparing_passes(), InnerGradientsPass()])


class InnerGradientsPass(Pass):
    """Writes gradients within a model; inner ones first, of which others may be taken."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Writes them.

        Raises:
            UnsupportedOpError: one stands in a body, or goes through operators without a rule.
        """
        space = self.context.space
        if any(node.domain == _DOMAIN and node.graph is not model.graph for node in all_nodes(model.graph)):
            raise UnsupportedOpError(
                "a derivative inside forward or loss must be outside of control flow, got one in the body of "
                "a cond, a loop or a scan; take it outside, of the function that holds the control flow"
            )
        for node in list(model.graph):
            if node.domain == _DOMAIN and node.op_type == "Primal":
                b = Builder.before(node, space)
                assert node.inputs[0] is not None
                replace(node.outputs[0], b.op(std.Identity, b.wrap(node.inputs[0])).value, space)
                model.graph.remove(node, safe=True)
        while node := next((each for each in model.graph if each.domain == _DOMAIN), None):  # type: ignore[assignment]
            self._write(model, node)
        model.graph.opset_imports.pop(_DOMAIN, None)
        return ir.passes.PassResult(model, modified=True)

    def _write(self, model: ir.Model, node: ir.Node) -> None:
        def activity() -> Activity:
            results, _, operands = _operands(node)
            return Activity(_before(model, node), self.context.space.facts, operands, results)

        active = differentiable(self.context, model, activity)
        # What became formulas has other results.
        results, seeds, operands = _operands(node)
        space = self.context.space
        b = Builder.before(node, space)
        reverse = ReverseMode(b, active.active)
        for result, seed in zip(results, seeds, strict=True):
            if result in active.active:
                reverse.add(result, b.wrap(seed))
        reverse.run(_before(model, node))
        for old, operand in zip(node.outputs, operands, strict=True):
            found = reverse.gradients.get(operand)
            replace(old, (b.zeros_like(b.wrap(operand)) if found is None else found).value, space)
        model.graph.remove(node, safe=True)


def _operands(node: ir.Node) -> tuple[list[ir.Value], list[ir.Value], list[ir.Value]]:
    """Results, seeds, and operands of a node of the domain."""
    count = node.attributes["count"].as_int()
    given = [value for value in node.inputs if value is not None]
    return given[:count], given[count : 2 * count], given[2 * count :]


def _before(model: ir.Model, node: ir.Node) -> list[ir.Node]:
    nodes = list(model.graph)
    return nodes[: nodes.index(node)]
