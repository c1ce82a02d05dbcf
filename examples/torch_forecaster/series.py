"""Made-up loads of two buildings, hour by hour: an office by day, and a bakery that works at night."""

from __future__ import annotations

import numpy as np

DAY = 24


def load(building: str, days: int, seed: int) -> np.ndarray:
    """The load of each hour, around 0; how busy a day is changes slowly.

    Args:
        building: `office` or `bakery`.
        days: how many.
        seed: of the noise.
    """
    random = np.random.default_rng(seed)
    hour = np.arange(days * DAY) % DAY
    if building == "office":
        shape = np.exp(-(((hour - 13) / 4.0) ** 2))
    else:
        shape = np.exp(-(((hour - 3) / 2.0) ** 2)) + 0.4 * np.exp(-(((hour - 16) / 1.5) ** 2))
    busy = 1 + 0.4 * np.sin(np.arange(days) / 5 + random.uniform(0, 6))
    noise = random.normal(scale=0.05, size=hour.shape)
    return (1.5 * shape * np.repeat(busy, DAY) + noise - 0.5).astype(np.float32)


def windows(loads: np.ndarray, days: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """All stretches of some days, [N, T, 1], and the day that follows each, [N, 24]."""
    starts = range(len(loads) - (days + 1) * DAY + 1)
    past = np.stack([loads[start : start + days * DAY] for start in starts])
    following = np.stack([loads[start + days * DAY : start + (days + 1) * DAY] for start in starts])
    return past[..., None], following
