"""Cases of what needs no random numbers about the samplers of classes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.gradient_cases import rng_of
from tests.support.ordinary.case import Case, text


def cases() -> Iterator[Case]:
    for rows, true, samples in [(4, 2, 7), (1, 1, 1), (0, 1, 3), (6, 3, 30)]:
        rng, what = rng_of("candidates", rows, true, samples), text(rows, true, samples)
        classes = rng.integers(0, samples, (rows, true))
        for name, sampled in (("once", rng.permutation(2 * samples)), ("again", rng.integers(0, 9, 2 * samples))):
            operands = {"true_classes": classes, "sampled_candidates": sampled[:samples]}
            yield Case("ComputeAccidentalHits", f"{name}-{what}", operands, {"num_true": true})
        attributes = {"num_true": true, "num_sampled": samples, "unique": samples > 1}
        yield Case("AllCandidateSampler", what, {"true_classes": classes}, attributes)
