"""Lowering of the cuDNN sequence ops: layers of Scans over cells; backward recomputes the forward pass.

The forward op and the backward op emit the same forward Scans, so that in a graph that holds both they merge and
nothing is computed twice. Where only the backward op is there, `output` is an input of the graph, and the top layer's
gates come from it in one product.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.layouts import ParamsLayout
from lstm_lower.ops.cudnn import (
    CudnnRNN,
    CudnnRNNBackprop,
    CudnnRNNBackpropV2,
    CudnnRNNBackpropV3,
    CudnnRNNV2,
    CudnnRNNV3,
    layout_of,
)
from lstm_lower.passes.formulas.cudnn_cells import cell_of, given
from lstm_lower.passes.formulas.cudnn_lengths import all_full, running_steps
from lstm_lower.passes.rules.cudnn_dropout import draw_masks, read_masks
from lstm_lower.passes.rules.cudnn_layers import Backward, Forward, Run, backward, forward, recompute, weights_of
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.passes.rules.standard_rnn import DirectionWeights, clamped_lengths, standard_layer


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

    def forward(self, masks: list[Expr], output: Expr | None = None) -> tuple[list[Run], list[Forward], Expr]:
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
                run = Run(
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


def stack(rows: list[Expr]) -> Expr:
    """The pseudo-layers' states as one `[K, B, .]`."""
    return concat([row.unsqueeze(0) for row in rows], 0) if len(rows) > 1 else rows[0].unsqueeze(0)


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
