"""Lowering of TensorFlow's ordinary ops."""
