"""Float64 steps of the cuDNN cells, forward and backward.

A step takes the gates' input side `gx = x W' + bW` and recurrent side `gh = h R' + bR`, both `[B, G*N]`, and the
states.
Formulas: cuDNN's developer guide, `cudnnRNNMode_t`; the GRU resets after the product ("linear before reset").
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


class Step(NamedTuple):
    """One forward step: the new states (h before a projection) and what backward wants to know of it."""

    h: Array
    c: Array
    saved: tuple[Array, ...]


class StepGrad(NamedTuple):
    """One backward step: gradients of the two sides of the gates, and of the previous states past the gates."""

    gx: Array
    gh: Array
    h: Array
    c: Array


def sigmoid(value: Array) -> Array:
    """Logistic function that does not overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * value))


def lstm(gx: Array, gh: Array, h: Array, c: Array) -> Step:
    """Gates i, f, g (new memory), o; c' = f c + i g; h' = o tanh(c')."""
    i, f, g, o = np.split(gx + gh, 4, axis=-1)
    i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
    cell = f * c + i * g
    return Step(o * np.tanh(cell), cell, (i, f, g, o, np.tanh(cell), c))


def lstm_grad(saved: tuple[Array, ...], dh: Array, dc: Array) -> StepGrad:
    """Derivative of `lstm`; `dh` is that of h before the projection."""
    i, f, g, o, co, c_prev = saved
    dcell = dc + dh * o * (1 - co * co)
    parts = (dcell * g * i * (1 - i), dcell * c_prev * f * (1 - f), dcell * i * (1 - g * g), dh * co * o * (1 - o))
    gates = np.concatenate(parts, axis=-1)
    return StepGrad(gates, gates, np.zeros_like(dh), dcell * f)


def gru(gx: Array, gh: Array, h: Array, c: Array) -> Step:
    """Gates r, u, n; n = tanh(gx_n + r gh_n); h' = (1 - u) n + u h."""
    xr, xu, xn = np.split(gx, 3, axis=-1)
    hr, hu, hn = np.split(gh, 3, axis=-1)
    r, u = sigmoid(xr + hr), sigmoid(xu + hu)
    n = np.tanh(xn + r * hn)
    return Step((1 - u) * n + u * h, c, (r, u, n, hn, h))


def gru_grad(saved: tuple[Array, ...], dh: Array, dc: Array) -> StepGrad:
    """Derivative of `gru`."""
    r, u, n, hn, h_prev = saved
    dn = dh * (1 - u) * (1 - n * n)
    du = dh * (h_prev - n) * u * (1 - u)
    dr = dn * hn * r * (1 - r)
    return StepGrad(np.concatenate((dr, du, dn), axis=-1), np.concatenate((dr, du, dn * r), axis=-1), dh * u, dc)


def rnn_tanh(gx: Array, gh: Array, h: Array, c: Array) -> Step:
    """One gate: h' = tanh(gx + gh)."""
    out = np.tanh(gx + gh)
    return Step(out, c, (out,))


def rnn_tanh_grad(saved: tuple[Array, ...], dh: Array, dc: Array) -> StepGrad:
    """Derivative of `rnn_tanh`."""
    gates = dh * (1 - saved[0] * saved[0])
    return StepGrad(gates, gates, np.zeros_like(dh), dc)


def rnn_relu(gx: Array, gh: Array, h: Array, c: Array) -> Step:
    """One gate: h' = max(gx + gh, 0)."""
    out = np.maximum(gx + gh, 0)
    return Step(out, c, (out,))


def rnn_relu_grad(saved: tuple[Array, ...], dh: Array, dc: Array) -> StepGrad:
    """Derivative of `rnn_relu`; 0 at 0, as PyTorch has it."""
    gates = dh * (saved[0] > 0)
    return StepGrad(gates, gates, np.zeros_like(dh), dc)


CELLS = {
    "lstm": (lstm, lstm_grad),
    "gru": (gru, gru_grad),
    "rnn_tanh": (rnn_tanh, rnn_tanh_grad),
    "rnn_relu": (rnn_relu, rnn_relu_grad),
}
