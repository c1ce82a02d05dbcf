"""Float64 oracle of CTCLoss: the forward-backward algorithm, one sequence and one path state at a time.

Source of the recursion: Graves et al., Connectionist Temporal Classification, 2006, sections 4.1 and 4.2, with
TensorFlow's options (`ctc_loss_calculator`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.numerics import Array, float64
from lstm_lower.runtime.proof.oracles.registry import oracle


def log_softmax(logits: Array) -> Array:
    """Logarithm of the softmax over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


@oracle("CTCLoss")
def ctc_loss(
    *,
    inputs: npt.ArrayLike,
    labels_indices: npt.ArrayLike,
    labels_values: npt.ArrayLike,
    sequence_length: npt.ArrayLike,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,
    blank: int | None = None,
) -> dict[str, Array]:
    """Loss and gradient; a sequence of length 0 has neither, nor one with more labels than steps if that is ignored.

    Where the labels do not fit otherwise, no path exists: the loss is infinite and the gradient softmax(inputs).
    TensorFlow stops if there are more labels than steps; if repeated labels need the steps, it does the same as here.
    """
    logits = float64(inputs)
    _, batch, classes = logits.shape
    blank = classes - 1 if blank is None else blank
    rows, values = np.asarray(labels_indices)[:, 0], np.asarray(labels_values)
    loss, gradient = np.zeros(batch), np.zeros(logits.shape)
    for b in range(batch):
        length = min(int(np.asarray(sequence_length)[b]), len(logits))
        # Classes from the blank up end a row of labels, where the blank is the last class.
        labels = [int(value) for value in values[rows == b] if blank == 0 or value < blank]
        if preprocess_collapse_repeated:
            labels = [value for index, value in enumerate(labels) if index == 0 or labels[index - 1] != value]
        if length == 0 or (len(labels) > length and ignore_longer_outputs_than_inputs):
            continue
        scores = log_softmax(logits[:length, b])
        loss[b], gradient[:length, b] = _forward_backward(scores, labels, blank, merge=ctc_merge_repeated)
    return {"loss": loss, "gradient": gradient}


@oracle("CTCLossV2")
def ctc_loss_v2(**call: Any) -> dict[str, Array]:
    """CTCLoss with class 0 as the blank."""
    return ctc_loss(**call, blank=0)


def _sources(path: Sequence[int], state: int, blank: int, *, merge: bool) -> list[int]:
    """The path states from which a state can be reached in one step."""
    found = [state] if merge or path[state] == blank else []
    if state > 0:
        found.append(state - 1)
    if state > 1 and path[state] != blank and not (merge and path[state] == path[state - 2]):
        found.append(state - 2)
    return found


def _forward_backward(scores: Array, labels: Sequence[int], blank: int, *, merge: bool) -> tuple[float, Array]:
    """Loss and its gradient with respect to the logits of one sequence, scores [T, C] being their log softmax."""
    steps = len(scores)
    path = [blank]
    for label in labels:
        path += [label, blank]
    states = len(path)
    alpha = np.full((steps, states), -np.inf)
    beta = np.full((steps, states), -np.inf)
    alpha[0, : min(2, states)] = scores[0, path[:2]]
    beta[-1, max(0, states - 2) :] = 0.0
    sources = [_sources(path, state, blank, merge=merge) for state in range(states)]
    for t in range(1, steps):
        for state in range(states):
            alpha[t, state] = np.logaddexp.reduce([*alpha[t - 1, sources[state]], -np.inf]) + scores[t, path[state]]
    for t in range(steps - 2, -1, -1):
        for state in range(states):
            for source in sources[state]:
                arriving = beta[t + 1, state] + scores[t + 1, path[state]]
                beta[t, source] = np.logaddexp(beta[t, source], arriving)
    total = np.logaddexp.reduce(alpha[-1, max(0, states - 2) :])
    gradient = np.exp(scores)
    if np.isinf(total):
        return float(np.inf), gradient
    occupation = np.exp(alpha + beta - total)
    for state, label in enumerate(path):
        gradient[:, label] -= occupation[:, state]
    return float(-total), gradient
