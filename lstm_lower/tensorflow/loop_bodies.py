"""The loops in a file of TensorFlow's as one looks at them: what they carry, and what a tensor in them is made of."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lstm_lower.checkpoints import messages
from lstm_lower.reachability import reached
from lstm_lower.tensorflow.files.functions import OpTable, called
from lstm_lower.tensorflow.files.views import ENTERS, EXITS, MERGES, NEXTS, PASSING, SWITCHES, View, data_inputs
from lstm_lower.tensorflow.sources import Shape

_LOOPS = ("While", "StatelessWhile")
_HANDING_ON = (*PASSING, "Cast", *SWITCHES)

_POPS = ("StackPop", "StackPopV2", "TensorListPopBack")
_PUSHES = ("StackPush", "StackPushV2", "TensorListPushBack")

_DEEPEST = 16

# More than any loop hands a tensor on, and functions call each other.
_FAR = 32

# A tensor: its node, or the argument of a function, and the number of the output.
Tensor = tuple[str, int]

# Where a function is called: the view, and the tensor that each argument is.
Callers = Mapping[str, tuple[View, Sequence[str]]]


@dataclasses.dataclass
class LoopBody:
    """What a loop does in each iteration.

    Attributes:
        name: the frame's, or that of the node.
        view: where its nodes are.
        inside: these nodes by name.
        carried: node or argument that holds a loop variable which iterations change -> its next value.
        callers: where functions are called.
        node: the While node whose body it is; `None` for a frame.
        outside: where that node is.
    """

    name: str
    view: View
    inside: Mapping[str, Any]
    carried: dict[str, str]
    callers: Callers
    node: Any = None
    outside: View | None = None

    def nodes(self, ops: Collection[str]) -> Iterator[Any]:
        """Its nodes of some ops."""
        return (node for node in self.inside.values() if node.op in ops)

    def source(self, spelled: str) -> Tensor:
        """What a tensor is behind ops that hand it on; what is carried or comes from outside ends the way."""
        for _ in range(_FAR):
            node, number = self.view.made_by(spelled)
            if node is None:
                break
            stays = node.name in self.carried or node.name not in self.inside
            if stays or node.op not in _HANDING_ON or not node.input:
                return node.name, number
            spelled = node.input[0]
        return spelled.partition(":")[0], 0

    def maker(self, tensor: Tensor) -> Any | None:
        """The node of the loop that makes a tensor; `None` for what is carried or comes from outside."""
        return None if tensor[0] in self.carried else self.inside.get(tensor[0])

    def is_given(self, spelled: str) -> bool:
        """Whether a tensor comes from outside, the same in all iterations."""
        tensor = self.source(spelled)
        return tensor[0] not in self.inside and tensor[0] not in self.carried

    def behind(self, spelled: str, ops: Collection[str], stop: Tensor | None = None) -> set[Tensor]:
        """The tensors that one is made of by some ops, those at the ends of the ways among them."""

        def operands(tensor: Tensor) -> Iterable[Tensor]:
            node = self.maker(tensor)
            leads_on = tensor != stop and node is not None and node.op in ops
            return map(self.source, data_inputs(node)) if leads_on else ()

        return set(reached([self.source(spelled)], operands))

    def shape(self, spelled: str) -> Shape | None:
        """The sizes of a tensor, looked for where functions are called, too."""
        view = self.view
        for _ in range(_FAR):
            shape, name = view.shape(spelled), view.origin(spelled)
            if shape or name not in view.arguments or view.where not in self.callers:
                return shape
            number = list(view.arguments).index(name)
            view, given = self.callers[view.where]
            if number >= len(given):
                return None
            spelled = given[number]
        return None

    def variable(self, holder: str) -> tuple[View, str]:
        """The tensor, and where it is, that has the type of a loop variable."""
        if self.outside is None:
            return self.view, holder
        return self.outside, f"{self.node.name}:{list(self.view.arguments).index(holder)}"

    def is_gradient_of(self, other: LoopBody) -> bool:
        """Whether it takes from stacks, or lists, what another loop puts on them."""
        if next(self.nodes(_POPS), None) is None:
            return False
        if self.outside is None:
            popped = {self.view.origin(first_input(node)) for node in self.nodes(_POPS)}
            pushed = {other.view.origin(first_input(node)) for node in other.nodes(_PUSHES)}
            return self.view is other.view and self is not other and not popped.isdisjoint(pushed)
        if other.outside is not self.outside or next(other.nodes(_PUSHES), None) is None:
            return False
        given = dict(zip(self.view.arguments, data_inputs(self.node), strict=False))
        lists = {self.source(first_input(node))[0] for node in self.nodes(_POPS)}
        return other.node.name in {self.outside.origin(given[name]) for name in lists & given.keys()}


def first_input(node: Any) -> str:
    """The first tensor that a node reads; none, which nothing makes, in a damaged file."""
    return next(data_inputs(node), "")


def loops_of(views: Sequence[View], table: OpTable) -> list[LoopBody]:
    """The loops in a graph and its functions.

    Args:
        views: these.
        table: the functions of the file.
    """
    callers = _callers(views, table)
    named = {view.where: view for view in views}
    found = []
    for view in views:
        found += _frames(view, callers)
        for node in view.nodes.values():
            body = named.get(messages.attribute(node, "body").func.name) if node.op in _LOOPS else None
            if body is not None:
                name = f"{view.where}/{node.name}" if view.where else node.name
                found.append(LoopBody(name, body, body.nodes, _changed(body, table), callers, node, view))
    return found


def _callers(views: Sequence[View], table: OpTable) -> Callers:
    """Where the functions are called that one node alone calls."""
    found: dict[str, list[tuple[View, Sequence[str]]]] = collections.defaultdict(list)
    for view in views:
        for node in view.nodes.values():
            for name in set(called(node)) & table.functions.keys():
                found[name].append((view, list(data_inputs(node))))
    return {name: places[0] for name, places in found.items() if len(places) == 1}


def _changed(body: View, table: OpTable) -> dict[str, str]:
    """The arguments of a function that are not results as they are, with the results in their place."""
    function = table.functions[body.where]
    results = [function.ret.get(result.name, "") for result in function.signature.output_arg]
    pairs = dict(zip(body.arguments, results, strict=False))
    return {name: result for name, result in pairs.items() if body.origin(result) != name}


def _frames(view: View, callers: Callers) -> list[LoopBody]:
    """Loops of TensorFlow 1: nodes between those that enter a frame and those that leave it."""
    readers: dict[str, list[Any]] = collections.defaultdict(list)
    for node in view.nodes.values():
        for name in node.input:
            readers[name.removeprefix("^").partition(":")[0]].append(node)
    paths: dict[str, tuple[str, ...]] = {}
    pending: list[tuple[Any, tuple[str, ...]]] = [(node, ()) for node in view.nodes.values() if node.op in ENTERS]
    while pending:
        node, outside = pending.pop()
        if node.op in ENTERS:
            path = (*outside, messages.attribute(node, "frame_name").s.decode("utf-8", "replace"))
        else:
            path = outside
        if len(paths.get(node.name, ())) >= len(path) or len(path) > _DEEPEST:
            continue
        paths[node.name] = path
        after = path[:-1] if node.op in EXITS else path
        if after:
            pending += [(reader, after) for reader in readers[node.name]]
    frames: dict[str, dict[str, Any]] = collections.defaultdict(dict)
    for name, node in view.nodes.items():
        if name in paths:
            frames[paths[name][-1]][name] = node
    return [LoopBody(name, view, inside, _merged(view, inside.values()), callers) for name, inside in frames.items()]


def _merged(view: View, nodes: Iterable[Any]) -> dict[str, str]:
    """The Merges where the next values of a frame's loop variables come in."""
    found: dict[str, str] = {}
    for node in nodes:
        if node.op in MERGES:
            sources = [view.made_by(spelled)[0] for spelled in data_inputs(node)]
            following = [x for x in sources if x is not None and x.op in NEXTS and x.input]
            found |= {node.name: following[0].input[0]} if following else {}
    return found
