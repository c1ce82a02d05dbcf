"""Branches of TensorFlow 1: `Switch` and `Merge` outside of loops become ops that hold a region for each case.

A Switch hands its operand to one side only; what reads it runs on that side only, up to a Merge. So every op has a
context: the predicates, outermost first, that it depends on, and the side of each. Ops of one context are a branch;
where what leaves a branch comes back into one of the same predicate (as the gradient of a branch does), that is another
branch, and it may read what the first has made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from lstm_lower.errors import InvalidModelError, UnsupportedOpError, some
from lstm_lower.tensorflow.files.views import MERGES, SWITCHES
from lstm_lower.tensorflow.regions import BRANCH, Aliases, Op, Region, ordered

_BOOL = 10
_WAITING = ("NoOp", "ControlTrigger")

# Predicate and side, outermost first.
Context = tuple[tuple[str, int], ...]


@dataclasses.dataclass
class _Branch:
    """A branch to be: its ops by side, its Merges, and how often a branch of the same predicate came before."""

    predicate: str
    sides: tuple[list[Op], list[Op]] = dataclasses.field(default_factory=lambda: ([], []))
    merges: list[Op] = dataclasses.field(default_factory=list)
    exports: dict[str, int] = dataclasses.field(default_factory=dict)


def raise_branches(region: Region, aliases: Aliases) -> None:
    """Puts ops with regions in the place of a region's Switches and Merges.

    Raises:
        InvalidModelError: an op depends on both sides of a Switch.
        UnsupportedOpError: a Merge joins more than two sides.
    """
    if any(op.op in (*SWITCHES, *MERGES) for op in region.ops):
        _Raising(region, aliases).run()


def _equal_constants(region: Region) -> dict[str, str]:
    """Of a region's scalar truths, the tensor that stands for all equal ones."""
    first: dict[bytes, str] = {}
    found = {}
    for op in region.ops:
        if op.op == "Const" and op.attr["dtype"].type == _BOOL:
            name = f"{op.name}:0"
            found[name] = first.setdefault(op.attr["value"].tensor.SerializeToString(), name)
    return found


class _Raising:
    def __init__(self, region: Region, aliases: Aliases) -> None:
        self.region = region
        self.aliases = aliases
        self.contexts: dict[str, Context] = {}
        self.merged: dict[str, tuple[str, tuple[int, int]]] = {}
        self.phases: dict[str, dict[str, int]] = {}
        self.after: dict[str, list[str]] = {}
        # Predicates that are known to hold, or not to, and the result that is there only then.
        self.settled: dict[str, str] = {}
        self.identities = {op.name: op.inputs[0] for op in region.ops if op.op == "Identity"}
        self.constants = _equal_constants(region)

    def run(self) -> None:
        self._forget_unread()
        ops = ordered(self.region.ops, self.aliases.resolve)
        by_name = {op.name: op for op in ops}
        for op in ops:
            self.after[op.name] = self._waits(op, by_name)
        settled: dict[str, str] | None = None
        while settled != self.settled:
            settled = dict(self.settled)
            for op in ops:
                self._visit(op, by_name)
            # What leaves the region is there: it runs only where the predicates are such that it is.
            for name in self.region.results:
                for predicate, _ in () if name is None else self._context(name, by_name):
                    self.settled.setdefault(predicate, name or "")
        self.region.ops = self._grouped(ops, 0, [])
        self.region.results = [None if name is None else self.aliases.resolve(name) for name in self.region.results]

    def _forget_unread(self) -> None:
        """A Merge that nothing reads only says when something has run, as a check that a branch holds does."""
        results = [name for name in self.region.results if name is not None]
        names = [*results, *(name for op in self.region.ops for name in op.reads())]
        read = {self.aliases.resolve(name).rpartition(":")[0] for name in names}
        for op in self.region.ops:
            if op.op in MERGES and op.name not in read:
                op.op = "NoOp"
                op.controls += [self.aliases.resolve(name).rpartition(":")[0] for name in op.inputs]
                op.inputs = []

    def _waits(self, op: Op, by_name: dict[str, Op]) -> list[str]:
        """The ops that an op waits for, those too for which only the constants, Switches and NoOps before it wait."""
        reads = [self.aliases.resolve(name).rpartition(":")[0] for name in op.reads()]
        names = [name for name in reads if name in by_name and by_name[name].op in ("Const", *SWITCHES)]
        found: dict[str, None] = {}
        for name in [*names, *op.waits()]:
            source = by_name.get(name)
            handed_on = source is not None and source.op in ("Const", *SWITCHES, *_WAITING)
            found |= dict.fromkeys(self.after[name] if handed_on else [name])
        return list(found)

    def _predicate(self, tensor: str) -> str:
        """The predicate behind a tensor: copies of it are it, and so are equal constants."""
        tensor = self.aliases.resolve(tensor)
        while tensor.rpartition(":")[0] in self.identities:
            tensor = self.aliases.resolve(self.identities[tensor.rpartition(":")[0]])
        return self.constants.get(tensor, tensor)

    def _context(self, tensor: str, by_name: dict[str, Op]) -> Context:
        tensor = self.aliases.resolve(tensor)
        name, _, number = tensor.rpartition(":")
        op = by_name.get(name)
        if op is None:
            return ()
        context = self.contexts[name]
        if op.op in SWITCHES and self._predicate(op.inputs[1]) not in self.settled:
            return (*context, (self._predicate(op.inputs[1]), int(number)))
        return context

    def _visit(self, op: Op, by_name: dict[str, Op]) -> None:
        phases: dict[str, int] = {}
        sources = [self.aliases.resolve(name).rpartition(":")[0] for name in op.reads()]
        for source in [*sources, *op.waits(), *self.after[op.name]]:
            for predicate, phase in self.phases.get(source, {}).items():
                phases[predicate] = max(phases.get(predicate, 0), phase)
        self.phases[op.name] = phases
        given = [self._context(name, by_name) for name in op.reads()]
        if op.op in MERGES:
            self._merge(op, given, phases)
            return
        if op.op in _WAITING:
            # It runs after what it waits for has run or was left out.
            self.contexts[op.name] = ()
            return
        waited = [self.contexts[name] for name in op.waits() if name in by_name and by_name[name].op not in SWITCHES]
        self.contexts[op.name] = context = self._joined(op, [*given, *waited])
        # What waits outside of a branch for what is in it comes between that branch and the next.
        for source in self.after[op.name]:
            for predicate, _ in self.contexts.get(source, ()):
                if predicate not in dict(context):
                    phases[predicate] = max(phases.get(predicate, 0), self.phases[source].get(predicate, 0) + 1)

    def _merge(self, op: Op, given: list[Context], phases: dict[str, int]) -> None:
        if len(given) != 2:
            raise UnsupportedOpError(f"{op}: a branch of TensorFlow 1 requires two sides, got {len(given)}")
        first, second = (dict(context) for context in given)
        both = [predicate for predicate in first if predicate in second and first[predicate] != second[predicate]]
        if not both and self.settled:
            raise UnsupportedOpError(
                f"{op}: a merge of two branches requires outputs that both of them have, got "
                f"{some([repr(name) for name in self.settled.values()])}; ask for '{op.name}:0' instead"
            )
        if not both:
            raise InvalidModelError(f"{op}: its inputs must come from the two sides of a Switch, got others")
        predicate = both[0]
        self.merged[op.name] = predicate, (first[predicate], second[predicate])
        kept = [entry for entry in given[0] if entry[0] != predicate and entry in given[1]]
        self.contexts[op.name] = tuple(kept)
        phases[predicate] = phases.get(predicate, 0) + 1

    def _joined(self, op: Op, contexts: list[Context]) -> Context:
        found: dict[str, int] = {}
        for context in sorted(contexts, key=len, reverse=True):
            for predicate, side in context:
                if found.setdefault(predicate, side) != side:
                    raise InvalidModelError(f"{op}: requires inputs of one side of a Switch, got those of both")
        return tuple(found.items())

    def _grouped(self, ops: list[Op], depth: int, leaving: Iterable[str]) -> list[Op]:
        """The ops of one context, those of branches within them gathered; `leaving` are read outside of it."""
        branches: dict[tuple[str, int], _Branch] = {}
        kept: list[Op] = []
        home: dict[str, tuple[str, int, int | None]] = {}

        def branch(predicate: str, phase: int) -> _Branch:
            return branches.setdefault((predicate, phase), _Branch(predicate))

        for op in ops:
            context = self.contexts[op.name][depth:]
            # A constant is the same wherever it stands, and others want to know its value.
            op.controls = [] if op.op == "Const" else self.after[op.name]
            if op.op == "Const":
                kept.append(op)
                continue
            if op.op in SWITCHES:
                for number in range(2):
                    self.aliases.names[f"{op.name}:{number}"] = op.inputs[0]
            if context:
                predicate, side = context[0]
                phase = self.phases[op.name].get(predicate, 0)
                if op.op in MERGES and self.merged[op.name][0] == predicate:
                    phase -= 1
                branch(predicate, phase).sides[side].append(op)
                home[op.name] = predicate, phase, side
            elif op.op in MERGES:
                predicate = self.merged[op.name][0]
                phase = self.phases[op.name][predicate] - 1
                branch(predicate, phase).merges.append(op)
                home[op.name] = predicate, phase, None
            elif op.op not in SWITCHES:
                kept.append(op)
        self._export(ops, branches, home, leaving)
        made = [self._branch(key, found, depth) for key, found in branches.items()]
        return ordered(kept + [op for op in made if op is not None], self.aliases.resolve)

    def _export(
        self,
        ops: list[Op],
        branches: dict[tuple[str, int], _Branch],
        home: dict[str, tuple[str, int, int | None]],
        leaving: Iterable[str],
    ) -> None:
        """What a branch has made and a later one of the same predicate reads leaves the first."""
        reads = [(name, home.get(op.name)) for op in ops for name in op.reads()]
        reads += [(self._predicate(op.inputs[1]), home.get(op.name)) for op in ops if op.op in SWITCHES]
        for name, reader in [*reads, *((name, ("", 0, None)) for name in leaving)]:
            source = self.aliases.resolve(name)
            made = home.get(source.rpartition(":")[0])
            if made is not None and (reader or made)[:2] != made[:2]:
                predicate, phase, side = made
                if side is not None:
                    branches[predicate, phase].exports[source] = side

    def _leaving(self, found: _Branch, side: int) -> list[str]:
        """What of one side of a branch is read behind it."""
        names = [name for name, made in found.exports.items() if made == side]
        return names + [merge.inputs[self.merged[merge.name][1].index(side)] for merge in found.merges]

    def _branch(self, key: tuple[str, int], found: _Branch, depth: int) -> Op | None:
        outside = [self._leaving(found, side) for side in range(2)]
        sides = [self._grouped(list(ops), depth + 1, names) for ops, names in zip(found.sides, outside, strict=True)]
        names = [merge.name for merge in found.merges]
        if not any(sides) and not names:
            return None
        stem = names[0] if names else (sides[1] or sides[0])[0].name
        controls = [name for merge in found.merges for name in merge.controls]
        made = Op(f"{stem}/branch_{key[1]}", BRANCH, [found.predicate], controls)
        results: tuple[list[str | None], list[str | None]] = ([], [])
        for number, merge in enumerate(found.merges):
            first, second = self.merged[merge.name][1]
            results[first].append(self.aliases.resolve(merge.inputs[0]))
            results[second].append(self.aliases.resolve(merge.inputs[1]))
            self.aliases.names[f"{merge.name}:0"] = f"{made.name}:{number}"
        for number, (name, side) in enumerate(found.exports.items(), start=len(names)):
            # A branch within has handed it on.
            name = self.aliases.resolve(name)
            results[side].append(name)
            results[1 - side].append(None)
            self.aliases.names[name] = f"{made.name}:{number}"
        made.regions = tuple(
            Region(ops, [], leaving, self.aliases.resolve, frozenset(names))
            for ops, leaving in zip(sides, results, strict=True)
        )
        return made
