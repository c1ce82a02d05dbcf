"""Graphs: their operators, facts about their values, the builder, names, verifier, dump."""
