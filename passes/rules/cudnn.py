"""Lowering of the cuDNN sequence ops: layers of Scans over cells; backward recomputes the forward pass.

The forward op and the backward op emit the same forward Scans, so that in a graph that holds both they merge and
nothing is computed twice. Where only the backward op is there, `output` is an input of the graph, and the top layer's
gates come from it in one product.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr, concat
from lstm_lower.layouts import ParamsBlock, ParamsLayout, PseudoLayer
from lstm_lower.ops.cudnn import (
    CudnnRNN,
    CudnnRNNBackprop,
    CudnnRNNBackpropV2,
    CudnnRNNBackpropV3,
    CudnnRNNV2,
    CudnnRNNV3,
    layout_of,
)
from lstm_lower.ops.cudnn_params import (
    CudnnRNNCanonicalToParams,
    CudnnRNNCanonicalToParamsV2,
    CudnnRNNParamsSize,
    CudnnRNNParamsToCanonical,
    CudnnRNNParamsToCanonicalV2,
)
from lstm_lower.ops.cudnn_params import (
    layout_of as layout_of_params,
)
from lstm_lower.passes.formulas.cudnn_cells import (
    CellState,
    CellStep,
    CudnnCell,
    all_full,
    cell_of,
    given,
    running_steps,
)
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.passes.rules.standard_rnn import DirectionWeights, clamped_lengths, stack, standard_layer


def mask_sizes(layout: ParamsLayout, x: Expr) -> list[int | Expr]:
    """`[T, B, D*H]`: the shape of the masks between two layers."""
    return [x.size(0), x.size(1), layout.output_size]


def draw_masks(n: Node, b: Builder, layout: ParamsLayout, x: Expr) -> Expr:
    """Scaled masks of all layer boundaries, flat: boundary, time, batch, direction times units."""
    sizes = mask_sizes(layout, x)
    if n.dropout == 1:
        return b.fill(0, [layout.num_layers - 1, *sizes], x.dtype).reshape(-1)
    # ONNX's own generators end with opset 21 in onnxruntime; Dropout draws in all of them. It draws on data of the run,
    # for a Dropout of constants would be folded into one draw for ever.
    data = b.op(std.Expand, x.slice(0, 1, axis=2), b.sizes(sizes))
    ratio, training = b.constant(n.dropout, ir.DataType.FLOAT), b.constant(True, ir.DataType.BOOL)
    masks = []
    for boundary in range(layout.num_layers - 1):
        _, keep = b.ops(std.Dropout, data, ratio, training, outputs=2, **_seed(n, boundary))
        masks.append((keep.cast(x.dtype) * (1 / (1 - n.dropout))).reshape(-1))
    return concat(masks, 0)


def _seed(n: Node, boundary: int) -> dict[str, int]:
    """Boundaries need streams of their own; the multipliers spread neighbouring seeds."""
    if n.seed == 0 and n.seed2 == 0:
        return {}
    return {"seed": (n.seed * 2654435761 + n.seed2 * 40503 + boundary * 7919) % (1 << 31)}


def read_masks(reserve_space: Expr, layout: ParamsLayout, x: Expr) -> list[Expr]:
    """The masks between layers, each `[T, B, D*H]`, out of a flat buffer."""
    b, count = x.builder, layout.num_layers - 1
    shape = b.sizes([count, *mask_sizes(layout, x)])
    stacked = b.op(std.Reshape, reserve_space, shape)
    parts = stacked.split(count, axis=0) if count > 1 else [stacked]
    return [part.squeeze(0) for part in parts]


@dataclasses.dataclass(frozen=True)
class LayerWeights:
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


def weights_of(params: Expr, row: PseudoLayer) -> LayerWeights:
    """Cuts one pseudo-layer's weights out of the buffer."""

    def cut(block: ParamsBlock) -> Expr:
        return params.slice(block.offset, block.end, axis=0).reshape(*block.shape)

    # Under skip_input the first layer's block of input matrices has no columns.
    skips = row.layer == 0 and row.W.shape[1] == 0
    projection = None if row.P is None else cut(row.P)
    return LayerWeights(None if skips else cut(row.W), cut(row.R), projection, cut(row.bW), cut(row.bR))


@dataclasses.dataclass(frozen=True)
class LayerRun:
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

    cell: CudnnCell
    weights: LayerWeights
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
    """Results of a forward pass.

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


def forward(run: LayerRun) -> Forward:
    """The recurrence: a Scan of steps."""
    b, cell, has_cell = run.builder, run.cell, run.cell.has_cell
    projection = run.weights.P

    def body(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        gx, *running = inputs
        acts = cell.activations(gx, run.recurrent_side(states[0]))
        h, c = cell.advance(acts, CellState(states[0], states[1] if has_cell else None))
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


def recompute(run: LayerRun, y: Expr) -> Forward:
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
        c = given(cell.advance(inputs, CellState(run.h0, states[0])).c)
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


def backward(run: LayerRun, saved: Forward, dy: Expr, dh: Expr, dc: Expr | None) -> Backward:
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
        d = cell.gradient(CellStep(acts, h_prev, c_prev, c), CellState(dh if w.P is None else dh @ w.P, dc))
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
        unprojected = cell.advance(acts, CellState(saved.h_prev, saved.c_prev)).h
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


@dataclasses.dataclass
class Network:
    """The operands of one node, time major, and its layers' passes so far.

    Attributes:
        n: the node.
        layout: where the weights lie.
        x: `[T, B, I]`, zero at padded steps.
        running: `[T, B, 1]` or `None`.
    """

    n: Node
    layout: ParamsLayout
    x: Expr
    running: Expr | None

    @classmethod
    def of(cls, n: Node, b: Builder) -> Network:
        """Reads a node.

        Raises:
            UnsupportedOpError: a size that the layout depends on is not known.
        """
        layout = layout_of(n.call)
        if layout is None:
            sizes = {"K": "layers times directions", "I": "input size", "H": "size of h", "N": "units"}
            unknown = [text for symbol, text in sizes.items() if not isinstance(n.call.sizes.get(symbol), int)]
            raise n.unsupported("params", "sizes known before the run, for its layout", f"unknown {unknown[0]}")
        lengths, x = n.get("sequence_lengths", None), major(n, n.input)
        full = lengths is None or all_full(n.value("sequence_lengths"), n.call.sizes.get("T"), b.facts)
        running = None if full else running_steps(lengths, n.size("T"))
        return cls(n, layout, x if running is None else b.where(running, x, 0), running)

    @property
    def builder(self) -> Builder:
        """Where nodes go."""
        return self.x.builder

    def states(self, operand: str) -> list[Expr]:
        """The pseudo-layers' rows of a state `[K, B, .]`."""
        stacked = major(self.n, getattr(self.n, operand))
        count = self.layout.pseudo_layers
        rows = stacked.split(count, axis=0) if count > 1 else [stacked]
        return [row.squeeze(0) for row in rows]

    def forward(self, masks: list[Expr], output: Expr | None = None) -> tuple[list[LayerRun], list[Forward], Expr]:
        """Runs all layers; with `output` `[T, B, D*H]` at hand, the top one without its recurrence.

        Returns:
            Per pseudo-layer its pass and what the pass left, and the network's output.
        """
        layout, runs, results = self.layout, [], []
        h0 = self.states("input_h")
        c0 = self.states("input_c") if layout.rnn_mode == "lstm" else [None] * layout.pseudo_layers
        x = self.x
        for layer in range(layout.num_layers):
            if layer and masks:
                x = x * masks[layer - 1]
            known = output if layer == layout.num_layers - 1 else None
            halves = halve(known, layout.directions) if known is not None else [None] * layout.directions
            outputs = []
            for direction, half in enumerate(halves):
                p = layer * layout.directions + direction
                weights = weights_of(self.n.params, layout.table[p])
                run = LayerRun(
                    cell_of(layout.rnn_mode), weights, x, h0[p], c0[p], self.running, len(layout.gates), direction == 1
                )
                results.append(forward(run) if half is None else recompute(run, half))
                runs.append(run)
                outputs.append(results[-1].y)
            x = concat(outputs, -1) if len(outputs) > 1 else outputs[0]
        return runs, results, x


def major(n: Node, value: Expr) -> Expr:
    """Between the node's order of axes and time major; its own inverse."""
    return value if n.get("time_major", True) else value.transpose(1, 0, 2)


def halve(sequence: Expr, directions: int) -> list[Expr]:
    """The directions' parts of an output `[T, B, D*H]`."""
    return [sequence] if directions == 1 else sequence.split(2, axis=-1)


@lowers(CudnnRNN, CudnnRNNV2, CudnnRNNV3)
def cudnn_rnn(n: Node, b: Builder) -> list[Expr]:
    """All layers one after the other; reserve_space is the dropout masks between them."""
    network = Network.of(n, b)
    dtype = n.call.types["T"] or n.input.dtype
    drops = n.is_training and n.dropout > 0 and network.layout.num_layers > 1
    if not drops and standard_operators_suffice(n, network.layout):
        return standard_inference(n, b, network)
    reserve_space = draw_masks(n, b, network.layout, network.x).cast(dtype) if drops else b.fill(0, [0], dtype)
    # Read back from reserve_space, as backward does, so that both compute the very same.
    masks = read_masks(reserve_space.cast(n.input.dtype), network.layout, network.x) if drops else []
    _, results, output = network.forward(masks)
    cells = [result.c for result in results if result.c is not None]
    return [
        major(n, output),
        major(n, stack([result.h for result in results])),
        major(n, stack(cells)) if cells else b.constant(0, n.input.dtype),
        reserve_space,
        b.fill(0, [0], ir.DataType.INT8),
    ]


def standard_operators_suffice(n: Node, layout: ParamsLayout) -> bool:
    """Whether only inference is asked for, of a network that the standard operators know."""
    training = any(n.used(output) for output in ("reserve_space", "host_reserved"))
    known = n.input.dtype == ir.DataType.FLOAT and not layout.projects and not layout.skip_input
    return n.standard_rnn and known and not training


def standard_inference(n: Node, b: Builder, network: Network) -> list[Expr]:
    """One LSTM, GRU or RNN node per layer; see `standard_rnn`."""
    layout, count = network.layout, network.layout.directions
    lengths = None if network.running is None else clamped_lengths(n)
    h0 = major(n, n.input_h)
    c0 = major(n, n.input_c) if layout.rnn_mode == "lstm" else None
    x, results = major(n, n.input), []
    for layer in range(layout.num_layers):
        first = layer * count
        weights = [weights_of(n.params, row) for row in layout.table[first : first + count]]
        rows = [state and state.slice(first, first + count, axis=0) for state in (h0, c0)]
        results.append(
            standard_layer(
                layout.rnn_mode,
                x,
                [DirectionWeights(given(w.W), w.R, w.bW, w.bR) for w in weights],
                given(rows[0]),
                rows[1],
                lengths,
                units=layout.num_units,
            )
        )
        x = results[-1].y
    cells = [result.c for result in results if result.c is not None]
    return [
        major(n, x),
        major(n, concat([result.h for result in results], 0)),
        major(n, concat(cells, 0)) if cells else b.constant(0, n.input.dtype),
    ]


@lowers(CudnnRNNBackprop, CudnnRNNBackpropV2, CudnnRNNBackpropV3)
def cudnn_rnn_backprop(n: Node, b: Builder) -> list[Expr]:
    """Reverse mode of `cudnn_rnn`, from the top layer down."""
    network = Network.of(n, b)
    layout = network.layout
    masks = []
    if n.dropout > 0 and layout.num_layers > 1:
        masks = read_masks(n.reserve_space, layout, network.x)
    runs, results, _ = network.forward(masks, output_at_hand(n))
    dy = major(n, n.output_backprop)
    dh = network.states("output_h_backprop")
    dc = network.states("output_c_backprop") if layout.rnn_mode == "lstm" else [None] * layout.pseudo_layers
    grads: list[Backward] = []
    for layer in reversed(range(layout.num_layers)):
        parts = []
        for direction, half in enumerate(halve(dy, layout.directions)):
            p = layer * layout.directions + direction
            parts.append(backward(runs[p], results[p], half, dh[p], dc[p]))
        grads[:0] = parts
        dy = sum((part.x for part in parts[1:]), parts[0].x)
        if layer and masks:
            dy = dy * masks[layer - 1]
    cells = [grad.c0 for grad in grads if grad.c0 is not None]
    weights = [part for grad in grads for part in grad.matrices] + [part for grad in grads for part in grad.biases]
    return [
        major(n, dy),
        major(n, stack([grad.h0 for grad in grads])),
        major(n, stack(cells)) if cells else b.zeros_like(n.input_c),
        concat([part.reshape(-1) for part in weights], 0),
    ]


def output_at_hand(n: Node) -> Expr | None:
    """The forward output `[T, B, D*H]` where no forward op computes it in this graph; `None` elsewhere.

    Halves are recomputed step by step all the same: a forward pass in float32 is more accurate than its rounded output.
    """
    value = n.value("output")
    if value is None or value.producer() is not None or value.dtype != n.input.dtype:
        return None
    return major(n, n.output)


# Lowering of the ops on cuDNN's params buffer: a constant, slices, and a concatenation, read off the layout table.


def known_layout(n: Node) -> ParamsLayout:
    """The layout.

    Raises:
        UnsupportedOpError: one of the sizes is not a constant.
    """
    layout = layout_of_params(n.call)
    if layout is None:
        open_size = next(name for name in n.op.static_operands if n.constant(name) is None)
        raise n.unsupported(open_size, "a constant, since the layout of params depends on it", "a run-time value")
    return layout


@lowers(CudnnRNNParamsSize)
def params_size(n: Node, b: Builder) -> Expr:
    """The size is known."""
    return b.constant([known_layout(n).size], n.S)


@lowers(CudnnRNNParamsToCanonical, CudnnRNNParamsToCanonicalV2)
def params_to_canonical(n: Node, b: Builder) -> list[Expr]:
    """One slice per part."""
    layout = known_layout(n)
    return [
        n.params.slice(block.offset, block.end, axis=0).reshape(*block.shape)
        if block.size
        else b.fill(0, block.shape, n.params.dtype)
        for block in (*layout.canonical_weights(), *layout.canonical_biases())
    ]


@lowers(CudnnRNNCanonicalToParams, CudnnRNNCanonicalToParamsV2)
def canonical_to_params(n: Node, _: Builder) -> Expr:
    """All parts end to end."""
    layout = known_layout(n)

    def flat(parts: list[Expr], blocks: list[ParamsBlock]) -> list[Expr]:
        return [part.reshape(-1) for part, block in zip(parts, blocks, strict=True) if block.size]

    weights = flat(n.variadic("weights"), layout.canonical_weights())
    return concat([*weights, *flat(n.variadic("biases"), layout.canonical_biases())], 0)
