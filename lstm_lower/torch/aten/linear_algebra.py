"""Products, factorizations and solutions of linear systems."""
