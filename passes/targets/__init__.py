"""Targets: runtimes, what they lack, and what a model needs to be run by them."""
