"""Which module of its source a node comes from, where that is recorded in the node's metadata."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import onnx_ir as ir

# What PyTorch's exporter notes beside every node: names of the modules around it from the outermost, each with those
# before it ("enc", "enc.layers.0"), and at the end the operation's own.
_MODULES = "pkg.torch.onnx.name_scopes"
# What it notes of operations that are in no module.
_OUTSIDE = "_empty_nn_module_stack_from_metadata_hook"


def record(node: ir.Node, modules: Sequence[str]) -> None:
    """Notes the modules around a node from the outermost, each with those before it, unless some are noted already."""
    if modules:
        node.metadata_props.setdefault(_MODULES, repr([*modules, node.op_type]))


def scope(node: ir.Node) -> tuple[str, ...]:
    """The modules around a node from the outermost, each by its name in the one before; empty where none are recorded.

    The metadata may hold any text: whatever is not a list of names is ignored.
    """
    text = node.metadata_props.get(_MODULES)
    if not text:
        return ()
    try:
        names = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or _OUTSIDE in names:
        return ()
    modules: list[str] = []
    outer = ""
    for name in names[:-1]:
        if name:
            modules.append(name.removeprefix(f"{outer}.") if outer else name)
            outer = name
    return tuple(modules)
