"""A random module's steps in PyTorch and in the model that `from_torch` makes of it."""

from __future__ import annotations

import contextlib
import copy
import json
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import lstm_lower as ll
from lstm_lower.errors import LstmLowerError
from lstm_lower.torch.variation import OtherRounding
from tests.support.fuzz.torch_modules.program import Program

Array = np.ndarray[Any, Any]
Found = dict[str, Array]

SIZES = ((3, 5), (4, 5), (3, 7))
# What is allowed beside what PyTorch's own numbers move by.
TOLERANCE = {"bfloat16": 5e-2, "float16": 5e-3, "": 2e-5}
# How large terms are that cancel, at least.
CANCELLING = 0.1


class Invalid(Exception):  # noqa: N818 (no error: the module is left out)
    """PyTorch does not train this module, or makes numbers of it that are not finite."""


def fault(program: Program, stage: Callable[[str], None] = lambda _: None) -> tuple[str, str]:
    """What is wrong with a program's step: what sort of fault, and what exactly; nothing if it is right.

    Raises:
        Invalid: PyTorch does not train it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _fault(program, stage)


def _fault(program: Program, stage: Callable[[str], None]) -> tuple[str, str]:
    stage("original in PyTorch")
    trial = Trial(program)
    first = trial.steps(SIZES[:1])[0]
    stage("from_torch")
    before = {name: value.clone() for name, value in trial.module.state_dict().items()}
    try:
        step = ll.from_torch(
            trial.module,
            trial.batch(0, SIZES[0])[0],
            trial.space["loss"],
            trial.space["optimizer"](trial.module) if program.what == "train" else None,
            example_targets=trial.batch(0, SIZES[0])[1],
            what=program.what,
        )
    except LstmLowerError as error:
        # Weights that decay by gradients of zeros are refused, as documented.
        decaying = re.findall(r"'([\w.]+)' \(", str(error).partition("got another update of ")[2])
        if decaying and not any(first.get(f"grad/{name}", np.zeros(1)).any() for name in decaying):
            return "", ""
        return f"refused: {unnumbered(str(error))[:90]}", str(error)
    except Exception as error:  # noqa: BLE001 (any other is a finding)
        return f"raises {type(error).__name__} {_place(error)}", "".join(traceback.format_exception(error)[-4:])
    for name, value in trial.module.state_dict().items():
        if not torch.equal(value, before[name]):
            return "module changed", name
    stage("steps")
    sizes = trial.open_sizes(step)
    try:
        got = list(_steps(step, trial, sizes))
    except Exception as error:  # noqa: BLE001
        return f"step raises {type(error).__name__} {unnumbered(str(error))[:60]}", str(error)
    return trial.compared(got, sizes)


class Trial:
    """A program that is loaded."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.space = program.loaded()
        self.taken = [given.name for given in program.inputs]
        torch.manual_seed(1)
        try:
            self.module: nn.Module = self.space["Module"]().train(program.training)
        except Exception as error:
            raise Invalid from error
        texts = " ".join(line.text for line in program.lines)
        self.tolerance = next(value for name, value in TOLERANCE.items() if name in texts)

    def batch(self, number: int, sizes: tuple[int, int]) -> tuple[Any, Any]:
        """Inputs and targets."""
        torch.manual_seed(100 + number)
        inputs = self.space["inputs"](*sizes)
        try:
            with torch.no_grad():
                first = first_of(copy.deepcopy(self.module)(*inputs))
            return inputs, self.space["targets"](first)
        except Exception as error:
            raise Invalid from error

    def batches(self, sizes: Any) -> list[tuple[Any, Any]]:
        """A batch for each of the sizes."""
        return [self.batch(number, each) for number, each in enumerate(sizes)]

    def steps(self, sizes: Any, change: Callable[[Tensor], Tensor] = lambda x: x) -> list[Found]:
        """What PyTorch makes of a step for each of the sizes."""
        return self._made(self.batches(sizes), change)

    def _made(self, batches: list[tuple[Any, Any]], change: Callable[[Tensor], Tensor]) -> list[Found]:
        try:
            return self._steps(batches, change)
        except Exception as error:
            raise Invalid from error

    def _steps(self, batches: list[tuple[Any, Any]], change: Callable[[Tensor], Tensor]) -> list[Found]:
        updates = self.program.what == "train"
        module, optimizer = self._fresh(change)
        found = []
        for inputs, targets in batches:
            if not updates:
                module, optimizer = self._fresh(change)
            inputs, targets = changed(inputs, change), changed(targets, change)
            named = named_inputs(inputs, self.taken)
            if self.program.what == "input_gradient":
                for x in named.values():
                    x.requires_grad_(x.is_floating_point())
            module.zero_grad()
            result = module(*inputs)
            loss = self.space["loss"]
            total = loss(first_of(result) if isinstance(loss, nn.Module) else result, *targets)
            values = {"loss": total, **named_outputs(result)}
            values = {name: value.detach().clone() for name, value in values.items()}
            total.backward()
            self._stir(module, change)
            held = named if self.program.what == "input_gradient" else dict(module.named_parameters())
            for name, value in held.items():
                if value.grad is not None:
                    values[f"grad/{name}"] = value.grad.clone()
            if updates:
                if hasattr(optimizer, "optimizer"):
                    optimizer.optimizer.step()
                optimizer.step()
                for name, value in (*module.named_parameters(), *module.named_buffers()):
                    values[f"new_{name}"] = value.detach().clone()
            arrays = {name: numbers(value) for name, value in values.items()}
            if not all(np.isfinite(each).all() for each in arrays.values()):
                raise Invalid
            found.append(arrays)
        if updates:
            inputs, targets = (changed(each, change) for each in batches[0])
            with torch.no_grad():
                result = module.eval()(*inputs)
                total = loss(first_of(result) if isinstance(loss, nn.Module) else result, *targets)
            found.append({"evaluated": numbers(total)})
            if not np.isfinite(found[-1]["evaluated"]):
                raise Invalid
        return found

    def _stir(self, module: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
        """Moves gradients by what float32 leaves of the largest numbers in all: Adam makes much of small ones.

        Terms that cancel are taken to be as large as this where no gradient is.
        """
        gradients = [x.grad for x in module.parameters() if x.grad is not None and x.numel()]
        largest = max((x.abs().max() for x in gradients), default=torch.tensor(0.0)).clamp(CANCELLING)
        for x in gradients:
            x += (5 * (change(torch.ones_like(x)) - 1) * largest).to(x)

    def _fresh(self, change: Callable[[Tensor], Tensor]) -> tuple[nn.Module, Any]:
        module = copy.deepcopy(self.module)
        for values in (module.parameters(), module.buffers()):
            for value in values:
                value.data = change(value.data)
        return module, self.space["optimizer"](module)

    def open_sizes(self, step: Any) -> list[tuple[int, int]]:
        """The sizes of three batches: the example's, and others where the model has them open."""
        fixed = json.loads(next((e.value for e in step.metadata_props if e.key == "lstm_lower.fixed_axes"), "{}"))
        example = named_inputs(self.batch(0, SIZES[0])[0], self.taken)
        sizes = []
        for number, each in enumerate(SIZES):
            try:
                held = named_inputs(self.batch(number, each)[0], self.taken)
                self.steps([each])
            except Invalid:
                sizes.append(SIZES[0])
                continue
            moved = [
                (name, axis)
                for name, value in held.items()
                for axis, pair in enumerate(zip(value.shape, example[name].shape, strict=True))
                if pair[0] != pair[1]
            ]
            is_open = not any(str(axis) in fixed.get(name, {}) for name, axis in moved) and not fixed.get("target")
            is_open = is_open and not any(name.startswith("target") for name in fixed)
            sizes.append(each if is_open else SIZES[0])
        return sizes

    def compared(self, got: list[Found], sizes: list[tuple[int, int]]) -> tuple[str, str]:
        """What differs; what a loop or a branch decides by rounding, few of PyTorch's own results tell."""
        found = self._compared(got, sizes, 3)
        return self._compared(got, sizes, 40) if found[0] else found

    def _compared(self, got: list[Found], sizes: list[tuple[int, int]], count: int) -> tuple[str, str]:
        """What differs beside so many of PyTorch's results from numbers that are moved in their last places."""
        own = self.steps(sizes)
        try:
            truth = self._in_float64(sizes)
        except Invalid:
            truth = own
        versions = [own, truth]
        for seed in range(count):
            generator = torch.Generator().manual_seed(seed)
            # Of numbers that are not finite then, nothing follows.
            with OtherRounding(seed) if self._rounds() else contextlib.nullcontext():
                versions.append(self.steps(sizes, lambda x, g=generator: _moved(x, g)))
        for number, values in enumerate(truth[: len(got)]):
            for name, value in values.items():
                if name not in got[number]:
                    if name.startswith(("grad/", "new_")):
                        continue  # it does not depend on the parameter, or is no state
                    return f"missing {name.partition('/')[0]}", name
                spread = max(_distance(each[number].get(name), value) for each in versions)
                text = _differs(got[number][name], value, spread, self.tolerance, own[number][name])
                if text:
                    kind = re.split(r"[/_]", name)[0]
                    return f"wrong {kind}", f"step {number} of sizes {sizes}: {name}: {text}"
        return "", ""

    def _rounds(self) -> bool:
        """Whether PyTorch shows what its operators compute; functions of control flow have no gradients then."""
        return not re.search(r"\b(cond|scan|while_loop)\(", self.program.source().partition("class Module")[2])

    def _in_float64(self, sizes: Any) -> list[Found]:
        # Drawn in float32, so that they are the same.
        batches, before = self.batches(sizes), torch.get_default_dtype()
        try:
            torch.set_default_dtype(torch.float64)
            return self._made(batches, lambda x: x.double() if x.dtype == torch.float32 else x)
        finally:
            torch.set_default_dtype(before)


def _steps(step: Any, trial: Trial, sizes: list[tuple[int, int]]) -> Iterator[Found]:
    data = {value.name for value in step.graph.input}

    def feeds_of(number: int) -> Found:
        inputs, targets = trial.batch(number, sizes[number])
        named = {name: value.numpy() for name, value in named_inputs(inputs, trial.taken).items()}
        held = [value.numpy() for value in targets]
        names = ["target"] if len(held) == 1 else [f"target_{place}" for place in range(len(held))]
        feeds = named | dict(zip(names, held, strict=True))
        return {name: value for name, value in feeds.items() if name in data}

    if trial.program.what != "train":
        session = ll.Session(step)
        yield from (session.run(feeds_of(number)) for number in range(len(sizes)))
        return
    trainer = ll.Trainer(step, on_nan="ignore")
    for number in range(len(sizes)):
        yield trainer.step(feeds_of(number), [value.name for value in step.graph.output]).outputs
    try:
        yield {"evaluated": np.float32(trainer.evaluate([feeds_of(0)])["loss"])}
    except ll.InvalidInputError as error:
        if "samples" not in str(error):  # not all that is fed has samples
            raise


def first_of(result: Any) -> Any:
    if isinstance(result, dict):
        return next(iter(result.values()))
    return result[0] if isinstance(result, tuple) else result


def named_inputs(inputs: Any, taken: list[str]) -> dict[str, Tensor]:
    """Tensors by the names that a step has for them."""
    return {
        name: each
        for place, value in enumerate(inputs)
        for name, each in (
            [(f"given_{key}", each) for key, each in value.items()]
            if isinstance(value, dict)
            else [(taken[place], value)]
        )
    }


def named_outputs(result: Any) -> dict[str, Tensor]:
    if isinstance(result, dict):
        return dict(result)
    if isinstance(result, tuple):
        return {f"output_{place}": value for place, value in enumerate(result)}
    return {"output": result}


def changed(values: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """New tensors in the place of those of a tuple."""
    return tuple(
        {name: change(each).clone() for name, each in value.items()}
        if isinstance(value, dict)
        else change(value).clone()
        for value in values
    )


def numbers(value: Tensor) -> Array:
    array: Array = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return array


def unnumbered(text: str) -> str:
    """A message without names and numbers of the module that it is about, on one line."""
    return re.sub(r"\s+", " ", re.sub(r"'[^']*'|\[[^\]]*\]|\w*\d[\w.+-]*(, )?|[-\d.]+", "_", text))


def _moved(x: Tensor, generator: torch.Generator) -> Tensor:
    if not x.is_floating_point():
        return x
    return x * (1 + 2e-7 * torch.randn(x.shape, generator=generator, dtype=x.dtype))


def _distance(one: Array | None, other: Array) -> float:
    if one is None or one.shape != other.shape:
        return float("inf")
    return float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max(initial=0))


def _differs(got: Array, truth: Array, spread: float, tolerance: float, own: Array) -> str:
    if got.shape != truth.shape:
        return f"shape {list(truth.shape)} became {list(got.shape)}"
    if got.dtype != own.dtype and own.dtype != np.float16:
        return f"dtype {own.dtype} became {got.dtype}"
    if truth.dtype.kind != "f":
        return "" if spread or np.array_equal(got, truth) else f"values {truth.ravel()[:4]} became {got.ravel()[:4]}"
    allowed = tolerance * (1 + np.abs(truth).max(initial=0)) + 30 * spread
    wrong = ~(np.abs(got.astype(np.float64) - truth) <= allowed)
    if not wrong.any():
        return ""
    return f"values {truth[wrong][:4]} became {got[wrong][:4]} (spread {spread:.1e})"


def _place(error: BaseException) -> str:
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if re.search(r"/(passes|lstm_lower|runtime)/", f.filename)
    ]
    return f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].name}" if frames else ""
