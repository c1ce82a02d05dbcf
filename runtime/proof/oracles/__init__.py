"""Float64 numpy oracles: what each op computes, written as its equations.

`registry.ORACLES` and `finite_differences.PAIRINGS` import every module here when they are first read.
"""
