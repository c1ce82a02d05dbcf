"""Parts of a training loop: the state, the model, the optimizer, and a schedule of its learning rate."""

from lstm_lower.ort_training.api.module import Module
from lstm_lower.ort_training.api.optimizer import LinearLRScheduler, Optimizer
from lstm_lower.ort_training.checkpoint_state import CheckpointState

__all__ = ["CheckpointState", "LinearLRScheduler", "Module", "Optimizer"]
