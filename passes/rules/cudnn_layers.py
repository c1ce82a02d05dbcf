"""One pseudo-layer of a cuDNN network (one layer in one direction), forward and backward, time major.

Sequences are Scans over the cell; the reverse direction walks the Scan backwards. At a padded step (t >= length) the
states stay as they are, so a reverse direction reaches each sequence's last step with its initial state.
"""

from __future__ import annotations

import dataclasses

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr, concat
from lstm_lower.layouts import Block, PseudoLayer
from lstm_lower.passes.formulas.cudnn_cells import Cell, State, Step, given


@dataclasses.dataclass(frozen=True)
class Weights:
    """Matrices and biases of one pseudo-layer, gates stacked along the rows.

    Attributes:
        W: `[G*N, in]`; `None` under skip_input, where x itself is every gate's input side.
        R: `[G*N, H]`.
        P: `[H, N]` or `None`.
        bW: `[G*N]`.
        bR: `[G*N]`.
    """

    W: Expr | None
    R: Expr
    P: Expr | None
    bW: Expr
    bR: Expr


def weights_of(params: Expr, row: PseudoLayer) -> Weights:
    """Cuts one pseudo-layer's weights out of the buffer."""

    def cut(block: Block) -> Expr:
        return params.slice(block.offset, block.end, axis=0).reshape(*block.shape)

    # Under skip_input the first layer's block of input matrices has no columns.
    skips = row.layer == 0 and row.W.shape[1] == 0
    projection = None if row.P is None else cut(row.P)
    return Weights(None if skips else cut(row.W), cut(row.R), projection, cut(row.bW), cut(row.bR))


@dataclasses.dataclass(frozen=True)
class Run:
    """One pass over a batch of sequences by one pseudo-layer.

    Attributes:
        cell: formulas.
        weights: matrices and biases.
        x: `[T, B, in]`, zero at padded steps.
        h0: `[B, H]`.
        c0: `[B, N]`, or `None` without a cell state.
        running: `[T, B, 1]`, whether a step lies within its sequence; `None` when all do.
        gate_count: G.
        reverse: whether it walks from the last step to the first.
    """

    cell: Cell
    weights: Weights
    x: Expr
    h0: Expr
    c0: Expr | None
    running: Expr | None
    gate_count: int
    reverse: bool

    @property
    def others(self) -> int:
        """Rows of all gates but the last."""
        rows = given(self.weights.R.shape)[0]
        assert isinstance(rows, int)
        return rows - rows // self.gate_count

    @property
    def builder(self) -> Builder:
        """Where nodes go."""
        return self.x.builder

    def input_side(self) -> Expr:
        """Input side of the gates, x W' + bW `[T, B, G*N]`, with bR where the cell only knows the sum of both sides."""
        w = self.weights
        product = concat([self.x] * self.gate_count, -1) if w.W is None else self.x @ w.W.mT
        return product + (w.bW + w.bR if self.cell.one_bias else w.bW)

    def recurrent_side(self, h: Expr) -> Expr:
        """Recurrent side of the gates, h R', with bR where the sides stay apart."""
        product = h @ self.weights.R.mT
        return product if self.cell.one_bias else product + self.weights.bR

    def before(self, first: Expr, states: Expr) -> Expr:
        """Each step's previous state `[T, B, .]`: `first`, then the states shifted by one step."""
        if self.reverse:
            return concat([states.slice(1, END, axis=0), first.unsqueeze(0)], 0)
        return concat([first.unsqueeze(0), states.slice(0, -1, axis=0)], 0)


@dataclasses.dataclass(frozen=True)
class Forward:
    """What a forward pass leaves.

    Attributes:
        y: `[T, B, H]`, zero at padded steps.
        h: `[B, H]`, final.
        c: `[B, N]`, final, or `None`.
        h_prev: `[T, B, H]`, h before each step.
        c_prev: `[T, B, N]` or `None`.
        c_steps: `[T, B, N]`, c after each step, or `None`.
        acts: activations `[T, B, N]` each, not closed at padded steps.
    """

    y: Expr
    h: Expr
    c: Expr | None
    h_prev: Expr
    c_prev: Expr | None
    c_steps: Expr | None
    acts: list[Expr]


def forward(run: Run) -> Forward:
    """The recurrence: a Scan of steps."""
    b, cell, has_cell = run.builder, run.cell, run.cell.has_cell
    projection = run.weights.P

    def body(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        gx, *running = inputs
        acts = cell.activations(gx, run.recurrent_side(states[0]))
        h, c = cell.advance(acts, State(states[0], states[1] if has_cell else None))
        new = [h if projection is None else h @ projection.mT, *([] if c is None else [c])]
        if running:
            new = [b.where(running[0], state, old) for state, old in zip(new, states, strict=True)]
        return new, [*new, *acts]

    states = [run.h0] if run.c0 is None else [run.h0, run.c0]
    inputs = [run.input_side()] if run.running is None else [run.input_side(), run.running]
    final, sequences = b.scan(body, states=states, inputs=inputs, reverse=run.reverse)
    h_steps, c_steps = sequences[0], sequences[1] if has_cell else None
    y = h_steps if run.running is None else b.where(run.running, h_steps, 0)
    return Forward(
        y,
        final[0],
        final[1] if has_cell else None,
        run.before(run.h0, h_steps),
        run.before(run.c0, c_steps) if run.c0 is not None and c_steps is not None else None,
        c_steps,
        sequences[len(states) :],
    )


def recompute(run: Run, y: Expr) -> Forward:
    """The forward pass where its output is at hand: h before each step is known, so all gates are one product.

    Only the elementwise recurrence of c is left; final states are not computed.
    """
    b, cell = run.builder, run.cell
    # Past its end a reverse sequence still has its initial state; y is zero there.
    h_steps = y if run.running is None or not run.reverse else b.where(run.running, y, run.h0.unsqueeze(0))
    h_prev = run.before(run.h0, h_steps)
    acts = cell.activations(run.input_side(), run.recurrent_side(h_prev))
    if run.c0 is None:
        return Forward(y, run.h0, None, h_prev, None, None, acts)
    closed = acts if run.running is None else cell.closed(acts, run.running)

    def body(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        c = given(cell.advance(inputs, State(run.h0, states[0])).c)
        return [c], [c]

    (c,), (c_steps,) = b.scan(body, states=[run.c0], inputs=closed, reverse=run.reverse)
    return Forward(y, run.h0, c, h_prev, run.before(run.c0, c_steps), c_steps, acts)


@dataclasses.dataclass(frozen=True)
class Backward:
    """Gradients of one pseudo-layer: of x, the initial states, and of the weights in buffer order."""

    x: Expr
    h0: Expr
    c0: Expr | None
    matrices: list[Expr]
    biases: list[Expr]


def backward(run: Run, saved: Forward, dy: Expr, dh: Expr, dc: Expr | None) -> Backward:
    """Reverse mode: a Scan of step gradients against the direction of the pass; weight gradients as one product each.

    Args:
        run: the pass.
        saved: what its forward pass left.
        dy: gradient of y `[T, B, H]`.
        dh: gradient of the final h.
        dc: gradient of the final c, or `None`.
    """
    b, cell, w = run.builder, run.cell, run.weights
    acts = saved.acts if run.running is None else cell.closed(saved.acts, run.running)
    sequences = [dy if run.running is None else b.where(run.running, dy, 0), *acts]
    if cell.reads_h:
        sequences.append(saved.h_prev)
    if saved.c_prev is not None and saved.c_steps is not None:
        sequences += [saved.c_prev, saved.c_steps]
    if run.running is not None and not cell.keeps_h:
        sequences.append((~run.running).cast(dy.dtype))

    def body(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        dh, dc = states[0], states[1] if cell.has_cell else None
        dy, acts, rest = inputs[0], inputs[1 : 1 + len(saved.acts)], inputs[1 + len(saved.acts) :]
        h_prev = rest.pop(0) if cell.reads_h else None
        c_prev, c = (rest.pop(0), rest.pop(0)) if cell.has_cell else (None, None)
        dh = dh + dy
        d = cell.gradient(Step(acts, h_prev, c_prev, c), State(dh if w.P is None else dh @ w.P, dc))
        new_dh = d.gates @ w.R
        if d.h is not None:
            new_dh = new_dh + d.h
        if rest:
            new_dh = new_dh + dh * rest[0]
        outputs = [d.gates] if d.last is None else [d.gates, d.last]
        return [new_dh] if d.c is None else [new_dh, d.c], outputs if w.P is None else [*outputs, dh]

    states = [dh] if dc is None else [dh, dc]
    final, outputs = b.scan(body, states=states, inputs=sequences, reverse=not run.reverse)
    d_gh = d_gx = outputs[0]
    if not cell.one_bias:
        d_gx = concat([d_gh.slice(0, run.others, axis=2), outputs[1]], -1)
    matrices = [] if w.W is None else [_product_over_steps(d_gx, run.x, w.W)]
    matrices.append(_product_over_steps(d_gh, saved.h_prev, w.R))
    if w.P is not None and saved.c_steps is not None:
        unprojected = cell.advance(acts, State(saved.h_prev, saved.c_prev)).h
        matrices.append(_product_over_steps(outputs[-1], unprojected, w.P))
    biases = [d_gx.sum((0, 1)), d_gh.sum((0, 1))]
    if w.W is None:
        first, *others = d_gx.split(run.gate_count, axis=-1) if run.gate_count > 1 else [d_gx]
        dx = sum(others, first)
    else:
        dx = d_gx @ w.W
    return Backward(dx, final[0], final[1] if cell.has_cell else None, matrices, biases)


def _product_over_steps(left: Expr, right: Expr, matrix: Expr) -> Expr:
    """Sum over steps and batch of left' right as one product; the gradient of a matrix, with its shape."""
    rows, columns = given(matrix.shape)
    assert isinstance(rows, int)
    assert isinstance(columns, int)
    return left.builder.op(std.Gemm, left.reshape(-1, rows), right.reshape(-1, columns), transA=1)
