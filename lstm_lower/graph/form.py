"""Whether a node has its operator's form: operands, attributes and subgraphs as onnx's schemas declare them."""

from __future__ import annotations

import dataclasses
import functools
import re
import stat
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import onnx_ir as ir
from onnx import defs

from lstm_lower.errors import InvalidModelError, requires
from lstm_lower.graph import standard as std
from lstm_lower.ops.ort_layers import IN_ONNX_DOMAIN
from lstm_lower.registry import ONNX_DOMAINS

_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")

# From this version of ai.onnx on, a Scan has no batch axis and no lengths.
_SCAN_WITHOUT_BATCH = 9


@dataclasses.dataclass(frozen=True)
class Form:
    """Operands, results and attributes of an operator in one version of its domain.

    Attributes:
        since: the version that began this form.
        inputs: fewest and most.
        outputs: fewest and most.
        mandatory: positions of inputs that cannot be left out in front of others.
        attributes: name -> type.
        required: the attributes without which a node means nothing.
    """

    since: int
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    mandatory: frozenset[int]
    attributes: Mapping[str, ir.AttributeType]
    required: tuple[str, ...]


@functools.cache
def form_of(op_type: str, domain: str, version: int) -> Form | None:
    """The form that an operator has in a version; `None` where onnx has none, or none any more.

    GroupNormalization of 18 is called deprecated, since that of 21 means something else by its scales. Runtimes run it.
    """
    if not defs.has(op_type, version, domain):
        return None
    schema = defs.get_schema(op_type, version, domain)
    if schema.deprecated and defs.get_schema(op_type, domain).deprecated:
        return None
    single = defs.OpSchema.FormalParameterOption.Single
    return Form(
        since=schema.since_version,
        inputs=(schema.min_input, schema.max_input),
        outputs=(schema.min_output, schema.max_output),
        mandatory=frozenset(i for i, parameter in enumerate(schema.inputs) if parameter.option == single),
        attributes={
            name: ir.AttributeType[str(attribute.type).rpartition(".")[2]]
            for name, attribute in schema.attributes.items()
        },
        required=tuple(name for name, attribute in schema.attributes.items() if attribute.required),
    )


def is_always_made(output: ir.Value, imports: Mapping[str, int]) -> bool:
    """Whether onnx has an output of a node as one that the operator always makes, read or not."""
    node, index = output.producer(), output.index()
    version = None if node is None else _version(node, imports)
    if node is None or index is None or version is None or not defs.has(node.op_type, version, node.domain):
        return False
    outputs = defs.get_schema(node.op_type, version, node.domain).outputs
    # A variadic output is the last one.
    return outputs[min(index, len(outputs) - 1)].option != defs.OpSchema.FormalParameterOption.Optional


def node_label(node: ir.Node) -> str:
    """A node's name, or its first output's where it has none."""
    return node.name or (node.outputs[0].name if node.outputs else None) or "?"


def verify_form(
    node: ir.Node,
    imports: Mapping[str, int],
    functions: Mapping[ir.OperatorIdentifier, ir.Function],
    parameters: Collection[str] | None,
) -> None:
    """Verifies one node, what its subgraphs hold apart.

    Args:
        node: the node.
        imports: domain -> version, of the model or function that it stands in.
        functions: the model's functions.
        parameters: the attributes of the function that it stands in; `None` outside of functions.

    Raises:
        InvalidModelError: the first fault found.
    """
    version = _version(node, imports)
    if version is None:
        raise _fault(node, "the node", f"an opset import of domain '{node.domain}'", "none")
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            if parameters is None:
                what = f"a reference to attribute {attribute.ref_attr_name} outside of functions"
                raise _fault(node, f"attribute {name}", "a value", what)
        elif attribute.type == ir.AttributeType.TENSOR:
            verify_dense(f"{node.op_type} '{node_label(node)}': attribute {name}", attribute.value)
    function = functions.get(node.op_identifier()) if functions else None
    if function is not None:
        _verify_counts(node, (0, len(function.inputs)), (0, len(function.outputs)))
    elif node.domain in ONNX_DOMAINS and node.op_type not in IN_ONNX_DOMAIN:
        form = form_of(node.op_type, node.domain, version)
        if form is None:
            what = f"an operator of {node.domain or 'ai.onnx'} {version}"
            raise _fault(node, "the node", what, f"'{node.op_type}'")
        _verify_counts(node, form.inputs, form.outputs)
        _verify_attributes(node, form)
        for index in form.mandatory:
            if index < len(node.inputs) and node.inputs[index] is None:
                raise _fault(node, f"input {index}", "a value", "none")
        if node.op_type in _ARITIES and node.domain == "":
            _ARITIES[node.op_type](node, version)


def verify_dense(label: str, tensor: ir.TensorProtocol) -> None:
    """Verifies that a tensor's bytes fill its shape; of data in a file of their own, that the file can hold them.

    Raises:
        InvalidModelError: there are more or fewer, or its elements have no type.
    """
    shape = tensor.shape.numpy()
    if min(shape, default=0) < 0:
        raise InvalidModelError(f"{label} requires sizes of at least 0, got {list(shape)}")
    text = f"data of {list(shape)}"
    try:
        text += f" {tensor.dtype.name}"
        if isinstance(tensor, ir.ExternalTensor):
            _verify_file(tensor)
        else:
            if isinstance(tensor, ir.TensorProtoTensor):
                _verify_fields(tensor)
            tensor.numpy()
    except OSError as error:
        got = f"none: {error.filename}: {error.strerror}" if error.strerror else f"none: {error}"
        raise InvalidModelError(
            f"{label} requires {text}, got {got}; external data belongs beside the model"
        ) from error
    except Exception as error:
        raise InvalidModelError(f"{label} requires {text}, got others: {error}") from error


def _verify_fields(tensor: ir.TensorProtoTensor) -> None:
    """Raises a ValueError where not one field alone holds a tensor, or one of packed elements has not as many as it."""
    proto = tensor.raw
    held = [name for name in _FIELDS if getattr(proto, name)] + ["raw_data"] * proto.HasField("raw_data")
    if len(held) != 1 and (held or tensor.size):
        raise ValueError(f"one field is required, got {' and '.join(held) or 'none'}")
    if held and tensor.dtype.bitwidth in (2, 4) and len(getattr(proto, held[0])) != tensor.nbytes:
        # onnx_ir cuts off what is too much, and fills up what is missing.
        raise ValueError(f"{tensor.nbytes} bytes are required in {held[0]}, got {len(getattr(proto, held[0]))}")


def _verify_file(tensor: ir.ExternalTensor) -> None:
    """Raises an OSError or a ValueError where a file cannot hold a tensor."""
    status = Path(tensor.path).stat()
    needed = (tensor.offset or 0) + tensor.nbytes
    if not stat.S_ISREG(status.st_mode) or status.st_size < needed:
        raise ValueError(f"a regular file of {needed} bytes is required: {str(tensor.path)!r}")


def _version(node: ir.Node, imports: Mapping[str, int]) -> int | None:
    return imports.get(node.domain, imports.get("ai.onnx") if node.domain == "" else None)


def _fault(node: ir.Node, operand: str, what: str, got: object) -> InvalidModelError:
    return InvalidModelError(requires(node.op_type, node_label(node), operand, what, got))


def _verify_counts(node: ir.Node, inputs: tuple[int, int], outputs: tuple[int, int]) -> None:
    for values, (fewest, most), what in ((node.inputs, inputs, "inputs"), (node.outputs, outputs, "outputs")):
        if not fewest <= len(values) <= most:
            bounds = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            raise _fault(node, "the node", f"{bounds} {what}", len(values))


def _verify_attributes(node: ir.Node, form: Form) -> None:
    for name, attribute in node.attributes.items():
        # onnx keeps these for its own use.
        if name.startswith("__"):
            continue
        if name not in form.attributes:
            allowed = f"no attributes but {', '.join(form.attributes)}" if form.attributes else "no attributes"
            raise _fault(node, "the node", allowed, name)
        if attribute.type != form.attributes[name]:
            raise _fault(node, f"attribute {name}", form.attributes[name].name, attribute.type.name)
    for name in form.required:
        if name not in node.attributes:
            raise _fault(node, f"attribute {name}", "a value", "none")


def _body(node: ir.Node, name: str) -> ir.Graph | None:
    """A subgraph; `None` where a function's caller gives it."""
    attribute = node.attributes[name]
    return None if attribute.is_ref() else attribute.as_graph()


def _verify_body(node: ir.Node, name: str, inputs: int, outputs: int) -> None:
    body = _body(node, name)
    if body is None:
        return
    for values, count, what in ((body.inputs, inputs, "inputs"), (body.outputs, outputs, "outputs")):
        if len(values) != count:
            raise _fault(node, name, f"{count} {what}", len(values))


def _verify_if(node: ir.Node, _: int) -> None:
    for branch in ("then_branch", "else_branch"):
        _verify_body(node, branch, 0, len(node.outputs))


def _verify_loop(node: ir.Node, _: int) -> None:
    states = max(len(node.inputs) - 2, 0)
    _verify_present(node, 2)
    if len(node.outputs) < states:
        raise _fault(node, "the node", f"an output for each of its {states} states", len(node.outputs))
    _verify_body(node, "body", 2 + states, 1 + len(node.outputs))


def _verify_scan(node: ir.Node, version: int) -> None:
    first = 0 if version >= _SCAN_WITHOUT_BATCH else 1
    _verify_present(node, first)
    attribute = node.attributes["num_scan_inputs"]
    if attribute.is_ref():
        return
    walked, operands = attribute.as_int(), len(node.inputs) - first
    if not 1 <= walked <= operands:
        raise _fault(node, "attribute num_scan_inputs", f"1 to {operands}", walked)
    states = operands - walked
    if len(node.outputs) < states:
        raise _fault(node, "the node", f"an output for each of its {states} states", len(node.outputs))
    _verify_body(node, "body", operands, len(node.outputs))
    sequences = len(node.outputs) - states
    for name, count in (
        ("directions", walked),
        ("scan_input_directions", walked),
        ("scan_input_axes", walked),
        ("scan_output_directions", sequences),
        ("scan_output_axes", sequences),
    ):
        given = node.attributes.get(name)
        if given is None or given.is_ref():
            continue
        values = given.as_ints()
        if len(values) != count:
            raise _fault(node, f"attribute {name}", f"{count} values", len(values))
        if name.endswith("directions") and not set(values) <= {0, 1}:
            raise _fault(node, f"attribute {name}", "values of 0 and 1", list(values))


def _verify_sequence_map(node: ir.Node, _: int) -> None:
    _verify_body(node, "body", len(node.inputs), len(node.outputs))


def _verify_split(node: ir.Node, _: int) -> None:
    # onnx's shape inference reads behind its own lists where these differ, and aborts.
    count = node.attributes.get("num_outputs")
    if count is not None and not count.is_ref() and count.as_int() != len(node.outputs):
        raise _fault(node, "attribute num_outputs", f"{len(node.outputs)}, the number of outputs", count.as_int())


def _verify_einsum(node: ir.Node, _: int) -> None:
    # onnx's shape inference looks for the end of a term for ever where it meets anything else.
    equation = node.attributes["equation"]
    if not equation.is_ref() and not _EQUATION.fullmatch(str(equation.value)):
        raise _fault(node, "attribute equation", "terms of letters and ellipses", repr(equation.value))


def _verify_present(node: ir.Node, first: int) -> None:
    for index, value in enumerate(node.inputs):
        if value is None and index >= first:
            raise _fault(node, f"input {index}", "a value", "none")


_TERMS = r"([A-Za-z ]|\.\.\.)*(,([A-Za-z ]|\.\.\.)*)*"
_EQUATION = re.compile(rf"{_TERMS}(->([A-Za-z ]|\.\.\.)*)?")

_ARITIES: dict[str, Callable[[ir.Node, int], None]] = {
    std.If.op_type: _verify_if,
    std.Loop.op_type: _verify_loop,
    std.Scan.op_type: _verify_scan,
    std.SequenceMap.op_type: _verify_sequence_map,
    std.Split.op_type: _verify_split,
    std.Einsum.op_type: _verify_einsum,
}
