"""Steps of lowered training models, whose variables have TensorFlow's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

from lstm_lower.records import state as training_state

Array = np.ndarray[Any, Any]


def run_steps(
    model: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]], start: Mapping[str, Array]
) -> dict[str, Array]:
    """The variables after as many steps as there are feeds.

    Args:
        model: the lowered model, its weights inputs.
        feeds: the inputs of each step; what the model does not read is left out.
        start: name of a variable -> its value before the first step.
    """
    pairs = training_state.parse({entry.key: entry.value for entry in model.metadata_props}).pairs
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)

    def name_of(variable: str) -> str:
        # A function that only hands a variable's handle on knows it under its reader's name.
        if variable in start:
            return variable
        return next(iter(start)) if len(start) == 1 else variable.rpartition("/")[2]

    named = {pair: name_of(pair.variable or "") for pair in pairs}
    state = {pair.input: start[name] for pair, name in named.items()}
    wanted = {value.name for value in session.get_inputs()}
    results: dict[str, Any] = {}
    for feed in feeds:
        given = {**{name: value for name, value in feed.items() if name in wanted}, **state}
        results = dict(zip([x.name for x in session.get_outputs()], session.run(None, given), strict=True))
        state |= {pair.input: np.asarray(results[pair.output]) for pair in pairs if pair.output}
    # What is never read has no input, and so no pair.
    stems = {name.removesuffix(":0").removesuffix("/new"): name for name in results if "/new" in name}
    found = {name_of(stem): np.asarray(results[name]) for stem, name in stems.items()}
    return found | {name: state[pair.input] for pair, name in named.items()}
