"""Dtypes and shapes of tensors that come from outside, as nodes declare them and callers ask for them."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from lstm_lower.checkpoints.values import onnx_dtype, placeholder_shape, shape_of
from lstm_lower.errors import InvalidInputError
from lstm_lower.opdef import DOMAIN, OpDef, definition
from lstm_lower.tensorflow.files.functions import OpTable
from lstm_lower.tensorflow.files.views import PASSING, data_inputs
from lstm_lower.tensorflow.graph import NodeDef, tensor_name
from lstm_lower.tensorflow.state import VARIABLES

Shape = Sequence[int | str | None]
Sizes = tuple[int | None, ...]


def tensor_type(node: NodeDef, number: int, producer: int, table: OpTable) -> tuple[ir.DataType | None, Sizes | None]:
    """Dtype and shape of a node's output as far as its attributes and its definition tell.

    Args:
        node: the node.
        number: which output.
        producer: the version of the graph's format.
        table: the results that ops have.
    """
    attr = node.attr
    shape = None
    shapes = attr["_output_shapes"].list.shape if "_output_shapes" in attr else ()
    if node.op in ("Placeholder", "PlaceholderV2"):
        shape = placeholder_shape(node, producer)
    elif node.op in ("PlaceholderWithDefault", *VARIABLES) and "shape" in attr:
        shape = shape_of(attr["shape"].shape)
    if shape is None and number < len(shapes):
        shape = shape_of(shapes[number])
    for name in ("component_types", "output_types", "Tcomponents", "dtypes"):
        if name in attr and number < len(attr[name].list.type):
            if shape is None and "shapes" in attr and number < len(attr["shapes"].list.shape):
                shape = shape_of(attr["shapes"].list.shape[number])
            return _numeric(attr[name].list.type[number]), shape
    found = definition(DOMAIN, node.op)
    if found is not None:
        slots = found.output_slots(max(number + 1, len(found.outputs)), {})
        variable = slots[number].operand.dtype if number < len(slots) else "T"
        if variable in attr:
            return _numeric(attr[variable].type), shape
        if variable not in found.types:
            return ir.DataType[{"float32": "FLOAT", "float64": "DOUBLE"}.get(variable, variable.upper())], shape
    declared = table.dtype(node, number)
    if declared:
        return _numeric(declared), shape
    for name in ("DstT", "dtype", "out_type", "output_type", "Tparams", "T", "Tout", "elem_type", "element_dtype"):
        if name in attr and attr[name].type:
            return _numeric(attr[name].type), shape
    return None, shape


class OperandShapes:
    """What ops fix of the shapes of their operands, whatever their attributes are: a rank, and sizes."""

    def __init__(self, nodes: Iterable[NodeDef]) -> None:
        self._readers: dict[str, list[tuple[NodeDef, int]]] = collections.defaultdict(list)
        for node in nodes:
            for number, name in enumerate(data_inputs(node)):
                self._readers[tensor_name(name)].append((node, number))

    def shape(self, tensor: str, known: Sizes | None) -> Sizes | None:
        """The shape of a tensor as far as those that read it fix it, and as it is known where they do not agree."""
        fixed = self._fixed(tensor, set())
        found = known
        for sizes in fixed:
            if found is None:
                found = sizes
            elif len(found) != len(sizes) or any(a != b for a, b in zip(found, sizes, strict=True) if a and b):
                return known
            else:
                found = tuple(b if a is None else a for a, b in zip(found, sizes, strict=True))
        return found

    def _fixed(self, tensor: str, seen: set[str]) -> list[Sizes]:
        found: list[Sizes] = []
        if tensor in seen:
            return found
        seen.add(tensor)
        for node, number in self._readers.get(tensor, ()):
            if node.op in (*PASSING, "Cast"):
                found += self._fixed(f"{node.name}:0", seen)
                continue
            op = definition(DOMAIN, node.op)
            if op is None or number >= len(op.inputs) or _depends_on_attributes(op):
                continue
            spec = op.inputs[number].spec
            if spec is not None and spec.rest is None:
                found.append(tuple(None if dim.terms else dim.constant for dim in spec.dims))
        return found


def _depends_on_attributes(op: type[OpDef]) -> bool:
    """Whether attributes say how often an operand repeats, or what shapes operands have."""
    own = any("shape_spec" in vars(each) for each in op.__mro__ if each is not OpDef)
    return own or any(operand.variadic for operand in op.inputs)


def _numeric(number: int) -> ir.DataType | None:
    found = onnx_dtype(number)
    return None if found == ir.DataType.STRING else found


def merged_shape(public: str, known: Sequence[int | None] | None, asked: Shape | None) -> list[int | None] | None:
    """The shape that the caller asks for: numbers replace sizes; names leave them open.

    Raises:
        InvalidInputError: it contradicts the one that is known.
    """
    if asked is None:
        return None if known is None else list(known)
    if known is not None and len(known) != len(asked):
        raise InvalidInputError(f"shapes['{public}'] requires rank {len(known)}, got {list(asked)}")
    sizes = [size if isinstance(size, int) else None for size in asked]
    for axis, size in enumerate(sizes):
        before = None if known is None else known[axis]
        if before is not None and size is not None and size != before:
            raise InvalidInputError(f"shapes['{public}'] requires {before} along axis {axis}, got {size}")
        if size is None:
            sizes[axis] = before
    return sizes
