"""What a Keras model was compiled with, as a step records it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lstm_lower.records.recipe import Choice, plain


def optimizer_choice(rule: Any) -> Choice:
    """An optimizer of Keras 3 or tf-keras with its configuration."""
    return Choice(type(rule).__name__, plain(rule.get_config()))


def loss_choice(loss: Any) -> Choice | None:
    """The loss of a model with one output, as `model.compile` takes it; `None` where there are several or none.

    Args:
        loss: a name, an object or a function; or these by output.
    """
    held = [*loss.values()] if isinstance(loss, Mapping) else loss
    if isinstance(held, Sequence) and not isinstance(held, str):
        return loss_choice(held[0]) if len(held) == 1 else None
    if held is None or isinstance(held, str):
        return None if held is None else Choice(held, {})
    if not hasattr(held, "get_config"):
        return Choice(getattr(held, "__name__", type(held).__name__), {})
    return Choice(type(held).__name__, plain(held.get_config()))
