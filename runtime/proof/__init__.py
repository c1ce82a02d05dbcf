"""Evidence: oracles, a float64 evaluator, and the check that compares with them."""
