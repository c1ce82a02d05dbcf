"""CudnnRNNBackprop as the gradient of CudnnRNN, for `finite_differences`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from lstm_lower.layouts import DIRECTIONS, ParamsLayout, resolve_skip_input
from lstm_lower.runtime.proof.oracles.finite_differences import Named, Pairing, pairs
from lstm_lower.runtime.proof.oracles.numerics import Array

T, B, I, N, LAYERS = 3, 2, 3, 2, 2  # noqa: E741 - the names that shapes are written with

COTANGENTS = {f"{output}_backprop": output for output in ("output", "output_h", "output_c")}


def shrink(attributes: Named) -> dict[str, Any]:
    """A projection to one element stands for any."""
    return {**attributes, "num_proj": 1} if attributes.get("num_proj") else dict(attributes)


def sample(rng: np.random.Generator, attributes: Named, *, ragged: bool) -> dict[str, Any]:
    """Two layers over two sequences, of different lengths if they are ragged."""
    mode, directions = attributes.get("rnn_mode", "lstm"), DIRECTIONS[attributes.get("direction", "unidirectional")]
    num_proj = attributes.get("num_proj", 0)
    width = N if attributes.get("input_mode") == "skip_input" else I
    skips = resolve_skip_input(attributes.get("input_mode", "linear_input"), width, num_proj or N)
    layout = ParamsLayout(mode, LAYERS, directions, width, N, num_proj, skips)
    states = (layout.pseudo_layers, B)
    operands: dict[str, Any] = {
        "input": rng.standard_normal((T, B, width)),
        "input_h": rng.standard_normal((*states, layout.hidden_size)),
        "input_c": rng.standard_normal((*states, N)) if mode == "lstm" else np.zeros(()),
        "params": 0.7 * rng.standard_normal(layout.size),
    }
    if ragged:
        operands["sequence_lengths"] = np.array([T, T - 1], np.int32)
    if not attributes.get("time_major", True):
        operands |= {name: operands[name].swapaxes(0, 1) for name in ("input", "input_h")}
        operands["input_c"] = operands["input_c"].swapaxes(0, 1) if mode == "lstm" else operands["input_c"]
    return operands


def gradients(operands: Named, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Backprop returns every gradient."""
    return {name: outputs[f"{name}_backprop"] for name in ("input", "input_h", "input_c", "params")}


for version in ("", "V2", "V3"):
    samples = partial(sample, ragged=version == "V3")
    pairs(f"CudnnRNNBackprop{version}", Pairing(f"CudnnRNN{version}", COTANGENTS, gradients, samples, shrink=shrink))
