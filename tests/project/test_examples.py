"""The examples run as their pages say, and do what they say."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.support import documentation
from tests.support.documentation import EXAMPLES, ROOT

# Arguments that make an example shorter. Where a command stands in no page, none of them is missed.
SHORTER = {
    "python examples/char_model/train.py": "--steps 150",
    "python examples/tensorflow_training/train_from_file.py": "--steps 20 --sizes 8,2,6,10 --optimizer sgd",
    "python examples/keras_digits/export.py": "--epochs 1",
    "python examples/long_run/export.py": "--epochs 1 --megabytes 0.5",
    "python examples/long_run/train.py": "--epochs 1 --megabytes 3 --limit 2000 --save-every 2",
    "python examples/keras_digits/finetune.py": "--epochs 2",
    "python examples/torch_forecaster/finetune.py": "--steps 150",
    "python examples/federated/train.py": "--rounds 3",
    "python examples/torch_forecaster/export.py": "--steps 1",
    "python examples/onnx_saliency/export.py": "--epochs 1",
}
# The scripts that need TensorFlow run in one process, so that it is imported once; first the one that sets its threads,
# which is possible once.
TENSORFLOW = (
    "examples/tensorflow_training/train_from_file.py",
    "examples/make_graphs.py",
    "examples/keras_digits/export.py",
    "examples/long_run/export.py",
)
# The same of PyTorch.
TORCH = (
    "examples/torch_forecaster/export.py",
    "examples/onnx_saliency/export.py",
    "examples/onnxruntime_training/mlp.py",
    "examples/onnxruntime_training/lstm.py",
)
PAGES = sorted(page.parent.name for page in EXAMPLES.glob("*/README.md"))
IN_ONE_PROCESS = """
import runpy, sys
from pathlib import Path
for words in {commands!r}:
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).parent))
    runpy.run_path(words[0], run_name="__main__")
"""


def commands(example: str = "") -> list[str]:
    """The commands of an example's page, or of the index."""
    page = EXAMPLES / example / "README.md"
    return [command for block in documentation.blocks(page, "bash") for command in documentation.commands(block)]


def words(command: str) -> list[str]:
    """What to start for a command of an example's page."""
    return [*documentation.words(command), *SHORTER.get(command, "").split()]


def needs_a_framework(command: str) -> bool:
    return any(script in command for script in (*TENSORFLOW, *TORCH))


def run_in_one_process(scripts: tuple[str, ...], folder: Path) -> str:
    """Runs the commands of some scripts, as their pages have them."""
    known = [command for example in ("", *PAGES) for command in commands(example)]
    chosen = [words(command)[1:] for script in scripts for command in known if script in command]
    assert len(chosen) == len(scripts)
    program = IN_ONE_PROCESS.format(commands=chosen)
    return documentation.run([sys.executable, "-c", program], folder, warnings="default")


def run(example: str, folder: Path) -> str:
    """Runs what an example's page says, but for what needs TensorFlow, PyTorch or Node; returns what was printed."""
    able = [command for command in commands(example) if documentation.why_not(command) is None]
    chosen = [command for command in able if not needs_a_framework(command)]
    return "".join(documentation.run(words(command), folder) for command in chosen)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return documentation.place_to_run(tmp_path)


@pytest.mark.slow
def test_eager_ops(folder: Path) -> None:
    printed = run("eager_ops", folder)
    (shown,) = documentation.blocks(EXAMPLES / "eager_ops" / "README.md", "text")
    assert printed == shown.text


@pytest.mark.slow
def test_lowered_model_equals_tensorflow(folder: Path) -> None:
    printed = run("lower_model", folder)
    assert "before: 1 BlockLSTM 1 BlockLSTMGrad\n" in printed
    nodes = int(re.search(r"(\d+) in the gradient's loop", printed)[1])
    assert nodes <= 14
    assert (folder / "out/loop.svg").read_text().count("<path") > 10


@pytest.mark.slow
def test_character_model_learns(folder: Path) -> None:
    losses = [float(line.rpartition(" ")[2]) for line in run("char_model", folder).splitlines()]
    assert losses[-1] < 0.85 * losses[0]
    assert (folder / "out/char_model/loss.svg").is_file()
    assert (folder / "out/char_model/checkpoint.safetensors").is_file()


@pytest.mark.slow
def test_saliency_ends_where_the_classifier_stops_reading(folder: Path) -> None:
    values = [float(word) for word in run("saliency", folder).split()[4:]]
    assert len(values) == 12
    assert min(values[:9]) > 0 == max(values[9:])
    assert (folder / "out/saliency.svg").is_file()


@pytest.mark.slow
def test_clients_learn_together(folder: Path) -> None:
    printed = run("federated", folder)
    first, last = re.search(r"clients (\S+) to (\S+)\n", printed).groups()
    assert float(last) < float(first)
    assert (folder / "out/federated.svg").is_file()


@pytest.mark.slow
def test_ops_of_a_package_of_its_own(folder: Path) -> None:
    printed = run("plugin_op", folder)
    assert "against float64: {'loss': 'ok', 'w_grad': 'ok'}" in printed
    assert "against central differences: {'x': 'ok', 'w': 'ok'}" in printed
    losses = [float(found) for found in re.findall(r"^loss ([\d.]+)", printed, re.MULTILINE)]
    assert len(losses) == 4
    assert losses == sorted(losses, reverse=True)
    assert re.search(r"to lower +2 +0", printed)
    kept, made = ROOT / "examples/plugin_op/leaky.onnx", folder / "out/leaky.onnx"
    assert made.read_bytes() == kept.read_bytes()


@pytest.mark.slow
def test_pipeline(folder: Path) -> None:
    before, after = run("pass_pipeline", folder).splitlines()
    assert before.startswith("before: ")
    assert after.startswith("lowered: ")


@pytest.mark.slow
def test_digits_reach_the_accuracy_of_keras(folder: Path) -> None:
    """The files in the repository, trained without TensorFlow; the script itself compares the accuracies."""
    printed = run("keras_digits", folder)
    ours, keras = re.search(r"test accuracy (\S+), Keras (\S+)", printed).groups()
    assert abs(float(ours) - float(keras)) <= 0.01
    assert float(keras) > 0.95
    assert float(re.search(r"largest difference: (\S+)", printed)[1]) < 1e-4
    accuracies = [float(found) for found in re.findall(r"upside down (\S+)", printed)]
    assert accuracies[0] < 0.5 < 0.8 < accuracies[-1]
    assert (folder / "out/loss.svg").is_file()


@pytest.mark.slow
def test_bundle_for_node_and_the_browser(folder: Path) -> None:
    """tests/anywhere trains it there."""
    assert "wrote examples/train_anywhere/bundle" in run("train_anywhere", folder)
    about = json.loads((folder / "examples/train_anywhere/bundle/training.json").read_text())
    with np.load(folder / "out/digits.npz") as data:
        assert set(data) == {entry["name"] for entry in about["data"]}


@pytest.mark.slow
def test_a_long_run_goes_on_where_it_was_stopped(folder: Path) -> None:
    """Of little data; the script itself compares what `evaluate` and `predict` say."""
    printed = run("long_run", folder)
    assert re.findall(r"stopped with (\w+)", printed) == ["SIGINT", "SIGKILL"]
    assert "digits: 1 epochs in" in printed
    assert (folder / "out/digits.svg").is_file()


@pytest.mark.slow
def test_exports_from_tensorflow(folder: Path) -> None:
    """What the repository keeps is what the scripts write; a TensorFlow step trains the same from its file."""
    pytest.importorskip("tensorflow")
    printed = run_in_one_process(TENSORFLOW, folder)
    assert printed.count("relative difference of the losses") == 1
    for graph in EXAMPLES.glob("graphs/*.npz"):
        with np.load(graph) as kept, np.load(folder / "out/graphs" / graph.name) as made:
            for name in kept.files:
                np.testing.assert_allclose(made[name], kept[name], rtol=1e-4, atol=1e-5)

    places = (ROOT / "examples/keras_digits", folder / "out/keras_digits")
    kept, made = (json.loads((at / "keras.json").read_text()) for at in places)
    np.testing.assert_allclose(made["losses"], kept["losses"][: len(made["losses"])], rtol=1e-3)
    assert f"test accuracy {made['accuracy']:.4f}" in printed
    trained = documentation.run(
        [sys.executable, "examples/keras_digits/train.py", "--folder", "out/keras_digits"], folder
    )
    assert f"Keras {made['accuracy']:.4f}" in trained


@pytest.mark.slow
def test_forecaster_learns_another_building(folder: Path) -> None:
    before, after = map(float, re.search(r": (\S+) before, (\S+) after", run("torch_forecaster", folder)).groups())
    assert after < before / 4
    assert (folder / "out/forecaster.svg").is_file()
    kept, made = (
        onnx.load(path)
        for path in (folder / "examples/torch_forecaster/forecaster.onnx", folder / "out/finetuned.onnx")
    )
    assert kept.graph.node == made.graph.node
    assert kept.graph.initializer != made.graph.initializer


@pytest.mark.slow
def test_saliency_of_a_shipped_file(folder: Path) -> None:
    printed = run("onnx_saliency", folder)
    assert f"classes {list(range(10))}, next" in printed
    assert "gradient and differences agree" in printed
    assert (folder / "out/onnx_saliency/saliency.svg").is_file()


@pytest.mark.slow
def test_exports_from_pytorch(folder: Path) -> None:
    """What the repository keeps has the form of what the scripts write; how well it was trained is not asked.

    Scripts of onnxruntime-training compute what PyTorch does.
    """
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    printed = run_in_one_process(TORCH, folder)
    differences = [float(found) for found in re.findall(r"from PyTorch's: (\S+)", printed)]
    assert len(differences) == 2
    assert max(differences) < 1e-5
    for path in ("torch_forecaster/forecaster.onnx", "onnx_saliency/digits.onnx"):
        kept, made = (onnx.load(at / path).graph for at in (EXAMPLES, folder / "out"))
        assert (kept.node, kept.input, kept.output) == (made.node, made.input, made.output)
        assert {value.name for value in kept.initializer} == {value.name for value in made.initializer}
        assert kept.initializer != made.initializer


def test_every_example_has_a_page_that_shows_its_pictures() -> None:
    folders = {path.parent for path in EXAMPLES.glob("*/*.py")} - {EXAMPLES}
    index = (EXAMPLES / "README.md").read_text()
    for folder in folders:
        text = (folder / "README.md").read_text()
        assert f"]({folder.name}/README.md)" in index
        for picture in [*folder.glob("*.png"), *folder.glob("*.svg")]:
            assert picture.stat().st_size < 100_000
            assert f"]({picture.name})" in text
            assert f"]({folder.name}/{picture.name})" in index


def test_every_command_of_an_example_is_run_here() -> None:
    source = Path(__file__).read_text()
    for example in PAGES:
        chosen = [command for command in commands(example) if not needs_a_framework(command)]
        assert not chosen or f'run("{example}", folder)' in source
    assert all(needs_a_framework(command) for command in commands())
    known = {command for example in ("", *PAGES) for command in commands(example)}
    assert set(SHORTER) <= known
    scripts = {path.relative_to(ROOT).as_posix() for path in EXAMPLES.rglob("*.py") if "__main__" in path.read_text()}
    assert scripts == {command.split()[1] for command in known if command.startswith("python examples/")}
