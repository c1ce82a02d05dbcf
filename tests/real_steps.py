"""Training steps of TensorFlow 1 graphs as they were found, beside `tf.compat.v1.Session`.

    python -m tests.real_steps deepspeech PATH.meta
    python -m tests.real_steps impala PATH.meta

The files are not in the repository. Variables get the same random values on both sides, and both see the same feeds.
What TensorFlow differs from itself by, when every weight moves by one unit in the last place, is printed beside: where
a maximum is taken over equal numbers, that is more than rounding.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lstm_lower as ll
from lstm_lower.records import state as training_state

Arrays = dict[str, np.ndarray[Any, Any]]
STEPS = 3


def _say(*parts: object) -> None:
    sys.stdout.write(" ".join(map(str, parts)) + "\n")


def deepspeech(rng: np.random.Generator) -> tuple[Arrays, list[str]]:
    """Three utterances with their texts."""
    lengths, texts = [14, 9, 12], [[3, 1, 4], [1, 5], [9, 2, 6, 5]]
    places = [[row, column] for row, text in enumerate(texts) for column in range(len(text))]
    feeds = {
        "tower_0/GatherV2_DequeueMany:0": rng.standard_normal((3, 14, 19, 26)),
        "tower_0/GatherV2_DequeueMany:1": np.array(lengths, np.int32),
        "tower_0/ToInt64:0": np.array(places, np.int64),
        "tower_0/GatherV2:0": np.array([*itertools.chain(*texts)], np.int32),
        # Without dropout there is nothing random.
        **{f"dropout_{number}:0": np.zeros(()) for number in (0, 1, 2, 5)},
    }
    return feeds, ["tower_0/Mean:0", "Adam"]


def impala(rng: np.random.Generator) -> tuple[Arrays, list[str]]:
    """A batch of an agent's steps."""
    time, batch = 21, 8
    feeds = {
        "StagingArea_get:1": 0.5 * rng.standard_normal((batch, 256)),
        "StagingArea_get:2": 0.5 * rng.standard_normal((batch, 256)),
        "StagingArea_get:3": rng.standard_normal((time, batch)),
        "StagingArea_get:6": rng.random((time, batch)) < 0.1,
        "StagingArea_get:7": rng.integers(0, 256, (time, batch, 84, 84, 3)).astype(np.uint8),
        "StagingArea_get:9": rng.integers(0, 18, (time, batch)).astype(np.int32),
        "StagingArea_get:10": rng.standard_normal((time, batch, 18)),
    }
    return feeds, ["add_1:0", "RMSProp"]


KINDS: dict[str, Callable[[np.random.Generator], tuple[Arrays, list[str]]]] = {
    "deepspeech": deepspeech, "impala": impala,
}  # fmt: skip


def start_values(variables: dict[str, tuple[tuple[int, ...], Any]], rng: np.random.Generator) -> Arrays:
    """Weights of the usual size; what Adam keeps is positive and small, so that no step is only a sign."""
    found: Arrays = {}
    for name, (shape, dtype) in variables.items():
        slot = name.rpartition("/")[2]
        if not np.issubdtype(dtype, np.floating):
            found[name] = np.zeros(shape, dtype)
        elif "_power" in name:
            found[name] = np.full(shape, 0.9 if "beta1" in name else 0.999, dtype)
        elif slot in ("RMSProp", "RMSProp_1"):
            # As the optimizer makes them: mean squares of 1, no momentum.
            found[name] = np.full(shape, slot == "RMSProp", dtype)
        elif slot in ("Adam", "Adam_1"):
            found[name] = np.asarray(1e-3 * (1 + rng.random(shape)), dtype)
        else:
            fan_in = max(1, int(np.prod(shape[:-1])))
            found[name] = np.asarray(rng.standard_normal(shape) / np.sqrt(fan_in), dtype)
    return found


def by_tensorflow(path: Path, feeds: Arrays, outputs: list[str], values: Arrays) -> tuple[list[float], Arrays]:
    """Losses and the variables after the last step."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        v1.train.import_meta_graph(str(path), clear_devices=True)
        with v1.Session(graph=graph) as session:
            for name, value in values.items():
                assign = graph.get_operation_by_name(f"{name}/Assign")
                session.run(assign, {assign.inputs[1]: value})
            loss, *train = (graph.as_graph_element(name) for name in outputs)
            losses = [session.run([loss, *train], feeds)[0] for _ in range(STEPS)]
            return [float(x) for x in losses], {name: session.run(f"{name}:0") for name in values}


def by_us(model: Any, feeds: Arrays, loss: str, values: Arrays) -> tuple[list[float], Arrays]:
    """The same from the model."""
    session = ll.Session(ll.lower(model))
    pairs = training_state.parse({entry.key: entry.value for entry in model.metadata_props}).pairs
    state = {pair.input: values[pair.variable or ""] for pair in pairs}
    losses = []
    for _ in range(STEPS):
        results = session.run({**feeds, **state})
        losses.append(float(results[loss]))
        state |= {pair.input: results[pair.output] for pair in pairs if pair.output}
    return losses, {pair.variable or "": state[pair.input] for pair in pairs}


def difference(found: Any, expected: Any) -> float:
    """The largest difference, in units of the largest number."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    return float(np.abs(found - expected).max(initial=0) / max(np.abs(expected).max(initial=0), 1e-30))


def main(kind: str, path: Path) -> None:
    """Compares one graph and prints the largest differences."""
    rng = np.random.default_rng(1)
    feeds, outputs = KINDS[kind](rng)
    feeds = {name: x.astype(np.float32) if x.dtype == np.float64 else x for name, x in feeds.items()}
    model = ll.from_tensorflow(path, list(feeds), outputs)
    inputs = {value.name: value.type.tensor_type for value in model.graph.input}
    pairs = training_state.parse({entry.key: entry.value for entry in model.metadata_props}).pairs
    declared = {}
    for pair in pairs:
        kind_ = inputs[pair.input]
        dtype = np.int64 if kind_.elem_type == 7 else np.int32 if kind_.elem_type == 6 else np.float32
        declared[pair.variable or ""] = tuple(dim.dim_value for dim in kind_.shape.dim), dtype
    values = start_values(declared, rng)
    losses, ours = by_us(model, feeds, outputs[0], values)
    expected, theirs = by_tensorflow(path, feeds, outputs, values)
    nudged = {
        name: np.nextafter(x, np.full_like(x, np.inf)) if np.issubdtype(x.dtype, np.floating) else x
        for name, x in values.items()
    }
    _, moved = by_tensorflow(path, feeds, outputs, nudged)
    _say("losses, TensorFlow's:", expected)
    _say(f"losses differ by {max(map(difference, losses, expected)):.1e}")
    rows = [(difference(ours[name], theirs[name]), difference(moved[name], theirs[name]), name) for name in ours]
    _say("variables that differ most (ours from TensorFlow, TensorFlow from itself):")
    for by, own, name in sorted(rows, reverse=True)[:12]:
        _say(f"{by:.1e} {own:.1e} {name}")
    _say(f"{sum(by <= 1e-5 for by, *_ in rows)} of {len(rows)} within 1e-5")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
