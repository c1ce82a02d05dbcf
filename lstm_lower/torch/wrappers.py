"""What PyTorch puts around modules, and modules that are none of Python code or have no numbers yet."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lstm_lower.errors import InvalidInputError, UnsupportedOpError, some
from lstm_lower.runtime.training.framework_weights import unwrapped


def module_of(given: Any) -> nn.Module:
    """The module itself of what a user hands over as one.

    Raises:
        InvalidInputError: it is no module, its weights have no numbers yet, or new tensors would have none.
        UnsupportedOpError: it is TorchScript, or holds weights that are no plain numbers.
    """
    if isinstance(given, type) and issubclass(given, nn.Module):
        raise InvalidInputError(
            f"from_torch requires an nn.Module, got the class {given.__name__}; make one of it: {given.__name__}(...)"
        )
    if isinstance(given, torch.export.ExportedProgram):
        raise InvalidInputError("from_torch requires an nn.Module, got an ExportedProgram; program.module() is one")
    if not isinstance(given, nn.Module):
        way = "; the forward of an nn.Module may call it" if callable(given) else ""
        raise InvalidInputError(f"from_torch requires an nn.Module, got {type(given).__name__}{way}")
    module: nn.Module = unwrapped(given)
    scripted = [
        f"'{name}'" if name else "the whole"
        for name, part in module.named_modules()
        if isinstance(part, (torch.jit.ScriptModule, torch.jit.ScriptFunction))
    ]
    if scripted:
        raise UnsupportedOpError(
            f"from_torch requires a module of Python code, got TorchScript ({some(scripted)}), which torch.export does "
            "not trace; hand over the module that was scripted or traced (its weights load with "
            "module.load_state_dict(scripted.state_dict())), or write it with torch.onnx.export(..., dynamo=False, "
            "do_constant_folding=False), which keeps the weights' names, and train the file with ll.from_onnx"
        )
    if type(module).forward is nn.Module.forward and "forward" not in vars(module):
        raise InvalidInputError(
            f"from_torch requires a module with a forward, got {type(module).__name__}; that of nn.Sequential "
            "calls its parts in order"
        )
    _check_weights(module)
    if torch.empty(0).is_meta or isinstance(torch.empty(0), torch._subclasses.FakeTensor):
        raise InvalidInputError(
            "from_torch requires new tensors with numbers, got a default device or a mode that makes them without; "
            "call it outside of torch.device('meta') and FakeTensorMode, or with torch.set_default_device('cpu')"
        )
    return module


def _check_weights(module: nn.Module) -> None:
    held = [*module.named_parameters(), *module.named_buffers()]
    lazy = [f"'{name}'" for name, value in held if is_lazy(value)]
    if lazy:
        raise InvalidInputError(
            f"from_torch requires weights of known shapes, got {some(lazy)} of lazy modules; call the module once with "
            "its inputs, module(x), which gives them their shapes"
        )
    without = [f"'{name}'" for name, value in held if value.is_meta]
    if without:
        raise InvalidInputError(
            f"from_torch requires weights with numbers, got {some(without)} on the device meta; "
            "module.to_empty(device='cpu') makes room for them, module.load_state_dict(...) or the modules' "
            "reset_parameters() fill it"
        )
    inferring = [f"'{name}'" for name, value in held if value.is_inference()]
    if inferring:
        raise InvalidInputError(
            f"from_torch requires weights that may have gradients, got {some(inferring)} made under "
            "torch.inference_mode(); make the module outside of it, and load_state_dict what this one holds"
        )
    packed = [f"'{name}' ({said})" for name, value in held if (said := unlike_numbers(value))]
    if packed:
        raise UnsupportedOpError(
            f"from_torch requires weights that lie densely in memory, got {some(packed)}; put value.to_dense(), "
            "or value.dequantize(), in their place"
        )
    quantized = [f"'{name}'" for name, part in module.named_modules() if _is_quantized(part)]
    if quantized:
        raise UnsupportedOpError(
            f"from_torch requires floating weights, got quantized modules ({some(quantized)}), which have no "
            "gradients in PyTorch either; hand over the module before it was quantized"
        )


def _is_quantized(part: nn.Module) -> bool:
    """Whether it is one of PyTorch's own modules of packed integers."""
    path = type(part).__module__.split(".")
    return path[0] == "torch" and "quantized" in path


def unlike_numbers(value: Tensor) -> str | None:
    """What keeps a tensor from being a dense block of numbers, if anything does."""
    if value.is_nested:
        return "nested"
    if value.is_quantized:
        return "quantized"
    if value.layout is not torch.strided:
        return str(value.layout).removeprefix("torch.").removeprefix("_")
    return None


def eagerly() -> contextlib.AbstractContextManager[Any]:
    """Runs what `torch.compile` stands around as it is written."""
    stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance
