"""What `python -m benchmarks device` times: our graphs, PyTorch's layers, bare products."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort

from benchmarks import contestants, cudnn, torch_step
from benchmarks.block import Case
from benchmarks.floors import model_of
from lstm_lower.errors import InvalidInputError
from lstm_lower.passes.lower import lower
from lstm_lower.runtime.measuring.worker import Measured
from lstm_lower.runtime.node_times import node_times
from lstm_lower.runtime.profile import profile
from lstm_lower.runtime.proof.comparison import errors
from lstm_lower.runtime.providers import row_of
from lstm_lower.runtime.session import CapturedRuns, Session, default_options

Array = np.ndarray[Any, Any]

HOST_PROVIDER = row_of("cpu").name
# A schedule, and that the provider captures the run.
CAPTURED = "unroll, CUDA graph"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where everything runs.

    Attributes:
        provider: onnxruntime's, by short name.
        torch_device: PyTorch's name of the same device.
        precision: of products; `None` for float32.
        threads: on the host.
    """

    provider: str = "cuda"
    torch_device: str = "cuda"
    precision: str | None = None
    threads: int = 2

    def check(self) -> None:
        """Checks that both libraries can run there.

        Raises:
            InvalidInputError: one of them cannot; the message says which, and what measures without a GPU.
        """
        way = "; --provider cpu --torch-device cpu runs the same measurement on the processor"
        try:
            import torch

            torch.zeros(1, device=self.torch_device)
        except ImportError as error:
            raise InvalidInputError(f"device requires PyTorch, got {error}: pip install torch") from error
        except (AssertionError, RuntimeError) as error:
            text = str(error).partition("\n")[0]
            raise InvalidInputError(
                f"device requires a PyTorch that computes on {self.torch_device!r}, got: {text}{way}"
            ) from error
        smallest, _ = model_of(cudnn.floor_products(Case("CudnnRNN", (1, 1, 1, 1), "lstm")))
        try:
            Session(smallest, self.provider, precision=self.precision)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"device requires a provider of onnxruntime that computes here: {error}{way}"
            ) from error


class OurRun(Measured):
    """Our graph of a case, its operands and results in buffers on the device that stay where they are.

    Attributes:
        facts: `lower_s`, `load_s`; `error`: the largest one of a result, relative to its largest magnitude, against
            onnxruntime's processor; `on_host`: nodes that run on the processor although another provider was asked for.
    """

    def __init__(self, case: Case, schedule: str, place: Place, *, as_graph: bool) -> None:
        """Makes it.

        Args:
            case: of the cuDNN family.
            schedule: how loops run.
            place: where.
            as_graph: let the provider capture the run as one CUDA graph and replay it.
        """
        operands = cudnn.arrays(case)
        start = time.perf_counter()
        model = lower(cudnn.model(case, operands), schedule=schedule, target="cuda-graph" if as_graph else None)
        lowered = time.perf_counter()
        provider = "cuda-graph" if as_graph else place.provider
        session = Session(model, provider, self._options(place), precision=place.precision)
        loaded = time.perf_counter()
        fed = {name: operands[name] for name in session.inputs}
        expected = Session(model, "cpu", self._options(place)).run(fed)
        # The first run is on zeros, so that a captured one that keeps values is found out.
        self._runs = CapturedRuns(session.ort)
        for values in ({name: np.zeros_like(array) for name, array in fed.items()}, fed):
            self._runs.put(values)
            self._runs.run()
        found = [errors(value, expected[name])[1] for name, value in self._runs.results().items()]
        on_host: list[str] = []
        if row_of(place.provider).name != HOST_PROVIDER:
            # The profiler sees no kernels of a captured graph.
            runs = profile(
                model, fed, runs=1, providers=place.provider, precision=place.precision,
                session_options=self._options(place),
            )  # fmt: skip
            on_host = [f"{node.op} {node.name}" for node in node_times(runs) if node.provider == HOST_PROVIDER]
        self.facts = {
            "lower_s": lowered - start,
            "load_s": loaded - lowered,
            "error": max(found),
            "on_host": on_host,
        }

    @staticmethod
    def _options(place: Place) -> ort.SessionOptions:
        options = default_options()
        options.intra_op_num_threads = place.threads
        return options

    def run(self) -> None:
        self._runs.run()


def _as_exact_as_ours(place: Place) -> None:
    """Sets the precision of PyTorch's products: by default, cuDNN rounds to 11 bits on newer GPUs."""
    import torch

    coarse = place.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = coarse


class StepRun(Measured):
    """A training step of PyTorch's classifier of `python -m benchmarks torch`, in our trainer or in PyTorch.

    Attributes:
        facts: of ours `lower_s`, `load_s`, and `error`, that of the first loss, relative to PyTorch's on the processor.
    """

    def __init__(self, name: str, case: Case, place: Place) -> None:
        """Makes it.

        Args:
            name: `pytorch`, or one of our schedules.
            case: of the training steps.
            place: where.
        """
        import torch

        torch.set_num_threads(place.threads)
        _as_exact_as_ours(place)
        self.facts: dict[str, Any] = {}
        if name == "pytorch":
            self._run = torch_step.in_pytorch(case, device=place.torch_device)
            return
        schedule, target = ("unroll", "cuda-graph") if name == CAPTURED else (name, None)
        where = {"providers": target or place.provider, "precision": place.precision}
        self._run, self.facts = torch_step.in_ours(case, place.threads, schedule, target, **where)
        self.facts["error"] = errors(np.asarray(self._run()), np.asarray(torch_step.in_pytorch(case)()))[1]

    def run(self) -> Any:
        # The loss is on the host when the step returns.
        return self._run()


class TorchRun(Measured):
    """PyTorch's layer, forward and backward, or its bare products."""

    def __init__(self, name: str, case: Case, place: Place) -> None:
        """Makes it.

        Args:
            name: `pytorch` or `floor-pytorch`.
            case: of the cuDNN family.
            place: where.
        """
        import torch

        torch.set_num_threads(place.threads)
        _as_exact_as_ours(place)
        on_gpu = torch.device(place.torch_device).type == "cuda"
        self._wait: Callable[[], None] = torch.cuda.synchronize if on_gpu else lambda: None
        self.facts = {}
        if name == "pytorch":
            self._run = cudnn.in_pytorch(case, place.torch_device)
        else:
            products, values = model_of(cudnn.floor_products(case))
            self._run = contestants.products_in_pytorch(products, values, place.threads, place.torch_device)

    def run(self) -> Any:
        result = self._run()
        self._wait()
        return result
