"""The description of a runtime: the forms of operators that it lacks, or computes otherwise, and its types."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import onnx_ir as ir

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph import standard as std
from lstm_lower.passes.opset.installed import is_version_between
from lstm_lower.passes.rewriting import Rule

Views = tuple[type[std.Standard], ...]


@dataclasses.dataclass(frozen=True)
class Lack:
    """A form of an operator that a target does not run, computes otherwise, or takes long for.

    Attributes:
        op: the operator, or a kind of operators.
        what: of it, for a message.
        where: whether a node is of that form; `None` where all are.
        silent: whether the target computes it otherwise without a word, instead of leaving it to others or failing.
        fails: whether it takes such a node, and fails in a run.
        slow: whether it computes it right, and another form faster: written so where a model is optimised, at the end.
        formula: what stands for it there, where that is another thing than for all that lack the operator.
        suspected: whether functions that hold the operator are written where they are called, to see if it is so.
        since: the first version of onnxruntime that is so, such as `"1.27"`; empty for all older ones.
        until: the first version that is so no more; empty while there is none.
        example: the text of a graph with such a node, whose first output depends on its first input.
        refused: whether the right way to run the example is to fail.
    """

    op: type[std.Standard]
    what: str = ""
    where: Callable[[Any], bool] | None = None
    silent: bool = False
    fails: bool = False
    slow: bool = False
    formula: Rule | None = None
    suspected: bool = False
    since: str = ""
    until: str = ""
    example: str = ""
    refused: bool = False

    def holds(self, view: std.Standard) -> bool:
        """Whether a node is of that form."""
        return isinstance(view, self.op) and (self.where is None or self.where(view))

    @property
    def name(self) -> str:
        """The operator and its form."""
        return f"{self.op.op_type or self.op.__name__} {self.what}".rstrip()


@dataclasses.dataclass(frozen=True)
class RuntimeTarget:
    """A runtime.

    Attributes:
        name: what it is called.
        runs: the operators that it runs; none for all but those that it lacks.
        lacks: forms that it does not run, or computes otherwise without a word.
        without: element types that it does not have.
        leaves: element types that it leaves to the processor, which is fine inside.
        narrowed: element types that it computes in fewer digits without a word, which is fine of scalars inside.
        closed_bodies: whether a Scan's body may read nothing from outside.
        nested_loops: whether it runs loops in loops.
        fixed_sizes: whether every size has to be known beforehand.
    """

    name: str
    runs: Views = ()
    lacks: tuple[Lack, ...] = ()
    without: frozenset[ir.DataType] = frozenset()
    leaves: frozenset[ir.DataType] = frozenset()
    narrowed: frozenset[ir.DataType] = frozenset()
    closed_bodies: bool = False
    nested_loops: bool = True
    fixed_sizes: bool = False

    def schedule(self, wanted: str) -> str:
        """The schedule under which loops are lowered.

        Raises:
            InvalidInputError: the wanted one leaves loops that the target does not run.
        """
        loops = not any(issubclass(std.Scan, lack.op) and lack.where is None for lack in self.lacks)
        allowed = ["scan", "unroll"] if loops else ["unroll"]
        if loops and self.nested_loops:
            return wanted
        if wanted not in ("auto", *allowed):
            raise InvalidInputError(f"target '{self.name}' requires a schedule of {allowed}, got {wanted!r}")
        return allowed[0] if wanted == "auto" else wanted

    def rows(self, *, silent: bool = False, slow: bool = False) -> Iterator[Lack]:
        """The forms that it lacks in the installed version of onnxruntime, of any operator that it does not run too.

        Args:
            silent: only what it computes otherwise without a word.
            slow: what it takes long for, too.
        """
        for lack in self.lacks:
            if (lack.silent or not silent) and (slow or not lack.slow) and is_version_between(lack.since, lack.until):
                yield lack
        if self.runs and not silent:
            yield Lack(std.Standard, where=lambda view: not isinstance(view, self.runs))

    def fault(self, view: std.Standard, *, silent: bool = False) -> str | None:
        """Why the target does not run a node, if so; `silent` as that of `rows`."""
        lack = next((lack for lack in self.rows(silent=silent) if lack.holds(view)), None)
        return None if lack is None else f"no {f'{view.op_type} {lack.what}'.rstrip()}"

    def fails(self, view: std.Standard) -> bool:
        """Whether the target takes a node and fails in a run."""
        return any(lack.fails and lack.holds(view) for lack in self.rows())
