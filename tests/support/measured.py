"""What a worker's process makes in tests; it is imported there by name."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.measuring.worker import Measured


class Filler(Measured):
    """Fills an array of some bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.facts = {"threads": os.environ["OMP_NUM_THREADS"], "process": os.getpid()}

    def run(self) -> np.ndarray:
        sys.stdout.write("what a library says\n")
        return np.ones(self.size, np.uint8)

    def refuse(self, what: str) -> None:
        raise ValueError(f"not {what}")

    def end(self) -> None:
        os._exit(3)


class EndsAfter(Measured):
    """Ends its process in a run after some that are timed."""

    def __init__(self, good_runs: int) -> None:
        self.left = good_runs
        self.facts: dict[str, str] = {}

    def run(self) -> None:
        pass

    def times(self, count: int) -> list[float]:
        if not self.left:
            os._exit(3)
        self.left -= 1
        return count * [0.01]


class Fragmented(Measured):
    """Fills `count` arrays of 3 MB, keeps the last of them, and then fills one that is as large as all of them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.facts: dict[str, str] = {}

    def run(self) -> tuple[np.ndarray, np.ndarray]:
        parts = [np.ones(3 * 2**20, np.uint8) for _ in range(self.count)]
        last = parts.pop()
        del parts
        return last, np.ones(3 * 2**20 * self.count, np.uint8)


def refused() -> Measured:
    raise ValueError("no such thing")


def missing() -> Measured:
    import no_such_package  # noqa: F401

    raise AssertionError


class ProviderRun(Measured):
    """Stands for a model on a provider: a wrong result, a refusal, and times that are known."""

    def __init__(self, path: str, _feeds: object, _threads: int, provider: str, _precision: str | None) -> None:
        if provider == "webgpu":
            raise InvalidInputError("provider 'webgpu' finds no device")
        assert Path(path).is_file()
        self.provider, self.facts = provider, {"load_seconds": 0.5}

    def run(self) -> None:
        pass

    def times(self, count: int) -> list[float]:
        if self.provider == "coreml":
            raise RuntimeError("it fails\nafter a while")
        return count * [{"cpu": 0.02, "ggml": 0.001, "cuda": 0.005}[self.provider]]

    def results(self) -> dict[str, np.ndarray]:
        return {"y": np.full((4, 16), 2.0 if self.provider == "ggml" else 1.0, np.float32)}
