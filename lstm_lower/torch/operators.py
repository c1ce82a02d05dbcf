"""Nodes of ours in PyTorch, which stand for what its exporter breaks while a module is traced.

A recurrent layer, a packed sequence or batch statistics become one node each, whatever PyTorch would make of them;
`nodes` says what turns these into ONNX.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.replacement import replaced
from lstm_lower.torch import control_flow
from lstm_lower.torch.aten.tracing import TRACED
from lstm_lower.torch.attention import ATTENTION
from lstm_lower.torch.checks import CHECKS
from lstm_lower.torch.complex_numbers import OF_COMPLEX, TO_COMPLEX, has_complex
from lstm_lower.torch.embeddings import EMBEDDINGS
from lstm_lower.torch.functions import HANDLERS, all_stopped, as_declared, node, stopped
from lstm_lower.torch.hooks import ResultHooks
from lstm_lower.torch.indices import INDICES, exported_index
from lstm_lower.torch.interface import Step
from lstm_lower.torch.known import Held, KnownValues
from lstm_lower.torch.linear_algebra import LINEAR_ALGEBRA
from lstm_lower.torch.loss_functions import LOSSES
from lstm_lower.torch.nodes import ATEN, DOMAIN
from lstm_lower.torch.orders import ORDERS
from lstm_lower.torch.parts import PARTS
from lstm_lower.torch.pools import POOLS
from lstm_lower.torch.quantization import QUANTIZATION
from lstm_lower.torch.random_numbers import RANDOM
from lstm_lower.torch.special import SPECIAL
from lstm_lower.torch.spectra import SPECTRA
from lstm_lower.torch.statistics import STATISTICS


def _forms(*names: str) -> set[Any]:
    """Operators as functions, as methods, in place and turned round."""
    return {
        getattr(holder, form)
        for name in names
        for form in (name, f"{name}_", f"__{name}__", f"__r{name}__", f"__i{name}__")
        for holder in (torch, Tensor)
        if hasattr(holder, form)
    }


# Operators of which the exporter writes numbers in float32, and of which it takes no open size as a number.
_ARITHMETIC = _forms("add", "sub", "mul", "div", "truediv", "pow")
_KNOWN_NUMBERS = _forms("mod", "remainder", "pow")


# Functions whose results have no gradients.
_DETACHING: set[Any] = {Tensor.detach, torch.detach, Tensor.data.__get__}  # type: ignore[attr-defined]


def _is_filled(function: Any) -> bool:
    """Whether a function takes of its operand a shape and a dtype alone, as `zeros_like` and `new_ones` do."""
    name = str(getattr(function, "__name__", ""))
    return name.endswith("_like") or name.startswith("new_")


def _tensors(value: Any) -> list[Tensor]:
    return [x for x in tree_leaves(value) if isinstance(x, Tensor)]


def _traced_by_itself() -> bool:
    """Whether what traces calls a function for its own ends, of tensors that no node of ours could stand for."""
    caller = sys._getframe(2)
    while caller.f_code.co_name == "__torch_function__" and caller.f_back is not None:
        # Another mode passes a call on.
        caller = caller.f_back
    return str(caller.f_globals.get("__name__")).startswith(("torch.fx.", "torch._subclasses.", "torch._functorch."))


def _exact(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands in which numbers beside float64 are tensors of float64, and one that stands first a tensor."""
    if len(operands) > 1 and isinstance(operands[0], (int, float)) and isinstance(operands[1], Tensor):
        # `torch.mul(0.3, x)`, for which the exporter has no formula.
        first, second = operands[:2]
        operands = (torch.scalar_tensor(first, dtype=torch.result_type(first, second)), *operands[1:])
    if not any(isinstance(x, Tensor) and x.dtype == torch.float64 for x in operands):
        return operands
    return tuple(torch.tensor(x, dtype=torch.float64) if isinstance(x, float) else x for x in operands)


def _of_sizes(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands in which open sizes beside a tensor are tensors."""
    like = next((x for x in operands if isinstance(x, Tensor)), None)
    if like is None:
        return operands
    made: Callable[..., Tensor] = torch.scalar_tensor
    return tuple(made(x, dtype=like.dtype) if isinstance(x, torch.SymInt) else x for x in operands)


class Interception(TorchFunctionMode):
    """Puts our nodes in place of PyTorch's functions while a module runs.

    A packed sequence keeps beside its data, which is made only where somebody reads it, the padded tensor it came from.

    Attributes:
        known: values that do not depend on what is fed.
    """

    def __init__(self, module: Step) -> None:
        super().__init__()
        self._module = module
        self.known = KnownValues()
        self._held = Held(module)
        self._hooks = ResultHooks()
        # What has a gradient in PyTorch, which nodes of ours do not tell.
        self._varying: dict[int, Tensor] = {}
        # Packed data -> the padded tensor [T, B, ...]; batch sizes -> lengths. The tensors are kept, so that no other
        # one gets their identity.
        self._padded: dict[int, tuple[Tensor, Tensor]] = {}
        self._lengths: dict[int, tuple[Tensor, Tensor]] = {}
        # What was made where no gradients are recorded, while that lasts.
        self._stopped: dict[int, Tensor] = {}
        variants: Any = torch._VF
        tables = (
            TO_COMPLEX,
            ATTENTION,
            EMBEDDINGS,
            HANDLERS,
            INDICES,
            LINEAR_ALGEBRA,
            LOSSES,
            ORDERS,
            PARTS,
            POOLS,
            QUANTIZATION,
            RANDOM,
            SPECIAL,
            SPECTRA,
            STATISTICS,
        )
        self._handlers: dict[Any, Callable[..., Any]] = {
            variants._pack_padded_sequence: self._pack_padded,
            variants._pad_packed_sequence: self._pad_packed,
            Tensor.__getitem__: self._item,
            Tensor.register_hook: self._hooks.register,
            Tensor.requires_grad.__get__: self._requires_grad,  # type: ignore[attr-defined]
            **control_flow.handlers(self),
            **CHECKS,
            **(TRACED if ATEN else {key: value for table in tables for key, value in table.items()}),
        }
        for function in (Tensor.detach, torch.detach, Tensor.data.__get__):  # type: ignore[attr-defined]
            self._handlers[function] = self._detached
        self._handlers[Tensor.data.__set__] = self._set  # type: ignore[attr-defined]
        for kind in () if ATEN else ("lstm", "gru", "rnn_tanh", "rnn_relu"):
            self._handlers[getattr(variants, kind)] = self._layer(kind)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Calls ours where there is one, else PyTorch's."""
        del types
        if _traced_by_itself():
            return func(*args, **(kwargs or {}))
        args, kwargs = self._held.replaced(self.known, (args, kwargs or {}))
        if func is not Tensor.register_hook:
            args, kwargs = self._hooks.replaced((args, kwargs))
        call = self.known.call(func, args, kwargs)
        if call is not None and self.known.is_read(call):
            return call()
        result = self._traced(func, args, kwargs)
        if call is not None:
            self.known.keep(call, result)
        if not _is_filled(func):
            operands, results = _tensors((args, kwargs)), _tensors(result)
            self._hooks.look(operands, results)
            if torch.is_grad_enabled() and func not in _DETACHING:
                self._vary(operands, results)
        return result

    def _vary(self, operands: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        if any(map(self._requires_grad, operands)):
            self._varying |= {id(x): x for x in results if x.is_floating_point() or x.is_complex()}

    def _requires_grad(self, input: Tensor) -> bool:  # noqa: A002
        return input.requires_grad or id(input) in self._varying

    def _traced(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if ATEN:
            pass
        elif func in _ARITHMETIC:
            args = _exact(args)
        if func in _KNOWN_NUMBERS and not ATEN:
            args = _of_sizes(args)
        if not torch.is_grad_enabled():
            return self._without_gradient(func, args, kwargs)
        self._stopped.clear()
        return self._result(func, args, kwargs)

    def _result(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        handler = self._handlers.get(func)
        if not ATEN and func in OF_COMPLEX and has_complex((args, kwargs)):
            handler = OF_COMPLEX[func]
        if handler is not None:
            ours, named = as_declared(handler, args, kwargs)
            result = handler(*ours, **named)
            if result is not NotImplemented:
                return result
        return func(*args, **kwargs)

    def _without_gradient(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """A call under `torch.no_grad`: no gradient goes from its result to its operands.

        A tensor that is changed in place keeps the gradient that it has: what it is changed by has none.
        """
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        operands = [x for x in tensors if x.is_floating_point() or x.is_complex()]
        if all(self._has_no_gradient(x) for x in operands):
            # Views among these remain views.
            return self._known_stopped(self._result(func, args, kwargs))
        target = kwargs.get("out", args[0] if args else None)
        before = target.clone() if any(x is target for x in operands) else None
        result = self._result(func, args, kwargs)
        if before is None or not (result is target or func is Tensor.__setitem__):
            return self._known_stopped(all_stopped(result))
        after = stopped(target)
        target.copy_(after if self._has_no_gradient(target) else after + (before - stopped(before)))
        return result

    def _has_no_gradient(self, x: Tensor) -> bool:
        """Whether a tensor was made without one, or is a state of the module or a view of one."""
        if id(x) in self._stopped:
            return True
        storage = x.untyped_storage()._cdata
        return not x.requires_grad and any(
            storage == state.untyped_storage()._cdata for state in self._module.states().values()
        )

    def _detached(self, input: Tensor) -> Tensor:  # noqa: A002
        """What no gradient goes through; a buffer may be changed by it."""
        return input.detach() if self._has_no_gradient(input) else stopped(input)

    def _set(self, input: Tensor, value: Tensor) -> Any:  # noqa: A002
        """Other values for a buffer, which the exporter would not see."""
        if not self._has_no_gradient(input) or input.shape != value.shape:
            return NotImplemented
        input.copy_(self._detached(value))
        return None

    def _known_stopped(self, result: Any) -> Any:
        self._stopped |= {id(x): x for x in tree_leaves(result) if isinstance(x, Tensor)}
        return result

    def _layer(self, kind: str) -> Callable[..., Any]:
        def called(x: Tensor, second: Any, *rest: Any) -> Any:
            # One function of two signatures: a packed sequence brings batch sizes before the states.
            if isinstance(second, Tensor) and isinstance(rest[1], (tuple, list)):
                return self._run_packed(kind, x, second, *rest)
            return _rnn(kind, x, None, second, *rest)

        return called

    def _run_packed(self, kind: str, data: Tensor, batch_sizes: Tensor, *rest: Any) -> Any:
        lengths = self._known_lengths(batch_sizes)
        _check_states(lengths, *rest)
        out, *states = _rnn(kind, self._unpacked(data, batch_sizes), lengths, *rest)
        packed = _packed(out, lengths, data.shape[0], batch_sizes.shape[0])[0]
        self._padded[id(packed)] = packed, out
        return packed, *states

    def _pack_padded(self, x: Tensor, lengths: Tensor, batch_first: bool) -> Any:
        x = x.transpose(0, 1) if batch_first else x
        elements, steps = lengths.sum().item(), lengths.max().item()
        # So that PyTorch can tell that there is something, and that a total length of all steps is long enough.
        for known in (elements >= 1, steps >= 1, steps <= x.shape[0]):
            torch._check(known)  # type: ignore[no-untyped-call]
        data, batch_sizes = _packed(x, lengths, elements, steps)
        self._padded[id(data)] = data, x
        self._lengths[id(batch_sizes)] = batch_sizes, lengths
        return data, batch_sizes

    def _pad_packed(
        self,
        data: Tensor,
        batch_sizes: Tensor,
        batch_first: bool,
        padding: float,
        total: Any,
    ) -> Any:
        lengths = self._known_lengths(batch_sizes)
        x = self._unpacked(data, batch_sizes)
        # The number of steps goes along as the size of a tensor, which is what a node can read.
        steps = torch.arange(total)
        (x,) = node(f"{DOMAIN}::Steps", [x, lengths, steps], {"padding": float(padding)}, [(x, (total, *x.shape[1:]))])
        return (x.transpose(0, 1) if batch_first else x), lengths

    def _unpacked(self, data: Tensor, batch_sizes: Tensor) -> Tensor:
        held = self._padded.get(id(data))
        if held is not None:
            return held[1]
        lengths = self._known_lengths(batch_sizes)
        shape = (batch_sizes.shape[0], lengths.shape[0], *data.shape[1:])
        return node(f"{DOMAIN}::Unpack", [data, batch_sizes, lengths], {}, [(data, shape)])[0]

    def _known_lengths(self, batch_sizes: Tensor) -> Tensor:
        if id(batch_sizes) not in self._lengths:
            raise UnsupportedOpError(
                "a packed sequence must be made inside forward by pack_padded_sequence, got one from elsewhere; "
                "take the padded tensor and the lengths as inputs"
            )
        return self._lengths[id(batch_sizes)][1]

    def _item(self, x: Tensor, index: Any) -> Any:
        """The first of the batch sizes is the number of sequences, of which layers make their first states."""
        if id(x) in self._lengths and isinstance(index, int) and index == 0:
            return self._lengths[id(x)][1].shape[0]
        if ATEN:
            return NotImplemented
        exported = exported_index(x, index)
        return NotImplemented if exported is index else x[exported]


def unchecked_distributions() -> contextlib.AbstractContextManager[None]:
    """Leaves out the checks of distributions, which branch over values only to raise."""
    return replaced(torch.distributions.Distribution, "_validate_args", value=False)


def _check_states(
    lengths: Tensor,
    states: Any,
    weights: Sequence[Tensor],
    has_biases: bool,  # noqa: ARG001
    layers: int,
    dropout: float,  # noqa: ARG001
    training: bool,  # noqa: ARG001
    bidirectional: bool,
) -> None:
    """Fixes sizes of states that PyTorch does not check of a packed sequence: with too few it ends the process."""
    widths = (weights[1].shape[1], weights[1].shape[0] // 4)
    for state, width in zip([states] if isinstance(states, Tensor) else states, widths, strict=False):
        sizes = (layers * (2 if bidirectional else 1), lengths.shape[0], width)
        torch._check(all(own == size for own, size in zip(state.shape, sizes, strict=True)))  # type: ignore[no-untyped-call]


def _rnn(
    kind: str,
    x: Tensor,
    lengths: Tensor | None,
    states: Any,
    weights: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
    batch_first: bool = False,
) -> Any:
    states = [states] if isinstance(states, Tensor) else list(states)
    attributes = {
        "kind": kind,
        "states": len(states),
        "has_biases": int(has_biases),
        "layers": layers,
        "dropout": float(dropout) if training else 0.0,
        "bidirectional": int(bidirectional),
        "batch_first": int(batch_first),
    }
    out = (*x.shape[:2], weights[1].shape[1] * (2 if bidirectional else 1))
    results = [(x, out), *((x, state.shape) for state in states)]
    return tuple(node(f"{DOMAIN}::Recurrent", [x, lengths, *states, *weights], attributes, results))


def _packed(x: Tensor, lengths: Tensor, elements: Any, steps: Any) -> list[Tensor]:
    return node(f"{DOMAIN}::Pack", [x, lengths], {}, [(x, (elements, *x.shape[2:])), (lengths, (steps,))])
