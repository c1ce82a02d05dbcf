"""Writes `docs/ops.md` from the definitions: `python -m lstm_lower.op_reference docs/ops.md`."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from lstm_lower import opdef

FAMILIES = {
    "block": "Block family",
    "cudnn": "cuDNN family",
    "cudnn_params": "cuDNN's params buffer",
    "gradients": "Gradients of elementwise ops",
    "losses": "Losses",
    "elementwise": "Elementwise ops around losses",
    "arrays": "Whole arrays",
    "segments": "Segments",
    "indexing": "Shapes, slices and indices",
    "random": "Random numbers",
    "arithmetic": "Arithmetic",
    "comparison": "Comparisons and truth values",
    "math": "Functions of one operand",
    "passing": "What hands its operand on",
    "reductions": "Reductions and cumulative sums",
    "products": "Products of matrices",
    "networks": "Layers and resized images",
    "windows": "Convolutions and poolings",
    "shapes": "Reading and changing shapes",
    "filling": "Filling arrays",
    "moving": "Turning, repeating and padding",
    "blocks": "Blocks of images as batch entries or channels",
    "joining": "Joining and dividing",
    "slicing": "Slices",
    "gathering": "Looking up and changing elements by place",
    "sparse": "Sparse arrays",
    "sorting": "Finding and ordering",
    "counting": "Counting",
    "matrices": "Diagonals of matrices",
    "ort_recurrent": "onnxruntime-training: recurrent layers",
    "ort_elementwise": "onnxruntime-training: element by element",
    "ort_arrays": "onnxruntime-training: moving, looking up, summing",
    "ort_layers": "onnxruntime-training: layers and losses",
    "ort_updates": "onnxruntime-training: accumulators and optimizers",
}

_NOTES = {
    "cudnn": "See [the cuDNN family](cudnn.md). K layers times directions, H size of h, N units, Y directions times H, "
    "S the\nlength that the layout of params gives. Under `time_major=False` the first two axes change places.",
}

_HEADER = """# Ops

Every composite op that lstm-lower knows, as its definition says. Written by `python -m lstm_lower.op_reference`; do not
edit.

Nodes stand in the domain `ai.onnx.converters.tensorflow` or `tf`, those of onnxruntime-training in `com.microsoft`.
A shape such as `[I+H, 4*H]` holds for one node: equal symbols are equal sizes.
T time steps, B batch, I input size, H units; `*S` is any number of dimensions.
Attributes whose names begin with `_`, and TensorFlow's type attributes, are accepted and ignored.
"""


def reference() -> str:
    """The text of `docs/ops.md`."""
    families: dict[str, list[type[opdef.OpDef]]] = {}
    for op in opdef.our_definitions():
        families.setdefault(op.family, []).append(op)
    parts = [_HEADER]
    for family in sorted(families, key=lambda name: list(FAMILIES).index(name) if name in FAMILIES else len(FAMILIES)):
        parts.append(f"## {FAMILIES.get(family, family.capitalize())}\n")
        if family in _NOTES:
            parts.append(f"{_NOTES[family]}\n")
        parts += [_section(op) for op in families[family]]
    return "\n".join(parts)


def _section(op: type[opdef.OpDef]) -> str:
    lines = [f"### {op.op_type}", "", inspect.getdoc(op) or "", ""]
    if op.forward:
        lines += [f"Gradient of `{op.forward}`.", ""]
    for name, allowed in op.types.items():
        lines.append(f"- `{name}`: {', '.join(opdef.dtype_name(dtype) for dtype in allowed)}")
    lines += ["", "| | name | shape | dtype |", "|---|---|---|---|"]
    for role, declared in (("in", op.inputs), ("out", op.outputs)):
        lines += [f"| {role} | `{o.name}`{_remark(o)} | {_shape(o)} | {o.dtype} |" for o in declared]
    if op.attributes:
        lines += ["", "| attribute | type | default | values |", "|---|---|---|---|"]
        for a in op.attributes:
            default = "required" if a.required else f"`{a.default!r}`"
            lines.append(f"| `{a.name}` | {a.type.__name__} | {default} | {', '.join(f'`{c}`' for c in a.choices)} |")
    return "\n".join([*lines, ""])


def _remark(operand: opdef.Operand) -> str:
    return " (several)" if operand.variadic else " (optional)" if operand.optional else ""


def _shape(operand: opdef.Operand) -> str:
    return "any" if operand.spec is None else f"`[{', '.join(operand.spec.text.split())}]`"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
