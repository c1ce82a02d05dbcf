"""Trains on several hosts, and takes one of them away in the middle.

The hosts are network namespaces of this machine, each with a network card and an address of its own and joined by a
bridge, so that everything between workers crosses a network. Each runs a node of Ray with one processor. Losses are
compared with those of one process, bytes on the wire with what docs/distributed.md says, and a run that loses a host
with one that does not.

Usage: sudo python tests/several_hosts.py [--workers 2] [--units 256] [--rate 1gbit]

Linux with iproute2 is required, and the right to make namespaces.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import onnx  # noqa: E402
from onnx import parser  # noqa: E402

import lstm_lower as ll  # noqa: E402 (of this checkout)
from lstm_lower.runtime.training.parallel.trainer import DistributedTrainer  # noqa: E402

NETWORK, PORT, STEPS, ROWS = "10.213.77", 6399, 20, 12

Array = np.ndarray[Any, Any]


def shell(command: str) -> str:
    """Runs a command; its output.

    Raises:
        SystemExit: it fails.
    """
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Hosts:
    """Namespaces that are joined by a bridge, each with a node of Ray.

    Attributes:
        nodes: the processes of Ray, host by host.
    """

    def __init__(self, count: int, rate: str | None) -> None:
        self.names = [f"lstm-host{number}" for number in range(count)]
        self.nodes: list[subprocess.Popen[bytes]] = []
        shell("ip link add lstm-bridge type bridge")
        shell("ip link set lstm-bridge up")
        for number, name in enumerate(self.names):
            card = f"lstm-card{number}"
            shell(f"ip netns add {name}")
            shell(f"ip link add {card} type veth peer name eth0 netns {name}")
            shell(f"ip link set {card} master lstm-bridge up")
            for each in (f"address add {self.address(number)}/24 dev eth0", "link set eth0 up", "link set lo up"):
                shell(f"ip -netns {name} {each}")
            if rate is not None:
                shell(f"ip netns exec {name} tc qdisc add dev eth0 root tbf rate {rate} burst 1mb latency 50ms")

    def start(self) -> None:
        """Starts the head on the first host, and a node on each of the others."""
        ray = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start"]
        for number in range(len(self.names)):
            role = (
                f"--head --port={PORT} --include-dashboard=false"
                if number == 0
                else f"--address={self.address(0)}:{PORT}"
            )
            options = "--num-cpus=1 --disable-usage-stats --block"
            words = f"{role} --node-ip-address={self.address(number)} {options}".split()
            self.nodes.append(self.run(number, ray + words))
            self._wait_for(number)

    def _wait_for(self, number: int) -> None:
        """Waits until the head hears of a host's node."""
        asked = f"import ray; ray.init({self.address(0) + f':{PORT}'!r}, log_to_driver=False); print(len(ray.nodes()))"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.nodes[number].poll() is None:
            asking = self.run(0, [sys.executable, "-c", asked], stdout=subprocess.PIPE)
            if asking.communicate()[0].strip() == str(number + 1).encode():
                return
        raise SystemExit(f"Ray does not start on {self.names[number]}")

    def run(self, number: int, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """Starts a command on a host, in a group of processes of its own."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
        return subprocess.Popen(["ip", "netns", "exec", self.names[number], *command], start_new_session=True, **quiet)

    def lose(self, number: int) -> None:
        """Kills everything on a host, as a power cut does."""
        for process in shell(f"ip netns pids {self.names[number]}").split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)

    def sent(self) -> list[int]:
        """Bytes that each host has sent so far."""
        counter = "/sys/class/net/eth0/statistics/tx_bytes"
        return [int(shell(f"ip netns exec {name} cat {counter}")) for name in self.names]

    @staticmethod
    def address(number: int) -> str:
        return f"{NETWORK}.{number + 1}"

    def close(self) -> None:
        for number, name in enumerate(self.names):
            self.lose(number)
            subprocess.run(["ip", "netns", "del", name], check=False)
        for node in self.nodes:
            node.wait()
        subprocess.run(["ip", "link", "del", "lstm-bridge"], check=False)


@contextlib.contextmanager
def hosts(count: int, rate: str | None) -> Iterator[Hosts]:
    """Hosts for a while."""
    made = None
    try:
        made = Hosts(count, rate)
        made.start()
        yield made
    finally:
        if made is not None:
            made.close()


def step(units: int) -> onnx.ModelProto:
    """A training step of two layers: two matrices of `units` by `units`."""
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
    model (float[rows, {units}] x) => (float[rows, {units}] y)
    {{ hidden = MatMul(x, v)
       active = Tanh(hidden)
       y = MatMul(active, w) }}"""
    model = parser.parse_model(text)
    drawn = np.random.default_rng(0)
    for name in "vw":
        values = (drawn.standard_normal((units, units)) / np.sqrt(units)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return ll.from_onnx(model, "mse", "adam")


def batches(units: int) -> list[dict[str, Array]]:
    """Random inputs and targets."""
    drawn = np.random.default_rng(1).standard_normal((2, STEPS, ROWS, units)).astype(np.float32)
    return [{"x": x, "target": target} for x, target in zip(*drawn, strict=True)]


def drive(workers: int, units: int, pause: Path | None) -> None:
    """Trains on the cluster, from the first host; writes what came out as JSON.

    Args:
        pause: a file that is made in the middle of the run, which goes on when it is gone.
    """
    trainer = ll.Trainer(step(units), learning_rate=0.01)
    losses = []
    with DistributedTrainer(trainer, workers, address=f"{Hosts.address(0)}:{PORT}", reduction="mean") as together:
        together.step(batches(units)[0])  # connections are made
        together.load_state_dict(ll.Trainer(step(units), learning_rate=0.01).state_dict())
        for number, batch in enumerate(batches(units)):
            if pause is not None and number in (0, STEPS // 2):
                pause.touch()
                while pause.exists():
                    time.sleep(0.05)
            losses.append(together.step(batch).loss)
        if pause is not None:
            pause.touch()
            while pause.exists():
                time.sleep(0.05)
        total = sum(float(np.abs(value).sum(dtype=np.float64)) for value in together.state_dict().values())
    sys.stdout.write(json.dumps({"losses": losses, "state": total}))


def train(there: Hosts, options: argparse.Namespace, lose: int | None) -> tuple[dict[str, Any], list[int], float]:
    """A run from the first host: what came out, bytes that each host sent in the steps, and their seconds."""
    pause = Path("/tmp") / f"several_hosts_{os.getpid()}"
    pause.unlink(missing_ok=True)
    words = ["--drive", str(pause), "--workers", str(options.workers), "--units", str(options.units)]
    driver = there.run(0, [sys.executable, __file__, *words], stdout=subprocess.PIPE, stderr=None)
    before, sent, start, seconds = [], [], 0.0, 0.0
    for moment in ("begin", "middle", "end"):
        while not pause.exists():
            if driver.poll() is not None:
                raise SystemExit("the run ended early")
            time.sleep(0.02)
        if moment == "begin":
            before, start = there.sent(), time.monotonic()
        elif moment == "middle" and lose is not None:
            there.lose(lose)
        elif moment == "end":
            seconds = time.monotonic() - start
            sent = [after - first for after, first in zip(there.sent(), before, strict=True)]
        pause.unlink()
    out, _ = driver.communicate()
    if driver.returncode:
        raise SystemExit("the run failed")
    return json.loads(out.decode().splitlines()[-1]), sent, seconds


def main() -> None:
    # Clusters that `ray start` makes ask for a token.
    os.environ["RAY_AUTH_MODE"] = "token"
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("--workers", type=int, default=2)
    reader.add_argument("--units", type=int, default=256)
    reader.add_argument("--rate", help="of every network card, as tc writes it: 1gbit")
    reader.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    options = reader.parse_args()
    if options.drive is not None:
        drive(options.workers, options.units, options.drive)
        return
    if shutil.which("ip") is None or os.geteuid():
        raise SystemExit("several hosts require iproute2 and the right to make network namespaces")
    alone = ll.Trainer(step(options.units), learning_rate=0.01)
    expected = [alone.step(batch).loss for batch in batches(options.units)]
    # The head's host computes too; the last one is a spare.
    with hosts(options.workers + 1, options.rate) as there:
        found, sent, seconds = train(there, options, None)
        worst = max(abs(loss - one) for loss, one in zip(found["losses"], expected, strict=True))
        say(f"{options.workers} workers on hosts of their own: {STEPS} losses within {worst:.1e} of one process")
        gradient = 4 * 2 * options.units**2
        paper = 2 * gradient * (options.workers - 1) / options.workers
        say(
            f"  {seconds / STEPS * 1e3:.0f} ms a step; MB sent a step, host by host: "
            f"{', '.join(f'{each / STEPS / 1e6:.2f}' for each in sent)}; on paper {paper / 1e6:.2f} of gradients each"
        )
        lost, _, _ = train(there, options, options.workers - 1)
        same = lost == found
        say(f"a host lost in the middle: losses and state {'equal bit for bit' if same else 'DIFFER'}")
    if worst > 1e-5 or not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
