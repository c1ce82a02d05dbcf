"""A report of a model's lowering: one HTML page that opens without a network."""
