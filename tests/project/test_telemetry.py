"""Nothing of a process leaves the machine, and nothing is kept for later."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lstm_lower import telemetry

ROOT = Path(__file__).resolve().parents[2]
TRAINING = """
import os, sys
import numpy as np
import lstm_lower as ll
step = ll.from_onnx("examples/onnx_saliency/digits.onnx", "cross_entropy", "sgd")
data = {"image": np.zeros((8, 1, 8, 8), np.float32), "target": np.zeros(8, np.int64)}
ll.Trainer(step).fit(data, batch_size=4)
ll.Session("examples/onnx_saliency/digits.onnx").run({"image": data["image"]})
assert "onnxruntime" in sys.modules
links = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if name.isdigit() and
         os.path.exists(f"/proc/self/fd/{name}")]
print([link for link in links if link.startswith("socket:") or ".onnxruntime" in link])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="what a process has open is read from Linux' files")
def test_training_leaves_no_file_and_opens_no_socket(tmp_path: Path) -> None:
    # The folder of events is made where onnxruntime is imported; the file in it stays open, as the socket would.
    kept = {name: value for name, value in os.environ.items() if name not in (telemetry.SETTING, "XDG_CACHE_HOME")}
    environment = {**kept, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", TRAINING], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
    assert not list(tmp_path.iterdir())


def test_what_a_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(telemetry.SETTING, "0")
    telemetry.turn_off()
    assert os.environ[telemetry.SETTING] == "0"
    monkeypatch.delenv(telemetry.SETTING)
    telemetry.turn_off()
    assert os.environ[telemetry.SETTING] == "1"
