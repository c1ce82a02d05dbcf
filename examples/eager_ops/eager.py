"""Calls TensorFlow's recurrent ops, forward and backward, without TensorFlow.

Usage: python examples/eager_ops/eager.py
"""

from __future__ import annotations

import numpy as np

import lstm_lower as ll


def main() -> None:
    """Compares a gradient with a finite difference."""
    rng = np.random.default_rng(0)
    steps, batch, inputs, units = 6, 2, 3, 4

    def random(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape)

    weights = {
        "cs_prev": random(batch, units),
        "h_prev": random(batch, units),
        "w": random(inputs + units, 4 * units) / 4,
        "wci": random(units),
        "wcf": random(units),
        "wco": random(units),
        "b": random(4 * units),
    }
    operands = {name: array.astype(np.float32) for name, array in weights.items()}
    operands["x"] = random(steps, batch, inputs).astype(np.float32)
    length = np.int64(steps)
    forward = ll.raw_ops.BlockLSTM(seq_len_max=length, **operands, use_peephole=True)
    direction = random(steps, batch, units).astype(np.float32)
    backward = ll.raw_ops.BlockLSTMGrad(
        seq_len_max=length,
        **operands,
        **forward._asdict(),
        cs_grad=np.zeros_like(direction),
        h_grad=direction,
        use_peephole=True,
    )

    def loss(w: np.ndarray) -> float:
        h = ll.raw_ops.BlockLSTM(seq_len_max=length, **(operands | {"w": w}), use_peephole=True).h
        return float((h.astype(np.float64) * direction).sum())

    towards = random(*operands["w"].shape).astype(np.float32)
    step = 1e-2
    slope = (loss(operands["w"] + step * towards) - loss(operands["w"] - step * towards)) / (2 * step)
    exact = float((backward.w_grad * towards).sum())
    print(f"gradient along a direction: {exact:.4f}, by finite differences: {slope:.4f}")
    assert abs(exact - slope) < 1e-2 * max(1.0, abs(exact))


if __name__ == "__main__":
    main()
