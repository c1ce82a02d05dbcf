"""Makes a failing model small: takes away whatever it fails without."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import helper, numpy_helper

from tests.support.fuzz.runs import run
from tests.support.fuzz.scope import free_names

Feeds = Mapping[str, Any]
StillFails = Callable[[onnx.ModelProto], bool]


def reduced(model: onnx.ModelProto, feeds: Feeds, still_fails: StillFails, *, seconds: float = 20.0) -> onnx.ModelProto:
    """The smallest model found in the time given.

    Args:
        model: fails.
        feeds: feeds that it runs on; values inside may become constants as they are with these.
        still_fails: whether a candidate is valid and fails in the same way.
        seconds: processor time at most.
    """
    end = time.process_time() + seconds
    best = _copy(model)
    if model.functions:
        flat = onnx.inliner.inline_local_functions(model)
        best = flat if still_fails(flat) else best
    progress = True
    while progress and time.process_time() < end:
        progress = False
        for change in _changes(best, feeds):
            if time.process_time() > end:
                break
            candidate = _copy(best)
            try:
                change(candidate)
            except (ValueError, IndexError, KeyError, StopIteration):  # does not apply
                continue
            swept = _copy(candidate)
            _sweep(swept)
            # What nobody reads may matter all the same, by its name or its size.
            smaller = [one for one in (swept, candidate) if _weight(one) < _weight(best)]
            found = next((one for one in smaller if still_fails(one)), None)
            if found is not None:
                best, progress = found, True
                break
    return best


def _weight(model: onnx.ModelProto) -> tuple[int, int]:
    """Nodes count first, then bytes."""
    return sum(node.op_type != "Constant" for nodes in _all_nodes(model) for node in nodes), model.ByteSize()


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    work = onnx.ModelProto()
    work.CopyFrom(model)
    return work


def _changes(model: onnx.ModelProto, feeds: Feeds) -> Iterator[Callable[[onnx.ModelProto], None]]:
    """Changes worth trying, the largest first."""
    yield lambda m: m.graph.ClearField("value_info")
    for index in range(len(model.graph.output)):
        yield lambda m, i=index: _only(m.graph.output, i)
    for index in range(len(model.graph.output)):
        yield lambda m, i=index: _drop(m.graph.output, i)
    values = _values(model, feeds)
    frozen = [
        index
        for index, node in enumerate(model.graph.node)
        if node.op_type != "Constant" and all(name in values for name in node.output if name)
    ]
    size = len(frozen)
    while size:
        for start in range(0, len(frozen), size):
            yield lambda m, group=frozen[start : start + size]: _freeze(m.graph, group, values)
        size //= 2
    for path in [(), *_bodies(model.graph)]:
        size = len(_at(model.graph, path).node)
        while size:
            for start in range(0, len(_at(model.graph, path).node), size):
                yield lambda m, p=path, a=start, b=start + size: _at(m.graph, p).node.__delitem__(slice(a, b))
            size //= 2
    for path in _bodies(model.graph):
        body = _at(model.graph, path)
        for index in range(len(body.node)):
            yield lambda m, p=path, i=index: _bypass(_at(m.graph, p), i)
        for index in range(len(body.output)):
            yield lambda m, p=path, i=index: _drop_result(m.graph, p, i)
    size = len(model.graph.initializer)
    while size:
        for start in range(0, len(model.graph.initializer), size):
            yield lambda m, a=start, b=start + size: m.graph.initializer.__delitem__(slice(a, b))
        size //= 2
    for index in range(len(model.graph.node)):
        yield lambda m, i=index: _bypass(m.graph, i)
    for index in range(len(model.graph.input)):
        yield lambda m, i=index: _feed(m.graph, i, feeds)


def _only(field: Any, index: int) -> None:
    kept = onnx.ValueInfoProto()
    kept.CopyFrom(field[index])
    del field[:]
    field.append(kept)


def _drop(field: Any, index: int) -> None:
    if len(field) == 1:
        raise ValueError("the last one")
    del field[index]


def _values(model: onnx.ModelProto, feeds: Feeds) -> dict[str, np.ndarray[Any, Any]]:
    """What every value of the outermost graph is with these feeds."""
    work = _copy(model)
    names = [name for node in work.graph.node for name in node.output if name]
    known = {value.name for value in work.graph.output}
    work.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    try:
        results = run(work, feeds)
    except Exception:  # noqa: BLE001 (onnxruntime's exceptions have no common base)
        return {}
    order = [value.name for value in work.graph.output]
    return {name: value for name, value in zip(order, results, strict=True) if isinstance(value, np.ndarray)}


def _freeze(graph: onnx.GraphProto, indices: list[int], values: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Puts constants in the place of nodes."""
    for index in reversed(indices):
        outputs = [name for name in graph.node[index].output if name]
        graph.initializer.extend(numpy_helper.from_array(values[name], name) for name in outputs)
        del graph.node[index]


def _feed(graph: onnx.GraphProto, index: int, feeds: Feeds) -> None:
    """Puts a constant in an input's place."""
    name = graph.input[index].name
    if not any(tensor.name == name for tensor in graph.initializer):
        graph.initializer.append(numpy_helper.from_array(np.asarray(feeds[name]), name))
    del graph.input[index]


def _bypass(graph: onnx.GraphProto, index: int) -> None:
    """Lets those who read a node read its first input."""
    node = graph.node[index]
    source, target = next(name for name in node.input if name), node.output[0]
    inner = any(source in other.output for other in graph.node)
    if not inner and any(value.name == target for value in graph.output):
        if node.op_type == "Identity":
            raise ValueError("no smaller")
        node.CopyFrom(helper.make_node("Identity", [source], [target]))
        return
    del graph.node[index]
    _rename(graph, target, source)


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        for attribute in node.attribute:
            if attribute.HasField("g") and old not in {value.name for value in attribute.g.input}:
                _rename(attribute.g, old, new)
    for value in graph.output:
        if value.name == old:
            value.name = new


Path = tuple[tuple[int, int], ...]


def _bodies(graph: onnx.GraphProto, path: Path = ()) -> Iterator[Path]:
    """Where subgraphs are: indices of node and attribute, level by level."""
    for number, node in enumerate(graph.node):
        for index, attribute in enumerate(node.attribute):
            if attribute.HasField("g"):
                here = (*path, (number, index))
                yield here
                yield from _bodies(attribute.g, here)


def _at(graph: onnx.GraphProto, path: Path) -> onnx.GraphProto:
    for number, index in path:
        graph = graph.node[number].attribute[index].g
    return graph


def _drop_result(graph: onnx.GraphProto, path: Path, index: int) -> None:
    """Takes a result away from a Scan or Loop: a state is then read from outside, unchanged."""
    owner = _at(graph, path[:-1])
    node = owner.node[path[-1][0]]
    body = _at(graph, path)
    first = {"Scan": 0, "Loop": 1}[node.op_type]  # where states begin among the body's outputs
    states = len(node.input) - 2 if first else len(node.input) - _attribute(node, "num_scan_inputs")
    number = index - first
    used = set().union(*(free_names(other) for other in owner.node)) | {value.name for value in owner.output}
    if number < 0 or node.output[number] in used:
        raise ValueError("still read")
    del body.output[index], node.output[number]
    if number < states:
        outer = node.input[number + 2 * first]
        inner = body.input[number + 2 * first].name
        del node.input[number + 2 * first], body.input[number + 2 * first]
        _rename(body, inner, outer)
        return
    for attribute in node.attribute:
        if attribute.name in ("scan_output_axes", "scan_output_directions"):
            del attribute.ints[number - states]
            if not attribute.ints:
                node.attribute.remove(attribute)
                return


def _attribute(node: onnx.NodeProto, name: str) -> int:
    return next(attribute.i for attribute in node.attribute if attribute.name == name)


def _sweep(model: onnx.ModelProto) -> None:
    """Removes what nobody reads, at every level."""
    while _sweep_graph(model.graph):
        pass
    called = {node.op_type for nodes in _all_nodes(model) for node in nodes}
    for function in [function for function in model.functions if function.name not in called]:
        model.functions.remove(function)


def _all_nodes(model: onnx.ModelProto) -> Iterator[Any]:
    yield model.graph.node
    yield from (_at(model.graph, path).node for path in _bodies(model.graph))
    yield from (function.node for function in model.functions)


def _sweep_graph(graph: onnx.GraphProto) -> bool:
    used = {value.name for value in graph.output}.union(*(free_names(node) for node in graph.node))
    dead = [node for node in graph.node if not any(name in used for name in node.output if name)]
    for node in dead:
        graph.node.remove(node)
    unread = [tensor for tensor in graph.initializer if tensor.name not in used]
    for tensor in unread:
        graph.initializer.remove(tensor)
    inner = [
        _sweep_graph(attribute.g) for node in graph.node for attribute in node.attribute if attribute.HasField("g")
    ]
    return bool(dead or unread) or any(inner)
