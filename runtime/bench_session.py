"""What the benchmark's contestants in onnxruntime run: a session whose inputs are bound once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

Array = np.ndarray[Any, Any]
Run = Callable[[], Any]
# A contestant's one run, and facts about its making.
Made = tuple[Run, dict[str, Any]]
# The same run with scratch memory given back afterwards, where that has to be asked for: memory is measured with it.
LEAN_RUNS: dict[Run, Run] = {}


def made_session(model: onnx.ModelProto, feeds: dict[str, Array], threads: int, *, optimise: bool = True) -> Made:
    """A contestant's run and the time to make its session.

    Args:
        model: what runs.
        feeds: values by name, of all inputs and perhaps others.
        threads: onnxruntime's threads.
        optimise: let onnxruntime optimise the graph. It would merge equal products of a floor.
    """
    import onnxruntime as ort

    from lstm_lower.runtime.session import default_options

    options = default_options()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if not optimise:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    start = time.perf_counter()
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    load = time.perf_counter() - start
    # Inputs are bound once, as the other contestants hold theirs as tensors; outputs are allocated anew by every run.
    binding = session.io_binding()
    outputs = [output.name for output in session.get_outputs()]
    for value in session.get_inputs():
        binding.bind_ortvalue_input(value.name, ort.OrtValue.ortvalue_from_numpy(feeds[value.name]))
    lean = ort.RunOptions()
    lean.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")

    def run(options: Any = None) -> Any:
        binding.clear_binding_outputs()
        for output in outputs:
            binding.bind_output(output)
        session.run_with_iobinding(binding, options)
        return binding

    def lean_run() -> Any:
        run(lean)
        binding.clear_binding_outputs()

    LEAN_RUNS[run] = lean_run
    return run, {"load_s": load}
