"""Types and shapes that follow from an operator's operands: the facet `infers` and its rules."""

from lstm_lower.graph.inference import (  # noqa: F401 (fills the registry)
    arrays,
    complex_numbers,
    control_flow,
    elementwise,
    images,
    reductions,
)
from lstm_lower.graph.inference.base import Inferred as Inferred
from lstm_lower.graph.inference.base import infers as infers
