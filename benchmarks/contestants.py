"""The contestants: each makes a run of a case, which is then timed; the libraries they need are imported in them."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import onnx

from benchmarks import block, cudnn, dynamic_rnn, keras_cell, torch_step
from benchmarks.block import Case
from benchmarks.floors import fastest_forms, model_of
from lstm_lower.runtime.measuring.model_run import BoundRun, LeanRun
from lstm_lower.runtime.measuring.worker import Measured

Array = np.ndarray[Any, Any]
Run = Callable[[], Any]
# A contestant's one run, and facts about its making.
Made = tuple[Run, dict[str, Any]]
# The same run without memory that is kept between runs, where that has to be asked for: memory is measured with it.
LEAN_RUNS: dict[Run, Run] = {}
# Others' tools, in which a refusal is a result.
MAY_REFUSE = ("torch-compile", "onnx-ad", "onnxsim", "openvino", "openvino-bfloat16")


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

    def open_with(options: ort.SessionOptions) -> ort.InferenceSession:
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        if not optimise:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    data = model.SerializeToString()
    start = time.perf_counter()
    session = open_with(default_options())
    load = time.perf_counter() - start
    # Inputs are bound once, as the other contestants hold theirs as tensors; outputs are allocated anew by every run.
    bound = BoundRun(session, feeds)
    LEAN_RUNS[bound.run] = LeanRun(open_with, feeds)
    return bound.run, {"load_s": load}


def products_in_pytorch(model: onnx.ModelProto, values: Mapping[str, Array], threads: int, device: str = "cpu") -> Run:
    """A floor's matrix products, one after the other, in PyTorch.

    Products alone differ between libraries: PyTorch's come from MKL, onnxruntime's from its own kernels. A contestant
    compares fairly with the products of its own library, and the two floors together say how much of a distance lies in
    the products and how much around them.

    Args:
        model: a floor: MatMul and Gemm nodes on two inputs of the graph each, matrices all.
        values: the inputs.
        threads: PyTorch's threads.
        device: PyTorch's name of where it multiplies; for the end of a GPU's run the caller waits.

    Raises:
        ImportError: PyTorch is not installed.
    """
    import torch

    torch.set_num_threads(threads)
    tensors = {name: torch.from_numpy(value).to(device) for name, value in values.items()}
    pairs = []
    for node in model.graph.node:
        left, right = (tensors[name] for name in node.input)
        turned = {attribute.name for attribute in node.attribute}
        pairs.append((left.t() if "transA" in turned else left, right.t() if "transB" in turned else right))

    def run() -> Any:
        with torch.no_grad():
            return [torch.mm(left, right) for left, right in pairs]

    return run


def family(op: str) -> ModuleType:
    """The module that makes operands, models and floors of an op's cases, and names its variants and rivals."""
    return next((module for module in (cudnn, dynamic_rnn, torch_step) if op in module.RIVALS), block)


def _lowered(model: onnx.ModelProto, operands: dict[str, Array], threads: int, **options: Any) -> Made:
    from lstm_lower.passes.lower import lower

    start = time.perf_counter()
    lowered = lower(model, **options)
    spent = time.perf_counter() - start
    run, facts = made_session(lowered, operands, threads)
    return run, {"lower_s": spent, **facts}


def ours(case: Case, threads: int, schedule: str) -> Made:
    """The lowered and optimised model."""
    if family(case.op) in (dynamic_rnn, torch_step):
        made: Made = family(case.op).in_ours(case, threads, schedule)
        return made
    operands = family(case.op).arrays(case)
    return _lowered(family(case.op).model(case, operands), operands, threads, schedule=schedule)


def openvino(case: Case, threads: int, schedule: str, precision: str | None = None) -> Made:  # noqa: ARG001
    """The unrolled model on OpenVINO's plug-in, in float32 where no precision is named."""
    from lstm_lower.runtime.session import Session

    provider = ("openvino", {"load_config": json.dumps({"CPU": {"INFERENCE_NUM_THREADS": str(threads)}})})
    if family(case.op) is torch_step:
        return torch_step.in_ours(case, threads, "unroll", "openvino", providers=[provider], precision=precision)
    from lstm_lower.passes.lower import lower

    operands = family(case.op).arrays(case)
    start = time.perf_counter()
    model = lower(family(case.op).model(case, operands), schedule="unroll", target="openvino")
    lowered = time.perf_counter()
    session = Session(model, [provider], precision=precision)
    facts = {"lower_s": lowered - start, "load_s": time.perf_counter() - lowered}
    return BoundRun(session.ort, operands).run, facts


def textbook(case: Case, threads: int, schedule: str) -> Made:  # noqa: ARG001 (one signature for all)
    """The lowered model as the rules write it, without the loop optimiser."""
    operands = family(case.op).arrays(case)
    return _lowered(family(case.op).model(case, operands), operands, threads, optimize=False)


def sequential(case: Case, threads: int, schedule: str) -> Made:
    """A backward op of the cuDNN family alone, lowered without the use of its forward op's output."""
    operands = cudnn.arrays(case)
    return _lowered(cudnn.model(case, operands, hide_output=True), operands, threads, schedule=schedule)


def floor(case: Case, threads: int, schedule: str) -> Made:  # noqa: ARG001
    """The bare matrix products, each in its fastest form in onnxruntime, whose optimiser would merge equal ones."""

    def make(model: onnx.ModelProto, values: dict[str, Array]) -> Run:
        run, _ = made_session(model, values, threads, optimise=False)
        del LEAN_RUNS[run]
        return run

    products = family(case.op).floor_products(case)
    return made_session(*model_of(products, fastest_forms(products, make)), threads, optimise=False)


def floor_sequential(case: Case, threads: int, schedule: str) -> Made:
    """The bare matrix products of a forward pass step by step and a backward pass, of the cuDNN family."""
    return floor(dataclasses.replace(case, op="CudnnRNN"), threads, schedule)


def floor_pytorch(case: Case, threads: int, schedule: str) -> Made:  # noqa: ARG001
    """The bare matrix products, each in its fastest form in PyTorch."""

    def make(model: onnx.ModelProto, values: Mapping[str, Array]) -> Run:
        return products_in_pytorch(model, values, threads)

    products = family(case.op).floor_products(case)
    return make(*model_of(products, fastest_forms(products, make))), {}


def tensorflow(case: Case, threads: int, schedule: str) -> Made:  # noqa: ARG001
    """TensorFlow's own kernel, or its own session."""
    if case.op in dynamic_rnn.RIVALS:
        return dynamic_rnn.in_tensorflow(case, threads), {}
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    operands = {name: tf.constant(value) for name, value in block.arrays(case).items()}
    kernel = getattr(tf.raw_ops, case.op_type)
    given = {**operands, **block.attributes(case)}

    def run() -> Any:
        results = kernel(**given)
        # Looking at one waits for the kernel; `numpy()` would copy it.
        memoryview(results[0])
        return results

    return run, {}


def pytorch(case: Case, threads: int, schedule: str) -> Made:  # noqa: ARG001
    """PyTorch's own layers."""
    import torch

    torch.set_num_threads(threads)
    return family(case.op).in_pytorch(case), {}


def autocast(case: Case, threads: int, schedule: str) -> Made:  # noqa: ARG001
    """PyTorch's own layers under `torch.autocast`, whose products are in bfloat16."""
    import torch

    torch.set_num_threads(threads)
    return family(case.op).in_pytorch(case, bfloat16=True), {}


def torch_compile(case: Case, threads: int, schedule: str) -> Made:  # noqa: ARG001
    """PyTorch's own layers in a module that `torch.compile` takes."""
    import torch

    torch.set_num_threads(threads)
    return torch_step.in_pytorch(case, compiled=True), {}


def onnx_ad(case: Case, threads: int, schedule: str) -> Made:  # noqa: ARG001
    """The gradients of onnx-ad."""
    return torch_step.in_onnx_ad(case, threads), {}


def onnxsim(case: Case, threads: int, schedule: str) -> Made:  # noqa: ARG001
    """The training loop of onnxsim; it says itself how many threads it takes."""
    return torch_step.in_onnxsim(case), {}


CONTESTANTS: dict[str, Callable[[Case, int, str], Made]] = {
    "lstm-lower": ours,
    "openvino": openvino,
    "openvino-bfloat16": functools.partial(openvino, precision="bfloat16"),
    "textbook": textbook,
    "sequential": sequential,
    "floor": floor,
    "floor-sequential": floor_sequential,
    "tensorflow": tensorflow,
    "pytorch": pytorch,
    "autocast": autocast,
    "torch-compile": torch_compile,
    "onnx-ad": onnx_ad,
    "onnxsim": onnxsim,
    "floor-pytorch": floor_pytorch,
    "keras-cell": keras_cell.made,
}


class CaseRun(Measured):
    """A contestant's run of a case."""

    def __init__(self, name: str, case: Case, threads: int, schedule: str) -> None:
        """Makes it.

        Args:
            name: out of `CONTESTANTS`.
            case: what it runs.
            threads: its threads.
            schedule: ours, where it is ours.
        """
        self._run, self.facts = CONTESTANTS[name](case, threads, schedule)
        self._lean = LEAN_RUNS.get(self._run, self._run)

    def run(self) -> Any:
        return self._run()

    def run_lean(self) -> Any:
        return self._lean()
