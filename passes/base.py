"""The form of every pass: an `onnx_ir` pass in place, with a postcondition."""

from __future__ import annotations

import re
import sys

import onnx_ir as ir

from lstm_lower.errors import InvalidModelError
from lstm_lower.graph.structure import nesting
from lstm_lower.graph.verify import verify

_WORDS = re.compile("[A-Z][A-Z0-9]*(?![a-z])|[A-Z][a-z0-9]*")


class Pass(ir.passes.InPlacePass):
    """A pass on a whole model; `LoopPass` is the other form, on one loop.

    Subclasses define `call` and, where something holds after it that did not have to before, `ensures`.

    Attributes:
        name: what traces, dumps and errors call it: the class's name in lower case, `code-sinking` of `CodeSinking`.
        verify_each: whether the model and the pass's postcondition are verified after every call.
    """

    name: str = ""
    verify_each: bool = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = "-".join(_WORDS.findall(cls.__name__.removesuffix("Pass"))).lower()

    # onnx_ir's own checks postconditions always; whole walks after every pass take longer than some passes.
    def __call__(self, model_or_result: ir.Model | ir.passes.PassResult, /) -> ir.passes.PassResult:
        """Runs the pass.

        Raises:
            LstmLowerError: what the pass raises of the model.
            InvalidModelError: the model's graphs nest deeper than Python's recursion goes.
            ir.passes.PostconditionError: under `verify_each`, the pass is faulty.
        """
        model = model_or_result.model if isinstance(model_or_result, ir.passes.PassResult) else model_or_result
        try:
            result = self.call(model)
        except RecursionError as error:
            raise InvalidModelError(
                f"{self.name} requires graphs that nest as deep as Python's recursion limit of "
                f"{sys.getrecursionlimit()} allows, got {nesting(model)} levels; sys.setrecursionlimit raises it"
            ) from error
        if self.verify_each:
            self._verify(model)
        return result

    def ensures(self, model: ir.Model) -> None:
        """Verifies what holds after the pass.

        Raises:
            ir.passes.PostconditionError: it does not.
        """

    def _verify(self, model: ir.Model) -> None:
        try:
            verify(model)
        except InvalidModelError as error:
            raise ir.passes.PostconditionError(f"{self.name} left a malformed model: {error}") from error
        self.ensures(model)
