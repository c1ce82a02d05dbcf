"""Time and memory, measured from a checkout: `python -m benchmarks --help`."""

# Before onnxruntime, which reports nothing then.
import lstm_lower  # noqa: F401
