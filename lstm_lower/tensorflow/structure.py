"""From a GraphDef to regions: only what the outputs need, functions inlined, loops and branches as what they are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

from lstm_lower import budget
from lstm_lower.errors import InvalidModelError
from lstm_lower.reachability import reached
from lstm_lower.tensorflow.branches import raise_branches
from lstm_lower.tensorflow.files.functions import OpTable, flat_body
from lstm_lower.tensorflow.files.pipelines import only_feeds
from lstm_lower.tensorflow.files.views import ENTERS, EXITS, MERGES, NEXTS, SWITCHES
from lstm_lower.tensorflow.frames import Frame, frames_of
from lstm_lower.tensorflow.graph import GraphDef, NodeDef, split_name, tensor_name
from lstm_lower.tensorflow.regions import BRANCH, LOOP, SILENT, Aliases, Op, Region, ordered

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
GRADIENT = "SymbolicGradient"
LOOPS = ("While", "StatelessWhile")
BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")

# Parts of TensorFlow 1's loops and branches.
FRAMES = (*ENTERS, *EXITS, "LoopCond", *NEXTS)
CHOICES = (*SWITCHES, *MERGES)

# All that is raised before anything is translated.
RAISED = frozenset({*CALLS, *LOOPS, *BRANCHES, *FRAMES, *CHOICES, *SILENT})


class Raising:
    """Builds the regions of one graph.

    Attributes:
        aliases: names that stand for other tensors, over all regions.
    """

    def __init__(
        self,
        graph_def: GraphDef,
        nodes: Mapping[str, NodeDef],
        table: OpTable,
        late: Callable[[Op], bool],
    ) -> None:
        self.aliases = Aliases()
        self.functions = {function.signature.name: function for function in graph_def.library.function}
        # Function -> the one that was registered as its gradient.
        self._gradients = {entry.function_name: entry.gradient_func for entry in graph_def.library.gradient}
        self.table = table
        self.late = late
        self.ops: dict[str, Op] = {name: _op(node) for name, node in nodes.items()}
        self._depth: dict[str, int] = {}
        # What runs in a call's place.
        self._runs: dict[str, list[str]] = {}
        self._frames: dict[str, Frame] = {}
        self._loops: dict[str, Op] = {}
        # The frame of a switch, or of another part of a loop, and where an op stands.
        self._switches: dict[str, Frame] = {}
        self._parts: set[str] = set()
        self._places: dict[str, int] = {}

    def main(self, results: Iterable[str], targets: Iterable[str], cut: Iterable[str]) -> Region:
        """The region of the graph itself.

        Args:
            results: full names of the tensors that leave.
            targets: names of ops that must run.
            cut: full names of the tensors that come from outside; nothing before them is looked at.

        Raises:
            InvalidModelError: the graph is broken.
            UnsupportedOpError: control flow has no form that is known.
        """
        inputs, outputs, wanted = list(cut), list(results), list(targets)
        needed = self._ancestors(outputs, wanted, set(inputs))
        self._frames = frames_of(self.ops, needed)
        self._switches = {name: frame for frame in self._frames.values() for name in frame.switches}
        self._parts = {name for frame in self._frames.values() for name in frame.parts}
        return self._region(list(outputs), wanted, inputs)

    def _ancestors(self, results: list[str], targets: list[str], cut: set[str]) -> set[str]:
        """Names of the ops that results and targets need, by data or by control."""

        def makers(tensors: Iterable[str]) -> list[str]:
            return [tensor.rpartition(":")[0] for tensor in tensors if tensor not in cut]

        def behind(name: str) -> list[str]:
            op = self.ops.get(name)
            return [] if op is None else [*makers(op.inputs), *op.controls]

        return self.ops.keys() & reached([*makers(results), *targets], behind)

    def _region(self, results: list[str], targets: list[str], params: list[str], frame: str | None = None) -> Region:
        """All that some results need up to the parameters, and what enters the frame."""
        known, found = set(params), dict[str, Op]()
        tensors, waited = [name for name in results if name not in known], list(targets)
        while tensors or waited:
            if tensors:
                name = tensors.pop()
                if name in known:
                    continue
                known.add(name)
                op = self._producer(name)
                if op is None:
                    # An alias leads on, but for a tensor from around a loop, which is read there.
                    behind = self.aliases.names.get(name)
                    if behind is not None and not self._enters(name, frame):
                        tensors.append(behind)
                    continue
            else:
                name = waited.pop()
                if name in self._runs:
                    waited += self._runs[name]
                    continue
                entry = self.ops.get(name)
                if entry is None or name in found or only_feeds(entry.op):
                    continue
                if self._ends_writing_loop(entry):
                    tensors.append(f"{name}:0")
                if self._is_structure(entry):
                    continue
                op = self._expanded(entry)
                if op is None:
                    waited += self._runs.get(name, [])
                    continue
            if op.name in found:
                continue
            found[op.name] = op
            tensors += [source for source in op.reads() if source not in known]
            waited += op.waits()
        for op in found.values():
            op.controls = [*dict.fromkeys(name for control in op.controls for name in self._behind(control))]
        # Calls add ops behind those that were there.
        for name in itertools.islice(self.ops, len(self._places), None):
            self._places[name] = len(self._places)
        listed = sorted(found.values(), key=lambda op: self._places.get(op.name, 0))
        region = Region(listed, params, list(results), self.aliases.resolve, frozenset(found))
        raise_branches(region, self.aliases)
        region.ops = ordered(region.ops, self.aliases.resolve, self.late)
        return region

    def _behind(self, control: str) -> list[str]:
        found, pending = [], [control]
        while pending:
            name = pending.pop()
            if name in self._runs:
                pending += self._runs[name]
            elif name in self.ops and self.ops[name].op in EXITS:
                found.append(self.aliases.resolve(f"{name}:0").rpartition(":")[0])
            else:
                found.append(name)
        return found

    def _ends_writing_loop(self, op: Op) -> bool:
        """Whether an op is the end of a loop that changes what others read, and so runs though nothing reads it."""
        frame = self._switches.get(op.inputs[0].rpartition(":")[0]) if op.op in EXITS else None
        return frame is not None and self.late(self._loop(frame))

    def _enters(self, name: str, frame: str | None) -> bool:
        """Whether a tensor comes into a frame from around it."""
        op = self.ops.get(name.rpartition(":")[0])
        return op is not None and op.op in ENTERS and op.attr["frame_name"].s.decode() == frame

    def _is_structure(self, op: Op) -> bool:
        """Whether an op that another waits for is only a part of a loop, whose value stands for it."""
        return op.op in FRAMES or op.name in self._parts

    def _producer(self, name: str) -> Op | None:
        """The op that makes a tensor in the region that reads it; `None` where the name stands for another tensor."""
        if name in self.aliases.names:
            return None
        node, number = name.rpartition(":")[0], int(name.rpartition(":")[2])
        if node in self._loops:
            return self._loops[node]
        op = self.ops.get(node)
        if op is None:
            raise InvalidModelError(f"'{name}' requires a node that makes it, since another reads it, got none")
        match op.op:
            case "Enter" | "RefEnter":
                self.aliases.names[name] = op.inputs[0]
                return None
            case "Exit" | "RefExit":
                self.aliases.names[name] = op.inputs[0]
                return None
            case "Switch" | "RefSwitch" if (frame := self._switches.get(op.name)) is not None:
                if number == 1:
                    raise InvalidModelError(f"{op}: its result must be read in its loop, got a reader outside")
                loop = self._loop(frame)
                self.aliases.names[name] = f"{loop.name}:{frame.switches.index(op.name)}"
                return None
        return self._expanded(op)

    def _loop(self, frame: Frame) -> Op:
        """The loop of a frame."""
        if frame.name in self._loops:
            return self._loops[frame.name]
        condition = self._region([frame.condition], [], [f"{merge}:0" for merge in frame.merges], frame.name)
        body = self._region(frame.updates, frame.waited, [f"{switch}:1" for switch in frame.switches], frame.name)
        name = frame.name
        while name in self.ops:
            name = f"{name}_loop"
        made = Op(name, LOOP, list(frame.initial), regions=(condition, body))
        for switch, number in zip(frame.switches, range(len(frame.switches)), strict=True):
            self.aliases.names[f"{switch}:0"] = f"{name}:{number}"
        self._loops[frame.name] = self._loops[name] = made
        return made

    def _expanded(self, op: Op) -> Op | None:
        """The op itself, a loop or a branch with its regions, or `None` for a call, in whose place its body stands."""
        if op.regions:
            return op
        if op.op in SILENT:
            return Op(op.name, "NoOp", [])
        if op.op == GRADIENT and op.attr["f"].func.name not in self._gradients:
            name = op.attr["f"].func.name
            op.regions = (self._body(op, name, self._arguments(name)),)
            return op
        callee = op.op if op.op in self.functions else None
        if op.op in CALLS:
            callee = op.attr["f"].func.name
        elif op.op == GRADIENT:
            callee = self._gradients[op.attr["f"].func.name]
        if callee is not None:
            self._inline(op, callee)
            return None
        if op.op in LOOPS:
            names = [op.attr[part].func.name for part in ("cond", "body")]
        elif op.op in ("If", "StatelessIf"):
            names = [op.attr[part].func.name for part in ("else_branch", "then_branch")]
        elif op.op in BRANCHES:
            names = [branch.name for branch in op.attr["branches"].list.func]
        else:
            return op
        loop = op.op in LOOPS
        count = len(op.inputs) - (0 if loop else 1)
        op.regions = tuple(self._body(op, name, count) for name in names)
        op.op = LOOP if loop else BRANCH
        return op

    def _body(self, op: Op, name: str, count: int) -> Region:
        prefix = f"{op.name}/{name}/"
        params = [f"{prefix}argument_{number}:0" for number in range(count)]
        results, targets = self._instantiate(op, name, prefix, params, waits=False)
        return self._region(results, targets, params)

    def _arguments(self, name: str) -> int:
        return len(self.functions[name].signature.input_arg) if name in self.functions else 0

    def _inline(self, call: Op, name: str) -> None:
        results, targets = self._instantiate(call, name, f"{call.name}/", call.inputs, waits=True)
        for number, result in enumerate(results):
            self.aliases.names[f"{call.name}:{number}"] = result
        self._runs[call.name] = targets + [result.rpartition(":")[0] for result in results]

    def _instantiate(
        self, op: Op, name: str, prefix: str, operands: list[str], *, waits: bool
    ) -> tuple[list[str], list[str]]:
        """Takes up a copy of a function's nodes; the tensors that it returns, and the ops that must run.

        Args:
            op: the op that holds or calls it.
            name: the function.
            prefix: what names of its nodes begin with.
            operands: the tensors that take its arguments' places.
            waits: whether its ops wait for what the op waits for.
        """
        if name not in self.functions:
            raise InvalidModelError(f"{op}: function '{name}' must be in the library, got none")
        depth = self._depth.get(op.name, 0) + 1
        budget.check(f"function '{name}' within functions that call each other", "depth", depth)
        body = flat_body(self.functions[name], self.table, operands, prefix=prefix, attributes=op.attr)
        for node in body.nodes:
            made = _op(node)
            if waits:
                made.controls += op.controls
            self.ops[made.name] = made
            self._depth[made.name] = depth
        return [tensor_name(result) for result in body.results], body.controls


def _op(node: NodeDef) -> Op:
    data = [tensor_name(name) for name in node.input if not name.startswith("^")]
    return Op(node.name, node.op, data, [split_name(name)[0] for name in node.input if name.startswith("^")], node.attr)
