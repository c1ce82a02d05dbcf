"""Passes on loops, each general, each in a file of its own."""
