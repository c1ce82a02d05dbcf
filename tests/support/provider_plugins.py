"""Plug-in providers in tests: which of them run on this machine."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime import providers
from lstm_lower.runtime.providers import ROWS

# Where this is set, as in CI, what is missing of a plug-in that runs on every machine is a failure.
REQUIRED = "LSTM_LOWER_ANYWHERE"

# Chromium's driver for Vulkan computes on the processor: WebGPU runs on machines without a GPU, too.
_SWIFTSHADER = Path("/usr/lib/chromium/vk_swiftshader_icd.json")
_GPUS = (*Path("/dev").glob("dri/renderD*"), *Path("/dev").glob("nvidia[0-9]*"))
if not _GPUS and _SWIFTSHADER.is_file() and "VK_ICD_FILENAMES" not in os.environ:
    os.environ.setdefault("VK_DRIVER_FILES", str(_SWIFTSHADER))

PLUGINS = [row.short for row in ROWS if row.plugin is not None]


def needs(short: str) -> None:
    """Skips a test of a plug-in that is not installed, or has no device on a machine of this maker."""
    row = next(row for row in ROWS if row.short == short)
    assert row.plugin is not None
    installed = importlib.util.find_spec(row.plugin.package) is not None
    if short == "webgpu" and os.environ.get(REQUIRED) and not (installed and runs_here(short)):
        pytest.fail("onnxruntime-ep-webgpu, libvulkan1 and chromium are required, whose driver for Vulkan it takes")
    if not installed:
        pytest.skip(f"{row.plugin.package} is not installed")
    if not runs_here(short):
        pytest.skip(f"{short} runs on {row.plugin.machines}")


def runs_here(short: str) -> bool:
    """Whether an installed plug-in has a device on this machine."""
    try:
        providers.resolve([short])
    except InvalidInputError:
        return False
    return True
