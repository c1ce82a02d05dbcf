"""Definitions of the ops on cuDNN's params buffer: its size, and its conversion from and to single matrices.

The sizes that they take as operands must be constants, for the lists' lengths and all offsets follow from them.
"""

from __future__ import annotations

from math import prod

import numpy as np

from lstm_lower.layouts import DIRECTIONS, ParamsBlock, ParamsLayout, resolve_skip_input
from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.cudnn import CudnnSequence

_SIZES = ("num_layers", "num_units", "input_size")


class _Params(OpDef, abstract=True):
    """Common to the five ops."""

    static_operands = _SIZES

    class Types:
        T = ("bfloat16", "float16", "float32", "float64")

    class Inputs:
        num_layers = operand("", "int32")
        num_units = operand("", "int32")
        input_size = operand("", "int32")

    class Attrs(CudnnSequence.Attrs):
        """Those of the network that the buffer is for."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Sizes that are known must make a layout."""
        layout_of(call)


class CudnnRNNParamsSize(_Params):
    """Number of elements of the params buffer."""

    class Types:
        T = ("bfloat16", "float16", "float32", "float64")
        S = ("int32", "int64")

    class Outputs:
        params_size = operand("1", "S")

    class Attrs(_Params.Attrs):
        num_proj = attr(int, 0)
        T = attr(DType, DType.FLOAT, choices=(DType.BFLOAT16, DType.FLOAT16, DType.FLOAT, DType.DOUBLE))
        S = attr(DType, DType.INT32, choices=(DType.INT32, DType.INT64))

    @classmethod
    def verify(cls, call: Call) -> None:
        """The dtype of the size is an attribute."""
        super().verify(call)
        call.types["S"] = call.attributes["S"]
        layout = layout_of(call)
        if layout is not None and call.types["S"] == DType.INT32 and layout.size > np.iinfo(np.int32).max:
            raise call.error("attribute S", f"int64 for a size of {layout.size}", "int32")


class _ParamsToCanonical(_Params, abstract=True):
    class Inputs(_Params.Inputs):
        params = operand("S")

    @classmethod
    def verify(cls, call: Call) -> None:
        """The buffer must have the layout's size, and the lists its number of parts."""
        layout = layout_of(call)
        if layout is None:
            return
        size = call.sizes.get("S")
        if isinstance(size, int):
            layout.check_size(size)
        _verify_counts(call, layout)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """Each part's own shape."""
        infos = super().output_infos(call)
        layout = layout_of(call)
        if layout is not None:
            for info, block in zip(infos, layout.canonical_weights() + layout.canonical_biases(), strict=False):
                info.shape = block.shape
        return infos


class CudnnRNNParamsToCanonical(_ParamsToCanonical):
    """Splits the params buffer into one matrix and one bias per gate, layer and direction."""

    class Outputs:
        weights = operand(None, variadic=True, count="num_params")
        biases = operand(None, variadic=True, count="num_params")

    class Attrs(_Params.Attrs):
        num_params = attr(int)


class CudnnRNNParamsToCanonicalV2(_ParamsToCanonical):
    """CudnnRNNParamsToCanonical with projection matrices, so that there may be more matrices than biases."""

    class Outputs:
        weights = operand(None, variadic=True, count="num_params_weights")
        biases = operand(None, variadic=True, count="num_params_biases")

    class Attrs(_Params.Attrs):
        num_params_weights = attr(int)
        num_params_biases = attr(int)
        num_proj = attr(int, 0)


class _CanonicalToParams(_Params, abstract=True):
    class Outputs:
        params = operand("S")

    @classmethod
    def verify(cls, call: Call) -> None:
        """Every part must be there, with as many elements as the layout gives it; shapes are free."""
        layout = layout_of(call)
        if layout is None:
            return
        _verify_counts(call, layout)
        for name, blocks in _lists(layout).items():
            infos = call.lists[name]
            if len(infos) != len(blocks):
                raise call.error(name, f"{len(blocks)} parts", f"{len(infos)}")
            for index, (info, block) in enumerate(zip(infos, blocks, strict=True)):
                _verify_part(call, f"{name}[{index}]", info, block)
        call.sizes["S"] = layout.size


class CudnnRNNCanonicalToParams(_CanonicalToParams):
    """Packs one matrix and one bias per gate, layer and direction into the params buffer."""

    class Inputs(_Params.Inputs):
        weights = operand(None, variadic=True, count="num_params")
        biases = operand(None, variadic=True, count="num_params")

    class Attrs(_Params.Attrs):
        num_params = attr(int)


class CudnnRNNCanonicalToParamsV2(_CanonicalToParams):
    """CudnnRNNCanonicalToParams with projection matrices."""

    class Inputs(_Params.Inputs):
        weights = operand(None, variadic=True, count="num_params_weights")
        biases = operand(None, variadic=True, count="num_params_biases")

    class Attrs(_Params.Attrs):
        num_params_weights = attr(int)
        num_params_biases = attr(int)
        num_proj = attr(int, 0)


def layout_of(call: Call) -> ParamsLayout | None:
    """The layout that the operands describe; `None` while one of them is not known.

    Raises:
        InvalidModelError, InvalidInputError: the sizes contradict each other.
    """
    values = [call.operands[name].value if name in call.operands else None for name in _SIZES]
    if any(value is None for value in values):
        return None
    layers, units, width = (int(value) for value in values if value is not None)
    attributes = call.attributes
    return ParamsLayout(
        rnn_mode=attributes["rnn_mode"],
        num_layers=layers,
        directions=DIRECTIONS[attributes["direction"]],
        input_size=width,
        num_units=units,
        num_proj=attributes.get("num_proj", 0),
        skip_input=resolve_skip_input(attributes["input_mode"], width, units),
    )


def counts_of(call: Call) -> dict[str, int]:
    """List name -> number of parts, as the attributes have it."""
    both = call.attributes.get("num_params")
    return {name: both or call.attributes[f"num_params_{name}"] for name in ("weights", "biases")}


def _lists(layout: ParamsLayout) -> dict[str, list[ParamsBlock]]:
    return {"weights": layout.canonical_weights(), "biases": layout.canonical_biases()}


def _verify_counts(call: Call, layout: ParamsLayout) -> None:
    counts = counts_of(call)
    for name, blocks in _lists(layout).items():
        if counts[name] != len(blocks):
            attribute = "num_params" if "num_params" in call.attributes else f"num_params_{name}"
            what = f"{len(blocks)} {name} ({layout.pseudo_layers} pseudo-layers of {layout.rnn_mode})"
            raise call.error(f"attribute {attribute}", what, counts[name])


def _verify_part(call: Call, name: str, info: TensorInfo, block: ParamsBlock) -> None:
    if info.shape is None or any(not isinstance(dim, int) for dim in info.shape):
        return
    found = prod(dim for dim in info.shape if isinstance(dim, int))
    if found != block.size:
        raise call.error(
            name, f"{block.name} with {block.size} elements, {list(block.shape)}", f"shape {list(info.shape)}"
        )
