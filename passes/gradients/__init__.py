"""Gradients: reverse mode over ONNX graphs, a vector-Jacobian product per operator."""
