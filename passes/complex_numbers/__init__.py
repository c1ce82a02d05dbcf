"""Complex numbers as real ones with a last axis of two, their real and imaginary parts."""

from lstm_lower.passes.complex_numbers import arithmetic, moving  # noqa: F401 (fills the registry)
from lstm_lower.passes.complex_numbers.registry import by_parts as by_parts
