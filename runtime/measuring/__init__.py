"""Measuring: what is compared runs in processes of its own that take turns; times, memory, profiles."""
