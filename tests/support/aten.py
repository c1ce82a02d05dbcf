"""Functions of PyTorch next to what is translated of their traces: values and gradients, at the example and beyond."""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import lstm_lower as ll
from lstm_lower.torch.aten.recurrent import unchecked_packs
from lstm_lower.torch.aten.tracing import traced_otherwise
from lstm_lower.torch.aten.translate import translate
from tests.support.examples import TIMES

BEYOND_2_12 = pytest.mark.xfail(
    torch.torch_version.TorchVersion(torch.__version__) < "2.13",
    strict=True,
    reason="PyTorch 2.12 fixes a size, or has no trace of it",
)


class Tracing(TorchFunctionMode):
    """Calls ours in place of PyTorch's functions, within the block in which a module is traced."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Calls ours where there is one, else PyTorch's."""
        del types
        return traced_otherwise(func, args, kwargs or {})


class Called(nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *operands: Any) -> Any:
        return self.function(*operands)


def traced(module: nn.Module, *example: Tensor, fixed: bool = False) -> torch.export.ExportedProgram:
    """The trace of a module, all axes open that PyTorch can leave open unless they are to be fixed."""
    axes = tuple(dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO) for x in example)
    shapes = None if fixed else (axes,) if isinstance(module, Called) else axes
    with warnings.catch_warnings(), Tracing(), unchecked_packs():
        warnings.simplefilter("ignore")  # PyTorch's of its own code
        return torch.export.export(module, example, dynamic_shapes=shapes, strict=False)


def translated(module: nn.Module, *example: Tensor, fixed: bool = False) -> tuple[ir.Model, list[str]]:
    """The model of a module, with inputs `x0`, `x1`, ..., and the names of its outputs."""
    program = traced(module, *example, fixed=fixed)
    outputs = [f"y{place}" for place in range(len(program.graph_signature.user_outputs))]
    return translate(program, [f"x{place}" for place in range(len(example))], outputs), outputs


def _in_turn() -> tuple[torch.dtype, ...]:
    """One dtype for each test, in turn; both where more examples are asked for."""
    both = (torch.float32, torch.float64)
    test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0]
    return both if TIMES > 1 else (both[zlib.crc32(test.encode()) % 2],)


def check(
    function: Callable[..., Any],
    *examples: Sequence[Tensor],
    tolerance: float = 1e-5,
    gradients: bool = True,
    dtypes: Sequence[torch.dtype] = (),
    fixed: bool = False,
) -> None:
    """Compares results and gradients with PyTorch's; each further example is fed to the model of the first.

    Args:
        function: of tensors, or a module.
        *examples: operands, floating ones of which are cast to each dtype.
        tolerance: the largest difference, next to the largest magnitude, in float32; a hundredth in float64.
        gradients: whether to compare those of each floating result by each floating operand and weight.
        dtypes: to trace with; none for one of the two, in turn.
        fixed: whether all axes are.
    """
    for dtype in dtypes or _in_turn():
        allowed = tolerance if dtype == torch.float32 else tolerance / 100
        cast = [[x.to(dtype) if x.is_floating_point() else x for x in example] for example in examples]
        module = function.to(dtype) if isinstance(function, nn.Module) else Called(function)
        model, outputs = translated(module, *cast[0], fixed=fixed)
        for place, name in enumerate(outputs):
            _compare(module, model, name, place, cast, allowed, gradients=gradients)


def _compare(
    module: nn.Module,
    model: ir.Model,
    name: str,
    place: int,
    examples: Sequence[Sequence[Tensor]],
    allowed: float,
    *,
    gradients: bool,
) -> None:
    weights = dict(module.named_parameters())
    first = [f"x{k}" for k, x in enumerate(examples[0]) if x.is_floating_point()]
    wrt = [*first, *(w for w in weights if w in model.graph.initializers)]
    buffers = {key: value.clone() for key, value in module.named_buffers()}

    def run(example: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        operands = [x.clone().requires_grad_(x.is_floating_point()) for x in example]
        result = module(*operands)
        result = torch.utils._pytree.tree_map_only(Tensor, lambda x: x + 0 if x.dtype != torch.bool else x, result)
        for key, value in module.named_buffers():
            # The model has them, too.
            value.data.copy_(buffers[key])
        return operands, torch.utils._pytree.tree_leaves(result)[place]

    differs = gradients and run(examples[0])[1].requires_grad
    whole = ll.gradient(model, of=name, wrt=wrt, seeds=True) if differs else model
    session = ll.Session(whole)
    for example in examples:
        operands, result = run(example)
        feeds = {f"x{k}": x.numpy() for k, x in enumerate(example)}
        wanted = {name: result}
        if differs:
            seed = torch.randn(result.shape, generator=torch.Generator().manual_seed(1), dtype=result.dtype)
            feeds[f"seed/{name}"] = seed.numpy()
            by = {f"x{k}": x for k, x in enumerate(operands)} | weights
            found = torch.autograd.grad(result, [by[w] for w in wrt], seed, allow_unused=True)
            wanted |= {
                f"grad/{w}": torch.zeros_like(by[w]) if g is None else g for w, g in zip(wrt, found, strict=True)
            }
        results = session.run({key: value for key, value in feeds.items() if key in session.inputs})
        for key, value in wanted.items():
            _compare_arrays(key, results[key], value.detach().numpy(), allowed)


def drawn(*sizes: int) -> Tensor:
    """Numbers that are the same whenever they are asked for."""
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes)))


# Of two sizes each, without equal elements and with.
ARRAYS = ((drawn(4, 7, 3),), (drawn(5, 6, 2),))
TIES = tuple((x.mul(2).round(),) for (x,) in ARRAYS)


def check_together(
    function: Callable[..., Any],
    *examples: Sequence[Tensor],
    tolerance: float = 1e-5,
    dtypes: Sequence[torch.dtype] = (),
) -> None:
    """As `check`, with one gradient of all results side by side, which takes less time."""

    def joined(*operands: Any) -> Any:
        result = function(*operands)
        results = result if isinstance(result, (tuple, list)) else [result]
        real = [x.flatten() for x in results if x.is_floating_point()]
        return *(x.detach() for x in results), *([torch.cat(real)] if real else [])

    for dtype in dtypes or _in_turn():
        allowed = tolerance if dtype == torch.float32 else tolerance / 100
        cast = [[x.to(dtype) if x.is_floating_point() else x for x in example] for example in examples]
        model, outputs = translated(Called(joined), *cast[0])
        places = [f"x{place}" for place, x in enumerate(cast[0]) if x.is_floating_point()]
        differs = Called(joined)(*(x.clone().requires_grad_(x.is_floating_point()) for x in cast[0]))[-1].requires_grad
        session = ll.Session(ll.gradient(model, of=outputs[-1], wrt=places, seeds=True) if differs else model)
        for example in cast:
            operands = [x.clone().requires_grad_(x.is_floating_point()) for x in example]
            results = Called(joined)(*operands)
            wanted = dict(zip(outputs, results, strict=True))
            feeds = {f"x{place}": x for place, x in enumerate(example)}
            if differs:
                seed = drawn(results[-1].numel()).to(dtype)
                feeds[f"seed/{outputs[-1]}"] = seed
                by = [operands[int(place[1:])] for place in places]
                gradients = torch.autograd.grad(results[-1], by, seed, allow_unused=True)
                wanted |= {
                    f"grad/{place}": torch.zeros_like(x) if dx is None else dx
                    for place, x, dx in zip(places, by, gradients, strict=True)
                }
            made = session.run({name: x.numpy() for name, x in feeds.items() if name in session.inputs})
            for name, value in wanted.items():
                _compare_arrays(name, made[name], value.detach().numpy(), allowed)


def _compare_arrays(name: str, got: Any, expected: Any, allowed: float) -> None:
    assert got.dtype == expected.dtype, (name, got.dtype, expected.dtype)
    assert got.shape == expected.shape, (name, got.shape, expected.shape)
    finite = np.abs(expected[np.isfinite(expected)]) if expected.dtype.kind == "f" else np.abs(expected)
    scale = max(1.0, float(finite.max(initial=0)))
    np.testing.assert_allclose(got, expected, rtol=0, atol=allowed * scale, err_msg=name)
