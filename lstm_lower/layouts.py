"""The layout of cuDNN's params buffer, as one table.

TensorFlow calls `params` opaque; cuDNN's linear layout is fixed all the same. For pseudo-layer p = layer * D +
direction (D = 1 or 2, direction 0 forward, 1 reverse) with G gates, first every matrix, then every bias, unpadded:

    for p:  W_0 .. W_{G-1} each [N, in_p],  R_0 .. R_{G-1} each [N, H],  (P [num_proj, N] when projecting)
    for p:  bW_0 .. bW_{G-1},  bR_0 .. bR_{G-1} each [N]

in_p is the input size I in layer 0 (0 under skip_input, which has no input matrices) and D*H above it; H = num_proj
when projecting, else N. Matrices are [out, in], row-major. Gate order: lstm i, f, c, o; gru r, u, n.

Sources: Keras' packer (`keras/src/backend/tensorflow/rnn.py`) for one layer, JAX `jax.experimental.rnn` and MXNet
`rnn_impl.h` for several layers and directions; TensorFlow's `cuda_dnn.cc` projects only when num_proj < num_units.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from lstm_lower.errors import MisfitError, requires

GATES: dict[str, tuple[str, ...]] = {
    "lstm": ("i", "f", "c", "o"),
    "gru": ("r", "u", "n"),
    "rnn_relu": ("h",),
    "rnn_tanh": ("h",),
}
INPUT_MODES = ("linear_input", "skip_input", "auto_select")
DIRECTIONS = {"unidirectional": 1, "bidirectional": 2}

# Every layer is a part of the lowered graph; a damaged operand may name any number.
MOST_LAYERS = 1024
MOST_UNITS = 1 << 20


class LayoutError(MisfitError):
    """Sizes that contradict each other or the buffer."""

    def __str__(self) -> str:
        return requires("params layout", None, self.operand, self.what, self.got)


@dataclass(frozen=True)
class ParamsBlock:
    """A contiguous part of the buffer.

    Attributes:
        name: `W` input matrices, `R` recurrent ones, `P` projection, `bW` and `bR` their biases.
        offset: index of the first element in the buffer.
        shape: row-major; all gates stacked along the first axis, or one gate's rows.
    """

    name: str
    offset: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def end(self) -> int:
        """Index one past the last element."""
        return self.offset + self.size


@dataclass(frozen=True)
class PseudoLayer:
    """One layer in one direction: where its matrices and biases lie, all gates stacked.

    Attributes:
        layer: 0 is nearest the input.
        direction: 0 forward, 1 reverse.
        W: `[G*N, in_p]`; `[G*N, 0]` in the first layer under skip_input.
        R: `[G*N, H]`.
        P: `[num_proj, N]`, or None without a projection.
        bW: `[G*N]`.
        bR: `[G*N]`.
    """

    layer: int
    direction: int
    W: ParamsBlock
    R: ParamsBlock
    P: ParamsBlock | None
    bW: ParamsBlock
    bR: ParamsBlock

    @property
    def weights(self) -> tuple[ParamsBlock, ...]:
        """The matrices, in buffer order."""
        return (self.W, self.R) if self.P is None else (self.W, self.R, self.P)

    @property
    def biases(self) -> tuple[ParamsBlock, ...]:
        """The biases, in buffer order."""
        return (self.bW, self.bR)


@dataclass(frozen=True)
class ParamsLayout:
    """Where every matrix and bias of a cuDNN recurrent network lies in its params buffer.

    Attributes:
        rnn_mode: `lstm`, `gru`, `rnn_relu` or `rnn_tanh`.
        num_layers: L, 1 to `MOST_LAYERS`.
        directions: D, 1 or 2.
        input_size: I.
        num_units: N >= 1, the size of the gates and of the cell state.
        num_proj: 0, or the size of the projected output (lstm only, at most num_units).
        skip_input: the first layer adds its input to the gates as it stands (needs I == N).

    Raises:
        LayoutError: the sizes contradict each other.
    """

    rnn_mode: str
    num_layers: int
    directions: int
    input_size: int
    num_units: int
    num_proj: int = 0
    skip_input: bool = False

    def __post_init__(self) -> None:
        if self.rnn_mode not in GATES:
            raise LayoutError("rnn_mode", f"one of {', '.join(GATES)}", repr(self.rnn_mode))
        if self.directions not in (1, 2):
            raise LayoutError("direction", "1 or 2 directions", self.directions)
        for name, value, least, most in (
            ("num_layers", self.num_layers, 1, MOST_LAYERS),
            ("num_units", self.num_units, 1, MOST_UNITS),
            ("input_size", self.input_size, 0, MOST_UNITS),
            ("num_proj", self.num_proj, 0, MOST_UNITS),
        ):
            if value < least:
                raise LayoutError(name, f"at least {least}", value)
            if value > most:
                raise LayoutError(name, f"at most {most}", value)
        if self.num_proj and self.rnn_mode != "lstm":
            raise LayoutError("num_proj", f"0 under rnn_mode {self.rnn_mode} (only lstm projects)", self.num_proj)
        if self.num_proj > self.num_units:
            raise LayoutError("num_proj", f"at most num_units = {self.num_units}", self.num_proj)
        if self.skip_input and self.input_size != self.num_units:
            what = f"input size = num_units = {self.num_units} under skip_input (the first layer has no input matrix)"
            raise LayoutError("input", what, f"input size {self.input_size}")

    @property
    def gates(self) -> tuple[str, ...]:
        """Names of the gates in buffer order."""
        return GATES[self.rnn_mode]

    @property
    def projects(self) -> bool:
        """Whether there are projection matrices: num_proj = num_units means none (TensorFlow's cuda_dnn.cc)."""
        return 0 < self.num_proj < self.num_units

    @property
    def hidden_size(self) -> int:
        """H: the size of h, and of one direction's output."""
        return self.num_proj or self.num_units

    @property
    def output_size(self) -> int:
        """D*H: the width of the output."""
        return self.directions * self.hidden_size

    @property
    def pseudo_layers(self) -> int:
        """L*D: the first (time-major) axis of the states."""
        return self.num_layers * self.directions

    def input_width(self, layer: int) -> int:
        """Width of what a layer reads: I, or D*H above the first."""
        return self.input_size if layer == 0 else self.output_size

    @cached_property
    def table(self) -> tuple[PseudoLayer, ...]:
        """Every pseudo-layer's blocks, in order."""
        rows = len(self.gates) * self.num_units
        sites = [(layer, direction) for layer in range(self.num_layers) for direction in range(self.directions)]
        offset = 0

        def take(name: str, *shape: int) -> ParamsBlock:
            nonlocal offset
            block = ParamsBlock(name, offset, shape)
            offset = block.end
            return block

        matrices: list[tuple[ParamsBlock, ParamsBlock, ParamsBlock | None]] = []
        for layer, _ in sites:
            width = 0 if self.skip_input and layer == 0 else self.input_width(layer)
            w = take("W", rows, width)
            r = take("R", rows, self.hidden_size)
            p = take("P", self.num_proj, self.num_units) if self.projects else None
            matrices.append((w, r, p))
        return tuple(
            PseudoLayer(layer, direction, w, r, p, take("bW", rows), take("bR", rows))
            for (layer, direction), (w, r, p) in zip(sites, matrices, strict=True)
        )

    @property
    def blocks(self) -> tuple[ParamsBlock, ...]:
        """Every stacked block in buffer order; together they cover the buffer without gaps."""
        weights = [block for row in self.table for block in row.weights]
        return (*weights, *(block for row in self.table for block in row.biases))

    @property
    def size(self) -> int:
        """Elements in the whole buffer (CudnnRNNParamsSize)."""
        return self.table[-1].bR.end

    def canonical_weights(self) -> list[ParamsBlock]:
        """The `weights` of CudnnRNNParamsToCanonical: per pseudo-layer a matrix per gate, then the projection."""
        return [part for row in self.table for block in row.weights for part in self._per_gate(block)]

    def canonical_biases(self) -> list[ParamsBlock]:
        """The `biases` of CudnnRNNParamsToCanonical: per pseudo-layer a vector per gate, input side first."""
        return [part for row in self.table for block in row.biases for part in self._per_gate(block)]

    def _per_gate(self, block: ParamsBlock) -> Iterator[ParamsBlock]:
        if block.name == "P":
            yield block
            return
        shape = (self.num_units, *block.shape[1:])
        for index, gate in enumerate(self.gates):
            yield ParamsBlock(f"{block.name}_{gate}", block.offset + index * prod(shape), shape)

    def explain(self) -> str:
        """How the size is made up, layer by layer, for error messages."""
        g, n = len(self.gates), self.num_units
        parts = []
        # Above the first, all layers are alike.
        for row in self.table[: 2 * self.directions : self.directions]:
            single = row.layer == 0 or self.num_layers == 2
            name = f"layer {row.layer}" if single else f"layers 1 to {self.num_layers - 1}, each"
            terms = " + ".join(f"{block.shape[0]}x{block.shape[1]} {block.name}" for block in row.weights if block.size)
            parts.append(f"{name}: {self.directions} x ({terms} + 2x{g * n} biases)")
        return f"{self.rnn_mode}, {g} gates of {n} units; " + "; ".join(parts)

    def check_size(self, got: int) -> None:
        """Refuses a params buffer that does not have this layout.

        Raises:
            LayoutError: naming the expected length and how it is made up.
        """
        if got != self.size:
            raise LayoutError("params", f"length {self.size} ({self.explain()})", f"length {got}")


def resolve_skip_input(input_mode: str, input_size: int, hidden_size: int) -> bool:
    """Whether the first layer has no input matrix.

    Args:
        input_mode: `linear_input`, `skip_input`, or `auto_select`, which skips exactly when the sizes agree.
        input_size: I.
        hidden_size: last dimension of input_h (forward, backward) or num_units (params ops).

    Raises:
        LayoutError: for another input_mode.
    """
    if input_mode not in INPUT_MODES:
        raise LayoutError("input_mode", f"one of {', '.join(INPUT_MODES)}", repr(input_mode))
    return input_mode == "skip_input" or (input_mode == "auto_select" and input_size == hidden_size)
