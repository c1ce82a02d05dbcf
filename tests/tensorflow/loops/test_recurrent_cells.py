"""What `lstm-lower inspect` says of loops: cells by their formulas, and less where a formula differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lstm_lower.tensorflow.anatomy import anatomy
from lstm_lower.tensorflow.files.graph_files import read_file

OVER = "over a sequence"
DYNAMIC = f"{OVER}, as dynamic_rnn over"


def texts(path: Path) -> dict[str, str]:
    return anatomy(read_file(path, None)).loop_texts


@pytest.mark.parametrize(
    ("name", "loop", "text"),
    [
        ("v1-piecewise", "rnn", f"LSTM of 4 units {DYNAMIC} LSTMCell computes it"),
        ("v2-last_state", "rnn", f"LSTM of 4 units {DYNAMIC} LSTMCell computes it"),
        ("v1-gru-whole-momentum", "rnn", f"GRU of 4 units {DYNAMIC} GRUCell computes it"),
        ("v2-gru-lengths-rmsprop", "rnn", f"GRU of 4 units {DYNAMIC} GRUCell computes it"),
        ("v1-basic-lengths-rmsprop", "rnn", f"simple RNN of 4 units {DYNAMIC} BasicRNNCell computes it"),
        ("v1-lstm-lengths-momentum", "rnn", f"LSTM of 6 units (peepholes, projection) {OVER}"),
        ("v2-lstm-whole-momentum", "rnn", f"LSTM of 6 units (peepholes, projection) {OVER}"),
        ("v1-multi-whole-rmsprop", "rnn", f"LSTM of 4 units and GRU of 4 units {OVER}"),
        ("v2-residual", "rnn", f"2 times LSTM of 4 units {OVER}"),
        ("v1-block-whole-sgd", "rnn", f"LSTMBlockCell of 4 units {OVER}"),
        ("v1-dropout_fed", "rnn", f"GRU of 4 units {OVER}"),
        ("v1-translator", "", "GRU of 4 units and 1 other product"),
        ("v1-raw", "rnn", f"LSTM of 4 units {OVER}"),
        ("v1-map_fn_several", "map", f"a loop {OVER} with 1 product, which carries integers"),
        ("v1-clock", "", "a loop with 1 product, which carries float32[?, 4]"),
        ("v1-viterbi", "", "a loop, which carries float32[?, 4]"),
    ],
)  # fmt: skip
def test_loops_of_tensorflow(recorded: Path, name: str, loop: str, text: str) -> None:
    """Those of frames and those of functions; the loops behind them are their gradients."""
    found = texts(recorded / f"{name}.meta")
    place = "/".join(filter(None, [loop, "while", "while_context" if name.startswith("v1") else ""]))
    assert found[place] == text
    backward = [said for other, said in found.items() if other.startswith("gradients/")]
    assert all(said.startswith("the gradient of ") for said in backward)


# Two tensors [B, 8] of a row and what is carried; cells that only look like those with a name.


def ungated(tf: Any, product: Callable[..., Any], h: Any, c: Any) -> Any:
    """UGRNN: no reset gate."""
    gate, new = tf.split(product("w", h, 16), 2, 1)
    gate = tf.sigmoid(gate)
    return gate * h + (1 - gate) * tf.tanh(new), c


def one_gate(tf: Any, product: Callable[..., Any], h: Any, c: Any) -> Any:
    """The minimal gated unit: its reset gate is its update gate."""
    gate = tf.sigmoid(product("w", h, 8))
    return (1 - gate) * h + gate * tf.tanh(product("u", gate * h, 8)), c


def coupled(tf: Any, product: Callable[..., Any], h: Any, c: Any) -> Any:
    """An LSTM whose input gate is what the forget gate leaves."""
    forget, new, output = tf.split(product("w", h, 24), 3, 1)
    forget = tf.sigmoid(forget)
    c = forget * c + (1 - forget) * tf.tanh(new)
    return tf.sigmoid(output) * tf.tanh(c), c


def unrecurrent(tf: Any, product: Callable[..., Any], h: Any, c: Any) -> Any:
    """A quasi-recurrent network: gates of the row alone."""
    i, j, f, o = tf.split(product("w", None, 32), 4, 1)
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(j)
    return tf.sigmoid(o) * tf.tanh(c), c


def long_short(tf: Any, product: Callable[..., Any], h: Any, c: Any) -> Any:
    i, j, f, o = tf.split(product("w", h, 32), 4, 1)
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(j)
    return tf.sigmoid(o) * tf.tanh(c), c


@pytest.mark.parametrize("frames", [True, False])
@pytest.mark.parametrize("cell", [ungated, one_gate, coupled, unrecurrent, long_short])
def test_what_looks_like_a_cell(tmp_path: Path, cell: Callable[..., Any], frames: bool) -> None:
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1
    was = v1.control_flow_v2_enabled()
    (v1.disable_control_flow_v2 if frames else v1.enable_control_flow_v2)()
    try:
        with tf.Graph().as_default() as graph:
            x = v1.placeholder("float32", [5, None, 3])
            first = tf.zeros([tf.shape(x)[1], 8])

            def product(name: str, row: Any, h: Any, columns: int) -> Any:
                both = row if h is None else tf.concat([row, h], 1)
                return both @ weights[name][: both.shape[1], :columns]

            weights = {name: v1.get_variable(name, [11, 32]) for name in ("w", "u")}
            step = lambda state, row: cell(tf, lambda name, *rest: product(name, row, *rest), *state)  # noqa: E731
            tf.scan(step, x, (first, first))
        (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    finally:
        (v1.enable_control_flow_v2 if was else v1.disable_control_flow_v2)()
    (said,) = texts(tmp_path / "graph.pb").values()
    assert ("LSTM" in said) == (cell is long_short)
    assert "GRU" not in said
    assert "RNN" not in said
    if cell is not long_short:
        assert said.startswith(f"a loop {OVER} with ")
