"""TensorFlow's messages and checkpoints, read and written without TensorFlow."""
