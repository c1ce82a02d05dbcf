"""Names in a written model: those of the module's parameters, of open sizes, and of buffers that change."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence

import onnx_ir as ir
from torch import nn

from lstm_lower.graph import standard as std


def rename(model: ir.Model, module: nn.Module) -> None:
    """Gives initializers the names that parameters and buffers have in the module itself, shared ones their first."""
    first: dict[int, str] = {}
    names = {name: first.setdefault(id(x), name) for name, x in module.named_parameters(remove_duplicate=False)}
    prefixed = [name for name in model.graph.initializers if name.startswith("module.")]
    taken = {name.removeprefix("module.") for name in prefixed}
    for value in (value for node in model.graph.all_nodes() for value in node.outputs):
        if value.name in taken and not value.is_graph_output():
            value.name = f"module.{value.name}.result"
    for name in prefixed:
        value = model.graph.initializers.pop(name)
        own = name.removeprefix("module.")
        value.name = names.get(own, own)
        model.graph.initializers[value.name] = value


def first_names(module: nn.Module) -> dict[str, str]:
    """The names by which a step's trace holds parameters and buffers, with those of the module itself."""
    held = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    first: dict[int, str] = {}
    return {f"module.{name}": first.setdefault(id(x), name) for name, x in held}


@contextlib.contextmanager
def not_constant(model: ir.Model, names: Collection[str]) -> Iterator[None]:
    """Lets nobody take the present values of weights and states for what they will always be, within the block."""
    added = [value for name, value in model.graph.initializers.items() if name in names]
    model.graph.inputs.extend(added)
    try:
        yield
    finally:
        for value in added:
            model.graph.inputs.remove(value)


def name_dimensions(model: ir.Model) -> dict[str, list[int]]:
    """Names open sizes after the input they are read off, leaves others open; returns the axes that are fixed."""
    known: dict[str, str] = {}
    fixed: dict[str, list[int]] = {}
    for value in model.graph.inputs:
        assert value.name is not None
        for axis, dim in enumerate(_sizes(value)):
            if isinstance(dim, int):
                fixed.setdefault(value.name, []).append(axis)
            else:
                known.setdefault(dim, f"{value.name}_dim_{axis}")
    for value in (*model.graph.inputs, *model.graph.outputs, *(x for node in model.graph for x in node.outputs)):
        if value.shape is not None:
            value.shape = ir.Shape([dim if isinstance(dim, int) else known.get(dim) for dim in _sizes(value)])
    return fixed


def _sizes(value: ir.Value) -> list[int | str]:
    """A shape as the exporter states it: sizes, names, and formulas of names; a size may be written as a name."""
    dims = [dim if isinstance(dim, int) else dim.value or "" for dim in value.shape or ()]
    return [int(dim) if isinstance(dim, str) and dim.isdigit() else dim for dim in dims]


def changed(model: ir.Model, states: Sequence[str]) -> dict[str, str]:
    """Buffers that the step changes, with their outputs; outputs of the others are dropped."""
    found = {}
    for name in states:
        output = next(value for value in model.graph.outputs if value.name == f"new_{name}")
        source: ir.Value | None = output
        while source is not None and (node := source.producer()) is not None and std.Identity.matches(node):
            source = node.inputs[0]
        if source is not None and source.is_initializer() and source.name == name:
            model.graph.outputs.remove(output)
        else:
            found[name] = f"new_{name}"
    return found
