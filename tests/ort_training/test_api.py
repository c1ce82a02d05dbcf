"""What a training loop is written with: accumulation, state, checkpoints, schedules, and what is refused."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import lstm_lower as ll
from lstm_lower.ort_training import artifacts, onnxblock
from lstm_lower.ort_training.api import CheckpointState, LinearLRScheduler, Module, Optimizer
from tests.support.ort_training_runs import perceptron

TRAINED = ["fc1.weight", "fc1.bias", "fc2.weight"]
RNG = np.random.default_rng(5)
X, CLASSES = RNG.standard_normal((6, 4)).astype(np.float32), RNG.integers(0, 3, 6)


@dataclasses.dataclass
class Training:
    folder: Path
    state: CheckpointState
    module: Module
    optimizer: Optimizer

    def steps(self, count: int) -> list[float]:
        losses = []
        for _ in range(count):
            losses.append(float(self.module(X, CLASSES)))
            self.optimizer.step()
            self.module.lazy_reset_grad()
        return losses


def opened(folder: Path, checkpoint: str = "checkpoint") -> Training:
    state = CheckpointState.load_checkpoint(folder / checkpoint)
    module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
    return Training(folder, state, module, Optimizer(folder / "optimizer_model.onnx", module))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifacts")
    generate(folder, optimizer=artifacts.OptimType.AdamW, nominal_checkpoint=True)
    return folder


@pytest.fixture
def training(written: Path) -> Training:
    return opened(written)


def generate(folder: Path, **changed: Any) -> None:
    options: dict[str, Any] = {
        "requires_grad": TRAINED,
        "frozen_params": ["fc2.bias"],
        "loss": artifacts.LossType.CrossEntropyLoss,
        "artifact_directory": folder,
    }
    artifacts.generate_artifacts(perceptron(np.random.default_rng(0)), **options | changed)


def test_the_files_are_plain_onnx_with_state_as_required_inputs(written: Path) -> None:
    assert sorted(path.name for path in written.iterdir()) == [
        "checkpoint", "eval_model.onnx", "nominal_checkpoint", "optimizer_model.onnx", "training_model.onnx",
    ]  # fmt: skip
    buffers = [f"{name}_grad.accumulation.buffer" for name in TRAINED]
    expected = {
        "training_model": {"input", "labels", *TRAINED, "fc2.bias", *buffers, "lazy_reset_grad"},
        "eval_model": {"input", "labels", *TRAINED, "fc2.bias"},
        "optimizer_model": {"learning_rate", "step", "params", "gradients", "first_order_moments"}
        | {"second_order_moments"},
    }
    for name, inputs in expected.items():
        model = onnx.load(written / f"{name}.onnx")
        onnx.checker.check_model(model, full_check=True)
        assert {node.domain for node in model.graph.node} == {""}
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        assert {value.name for value in session.get_inputs()} == inputs
        assert not session.get_overridable_initializers()


def test_gradients_add_up_until_they_are_reset(training: Training) -> None:
    bias = training.state.parameters["fc1.bias"]
    np.testing.assert_array_equal(bias.grad, np.zeros(5))
    training.module(X, CLASSES)
    first = bias.grad
    assert first is not None
    training.module(X, CLASSES)
    np.testing.assert_allclose(bias.grad, 2 * first, rtol=1e-6)
    training.module.lazy_reset_grad()
    training.module(X, CLASSES)
    np.testing.assert_array_equal(bias.grad, first)


def test_evaluation_changes_nothing(training: Training) -> None:
    training.module(X, CLASSES)
    before = {name: (value.data, value.grad) for name, value in training.state.parameters}
    loss = training.module.eval()(X, CLASSES)
    assert training.module.train().training
    np.testing.assert_allclose(training.module(X, CLASSES), loss, rtol=1e-6)
    training.module.lazy_reset_grad()
    training.module(X, CLASSES)
    for name, value in training.state.parameters:
        np.testing.assert_array_equal(value.data, before[name][0])
        np.testing.assert_array_equal(value.grad, before[name][1])  # type: ignore[arg-type]


def test_arrays_or_ortvalues_go_in_and_come_out(training: Training) -> None:
    as_array = training.module(X, CLASSES)
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in (X, CLASSES)]
    found = training.module(*values)
    assert isinstance(as_array, np.ndarray)
    assert isinstance(found, onnxruntime.OrtValue)
    np.testing.assert_array_equal(found.numpy(), as_array)


def test_parameters_are_read_and_written(training: Training) -> None:
    parameters = training.state.parameters
    assert [name for name, _ in parameters] == sorted([*TRAINED, "fc2.bias"])
    assert len(parameters) == 4
    assert "fc2.bias" in parameters
    assert repr(parameters["fc2.bias"]) == "Parameter(name=fc2.bias, requires_grad=False)"
    assert parameters["fc2.bias"].grad is None
    before = training.module(X, CLASSES)
    parameters["fc2.bias"] = np.array([3.0, 0, 0], np.float32)
    parameters["fc1.bias"].data = np.zeros(5, np.float32)
    parameters["fc1.bias"].data[:] = 7
    np.testing.assert_array_equal(parameters["fc1.bias"].data, np.zeros(5))
    assert training.module(X, CLASSES) != before


def test_parameters_as_one_vector(training: Training) -> None:
    module, parameters = training.module, training.state.parameters
    assert (module.get_parameters_size(), module.get_parameters_size(trainable_only=False)) == (40, 43)
    vector = module.get_contiguous_parameters()
    order = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    np.testing.assert_array_equal(vector.numpy(), np.concatenate([parameters[x].data.ravel() for x in order]))
    module.copy_buffer_to_parameters(onnxruntime.OrtValue.ortvalue_from_numpy(2 * vector.numpy()), trainable_only=False)
    np.testing.assert_array_equal(module.get_contiguous_parameters().numpy(), 2 * vector.numpy())


@pytest.mark.slow
def test_properties(training: Training, tmp_path: Path) -> None:
    properties = training.state.properties
    properties["epoch"], properties["loss"], properties["note"] = 2**40, 2.5, "warm"
    CheckpointState.save_checkpoint(training.state, tmp_path / "kept")
    found = CheckpointState.load_checkpoint(tmp_path / "kept").properties
    assert dict(found) == {"epoch": 2**40, "loss": 2.5, "note": "warm"}
    assert [type(value) for _, value in found] == [int, float, str]
    assert len(found) == 3
    assert "epoch" in found


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_goes_on_from_a_checkpoint(training: Training, kept: bool, tmp_path: Path) -> None:
    training.optimizer.set_learning_rate(0.02)
    training.steps(3)
    CheckpointState.save_checkpoint(training.state, tmp_path / "kept", include_optimizer_state=kept)
    training.folder, other = tmp_path, training.folder
    again = opened(other, str(tmp_path / "kept"))
    assert again.optimizer.get_learning_rate() == (0.02 if kept else 0.001)
    if not kept:
        again.optimizer.set_learning_rate(0.02)
    # Without its moments the optimizer begins anew.
    assert (again.steps(3) == training.steps(3)) == kept


def test_a_nominal_checkpoint_waits_for_its_numbers(written: Path, training: Training) -> None:
    nominal = opened(written, "nominal_checkpoint")
    assert len(nominal.state.parameters) == 4
    assert (written / "nominal_checkpoint").stat().st_size < (written / "checkpoint").stat().st_size
    for use in (lambda: nominal.module(X, CLASSES), lambda: nominal.state.parameters["fc1.bias"].data):
        with pytest.raises(ll.InvalidInputError, match="copy_buffer_to_parameters"):
            use()
    vector = training.module.get_contiguous_parameters()
    with pytest.raises(ll.InvalidInputError, match=r"none of 'fc2\.bias'; trainable_only=False"):
        nominal.module.copy_buffer_to_parameters(vector.numpy()[:40])
    nominal.module.copy_buffer_to_parameters(vector, trainable_only=False)
    assert nominal.steps(2) == training.steps(2)


def test_the_rate_warms_up_and_falls(training: Training) -> None:
    scheduler = LinearLRScheduler(training.optimizer, warmup_step_count=2, total_step_count=6, initial_lr=0.4)
    rates = [training.optimizer.get_learning_rate()]
    for _ in range(7):
        training.optimizer.step()
        scheduler.step()
        rates.append(training.optimizer.get_learning_rate())
    np.testing.assert_allclose(rates, [0, 0.2, 0.4, 0.3, 0.2, 0.1, 0, 0], atol=1e-12)


def test_the_model_for_inference(training: Training, tmp_path: Path) -> None:
    training.steps(3)
    path = tmp_path / "inference.onnx"
    training.module.export_model_for_inferencing(path, ["output"])
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [value.name for value in session.get_inputs()] == ["input"]
    (scores,) = session.run(None, {"input": X})
    wide = scores.astype(np.float64)
    likely = wide[np.arange(6), CLASSES] - np.log(np.exp(wide).sum(1))
    np.testing.assert_allclose(training.module.eval()(X, CLASSES), -likely.mean(), rtol=1e-6)


def test_parameters_go_back_into_a_model(training: Training, tmp_path: Path) -> None:
    training.steps(1)
    CheckpointState.save_checkpoint(training.state, tmp_path / "kept")
    model = perceptron(np.random.default_rng(0))
    onnxblock.load_checkpoint_to_model(tmp_path / "kept", model)
    for weight in model.graph.initializer:
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(weight), training.state.parameters[weight.name].data)


def test_blocks_make_the_same_models(written: Path, tmp_path: Path) -> None:
    class Block(onnxblock.TrainingBlock):
        def __init__(self) -> None:
            super().__init__()
            self.loss = onnxblock.loss.CrossEntropyLoss()

        def build(self, output: str) -> str:
            return str(self.loss(output))

    block, optimizer = Block(), onnxblock.optim.AdamW()
    for name in TRAINED:
        block.requires_grad(name)
    block.requires_grad("fc2.bias", value=False)
    with onnxblock.base(perceptron(np.random.default_rng(0))):
        block("output")
    with onnxblock.empty_base():
        optimizer(block.parameters())
    models = [*block.to_model_proto(), optimizer.to_model_proto()]
    for name, model in zip(("training_model", "eval_model", "optimizer_model"), models, strict=True):
        onnx.save(model, tmp_path / f"{name}.onnx")
    onnxblock.save_checkpoint(block.parameters(), tmp_path / "checkpoint")
    assert opened(tmp_path).steps(3) == opened(written).steps(3)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ort_format": True}, "ort_format requires False"),
        ({"custom_op_library": "ops.so"}, "custom_op_library is not supported"),
        ({"requires_grad": None}, "requires_grad requires the names of initializers"),
        ({"requires_grad": ["fc3.weight"]}, "got 'fc3.weight'"),
        ({"frozen_params": ["fc1.bias"]}, "got 'fc1.bias' in both lists"),
        ({"requires_grad": "fc1.bias"}, "requires_grad requires a list of names"),
        ({"loss": "mse"}, "loss requires one of"),
        ({"loss": None}, "loss requires a scalar"),
        ({"loss": onnxblock.blocks.Neg()}, "loss requires a scalar"),
        ({"optimizer": "adam"}, "optimizer requires one of"),
        ({"additional_output_names": ["nowhere"]}, "got 'nowhere'"),
        ({"loss_input_names": ["nowhere"]}, "'nowhere' must be declared"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ll.LstmLowerError, match=re.escape(message)):
        generate(tmp_path, **changed)
    assert list(tmp_path.iterdir()) == []


def test_arguments_of_a_loop_are_checked(training: Training, tmp_path: Path) -> None:
    module, state = training.module, training.state
    with pytest.raises(ll.InvalidInputError, match=r"requires the inputs \['input', 'labels'\], got 1 values"):
        module(X)
    with pytest.raises(ll.InvalidInputError, match="input 'input' requires"):
        module(X[:, :2], CLASSES)
    with pytest.raises(KeyError, match=r"did you mean 'fc1\.bias'"):
        state.parameters["fc1.bia"]
    with pytest.raises(ll.InvalidInputError, match=r"'fc1.bias' requires float32\[5\], got float64\[3\]"):
        state.parameters["fc1.bias"] = np.zeros(3)
    with pytest.raises(ll.InvalidInputError, match="an int, a float or a str"):
        state.properties["shape"] = [1]  # type: ignore[assignment]
    with pytest.raises(ll.InvalidInputError, match=r"buffer requires float32\[40\]"):
        module.copy_buffer_to_parameters(np.zeros(3, np.float32))
    with pytest.raises(ll.InvalidInputError, match="graph_output_names requires names"):
        module.export_model_for_inferencing(tmp_path / "m.onnx", ["nowhere"])
    with pytest.raises(ll.InvalidInputError, match="finite number"):
        training.optimizer.set_learning_rate(float("nan"))
    with pytest.raises(ll.InvalidInputError, match="total_step_count requires a number of steps"):
        LinearLRScheduler(training.optimizer, 1, -1, 0.1)
    alone = Module(training.folder / "training_model.onnx", state)
    with pytest.raises(ll.InvalidInputError, match="eval_model_uri"):
        alone.eval()(X, CLASSES)
    with pytest.raises(ll.InvalidInputError, match="device requires"):
        Module(training.folder / "training_model.onnx", state, device="abacus")


def test_files_of_others_are_refused(training: Training, tmp_path: Path) -> None:
    generate(tmp_path, requires_grad=["fc1.bias"], optimizer=artifacts.OptimType.SGD)
    with pytest.raises(ll.InvalidInputError, match="a checkpoint of the same artifacts is required"):
        Module(tmp_path / "training_model.onnx", training.state)
    with pytest.raises(ll.InvalidInputError, match=r"keeps \['first_order_moments', 'second_order_moments'\]"):
        Optimizer(tmp_path / "optimizer_model.onnx", training.module)
    with pytest.raises(ll.InvalidModelError, match="a model that updates 'params'"):
        Optimizer(tmp_path / "eval_model.onnx", training.module)
    onnx.save(perceptron(RNG), tmp_path / "model.onnx")
    with pytest.raises(ll.InvalidModelError, match="generate_artifacts wrote is required"):
        Module(tmp_path / "model.onnx", training.state)
    (tmp_path / "checkpoint").write_bytes(b"ODTC")
    with pytest.raises(ll.InvalidInputError, match="a complete checkpoint is required"):
        CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(ll.InvalidInputError, match=r"made by CheckpointState\.load_checkpoint"):
        CheckpointState({})  # type: ignore[arg-type]


def test_blocks_need_a_model() -> None:
    with pytest.raises(ll.InvalidInputError, match=r"with onnxblock\.base"):
        onnxblock.blocks.Neg()("x")
    with pytest.raises(ll.UnsupportedOpError, match=r"ai\.onnx\.ml"):
        onnxblock.blocks.LabelEncoder()
    with pytest.raises(ll.InvalidInputError, match="reduction requires one of"):
        onnxblock.loss.MSELoss(reduction="none")
