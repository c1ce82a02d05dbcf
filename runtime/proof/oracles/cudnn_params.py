"""Oracles of the ops on the params buffer: its size, and its conversion from and to single matrices.

ParamsToCanonical yields two lists and CanonicalToParams takes two; here they are keyed `weights`, `biases` and hold
lists of arrays, in the order of `lstm_lower.layouts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lstm_lower.errors import InvalidInputError, requires
from lstm_lower.layouts import DIRECTIONS, ParamsLayout, resolve_skip_input
from lstm_lower.runtime.proof.oracles.registry import oracle

Operand = Any
Outputs = dict[str, Any]


def _layout(
    *,
    num_layers: Operand,
    num_units: Operand,
    input_size: Operand,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
) -> ParamsLayout:
    """The layout that the operands and attributes describe which all these ops have; dropout and seeds say nothing."""
    return ParamsLayout(
        rnn_mode=rnn_mode,
        num_layers=int(num_layers),
        directions=DIRECTIONS[direction],
        input_size=int(input_size),
        num_units=int(num_units),
        num_proj=num_proj if rnn_mode == "lstm" else 0,
        skip_input=resolve_skip_input(input_mode, int(input_size), int(num_units)),
    )


@oracle("CudnnRNNParamsSize")
def params_size(*, T: Any = None, S: Any = None, **described: Any) -> Outputs:
    """CudnnRNNParamsSize: elements in the buffer, `[1]`, always as int64; T and S are dtypes."""
    layout = _layout(**described)
    return {"params_size": np.array([layout.size])}


@oracle("CudnnRNNParamsToCanonicalV2")
def params_to_canonical_v2(
    *, params: Operand, num_params_weights: int, num_params_biases: int, **described: Any
) -> Outputs:
    """CudnnRNNParamsToCanonicalV2: every gate's matrix `[N, width]`, projections `[num_proj, N]`, and biases `[N]`."""
    layout = _layout(**described)
    flat = np.asarray(params, np.float64)
    layout.check_size(flat.size)
    lists = {"weights": layout.canonical_weights(), "biases": layout.canonical_biases()}
    for (name, blocks), count in zip(lists.items(), (num_params_weights, num_params_biases), strict=True):
        if len(blocks) != count:
            raise InvalidInputError(requires("CudnnRNNParamsToCanonicalV2", None, name, f"{len(blocks)}", count))
    return {
        name: [flat[block.offset : block.end].reshape(block.shape) for block in blocks]
        for name, blocks in lists.items()
    }


@oracle("CudnnRNNParamsToCanonical")
def params_to_canonical(*, num_params: int, **operands: Any) -> Outputs:
    """CudnnRNNParamsToCanonical: as V2, with as many weights as biases."""
    return params_to_canonical_v2(num_params_weights=num_params, num_params_biases=num_params, **operands)


@oracle("CudnnRNNCanonicalToParamsV2")
def canonical_to_params_v2(
    *,
    weights: Sequence[Operand],
    biases: Sequence[Operand],
    num_params_weights: int | None = None,
    num_params_biases: int | None = None,
    **described: Any,
) -> Outputs:
    """CudnnRNNCanonicalToParamsV2: the inverse; only the elements of each part count, not their shape."""
    layout = _layout(**described)
    flat = np.zeros(layout.size)
    for parts, blocks in ((weights, layout.canonical_weights()), (biases, layout.canonical_biases())):
        for part, block in zip(parts, blocks, strict=True):
            flat[block.offset : block.end] = np.asarray(part, np.float64).ravel()
    return {"params": flat}


@oracle("CudnnRNNCanonicalToParams")
def canonical_to_params(*, num_params: int | None = None, **operands: Any) -> Outputs:
    """CudnnRNNCanonicalToParams: as V2, with as many weights as biases."""
    return canonical_to_params_v2(num_params_weights=num_params, num_params_biases=num_params, **operands)
