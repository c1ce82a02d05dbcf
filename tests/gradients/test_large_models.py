"""The work that a gradient takes grows as the model does."""

from __future__ import annotations

import cProfile
from collections.abc import Callable

import onnx
import onnx.parser
import pytest

import lstm_lower as ll


def _model(lines: list[str], tensors: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 18]>\ng (double[N,4] x, double[4] w) => (double loss) {tensors}\n'
        "{ " + "\n".join(lines) + " }"
    )


def _steps(count: int, first: str) -> list[str]:
    """A chain of nodes, sums of a step's element among them, to a value `h1`."""
    forms = ("Sin(v{0})", "Add(v{0}, s)", "Tanh(v{0})", "Mul(v{0}, s)")
    lines = [f"v0 = Identity({first})"]
    lines += [f"v{i + 1} = {forms[i % len(forms)].format(i)}" for i in range(count)]
    return [*lines, f"h1 = Identity(v{count})"]


def body(count: int) -> onnx.ModelProto:
    scan = "y = Scan <num_scan_inputs = 1, body = body (double[4] h, double[4] s) => (double[4] h1) {"
    return _model([scan, *_steps(count, "h"), "}> (w, x)", "loss = ReduceSum <keepdims = 0> (y)"])


def cuts(count: int) -> onnx.ModelProto:
    places = ", ".join(f"int64[1] i{i} = {{{i}}}" for i in range(count + 1))
    parts = [f"v{i}" for i in range(count)]
    made = [f"{part} = Slice(all, i{i}, i{i + 1}, i0)" for i, part in enumerate(parts)]
    last = f"y = Sum({', '.join(parts)})  z = Mul(y, x)  loss = ReduceSum <keepdims = 0> (z)"
    return _model(["all = Expand(w, to)", *made, last], f"<int64[2] to = {{{count}, 4}}, {places}>")


def _work(model: onnx.ModelProto) -> int:
    """Calls of functions."""
    profile = cProfile.Profile()
    profile.enable()
    ll.gradient(model, "loss", ["x", "w"])
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.slow
@pytest.mark.parametrize("make", [body, cuts])
def test_work_grows_as_the_model(make: Callable[[int], onnx.ModelProto]) -> None:
    _work(make(4))  # with imports
    assert _work(make(120)) < 2.3 * _work(make(60))


@pytest.mark.slow
def test_sums_as_long_as_they_like() -> None:
    """More sums in a chain than Python's recursion goes deep."""
    scan = "y = Scan <num_scan_inputs = 1, body = body (double[4] h, double[4] s) => (double[4] h1) { v0 = Mul(h, s)"
    sums = [f"v{i + 1} = Add(v{i}, w)" for i in range(1200)]
    lines = [scan, *sums, "h1 = Sin(v1200)", "}> (w, x)", "loss = ReduceSum <keepdims = 0> (y)"]
    ll.optimize(_model(lines))
