"""Forks beside threads that work, and threads side by side: nothing hangs, no setting of the process stays changed."""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnx.parser
import pytest

import lstm_lower as ll
from tests.support import forks

TEXT = '<ir_version: 9, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Tanh (x) }'


def test_calls_side_by_side_leave_others_loggers_as_they_are() -> None:
    model = onnx.parser.parse_model(TEXT)
    logger = logging.getLogger("onnx_ir.serde")
    assert not logger.disabled
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: ll.optimize(model), range(40)))
    assert not logger.disabled


WAITING = """if True:
    import os, threading, time
    from lstm_lower import forks
    started, done = threading.Event(), []
    def work():
        with forks.uncut():
            started.set()
            time.sleep(0.2)
            done.append(1)
    threading.Thread(target=work).start()
    started.wait()
    with forks.uncut():
        child = os.fork()
        if child == 0:
            with forks.uncut():
                os._exit(0 if done else 1)
    assert os.waitpid(child, 0)[1] == 0
"""
HOLDING = """if True:
    import gc, logging, os, threading
    from lstm_lower.passes import driver
    from lstm_lower.records import model_files
    before, logger = gc.get_threshold(), logging.getLogger("onnx_ir.serde")
    started, ended = threading.Event(), threading.Event()
    def work():
        with driver.old_collections_held, model_files._quiet:
            started.set()
            ended.wait()
    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    assert gc.get_threshold() != before and logger.disabled
    child = os.fork()
    if child == 0:
        free = gc.get_threshold() == before and not logger.disabled
        with driver.old_collections_held:
            held = gc.get_threshold() != before
        os._exit(0 if free and held and gc.get_threshold() == before else 1)
    assert os.waitpid(child, 0)[1] == 0 and logger.disabled
    ended.set()
    thread.join()
    assert gc.get_threshold() == before and not logger.disabled
"""
LOWERING = """if True:
    import os, signal, threading, time, lstm_lower as ll
    lower = ll.lower
    threading.Thread(target=lower, args=(MODEL,), daemon=True).start()
    time.sleep(0.03)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        lower(MODEL)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
@pytest.mark.parametrize(
    "program",
    [WAITING, HOLDING, pytest.param(LOWERING, marks=pytest.mark.slow)],
    ids=["imports", "settings", "lowering"],
)
def test_a_fork_beside_a_thread(program: str, tmp_path: Path) -> None:
    model = forks.ROOT / "examples" / "graphs" / "char_lstm_train.onnx"
    done = forks.run(
        ["-c", program.replace("MODEL", repr(str(model)))],
        tmp_path,
        {**os.environ, "PYTHONPATH": str(forks.ROOT), "PYTHONWARNINGS": "ignore"},
        seconds=90,
    )
    assert (done.returncode, done.stderr) == (0, "")
