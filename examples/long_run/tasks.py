"""Data of any size for two tasks, in shards: digits that look a little different each time, and made-up sentences.

Both come from a seed alone, so that Keras and onnxruntime see the same samples in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

Arrays = dict[str, np.ndarray]

LETTERS = "abcdefghijklmnopqrstuvwxyz ."
LENGTH = 32
_NAMES = ("anna", "bela", "carl", "dora", "emil", "finn", "gina", "hugo")
_VERBS = ("paints", "finds", "sells", "hides", "counts", "cleans")
_ADJECTIVES = ("old", "red", "tiny", "heavy", "bright", "broken")
_NOUNS = ("boat", "lamp", "clock", "stone", "bridge", "violin")


def digits(seed: int, samples: int) -> Arrays:
    """Images [N, 8, 8] in 0 .. 1 of the first 1,200 digits, moved by a pixel, fainter and noisy; and labels."""
    (images, labels), rng = _digits(), np.random.default_rng([1, seed])
    chosen = rng.integers(0, 1200, samples)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    right, down = rng.integers(0, 3, (2, samples))
    rows, columns = (np.arange(8)[None] + start[:, None] for start in (down, right))
    moved = padded[chosen[:, None, None], rows[:, :, None], columns[:, None, :]]
    noise = rng.normal(0, 0.1, moved.shape).astype(np.float32)
    x = np.clip(moved * rng.uniform(0.6, 1, (samples, 1, 1)).astype(np.float32) + noise, 0, 1)
    return {"x": x.astype(np.float32), "y": labels[chosen]}


def held_out_digits() -> tuple[Arrays, Arrays]:
    """Digits that no shard has: 200 for validation, 397 for the test."""
    images, labels = _digits()
    return tuple({"x": images[rows], "y": labels[rows]} for rows in (slice(1200, 1400), slice(1400, None)))


def characters(seed: int, samples: int) -> Arrays:
    """Pieces of text [N, 32] as numbers of letters, and the letters that follow. Who acts twice is named twice."""
    rng = np.random.default_rng([2, seed])
    needed, pieces = samples * (LENGTH + 1), []
    while needed > 0:
        draws = rng.integers(0, 2**16, (samples, 6))
        for name, verb, adjective, noun, second, last in draws.tolist():
            who = _NAMES[name % len(_NAMES)]
            first, then = _VERBS[verb % len(_VERBS)], _VERBS[second % len(_VERBS)]
            what, which = _NOUNS[noun % len(_NOUNS)], _ADJECTIVES[adjective % len(_ADJECTIVES)]
            pieces.append(f"{who} {first} the {which} {what} and {who} {then} the {_NOUNS[last % len(_NOUNS)]}. ")
            needed -= len(pieces[-1])
            if needed <= 0:
                break
    table = np.full(256, -1, np.int8)
    table[np.frombuffer(LETTERS.encode(), np.uint8)] = np.arange(len(LETTERS))
    numbers = table[np.frombuffer("".join(pieces).encode(), np.uint8)][: samples * (LENGTH + 1)]
    text = numbers.reshape(samples, LENGTH + 1)
    return {"x": text[:, :-1].astype(np.int64), "y": text[:, 1:].astype(np.int64)}


def held_out_characters() -> tuple[Arrays, Arrays]:
    """Text that no shard has, for validation and for the test."""
    return characters(1_000_001, 1000), characters(1_000_002, 1000)


# Megabytes of shards, and how many a training process may have.
MEGABYTES = {"digits": 350, "characters": 420}
LIMIT = {"digits": 320, "characters": 400}
# Samples per step.
BATCH = {"digits": 1024, "characters": 256}
TASKS = {"digits": (digits, held_out_digits), "characters": (characters, held_out_characters)}


def shards(task: str, megabytes: float, samples: int = 20_000) -> Iterator[Arrays]:
    """Shards of a task until they take so many megabytes together."""
    made, seed, left = TASKS[task][0], 0, megabytes * 1e6
    while left > 0:
        part = made(seed, samples)
        bytes_each = sum(array.nbytes for array in part.values()) / samples
        count = min(samples, max(1, int(left / bytes_each)))
        yield {name: array[:count] for name, array in part.items()}
        seed, left = seed + 1, left - samples * bytes_each


def write(task: str, megabytes: float, folder: Path) -> int:
    """Writes shards and the held-out data; returns how many bytes the shards take."""
    (folder / "shards").mkdir(parents=True)
    for number, part in enumerate(shards(task, megabytes)):
        np.savez(folder / "shards" / f"{number:04}.npz", **part)
    validation, test = TASKS[task][1]()
    np.savez(folder / "validation.npz", **validation)
    np.savez(folder / "test.npz", **test)
    return sum(path.stat().st_size for path in (folder / "shards").iterdir())


def _digits() -> tuple[np.ndarray, np.ndarray]:
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    return (data.images[order] / 16).astype(np.float32), data.target[order].astype(np.int64)
