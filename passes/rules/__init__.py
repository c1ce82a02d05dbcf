"""Lowering rules, one file per family of ops."""
