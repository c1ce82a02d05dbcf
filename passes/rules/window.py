"""The part of its sequences that an op with `seq_len_max` looks at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.passes.rules.registry import Node

# One step of a loop: states and inputs to new states and outputs.
Body = Callable[[list[Expr], list[Expr]], tuple[list[Expr], list[Expr]]]


class Window:
    """The steps 0 .. seq_len_max-1 of the sequences of a node: cuts inputs to it and pads outputs from it.

    Outside 0..T, which only a run-time seq_len_max can be, it is clamped. When it is known to be T, nothing is cut.
    """

    def __init__(self, n: Node, b: Builder) -> None:
        self._node, self._builder = n, b
        steps, length = n.size("T"), n.constant("seq_len_max")
        self.whole = n.is_size("seq_len_max", "T")
        self._steps = steps
        self.length: int | Expr
        if length is not None:
            self.length = int(length)
        elif self.whole:
            self.length = steps
        else:
            self.length = n.seq_len_max.reshape(1).maximum(0).minimum(b.sizes([steps]))

    def scan(
        self,
        body: Body,
        *,
        states: Sequence[Expr],
        inputs: Sequence[Expr],
        outputs: Sequence[str],
        reverse: bool = False,
    ) -> tuple[list[Expr], list[Expr]]:
        """Emits a Scan over the window.

        Args:
            body: one step, as `Builder.scan` takes it.
            states: initial states; also the final ones of an empty window.
            inputs: sequences, cut to the window.
            outputs: the dimension symbols of each step's outputs.
            reverse: walk from the last step to the first.

        Returns:
            Final states and the outputs of the window's steps.
        """
        n, b = self._node, self._builder
        dtype = inputs[0].dtype

        def run(builder: Builder) -> list[Expr]:
            final, sequences = builder.scan(body, states=states, inputs=inputs, reverse=reverse)
            return [*final, *sequences]

        def nothing(builder: Builder) -> list[Expr]:
            sizes = [[n.size(symbol) for symbol in symbols.split()] for symbols in outputs]
            return [*states, *(builder.fill(0, [0, *step], dtype) for step in sizes)]

        if isinstance(self.length, int):
            results = run(b) if self.length > 0 else nothing(b)
        elif self.whole:
            results = run(b)
        else:
            # onnxruntime refuses a Scan over no steps.
            results = b.branch((self.length > 0).reshape(), run, nothing)
        return results[: len(states)], results[len(states) :]

    def cut(self, sequence: Expr) -> Expr:
        """The first seq_len_max steps of [T, ...]."""
        return sequence if self.whole else sequence.slice(0, self.length, axis=0)

    def shifted(self, first: Expr, sequence: Expr) -> Expr:
        """Each step's previous value [seq_len_max, ...]: `first`, then the sequence without its last step."""
        # Joined first and cut after: the other order would leave one step of a sequence of none.
        joined = concat([first.unsqueeze(0), sequence], 0)
        return joined.slice(0, -1 if self.whole else self.length, axis=0)

    def pad(self, sequence: Expr) -> Expr:
        """Zeros for the steps from seq_len_max on."""
        if self.whole:
            return sequence
        b = sequence.builder
        missing = b.sizes([self._steps]) - b.sizes([self.length])
        pads = b.concat([b.ints(0, 0, 0), missing, b.ints(0, 0)], 0)
        padded = b.op(std.Pad, sequence, pads)
        if sequence.shape is not None:
            steps = self._steps if isinstance(self._steps, int) else None
            return b.set_shape(padded, (steps, *sequence.shape[1:]))
        return padded
