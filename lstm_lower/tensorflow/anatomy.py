"""What is in a file of TensorFlow's: recurrent ops, loops, variables, likely losses, and what would stop an import."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from lstm_lower.checkpoints import messages, values
from lstm_lower.errors import InvalidInputError, nearest, some
from lstm_lower.opdef import DOMAIN, definition
from lstm_lower.ops import block
from lstm_lower.reachability import reached
from lstm_lower.tensorflow import towers
from lstm_lower.tensorflow.files import saved_model, steps
from lstm_lower.tensorflow.files.functions import OpTable, called
from lstm_lower.tensorflow.files.graph_files import GraphFile, source_of, whole
from lstm_lower.tensorflow.files.views import SWITCHES, View, data_inputs
from lstm_lower.tensorflow.loop_bodies import loops_of
from lstm_lower.tensorflow.model import is_convertible
from lstm_lower.tensorflow.recurrent_cells import loop_text
from lstm_lower.tensorflow.sources import GraphSource, Variable
from lstm_lower.tensorflow.structure import RAISED

# Operands that tell a recurrent op's sizes.
_TELLING = ("x", "input", "w", "params", "h_prev", "w_ru", "input_h")

_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")


@dataclasses.dataclass(frozen=True)
class RecurrentGroup:
    """Recurrent ops of one kind and size.

    Attributes:
        op: op type.
        sizes: operand -> dtype and shape.
        nodes: their names.
    """

    op: str
    sizes: dict[str, str]
    nodes: list[str]


@dataclasses.dataclass(frozen=True)
class Anatomy:
    """What is in a file.

    Attributes:
        kind: what the file is.
        tensorflow: the version that wrote it; empty where it does not say.
        producer: the version of the graph's format.
        nodes: number of nodes, those of functions included.
        functions: number of functions.
        signatures: signature -> its inputs and outputs with their types.
        recurrent: the recurrent ops.
        loops: loop -> number of nodes in it.
        loop_texts: loop -> what it computes, in words.
        branches: number of branchings.
        variables: variable -> its type, those that are trained first.
        trained: number of variables that are trained.
        parameters: number of elements of these.
        with_value: number of variables whose values are there.
        checkpoint: where these are.
        losses: likely losses with their types.
        train_ops: likely training steps.
        recorded: which of the two the file itself says.
        cut: what an import keeps of a graph that holds its step for many workers or towers.
        inputs: where data comes in -> type.
        undeclared: those of them that the signature leaves out.
        needed: number of nodes that the losses and training steps need.
        unsupported: op that no import knows -> nodes that these need.
    """

    kind: str
    tensorflow: str
    producer: int
    nodes: int
    functions: int
    signatures: dict[str, dict[str, dict[str, str]]]
    recurrent: list[RecurrentGroup]
    loops: dict[str, int]
    loop_texts: dict[str, str]
    branches: int
    variables: dict[str, str]
    trained: int
    parameters: int
    with_value: int
    checkpoint: str | None
    losses: dict[str, str]
    train_ops: list[str]
    recorded: list[str]
    cut: str | None
    inputs: dict[str, str]
    undeclared: list[str]
    needed: int
    unsupported: dict[str, list[str]]


def anatomy(
    file: GraphFile,
    signature: str | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> Anatomy:
    """Looks at a file.

    Args:
        file: the file.
        signature: the signature of a SavedModel to look at; all of them without it.
        inputs: tensors that are given, where to stop looking for what would stop an import; likely ones without them.
        outputs: tensors and nodes to begin with; likely losses and training steps without them.

    Raises:
        InvalidModelError: the file is broken.
        InvalidInputError: it has no such signature.
    """
    op_defs = {op.name: op for op in file.meta.meta_info_def.stripped_op_list.op}
    table = OpTable(file.graph_def.library.function, op_defs)
    # Of a SavedModel with functions, the graph itself only saves and restores.
    functions = [] if signature is not None else list(file.functions.values())
    source = GraphSource(messages.GraphDef(), file.label) if functions else _source(file, signature)
    if functions:
        source.variables = saved_model.all_variables(file.meta, file.label, file.checkpoint)
    cut = towers.cut_of(source) if outputs is None else None
    source = source if cut is None else cut.source
    main = View(source.graph_def, table, source.variables)
    bodies = {name: View(function, table) for name, function in table.functions.items()}
    train_ops, losses = _targets(main, source) if outputs is None else _asked(main, outputs)
    roots = [*losses, *train_ops]
    if outputs is None and not train_ops:
        # Where no training step is to be seen, gradients may be what the graph is for.
        results = [name for name in _declared(file, signature, "outputs") if main.made_by(name)[0] is not None]
        roots += (results or steps.ends(main)) if steps.has_gradients(main) or not losses else []
    if outputs is None and source.outputs is not None:
        roots = list(main.nodes) if source.side_effects else list(source.outputs.values())
    walked, ends = steps.needed(main, roots, inputs or ())
    reached = _reached(main, walked, bodies, functions)
    everything = [main, *(reached if file.functions else bodies.values())]
    loops = loops_of(everything, table)
    variables = list(source.variables.values())
    trained = [variable for variable in variables if variable.trainable]
    return Anatomy(
        kind=file.kind.value,
        tensorflow=file.meta.meta_info_def.tensorflow_version,
        producer=file.graph_def.versions.producer,
        nodes=len(file.graph_def.node) + sum(len(view.nodes) for view in bodies.values()),
        functions=len(bodies),
        signatures=_signatures(file, table),
        recurrent=_recurrent(everything),
        loops={loop.name: len(loop.inside) for loop in loops},
        loop_texts={loop.name: loop_text(loop, loops) for loop in loops},
        branches=sum(_branches(view) for view in everything),
        variables={variable.name: _variable_text(variable) for variable in dict.fromkeys([*trained, *variables])},
        trained=len(trained),
        parameters=sum(map(_count, trained)),
        with_value=sum(variable.has_value for variable in variables),
        checkpoint=None if file.checkpoint is None else str(file.checkpoint.path),
        losses={tensor: main.type_text(tensor) for tensor in losses},
        train_ops=train_ops,
        recorded=[what for what, names in (("losses", source.losses), ("train_ops", source.train_ops)) if names],
        cut=None if cut is None else cut.text,
        inputs={end: main.type_text(end) for end in [*(source.inputs or {}).values(), *ends]},
        undeclared=_undeclared(file, signature, ends),
        needed=len(walked),
        unsupported=_unsupported(main, walked, reached, set(bodies)),
    )


def _source(file: GraphFile, signature: str | None) -> GraphSource:
    return whole(file) if signature is None else source_of(file, signature)


def _targets(view: View, source: GraphSource) -> tuple[list[str], list[str]]:
    """Training steps and losses: those on record, else likely ones; of functions, whose results are known, neither."""
    if source.outputs is not None:
        return [], []
    train_ops = steps.recorded_train_ops(view, source.train_ops)
    losses = [name for name in source.losses if name.partition(":")[0] in view.nodes]
    return train_ops or steps.find_train_ops(view), losses or steps.find_losses(view)


def _asked(view: View, outputs: Sequence[str]) -> tuple[list[str], list[str]]:
    missing = [name for name in outputs if view.made_by(name)[0] is None]
    if missing:
        near = nearest(missing[0], view.nodes)
        raise InvalidInputError(
            f"outputs requires tensors of the graph, got {some(missing)}, which it does not hold{near}"
        )
    return [name for name in outputs if ":" not in name], [name for name in outputs if ":" in name]


def _signatures(file: GraphFile, table: OpTable) -> dict[str, dict[str, dict[str, str]]]:
    def texts(infos: Any) -> dict[str, str]:
        return {key: _type_text(infos[key].dtype, infos[key].tensor_shape) for key in sorted(infos)}

    declared = file.meta.signature_def
    found = {
        name: {"inputs": texts(declared[name].inputs), "outputs": texts(declared[name].outputs)}
        for name in file.signatures
    }
    for name in file.functions:
        if name not in found:
            # A method that was traced, but not given out as a signature.
            source = source_of(file, name)
            view = View(source.graph_def, table)
            ends = {"inputs": source.inputs or {}, "outputs": source.outputs or {}}
            found[name] = {
                key: {public: view.type_text(tensor) for public, tensor in tensors.items()}
                for key, tensors in ends.items()
            }
    return found


def _declared(file: GraphFile, signature: str | None, kind: str) -> list[str]:
    """Tensors of a signature, of the usual one without a name; none where signatures are functions."""
    usual = [name for name in file.signatures if name == saved_model.DEFAULT_SIGNATURE] or file.signatures[:1]
    names = [] if file.functions else [signature] if signature is not None else usual
    return [info.name for name in names for info in getattr(file.meta.signature_def[name], kind).values()]


def _undeclared(file: GraphFile, signature: str | None, ends: Sequence[str]) -> list[str]:
    declared = _declared(file, signature, "inputs")
    return [end for end in ends if end not in declared] if file.signatures and not file.functions else []


def _type_text(dtype: int, shape: Any) -> str:
    sizes = values.shape_of(shape)
    inner = "" if sizes is None else f"[{', '.join('?' if dim is None else str(dim) for dim in sizes)}]"
    return f"{values.dtype_text(dtype)}{inner}"


def _variable_text(variable: Variable) -> str:
    name = values.dtype_text(variable.dtype) if variable.dtype else "?"
    shape = "" if variable.shape is None else f"[{', '.join('?' if d is None else str(d) for d in variable.shape)}]"
    return f"{name}{shape}"


def _count(variable: Variable) -> int:
    return 0 if variable.shape is None else math.prod(dim or 0 for dim in variable.shape)


def _recurrent(views: Sequence[View]) -> list[RecurrentGroup]:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = collections.defaultdict(list)
    for view in views:
        for node in view.nodes.values():
            defined = definition(DOMAIN, node.op)
            if defined is not None and issubclass(defined, block.BlockRecurrent):
                names = (operand.name for operand in defined.inputs)
                given = dict(zip(names, data_inputs(node), strict=False))
                sizes = tuple((name, _sizes(view, given[name])) for name in _TELLING if name in given)
                found[node.op, sizes].append(f"{view.where}/{node.name}" if view.where else node.name)
    return [RecurrentGroup(op, dict(sizes), nodes) for (op, sizes), nodes in found.items()]


def _sizes(view: View, tensor: str) -> str:
    shape = view.shape(tensor)
    return "?" if shape is None else f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def _branches(view: View) -> int:
    structured = [node for node in view.nodes.values() if node.op in _BRANCHES]
    switches = [node for node in view.nodes.values() if node.op in SWITCHES and len(node.input) > 1]
    # What a predicate reaches by way of others decides the same.
    made = {view.origin(node.input[1]) for node in switches}
    return len(structured) + len([name for name in made if name in view.nodes and view.nodes[name].op != "LoopCond"])


def _reached(main: View, walked: set[str], bodies: dict[str, View], roots: list[str]) -> list[View]:
    """The functions that some nodes call, and those that these call."""

    def inner(name: str) -> list[str]:
        nodes = bodies[name].nodes.values() if name in bodies else ()
        return [inner for node in nodes for inner in called(node)]

    start = roots + [name for node in walked for name in called(main.nodes[node])]
    return [bodies[name] for name in reached(start, inner) if name in bodies]


def _unsupported(main: View, walked: set[str], reached: Sequence[View], functions: set[str]) -> dict[str, list[str]]:
    def nodes() -> Iterator[tuple[str, Any]]:
        yield from ((name, main.nodes[name]) for name in main.nodes if name in walked)
        for view in reached:
            yield from ((f"{view.where}/{name}", node) for name, node in view.nodes.items())

    structural = functions | RAISED
    found: dict[str, list[str]] = {}
    for label, node in nodes():
        if node.op not in structural and not is_convertible(node.op):
            found.setdefault(node.op, []).append(label)
    return dict(sorted(found.items()))
