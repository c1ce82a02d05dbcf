"""The process in which items of a campaign are done: requests on standard input, a line of JSON for each as answer."""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

Stage = Callable[[str], None]
Work = Callable[[Any, dict[str, Any], list[str], Stage], dict[str, Any]]

# Address space, much of it never used.
MEMORY = 5 << 30

# Bytes that a model of some kilobytes may take.
MOST_BYTES = 1 << 30


def peak() -> int:
    """The most bytes that this process has had in memory at a time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> None:
    """Reads requests until there are no more."""
    kind, limit, settings = sys.argv[1], float(sys.argv[2]), json.loads(sys.argv[3])
    # A kind that needs more than the others is done in a module of its own.
    place = {"torch": "torch_modules.work", "reference": "evaluators"}.get(kind, "work")
    do: Work = getattr(importlib.import_module(f"tests.support.fuzz.{place}"), kind)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    gc.freeze()  # what was imported need not be walked again for each program
    gc.set_threshold(50_000, 20, 100)
    for number, line in enumerate(sys.stdin):
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, limit)  # ends the process; other work on the machine does not count
        answer = do(request["item"], settings, request["known"], lambda stage: print("@" + stage, file=answers))
        # With TensorFlow in the process, a collection takes longer than most items.
        if number % 20 == 0:
            gc.collect()
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
