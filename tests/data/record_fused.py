"""Records a small BERT before and after onnxruntime's optimizer for transformers, with its results.

    pip install torch onnx onnxruntime "transformers==4.57.1"
    python tests/data/record_fused.py

Writes `onnxruntime_fused/bert.npz`: both models, the operands, and what onnxruntime computes of the fused one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime.transformers import optimizer
from transformers import BertConfig, BertModel

FOLDER = Path(__file__).parent / "onnxruntime_fused"
HEADS, HIDDEN, WORDS = 2, 8, 11
NAMES = ("input_ids", "attention_mask", "token_type_ids")


class Bert(torch.nn.Module):
    """The last layer's output of two layers, all parameters random: equal ones would be exported as one."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"hidden_size": HIDDEN, "intermediate_size": 12, "num_attention_heads": HEADS}
        config = BertConfig(WORDS, num_hidden_layers=2, max_position_embeddings=16, type_vocab_size=2, **sizes)
        config._attn_implementation = "eager"
        self.bert = BertModel(config, add_pooling_layer=False)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.add_(torch.randn_like(parameter) / 4)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        """Of [batch, sequence] each."""
        result: torch.Tensor = self.bert(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        return result


def main() -> None:
    """Writes the recording."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    feeds: dict[str, Any] = {
        "input_ids": random.integers(0, WORDS, (3, 5)),
        "attention_mask": np.array([[1] * 5, [1] * 3 + [0] * 2, [1] * 4 + [0]]),
        "token_type_ids": random.integers(0, 2, (3, 5)),
    }
    axes = {name: {0: "batch", 1: "sequence"} for name in (*NAMES, "hidden")}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "bert.onnx")
        given = tuple(torch.from_numpy(feeds[name]) for name in NAMES)
        options = {"input_names": list(NAMES), "output_names": ["hidden"], "dynamic_axes": axes, "opset_version": 17}
        torch.onnx.export(Bert().eval(), given, path, dynamo=False, **options)
        fused = optimizer.optimize_model(
            path, model_type="bert", num_heads=HEADS, hidden_size=HIDDEN, opt_level=0
        ).model
        original = onnx.load(path)
    for model in (original, fused):
        for node in model.graph.node:
            node.ClearField("doc_string")
    session = onnxruntime.InferenceSession(fused.SerializeToString(), providers=["CPUExecutionProvider"])
    (hidden,) = session.run(["hidden"], feeds)
    FOLDER.mkdir(exist_ok=True)
    models = {"original": original, "fused": fused}
    recorded = {name: np.frombuffer(model.SerializeToString(), np.uint8) for name, model in models.items()}
    np.savez_compressed(FOLDER / "bert.npz", hidden=hidden, **recorded, **feeds)


if __name__ == "__main__":
    main()
