"""Which axes of a module's inputs are left open: those that a user asks for, or as many as can be."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

from torch import Tensor, nn
from torch.export import Dim
from torch.nn.modules.conv import _ConvNd

from lstm_lower.errors import InvalidInputError
from lstm_lower.records.lengths import Place

# Why an axis is fixed that PyTorch does not take another size of.
BY_ITSELF = "forward works for this size alone"
# Why an axis of a picture is.
OF_PICTURES = "pictures keep the example's sizes unless dynamic_shapes names their axes"

# What is said of axes, such as why they are fixed.
Axes = dict[Place, str]
DynamicShapes = Literal["auto"] | Mapping[str, Any] | None
# Axes that are to be open.
Requested = set[Place] | Literal["auto"]


def requested(dynamic_shapes: DynamicShapes, names: Sequence[str], tensors: Sequence[Tensor]) -> Requested:
    """What `dynamic_shapes` asks for.

    Args:
        dynamic_shapes: `auto`; `None` for no open axes; or input -> axes in a list, tuple or set, or as `torch.export`
            has them: axis -> `Dim`, a name, `Dim.AUTO` or `Dim.DYNAMIC` for open ones, `None`, a size or `Dim.STATIC`
            for others; or one of these for each axis in a list.
        names: of the inputs.
        tensors: the example.

    Raises:
        InvalidInputError: it is none of these, or names an input or axis that is not there.
    """
    if isinstance(dynamic_shapes, str) and dynamic_shapes == "auto":
        return "auto"
    if dynamic_shapes is None:
        return set()
    given: Any = dynamic_shapes
    if not isinstance(given, Mapping):
        example = f"{{{names[0]!r}: [0]}}"
        raise InvalidInputError(
            f"dynamic_shapes requires 'auto', None or a mapping of inputs to axes, such as {example}, got {given!r}"
        )
    unknown = [name for name in dynamic_shapes if name not in names]
    if unknown:
        raise InvalidInputError(f"dynamic_shapes requires names of {list(names)}, got {unknown[0]!r}")
    shapes = {name: tuple(tensor.shape) for name, tensor in zip(names, tensors, strict=True)}
    return {(name, axis) for name, axes in dynamic_shapes.items() for axis in _open(name, axes, shapes[name])}


def _open(name: str, axes: Any, shape: tuple[int, ...]) -> set[int]:
    """The open axes of an input."""
    given = axes
    if isinstance(axes, (list, tuple)) and axes and not all(isinstance(axis, int) for axis in axes):
        if len(axes) != len(shape):
            raise InvalidInputError(
                f"dynamic_shapes requires one entry for each of the {len(shape)} axes of '{name}', or numbers of axes, "
                f"got {axes!r}"
            )
        given = dict(enumerate(axes))
    elif isinstance(axes, (list, tuple, set, frozenset, range)):
        given = dict.fromkeys(axes, Dim.AUTO)
    elif axes is not None and not isinstance(axes, Mapping):
        raise InvalidInputError(
            f"dynamic_shapes requires axes in a list, or axis -> Dim or name, for '{name}', got {axes!r}"
            + (f"; write [{axes}]" if isinstance(axes, int) and not isinstance(axes, bool) else "")
        )
    for axis in given or ():
        if not isinstance(axis, int) or isinstance(axis, bool) or not 0 <= axis < len(shape):
            count = f"0 to {len(shape) - 1}" if shape else "none, as it is a scalar"
            raise InvalidInputError(
                f"dynamic_shapes requires axes of '{name}', {count}, got {axis!r}"
                + (f"; write {axis + len(shape)}" if isinstance(axis, int) and -len(shape) <= axis < 0 else "")
            )
    return {axis for axis, size in (given or {}).items() if _is_open(name, axis, size, shape[axis])}


def _is_open(name: str, axis: int, size: Any, example: int) -> bool:
    if size is None or size is Dim.STATIC:
        return False
    if isinstance(size, int) and not isinstance(size, bool):
        if size != example:
            raise InvalidInputError(
                f"dynamic_shapes requires the example's size {example} for an axis that is not open, got {size} "
                f"for axis {axis} of '{name}'"
            )
        return False
    if isinstance(size, (str, Dim, type(Dim.AUTO))):
        return True
    raise InvalidInputError(
        f"dynamic_shapes requires a Dim, a name, None or a size for axis {axis} of '{name}', got {size!r}"
    )


def of_pictures(module: nn.Module, names: Sequence[str], tensors: Sequence[Tensor]) -> Axes:
    """The axes of pictures and volumes but for their first, the batch, and why they are fixed.

    These are inputs with as many axes as a convolution over two or three of them takes, of a module without recurrent
    layers: those read pictures as sequences, of any length.
    """
    layers = list(module.modules())
    if any(isinstance(layer, (nn.RNNBase, nn.RNNCellBase)) for layer in layers):
        return {}
    spatial = {len(layer.kernel_size) for layer in layers if isinstance(layer, _ConvNd)} - {1}
    return {
        (name, axis): OF_PICTURES
        for name, tensor in zip(names, tensors, strict=True)
        if tensor.dim() - 2 in spatial
        for axis in range(1, tensor.dim())
    }


def choices(names: Sequence[str], tensors: Sequence[Tensor], wanted: Requested) -> Iterator[set[Place]]:
    """Which axes to leave open, in the order in which to try."""
    if wanted != "auto":
        yield wanted
        return
    every = range(max(tensor.dim() for tensor in tensors))
    # Open axes, and those among them that are open where their size is not 1.
    tried: list[tuple[Collection[int], Collection[int]]] = [
        (every, ()),
        # Often one axis alone must have a size: one that is repeated, or a height that convolutions bring down to 1.
        (every, every[1:]),
        # A first axis of size 1 may be one that is repeated too, beside batches of other sizes.
        (every, every),
        *(([axis for axis in every if axis != closed], ()) for closed in every[1:]),
        (every[:2], ()),
        (every[:1], ()),
        # Where it is the first that must have a size, others need not.
        (every[1:], ()),
        ((), ()),
    ]
    for axes, not_of_one in tried:
        yield {
            (name, axis)
            for name, x in zip(names, tensors, strict=True)
            for axis, size in enumerate(x.shape)
            if axis in axes and (size != 1 or axis not in not_of_one)
        }


def check_open(wanted: Requested, fixed: Axes) -> None:
    """Refuses a request for axes that cannot be open.

    Args:
        wanted: the request.
        fixed: axes that have the example's size, and why.

    Raises:
        InvalidInputError: there are such.
    """
    for name, axis in () if wanted == "auto" else sorted(wanted & fixed.keys()):
        raise InvalidInputError(
            f"dynamic_shapes requires axes that forward leaves open, got '{name}', axis {axis}: {fixed[name, axis]}"
        )
