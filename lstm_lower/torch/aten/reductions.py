"""Reductions, norms and cumulative sums."""
