"""Random valid programs: models of ONNX's own operators, with feeds that onnxruntime has run them on."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.support.fuzz import (  # noqa: F401 (they register)
    arithmetic,
    containers,
    control,
    counting,
    edges,
    functions,
    indexing,
    moving,
    networks,
    newer,
    older,
    products,
    quantized,
    recurrences,
    spatial,
    text,
    uncommon,
)
from tests.support.fuzz.ideas import grow
from tests.support.fuzz.runs import open_session, run, run_open
from tests.support.fuzz.scope import Growth, Input, Refused, Scope, Value, imports, tensor_in, type_of

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]

OLDEST = 13
# From here on there are optional values; so many programs have one as an input.
OPTIONAL, OPTIONAL_SHARE = 15, 0.06
# Types of inputs besides the one that most of a program's values have.
COMMON, RARE = ["int64", "bool", "int32"], ["uint8", "int8", "float16", "float64", "float32", "int64"]


@dataclasses.dataclass
class Program:
    """A valid model.

    Attributes:
        model: passes onnx's checker.
        feeds: sets of feeds that onnxruntime runs it on; after the first, open sizes differ.
    """

    model: onnx.ModelProto
    feeds: list[Feeds]


@functools.cache
def newest_opset() -> int:
    """The newest version of `ai.onnx` that onnx and onnxruntime both have."""
    for version in range(onnx.defs.onnx_opset_version(), OLDEST, -1):
        value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
        result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
        graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "probe", [value], [result])
        with contextlib.suppress(Exception):
            run(
                helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10),
                {"x": np.zeros(1, np.float32)},
            )
            return version
    return OLDEST


def program(seed: int, *, smooth: bool = False) -> Program:
    """The program of a seed.

    Args:
        seed: of the random numbers.
        smooth: whether gradients can be taken: of floating outputs by floating inputs, none of them a half.

    Raises:
        Refused: the seed gives none that is valid.
    """
    growth = Growth(seed, smooth=smooth)
    growth.opset = growth.random.choice([*range(OLDEST, newest_opset() + 1), 17, 18, 21])
    if growth.chance(0.1):
        growth.opset = growth.random.randint(older.OLDEST, older.LAST)
    sizes = {key: growth.random.choice([0, 1, 1, 2, 2, 2, 3, 3, 3, 4]) for key in "TBHX"}
    if growth.chance(0.7):
        sizes = {key: size or 2 for key, size in sizes.items()}
    if growth.chance(0.1):
        sizes["T"] = growth.random.choice([5, 6, 7])  # several chunks of steps, and some left over
    scope = Scope(growth)
    for _ in range(growth.random.randint(1, 5)):
        _add_input(scope, sizes)
    grow(scope, growth.random.randint(2, 14))
    model = _model(scope, [] if smooth else _asked_shapes(scope))
    if not smooth:
        _make_optional(model, growth, random.Random(f"optional {seed}"))
    _leave_out(model, random.Random(f"left out {seed}"))
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        raise Refused(f"checker: {error}") from error
    feeds = [_feeds(growth, sizes)]
    if not growth.pinned and any(isinstance(d, str | None) for entry in growth.inputs for d in entry.declared):
        others = [_feeds(growth, _other_sizes(growth, sizes)) for _ in range(2)]
        feeds += [entry for entry in others if _fits(model, entry)]
    runnable = _runnable(model, feeds)
    if not any(entry is feeds[0] for entry in runnable):
        raise Refused("onnxruntime does not run it")
    return Program(model, runnable)


def with_sizes(program: Program) -> tuple[Program, tuple[tuple[str, int], ...]]:
    """A program that is fed as at first, and the sizes that it leaves open by name; others are fixed."""
    model = onnx.ModelProto()
    model.CopyFrom(program.model)
    named: dict[str, int] = {}
    returned = {value.name for value in model.graph.output}  # and declared once more there, perhaps by a number
    for value in model.graph.input:
        for dim, size in zip(tensor_in(value.type).shape.dim, program.feeds[0][value.name].shape, strict=True):
            if dim.dim_param and size and value.name not in returned:
                named[dim.dim_param] = size
            else:
                dim.dim_value = size
    return Program(model, program.feeds[:1]), tuple(named.items())


def _other_sizes(growth: Growth, sizes: dict[str, int]) -> dict[str, int]:
    choices = [1, 1, 2, 2, 3, 5]
    if growth.chance(0.1) and not growth.never_empty:
        choices.append(0)
    return {key: growth.random.choice(choices) for key in sizes}


def _fits(model: onnx.ModelProto, feeds: Feeds) -> bool:
    """Whether shapes fit each other; onnxruntime does not ask this of the parts of a Concat that are empty."""
    fed = onnx.ModelProto()
    fed.CopyFrom(model)
    for value in fed.graph.input:
        value.type.CopyFrom(type_of(feeds[value.name], feeds[value.name].shape))
    try:
        onnx.shape_inference.infer_shapes(fed, check_type=True, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError:
        return False
    return True


def _runnable(model: onnx.ModelProto, feeds: list[Feeds]) -> list[Feeds]:
    """The feeds that onnxruntime runs the model on."""
    found = []
    with contextlib.suppress(Exception):  # onnxruntime's exceptions have no common base
        session = open_session(model)
        for entry in feeds:
            with contextlib.suppress(Exception):
                run_open(session, entry)
                found.append(entry)
    return found


def _add_input(scope: Scope, sizes: dict[str, int]) -> None:
    growth = scope.growth
    keys = growth.random.choice(["TBH", "TBH", "TBH", "BTH", "BH", "BH", "HH", "H", "", "TB", "TBHX", "X", "BX", "T"])
    axes: list[int | str] = [1 if growth.chance(0.07) else key for key in keys]
    declared: list[int | str | None] = []
    for axis in axes:
        size = sizes[axis] if isinstance(axis, str) else axis
        form = growth.random.choice(["size", "size", "name", "name", "none"])
        declared.append({"size": size, "none": None}.get(form, axis if isinstance(axis, str) else size))
    # A size declared as a number is one in every set of feeds.
    axes = [size if isinstance(size, int) else axis for axis, size in zip(axes, declared, strict=True)]
    others = [np.dtype(name) for name in growth.random.choice([COMMON, COMMON, RARE])]
    kinds = [growth.dtype] * 7 + others * (not growth.smooth)
    entry = Input(growth.fresh("in"), growth.random.choice(kinds), tuple(axes), declared)
    growth.inputs.append(entry)
    shape = [sizes[axis] if isinstance(axis, str) else axis for axis in axes]
    scope.add_input(Value(entry.name, growth.array(shape, entry.dtype, "random")))


def _feeds(growth: Growth, sizes: dict[str, int]) -> Feeds:
    feeds = {}
    for entry in growth.inputs:
        shape = [sizes[axis] if isinstance(axis, str) else axis for axis in entry.axes]
        feeds[entry.name] = growth.array(shape, entry.dtype, "random") if entry.fixed is None else entry.fixed
    return feeds


def _asked_shapes(scope: Scope) -> list[str]:
    """Shapes of some values, which are what compilers like to know beforehand."""
    made = [value for node in scope.nodes for name in node.output if (value := scope.values.get(name))]
    chosen = scope.random.sample(made, min(len(made), scope.random.choice([0, 2, 5])))
    return [scope.one("Shape", value).name for value in chosen if value.is_tensor]


def _model(scope: Scope, asked: list[str]) -> onnx.ModelProto:
    growth = scope.growth
    made = [name for node in scope.nodes for name in node.output if name in scope.values]
    if growth.smooth:
        made = [name for name in made if scope.values[name].is_float and np.size(scope.values[name].sample)]
    if not made:
        raise Refused("no nodes")
    pool = made + made[-5:]
    if not growth.smooth and growth.chance(0.2):
        pool += [name for name in scope.values if name not in made]  # inputs and constants
    names = list(dict.fromkeys(growth.random.choice(pool) for _ in range(growth.random.randint(1, 8))))
    names += [name for name in asked if name not in names]
    outputs = []
    for name in names:
        sample = scope.values[name].sample
        shape = None if isinstance(sample, list) else _declared(growth, sample.shape)
        outputs.append(helper.make_value_info(name, type_of(sample, shape)))
    inputs = [
        helper.make_tensor_value_info(entry.name, helper.np_dtype_to_tensor_dtype(entry.dtype), entry.declared)
        for entry in growth.inputs
    ]
    graph = helper.make_graph(scope.nodes, "program", inputs, outputs, scope.initializers)
    model = helper.make_model(graph, opset_imports=imports(growth), functions=growth.functions, ir_version=10)
    if growth.chance(0.4):
        try:
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=growth.chance(0.5))
        except Exception as error:
            raise Refused("onnx's inference fails") from error
        if growth.chance(0.5):
            model.graph.value_info.extend(inferred.graph.value_info)
    return model


def _make_optional(model: onnx.ModelProto, growth: Growth, draw: random.Random) -> None:
    """Lets an input be an optional value at times, whose tensor a node takes out; from draws of their own."""
    graph = model.graph
    needed = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.output}
    free = [entry for entry in growth.inputs if entry.name not in needed]
    if growth.opset < OPTIONAL or not free or draw.random() > OPTIONAL_SHARE:
        return
    entry = draw.choice(free)
    tensor, entry.name = entry.name, f"{entry.name}_given"
    given = next(value for value in graph.input if value.name == tensor)
    given.CopyFrom(helper.make_value_info(entry.name, helper.make_optional_type_proto(given.type)))
    graph.node.insert(0, helper.make_node("OptionalGetElement", [entry.name], [tensor], f"{tensor} taken"))
    if draw.random() < 1 / 2:
        graph.node.append(helper.make_node("OptionalHasElement", [entry.name], [f"{tensor}_is_given"]))
        graph.output.append(helper.make_tensor_value_info(f"{tensor}_is_given", onnx.TensorProto.BOOL, []))


def _leave_out(model: onnx.ModelProto, draw: random.Random) -> None:
    """Leaves last outputs of calls out at times where nothing reads them; from draws of their own."""
    bodies: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    graphs: list[onnx.GraphProto] = []
    for body in bodies:
        inner = [attribute.g for node in body.node for attribute in node.attribute if attribute.HasField("g")]
        graphs += inner
        bodies += inner
    read = {name for body in bodies for node in body.node for name in node.input}
    read |= {name for function in model.functions for name in function.output}
    read |= {value.name for graph in (model.graph, *graphs) for value in graph.output}
    for node in [node for body in bodies for node in body.node if node.domain == "local"]:
        if len(node.output) > 1 and node.output[-1] not in read and draw.random() < 1 / 2:
            node.output[-1] = ""


def _declared(growth: Growth, shape: tuple[int, ...]) -> list[int | str | None]:
    if growth.pinned and growth.chance(0.3):
        return list(shape)
    return [growth.fresh("out") if growth.chance(0.2) else None for _ in shape]
