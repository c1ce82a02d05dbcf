"""What every command has beside its own work: `--plugin`, `--json`, options in groups, errors as messages.

And what those share that write a model which they make of another one.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.records.files import check_place

if TYPE_CHECKING:
    import onnx_ir as ir

    from lstm_lower.passes.summary import Summary

PluginOption = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="MODULE", help="A module, or a Python file, that defines ops; may be repeated."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def command(function: Callable[..., None], code: int = 1) -> Callable[..., None]:
    """A function as a command with `--plugin` and `--json`; an error that the user can mend ends it with a message.

    A parameter whose type is a dataclass stands for its fields, which are options each.

    Args:
        function: the command; it is called with `as_json` as well.
        code: the exit code of an error.
    """
    own = inspect.signature(function, eval_str=True).parameters
    groups: dict[str, Any] = {
        name: each.annotation for name, each in own.items() if dataclasses.is_dataclass(each.annotation)
    }

    @functools.wraps(function)
    def run(*, plugin: list[str] | None, **given: Any) -> None:
        with console.errors(as_json=given["as_json"], plugins=plugin, code=code):
            for name, group in groups.items():
                given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
            function(**given)

    parameters = [each.replace(kind=each.KEYWORD_ONLY) for each in _parameters(own, groups)]
    vars(run)["__signature__"] = inspect.Signature(parameters)
    return run


def _parameters(own: Mapping[str, inspect.Parameter], groups: Mapping[str, Any]) -> Iterator[inspect.Parameter]:
    """A command's parameters as typer reads them."""
    for each in own.values():
        if each.name in groups:
            yield from inspect.signature(groups[each.name], eval_str=True).parameters.values()
        elif each.name == "as_json":
            yield each.replace(name="plugin", annotation=PluginOption, default=None)
            yield each.replace(annotation=JsonOption, default=False)
        else:
            yield each


class Rewriting:
    """A command's way from one model to another: its result harms no file of the one that it reads.

    Attributes:
        path: where the result goes.
    """

    def __init__(self, model: Path, output: Path | None, ending: str) -> None:
        """Raises an OSError where nothing can be written."""
        self.path = output if output is not None else model.parent / f"{model.stem}.{ending}"
        check_place(self.path)
        self._start, self._written = time.perf_counter(), False

    @functools.cached_property
    def seconds(self) -> float:
        """The time until it is first asked for, that is, until the result is written."""
        return time.perf_counter() - self._start

    def read(self, model: Path | Callable[[], ir.Model]) -> ir.Model:
        """The model in a file, or that of a function."""
        from lstm_lower.records.model_files import load

        source = model() if callable(model) else load(model)
        check_place(self.path)  # now that it is known what else the model consists of
        return source

    def write(self, result: ir.Model, external_data: bool | None = None) -> None:
        """Writes the result, once onnx's checker has accepted it and onnxruntime has loaded it."""
        from lstm_lower.records.model_files import save
        from lstm_lower.runtime.loadable import check_loadable

        _ = self.seconds  # what writing takes is not part of it
        save(result, self.path, external_data=external_data, check=check_loadable)
        self._written = True

    def tell(self, data: Mapping[str, Any], lines: Sequence[str], *, as_json: bool, then: str = "") -> None:
        """Prints what was made, as data or as lines, and where it was written, with what may be done `then`."""
        if as_json:
            output = str(self.path) if self._written else None
            console.print_json({"output": output, "seconds": self.seconds, **data})
            return
        size = [console.bytes_text(self.path.stat().st_size)] if self._written else []
        for line in (*lines, *(f"wrote {self.path} ({text}){then}" for text in size)):
            console.out().print(escape(line))


def before_and_after(before: Summary, after: Summary) -> dict[str, dict[str, int]]:
    """Numbers of nodes and of loops, as data."""
    return {
        "nodes": {"before": before.nodes, "after": after.nodes},
        "loops": {"before": before.loops, "after": after.loops},
    }
