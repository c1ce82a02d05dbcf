"""Rows of what onnxruntime's own kernels, those for processors, lack, compute wrongly or take long for.

Measured on 1.32 unless a row says otherwise. Every model that leaves lstm-lower, and every one that a session opens, is
written by these rows, for all providers: what these have no kernel for is the processor's. `python -m tests.fuzz rows`
says which rows the installed onnxruntime still needs.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.passes.decompositions.fourier import is_inexact
from lstm_lower.passes.decompositions.losses import are_refused, refusing
from lstm_lower.passes.decompositions.recurrent import with_time_first
from lstm_lower.passes.formulas.kernels import COMPUTE_DTYPES
from lstm_lower.passes.loops.forward import along_the_first_axis, walks_across
from lstm_lower.passes.targets import formulas, recurrent_kernels, slow_kernels
from lstm_lower.passes.targets.target import Lack, RuntimeTarget


def _combines(scatter: std.ScatterND) -> bool:
    """Whether it does, and enough is known of the operands: ranks, and the size of the last axis of `indices`."""
    table, places = scatter.shape(0), scatter.shape(1)
    if scatter.reduction == "none" or table is None or not places:
        return False
    depth, known = places[-1], scatter.shape(2) is not None and None not in map(scatter.dtype, range(3))
    return known and isinstance(depth, int) and 0 < depth <= len(table)


def _writes_over(view: std.BatchNormalization) -> bool:
    """Whether new statistics, of known types and a known rank, come to lie in the memory of the old ones."""
    dtypes = [view.facts.dtype(value) for value in view.node.inputs]
    if not view.training_mode or view.rank() is None or None in dtypes:
        return False
    # Halves are cast: what the kernel makes of them is never an output itself.
    is_cast = any(dtype in COMPUTE_DTYPES for dtype in dtypes)
    return is_cast or not all(value.is_graph_output() for value in view.node.outputs[1:3])


def _is_of_another_type(view: std.Recurrent) -> bool:
    return view.dtype() not in (None, ir.DataType.FLOAT)


_LAYER = """(float[2,5,3] x, float[1,16,3] w, float[1,16,4] r) => (float[?,?,?,?] y)
  { y = LSTM <hidden_size = 4, layout = 1> (x, w, r) }"""
_DOUBLES = """(double[5,2,3] x, double[1,16,3] w, double[1,16,4] r) => (double[?,?,?,?] y)
  { y = LSTM <hidden_size = 4> (x, w, r) }"""
_LOSS = """(float[4,3] x, int64[4] labels) => (float y)
  { one = Constant <value = int64 {1}> () last = Sub (labels, one) y = SoftmaxCrossEntropyLoss (x, last) }"""

CPU = RuntimeTarget(
    "cpu",
    lacks=(
        # Updates are divided among threads without care that two of them may meet at one place: with two threads,
        # 3,200 rows added into 27 lose some in one run of a few (1.31; reported for 1.16 as microsoft/onnxruntime issue
        # 18048). A gradient of an embedding is just that. ScatterElements adds in order, on one thread.
        Lack(
            std.ScatterND,
            "that combines",
            _combines,
            silent=True,
            formula=formulas.ordered_scatter,
            suspected=True,
            example="""(float[27,64] x, int64[9600,1] i, float[9600,64] u) => (float[27,64] y)
              { y = ScatterND <reduction = "add"> (x, i, u) }""",
        ),
        # The new running mean and variance are written into the memory of the old ones wherever they are no outputs of
        # the graph. That may be an initializer, which optimisation has joined with an equal scale, or the caller's
        # array: results change from run to run.
        Lack(
            std.BatchNormalization,
            "whose new statistics are no outputs",
            _writes_over,
            silent=True,
            suspected=True,
            example="""(float[5,2] x) => (float[5,2] y) <float[2] c = {1.0, 2.0}>
              { y, m, v = BatchNormalization <training_mode = 1> (x, c, c, c, c) }""",
        ),
        # It follows the operator's function in onnx, which gives 1 with the probability of 0, and merges two of one
        # operand.
        Lack(
            std.Bernoulli,
            silent=True,
            suspected=True,
            example="""(float[64] x) => (float[64] y)
              { zero = Constant <value = float {0.0}> () p = Mul (x, zero) b = Bernoulli (p) y = Add (x, b) }""",
        ),
        # Digits are lost with lengths that are no powers of two.
        Lack(
            std.DFT,
            "of a length that may be no power of two",
            is_inexact,
            silent=True,
            suspected=True,
            example="(float[2,1000,1] x) => (float[2,1000,2] y) { y = DFT (x) }",
        ),
        Lack(
            std.STFT,
            "of a length that may be no power of two",
            is_inexact,
            silent=True,
            suspected=True,
            example="""(float[1,2000,1] x) => (float[?,?,?,?] y) <int64 step = {500}, int64 length = {1000}>
              { y = STFT (x, step, , length) }""",
        ),
        # Zeros; ONNX leaves open what it is, and NumPy's and PyTorch's is NaN.
        Lack(
            std.ReduceMean,
            "of nothing",
            formulas.is_of_nothing,
            silent=True,
            formula=formulas.mean_by_count,
            example="""(float[0,4] x) => (float[4] y) <int64[1] axes = {0}>
              { y = ReduceMean <keepdims = 0> (x, axes) }""",
        ),
        # It writes a QuantizeLinear behind what moves them, says there that the result is int8, and makes it uint8.
        Lack(
            std.DequantizeLinear,
            "of int8 that is moved",
            formulas.is_moved_int8,
            formula=formulas.dequantized,
            example="""(float[2,3] x) => (float[3,2] y) <float scale = {0.25}, int8 zero = {3}>
              { q = QuantizeLinear (x, scale, zero) d = DequantizeLinear (q, scale, zero)
                t = Transpose (d) y = Neg (t) }""",
        ),
        Lack(
            std.Recurrent,
            "with the batch first",
            lambda view: view.layout != 0,
            formula=with_time_first,
            suspected=True,
            example=_LAYER,
        ),
        Lack(std.Recurrent, "in another type than float32", _is_of_another_type, example=_DOUBLES),
        # It ends the process where a sequence is empty. Along axis 0 it says that there are no steps.
        Lack(
            std.Scan,
            "along another axis than the first",
            walks_across,
            formula=along_the_first_axis,
            example="""(float[2,N,3] x, float[2,3] first) => (float[2,3] y)
              { y = Scan <num_scan_inputs = 1, scan_input_axes = [1], body = step (float[2,3] s, float[2,3] e)
                => (float[2,3] t) { a = Add (s, e) t = Tanh (a) }> (first, x) }""",
            refused=True,
        ),
        # Their functions in onnx look scores up by GatherElements, for which -1 is the last class.
        Lack(
            std.ClassLoss,
            "of classes that may be negative",
            lambda view: not are_refused(view),
            silent=True,
            formula=refusing,
            example=_LOSS,
            refused=True,
        ),
        # What its optimiser makes of it: a Transpose before the product becomes a part of it, from behind other nodes
        # too, and the matrix is read wrongly.
        Lack(
            std.MatMul,
            "of a computed matrix and a vector",
            formulas.is_of_computed_matrix,
            silent=True,
            formula=formulas.product_of_matrices,
            example="""(float[3,4] x, float[3] v) => (float[4] y)
              { t = Transpose <perm = [1, 0]> (x) y = MatMul (t, v) }""",
        ),
        # Of halves it dies of that, in a product with a constant matrix, and so it does where a Cast stands between.
        Lack(
            std.MatMul,
            "of halves in another order",
            formulas.is_of_moved_halves,
            fails=True,
            formula=formulas.moved_after,
            example="""(float16[4,2,3] x) => (float16[2,4,2] y) <float16[3,2] w = {1, 2, 3, 4, 5, 6}>
              { t = Transpose <perm = [1, 0, 2]> (x) y = MatMul (t, w) }""",
        ),
        Lack(
            std.MatMul,
            "of what is cast in another order",
            formulas.is_of_cast_transposes,
            fails=True,
            formula=formulas.cast_first,
            example="""(float16[4,2,3] x) => (float[2,4,2] y) <float[3,2] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}>
              { t = Transpose <perm = [1, 0, 2]> (x) c = Cast <to = 1> (t) y = MatMul (c, w) }""",
        ),
        # Its optimiser makes y / x of 1 / x * y: others are integers then, and axes get lost.
        Lack(
            std.Div,
            "of one by other than floats of its rank",
            formulas.is_inverse,
            silent=True,
            formula=formulas.inverse,
            example="""(float[3] x, int64[3] n) => (float[3] y)
              { one = Constant <value = int64 {1}> () two = Constant <value = int64 {2}> () d = Add (n, two)
                q = Div (one, d) p = Mul (q, d) f = Cast <to = 1> (p) y = Mul (f, x) }""",
        ),
        # It is taken for one that adds nothing, and left out.
        Lack(
            std.Expand,
            "to nothing",
            formulas.makes_nothing,
            silent=True,
            formula=formulas.cut_before,
            example="""(float[1,3] x) => (float[0,3] y)
              { sizes = Constant <value = int64[2] {0, 3}> () a = Neg (x) e = Expand (a, sizes) y = Neg (e) }""",
        ),
        # The kernel takes them; where they are known to be constant, nothing does.
        Lack(
            std.Range,
            "between vectors",
            formulas.is_between_vectors,
            formula=formulas.between_scalars,
            example="""(float[4] x) => (float[?] y) <int64 zero = {0}, int64 one = {1}>
              { two = Constant <value = int64[1] {2}> () four = Add (two, two) r = Range (zero, four, one)
                f = Cast <to = 1> (r) y = Add (f, x) }""",
        ),
        Lack(
            std.Where,
            "among bools, or integers of few sizes",
            formulas.is_without_kernel,
            formula=formulas.choice,
            example="""(float[4] x) => (float[4] y) <bool[4] no = {1, 0, 1, 0}>
              { zero = Constant <value = float {0.0}> () c = Less (x, zero) n = Not (no) w = Where (c, n, no)
                f = Cast <to = 1> (w) y = Mul (f, x) }""",
        ),
        # Before opset 22 what infers sizes counts it, unlike the kernels, and what reads the result does not fit.
        Lack(
            std.Pool,
            "with a window behind the image",
            formulas.counts_too_many,
            formula=formulas.without_last,
            example="""(float[1,1,3] x) => (float[1,1,2] y)
              { p = MaxPool <kernel_shape = [2], strides = [2], pads = [1, 1], ceil_mode = 1> (x)
                two = Constant <value = float[2] {1.0, 2.0}> () y = Mul (p, two) }""",
        ),
        *slow_kernels.ROWS,
        *recurrent_kernels.ROWS,
    ),
)
