"""State whose sizes are open until training starts: its first values, once the sizes are given."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower import arguments
from lstm_lower.errors import InvalidInputError, some
from lstm_lower.graph.values import declared_shape
from lstm_lower.passes.training.initialization import initialization
from lstm_lower.records import first_values
from lstm_lower.runtime.session import Session

Array = np.ndarray[Any, Any]


def drawn_values(
    step: ir.Model, names: Collection[str], sizes: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Array]:
    """First values of state that a step has no values of, as far as it says how they are drawn.

    Args:
        step: the training step.
        names: state inputs without a value.
        sizes: open size -> number.
        given: values of other state, whose sizes count as well.

    Raises:
        InvalidInputError: a size is missing, is none of those that are open, or is not what a given value has.
    """
    draws = first_values.parse(step.metadata_props)
    wanted = {name: draws[name] for name in names if name in draws}
    shapes = {str(value.name): declared_shape(value) or () for value in step.graph.inputs}
    drawn = {dim for name in draws for dim in shapes.get(name, ()) if isinstance(dim, str)}
    numbers = _numbers(arguments.mapping("sizes", sizes, "names of open sizes to numbers"), drawn)
    for name in draws.keys() & given.keys():
        for dim, size in zip(shapes[name], np.shape(given[name]), strict=False):
            if dim in drawn and numbers.setdefault(str(dim), size) != size:
                raise InvalidInputError(f"state '{name}' requires {numbers[str(dim)]} for '{dim}', got {size}")
    if not wanted:
        return {}
    model = initialization(step, wanted)
    inputs = [str(value.name) for value in model.graph.inputs]
    if missing := [name for name in inputs if name not in numbers]:
        state = next(name for name in wanted if missing[0] in shapes[name])
        raise InvalidInputError(
            f"state '{state}' requires a number for its open size '{missing[0]}', got none; "
            f"sizes={{'{missing[0]}': 5}} (--dim {missing[0]}=5) gives one"
        )
    return Session(model).run({name: np.asarray(numbers[name], np.int64) for name in inputs})


def _numbers(sizes: Mapping[Any, Any], known: Collection[str]) -> dict[str, int]:
    if unknown := [name for name in sizes if name not in known]:
        which = some(sorted(known)) if known else "none"
        raise InvalidInputError(f"sizes requires names of the state's open sizes, {which}, got {unknown[0]!r}")
    return {name: arguments.whole(f"sizes['{name}']", size) for name, size in sizes.items()}
