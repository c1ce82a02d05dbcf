"""One contestant of the benchmark, in a process of its own: sets itself up, then runs when it is asked to.

Sessions of onnxruntime spin against each other inside one process, and frameworks bring thread pools of their own;
processes that take turns do not disturb each other. Requests and answers are lines of JSON on standard input and
output.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from lstm_lower.runtime import bench_cases, bench_cudnn
from lstm_lower.runtime.bench_cases import Case
from lstm_lower.runtime.bench_products import products_in_pytorch
from lstm_lower.runtime.bench_session import LEAN_RUNS, Made, Run, made_session


def main() -> None:
    """Serves requests until standard input ends."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    setup = json.loads(sys.stdin.readline())
    case = Case(setup["op"], tuple(setup["shape"]), setup["variant"])
    try:
        contestants = bench_cudnn.CONTESTANTS if case.op.startswith("Cudnn") else CONTESTANTS
        run, facts = contestants[setup["contestant"]](case, setup["threads"], setup["schedule"])
        run()
    except ImportError as error:
        facts = {"missing": str(error)}
    print(json.dumps(facts), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = _time(run, request["count"]) if request["do"] == "time" else _memory(LEAN_RUNS.get(run, run))
        print(json.dumps(answer), file=answers, flush=True)


def _time(run: Run, count: int) -> list[float]:
    times = []
    run()
    for _ in range(count):
        start = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - start)
        del result
    return times


def _memory(run: Run) -> int:
    """Bytes that a run needs at its peak beyond what is there before and after, outputs included."""
    for _ in range(2):
        result = run()
        del result
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:  # noqa: PTH123 (not a file)
        file.write("5")
    before = _status("VmRSS")
    result = run()
    peak = _status("VmHWM")
    del result
    return peak - before


def _status(field: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123 (not a file)
        line = next(line for line in file if line.startswith(field))
    return int(line.split()[1]) * 1024


def ours(case: Case, threads: int, schedule: str) -> Made:
    """The lowered and optimised model."""
    from lstm_lower.passes.lower import lower

    operands = bench_cases.arrays(case)
    model = bench_cases.model(case, operands)
    start = time.perf_counter()
    lowered = lower(model, schedule=schedule)
    spent = time.perf_counter() - start
    run, facts = made_session(lowered, bench_cases.feeds(case, operands), threads)
    return run, {"lower_s": spent, **facts}


def textbook(case: Case, threads: int, schedule: str) -> Made:  # noqa: ARG001 (one signature for all)
    """The lowered model as the rules write it, without the loop optimiser."""
    import onnx_ir as ir

    from lstm_lower.passes.lower import OptimizePass, lowering_passes

    operands = bench_cases.arrays(case)
    work = ir.from_proto(bench_cases.model(case, operands))
    for step in lowering_passes():
        if not isinstance(step, OptimizePass):
            step(work)
    return made_session(ir.to_proto(work), bench_cases.feeds(case, operands), threads)


def floor(case: Case, threads: int, schedule: str) -> Made:  # noqa: ARG001
    """The bare matrix products, in onnxruntime, with its graph optimiser off: it would merge equal ones."""
    return made_session(*bench_cases.floor_model(case), threads, optimise=False)


def floor_pytorch(case: Case, threads: int, schedule: str) -> Made:  # noqa: ARG001
    """The bare matrix products in PyTorch."""
    return products_in_pytorch(*bench_cases.floor_model(case), threads), {}


def tensorflow(case: Case, threads: int, schedule: str) -> Made:  # noqa: ARG001
    """TensorFlow's own kernel."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    operands = {name: tf.constant(value) for name, value in bench_cases.arrays(case).items()}
    kernel = getattr(tf.raw_ops, case.op_type)
    given = {**operands, **bench_cases.attributes(case)}

    def run() -> Any:
        # Reading one element waits for the kernel.
        results = kernel(**given)
        results[0].numpy()
        return results

    return run, {}


def pytorch(case: Case, threads: int, schedule: str) -> Made:  # noqa: ARG001
    """PyTorch's `nn.LSTM`: backward alone for a gradient op, forward alone for a forward one."""
    import torch

    torch.set_num_threads(threads)
    _, _, I, H = case.shape  # noqa: E741
    operands = bench_cases.arrays(case)
    lstm = torch.nn.LSTM(I, H)
    x = torch.tensor(operands["x"], requires_grad=True)
    states = [torch.tensor(operands[name][None], requires_grad=True) for name in ("h_prev", "cs_prev")]
    if case.op != "BlockLSTMGrad":

        def forward() -> Any:
            with torch.no_grad():
                return lstm(x, tuple(states))

        return forward, {}
    output, _ = lstm(x, tuple(states))
    gradient = torch.tensor(operands["h_grad"])
    wanted = [x, *states, *lstm.parameters()]

    def backward() -> Any:
        return torch.autograd.grad(output, wanted, gradient, retain_graph=True)

    return backward, {}


CONTESTANTS: dict[str, Callable[[Case, int, str], Made]] = {
    "lstm-lower": ours,
    "textbook": textbook,
    "floor": floor,
    "floor-pytorch": floor_pytorch,
    "tensorflow": tensorflow,
    "pytorch": pytorch,
}

if __name__ == "__main__":
    main()
