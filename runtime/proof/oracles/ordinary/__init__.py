"""Float64 oracles of TensorFlow's ordinary ops."""
