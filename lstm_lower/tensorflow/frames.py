"""Loops of TensorFlow 1: what belongs to each frame of `Enter`, `Merge`, `Switch`, `NextIteration` and `Exit` nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from lstm_lower.errors import InvalidModelError
from lstm_lower.tensorflow.files.views import ENTERS, MERGES, NEXTS, SWITCHES
from lstm_lower.tensorflow.regions import Op


@dataclasses.dataclass
class Frame:
    """One loop; lists are by loop variable.

    Attributes:
        name: the frame's name.
        initial: the tensors that enter.
        merges: names of the nodes that hold the value before the condition.
        switches: names of the nodes that hand it to the body or out.
        updates: the tensors that go into the next iteration.
        condition: the tensor that tells whether there is one.
        waited: ops that run in every iteration though nothing reads them.
        parts: names of the frame's own nodes.
    """

    name: str
    initial: list[str] = dataclasses.field(default_factory=list)
    merges: list[str] = dataclasses.field(default_factory=list)
    switches: list[str] = dataclasses.field(default_factory=list)
    updates: list[str] = dataclasses.field(default_factory=list)
    condition: str = ""
    waited: list[str] = dataclasses.field(default_factory=list)
    parts: set[str] = dataclasses.field(default_factory=set)


def frames_of(ops: Mapping[str, Op], needed: set[str]) -> dict[str, Frame]:
    """The loops among some nodes, by frame name.

    Raises:
        InvalidModelError: a loop lacks one of its parts.
    """
    if not any(ops[name].op in ENTERS for name in needed):
        return {}
    switches: dict[str, list[Op]] = {}
    for op in ops.values():
        if op.op in SWITCHES and op.inputs:
            switches.setdefault(op.inputs[0], []).append(op)
    frames: dict[str, Frame] = {}
    for name, op in ops.items():
        if name not in needed or op.op not in MERGES or len(op.inputs) != 2:
            continue
        sources = [ops.get(source.rpartition(":")[0]) for source in op.inputs]
        enter = next((source for source in sources if source is not None and source.op in ENTERS), None)
        following = next((source for source in sources if source is not None and source.op in NEXTS), None)
        if enter is None or following is None:
            continue
        found = [switch for switch in switches.get(f"{name}:0", []) if _condition(switch, ops) is not None]
        frame_name = enter.attr["frame_name"].s.decode()
        frame = frames.setdefault(frame_name, Frame(frame_name))
        # Where the condition alone reads a loop variable, the Switch may have been cut away.
        switch = found[0].name if found else f"{name}/none"
        frame.initial.append(enter.inputs[0])
        frame.merges.append(name)
        frame.switches.append(switch)
        frame.updates.append(following.inputs[0])
        frame.waited += following.controls
        if found and (condition := _condition(found[0], ops)) is not None:
            frame.condition = condition.inputs[0]
        frame.parts |= {name, switch}
    for frame in frames.values():
        if not frame.condition:
            raise InvalidModelError(f"loop '{frame.name}' requires a Switch behind one of its Merges, got none")
    return frames


def _condition(switch: Op, ops: Mapping[str, Op]) -> Op | None:
    """The LoopCond that a loop's Switch reads."""
    op = ops.get(switch.inputs[1].rpartition(":")[0]) if len(switch.inputs) == 2 else None
    while op is not None and op.op == "Identity":
        op = ops.get(op.inputs[0].rpartition(":")[0])
    return op if op is not None and op.op == "LoopCond" else None
