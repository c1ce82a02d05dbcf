"""Definitions of TensorFlow's ordinary ops, which other converters know too."""
