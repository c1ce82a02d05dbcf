"""Float64 numpy oracles: what each op computes, written as its equations."""
