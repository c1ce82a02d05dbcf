"""Uses the lowering passes inside an onnx_ir pipeline of one's own.

Usage: python examples/pass_pipeline/pipeline.py
"""

from __future__ import annotations

import collections
from pathlib import Path

import onnx_ir as ir
import onnx_ir.passes.common as common

from lstm_lower.passes.lower import lowering_passes

MODEL = Path(__file__).parent.parent / "graphs" / "input_saliency.onnx"


class CountOps(ir.passes.InPlacePass):
    """Prints how often each operator occurs."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Counts."""
        ops = collections.Counter(f"{node.domain}::{node.op_type}".removeprefix("::") for node in model.graph)
        print(f"{self.title}: {sum(ops.values())} nodes,", ", ".join(f"{n} {op}" for op, n in ops.most_common(6)))
        return ir.passes.PassResult(model, modified=False)


def main() -> None:
    """Runs the pipeline."""
    pipeline = ir.passes.Sequential(
        CountOps("before"),
        *lowering_passes(),
        CountOps("lowered"),
        common.RemoveUnusedNodesPass(),
        common.CheckerPass(full_check=True),
    )
    model = pipeline(ir.load(MODEL)).model
    assert all(node.domain == "" for node in model.graph)


if __name__ == "__main__":
    main()
