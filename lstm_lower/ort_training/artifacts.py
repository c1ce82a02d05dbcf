"""`generate_artifacts`: what a training run starts from, as files."""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx

from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.ort_training import onnxblock
from lstm_lower.ort_training.onnxblock import blocks
from lstm_lower.passes.malformed import malformed_models_explained
from lstm_lower.records.files import atomic_files
from lstm_lower.records.model_files import load, save, to_proto


class LossType(enum.Enum):
    """Losses that `generate_artifacts` adds to a model."""

    MSELoss = 1
    CrossEntropyLoss = 2
    BCEWithLogitsLoss = 3
    L1Loss = 4


class OptimType(enum.Enum):
    """Optimizers that `generate_artifacts` writes a model of."""

    AdamW = 1
    SGD = 2


_LOSSES: dict[LossType, Callable[[], onnxblock.Block]] = {
    LossType.MSELoss: onnxblock.loss.MSELoss,
    LossType.CrossEntropyLoss: onnxblock.loss.CrossEntropyLoss,
    LossType.BCEWithLogitsLoss: onnxblock.loss.BCEWithLogitsLoss,
    LossType.L1Loss: onnxblock.loss.L1Loss,
}
_OPTIMIZERS: dict[OptimType, Callable[[], onnxblock.ForwardBlock]] = {
    OptimType.AdamW: onnxblock.optim.AdamW,
    OptimType.SGD: onnxblock.optim.SGD,
}


def generate_artifacts(
    model: onnx.ModelProto | str | os.PathLike[str],
    requires_grad: Sequence[str] | None = None,
    frozen_params: Sequence[str] | None = None,
    loss: LossType | onnxblock.Block | None = None,
    optimizer: OptimType | onnxblock.Block | None = None,
    artifact_directory: str | bytes | os.PathLike[Any] | None = None,
    prefix: str = "",
    ort_format: bool = False,
    custom_op_library: str | bytes | os.PathLike[Any] | None = None,
    additional_output_names: Sequence[str] | None = None,
    nominal_checkpoint: bool = False,
    loss_input_names: Sequence[str] | None = None,
) -> None:
    """Writes `training_model.onnx`, `eval_model.onnx`, `checkpoint` and, with an optimizer, `optimizer_model.onnx`.

    All are plain ONNX, see `lstm_lower.ort_training.graphs`; opsets are raised where operators need it.

    Args:
        model: a forward model or its path.
        requires_grad: initializers that are trained.
        frozen_params: initializers that are parameters, but not trained; others are constants.
        loss: a loss of the model's outputs, or a block; `None` where the first output is the loss.
        optimizer: an optimizer, or a block; `None` for no such model.
        artifact_directory: an existing folder; `None` for the current one.
        prefix: the beginning of the files' names.
        ort_format: refused.
        custom_op_library: refused.
        additional_output_names: values that the models give beside the loss.
        nominal_checkpoint: also write `nominal_checkpoint`, without numbers.
        loss_input_names: what the loss takes; `None` for the model's outputs.

    Raises:
        InvalidInputError: an argument does not fit the model.
        InvalidModelError: the model is malformed.
        UnsupportedOpError: an argument asks for what there is not, or gradients flow through operators without a rule.
        OSError: nothing can be written there.
    """
    if ort_format:
        raise UnsupportedOpError(
            "ort_format requires False, got True: files are plain ONNX, which every onnxruntime reads; `python -m "
            "onnxruntime.tools.convert_onnx_models_to_ort` converts them"
        )
    if custom_op_library is not None:
        onnxblock.custom_op_library(os.fsdecode(custom_op_library))
    folder = Path.cwd() if artifact_directory is None else Path(os.fsdecode(artifact_directory))
    proto = to_proto(load(model))
    block = _Training(_loss(loss), _names("additional_output_names", additional_output_names),
                      _names("loss_input_names", loss_input_names))  # fmt: skip
    frozen = _names("frozen_params", frozen_params)
    trained = _names("requires_grad", requires_grad)
    both = sorted(set(trained) & set(frozen))
    if both:
        raise InvalidInputError(f"a parameter must be trained or frozen, got '{both[0]}' in both lists")
    for name in trained:
        block.requires_grad(name)
    for name in frozen:
        block.requires_grad(name, False)  # noqa: FBT003
    updates = _optimizer(optimizer)
    with malformed_models_explained(proto), onnxblock.base(proto):
        block(*(output.name for output in proto.graph.output))
    if updates is not None:
        with onnxblock.empty_base(next(x.version for x in proto.opset_import if x.domain in ("", "ai.onnx"))):
            updates(block.parameters())
    training, evaluation = block.to_model_proto()
    # The names may begin with folders, too.
    first = folder / f"{prefix}training_model.onnx"
    folder, prefix = first.parent, first.name.removesuffix("training_model.onnx")
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    with atomic_files(folder) as written:
        save(training, written / f"{prefix}training_model.onnx")
        save(evaluation, written / f"{prefix}eval_model.onnx")
        onnxblock.save_checkpoint(block.parameters(), written / f"{prefix}checkpoint")
        if nominal_checkpoint:
            onnxblock.save_checkpoint(
                block.parameters(), written / f"{prefix}nominal_checkpoint", nominal_checkpoint=True
            )
        if updates is not None:
            save(updates.to_model_proto(), written / f"{prefix}optimizer_model.onnx")


class _Training(onnxblock.TrainingBlock):
    """A loss on the model's outputs, and what else is asked for."""

    def __init__(self, loss: onnxblock.Block, more: Sequence[str], taken: Sequence[str]) -> None:
        super().__init__()
        self._loss, self._more, self._taken = loss, more, taken

    def build(self, *outputs: str) -> Any:
        """Adds the loss."""
        result = self._loss(*(self._taken or outputs))
        names = (result,) if isinstance(result, str) else tuple(result)
        return (*names, *(name for name in self._more if name not in names))


def _names(argument: str, given: Sequence[str] | None) -> list[str]:
    if isinstance(given, (str, bytes)) or not all(isinstance(name, str) for name in given or ()):
        raise InvalidInputError(f"{argument} requires a list of names, got {given!r}")
    return list(given or ())


def _loss(loss: object) -> onnxblock.Block:
    if loss is None:
        return blocks.PassThrough()
    if isinstance(loss, LossType):
        loss = _LOSSES[loss]()
    if not isinstance(loss, onnxblock.Block):
        raise InvalidInputError(
            f"loss requires one of {[str(x) for x in LossType]} or an onnxblock.Block, got {loss!r}"
        )
    return loss


def _optimizer(optimizer: object) -> onnxblock.ForwardBlock | None:
    if optimizer is None:
        return None
    if isinstance(optimizer, OptimType):
        return _OPTIMIZERS[optimizer]()
    if not isinstance(optimizer, onnxblock.ForwardBlock):
        raise InvalidInputError(
            f"optimizer requires one of {[str(x) for x in OptimType]} or an onnxblock.ForwardBlock, got {optimizer!r}"
        )
    return optimizer
