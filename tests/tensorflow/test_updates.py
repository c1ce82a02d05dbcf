"""Ops that change variables, each for five steps against TensorFlow: optimizers, dense and by rows, and scatters."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.tensorflow.optimizers import OPTIMIZERS, VARIABLES
from tests.support.examples import TIMES
from tests.support.tensorflow_steps import run_steps

tf = pytest.importorskip("tensorflow")

Array = np.ndarray[Any, Any]
Call = Callable[[dict[str, Any], dict[str, Any]], Any]

PREFIXES = ("Apply", "ResourceApply", "SparseApply", "ResourceSparseApply")
STEPS = 5
ROWS, COLUMNS = 6, 3

# Operands that are no variables and no gradients, where they are not a tenth.
NUMBERS = {
    "beta1_power": 0.81, "beta2_power": 0.9, "beta1": 0.9, "beta2": 0.95, "rho": 0.9, "momentum": 0.8, "beta": 0.9,
    "epsilon": 1e-3, "l1": 0.05, "l2": 0.02, "l2_shrinkage": 0.03, "lr_power": -0.5, "logbase": 0.7, "alpha": 0.3,
    "sign_decay": 0.5,
}  # fmt: skip


def start_of(name: str, dtype: str) -> Array:
    """A variable's value before the first step."""
    if name in ("var", "linear", "m", "mom", "gradient_accumulator"):
        return np.random.default_rng(len(name)).standard_normal((ROWS, COLUMNS)).astype(dtype) * np.asarray(0.3, dtype)
    if name == "mg":
        return np.zeros((ROWS, COLUMNS), dtype)
    return np.random.default_rng(len(name)).uniform(0.5, 1, (ROWS, COLUMNS)).astype(dtype)


def follow(call: Call, start: dict[str, Array], feeds: list[dict[str, Array]], *, resource: bool) -> None:
    """Compares a call's effect on variables, over some steps, with the lowered model's."""
    if resource:
        variables = {name: tf.Variable(value, name=name) for name, value in start.items()}
        specs = [tf.TensorSpec([None] * (value.ndim > 0) + list(value.shape[1:]), value.dtype, name=name)
                 for name, value in feeds[0].items()]  # fmt: skip

        @tf.function(input_signature=specs)
        def step(*given: Any) -> Any:
            handles = {name: variable.handle for name, variable in variables.items()}
            call(handles, dict(zip(feeds[0], given, strict=True)))
            return given[0]

        ours = run_steps(ll.lower(ll.from_tensorflow(step, weights="inputs")), feeds, start)
        for feed in feeds:
            step(*[tf.constant(value) for value in feed.values()])
        theirs = {name: variable.numpy() for name, variable in variables.items()}
    else:
        v1 = tf.compat.v1
        with tf.Graph().as_default() as graph:
            placeholders = {name: v1.placeholder(value.dtype, [None] * (value.ndim > 0) + list(value.shape[1:]), name)
                            for name, value in feeds[0].items()}  # fmt: skip
            references = {name: v1.get_variable(name, initializer=value, use_resource=False)
                          for name, value in start.items()}  # fmt: skip
            made = call({name: variable._ref() for name, variable in references.items()}, placeholders)
            with v1.Session(graph=graph) as session:
                session.run(v1.global_variables_initializer())
                for feed in feeds:
                    session.run(made.op, {f"{name}:0": value for name, value in feed.items()})
                theirs = {name: session.run(variable) for name, variable in references.items()}
        given_inputs = [f"{name}:0" for name in feeds[0]]
        renamed = [{f"{name}:0": value for name, value in feed.items()} for feed in feeds]
        model = ll.from_tensorflow(graph.as_graph_def(), given_inputs, [made.op.name], weights="inputs")
        ours = run_steps(ll.lower(model), renamed, start)
    changed = [name for name in start if not np.array_equal(theirs[name], start[name])]
    assert changed
    for name in changed:
        precise = theirs[name].dtype == np.float64
        rtol, atol = (1e-12, 1e-13) if precise else (3e-5, 3e-6)
        np.testing.assert_allclose(ours[name], theirs[name], rtol=rtol, atol=atol, err_msg=name)


def gradients(dtype: str) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal((ROWS, COLUMNS)).astype(dtype) for _ in range(STEPS)]


def options_of(op: str) -> list[dict[str, bool]]:
    """All values of the attributes that change results."""
    parameters = inspect.signature(getattr(tf.raw_ops, op)).parameters
    found = [{name: value} for name in ("use_nesterov", "update_slots", "multiply_linear_by_lr")
             for value in (False, True) if name in parameters]  # fmt: skip
    return found or [{}]


DTYPES = ("float32", "float64")


def forms() -> list[Any]:
    """Every Apply op that TensorFlow has, with its options.

    In one dtype each, so that the op on the other kind of variables has the other one, unless more is asked for.
    """
    found = []
    for name in OPTIMIZERS:
        for place, prefix in enumerate(PREFIXES):
            op = f"{prefix}{name}"
            for number, options in enumerate(options_of(op) if hasattr(tf.raw_ops, op) else []):
                for dtype in DTYPES if TIMES > 1 else [DTYPES[(place + number) % 2]]:
                    label = "-".join([op, *(f"{k}={v}" for k, v in options.items()), dtype])
                    found.append(pytest.param(op, name, options, dtype, id=label))
    return found


def test_no_apply_op_is_missing() -> None:
    theirs = {op for op in dir(tf.raw_ops) if op.startswith(PREFIXES)}
    assert theirs == {parameter.values[0] for parameter in forms()}


@pytest.mark.parametrize(("op", "name", "options", "dtype"), forms())
def test_optimizers_follow_tensorflow(op: str, name: str, options: dict[str, bool], dtype: str) -> None:
    optimizer, sparse = OPTIMIZERS[name], "Sparse" in op
    start = {operand: start_of(operand, dtype) for operand in optimizer.operands if operand in VARIABLES}
    indices = [np.array(rows, np.int32) for rows in ([0, 2, 5], [1, 1, 4, 1], [3, 3], [0, 1, 2, 3, 4, 5], [])]
    feeds: list[dict[str, Array]] = []
    for rows, gradient in zip(indices, gradients(dtype), strict=True):
        feeds.append({"rows_grad": gradient[: len(rows)], "rows": rows} if sparse else {"rows_grad": gradient})

    def call(handles: dict[str, Any], given: dict[str, Any]) -> Any:
        operands: dict[str, Any] = dict(handles)
        for operand in optimizer.sparse_operands if sparse else optimizer.operands:
            if operand in ("grad", "delta"):
                operands["grad" if sparse else operand] = given["rows_grad"]
            elif operand == "indices":
                operands[operand] = given["rows"]
            elif operand == "global_step":
                operands[operand] = tf.constant(3, tf.int64)
            elif operand not in VARIABLES:
                operands[operand] = tf.constant(NUMBERS.get(operand, 0.1), dtype)
        return getattr(tf.raw_ops, op)(**operands, **options)

    follow(call, start, feeds, resource=op.startswith("Resource"))


@pytest.mark.parametrize("power", [-0.5, -0.3, 0.0])
def test_other_powers_of_ftrl(power: float) -> None:
    start = {name: start_of(name, "float64") for name in ("var", "accum", "linear")}

    def call(handles: dict[str, Any], given: dict[str, Any]) -> Any:
        numbers = {name: tf.constant(NUMBERS.get(name, 0.1), tf.float64) for name in ("lr", "l1", "l2")}
        power_ = tf.constant(power, tf.float64)
        return tf.raw_ops.ResourceApplyFtrl(**handles, **numbers, grad=given["g"], lr_power=power_)

    follow(call, start, [{"g": gradient} for gradient in gradients("float64")], resource=True)


# Op -> attributes; what the updates multiply and divide stays away from 0.
SCATTERS = [f"Scatter{kind}" for kind in ("Add", "Sub", "Update", "Mul", "Div", "Max", "Min")]
ELEMENTS = [f"ScatterNd{kind}" for kind in ("Add", "Sub", "Update", "Max", "Min")]


def scatters() -> list[Any]:
    """Each op on both kinds of variables, with many updates and one for all, in one dtype each, in turn."""
    dtypes = ("float32", "float64", "int32")
    products = itertools.product(enumerate(SCATTERS), (False, True), (False, True))
    return [
        pytest.param(op, resource, dtype, scalar, id=f"{op}-{'resource' if resource else 'reference'}-{dtype}-{scalar}")
        for (place, op), resource, scalar in products
        for dtype in (dtypes if TIMES > 1 else [dtypes[(place + resource + scalar) % 3]])
    ]


@pytest.mark.parametrize(("op", "resource", "dtype", "scalar"), scatters())
def test_scattered_rows_follow_tensorflow(op: str, resource: bool, dtype: str, scalar: bool) -> None:
    rng = np.random.default_rng(4)
    start = {"table": rng.integers(-40, 40, (ROWS, COLUMNS)).astype(dtype)}
    feeds: list[dict[str, Array]] = []
    for rows in ([[0, 2]], [[1, 4], [3, 5]], [[5, 5]] if op != "ScatterUpdate" else [[5, 0]]):
        updates = rng.integers(1, 4, () if scalar else (*np.shape(rows), COLUMNS)).astype(dtype)
        feeds.append({"updates": updates, "rows": np.array(rows, np.int32).reshape(-1)})
        feeds[-1]["updates"] = updates if scalar else updates.reshape(-1, COLUMNS)

    def call(handles: dict[str, Any], given: dict[str, Any]) -> Any:
        operands = {"indices": given["rows"], "updates": given["updates"]}
        if resource:
            return getattr(tf.raw_ops, f"Resource{op}")(resource=handles["table"], **operands)
        return getattr(tf.raw_ops, op)(ref=handles["table"], **operands)

    follow(call, start, feeds, resource=resource)


@pytest.mark.parametrize("op", ELEMENTS)
@pytest.mark.parametrize(("resource", "depth"), [(True, 1), (False, 2)], ids=["resource", "reference"])
def test_scattered_elements_follow_tensorflow(op: str, resource: bool, depth: int) -> None:
    rng = np.random.default_rng(4)
    start = {"table": rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)}
    feeds: list[dict[str, Array]] = []
    for _ in range(STEPS):
        places = np.stack([rng.permutation(ROWS)[:3], rng.integers(0, COLUMNS, 3)][:depth], 1).astype(np.int32)
        feeds.append({"updates": rng.standard_normal((3, *[COLUMNS] * (2 - depth))).astype(np.float32), "at": places})

    def call(handles: dict[str, Any], given: dict[str, Any]) -> Any:
        name = f"Resource{op}" if resource else op
        return getattr(tf.raw_ops, name)(ref=handles["table"], indices=given["at"], updates=given["updates"])

    follow(call, start, feeds, resource=resource)


SLICES = [
    {"begin": [1, 0], "end": [4, 2], "strides": [2, 1]},
    {"begin": [0, 1], "end": [0, 2], "strides": [1, 1], "begin_mask": 1, "end_mask": 1, "shrink_axis_mask": 2},
    {"begin": [5, 2], "end": [0, 0], "strides": [-2, -1]},
    {"begin": [0, 0, 1], "end": [0, 0, 2], "strides": [1, 1, 1], "ellipsis_mask": 1, "new_axis_mask": 2},
]


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("slice_", SLICES)
def test_assigned_slices_follow_tensorflow(slice_: dict[str, Any], resource: bool) -> None:
    rng = np.random.default_rng(4)
    start = {"table": rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)}
    shape = tf.strided_slice(start["table"], **slice_).shape
    feeds = [{"value": rng.standard_normal(shape).astype(np.float32)} for _ in range(STEPS)]

    def call(handles: dict[str, Any], given: dict[str, Any]) -> Any:
        name = "ResourceStridedSliceAssign" if resource else "StridedSliceAssign"
        masks = {f"{mask}_mask": 0 for mask in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
        return getattr(tf.raw_ops, name)(ref=handles["table"], value=given["value"], **{**masks, **slice_})

    follow(call, start, feeds, resource=resource)


@pytest.mark.slow
def test_updates_in_branches_and_loops() -> None:
    """Skipped where a gradient is not finite, and of another row in each iteration."""
    start = {name: start_of(name, "float32") for name in ("var", "accum")}
    variables = {name: tf.Variable(value, name=name) for name, value in start.items()}
    handles = {name: variable.handle for name, variable in variables.items()}
    specs = [tf.TensorSpec([None, COLUMNS], tf.float32, name="g"), tf.TensorSpec([None], tf.int32, name="rows")]

    @tf.function(input_signature=specs)
    def step(g: Any, rows: Any) -> Any:
        if tf.reduce_all(tf.math.is_finite(g)):
            tf.raw_ops.ResourceSparseApplyAdagrad(**handles, lr=0.1, grad=g, indices=rows)
            variables["accum"].scatter_nd_update([[0, 0]], [3.0])
        for k in tf.range(3):
            row = tf.ones([1, COLUMNS])
            tf.raw_ops.ResourceSparseApplyAdagrad(**handles, lr=0.1, grad=row, indices=rows[:1] + k)
            variables["var"][0, 1].assign(2.0)
        return tf.reduce_sum(variables["var"] + variables["accum"])

    feeds = [{"g": gradient[:4], "rows": np.array([1, 0, 1, 3], np.int32)} for gradient in gradients("float32")]
    feeds[1]["g"][2, 1] = np.nan
    ours = run_steps(ll.lower(ll.from_tensorflow(step, weights="inputs")), feeds, start)
    for feed in feeds:
        step(*[tf.constant(value) for value in feed.values()])
    for name, variable in variables.items():
        np.testing.assert_allclose(ours[name], variable.numpy(), rtol=1e-5, err_msg=name)
