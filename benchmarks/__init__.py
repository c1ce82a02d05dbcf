"""Time and memory, measured from a checkout: `python -m benchmarks --help`."""
