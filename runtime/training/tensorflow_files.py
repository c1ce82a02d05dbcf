"""Trained state on its way back into TensorFlow's files: checkpoints, and SavedModels with other values of variables.

They are written without TensorFlow.
"""

from __future__ import annotations

import dataclasses
import glob
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.checkpoints import bundle, values
from lstm_lower.checkpoints.bundle import Checkpoint, full_names
from lstm_lower.errors import InvalidInputError, nearest, some
from lstm_lower.records import content_kinds
from lstm_lower.records.checkpoint_keys import CheckpointKey
from lstm_lower.records.content_kinds import Kind
from lstm_lower.records.files import atomic_files, atomic_folder
from lstm_lower.records.state import StatePair

Array = np.ndarray[Any, Any]

# It tells what a SavedModel's variables were.
_FINGERPRINT = "fingerprint.pb"


@dataclasses.dataclass(frozen=True)
class Trained:
    """A value on its way into a checkpoint.

    Attributes:
        key: where it goes, if the checkpoint has that.
        name: of the variable.
        value: the value.
        is_weight: whether it is a weight.
    """

    key: CheckpointKey
    name: str
    value: Array
    is_weight: bool

    @classmethod
    def of(cls, pair: StatePair, key: CheckpointKey | None, value: Array) -> Trained:
        """A state's value.

        Args:
            pair: the state.
            key: where its step says that a checkpoint has it; `None` where a tensor of the variable's name does.
            value: its value.
        """
        name = (pair.input if pair.variable is None else pair.variable).removesuffix(":0")
        key = CheckpointKey(pair.input, name) if key is None else key
        value = value[..., 0] + 1j * value[..., 1] if key.is_complex else value
        return cls(key, name, value, pair.role == "weight")


def write(path: Path, trained: Sequence[Trained], like: Path | None) -> None:
    """Writes a checkpoint, or a copy of a checkpoint or SavedModel that has the trained values in place of its own.

    Args:
        path: prefix of the checkpoint, or the SavedModel's folder.
        trained: what is written.
        like: prefix of a checkpoint or its folder, or a SavedModel's folder; `None` for a new checkpoint.

    Raises:
        InvalidInputError: `like` is neither, lacks a weight, or has one of another dtype or shape.
        InvalidModelError: it is damaged.
        OSError: nothing can be written there.
    """
    if like is None:
        _write_checkpoint(path, [_new(each) for each in trained])
        return
    if not _is_saved_model(like):
        checkpoint = bundle.open_checkpoint(like)
        _write_checkpoint(path, _replaced(checkpoint, trained), checkpoint)
        return
    checkpoint = bundle.open_checkpoint(like / "variables" / "variables")
    if os.path.lexists(path) and not _is_saved_model(path):
        raise FileExistsError(f"{path}: a new folder, or that of a SavedModel, is required, got something else")
    with atomic_folder(path) as folder:
        _copy_all_but_variables(like, folder)
        pieces = _replaced(checkpoint, trained)
        bundle.write_bundle(folder / "variables" / "variables", pieces, checkpoint.order)


def _copy_all_but_variables(saved_model: Path, folder: Path) -> None:
    (folder / "variables").mkdir()
    for file in saved_model.rglob("*"):
        name = file.relative_to(saved_model)
        if file.is_file() and name.parts[0] not in ("variables", _FINGERPRINT):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / name)


def _write_checkpoint(prefix: Path, pieces: Iterable[tuple[bytes, Any, bytes]], like: Checkpoint | None = None) -> None:
    gone = [path.name for path in prefix.parent.glob(f"{glob.escape(prefix.name)}.data-?????-of-?????")]
    with atomic_files(prefix.parent, first="checkpoint", gone=gone) as folder:
        bundle.write_bundle(folder / prefix.name, pieces, "<" if like is None else like.order)
        bundle.write_record(folder, prefix.name, prefix.parent)
        if like is not None and os.path.realpath(like.path) != os.path.realpath(prefix):
            graph = like.path.with_name(f"{like.path.name}.meta")
            if graph.is_file():
                shutil.copyfile(graph, folder / f"{prefix.name}.meta")


def _new(trained: Trained) -> tuple[bytes, Any, bytes]:
    value = trained.value
    if trained.key.box is not None:
        raise InvalidInputError(
            f"like requires the checkpoint that the step was made of, since '{trained.name}' is a slice of "
            f"'{trained.key.key}', got none"
        )
    return bundle.entry_of(trained.name, value, values.tensorflow_dtype(ir.DataType.from_numpy(value.dtype)))


def _replaced(checkpoint: Checkpoint, trained: Sequence[Trained]) -> Iterator[tuple[bytes, Any, bytes]]:
    """What a checkpoint holds, with trained values in place of its own, and those that it has not where it can.

    Raises:
        InvalidInputError: it lacks a weight, or has one of another dtype or shape.
    """
    named = full_names(checkpoint)
    keys = {name: key for name, key in named if [other for other, _ in named].count(name) == 1}
    placed: dict[str, list[Trained]] = {}
    missing = []
    for each in trained:
        key = each.key.key if each.key.key in checkpoint.tensors else keys.get(each.name)
        if key is None or key not in checkpoint.tensors:
            missing.append(each)
        else:
            _check(checkpoint, key, each)
            placed.setdefault(key, []).append(each)
    if lost := [each.name for each in missing if each.is_weight]:
        raise InvalidInputError(
            f"like requires a checkpoint with the weights of the step, got {checkpoint.path} without {some(lost)}"
            f"{nearest(lost[0], checkpoint.tensors)}"
        )
    yield from checkpoint.entries(without=placed)
    for key, parts in placed.items():
        yield bundle.entry_of(key, _joined(checkpoint, key, parts), checkpoint.tensors[key].dtype, checkpoint.order)
    # What a checkpoint says of objects has room for its own values alone.
    yield from (_new(each) for each in missing if not named)


def _check(checkpoint: Checkpoint, key: str, trained: Trained) -> None:
    stored, box = checkpoint.tensors[key], trained.key.box
    wanted = stored.shape if box is None else tuple(stop - start for start, stop in box)
    dtype = values.numpy_dtype(stored.dtype, f"{checkpoint.path}: tensor '{key}'")
    if wanted != trained.value.shape or dtype != trained.value.dtype:
        raise InvalidInputError(
            f"like requires '{key}' of {trained.value.dtype} {list(trained.value.shape)}, got {dtype} {list(wanted)} "
            f"in {checkpoint.path}"
        )


def _joined(checkpoint: Checkpoint, key: str, parts: Sequence[Trained]) -> Array:
    """The value of a tensor of which variables are slices, or that is one."""
    if parts[0].key.box is None:
        return parts[0].value
    whole = checkpoint.read(key).copy()
    for part in parts:
        whole[tuple(slice(*side) for side in part.key.box or ())] = part.value
    return whole


def _is_saved_model(path: Path) -> bool:
    content = content_kinds.content_of(path) if path.is_dir() else None
    return content is not None and content.kind is Kind.SAVED_MODEL
