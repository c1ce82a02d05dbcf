"""`python -m benchmarks import-torch`: processor time and memory of `from_torch`, beside PyTorch's export of a module.

Each model has a process of its own, which has imported a small one of the kind before: what is loaded and kept once in
a process counts for neither side. Seconds are those of the processor, all threads together; PyTorch's threads sleep
while they wait (`OMP_WAIT_POLICY`), since otherwise each counts as work that another one has. Needs the extra [torch].
"""

from __future__ import annotations

import dataclasses
import gc
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.options import JsonOption, OutputOption, hand_out
from benchmarks.processes import output_of
from lstm_lower.cli import console
from lstm_lower.errors import InvalidInputError

BATCH, CLASSES = 2, 10


@dataclasses.dataclass(frozen=True)
class TorchImportTimes:
    """What `from_torch` took of one module with cross entropy and SGD, certificate included, and `export_training`.

    Attributes:
        model: its name, of `MODELS`.
        weights: numbers of its parameters and buffers.
        export_s: processor seconds of `torch.export.export` with an open batch.
        import_s: those of `from_torch`.
        bundle_s: those of `export_training` with external data.
        state_mb: size of parameters and buffers, in MB of 2^20 bytes.
        import_mb: peak memory of `from_torch` beyond that before it.
        bundle_mb: peak memory of `export_training` beyond that before it.
    """

    model: str
    weights: int
    export_s: float
    import_s: float
    bundle_s: float
    state_mb: float
    import_mb: float
    bundle_mb: float

    @property
    def ratio(self) -> float:
        """How many times as long as an export an import takes."""
        return self.import_s / self.export_s


COLUMNS = (
    "module",
    "million weights",
    "torch.export, s",
    "from_torch, s",
    "from_torch / torch.export",
    "export_training, s",
    "state, MB",
    "peak of from_torch / state",
    "peak of export_training / state",
)


def cells(figures: Mapping[str, Any]) -> list[str]:
    """The cells of a table for one module."""
    peaks = (figures[name] / figures["state_mb"] for name in ("import_mb", "bundle_mb"))
    seconds = (figures[name] for name in ("export_s", "import_s", "ratio", "bundle_s"))
    return [figures["model"], *(f"{x:.2f}" for x in (figures["weights"] / 1e6, *seconds, figures["state_mb"], *peaks))]


def resnet(*, small: bool) -> Any:
    """A ResNet-18 for pictures of 64 by 64 pixels."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before: int, size: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(before, size, 3, stride, 1, bias=False), nn.BatchNorm2d(size))
            self.second = nn.Sequential(nn.Conv2d(size, size, 3, 1, 1, bias=False), nn.BatchNorm2d(size))
            shorter = nn.Sequential(nn.Conv2d(before, size, 1, stride, bias=False), nn.BatchNorm2d(size))
            self.shorter = nn.Identity() if before == size else shorter

        def forward(self, x: Any) -> Any:
            return torch.relu(self.second(torch.relu(self.first(x))) + self.shorter(x))

    sizes = (4, 8) if small else (64, 128, 256, 512)
    stem = [nn.Conv2d(3, sizes[0], 7, 2, 3, bias=False), nn.BatchNorm2d(sizes[0]), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks = [
        Block(before, size, 1 if before == size else 2)
        for size, former in zip(sizes, (sizes[0], *sizes), strict=False)
        for before in (former, size)
    ]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], CLASSES)]
    return nn.Sequential(*stem, *blocks, *head), torch.randn(BATCH, 3, 64, 64)


def transformer(*, small: bool) -> Any:
    """PyTorch's own encoder of six layers over tokens."""
    import torch
    from torch import nn

    units, layers = (16, 1) if small else (256, 6)

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(units, 8, 4 * units, batch_first=True)
            self.tokens = nn.Embedding(1000, units)
            self.coder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.head = nn.Linear(units, CLASSES)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.coder(self.tokens(tokens)).mean(1))

    return Transformer(), torch.randint(0, 1000, (BATCH, 16))


def lstm(*, small: bool) -> Any:
    """Two layers of LSTM over tokens."""
    import torch
    from torch import nn

    units = 8 if small else 128

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(1000, units)
            self.lstm = nn.LSTM(units, units, 2, batch_first=True)
            self.head = nn.Linear(units, CLASSES)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.lstm(self.tokens(tokens))[0][:, -1])

    return Classifier(), torch.randint(0, 1000, (BATCH, 16))


def bert(*, small: bool) -> Any:
    """An encoder of the size of DistilBERT, 67 million weights, whose own code asks whether it trains."""
    import torch
    from torch import nn

    words, units, layers = (100, 24, 1) if small else (30_522, 768, 6)
    heads, share = 12, 0.1
    functional = nn.functional

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.out = (nn.Linear(units, units) for _ in range(4))
            self.wide, self.narrow = nn.Linear(units, 4 * units), nn.Linear(4 * units, units)
            self.first, self.second = nn.LayerNorm(units, 1e-12), nn.LayerNorm(units, 1e-12)

        def forward(self, x: Any) -> Any:
            query, key, value = (
                layer(x).unflatten(-1, (heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
            )
            scores = query @ key.transpose(-1, -2) / (units // heads) ** 0.5
            weights = functional.dropout(scores.softmax(-1), share, self.training)
            mixed = self.out((weights @ value).transpose(1, 2).flatten(2))
            x = self.first(x + functional.dropout(mixed, share, self.training))
            y = self.narrow(functional.gelu(self.wide(x)))
            return self.second(x + functional.dropout(y, share, self.training))

    class Bert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(words, units), nn.Embedding(512, units)
            self.norm = nn.LayerNorm(units, 1e-12)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.pooled, self.head = nn.Linear(units, units), nn.Linear(units, CLASSES)

        def forward(self, tokens: Any) -> Any:
            places = torch.arange(tokens.shape[1], device=tokens.device)
            x = self.norm(self.tokens(tokens) + self.places(places))
            x = functional.dropout(x, share, self.training)
            for layer in self.layers:
                x = layer(x)
            return self.head(torch.relu(self.pooled(x[:, 0])))

    return Bert(), torch.randint(0, words, (BATCH, 16))


MODELS: dict[str, Callable[..., Any]] = {"resnet": resnet, "transformer": transformer, "lstm": lstm, "bert": bert}


def measure(model: str, runs: int) -> TorchImportTimes:
    """Times one model in processes of its own, of which the least figures count.

    Raises:
        InvalidInputError: it is none of `MODELS`, or PyTorch is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise InvalidInputError("import-torch requires PyTorch (pip install 'lstm-lower[torch]'), got none")
    if model not in MODELS:
        raise InvalidInputError(f"--model requires one of {', '.join(MODELS)}, got {model}")
    code = f"import sys; from {__name__} import times; times(sys.argv[1])"
    every = [TorchImportTimes(**json.loads(output_of(code, model, OMP_WAIT_POLICY="PASSIVE"))) for _ in range(runs)]
    least = {
        field.name: min(getattr(each, field.name) for each in every) for field in dataclasses.fields(TorchImportTimes)
    }
    return TorchImportTimes(**least)


def times(model: str) -> None:
    """Imports a module, once it has imported a small one of the kind, and prints what it took as JSON."""
    import torch

    import lstm_lower as ll

    torch.manual_seed(0)
    _all_of(MODELS[model](small=True))
    module, tokens = MODELS[model](small=False)
    held = [*module.parameters(), *module.buffers()]
    export_s, _, _ = _cost(lambda: _exported(module, tokens))
    import_s, import_mb, step = _cost(lambda: _imported(module, tokens))
    with tempfile.TemporaryDirectory() as folder:
        bundle_s, bundle_mb, _ = _cost(lambda: ll.export_training(step, folder, external_data=True))
    figures = TorchImportTimes(
        model, sum(x.numel() for x in held), export_s, import_s, bundle_s,
        sum(x.nbytes for x in held) / 2**20, import_mb, bundle_mb,
    )  # fmt: skip
    sys.stdout.write(json.dumps(dataclasses.asdict(figures)))


def _all_of(example: tuple[Any, Any]) -> None:
    """What is timed, of another example."""
    import lstm_lower as ll

    _exported(*example)
    with tempfile.TemporaryDirectory() as folder:
        ll.export_training(_imported(*example), folder, external_data=True)


def _exported(module: Any, x: Any) -> Any:
    import torch

    return torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))


def _imported(module: Any, x: Any) -> Any:
    import torch

    import lstm_lower as ll

    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    target = torch.arange(BATCH) % CLASSES
    return ll.from_torch(module, x, torch.nn.CrossEntropyLoss(), optimizer, example_targets=target)


def _cost(run: Callable[[], Any]) -> tuple[float, float, Any]:
    """Processor seconds, peak memory beyond what is held before, in MB, and the result."""
    # What ran before leaves traces behind, objects in circles, which whoever comes next would collect.
    gc.collect()
    # Linux alone forgets a former peak.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, start = _held_mb("VmRSS"), time.process_time()
    result = run()
    # The kernel counts in batches, a thread each.
    return time.process_time() - start, max(0.0, _held_mb("VmHWM") - before), result


def _held_mb(what: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1024


def import_torch(
    model: Annotated[
        list[str] | None, typer.Option("--model", help=f"One of {', '.join(MODELS)}; may be repeated.")
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Of which the least figures count.")] = 3,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time `from_torch` next to `torch.export.export`, with peak memory, of four modules (needs PyTorch, Linux)."""
    with console.errors(as_json=as_json):
        every = [measure(name, runs) for name in model or MODELS]
        figures = [dataclasses.asdict(each) | {"ratio": each.ratio} for each in every]
        if not as_json:
            console.table(*COLUMNS, rows=[cells(each) for each in figures], right=COLUMNS[1:])
        hand_out(figures, output, as_json=as_json)
