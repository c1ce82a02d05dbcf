"""Configurations of the cuDNN ops for tests, and operands for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

STEPS, BATCH, INPUT, UNITS, PROJ = 5, 3, 3, 4, 2
GATE_COUNT = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@dataclasses.dataclass(frozen=True)
class Case:
    """One configuration of CudnnRNNV3 and its Backprop."""

    mode: str = "lstm"
    layers: int = 1
    bidirectional: bool = False
    skip: bool = False
    ragged: bool = False
    batch_major: bool = False
    masks: bool = False
    proj: int = 0
    steps: int = STEPS
    batch: int = BATCH

    def __str__(self) -> str:
        flags = ("bidirectional", "skip", "ragged", "batch_major", "masks")
        return "-".join(
            [
                self.mode,
                f"{self.layers}l",
                *(name for name in flags if getattr(self, name)),
                *(["proj"] * bool(self.proj)),
            ]
        )

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def input_size(self) -> int:
        return UNITS if self.skip else INPUT

    @property
    def hidden(self) -> int:
        return self.proj or UNITS

    @property
    def params_size(self) -> int:
        """Counted here on its own, not read from the package."""
        gates = GATE_COUNT[self.mode] * UNITS
        total = 0
        for layer in range(self.layers):
            width = (0 if self.skip else INPUT) if layer == 0 else self.directions * self.hidden
            total += self.directions * (gates * (width + self.hidden + 2) + self.proj * UNITS)
        return total

    @property
    def lengths(self) -> np.ndarray[Any, Any]:
        """Ragged ones hold 0, T and something in between."""
        if not self.ragged:
            return np.full(self.batch, self.steps, np.int32)
        return np.array([(0, self.steps, 3, 1)[row % 4] for row in range(self.batch)], np.int32)

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of both V3 ops."""
        return {
            "rnn_mode": self.mode,
            "input_mode": "skip_input" if self.skip else "linear_input",
            "direction": "bidirectional" if self.bidirectional else "unidirectional",
            "dropout": 0.25 if self.masks else 0.0,
            "num_proj": self.proj,
            "time_major": not self.batch_major,
        }

    def major(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Between time-major order and the case's own."""
        return np.ascontiguousarray(array.swapaxes(0, 1)) if self.batch_major else array

    def operands(self, seed: int = 0, dtype: Any = np.float64) -> dict[str, Any]:
        """Operands of CudnnRNNBackpropV3 (those of the forward op among them), random, in the case's order of axes."""
        rng = np.random.default_rng(seed)

        def draw(*shape: int, scale: float = 1.0) -> np.ndarray[Any, Any]:
            return (rng.standard_normal(shape) * scale).astype(dtype)

        lstm, states = self.mode == "lstm", (self.layers * self.directions, self.batch)
        sequence = (self.steps, self.batch)
        width = self.directions * self.hidden
        mask = np.zeros(0)
        if self.masks:
            mask = (rng.random((self.layers - 1, *sequence, width)) >= 0.25).ravel() / 0.75

        def cell() -> np.ndarray[Any, Any]:
            return self.major(draw(*states, UNITS)) if lstm else np.zeros((), dtype)

        return {
            "input": self.major(draw(*sequence, self.input_size)),
            "input_h": self.major(draw(*states, self.hidden)),
            "input_c": cell(),
            "params": draw(self.params_size, scale=0.5),
            "sequence_lengths": self.lengths,
            "output": self.major(np.zeros((*sequence, width), dtype)),
            "output_h": self.major(np.zeros((*states, self.hidden), dtype)),
            "output_c": self.major(np.zeros((*states, UNITS), dtype)) if lstm else np.zeros((), dtype),
            "output_backprop": self.major(draw(*sequence, width)),
            "output_h_backprop": self.major(draw(*states, self.hidden)),
            "output_c_backprop": cell(),
            "reserve_space": mask.astype(dtype),
            "host_reserved": np.zeros(0, np.int8),
        }


FORWARD = ("input", "input_h", "input_c", "params", "sequence_lengths")


def all_cases() -> Iterator[Case]:
    """Every combination that makes sense."""
    modes, flags = ("lstm", "gru", "rnn_tanh", "rnn_relu"), (False, True)
    for mode, layers, two, skip, ragged, batch_major in product(modes, (1, 2, 3), flags, flags, flags, flags):
        for masks in flags if layers > 1 else (False,):
            yield Case(mode, layers, two, skip, ragged, batch_major, masks)
    for layers, two, ragged, batch_major in product((1, 2, 3), flags, flags, flags):
        for masks in flags if layers > 1 else (False,):
            yield Case("lstm", layers, two, ragged=ragged, batch_major=batch_major, masks=masks, proj=PROJ)


CASES = tuple(all_cases())
