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

from benchmarks.block import Case
from benchmarks.contestants import CONTESTANTS, LEAN_RUNS, MAY_REFUSE, Run


def main() -> None:
    """Serves requests until standard input ends."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    setup = json.loads(sys.stdin.readline())
    case = Case(setup["op"], tuple(setup["shape"]), setup["variant"])
    try:
        run, facts = CONTESTANTS[setup["contestant"]](case, setup["threads"], setup["schedule"])
        run()
    except ImportError as error:
        facts = {"absence": f"not installed: {error.name}"}
    except Exception as error:
        if setup["contestant"] not in MAY_REFUSE:
            raise
        # What a table has room for: not the list of everything else that it could take.
        facts = {"absence": f"{type(error).__name__}: {error}".partition("\n")[0].partition("; ")[0]}
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


if __name__ == "__main__":
    main()
