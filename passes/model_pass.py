"""The form of every pass: an `onnx_ir` pass in place, with a postcondition; and what the passes of a pipeline share."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import Self

import onnx_ir as ir

from lstm_lower.errors import InvalidModelError, LstmLowerError
from lstm_lower.graph.builder import Workspace
from lstm_lower.graph.structure import nesting
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.graph.verify import verify, verify_kept
from lstm_lower.passes.malformed import malformed_models_explained
from lstm_lower.passes.trace import Trace

# Mark, in a model's `meta`, of one that a pass has changed.
MODIFIED = "lstm_lower.modified"

_WORDS = re.compile("[A-Z][A-Z0-9]*(?![a-z])|[A-Z][a-z0-9]*")


class FaultyPassError(LstmLowerError, ir.passes.PostconditionError):
    """Under `verify_each`: a pass breaks its promise, or a model contradicts itself where none could see it before."""


class Context:
    """The shared state of passes on one model: names, facts and version of the model, found out when first asked for.

    Attributes:
        model: the model.
        trace: where changes and refusals are recorded.
        changes: how often the model was changed.
        settled: at how many changes a kind of pass last left the model alone: it would do so again.
    """

    def __init__(self, model: ir.Model, trace: Trace | None = None) -> None:
        self.model = model
        self.trace = trace if trace is not None else Trace()
        self.changes = 0
        self.settled: dict[type[Pass], int] = {}
        self._space: Workspace | None = None

    @property
    def space(self) -> Workspace:
        """The workspace of the model as it is now."""
        if self._space is None:
            self._space = Workspace.of(self.model)
        return self._space

    def changed(self, *, preserved: bool, told: bool = False) -> None:
        """Notes a change: what was known of values is still true (`preserved`), or is to be found out anew.

        Where facts were `told` of all that is read in the place of something else, they know of what more may follow.
        """
        self.changes += 1
        if not preserved:
            self.close()
        elif self._space is not None:
            facts = self._space.facts
            (facts.revise if told else facts.look_again)()

    def close(self) -> None:
        """Lets go of what was found out."""
        if self._space is not None:
            self._space.facts.clear()
        self._space = None


class Pass(ir.passes.InPlacePass):
    """A pass on a whole model; `LoopPass` is the other form, on one loop.

    Subclasses define `call` and, where something holds after it that did not have to before, `ensures`. Used alone, a
    pass finds out by itself what it needs to know of the model; a pipeline lets its passes `share` that.

    Attributes:
        name: what traces, dumps and errors call it: the class's name in lower case, `code-sinking` of `CodeSinking`.
        preserves: whether what was known of values before the pass is true after it.
        tells: whether facts are told of all that is read in the place of something else, as `builder.replace` does.
        verify_each: whether the model and the pass's postcondition are verified after every call.
    """

    name: str = ""
    preserves: bool = False
    tells: bool = False
    verify_each: bool = False
    _shared: Context | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = "-".join(_WORDS.findall(cls.__name__.removesuffix("Pass"))).lower()

    def share(self, context: Context) -> Self:
        """Lets the pass work with what is known already, as long as it is called on that model."""
        self._shared = context
        return self

    # onnx_ir's own checks postconditions always; whole walks after every pass take longer than some passes.
    def __call__(self, model_or_result: ir.Model | ir.passes.PassResult, /) -> ir.passes.PassResult:
        """Runs the pass.

        Raises:
            LstmLowerError: what the pass raises of the model.
            InvalidModelError: the model is malformed, or its graphs nest deeper than Python's recursion goes.
            FaultyPassError: under `verify_each`, the pass is faulty.
        """
        model = model_or_result.model if isinstance(model_or_result, ir.passes.PassResult) else model_or_result
        shared = self._shared
        alone = shared is None or shared.model is not model
        self.context = Context(model) if shared is None or alone else shared
        # Drivers tell what a model was like before their first pass.
        before = _fault(model) if alone and self.verify_each else None
        form = _form(model) if self.verify_each else None
        with malformed_models_explained(model) if alone else contextlib.nullcontext():
            result = self._guarded(model)
        if result.modified:
            self.context.changed(preserved=self.preserves, told=self.tells)
            model.meta[MODIFIED] = True
        if self.verify_each:
            self._verify(model, before, None if result.modified else form)
        if self.context is not shared:
            self.context.close()
        return result

    def _guarded(self, model: ir.Model) -> ir.passes.PassResult:
        try:
            return self.call(model)
        except RecursionError as error:
            raise InvalidModelError(
                f"{self.name} requires graphs that nest as deep as Python's recursion limit of "
                f"{sys.getrecursionlimit()} allows, got {nesting(model)} levels; sys.setrecursionlimit raises it"
            ) from error

    def ensures(self, model: ir.Model) -> None:
        """Verifies what holds after the pass.

        Raises:
            ir.passes.PostconditionError: it does not.
        """

    def _verify(self, model: ir.Model, before: InvalidModelError | None, unchanged: list[object] | None) -> None:
        """Verifies what the pass has left: the model, or, where the pass says that it changed nothing, its old form."""
        if unchanged is not None and _form(model) != unchanged:
            raise FaultyPassError(f"{self.name} changed the model and says that it did not")
        try:
            if unchanged is None or before is not None:
                verify_kept(model.graph, self.context.space.facts, verify(model))
            self.ensures(model)
        except InvalidModelError as error:
            raise before or FaultyPassError(f"{self.name} left a malformed model: {error}") from error
        except ir.passes.PostconditionError as error:
            raise before or FaultyPassError(str(error)) from error


def _fault(model: ir.Model) -> InvalidModelError | None:
    try:
        verify(model)
    except InvalidModelError as error:
        return error
    return None


def _form(model: ir.Model) -> list[object]:
    """The make of a model: its nodes in their order, and what these and its graphs read, make, hold and declare."""
    form: list[object] = []
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    for graph in graphs:
        form += [*graph.inputs, *graph.outputs, *graph.initializers.values()]
        for node in graph:
            form += [node, *node.inputs, *node.attributes.data.values()]
            for value in node.outputs:
                form += [value, value.name, value.type, value.shape]
            graphs += subgraphs_of(node)
    return form
