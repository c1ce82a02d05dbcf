"""Operators as formulas of simpler ones: what a gradient, or a target without the operator, is made of."""

from lstm_lower.passes.decompositions import (  # noqa: F401 (fills the registry)
    arrays,
    fourier,
    images,
    losses,
    normalization,
    quantization,
    recurrent,
)
from lstm_lower.passes.rewriting import decomposes as decomposes
