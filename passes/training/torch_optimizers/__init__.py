"""PyTorch's optimizers: the formulas and defaults of `torch.optim`, under its names.

They differ from those of `optimizers`, which are TensorFlow's and Keras', in where epsilon stands, in weight decay
(added to the gradient unless it is said to be decoupled) and in first steps.
"""

from lstm_lower.passes.training.torch_optimizers.base import HasMomentum
from lstm_lower.passes.training.torch_optimizers.descent import ASGD, SGD, Rprop
from lstm_lower.passes.training.torch_optimizers.moments import Adam, Adamax, AdamW, NAdam, RAdam
from lstm_lower.passes.training.torch_optimizers.roots import Adadelta, Adagrad, RMSprop

__all__ = [
    "ASGD",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "HasMomentum",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
]
