"""Oracles of what needs no random numbers about the samplers of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.registry import oracle


@oracle("AllCandidateSampler")
def all_classes(
    *, true_classes: npt.ArrayLike, num_true: int, num_sampled: int, unique: bool, seed: int = 0, seed2: int = 0
) -> dict[str, npt.NDArray[Any]]:
    """Every class once."""
    return {
        "sampled_candidates": np.arange(num_sampled),
        "true_expected_count": np.ones(np.shape(true_classes)),
        "sampled_expected_count": np.ones(num_sampled),
    }


@oracle("ComputeAccidentalHits")
def accidental_hits(
    *, true_classes: npt.ArrayLike, sampled_candidates: npt.ArrayLike, num_true: int, seed: int = 0, seed2: int = 0
) -> dict[str, npt.NDArray[Any]]:
    """Row by row, class by class; of equal samples the last."""
    places = {int(sample): place for place, sample in enumerate(np.asarray(sampled_candidates))}
    classes = np.asarray(true_classes)
    hits = [(row, places[int(c)]) for row, own in enumerate(classes) for c in own if int(c) in places]
    return {
        "indices": np.array([row for row, _ in hits], np.int32),
        "ids": np.array([place for _, place in hits], np.int64),
        "weights": np.full(len(hits), float(np.finfo(np.float32).min)),
    }
