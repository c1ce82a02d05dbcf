"""Float64 forward and backward pass of a whole cuDNN recurrent network, time-major.

Layers and directions are walked one step at a time; padded steps (t >= length) give zeros and leave the states alone,
and a reverse direction starts at each sequence's own last step. Dropout masks, already scaled, multiply what one layer
hands to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lstm_lower.layouts import Block, ParamsLayout
from lstm_lower.runtime.proof.oracles.cudnn_cells import CELLS, Array


class Weights(NamedTuple):
    """One pseudo-layer's matrices and biases; also their gradients."""

    W: Array
    R: Array
    P: Array | None
    bW: Array
    bR: Array


class Trace(NamedTuple):
    """Values that one pseudo-layer's forward pass leaves for its backward pass; sequences in the order of its steps."""

    x: Array
    h: list[Array]
    saved: list[tuple[Array, ...]]
    unprojected: list[Array]


@dataclass(frozen=True)
class Network:
    """A network over one batch.

    Attributes:
        layout: sizes, mode and directions.
        lengths: `[B]` steps per sequence.
        masks: `[L-1, T, B, D*H]` scaled dropout masks, or None for none.
    """

    layout: ParamsLayout
    lengths: np.ndarray[Any, np.dtype[np.int64]]
    masks: Array | None

    def weights(self, params: Array) -> list[Weights]:
        """Cuts the buffer into the pseudo-layers' parts."""

        def cut(block: Block) -> Array:
            return params[block.offset : block.end].reshape(block.shape)

        return [
            Weights(cut(row.W), cut(row.R), cut(row.P) if row.P else None, cut(row.bW), cut(row.bR))
            for row in self.layout.table
        ]

    def _turn(self, sequence: Array, direction: int) -> Array:
        """Reverses each sequence's own steps for direction 1, an involution; padding stays in place."""
        if direction == 0:
            return sequence
        turned = sequence.copy()
        for row, length in enumerate(self.lengths):
            turned[:length, row] = sequence[:length, row][::-1]
        return turned

    def _running(self, t: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return (t < self.lengths)[:, None]

    def _side(self, x: Array, w: Weights) -> Array:
        # Under skip_input W has no columns: x itself is every gate's input side.
        product = np.tile(x, len(self.layout.gates)) if w.W.size == 0 and self.layout.skip_input else x @ w.W.T
        return product + w.bW

    def forward(
        self, x: Array, h0: Array, c0: Array, weights: list[Weights]
    ) -> tuple[Array, Array, Array, list[Trace]]:
        """Runs all layers.

        Args:
            x: `[T, B, I]`.
            h0: `[L*D, B, H]`.
            c0: `[L*D, B, N]`; zeros for the modes without a cell state.
            weights: per pseudo-layer.

        Returns:
            output `[T, B, D*H]`, final h and c, and a trace per pseudo-layer.
        """
        step, _ = CELLS[self.layout.rnn_mode]
        h_final, c_final, traces = np.zeros_like(h0), np.zeros_like(c0), []
        for layer in range(self.layout.num_layers):
            if layer and self.masks is not None:
                x = x * self.masks[layer - 1]
            outputs = []
            for direction in range(self.layout.directions):
                p = layer * self.layout.directions + direction
                w, h, c = weights[p], h0[p], c0[p]
                trace = Trace(self._turn(x, direction), [], [], [])
                out = np.zeros((x.shape[0], x.shape[1], self.layout.hidden_size))
                for t in range(x.shape[0]):
                    done = step(self._side(trace.x[t], w), h @ w.R.T + w.bR, h, c)
                    trace.h.append(h)
                    trace.saved.append(done.saved)
                    trace.unprojected.append(done.h)
                    run = self._running(t)
                    h_new = done.h if w.P is None else done.h @ w.P.T
                    out[t] = np.where(run, h_new, 0)
                    h, c = np.where(run, h_new, h), np.where(run, done.c, c)
                h_final[p], c_final[p] = h, c
                outputs.append(self._turn(out, direction))
                traces.append(trace)
            x = np.concatenate(outputs, axis=-1)
        return x, h_final, c_final, traces

    def backward(
        self, dy: Array, dh_final: Array, dc_final: Array, weights: list[Weights], traces: list[Trace]
    ) -> tuple[Array, Array, Array, Array]:
        """Reverse mode of `forward`: gradients of x, h0, c0 and of the params buffer."""
        dh0, dc0, dparams = np.zeros_like(dh_final), np.zeros_like(dc_final), np.zeros(self.layout.size)
        for layer in reversed(range(self.layout.num_layers)):
            dx: Array = np.zeros(())
            for direction in range(self.layout.directions):
                p = layer * self.layout.directions + direction
                half = dy[..., direction * self.layout.hidden_size : (direction + 1) * self.layout.hidden_size]
                turned = self._turn(half, direction)
                part, dh0[p], dc0[p], grads = self._layer_grad(turned, dh_final[p], dc_final[p], weights[p], traces[p])
                dx = dx + self._turn(part, direction)
                for block, grad in zip(self._blocks(p), grads, strict=True):
                    if block is not None and grad is not None:
                        dparams[block.offset : block.end] = grad.ravel()
            dy = dx if layer == 0 or self.masks is None else dx * self.masks[layer - 1]
        return dy, dh0, dc0, dparams

    def _blocks(self, p: int) -> tuple[Block | None, ...]:
        row = self.layout.table[p]
        return row.W, row.R, row.P, row.bW, row.bR

    def _layer_grad(
        self, dy: Array, dh: Array, dc: Array, w: Weights, trace: Trace
    ) -> tuple[Array, Array, Array, Weights]:
        _, step_grad = CELLS[self.layout.rnn_mode]
        dw, dr, dbw, dbr = (np.zeros_like(part) for part in (w.W, w.R, w.bW, w.bR))
        dp = None if w.P is None else np.zeros_like(w.P)
        dx = np.zeros_like(trace.x)
        for t in reversed(range(len(trace.h))):
            run = self._running(t)
            dh_new = np.where(run, dh + dy[t], 0)
            dm = dh_new
            if w.P is not None and dp is not None:
                dm = dh_new @ w.P
                dp += dh_new.T @ trace.unprojected[t]
            grad = step_grad(trace.saved[t], dm, np.where(run, dc, 0))
            past = grad.gh @ w.R if w.P is not None else grad.gh @ w.R + grad.h
            dh, dc = np.where(run, past, dh), np.where(run, grad.c, dc)
            if w.W.size == 0 and self.layout.skip_input:
                dx[t] = grad.gx.reshape(dx.shape[1], -1, self.layout.num_units).sum(axis=1)
            else:
                dx[t] = grad.gx @ w.W
                dw += grad.gx.T @ trace.x[t]
            dr += grad.gh.T @ trace.h[t]
            dbw += grad.gx.sum(axis=0)
            dbr += grad.gh.sum(axis=0)
        return dx, dh, dc, Weights(dw, dr, dp, dbw, dbr)
