"""Shapes, layout and order of arrays."""
