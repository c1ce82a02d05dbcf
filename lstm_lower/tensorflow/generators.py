"""tf.random.Generator: random numbers whose key and counter are a variable; TensorFlow's own numbers.

The variable holds, as int64, the counter's two halves, the lower one first, and the key. Whoever draws moves the
counter on, by 256 for each number.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.tensorflow.attributes import dtype_attribute
from lstm_lower.tensorflow.regions import Op
from lstm_lower.tensorflow.state import cell_of, emitted, tensor_of, write
from lstm_lower.tensorflow.translator import Scope, Translator, handlers
from lstm_lower.tensorflow.values import INT64, Value

handles = handlers("Generators of random numbers")

_UINT64 = ir.DataType.UINT64
_RESERVED = 256

# Op -> the one that makes its numbers of key and counter.
_DRAWS = {
    "StatefulUniform": "StatelessRandomUniformV2",
    "StatefulUniformInt": "StatelessRandomUniformIntV2",
    "StatefulUniformFullInt": "StatelessRandomUniformFullIntV2",
    "StatefulStandardNormal": "StatelessRandomNormalV2",
    "StatefulStandardNormalV2": "StatelessRandomNormalV2",
    "StatefulTruncatedNormal": "StatelessTruncatedNormalV2",
}


def _check_algorithm(t: Translator, op: Op, scope: Scope) -> Expr:
    """The operand that says the algorithm.

    Raises:
        UnsupportedOpError: it is not known to be Philox.
    """
    alg = t.tensor(op.inputs[1], scope, op)
    known = alg.builder.facts.constant(alg.value)
    if known is None or int(known.reshape(-1)[0]) not in (1, 3):
        got = "one that is known at run time only" if known is None else int(known.reshape(-1)[0])
        raise UnsupportedOpError(f"{op}: requires 1 (Philox) as its algorithm, got {got}")
    return alg


def _skip(op: Op, scope: Scope, t: Translator, numbers: Expr) -> Expr:
    """Moves a generator on by so many numbers.

    Args:
        op: the op; its first input is the generator's variable.
        scope: the region.
        t: the translation.
        numbers: int64 [1].

    Returns:
        The state before.
    """
    cell = cell_of(t, op.inputs[0], scope, op)
    state = tensor_of(cell, scope, op)
    low, high, key = (state.slice(place, place + 1, axis=0) for place in range(3))
    step = numbers * _RESERVED
    moved = low + step
    # Compared as unsigned numbers, whose order is that of the signed ones half of them away.
    half = int(np.iinfo(np.int64).min)
    carry = (moved + half < step + half).cast(INT64)
    write(op, scope, cell, state.builder.concat([moved, high + carry, key], 0))
    return state


@handles("RngReadAndSkip", "RngSkip", writes=True)
def _read_and_skip(t: Translator, op: Op, scope: Scope) -> Value:
    _check_algorithm(t, op, scope)
    state = _skip(op, scope, t, t.tensor(op.inputs[2], scope, op).cast(INT64).reshape(1))
    return state if op.op == "RngReadAndSkip" else None


@handles(*_DRAWS, writes=True)
def _draw(t: Translator, op: Op, scope: Scope) -> Value:
    has_algorithm = op.op != "StatefulStandardNormal"
    alg = _check_algorithm(t, op, scope) if has_algorithm else t.root.constant(1, ir.DataType.INT64)
    shape, *bounds = (t.tensor(name, scope, op) for name in op.inputs[1 + has_algorithm :])
    wide = shape.cast(INT64)
    state = _skip(op, scope, t, wide.builder.op(std.ReduceProd, wide, keepdims=1))
    counter, key = (state.slice(*ends, axis=0).cast(_UINT64) for ends in ((0, 2), (2, 3)))
    operands = [shape, key, counter, alg.cast(ir.DataType.INT32), *bounds]
    dtype = int(dtype_attribute(op, "dtype"))
    return emitted(t, _DRAWS[op.op], operands, op, scope, dtype=dtype)
