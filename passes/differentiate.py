"""`gradient`: adds the gradients of a result to a model."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Sequence

import onnx
import onnx_ir as ir

from lstm_lower import arguments
from lstm_lower.dims import format_shape
from lstm_lower.dtypes import is_floating
from lstm_lower.errors import InvalidInputError, UnsupportedOpError, few_of_each, requires, some
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.form import node_label
from lstm_lower.graph.operator_versions import form
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import stated
from lstm_lower.ops.ort_elementwise import MICROSOFT
from lstm_lower.passes.decompositions.decompose import DecomposePass
from lstm_lower.passes.decompositions.fourier import is_inexact
from lstm_lower.passes.driver import in_the_same_form, transform
from lstm_lower.passes.gradient_preparation import preparing_passes
from lstm_lower.passes.gradients.activity import Activity, learned, weights
from lstm_lower.passes.gradients.ragged_scans import ragged_scans_to_loops
from lstm_lower.passes.gradients.registry import expanded_like, has_rule
from lstm_lower.passes.gradients.reverse import ReverseMode
from lstm_lower.passes.malformed import Source
from lstm_lower.passes.model_pass import Context, Pass
from lstm_lower.passes.opset.installed import newest_opset
from lstm_lower.passes.pipeline import OptimizePass
from lstm_lower.passes.targets.legalize import legalizing_passes

__all__ = ["GradientPass", "gradient", "gradient_passes"]

# What a value without a dtype is of, in errors.
_OTHER = "another type than a tensor's"


@in_the_same_form
def gradient(
    model: Source,
    of: str = "loss",
    wrt: Sequence[str] | str | None = None,
    *,
    seeds: bool = False,
) -> onnx.ModelProto | ir.Model:
    """Adds the gradients of a result to any ONNX model, as outputs `grad/<name>`.

    The result is an ordinary model of standard operators, which can be differentiated again.

    Args:
        model: a path, a protobuf or an onnx_ir model of opset 16 or newer (older ones are converted). It is not
            changed.
        of: the output to differentiate, a scalar of a floating dtype.
        wrt: names of inputs, initializers or other values of the main graph, of a floating dtype; `None` for the
            weights that the result depends on: all floating initializers except running statistics of batch
            normalization, masks of infinities, and 8-bit floats.
        seeds: the output may be any tensor: the model gets an input `seed/<of>` of its shape and dtype, and the
            gradients are those of the sum of their product (vector-Jacobian products).

    Returns:
        A protobuf for a path or a protobuf, an onnx_ir model for an onnx_ir model, with its outputs followed by
        `grad/<name>` for each of `wrt`, of the shape and dtype of `<name>`; zeros where the result does not depend on
        it. If an output already has that name, the new one is `grad/<of>/<name>`.

    Raises:
        InvalidModelError: the model is malformed.
        InvalidInputError: `of` or `wrt` names a value that has no gradient, or `of` is not a scalar and `seeds` is
            false.
        UnsupportedOpError: gradients flow through operators without a rule; each such node is named.
    """
    return transform(model, gradient_passes(of, wrt, seeds=seeds))


def gradient_passes(
    of: str = "loss", wrt: Sequence[str] | str | None = None, *, seeds: bool = False, optimize: bool = True
) -> list[Pass]:
    """The passes that `gradient` runs, for a pipeline of one's own; without `optimize` loops are as rules make them."""
    optimizing = [OptimizePass(rolls=False)] if optimize else []
    return [*preparing_passes(), GradientPass(of, wrt, seeds=seeds), *optimizing, *legalizing_passes()]


@dataclasses.dataclass
class GradientPass(Pass):
    """Adds gradients, see `gradient`.

    Precondition: a model of opset 13 or newer without functions, nodes in an order in which they can run, names unique,
    no initializers in bodies and branches.

    Attributes:
        of: the output.
        wrt: names of values.
        seeds: whether the output's own gradient is an input.
    """

    of: str
    wrt: Sequence[str] | str | None = None
    seeds: bool = dataclasses.field(default=False, kw_only=True)
    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Adds them.

        Raises:
            InvalidInputError: see `gradient`.
            UnsupportedOpError: see `gradient`.
        """
        activity = differentiable(self.context, model, lambda: self._activity(model))
        wanted, result = activity.inputs, _output(model, self.of)
        b = Builder(self.context.space, model.graph, scope="gradient")
        reverse = ReverseMode(b, activity.active)
        seed = self._seed(model, b, result)
        if result in activity.active:
            reverse.add(result, seed)
        reverse.run(model.graph)
        if self.wrt is None:
            wanted = [value for value in wanted if value in reverse.gradients]
            if not wanted:
                raise InvalidInputError(f"wrt requires names of values, since '{self.of}' depends on no weight")
        taken = {output.name for output in model.graph.outputs}
        for value in wanted:
            found = reverse.gradients.get(value)
            name = f"grad/{self.of}/{value.name}" if f"grad/{value.name}" in taken else f"grad/{value.name}"
            _add_output(model, b, b.zeros_like(b.wrap(value)) if found is None else found, value, name)
        b.discard_unread()
        return ir.passes.PassResult(model, modified=True)

    def _activity(self, model: ir.Model) -> Activity:
        """What lies between the values that gradients are asked for and the result."""
        return Activity(model.graph, self.context.space.facts, self._wanted(model), [_output(model, self.of)])

    def _wanted(self, model: ir.Model) -> list[ir.Value]:
        """The values that gradients are asked for."""
        facts = self.context.space.facts
        if self.wrt is None:
            return learned(model.graph, facts)
        names = [self.wrt] if isinstance(self.wrt, str) else arguments.names("wrt", self.wrt)
        if not names:
            raise InvalidInputError("wrt requires one name or more, got an empty list; None means all weights")
        found: list[ir.Value] = []
        values = _values(model)
        for name in names:
            value = values.get(name)
            if value is None:
                candidates = [*(x.name for x in model.graph.inputs), *(x.name for x in weights(model.graph, facts))]
                raise InvalidInputError(
                    f"wrt requires names of the model's values, such as {some(candidates)}, got {name!r}"
                )
            if not is_floating(facts.dtype(value)):
                raise InvalidInputError(
                    f"wrt requires values of a floating dtype, got '{name}' of {facts.dtype(value) or _OTHER}"
                )
            found.append(value)
        return list(dict.fromkeys(found))

    def _seed(self, model: ir.Model, b: Builder, result: ir.Value) -> Expr:
        facts = b.facts
        dtype, shape = facts.dtype(result), facts.shape(result)
        if not is_floating(dtype):
            others = [str(x.name) for x in model.graph.outputs if is_floating(facts.dtype(x))]
            such = f", such as {some(others)}" if others else ""
            raise InvalidInputError(
                f"of requires an output of a floating dtype{such}, got '{self.of}' of {dtype or _OTHER}"
            )
        if self.seeds:
            name = f"seed/{self.of}"
            if name in _values(model):
                raise InvalidInputError(f"seeds requires a model without a value '{name}', got one that has it")
            seed = b.space.value(name, ir.TensorType(dtype), shape)
            model.graph.inputs.append(seed)
            return b.wrap(seed)
        if shape is None or any(dim != 1 for dim in shape):
            text = "unknown shape" if shape is None else f"shape {format_shape(shape)}"
            raise InvalidInputError(
                f"of requires a scalar output, got '{self.of}' of {text}; seeds=True (--seeds) takes its gradient as "
                f"an input 'seed/{self.of}'"
            )
        return expanded_like(b.constant(1, dtype), b.wrap(result))


def _values(model: ir.Model) -> dict[str | None, ir.Value]:
    """The values of the main graph by name."""
    graph = model.graph
    made = [value for node in graph for value in node.outputs]
    return {value.name: value for value in [*made, *graph.initializers.values(), *graph.inputs] if value.name}


def _output(model: ir.Model, name: str) -> ir.Value:
    for value in model.graph.outputs:
        if value.name == name:
            return value
    names = some([value.name for value in model.graph.outputs])
    raise InvalidInputError(f"of (--of) requires one of the model's outputs, {names}, got {name!r}")


def _add_output(model: ir.Model, b: Builder, gradient: Expr, value: ir.Value, name: str) -> None:
    own = gradient.value
    if own.producer() is None or own.is_graph_output() or own.graph is not model.graph:
        own = b.op(std.Identity, gradient).value
    own.name = b.names.fresh(name)
    own.type = ir.TensorType(gradient.dtype)
    shape = b.facts.shape(value)
    own.shape = None if shape is None else stated(shape)
    model.graph.outputs.append(own)


def _is_function(node: ir.Node) -> bool:
    """Whether onnx defines a function for the node's types."""
    schema: typing.Any = form(node.op_type, newest_opset()) if node.domain == "" else None
    return schema is not None and bool(schema.has_context_dependent_function)


def differentiable(context: Context, model: ir.Model, activity: Callable[[], Activity]) -> Activity:
    """What gradients flow through, once formulas stand for nodes without a rule, and loops for ragged scans.

    Args:
        context: of the pass that asks.
        model: the model, which is changed.
        activity: what gradients flow through in the model as it is.

    Raises:
        UnsupportedOpError: there are operators without a rule.
    """
    active = activity()
    if _decomposed(context, model, active):
        active = activity()
    check_rules(model, active)
    if ragged_scans_to_loops(model, context.space, set(active.nodes(model.graph))):
        active = activity()
    return active


def _decomposed(context: Context, model: ir.Model, activity: Activity) -> bool:
    """Writes nodes without a rule, or without an exact kernel, as formulas of simpler ones; whether there were any."""
    facts = activity.facts

    def stays(node: ir.Node) -> bool:
        return has_rule(node, facts) and not is_inexact(facts.view(node))

    others = {node for node in activity.nodes(model.graph) if not stays(node)}
    if not others:
        return False
    kept = set(all_nodes(model.graph)) - others
    decompose = DecomposePass(lambda node: node not in kept and not stays(node))
    return bool(decompose.share(context)(model).modified)


def check_rules(model: ir.Model, activity: Activity) -> None:
    """Refuses a model in which gradients flow through operators that have no rule."""
    missing = []
    for node in activity.nodes(model.graph):
        kind = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        if activity.reads_integers(node):
            required, got = "operands of a floating dtype, as DequantizeLinear makes them", "quantized integers"
            missing.append((kind, requires(node.op_type, node_label(node), "its gradient", required, got)))
        elif not has_rule(node, activity.facts):
            # onnx has a function for it, but only for known shapes.
            unknown = [x for x in node.inputs if x is not None and activity.facts.rank(x) is None]
            required, got = (
                ("known ranks", std.undeclared(unknown[0])) if _is_function(node) and unknown else ("a rule", "none")
            )
            missing.append((kind, requires(node.op_type, node_label(node), "its gradient", required, got)))
    if missing:
        ways = "onnxruntime's quantizer or optimizer writes such nodes: take the model from before that; "
        ways = ways if any(kind.startswith(f"{MICROSOFT}.") for kind, _ in missing) else ""
        raise UnsupportedOpError(
            f"{few_of_each(missing)}\n{ways}a rule is registered with lstm_lower.extend.differentiates; values that "
            "need no gradient can be left out of wrt",
            about=[line for _, line in missing],
        )
