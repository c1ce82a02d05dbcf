"""What belongs to a formula is no weight: scales, code books, windows, tables. What only looks like it is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError
from lstm_lower.records import state

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
SAMPLES, BINS, BANDS = 32, 17, 6


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def fourier() -> Array:
    """Cosines above sines, under a window `[2 * BINS, SAMPLES]`."""
    angles = 2 * np.pi / SAMPLES * np.outer(np.arange(BINS), np.arange(SAMPLES))
    return (np.concatenate([np.cos(angles), -np.sin(angles)]) * np.hanning(SAMPLES)).astype(np.float32)


def mel() -> Array:
    """Triangles `[BINS, BANDS]` over wider and wider bands."""
    edges = np.array([0, 2, 4, 6, 8, 11, 14, 16])
    rows = np.arange(BINS)[:, None]
    rising, falling = (rows - edges[:-2]) / np.diff(edges)[:-1], (edges[2:] - rows) / np.diff(edges)[1:]
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)


def cosines() -> Array:
    """`[BANDS, 4]`, orthonormal."""
    table = np.cos(np.pi / BANDS * np.outer(np.arange(4), np.arange(BANDS) + 0.5)) * np.sqrt(2 / BANDS)
    table[0] /= np.sqrt(2)
    return table.T.astype(np.float32)


CODES = RNG.integers(-127, 128, (SAMPLES, 4)).astype(np.int8)
# Nodes, initializers, and which of them are weights; `b` is one everywhere.
FORMS: dict[str, tuple[str, dict[str, Array], set[str]]] = {
    "dequantized": (
        "w = DequantizeLinear <axis = 1> (q, s, z) h = MatMul(x, w)",
        {"q": CODES, "s": floats(4), "z": np.zeros(4, np.int8)},
        set(),
    ),
    "dynamically quantized": (
        """c, cs, cz = DynamicQuantizeLinear(x) i = MatMulInteger(c, q, cz) f = Cast <to = 1> (i)
        both = Mul(cs, s) h = Mul(f, both)""",
        {"q": CODES, "s": floats(4)},
        set(),
    ),
    "cast and scaled": (
        "c = Cast <to = 1> (q) d = Sub(c, z) w = Mul(d, s) h = MatMul(x, w)",
        {"q": CODES, "s": floats(4), "z": floats(1, 4)},
        set(),
    ),
    "scaled behind the product": (
        "c = Cast <to = 1> (q) p = MatMul(x, c) h = Mul(p, s)",
        {"q": CODES, "s": floats(4)},
        set(),
    ),
    "packed": (
        """four = Constant <value = uint8 {4}> () high = BitShift <direction = "RIGHT"> (q, four)
        c = Cast <to = 1> (high) w = Div(c, s) h = MatMul(x, w)""",
        {"q": CODES.astype(np.uint8), "s": 1 + np.abs(floats(4))},
        set(),
    ),
    "code book": (
        "i = Cast <to = 7> (q) w = Gather(book, i) h = MatMul(x, w)",
        {"q": CODES.astype(np.uint8) % 16, "book": floats(16)},
        set(),
    ),
    "pruned by a mask of integers": (
        "c = Cast <to = 1> (q) w = Mul(c, m) h = MatMul(x, w)",
        {"q": (CODES > 0).astype(np.int8), "m": floats(SAMPLES, 4)},
        {"m"},
    ),
    "beside strings": (
        "c = Size(words) n = Cast <to = 1> (c) z = Mul(x, n) h = MatMul(z, m)",
        {"words": np.array(["p", "q"], object), "m": floats(SAMPLES, 4)},
        {"m"},
    ),
    "rows of a table by constants": (
        "i = Constant <value = int64[4] {0, 1, 1, 0}> () w = Gather <axis = 1> (m, i) h = MatMul(x, w)",
        {"m": floats(SAMPLES, 2)},
        {"m"},
    ),
    "spectrum": ("f = MatMul(x, t) h = MatMul(f, m)", {"t": fourier().T.copy(), "m": floats(2 * BINS, 4)}, {"m"}),
    "spectrum by convolution": (
        """one = Constant <value = int64[1] {1}> () u = Unsqueeze(x, one) k = Conv(u, t) f = Flatten(k)
        h = MatMul(f, m)""",
        {"t": fourier()[:, None], "m": floats(2 * BINS, 4)},
        {"m"},
    ),
    "cepstrum": (
        """v = Mul(x, hann) r = MatMul(v, re) i = MatMul(v, im) rr = Mul(r, r) ii = Mul(i, i) p = Add(rr, ii)
        e = MatMul(p, mel) c = MatMul(e, cosines) h = MatMul(c, m)""",
        {
            "hann": np.hanning(SAMPLES).astype(np.float32),
            "re": np.cos(2 * np.pi / SAMPLES * np.outer(np.arange(SAMPLES), np.arange(BINS))).astype(np.float32),
            "im": np.sin(2 * np.pi / SAMPLES * np.outer(np.arange(SAMPLES), np.arange(BINS))).astype(np.float32),
            "mel": mel(),
            "cosines": cosines(),
            "m": floats(4, 4),
        },
        {"m"},
    ),
    "window of a DFT": (
        """v = Mul(x, hann) two = Constant <value = int64[1] {2}> () u = Unsqueeze(v, two) d = DFT <axis = 1> (u)
        f = Flatten(d) h = MatMul(f, m)""",
        {"hann": np.hanning(SAMPLES).astype(np.float32), "m": floats(2 * SAMPLES, 4)},
        {"m"},
    ),
    "first weights that look like tables": (
        "a = MatMul(x, eye) c = MatMul(a, ones) d = MatMul(c, bits) h = MatMul(d, zeros)",
        {
            "eye": np.eye(SAMPLES, dtype=np.float32),
            "ones": np.ones((SAMPLES, 8), np.float32),
            "bits": np.sign(floats(8, 8)),
            "zeros": np.zeros((8, 4), np.float32),
        },
        {"eye", "ones", "bits", "zeros"},
    ),
}


def model_of(form: str) -> onnx.ModelProto:
    text, initializers, _ = FORMS[form]
    declared = f'<ir_version: 9, opset_import: ["" : 18]> g (float[N, {SAMPLES}] x) => (float[N, 4] y)'
    model = parser.parse_model(f"{declared} {{{text} y = Add(h, b)}}")
    values = {**initializers, "b": floats(4)}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    return model


def trained(model: onnx.ModelProto, **options: Any) -> set[str]:
    step = ll.from_onnx(model, "mse", what="gradients", **options)
    return {pair.input for pair in state.parse({entry.key: entry.value for entry in step.metadata_props}).pairs}


@pytest.mark.parametrize("form", FORMS)
def test_weights_are_what_a_formula_does_not_own(form: str) -> None:
    assert trained(model_of(form)) == FORMS[form][2] | {"b"}


def test_a_pattern_leaves_scales_and_a_name_takes_them() -> None:
    model = model_of("cast and scaled")
    assert trained(model, trainable="*") == {"b"}
    assert trained(model, trainable=lambda name: name in ("b", "s")) == {"b"}
    assert trained(model, trainable=["b", "s"]) == {"b", "s"}
    with pytest.raises(InvalidInputError, match=r"exact names.*'\[s\]'.*only s \(scales of quantized numbers\)"):
        ll.from_onnx(model, "mse", trainable="[s]")


def test_gradients_leave_them_too() -> None:
    model = ll.gradient(model_of("dynamically quantized"), of="y", seeds=True)
    assert [output.name for output in model.graph.output] == ["y", "grad/b"]
