"""Edits of training steps: accumulation and clipping of gradients, optimizer updates, a learning-rate input."""
