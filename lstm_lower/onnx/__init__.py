"""Training steps made of ONNX models."""

from lstm_lower.onnx.heads import replace_head, split_head
from lstm_lower.onnx.importer import from_onnx

__all__ = ["from_onnx", "replace_head", "split_head"]
