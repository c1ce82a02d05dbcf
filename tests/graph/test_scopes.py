"""The modules around a node, as an exporter notes them."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from lstm_lower.graph.scopes import scope


@pytest.mark.parametrize(
    ("note", "known"),
    [
        ("['', 'enc', 'enc.layers.0', 'enc.layers.0.attention', 'view']", ("enc", "layers.0", "attention")),
        ("['', 'view']", ()),
        ("['', 'enc', 'shared.norm', 'add']", ("enc", "shared.norm")),
        ("['_empty_nn_module_stack_from_metadata_hook', 'sym_size']", ()),
        ("[1, 2]", ()),
        ("__import__('os')", ()),
        ("[" * 5000, ()),
        ("", ()),
    ],
)
def test_scope(note: str, known: tuple[str, ...]) -> None:
    node = ir.Node("", "Relu", inputs=[None])
    node.metadata_props["pkg.torch.onnx.name_scopes"] = note
    assert scope(node) == known
