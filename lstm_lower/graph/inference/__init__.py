"""Types and shapes that follow from an operator's operands: the facet `infers` and its rules."""

from lstm_lower.graph.inference import arrays, control_flow, elementwise, images, reductions  # noqa: F401 (fills the registry)
from lstm_lower.graph.inference.base import Inferred as Inferred
from lstm_lower.graph.inference.base import infers as infers
