"""`from_onnx`: any ONNX model and a loss as a training step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import onnx
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError
from lstm_lower.passes.driver import in_the_same_form, transform
from lstm_lower.passes.gradient_preparation import preparing_passes
from lstm_lower.passes.malformed import Source
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.targets.legalize import legalizing_passes
from lstm_lower.passes.training.evaluation import EvaluationPass
from lstm_lower.passes.training.layers import LayerStatePass
from lstm_lower.passes.training.losses import Loss
from lstm_lower.passes.training.objective import LossFunction, ObjectivePass, Trainable
from lstm_lower.passes.training.optimizers import Optimizer
from lstm_lower.passes.training.options import TrainingOptionsPass
from lstm_lower.passes.training.updates import Group
from lstm_lower.passes.widening import WideningPass

What = Literal["train", "gradients", "input_gradient", "forward"]
AnyOptimizer = Optimizer | Sequence[Group] | str


@in_the_same_form
def from_onnx(
    model: Source,
    loss: str | Loss | LossFunction,
    optimizer: AnyOptimizer | None = None,
    *,
    trainable: Trainable | None = None,
    what: What = "train",
) -> onnx.ModelProto | ir.Model:
    """Makes a training step of an ONNX model.

    Args:
        model: a path, a protobuf or an onnx_ir model. It is not changed.
        loss: the name of a scalar output; or a loss of the first output, by name (`cross_entropy`, `nll`,
            `bce_with_logits`, `bce`, `mse`, `l1`, `smooth_l1`, `huber`, `kl_div`, `ctc`, `hinge`, `poisson_nll`,
            `multi_margin`) or as an object of `lstm_lower.passes.training.losses`; or a function of expressions, called
            with the model's outputs in order and then with a target for each output, of that output's dtype and shape;
            targets that it does not read are not inputs.
        optimizer: an optimizer of `lstm_lower.passes.training`, its name (`sgd`, `momentum`, `adam`, `adamw`,
            `rmsprop`) or groups of weights with one each. `None` leaves it to the trainer.
        trainable: names or patterns (`encoder.*`) of weights, or a predicate on names; `None` for every initializer of
            a floating dtype that the loss depends on, except scalars, masks of infinities, and constants that belong
            to a formula (`passes.gradients.fixed_constants`: statistics of batch normalization, tables of rotary
            embeddings and transforms, windows, scales of quantized numbers), which are trained only where their exact
            name is given. Others stay constants. Of a model of `ll.lora` `None` trains its matrices alone.
        what: `train` for a step that updates its state, `gradients` for `loss` and `grad/<weight>`, `input_gradient`
            for `loss` and `grad/<input>`, `forward` for `loss`.

    Returns:
        A protobuf for a path or a protobuf, an onnx_ir model for an onnx_ir model, to be handed to `ll.Trainer` or
        `ll.lower`. Inputs are the model's, `target` (`target_0`, ... where there are several) and the weights with
        their values as defaults; outputs are `loss`, the model's own, `grad/<name>` and the new state, all recorded in
        the metadata (`lstm_lower.state`). The metadata of a step that trains also hold its evaluation graph
        (`lstm_lower.evaluation`): the model in inference form, with the loss.

    Raises:
        InvalidModelError: the model is malformed.
        InvalidInputError: an argument does not fit the model.
        UnsupportedOpError: gradients flow through operators without a rule; each such node is named.
    """
    if what not in get_args(What):
        raise InvalidInputError(f"what requires one of {get_args(What)}, got {what!r}")
    if optimizer is not None and what != "train":
        raise InvalidInputError(f"optimizer requires what='train', got {what!r}")
    return transform(model, training_passes(loss, optimizer, trainable=trainable, what=what))


def training_passes(
    loss: str | Loss | LossFunction,
    optimizer: AnyOptimizer | None = None,
    *,
    trainable: Trainable | Callable[[str], bool] | None = None,
    what: What = "train",
) -> list[Pass]:
    """The passes that `from_onnx` runs, for a pipeline of one's own."""
    making: list[Pass] = [LayerStatePass(), ObjectivePass(loss, trainable, what)]
    training: list[Pass] = [EvaluationPass(loss, what, making), TrainingOptionsPass(optimizer)]
    return [*preparing_passes(), WideningPass(), *training, *legalizing_passes()]
