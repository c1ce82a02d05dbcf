"""Which rows about onnxruntime's own kernels the installed one still needs: each row's example, as it is."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from typing import Any

import lstm_lower as ll
from lstm_lower.passes.targets.target import Lack
from tests.support import target_rows as rows

# Whether a row serves the installed version, and whether its example goes wrong.
_VERDICTS = {
    (True, True): "needed",
    (True, False): "NOT NEEDED",
    (False, True): "LEFT OUT",
    (False, False): "not needed",
}
# What results from run to run happens in one of some.
_RUNS = 40


def lines(match: str = "") -> Iterator[tuple[str, bool]]:
    """A line for each row, and whether it serves this version just where it is needed."""
    for name, row in rows.ROWS.items():
        if match in name:
            fault, serves = _said_elsewhere(name), name in rows.SERVING
            bounds = {"since": row.since, "until": row.until}
            ranges = "".join(f", {word} {bound}" for word, bound in bounds.items() if bound)
            verdict = _VERDICTS[serves, fault is not None]
            yield (
                f"{verdict:12}{name}{ranges}: {fault or 'the example is right as it is'}",
                serves == (fault is not None),
            )


def _said_elsewhere(name: str) -> str | None:
    """What is wrong with an example, found out in a process of its own, which it may end."""
    context = multiprocessing.get_context("spawn")
    queue: Any = context.SimpleQueue()
    process = context.Process(target=_tell, args=(name, queue))
    process.start()
    process.join(300)
    if process.is_alive():
        process.kill()
        return "does not end"
    return f"ends the process ({process.exitcode})" if process.exitcode else queue.get()


def _tell(name: str, queue: Any) -> None:
    # What onnxruntime says of a run that fails.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    queue.put(fault(rows.ROWS[name]))


def fault(row: Lack) -> str | None:
    """What is wrong with a row's example in onnxruntime, or slow."""
    model = rows.example(row)
    feeds = rows.feeds_of(model)
    if row.slow:
        before, after = rows.seconds(model, feeds), rows.seconds(ll.optimize(model), feeds)
        return f"{before * 1e3:.2f} ms, {after * 1e3:.2f} in the other form" if before > 1.1 * after else None
    for level in rows.LEVELS:
        try:
            results = [rows.run(model, feeds, model.graph.output[0].name, level) for _ in range(_RUNS)]
        except Exception as error:  # noqa: BLE001 (onnxruntime's exceptions have no common base)
            if not row.refused:
                return str(error).splitlines()[0][:100]
            continue
        if row.refused:
            return f"runs, to {results[0].reshape(-1)[:3].tolist()}"
        expected = rows.right(model, feeds)
        wrong = sum(rows.is_wrong(result, expected) for result in results)
        if wrong:
            return f"wrong in {wrong} of {_RUNS} runs{' once optimised' if level is rows.LEVELS[1] else ''}"
    return None
