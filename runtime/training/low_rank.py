"""`lora`: low-rank matrices beside the weights of any ONNX model, of which PEFT reads and writes the files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, damage_told, some
from lstm_lower.passes.driver import in_the_same_form, transform
from lstm_lower.passes.gradient_preparation import preparing_passes
from lstm_lower.passes.malformed import Source
from lstm_lower.passes.training.low_rank import Array, LowRankPass
from lstm_lower.records import adaptation
from lstm_lower.records.files import atomic_files
from lstm_lower.runtime.training import checkpoint
from lstm_lower.runtime.training.trainer import Trainer

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Options of PEFT's that change what is computed, and the values of them that do not.
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "use_dora": (None, False),
    "use_rslora": (None, False),
    "fan_in_fan_out": (None, False),
    "bias": (None, "none"),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "modules_to_save": (None, []),
    "layer_replication": (None,),
}


@in_the_same_form
def lora(
    model: Source,
    rank: int = 8,
    targets: str | Sequence[str] | None = None,
    alpha: float | None = None,
    *,
    adapter: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> onnx.ModelProto | ir.Model:
    """Adds low-rank matrices to a model, which are all that `from_onnx` then trains.

    Args:
        model: a path, a protobuf or an onnx_ir model. It is not changed. Its weights may be integers that it
            dequantizes (DequantizeLinear, MatMulNBits).
        rank: of the matrices.
        targets: which weights of MatMul, Gemm, Conv (of one group), LSTM and GRU get some: names of modules
            (`encoder.0.fc`), their last parts (`fc`) or patterns (`encoder.*`), where the exporter kept such names,
            else names of weights; `None` for all.
        alpha: their product is scaled by `alpha / rank`; `None` for the rank.
        adapter: a folder of PEFT's, whose matrices, rank and alpha are taken in place of `rank`, `alpha` and `seed`.
        seed: of the first values of A; those of B are zeros.

    Returns:
        A protobuf for a path or a protobuf, an onnx_ir model for an onnx_ir model, that computes what the model does
        until it is trained. The matrices have PEFT's names, `base_model.model.<module>.lora_A.weight` `[rank, in]` and
        `...lora_B.weight` `[out, rank]`; those of an LSTM or a GRU one more axis, of directions, in front.

    Raises:
        InvalidModelError: the model is malformed.
        InvalidInputError: an argument does not fit the model, or the folder is no adapter, or one with options that
            change what is computed.
        FileNotFoundError: the folder lacks a file.
        MissingPackageError: safetensors is not installed.
    """
    given: dict[str, Array] | None = None
    if adapter is not None:
        rank, alpha, given = _read(Path(adapter))
    return transform(model, [*preparing_passes(), LowRankPass(rank, targets, alpha, seed, given)])


def export_peft(trainer: Trainer, folder: str | os.PathLike[str]) -> None:
    """Writes low-rank matrices as PEFT does: `adapter_config.json` and `adapter_model.safetensors`.

    `PeftModel.from_pretrained(module, folder)` puts them beside the weights of the module that the model was exported
    from, where the exporter has kept its modules' names.

    Args:
        trainer: of a step that was made of what `lora` returned.
        folder: where the files go; it is made if it is not there.

    Raises:
        InvalidInputError: the step has no such matrices, or some of recurrent layers, for which PEFT has none.
        MissingPackageError: safetensors is not installed.
        OSError: nothing can be written there.
    """
    held = adaptation.parse(trainer.model.metadata_props)
    state = trainer.state_dict()
    if held is None or not set(held.weights) <= set(state):
        raise InvalidInputError("export_peft requires a step of what ll.lora returned, got one without its matrices")
    recurrent = [module for module, kind in held.modules.items() if kind == "recurrent"]
    if recurrent:
        raise InvalidInputError(
            f"export_peft requires linear layers and convolutions, got {some(recurrent)}; ll.export_adapter writes them"
        )
    config = {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": held.rank,
        "lora_alpha": held.alpha,
        "lora_dropout": 0.0,
        "target_modules": list(held.modules),
        "bias": "none",
        "fan_in_fan_out": False,
        "use_dora": False,
        "use_rslora": False,
    }
    with atomic_files(Path(folder), first=CONFIG) as written:
        checkpoint.write_arrays(written / WEIGHTS, {name: state[name] for name in held.weights})
        (written / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _read(folder: Path) -> tuple[int, float, dict[str, Array]]:
    path = folder / CONFIG
    text = path.read_bytes()
    with damage_told(lambda error: InvalidInputError(f"{path}: a configuration of PEFT's is required, got {error}")):
        config = dict(json.loads(text))
        kind, rank, alpha = config["peft_type"], int(config["r"]), float(config["lora_alpha"])
    if kind != "LORA":
        raise InvalidInputError(f"{path}: an adapter of type LORA is required, got {kind!r}")
    for name, plain in _PLAIN.items():
        if config.get(name) not in plain:
            raise InvalidInputError(f"{path}: '{name}' requires {plain[-1]!r}, got {config[name]!r}")
    return rank, alpha, checkpoint.read_arrays(folder / WEIGHTS)[0]
