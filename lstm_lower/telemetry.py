"""Reports of a process to onnxruntime's maker, turned off before onnxruntime is loaded.

Since 1.32 onnxruntime's packages for Linux write an identifier of the device and a queue of events below the user's
cache folder as soon as they are imported, and send the events some seconds later. Only the variable prevents it, and
only where it is set before the import; a function of onnxruntime's stops later events alone.
"""

from __future__ import annotations

import os
import sys

SETTING = "ORT_DISABLE_TELEMETRY"


def turn_off() -> None:
    """Turns it off in this process and those that it starts, unless the user has set the variable."""
    if SETTING in os.environ:
        return
    os.environ[SETTING] = "1"
    stop = getattr(sys.modules.get("onnxruntime"), "disable_telemetry_events", None)
    if stop is not None:
        stop()
