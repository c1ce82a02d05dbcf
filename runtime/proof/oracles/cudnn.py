"""Float64 oracles of CudnnRNN, V2, V3 and of their Backprop ops.

TensorFlow leaves some of it open; as everywhere in this project: lengths 0 pass the state through, `time_major=False`
transposes the states too, `output_c` is a scalar 0 and `input_c_backprop` zeros without a cell state, and under
dropout between layers `reserve_space` holds the scaled masks, flat, in the order layer boundary, time, batch,
direction * units (empty otherwise). `host_reserved` is empty.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from lstm_lower.errors import InvalidInputError, requires
from lstm_lower.layouts import DIRECTIONS, ParamsBlock, ParamsLayout, resolve_skip_input
from lstm_lower.runtime.proof.oracles.finite_differences import Named, Pairing, pairs
from lstm_lower.runtime.proof.oracles.numerics import Array
from lstm_lower.runtime.proof.oracles.registry import F, Oracle, oracle


class ReferenceStep(NamedTuple):
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


def lstm(gx: Array, gh: Array, h: Array, c: Array) -> ReferenceStep:
    """Gates i, f, g (new memory), o; c' = f c + i g; h' = o tanh(c')."""
    i, f, g, o = np.split(gx + gh, 4, axis=-1)
    i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
    cell = f * c + i * g
    return ReferenceStep(o * np.tanh(cell), cell, (i, f, g, o, np.tanh(cell), c))


def lstm_grad(saved: tuple[Array, ...], dh: Array, dc: Array) -> StepGrad:
    """Derivative of `lstm`; `dh` is that of h before the projection."""
    i, f, g, o, co, c_prev = saved
    dcell = dc + dh * o * (1 - co * co)
    parts = (dcell * g * i * (1 - i), dcell * c_prev * f * (1 - f), dcell * i * (1 - g * g), dh * co * o * (1 - o))
    gates = np.concatenate(parts, axis=-1)
    return StepGrad(gates, gates, np.zeros_like(dh), dcell * f)


def gru(gx: Array, gh: Array, h: Array, c: Array) -> ReferenceStep:
    """Gates r, u, n; n = tanh(gx_n + r gh_n); h' = (1 - u) n + u h."""
    xr, xu, xn = np.split(gx, 3, axis=-1)
    hr, hu, hn = np.split(gh, 3, axis=-1)
    r, u = sigmoid(xr + hr), sigmoid(xu + hu)
    n = np.tanh(xn + r * hn)
    return ReferenceStep((1 - u) * n + u * h, c, (r, u, n, hn, h))


def gru_grad(saved: tuple[Array, ...], dh: Array, dc: Array) -> StepGrad:
    """Derivative of `gru`."""
    r, u, n, hn, h_prev = saved
    dn = dh * (1 - u) * (1 - n * n)
    du = dh * (h_prev - n) * u * (1 - u)
    dr = dn * hn * r * (1 - r)
    return StepGrad(np.concatenate((dr, du, dn), axis=-1), np.concatenate((dr, du, dn * r), axis=-1), dh * u, dc)


def rnn_tanh(gx: Array, gh: Array, h: Array, c: Array) -> ReferenceStep:
    """One gate: h' = tanh(gx + gh)."""
    out = np.tanh(gx + gh)
    return ReferenceStep(out, c, (out,))


def rnn_tanh_grad(saved: tuple[Array, ...], dh: Array, dc: Array) -> StepGrad:
    """Derivative of `rnn_tanh`."""
    gates = dh * (1 - saved[0] * saved[0])
    return StepGrad(gates, gates, np.zeros_like(dh), dc)


def rnn_relu(gx: Array, gh: Array, h: Array, c: Array) -> ReferenceStep:
    """One gate: h' = max(gx + gh, 0)."""
    out = np.maximum(gx + gh, 0)
    return ReferenceStep(out, c, (out,))


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


class Weights(NamedTuple):
    """One pseudo-layer's matrices and biases; also their gradients."""

    W: Array
    R: Array
    P: Array | None
    bW: Array
    bR: Array


class ForwardTrace(NamedTuple):
    """Values that one pseudo-layer's forward pass leaves for its backward pass; sequences in the order of its steps."""

    x: Array
    h: list[Array]
    saved: list[tuple[Array, ...]]
    unprojected: list[Array]


@dataclass(frozen=True)
class ReferenceNetwork:
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

        def cut(block: ParamsBlock) -> Array:
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
    ) -> tuple[Array, Array, Array, list[ForwardTrace]]:
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
                trace = ForwardTrace(self._turn(x, direction), [], [], [])
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
        self, dy: Array, dh_final: Array, dc_final: Array, weights: list[Weights], traces: list[ForwardTrace]
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

    def _blocks(self, p: int) -> tuple[ParamsBlock | None, ...]:
        row = self.layout.table[p]
        return row.W, row.R, row.P, row.bW, row.bR

    def _layer_grad(
        self, dy: Array, dh: Array, dc: Array, w: Weights, trace: ForwardTrace
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


Operand = Any
Outputs = dict[str, np.ndarray[Any, Any]]


class _Call:
    """Operands of one call in float64 and time-major order, and the network that they describe."""

    def __init__(
        self,
        *,
        input: Operand,
        input_h: Operand,
        input_c: Operand,
        params: Operand,
        sequence_lengths: Operand = None,
        rnn_mode: str,
        input_mode: str,
        direction: str,
        num_proj: int = 0,
        time_major: bool = True,
    ) -> None:
        self.time_major = time_major
        self.lstm = rnn_mode == "lstm"
        self.x = self.major(input)
        self.h = self.major(input_h)
        steps, batch, input_size = self.x.shape
        num_proj = num_proj if self.lstm else 0
        self.c_shape = np.shape(input_c)
        self.c = self.major(input_c) if self.lstm else np.zeros_like(self.h)
        directions = DIRECTIONS[direction]
        self.layout = ParamsLayout(
            rnn_mode=rnn_mode,
            num_layers=self.h.shape[0] // directions,
            directions=directions,
            input_size=input_size,
            num_units=self.c.shape[-1],
            num_proj=num_proj,
            skip_input=resolve_skip_input(input_mode, input_size, self.h.shape[-1]),
        )
        self.params = np.asarray(params, np.float64)
        self.layout.check_size(self.params.size)
        self.lengths = (
            np.full(batch, steps) if sequence_lengths is None else np.asarray(sequence_lengths).astype(np.int64)
        )

    def major(self, value: Operand) -> Array:
        """Float64, with the time (or pseudo-layer) axis first; its own inverse."""
        array = np.asarray(value, np.float64)
        return array if self.time_major else array.swapaxes(0, 1)

    def mask_shape(self) -> tuple[int, int, int, int]:
        """`[L-1, T, B, D*H]`."""
        return (self.layout.num_layers - 1, *self.x.shape[:2], self.layout.output_size)

    def network(self, masks: Array | None) -> ReferenceNetwork:
        return ReferenceNetwork(self.layout, self.lengths, masks)

    def no_cell(self, value: Array) -> np.ndarray[Any, Any]:
        return self.major(value) if self.lstm else np.zeros(())


def _forward(call: _Call, dropout: float, seed: int, seed2: int, is_training: bool, masks: Operand) -> Outputs:
    drops = is_training and dropout > 0 and call.layout.num_layers > 1
    scaled = None
    if drops and masks is None:
        keep = np.random.default_rng([abs(seed), abs(seed2)]).random(call.mask_shape()) >= dropout
        scaled = keep / (1 - dropout) if dropout < 1 else np.zeros(call.mask_shape())
    elif drops:
        scaled = np.asarray(masks, np.float64).reshape(call.mask_shape())
    network = call.network(scaled)
    output, h, c, _ = network.forward(call.x, call.h, call.c, network.weights(call.params))
    return {
        "output": call.major(output),
        "output_h": call.major(h),
        "output_c": call.no_cell(c),
        "reserve_space": np.zeros(0) if scaled is None else scaled.ravel(),
    }


def _backward(call: _Call, dropout: float, reserve_space: Operand, dy: Operand, dh: Operand, dc: Operand) -> Outputs:
    masks = None
    if dropout > 0 and call.layout.num_layers > 1:
        masks = np.asarray(reserve_space, np.float64)
        if masks.size != np.prod(call.mask_shape()):
            what = f"the dropout masks of the forward pass, {np.prod(call.mask_shape())} elements"
            raise InvalidInputError(requires("CudnnRNNBackprop", None, "reserve_space", what, f"{masks.size} elements"))
        masks = masks.reshape(call.mask_shape())
    network = call.network(masks)
    weights = network.weights(call.params)
    *_, traces = network.forward(call.x, call.h, call.c, weights)
    dc_final = call.major(dc) if call.lstm else np.zeros_like(call.c)
    dx, dh0, dc0, dparams = network.backward(call.major(dy), call.major(dh), dc_final, weights, traces)
    return {
        "input_backprop": call.major(dx),
        "input_h_backprop": call.major(dh0),
        "input_c_backprop": call.major(dc0) if call.lstm else np.zeros(call.c_shape),
        "params_backprop": dparams,
    }


_EMPTY = np.zeros(0, np.int8)


@oracle("CudnnRNN")
def cudnn_rnn(
    *,
    input: Operand,
    input_h: Operand,
    input_c: Operand,
    params: Operand,
    sequence_lengths: Operand = None,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
    is_training: bool = True,
    time_major: bool = True,
    masks: Operand = None,
) -> Outputs:
    """CudnnRNN, with the operands and attributes that V3 adds.

    Args:
        input: `[T, B, I]`.
        input_h: `[L*D, B, N]`.
        input_c: `[L*D, B, N]`; any shape without a cell state.
        params: the packed buffer, see `lstm_lower.layouts`.
        sequence_lengths: `[B]`; every sequence has all steps without it.
        rnn_mode: `lstm`, `gru`, `rnn_relu`, `rnn_tanh`.
        input_mode: `linear_input`, `skip_input`, `auto_select`.
        direction: `unidirectional`, `bidirectional`.
        dropout: probability of zeroing an element between two layers.
        seed: first seed of the masks.
        seed2: second seed of the masks.
        num_proj: size of the projected h; 0 projects nothing.
        is_training: without it there is no dropout.
        time_major: whether the time axis comes first, not second.
        masks: scaled masks to use in place of drawn ones; not an operand of the op.

    Returns:
        output, output_h, output_c, reserve_space.
    """
    call = _Call(
        input=input, input_h=input_h, input_c=input_c, params=params, sequence_lengths=sequence_lengths,
        rnn_mode=rnn_mode, input_mode=input_mode, direction=direction, num_proj=num_proj, time_major=time_major,
    )  # fmt: skip
    return _forward(call, dropout, seed, seed2, is_training, masks)


def _with_signature_of(function: Oracle, *more: str) -> Callable[[F], F]:
    """States the keywords of a function that hands them on."""

    def state(wrapper: F) -> F:
        signature = inspect.signature(function)
        added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in more]
        wrapper.__dict__["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), *added])
        return wrapper

    return state


@oracle("CudnnRNNV2")
@_with_signature_of(cudnn_rnn)
def cudnn_rnn_v2(**operands: Any) -> Outputs:
    """CudnnRNNV2: as `cudnn_rnn`, with an empty host_reserved."""
    return {**cudnn_rnn(**operands), "host_reserved": _EMPTY}


@oracle("CudnnRNNV3")
@_with_signature_of(cudnn_rnn)
def cudnn_rnn_v3(**operands: Any) -> Outputs:
    """CudnnRNNV3: as `cudnn_rnn_v2`, with lengths `[B]`, a projection and batch-major operands."""
    return cudnn_rnn_v2(**operands)


@oracle("CudnnRNNBackprop")
def cudnn_rnn_backprop(
    *,
    input: Operand,
    input_h: Operand,
    input_c: Operand,
    params: Operand,
    sequence_lengths: Operand = None,
    output: Operand,
    output_h: Operand,
    output_c: Operand,
    output_backprop: Operand,
    output_h_backprop: Operand,
    output_c_backprop: Operand,
    reserve_space: Operand,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
    time_major: bool = True,
) -> Outputs:
    """CudnnRNNBackprop: reverse mode of `cudnn_rnn`, recomputed; output, output_h and output_c are not read.

    Nor are gradients of padded steps; theirs are 0.
    """
    call = _Call(
        input=input, input_h=input_h, input_c=input_c, params=params, sequence_lengths=sequence_lengths,
        rnn_mode=rnn_mode, input_mode=input_mode, direction=direction, num_proj=num_proj, time_major=time_major,
    )  # fmt: skip
    return _backward(call, dropout, reserve_space, output_backprop, output_h_backprop, output_c_backprop)


@oracle("CudnnRNNBackpropV2")
@_with_signature_of(cudnn_rnn_backprop, "host_reserved")
def cudnn_rnn_backprop_v2(*, host_reserved: Operand, **operands: Any) -> Outputs:
    """CudnnRNNBackpropV2: as `cudnn_rnn_backprop`; host_reserved is not read."""
    return cudnn_rnn_backprop(**operands)


@oracle("CudnnRNNBackpropV3")
@_with_signature_of(cudnn_rnn_backprop, "host_reserved")
def cudnn_rnn_backprop_v3(**operands: Any) -> Outputs:
    """CudnnRNNBackpropV3: reverse mode of `cudnn_rnn_v3`, as `cudnn_rnn_backprop_v2`."""
    return cudnn_rnn_backprop_v2(**operands)


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


# Oracles of the ops on the params buffer: its size, and its conversion from and to single matrices.
#
# ParamsToCanonical yields two lists and CanonicalToParams takes two; here they are keyed `weights`, `biases` and hold
# lists of arrays, in the order of `lstm_lower.layouts`.


def _layout(
    *,
    num_layers: Operand,
    num_units: Operand,
    input_size: Operand,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
) -> ParamsLayout:
    """The layout that the operands and attributes describe which all these ops have; dropout and seeds say nothing."""
    return ParamsLayout(
        rnn_mode=rnn_mode,
        num_layers=int(num_layers),
        directions=DIRECTIONS[direction],
        input_size=int(input_size),
        num_units=int(num_units),
        num_proj=num_proj if rnn_mode == "lstm" else 0,
        skip_input=resolve_skip_input(input_mode, int(input_size), int(num_units)),
    )


@oracle("CudnnRNNParamsSize")
def params_size(*, T: Any = None, S: Any = None, **described: Any) -> Outputs:
    """CudnnRNNParamsSize: elements in the buffer, `[1]`, always as int64; T and S are dtypes."""
    layout = _layout(**described)
    return {"params_size": np.array([layout.size])}


@oracle("CudnnRNNParamsToCanonicalV2")
def params_to_canonical_v2(
    *, params: Operand, num_params_weights: int, num_params_biases: int, **described: Any
) -> dict[str, Any]:
    """CudnnRNNParamsToCanonicalV2: every gate's matrix `[N, width]`, projections `[num_proj, N]`, and biases `[N]`."""
    layout = _layout(**described)
    flat = np.asarray(params, np.float64)
    layout.check_size(flat.size)
    lists = {"weights": layout.canonical_weights(), "biases": layout.canonical_biases()}
    for (name, blocks), count in zip(lists.items(), (num_params_weights, num_params_biases), strict=True):
        if len(blocks) != count:
            raise InvalidInputError(requires("CudnnRNNParamsToCanonicalV2", None, name, f"{len(blocks)}", count))
    return {
        name: [flat[block.offset : block.end].reshape(block.shape) for block in blocks]
        for name, blocks in lists.items()
    }


@oracle("CudnnRNNParamsToCanonical")
def params_to_canonical(*, num_params: int, **operands: Any) -> dict[str, Any]:
    """CudnnRNNParamsToCanonical: as V2, with as many weights as biases."""
    return params_to_canonical_v2(num_params_weights=num_params, num_params_biases=num_params, **operands)


@oracle("CudnnRNNCanonicalToParamsV2")
def canonical_to_params_v2(
    *,
    weights: Sequence[Operand],
    biases: Sequence[Operand],
    num_params_weights: int | None = None,
    num_params_biases: int | None = None,
    **described: Any,
) -> Outputs:
    """CudnnRNNCanonicalToParamsV2: the inverse; only the elements of each part count, not their shape."""
    layout = _layout(**described)
    flat = np.zeros(layout.size)
    for parts, blocks in ((weights, layout.canonical_weights()), (biases, layout.canonical_biases())):
        for part, block in zip(parts, blocks, strict=True):
            flat[block.offset : block.end] = np.asarray(part, np.float64).ravel()
    return {"params": flat}


@oracle("CudnnRNNCanonicalToParams")
def canonical_to_params(*, num_params: int | None = None, **operands: Any) -> Outputs:
    """CudnnRNNCanonicalToParams: as V2, with as many weights as biases."""
    return canonical_to_params_v2(num_params_weights=num_params, num_params_biases=num_params, **operands)
