"""An LSTM's steps by onnxruntime's operator, of few sequences: the loop's nodes take longer than their arithmetic then.

A training step keeps gates and cell states of every step, which the operator does not hand out. But it hands out every
`h`, and of these the gates follow over all steps at once: one product, `h` of the step before with the recurrent
weights, and four activations. What remains is `c' = f*c + i*g`, a Scan of two nodes in place of fifteen. All that is
computed by the kernels that computed it before; only the order of sums in products differs.

What it takes more grows with the batch, what it saves does not. A training step of a classifier in that form, by what
it takes as a loop (48 steps of 16 numbers, onnxruntime 1.32, one thread of an AMD EPYC):

    batch        1      2      4      8
    32 units     0.81   0.83   0.89   0.97
    64 units     0.86   0.92   0.98   1.09
    128 units    0.94   1.00   1.06

so it is written so for `MOST_GATES` of all sequences, four times the units each, and `LEAST_STEPS`: of 16 steps it
takes 0.89 to 0.98 of the time, of 8 0.93 to 0.98, of 4 as long. Where nothing but `h` is asked for, the operator
alone is left: a fifth of the time.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr, concat, sigmoid, tanh
from lstm_lower.passes.loops.views.loop import behind_identity
from lstm_lower.passes.patterns import AnyValue, Bound, applied, match
from lstm_lower.passes.targets.target import Lack

MOST_GATES = 512
# An open number counts as more.
LEAST_STEPS = 16


# The step, as patterns.
_I, _F, _O, _G, _C = map(AnyValue, "ifogc")
_SIGMOID, _TANH, _PRODUCT = applied(std.Sigmoid), applied(std.Tanh), applied(std.MatMul)
_INPUT_GATE, _FORGET_GATE, _OUTPUT_GATE, _CANDIDATE = _SIGMOID(_I), _SIGMOID(_F), _SIGMOID(_O), _TANH(_G)
_KEPT, _TAKEN = _FORGET_GATE * _C, _INPUT_GATE * _CANDIDATE
_CELL = _KEPT + _TAKEN
_CELL_TANH = _TANH(_CELL)
_HIDDEN = _OUTPUT_GATE * _CELL_TANH
# The sums that the gates are made of, in the body, and what of them is computed before the loop.
_X, _H, _R, _W, _BIAS = map(AnyValue, ("x", "h", "r", "w", "bias"))
_SUMS = _X + _PRODUCT(_H, _R)
_FROM_X = _PRODUCT(_X, _W)
_BIASED = _FROM_X + _BIAS


@dataclasses.dataclass(frozen=True)
class _Steps:
    """The steps of an LSTM.

    Attributes:
        cell: the body's values, by the sides of the patterns.
        hidden: which of the two states is `h`; the other one is `c`.
        sums: what `x` and the bias add to the gates' sums, `[T, B, 4*H]`.
        x: what comes in, `[T, B, I]`.
        w: its weights, `[I, 4*H]`.
        r: the weights of `h`, `[H, 4*H]`.
        bias: `[4*H]`, or none.
        parts: which parts of a sum belong to i, o, f and the candidate, in the operator's order.
        units: H.
    """

    cell: Bound
    hidden: int
    sums: ir.Value
    x: ir.Value
    w: ir.Value
    r: ir.Value
    bias: ir.Value | None
    parts: tuple[int, ...]
    units: int


def _steps(scan: std.Scan) -> _Steps | None:
    """The steps of a Scan of float32 over axis 0 whose body is an LSTM's and whose states are `[B, H]`."""
    facts, body, values = scan.facts, scan.body, scan.node.inputs
    alike = len({*scan.input_directions, *scan.output_directions}) == 1 and not any(
        (*scan.input_axes, *scan.output_axes)
    )
    shape = facts.shape(values[0])
    if not alike or scan.states != 2 or len(values) != 3 or facts.dtype(values[0]) != ir.DataType.FLOAT or not shape:
        return None
    for hidden in (0, 1):
        cell = match(_HIDDEN, behind_identity(body.outputs[hidden]), facts)
        if cell is not None and _is_carried(cell, body, hidden):
            return _between_products(scan, cell, hidden)
    return None


def _is_carried(cell: Bound, body: ir.Graph, hidden: int) -> bool:
    """Whether the cell's new state follows its old one."""
    return cell[_C] is body.inputs[1 - hidden] and behind_identity(body.outputs[1 - hidden]) is cell[_CELL]


def _between_products(scan: std.Scan, cell: Bound, hidden: int) -> _Steps | None:
    """The steps, where the sums of the gates are those of two products, `x` with its weights and `h` with its own."""
    facts, body, outer = scan.facts, scan.body, scan.node.inputs[2]
    split, gates = facts.maker(cell[_I]), [cell[side] for side in (_I, _O, _F, _G)]
    shape = facts.shape(cell[_C])
    if not isinstance(split, std.Split) or shape is None or len(shape) != 2 or not isinstance(shape[1], int):
        return None
    outputs = list(split.node.outputs)
    sums = match(_SUMS, split.data, facts)
    if split.axis != 1 or split.sizes != (shape[1],) * 4 or {*gates} != {*outputs} or sums is None:
        return None
    inside = {*body.inputs, *(value for node in body for value in node.outputs)}
    if sums[_H] is not body.inputs[hidden] or sums[_X] is not body.inputs[2] or sums[_R] in inside:
        return None
    of_x = match(_BIASED, outer, facts) or match(_FROM_X, outer, facts)
    if outer is None or of_x is None or [facts.rank(of_x[side]) for side in (_X, _W)] != [3, 2]:
        return None
    bias = of_x.get(_BIAS)
    if bias is not None and facts.shape(bias) != (4 * shape[1],):
        return None
    parts = tuple(outputs.index(gate) for gate in gates)
    return _Steps(cell, hidden, outer, of_x[_X], of_x[_W], sums[_R], bias, parts, shape[1])


def is_lstm_of_few(scan: std.Scan) -> bool:
    """Whether the steps are those of an LSTM with few gates, those of all sequences counted."""
    steps = _steps(scan)
    sums = None if steps is None else scan.facts.shape(steps.sums)
    if steps is None or sums is None or not isinstance(sums[1], int) or 4 * sums[1] * steps.units > MOST_GATES:
        return False
    return (not isinstance(sums[0], int) or sums[0] >= LEAST_STEPS) and _is_read(scan, steps)


def _is_read(scan: std.Scan, steps: _Steps) -> bool:
    """Whether all that leaves the steps is part of the formula."""
    parts = {*steps.cell.values(), scan.body.inputs[steps.hidden]}
    return all(behind_identity(value) in parts for value in scan.body.outputs)


def lstm(scan: std.Scan, b: Builder) -> list[Expr]:
    """The operator, gates of what it hands out, and a Scan over the cell's states alone."""
    steps = _steps(scan)
    assert steps is not None
    cell, reverse = steps.cell, any(scan.input_directions)
    first = [b.wrap(value) for value in scan.node.inputs[:2] if value is not None]
    h0, c0 = first[steps.hidden], first[1 - steps.hidden]
    y, h_end = b.ops(
        std.LSTM,
        b.wrap(steps.x),
        _in_order(b.wrap(steps.w).mT, steps),
        _in_order(b.wrap(steps.r).mT, steps),
        _biases(b, steps),
        None,
        h0.unsqueeze(0),
        c0.unsqueeze(0),
        outputs=2,
        hidden_size=steps.units,
        direction="reverse" if reverse else "forward",
    )
    hidden = y.squeeze(1)

    def before_each(values: Expr, initial: Expr) -> Expr:
        if reverse:
            return concat([values, initial.unsqueeze(0)], 0).slice(1, END, axis=0)
        return concat([initial.unsqueeze(0), values], 0).slice(0, -1, axis=0)

    previous = before_each(hidden, h0)
    parts = (b.wrap(steps.sums) + previous @ b.wrap(steps.r)).split(4, axis=2)
    i, o, f, g = (parts[part] for part in steps.parts)
    i, o, f, g = sigmoid(i), sigmoid(o), sigmoid(f), tanh(g)
    taken = i * g

    def step(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        c = inputs[0] * states[0] + inputs[1]
        return [c], [c]

    (c_end,), (cells,) = b.scan(step, states=[c0], inputs=[f, taken], reverse=reverse)
    c_before = before_each(cells, c0)
    made = {
        **{cell[side]: parts[part] for side, part in zip((_I, _O, _F, _G), steps.parts, strict=True)},
        cell[_INPUT_GATE]: i,
        cell[_OUTPUT_GATE]: o,
        cell[_FORGET_GATE]: f,
        cell[_CANDIDATE]: g,
        cell[_C]: c_before,
        cell[_KEPT]: f * c_before,
        cell[_TAKEN]: taken,
        cell[_CELL]: cells,
        cell[_CELL_TANH]: tanh(cells),
        cell[_HIDDEN]: hidden,
        scan.body.inputs[steps.hidden]: previous,
    }
    ends = [h_end.squeeze(0), c_end]
    sequences = [made[behind_identity(value)] for value in scan.body.outputs[2:]]
    return [ends[steps.hidden], ends[1 - steps.hidden], *sequences]


def _in_order(stacked: Expr, steps: _Steps) -> Expr:
    """Weights `[4*H, ...]` as the operator wants them: gates i, o, f and the candidate, of one direction."""
    if steps.parts != (0, 1, 2, 3):
        parts = stacked.split(4, axis=0)
        stacked = concat([parts[part] for part in steps.parts], 0)
    return stacked.unsqueeze(0)


def _biases(b: Builder, steps: _Steps) -> Expr | None:
    """That of `x` and none of `h`."""
    if steps.bias is None:
        return None
    bias = _in_order(b.wrap(steps.bias), steps)
    return concat([bias, b.fill(0, [1, 4 * steps.units], bias.dtype)], 1)


_EXAMPLE = """(float[48,1,16] x, float[16,128] w, float[128] bias, float[32,128] r, float[1,32] h, float[1,32] c)
  => (float[48,1,32] y)
  { sums = MatMul (x, w) biased = Add (sums, bias)
    h_end, c_end, y = Scan <num_scan_inputs = 1, body = step (float[1,32] h0, float[1,32] c0, float[1,128] s)
      => (float[1,32] h1, float[1,32] c1, float[1,32] out)
      { z = MatMul (h0, r) a = Add (s, z) i, f, g, o = Split <axis = 1, num_outputs = 4> (a)
        si = Sigmoid (i) sf = Sigmoid (f) tg = Tanh (g) so = Sigmoid (o) kept = Mul (sf, c0) taken = Mul (si, tg)
        c1 = Add (kept, taken) t = Tanh (c1) h1 = Mul (so, t) out = Identity (h1) }> (h, c, biased) }"""

ROWS = (
    Lack(
        std.Scan,
        "over an LSTM's steps of few sequences",
        is_lstm_of_few,
        slow=True,
        formula=lstm,
        example=_EXAMPLE,
    ),
)
