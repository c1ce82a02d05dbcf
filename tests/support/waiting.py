"""Threads of onnxruntime that wait for work asleep.

By default they spin, and go on doing so after every run: where a test's model runs for a millisecond, they take ten
more of a processor that the other tests could have.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

NAME = "onnxruntime"


class _Finder(importlib.abc.MetaPathFinder):
    """Finds onnxruntime, once, and changes it where it has been imported."""

    def find_spec(self, fullname: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if fullname != NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(NAME)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _change(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_SPINNING = "session.intra_op.allow_spinning"


def without_spinning() -> None:
    """Lets no session of this process spin. onnxruntime is not imported for it: not all that runs needs it."""
    if NAME in sys.modules:
        _change(sys.modules[NAME])
    else:
        sys.meta_path.insert(0, _Finder())


def _change(ort: Any) -> None:
    class Options(ort.SessionOptions):  # type: ignore[misc]
        """Session options with which no thread spins."""

        def __init__(self) -> None:
            super().__init__()
            super().add_session_config_entry(_SPINNING, "0")

        def add_session_config_entry(self, key: str, value: str) -> None:
            # onnxruntime warns of what is set twice.
            if key != _SPINNING:
                super().add_session_config_entry(key, value)

    plain = ort.InferenceSession.__init__

    @functools.wraps(plain)
    def with_options(session: Any, model: Any, sess_options: Any = None, *rest: Any, **named: Any) -> None:
        plain(session, model, Options() if sess_options is None else sess_options, *rest, **named)

    ort.SessionOptions = Options
    ort.InferenceSession.__init__ = with_options
