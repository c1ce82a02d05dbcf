"""A model file in onnxruntime, measured: inputs bound once, outputs allocated by every run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnxruntime as ort

from lstm_lower.runtime import providers as provider_names
from lstm_lower.runtime.measuring.worker import Measured
from lstm_lower.runtime.profile import ProfiledRun, profile
from lstm_lower.runtime.serialized import default_options, open_session
from lstm_lower.runtime.session import CapturedRuns, Session
from lstm_lower.runtime.values import dtype_of

Array = np.ndarray[Any, Any]


class BoundRun:
    """A session and its feeds, bound where they are numbers; strings and sequences are handed over by every run."""

    def __init__(self, session: ort.InferenceSession, feeds: Mapping[str, Any]) -> None:
        """Binds the inputs; a value that no input has the name of is left out."""
        self._session = session
        self._feeds = {value.name: feeds[value.name] for value in session.get_inputs() if value.name in feeds}
        self._outputs = [value.name for value in session.get_outputs()]
        self._binding = None
        values = [*session.get_inputs(), *session.get_outputs(), *session.get_overridable_initializers()]
        if all(dtype_of(value) is not None for value in values):
            self._binding = session.io_binding()
            for name, array in self._feeds.items():
                self._binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C")))

    def run(self) -> object:
        """One run; what it returns holds the outputs."""
        if self._binding is None:
            return self._session.run(self._outputs, self._feeds)
        self._binding.clear_binding_outputs()
        for name in self._outputs:
            self._binding.bind_output(name)
        self._session.run_with_iobinding(self._binding)
        return self._binding

    def run_and_drop(self) -> None:
        """One run whose outputs are dropped."""
        self.run()
        if self._binding is not None:
            self._binding.clear_binding_outputs()

    def results(self) -> dict[str, Any]:
        """Output name -> value of one more run."""
        made = self.run()
        values = made if self._binding is None else self._binding.copy_outputs_to_cpu()
        return dict(zip(self._outputs, values, strict=True))  # type: ignore[arg-type]


class LeanRun:
    """Runs in a session of its own without onnxruntime's arena, of which `peak_memory` tells what nodes need.

    Nodes are given memory as they ask for it, and it goes back when no node needs it any more. The arena would keep it
    from run to run, and plan one block for all nodes, so that a run would seem to need none.
    """

    def __init__(
        self, open_with: Callable[[ort.SessionOptions], ort.InferenceSession], feeds: Mapping[str, Any]
    ) -> None:
        """Keeps how to open the session, which the first run does."""
        self._open_with, self._feeds = open_with, feeds
        self._bound: BoundRun | None = None

    def __call__(self) -> None:
        """One run whose outputs are dropped."""
        if self._bound is None:
            options = default_options()
            options.enable_cpu_mem_arena = options.enable_mem_pattern = False
            self._bound = BoundRun(self._open_with(options), self._feeds)
        self._bound.run_and_drop()


class ModelRun(Measured):
    """A model file in onnxruntime.

    Attributes:
        facts: `load_seconds`: to open the session.
    """

    def __init__(
        self,
        path: str,
        feeds: Mapping[str, Array],
        threads: int,
        providers: provider_names.Provider | None = None,
        precision: str | None = None,
        *,
        as_it_is: bool = False,
    ) -> None:
        """Opens a session.

        Args:
            path: of a model.
            feeds: input name -> array.
            threads: of onnxruntime.
            providers: as for `Session`.
            precision: as for `Session`.
            as_it_is: hand the file to onnxruntime unread, whatever is in it. Otherwise feeds are checked.

        Raises:
            InvalidInputError: the provider is not installed, or the feeds do not fit.
            InvalidModelError: onnxruntime refuses the model.
        """
        self._path, self._feeds, self._threads = path, feeds, threads
        self._providers = provider_names.resolve(providers, precision)
        start = time.perf_counter()
        if as_it_is:
            session = open_session(path, self._options(), self._providers)
        else:
            checking = Session(path, self._providers, self._options())
            session = checking.ort
        self.facts = {"load_seconds": time.perf_counter() - start}
        if not as_it_is:
            self._feeds = checking.check_feeds(feeds)
        self._bound: BoundRun | CapturedRuns = BoundRun(session, self._feeds)
        if provider_names.is_captured(self._providers):
            self._bound = CapturedRuns(session)
            self._bound.put(self._feeds)
        self._lean = LeanRun(self._open, self._feeds)

    def _options(self) -> ort.SessionOptions:
        return self._with_threads(default_options())

    def _with_threads(self, options: ort.SessionOptions) -> ort.SessionOptions:
        options.intra_op_num_threads = self._threads
        return options

    def _open(self, options: ort.SessionOptions) -> ort.InferenceSession:
        # A capture needs the arena.
        return open_session(self._path, self._with_threads(options), provider_names.uncaptured(self._providers))

    def run(self) -> object:
        return self._bound.run()

    def run_lean(self) -> None:
        self._lean()

    def results(self) -> dict[str, Any]:
        """Output name -> value."""
        return self._bound.results()

    def profile(self, runs: int) -> list[ProfiledRun]:
        """Runs of a second session, under onnxruntime's profiler."""
        return profile(self._path, self._feeds, runs=runs, providers=self._providers, session_options=self._options())
