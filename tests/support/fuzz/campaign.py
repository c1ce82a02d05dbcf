"""Long runs: items of work go to processes that may die, hang or grow; the parent goes on and says which it was."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.fuzz.entrances import RUNNING
from tests.support.fuzz.worker import MOST_BYTES

# Items that a process does before a fresh one takes its place.
ITEMS_PER_PROCESS = 400
REDUCED_PER_KIND = 2
# What onnxruntime does to the model without us.
ALONE = {"damage": "alone", "programs": "inlined"}


@dataclasses.dataclass
class Options:
    """What a campaign is asked for.

    Attributes:
        kind: `programs`, `gradients`, `training`, `damage`, `files`, `nodes` or `tensorflow`.
        seconds: time limit of the whole.
        jobs: processes at a time.
        out: folder for failing models; `None` keeps none.
        limit: seconds of processor time for one item; ten times as many may pass.
        settings: passed on to the worker.
    """

    kind: str
    seconds: float
    jobs: int = 1
    out: Path | None = None
    limit: float = 90.0
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)


class Campaign:
    """Counts, findings, and the processes that make them."""

    def __init__(self, options: Options, items: Iterator[Any]) -> None:
        self.options = options
        self.counts: collections.Counter[str] = collections.Counter()
        self.kinds: collections.Counter[str] = collections.Counter()
        self._items = items
        self._lock = threading.Lock()
        self._end = time.monotonic() + options.seconds

    def run(self) -> int:
        """Runs; the number of items that failed."""
        start = time.monotonic()
        threads = [threading.Thread(target=self._work) for _ in range(self.options.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        say(f"{counts or 'nothing done'} in {time.monotonic() - start:.0f} s")
        for kind, count in self.kinds.most_common():
            say(f"{count:6} {kind}")
        return self.counts["failed"]

    def _next(self) -> Any:
        with self._lock:
            return next(self._items, None) if time.monotonic() < self._end else None

    def _work(self) -> None:
        process: Worker | None = None
        while (item := self._next()) is not None:
            if process is None or process.done >= ITEMS_PER_PROCESS:
                if process is not None:
                    process.stop()
                process = Worker(self.options)
            with self._lock:
                known = [kind for kind, count in self.kinds.items() if count >= REDUCED_PER_KIND]
            answer = process.ask(item, known)
            if answer.get("ended"):
                process = None
            if self.options.kind in ALONE and answer["verdict"] == "failed":
                answer = self._ours(item, answer)
            with self._lock:
                self._take(item, answer)
        if process is not None:
            process.stop()

    def _ours(self, item: Any, answer: dict[str, Any]) -> dict[str, Any]:
        """An answer without the deaths and the memory that the model costs in onnxruntime alone, too.

        A process that hundreds of models were opened in has less memory left than a fresh one: there it must die again.
        """
        if answer.get("ended"):
            process = Worker(self.options)
            again = process.ask(item, [])
            if not again.get("ended"):
                process.stop()
                if again["verdict"] != "failed":
                    return again | {"verdict": "dies once, not in a fresh process"}
            answer = again
        process = Worker(dataclasses.replace(self.options, kind=ALONE[self.options.kind]))
        alone = process.ask(item, [])
        if alone.get("ended"):
            return alone if answer.get("ended") else answer
        process.stop()
        costly = [f"hangs in {name}" for name in RUNNING] + ["memory"] * (alone["grown"] > MOST_BYTES)
        findings = [found for found in answer["findings"] if not any(what in found["kind"] for what in costly)]
        return answer | {"findings": findings, "verdict": "failed" if findings else "costly in onnxruntime alone"}

    def _take(self, item: Any, answer: dict[str, Any]) -> None:
        self.counts[answer["verdict"]] += 1
        if answer["verdict"].startswith("original"):
            say(f"{self.options.kind} {item} {answer['verdict']}")
        for name, count in answer.get("counts", {}).items():
            self.counts[name] += count
        for finding in {finding["kind"]: finding for finding in reversed(answer.get("findings", []))}.values():
            kind = finding["kind"]
            self.kinds[kind] += 1
            if self.kinds[kind] <= REDUCED_PER_KIND:
                say(f"{self.options.kind} {item} [{finding['case']}] {kind}: {finding['detail'][:300]}")
                self._keep(item, finding)

    def _keep(self, item: Any, finding: dict[str, Any]) -> None:
        if self.options.out is None:
            return
        folder = self.options.out / re.sub(r"\W+", "-", finding["kind"]).strip("-")[:80]
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in finding.get("files", {}).items():
            (folder / f"{item}{name}").write_bytes(bytes.fromhex(text))
        with (folder / "notes.txt").open("a", encoding="utf-8") as notes:
            notes.write(f"{item} [{finding['case']}] {finding['kind']}: {finding['detail']}\n")


class Worker:
    """A process that does items."""

    def __init__(self, options: Options) -> None:
        self.limit = options.limit
        self.done = 0
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `stop`)
        settings = json.dumps(options.settings)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fuzz.worker", options.kind, str(options.limit), settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)

    def ask(self, item: Any, known: list[str]) -> dict[str, Any]:
        """Does an item; what the process says of it, or that it died or hung, and in what it was doing then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.done += 1
        stage = "start"
        end = time.monotonic() + 10 * self.limit
        buffer = b""
        try:
            self._process.stdin.write(json.dumps({"item": item, "known": known}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return self._ended(stage, "dies")
        while time.monotonic() < end:
            if not self._selector.select(timeout=max(0.0, end - time.monotonic())):
                break
            data = os.read(self._process.stdout.fileno(), 1 << 20)
            if not data:
                return self._ended(stage, "dies")
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                if line.startswith(b"@"):
                    stage = line[1:].decode()
                else:
                    return dict(json.loads(line))
        return self._ended(stage, "hangs")

    def _ended(self, stage: str, how: str) -> dict[str, Any]:
        if how == "hangs":
            self._process.kill()
        code = self._process.wait()
        how = "hangs" if code == -signal.SIGPROF else how
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        self.stop()
        # What the generator or the original does to onnxruntime is not ours.
        if stage.startswith("original") and "being reduced" not in stage:
            return {"verdict": f"{stage} {how} with {code}", "ended": True}
        finding = {"case": stage, "kind": f"{how} in {stage}", "detail": f"exit code {code}: {words}"}
        return {"verdict": "failed", "findings": [finding], "ended": True}

    def stop(self) -> None:
        """Ends the process."""
        self._selector.close()
        self._errors.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def say(text: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
