"""Blocks that stack nodes on a model by the names of its values: losses, optimizers, and what these are built of."""

from lstm_lower.ort_training.onnxblock import blocks, loss, optim
from lstm_lower.ort_training.onnxblock.accessor import base, custom_op_library, empty_base
from lstm_lower.ort_training.onnxblock.blocks import Block
from lstm_lower.ort_training.onnxblock.building import ForwardBlock, TrainingBlock
from lstm_lower.ort_training.onnxblock.checkpoints import load_checkpoint_to_model, save_checkpoint

__all__ = [
    "Block",
    "ForwardBlock",
    "TrainingBlock",
    "base",
    "blocks",
    "custom_op_library",
    "empty_base",
    "load_checkpoint_to_model",
    "loss",
    "optim",
    "save_checkpoint",
]
