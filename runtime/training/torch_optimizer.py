"""An optimizer's state on its way from a trainer into PyTorch's own optimizer, and back.

PyTorch itself is not imported, but taken if it has been.
"""

from __future__ import annotations

import collections
import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lstm_lower.errors import InvalidInputError
from lstm_lower.records.optimizer_state import Kept
from lstm_lower.runtime.training.framework_weights import plain_name, unwrapped

Array = np.ndarray[Any, Any]

# What counts updates, which SGD does not keep.
_STEP = ("step",)


class TorchOptimizerState:
    """What a step keeps, beside an optimizer."""

    def __init__(self, optimizer: Any, module: Any, kept: Sequence[Kept] | None) -> None:
        """Finds each weight's parameter.

        Args:
            optimizer: of `torch.optim` or derived from it, or what stands around one and has its `param_groups`.
            module: whose parameters it has.
            kept: what the step records.

        Raises:
            InvalidInputError: it is no optimizer of the module, or the step has none of PyTorch's.
        """
        kind = type(optimizer).__name__
        if kept is None:
            raise InvalidInputError(
                "an optimizer requires a step that ll.from_torch made with an optimizer of torch.optim, got one without"
            )
        if not hasattr(optimizer, "param_groups") or not hasattr(optimizer, "state"):
            raise InvalidInputError(f"optimizer requires one of torch.optim, got {kind}")
        self._optimizer, self._kept = optimizer, kept
        named = unwrapped(module).named_parameters(remove_duplicate=False)
        parameters = {plain_name(name): x for name, x in named}
        own = {id(x) for group in optimizer.param_groups for x in group["params"]}
        self._parameters: dict[str, Any] = {}
        for name in dict.fromkeys(each.weight for each in kept if each.weight is not None):
            x = parameters.get(plain_name(name))
            if x is None or id(x) not in own:
                raise InvalidInputError(f"optimizer requires the parameter '{name}' of the module, got {kind} without")
            self._parameters[name] = x

    def filled(self, values: Mapping[str, Array]) -> Callable[[], None]:
        """What copies the step's values into the optimizer; one of a weight without any update stays as it is.

        Args:
            values: by state input.

        Raises:
            InvalidInputError: the optimizer keeps something else.
        """
        counted = {each.weight: int(values[each.input]) for each in self._kept if each.keys == _STEP}
        state, groups = self._forms()
        changed = set()
        for each in self._kept:
            holder = self._holder(each, state, groups)
            if counted.get(each.weight) == 0 or (holder is None and each.keys == _STEP):
                continue
            if holder is None:
                raise self._other(each)
            holder[each.keys[-1]] = _in_form(values[each.input], holder[each.keys[-1]])
            changed.add(each.weight)

        def assign() -> None:
            for name in changed - {None}:
                self._optimizer.state[self._parameters[str(name)]] = state[str(name)]
            for group, options in zip(self._optimizer.param_groups, groups, strict=True):
                group.update(options)

        return assign

    def taken(self, held: Mapping[str, Array]) -> dict[str, Array]:
        """What the optimizer keeps, by state input.

        Args:
            held: the step's values.

        Raises:
            InvalidInputError: it keeps something else, nothing yet, or has counted weights differently.
        """
        values: dict[str, Array] = {}
        state = {name: self._optimizer.state.get(x, {}) for name, x in self._parameters.items()}
        for each in self._kept:
            holder, form = self._holder(each, state, self._optimizer.param_groups), held[each.input]
            if holder is None and each.keys == _STEP:
                # That there is something says that there was an update.
                values[each.input] = np.maximum(form, len(state[str(each.weight)]) > 0).astype(form.dtype)
                continue
            if holder is None:
                raise self._other(each)
            value = holder[each.keys[-1]]
            number = value.detach().cpu().double().numpy() if hasattr(value, "detach") else np.asarray(value)
            array = number.reshape(form.shape).astype(form.dtype)
            if not np.array_equal(values.setdefault(each.input, array), array, equal_nan=form.dtype.kind == "f"):
                raise InvalidInputError(
                    f"optimizer requires the same number of updates of all weights that the step counts together, got "
                    f"{values[each.input]} and {array}; make the step anew with ll.from_torch"
                )
        return values

    def _forms(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Copies of the state of weights, that which a first step makes included, and of options of groups."""
        optimizer = self._optimizer
        copies = {id(x): x.detach().clone() for group in optimizer.param_groups for x in group["params"]}
        own = object.__new__(type(optimizer))
        vars(own).update(vars(optimizer))
        vars(own).pop("step", None)
        own.state, own.param_groups = collections.defaultdict(dict), []
        fresh = any(not optimizer.state.get(x) for x in self._parameters.values())
        for group in optimizer.param_groups:
            own.param_groups.append({**group, "params": [copies[id(x)] for x in group["params"]]})
            for x in group["params"]:
                copies[id(x)].grad = sys.modules["torch"].zeros_like(x)
                own.state[copies[id(x)]].update(copy.deepcopy(optimizer.state.get(x, {})))
        if fresh:
            type(own).step(own)
        state = {name: own.state[copies[id(x)]] for name, x in self._parameters.items()}
        return state, [{key: x for key, x in group.items() if key != "params"} for group in own.param_groups]

    def _holder(self, each: Kept, state: Mapping[str, Any], groups: Sequence[Any]) -> Any:
        """What holds a value under its last key; `None` where nothing does."""
        holder = groups[each.group] if each.weight is None else state[each.weight]
        for key in each.keys[:-1]:
            holder = holder[key]
        last = each.keys[-1]
        absent = isinstance(holder, Mapping) and holder.get(last) is None
        return None if absent else holder

    def _other(self, each: Kept) -> InvalidInputError:
        kind = type(self._optimizer).__name__
        where = f"group {each.group}" if each.weight is None else f"'{each.weight}'"
        key = "/".join(map(str, each.keys))
        return InvalidInputError(
            f"optimizer requires '{key}' of {where}, as the step has it, got {kind} without; one that has done a step "
            "has its state, and another kind of optimizer needs a step of its own (ll.from_torch)"
        )


def _in_form(value: Array, form: Any) -> Any:
    """A value as a tensor or number like another one."""
    if isinstance(form, sys.modules["torch"].Tensor):
        return form.new_tensor(value).reshape(form.shape)
    return type(form)(value.item())
