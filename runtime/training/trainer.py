"""Training in onnxruntime: a loop around a model that holds one training step.

    trainer = ll.Trainer("train.onnx")
    for batch in batches:
        loss = trainer.step({"ids:0": batch.ids, "labels:0": batch.labels}).loss
    trainer.save("run/checkpoint.safetensors")

Weights and optimizer state lie on the device from the first step to the last. Nothing of them is copied to the host
until `state_dict` or `save` asks.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from lstm_lower import arguments
from lstm_lower.dtypes import native
from lstm_lower.errors import InvalidInputError, InvalidModelError, NotFiniteError, shown, some, warn
from lstm_lower.graph import standard as std
from lstm_lower.graph.structure import verify_structure
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.driver import run_passes
from lstm_lower.passes.malformed import malformed_models_explained
from lstm_lower.passes.tidy import SortPass
from lstm_lower.passes.training.optimizers import Optimizer
from lstm_lower.passes.training.options import AVERAGE, AVERAGED, LearningRateInputPass, TrainingOptionsPass
from lstm_lower.passes.training.updates import Group
from lstm_lower.records import certificate, checkpoint_keys, contracts, optimizer_state
from lstm_lower.records import state as training_state
from lstm_lower.records.model_files import read_all
from lstm_lower.records.state import TrainingState
from lstm_lower.runtime import providers as provider_names
from lstm_lower.runtime.buffers import input_devices
from lstm_lower.runtime.session import NOT_SENT, Session, serialized
from lstm_lower.runtime.training import checkpoint, framework_weights
from lstm_lower.runtime.training.checkpoint import arithmetic, differences
from lstm_lower.runtime.training.device_state import Bindings, DeviceState
from lstm_lower.runtime.training.diagnosis import NonFinite, first_nonfinite, spoilt, updates
from lstm_lower.runtime.training.evaluator import Evaluator
from lstm_lower.runtime.training.learner import OnNan, StepResult
from lstm_lower.runtime.training.open_sizes import drawn_values
from lstm_lower.runtime.training.torch_optimizer import TorchOptimizerState
from lstm_lower.runtime.training.trainable import Trainable
from lstm_lower.runtime.values import as_array, dtype_of, number_dtype, shortest, signature

if TYPE_CHECKING:
    from lstm_lower.runtime.measuring.fastest import Choice

__all__ = ["OnNan", "StepResult", "Trainer"]


Array = np.ndarray[Any, Any]


class Trainer(Trainable):
    """A training step in onnxruntime, with its state.

    Attributes:
        state: which inputs are state, the loss, the learning rate.
        inputs: names of the data inputs, which every step is fed with.
        outputs: names of the outputs that a step can return.
        on_nan: what happens at a step whose loss is infinite or NaN: `stop` raises, `skip` omits its update, `ignore`
            updates the state as usual.
        trace_nan: whether the error of a step that stops for its loss names the node that made the first such number.
        accumulate: number of steps to an update.
        steps: steps done so far, those before a checkpoint that was resumed included.
        model: the step with its options, and state as inputs without defaults.
        session: the session behind it.
        providers: full names of its providers, each with its options; none where the session options hold them.
        choice: which provider was chosen as the fastest, and why, where that was asked for.
    """

    trace_nan: bool = False

    def __init__(
        self,
        model: str | os.PathLike[str] | onnx.ModelProto | ir.Model,
        providers: Sequence[provider_names.Provider] | provider_names.Provider | None = None,
        session_options: ort.SessionOptions | None = None,
        *,
        state: TrainingState | None = None,
        initial_values: Mapping[str, Array] | None = None,
        sizes: Mapping[str, int] | None = None,
        optimizer: Optimizer | Sequence[Group] | str | None = None,
        learning_rate: float | None = None,
        learning_rate_input: str | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        accumulate: int = 1,
        ema: float | None = None,
        on_nan: OnNan = "stop",
        precision: str | None = None,
    ) -> None:
        """Loads a model and puts its state on the device.

        Args:
            model: a training step. One that still holds recurrent ops is lowered. It is not changed.
            providers: as for `Session`.
            session_options: as for `Session`.
            state: what is state; `None` for what the model records, or else for what its names say (`state.of`).
            initial_values: state input -> value, in place of or in addition to the model's own initial values.
            sizes: open size of the state -> number, such as `{"classes": 5}` for a model of
                `replace_head(model, classes=None)`.
            optimizer: updates for a model that ends at its gradients: an object of `passes.training.optimizers` or
                `torch_optimizers`, groups of weights with one each, or `sgd`, `momentum`, `adam`, `adamw`, `rmsprop`:
                PyTorch's in a step of a PyTorch module, Keras' in others.
            learning_rate: in place of the model's own.
            learning_rate_input: name of a scalar constant (or input) that is the model's learning rate.
            clip_norm: scale the gradients so that the norm of all together is at most this.
            clip_value: limit every element of the gradients to this magnitude.
            accumulate: average the gradients of this many steps into one update.
            ema: keep running averages of the weights, of which each update keeps this share (see `averages`).
            on_nan: see the attribute.
            precision: as for `Session`.

        Raises:
            InvalidModelError: the model is malformed, has no state, or does not fit the options.
            InvalidInputError: an option is out of range, or an initial value is missing or does not fit.
            UnsupportedOpError: the model holds ops that cannot be lowered.
        """
        if str(on_nan) not in get_args(OnNan):
            raise InvalidInputError(f"on_nan requires one of {get_args(OnNan)}, got {on_nan!r}")
        self.on_nan, self.accumulate = on_nan, accumulate
        edited = run_passes(model, [SortPass()])
        verify_structure(edited)
        options = TrainingOptionsPass(optimizer, clip_norm, clip_value, accumulate, ema)
        with malformed_models_explained(edited):
            if state is not None:
                training_state.write(edited, state)
            if learning_rate_input is not None:
                LearningRateInputPass(learning_rate_input)(edited)
            _check_state(training_state.of(edited))
            options(edited)
            self.state = training_state.of(edited)
        if all(pair.output is None for pair in self.state.pairs):
            raise InvalidModelError("a model without updates requires optimizer='adam' or another one, got none")
        defaults = training_state.detach_initial_values(edited)
        read_all(edited)
        self.model = edited
        self._certificate = certificate.parse(edited.metadata_props)
        state_inputs = [pair.input for pair in self.state.pairs]
        given = dict(arguments.mapping("initial_values", initial_values or {}))
        unknown = [name for name in given if name not in state_inputs]
        if unknown:
            raise InvalidInputError(f"initial value '{unknown[0]}' must be one of the state {state_inputs}")
        missing = [name for name in state_inputs if name not in given and name not in defaults]
        given |= drawn_values(edited, missing, sizes or {}, given)
        missing = [name for name in missing if name not in given]
        if missing:
            way = "initial_values (--initial FILE.npz) gives them"
            raise InvalidInputError(f"state '{missing[0]}' requires an initial value, got none of {missing}; {way}")
        self.choice: Choice | None = None
        opened = edited
        if (measured := provider_names.fastest_sizes(providers)) is not None:
            from lstm_lower.runtime.measuring.fastest import choose

            threads = None if session_options is None else session_options.intra_op_num_threads
            values = {name: tensor.numpy() for name, tensor in defaults.items()} | given
            self.choice = choose(edited, measured, values=values, precision=precision, threads=threads)
            opened, providers = self.choice.prepared(edited) or edited, self.choice.provider
        self.providers = provider_names.resolve(providers, precision, session_options)
        self.session = Session(opened, self.providers or None, session_options)
        # The evaluation graph is looked for when it is first needed.
        self._session_options = session_options
        self._evaluator: Evaluator | None = None

        self._inputs = {value.name: value for value in self.session.ort.get_inputs()}
        state_outputs = {pair.output: pair.input for pair in self.state.pairs if pair.output is not None}
        self._read_as = {output: name for output, name in state_outputs.items() if output != self.state.loss}
        self.inputs = [name for name in self._inputs if name not in (*state_inputs, self.state.learning_rate)]
        for name in self.inputs:
            number_dtype(self._inputs[name])
        self.outputs = list(self.session.outputs)
        self.steps = 0

        values = {name: self._initial_value(name, given.get(name), defaults.get(name)) for name in state_inputs}
        devices = input_devices(self.session.ort)
        # Stands for the state in checks of shapes, and takes no memory.
        self._shapes = {
            name: np.broadcast_to(np.zeros((), values[name].dtype), values[name].shape) for name in state_inputs
        }
        self._device_state = DeviceState(self.state.pairs, values, devices)

        rules = contracts.read(self.session.ort.get_modelmeta().custom_metadata_map)
        # Feeds of recurrent ops' operands, whose values matter where they are lengths.
        self._valued = {name for rule in rules for name in rule.feeds} & set(self.inputs)
        self._checked: set[tuple[Any, ...]] = set()
        captured = provider_names.is_captured(self.providers)
        self._bindings = Bindings(self.session, self._device_state, self.state.loss, devices, captured=captured)
        self._learning_rate = float("nan")
        self._set_first_rate(learning_rate, defaults)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step; NaN for a model without such an input."""
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        name = self.state.learning_rate
        if name is None:
            raise InvalidInputError(
                "learning_rate requires a model with a learning-rate input (learning_rate_input=...)"
            )
        try:
            rate = float(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(f"learning_rate requires a number, got {value!r}") from error
        if not math.isfinite(rate):
            raise InvalidInputError(f"learning_rate requires a finite number, got {rate}")
        if rate != self._learning_rate:
            dtype = number_dtype(self._inputs[name])
            with np.errstate(over="ignore"):
                fed = np.asarray(rate, dtype)
            if not np.isfinite(fed):
                raise InvalidInputError(f"learning_rate requires a number that {dtype} holds, got {rate}")
            self._bindings.feed(name, fed)
            self._learning_rate = rate

    @property
    def has_loss(self) -> bool:
        """Whether the model has a loss."""
        return self.state.loss is not None

    @property
    def data_inputs(self) -> list[Any]:
        """The data inputs as the session declares them."""
        return [self._inputs[name] for name in self.inputs]

    @property
    def casts(self) -> Collection[str]:
        """The data inputs whose values are cast, as the framework that the model came from casts them."""
        return self.session.casts

    @property
    def metrics(self) -> list[str]:
        """Outputs that are scalars and neither loss, state nor gradients."""
        apart = {self.state.loss, *self._read_as, *(pair.gradient for pair in self.state.pairs)}
        declared = {value.name: value for value in self.session.ort.get_outputs()}
        return [name for name in self.outputs if name not in apart and _is_number(declared[name])]

    @property
    def evaluator(self) -> Evaluator:
        """An evaluator with the state as it is now.

        Raises:
            InvalidModelError: what the model records of its evaluation is malformed.
            UnsupportedOpError: it records none, and it is not certain that its own forward part is one.
        """
        if self._evaluator is None:
            # Batches of all sizes are evaluated.
            providers = provider_names.uncaptured(self.providers) or None
            self._evaluator = Evaluator(self.model, self._device_state, providers, self._session_options)
        return self._evaluator

    def step(self, feeds: Mapping[str, Any], outputs: Sequence[str] = ()) -> StepResult:
        """Runs one step.

        Args:
            feeds: data input -> array; the learning rate may be among them and then holds for later steps, too.
            outputs: names of outputs to return, such as metrics, gradients, or new values of state.

        Raises:
            InvalidInputError: a feed is missing, unknown, or of a wrong dtype, shape or value; or onnxruntime fails.
            NotFiniteError: the loss is infinite or no number, and `on_nan` is `stop`.
            After any error the state is as it was before.
        """
        for name, array in self.checked(feeds).items():
            self._bindings.feed(name, array)
        # State is not fetched but read from its buffer, and only if it is asked for.
        outputs = arguments.names("outputs", outputs)
        fetched = tuple(name for name in outputs if name not in self._read_as and name != self.state.loss)
        binding = self._bindings.run(fetched)
        loss = self._bindings.loss()
        # What the step wrote lies beside the state; a step that is left out changes nothing.
        trace = (lambda: self.first_nonfinite(feeds)) if self.trace_nan else None
        if self.state.loss is None or updates(float(loss), self.steps + 1, self.on_nan, self.spoilt, trace):
            self._device_state.flip()
        self.steps += 1
        if not outputs:
            return StepResult(float(loss), {})
        results = self._bindings.fetched(binding, fetched)
        held = self._device_state.read(self._read_as[name] for name in outputs if name in self._read_as)
        results |= {name: held[self._read_as[name]] for name in outputs if name in self._read_as}
        return StepResult(float(loss), {name: loss if name == self.state.loss else results[name] for name in outputs})

    def __reduce__(self) -> tuple[Any, ...]:
        """Arguments for the same trainer in another process: the step, the state as it is now, providers, steps, rates.

        Raises:
            InvalidInputError: there are session options, which cannot be sent; or the step is beyond 2 GB.
        """
        if self._session_options is not None:
            raise InvalidInputError(NOT_SENT.format("a trainer"))
        options = {
            "providers": self.providers or None,
            "initial_values": self.held_state(),
            "learning_rate": None if self.state.learning_rate is None else self._learning_rate,
            "on_nan": self.on_nan,
        }
        return _rebuilt, (type(self), serialized(self.model), options, self.steps, self.trace_nan)

    def all_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """Data, the state and the learning rate as they are now, by input.

        Raises:
            InvalidInputError: a feed does not fit.
        """
        data, rate = self.checked(feeds), self.state.learning_rate
        rates = {} if rate is None else {rate: np.asarray(self._learning_rate, number_dtype(self._inputs[rate]))}
        return {**self.held_state(), **rates, **data}

    def held_state(self) -> dict[str, Array]:
        """The state by input name, copied to the host: later steps do not change it."""
        return self._device_state.read()

    def check_finite(self) -> None:
        """Checks the weights that steps update.

        Raises:
            NotFiniteError: one of them holds what is infinite or no number.
        """
        if (name := self.spoilt()) is not None:
            raise NotFiniteError(f"after step {self.steps} state '{name}' must be finite, got nan or infinity")

    def spoilt(self) -> str | None:
        """The first of the weights that steps update which holds what is infinite or no number."""
        return spoilt(self.state, self._device_state.read)

    def first_nonfinite(self, feeds: Mapping[str, Any]) -> NonFinite | None:
        """The node that makes the first infinity or NaN in a step with the present state.

        The step runs once more, in the form that it had before it was optimised; nothing changes.

        Args:
            feeds: data input -> array.

        Returns:
            The node, and in which steps of the loops that it is in; or the feed or value of the state that holds such
            numbers already; `None` where the loss and everything else that the step returns is finite.

        Raises:
            InvalidInputError: a feed does not fit.
        """
        return first_nonfinite(self.model, self.all_feeds(feeds))

    def put_state(self, values: Mapping[str, Any]) -> None:
        """Puts values in place of the whole state.

        Raises:
            InvalidInputError: a name is missing or unknown, or a value differs in dtype or shape; nothing is changed.
        """
        self._device_state.write(values)

    def __repr__(self) -> str:
        now = {
            "learning rate": self._learning_rate,
            "steps": self.steps,
            "provider": self.session.ort.get_providers()[0],
        }
        if self.choice is not None:
            now["chosen"] = str(self.choice)
        if self._certificate is not None:
            now["certificate"] = self._certificate.described()
        return summary(self.model, self.state, self.data_inputs, self.metrics, self._shapes, now)

    def save(self, path: str | os.PathLike[str], notes: Mapping[str, Any] | None = None) -> None:
        """Writes a checkpoint, whole or not at all; the one before it stays as `<path>.previous`.

        Args:
            path: a safetensors file.
            notes: whatever else `resume` shall return; JSON must be able to hold it.

        Raises:
            InvalidInputError: JSON cannot hold the notes.
            OSError: nothing can be written there, or the disk is full; what was there is as it was.
        """
        held = {
            "steps": self.steps,
            "learning_rate": self._learning_rate,
            "notes": dict(notes or {}),
            "weights": [pair.input for pair in self.state.pairs if pair.role == "weight" and pair.output is not None],
            "arithmetic": arithmetic(self.session.ort),
        }
        checkpoint.write(path, self.held_state(), held)

    def resume(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Continues from a checkpoint, where it was written bit for bit, and in equal numbers up to rounding elsewhere.

        The bits are those of a run without interruption where version of lstm-lower, version of onnxruntime, processor,
        threads, providers and what becomes of denormal numbers are the same. A warning names what differs.

        Returns:
            The notes that were given to `save`.

        Raises:
            InvalidInputError: it is no checkpoint, damaged, or another model's; nothing is changed.
            FileNotFoundError: there is no such file.
        """
        arrays, held = checkpoint.read(path)
        steps, learning_rate, notes = checkpoint.progress(path, held)
        if self.state.learning_rate is not None and not math.isfinite(learning_rate):
            raise InvalidInputError(f"{path}: a learning rate is required, got {learning_rate}")
        self.put_state(arrays)
        self.steps = steps
        if self.state.learning_rate is not None:
            self.learning_rate = learning_rate
        if others := differences(held.get("arithmetic"), arithmetic(self.session.ort)):
            warn(
                f"{os.fspath(path)}: goes on in numbers that may differ in their last bits from those of a run without "
                f"interruption, which requires the same {others}"
            )
        return notes

    @functools.cached_property
    def _module(self) -> framework_weights.ModuleHoldings:
        return framework_weights.ModuleHoldings(self.model)

    def state_dict(self) -> dict[str, Array]:
        """The state by input name, copied to the host: later steps do not change it.

        Of a step that `ll.from_torch` made these are all parameters and buffers of the module's own state dict, tied
        ones under each of their names and constants too, and the optimizer's state.
        """
        held = self.held_state()
        return self._module.beside(held) | held

    def load_state_dict(self, values: Mapping[str, Any], strict: bool = True) -> None:
        """Puts values in place of the whole state.

        Args:
            values: by name, as `state_dict` has them; what is no state of the step may be left out.
            strict: whether all of the state must be there; otherwise what is missing stays as it is. A name that is
                unknown is refused in either case.

        Raises:
            InvalidInputError: a name of the state is missing or one is unknown, a value differs in dtype or shape, or
                from the constant that the step has instead of a state; nothing is changed.
        """
        names = [pair.input for pair in self.state.pairs]
        state = self._module.state_of(values, set(names))
        if strict and (missing := [name for name in names if name not in state]):
            raise InvalidInputError(
                f"state requires the {len(names)} values {some(names)}, got none of '{missing[0]}'; "
                "load_state_dict(values, strict=False) leaves what is missing as it is"
            )
        self._device_state.write(state, strict=strict)

    def weights(self) -> dict[str, Array]:
        """Weights and what layers keep, by the names of the framework, without the optimizer's state.

        Of a step that `ll.from_torch` made this is what the module's own `state_dict` has, and a strict
        `load_state_dict` takes: `{name: torch.from_numpy(value) for name, value in trainer.weights().items()}`.

        Raises:
            InvalidInputError: two of them have one name.
            UnsupportedOpError: it is not certain how the step is evaluated, and so what belongs to the model.
        """
        held = self.held_state()
        if self._module.states is not None:
            return self._module.weights(held)
        return framework_weights.by_name(framework_weights.names_of(self.model, self.state), held)

    def averages(self) -> dict[str, Array]:
        """The running averages of weights that `ema` asks for, by input name, after an update at least.

        `trainer.load_state_dict(trainer.averages(), strict=False)` puts them in place of the weights; what has no
        averages, such as statistics of batch normalization, stays.

        Raises:
            InvalidInputError: the trainer keeps none, or has made no update.
        """
        held = self.held_state()
        weights = [pair.input for pair in self.state.pairs if pair.role == "weight"]
        averages = {name: f"{name.removesuffix(':0')}/{AVERAGE}" for name in weights}
        kept = {name: held[source].astype(held[name].dtype) for name, source in averages.items() if source in held}
        if not kept or not held[AVERAGED]:
            raise InvalidInputError("averages require ll.Trainer(step, ema=0.999) and an update, got none")
        return kept

    def to_torch(self, module: Any, optimizer: Any = None) -> None:
        """Copies weights and buffers into a PyTorch module, those that it has under the same names.

        Args:
            module: an `nn.Module`, such as the one that the step was made of.
            optimizer: of the kind that the step was made with, which gets the optimizer's state; its learning rates
                stay.

        Raises:
            InvalidInputError: it has none of them, or one of another shape; or the optimizer does not fit; nothing is
                changed.
        """
        assign = None if optimizer is None else self._optimizer_state(module, optimizer).filled(self.held_state())
        trained = [pair.input for pair in self.state.pairs if pair.role == "weight"]
        framework_weights.copy_into(module, self.state_dict(), trained)
        if assign is not None:
            assign()

    def from_torch(self, module: Any, optimizer: Any = None) -> None:
        """Copies weights and buffers of a PyTorch module into the state; the way back of `to_torch`.

        Args:
            module: an `nn.Module` like the one that the step was made of.
            optimizer: of the kind that the step was made with, whose state is taken; learning rates stay.

        Raises:
            InvalidInputError: a value is missing, has another shape, or differs from what the step holds as a constant;
                or the optimizer does not fit; nothing is changed.
        """
        held: dict[str, Array] = self.held_state()
        values = framework_weights.arrays_of(module)
        if self._module.states is not None:
            values = self._module.state_dict_of(values)
        if optimizer is not None:
            values |= self._optimizer_state(module, optimizer).taken(held)
        self.load_state_dict(held | values)

    def _optimizer_state(self, module: Any, optimizer: Any) -> TorchOptimizerState:
        return TorchOptimizerState(optimizer, module, optimizer_state.parse(self.model.metadata_props))

    def to_keras(self, model: Any, optimizer: Any = None) -> None:
        """Copies weights and what layers keep into a Keras model; its `save` writes them as Keras does.

        A weight that neither training nor evaluation reads is not in a step of `ll.from_keras`, and stays as it is in
        the model. A step of `ll.from_tensorflow`, which may train several models, must have every variable.

        Args:
            model: the model that the step was made of, the same one loaded from a file, or built anew by the same code,
                where Keras numbers layers on.
            optimizer: of Keras, such as `model.optimizer`, which gets the optimizer's state under the same names; one
                that is not built is built for this model's weights. Its learning rate stays.

        Raises:
            InvalidInputError: it is not certain which variable is which, or one has another shape; nothing is changed.
        """
        slots = []
        if optimizer is not None:
            slots = framework_weights.optimizer_pairs(optimizer, model, self.held_state(), self.state)
        if names := framework_weights.recorded(self.model):
            framework_weights.copy_into_keras(model, self.weights(), names)
        else:
            framework_weights.copy_traced_into_keras(model, self.held_state(), self.state)
        for variable, value in slots:
            variable.assign(value)

    def to_tensorflow(self, path: str | os.PathLike[str], like: str | os.PathLike[str] | None = None) -> None:
        """Writes the state as TensorFlow has it, optimizer's slots and counters included, without TensorFlow.

        Without `like` it becomes a checkpoint, in which every variable of the step stands under its own name:
        `tf.compat.v1.train.Saver().restore(session, path)` reads it. With `like` it becomes a copy of a checkpoint or
        SavedModel in which the step's variables have their trained values and all others those that they had. A step of
        `ll.from_tensorflow(file)` knows where the file's checkpoint has each value; otherwise names tell. A SavedModel
        has room for its own variables alone: it goes without slots if it was saved without.

        Args:
            path: prefix of the checkpoint, such as `run/model.ckpt`, or the SavedModel's folder. The record
                `checkpoint` beside a prefix says that it is the latest.
            like: the checkpoint or SavedModel that the step was made of, or another one of the same program: a prefix,
                a folder with a record of the latest, or a SavedModel's folder. It may be `path` itself.

        Raises:
            InvalidInputError: `like` is no such thing, lacks a weight, or has one of another dtype or shape.
            InvalidModelError: `like` is damaged.
            OSError: nothing can be written there.
        """
        # It needs a package of an extra.
        from lstm_lower.runtime.training.tensorflow_files import Trained, write

        held, keys = self.held_state(), checkpoint_keys.parse(self.model.metadata_props)
        trained = [Trained.of(pair, keys.get(pair.input), held[pair.input]) for pair in self.state.pairs]
        write(Path(path), trained, None if like is None else Path(like))

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Writes weights and what layers keep as safetensors, without the optimizer's state.

        Names are those of the framework: `module.load_state_dict(safetensors.torch.load_file(path))` reads what a step
        of `ll.from_torch` holds, paths of variables name what one of `ll.from_keras` holds.

        Raises:
            UnsupportedOpError: it is not certain how the step is evaluated, and so what belongs to the model.
            OSError: nothing can be written there.
        """
        checkpoint.write_arrays(path, self.weights())

    def load_weights(self, path: str | os.PathLike[str]) -> None:
        """Reads what `save_weights` or the framework wrote under these names; the optimizer's state stays.

        Raises:
            InvalidInputError: the file is damaged, or lacks a value, or one has another dtype or shape, or differs from
                what the step holds as a constant; nothing is changed.
            FileNotFoundError: there is no such file.
            UnsupportedOpError: as for `save_weights`.
        """
        if self._module.states is not None:
            read = self._module.state_dict_of(framework_weights.load(path, self._module.states))
        else:
            names = framework_weights.names_of(self.model, self.state)
            arrays = framework_weights.load(path, [[name] for name in names.values()])
            read = {source: arrays[name] for source, name in names.items()}
        self.load_state_dict({**self.held_state(), **read})

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        opset: int | None = None,
        schedule: str = "auto",
        external_data: bool | None = None,
    ) -> None:
        """Writes the trained model for inference: its own outputs of its data, weights inside, in plain ONNX.

        Args:
            path: the file; `ll.export_training` writes a folder to train on elsewhere, too.
            opset: version of `ai.onnx`, as for `ll.lower`.
            schedule: how loops run, as for `ll.lower`.
            external_data: keep weights in `<name>.data`; `None` where protobuf's 2 GB would not hold them.

        Raises:
            InvalidModelError: the step has no outputs of the model's own.
            UnsupportedOpError: it is not certain how the step is evaluated.
            OSError: nothing can be written there.
        """
        from lstm_lower.runtime.training.bundle import export_prediction

        export_prediction(self, path, opset=opset, schedule=schedule, external_data=external_data)

    def checked(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """The data among a step's feeds as arrays; a learning rate among them is set.

        Raises:
            InvalidInputError: as `step`.
        """
        data = {k: v for k, v in arguments.mapping("feeds", feeds).items() if k != self.state.learning_rate}
        arrays = self._check_feeds(data)
        if len(data) < len(feeds):
            self.learning_rate = feeds[self.state.learning_rate or ""]
        return arrays

    def _check_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """The feeds as arrays; what was seen before is not checked again, except where values matter."""
        feeds = self.session.fitted(feeds)
        signature = None
        if all(isinstance(value, np.ndarray) for value in feeds.values()):
            feeds = {name: native(value, f"input '{name}'") for name, value in feeds.items()}
            signature = tuple((name, value.shape, value.dtype.char) for name, value in feeds.items())
            if signature in self._checked and self._valued.isdisjoint(feeds):
                return feeds
        taken = [name for name in feeds if name not in self.inputs]
        if taken:
            raise InvalidInputError(f"feed '{taken[0]}' must be one of the data inputs {self.inputs}")
        rate = {} if self.state.learning_rate is None else {self.state.learning_rate: 0.0}
        checked = self.session.check_feeds(self._shapes | rate | dict(feeds))
        arrays = {name: checked[name] for name in feeds}
        if signature is not None:
            self._checked.add(signature)
        return arrays

    def _initial_value(self, name: str, given: Any, default: ir.TensorProtocol | None) -> Array:
        """The value that a state starts with: the one given, or the model's own."""
        declared = self._inputs[name]
        dims = declared.shape
        value = default.numpy() if given is None and default is not None else given
        array = as_array(value, number_dtype(declared), f"initial value '{name}'")
        if len(dims) != array.ndim or any(
            isinstance(dim, int) and dim != size for dim, size in zip(dims, array.shape, strict=True)
        ):
            raise InvalidInputError(f"state '{name}' requires shape {dims}, got {list(array.shape)}")
        return array

    def _set_first_rate(self, learning_rate: float | None, defaults: Mapping[str, ir.TensorProtocol]) -> None:
        name = self.state.learning_rate
        if learning_rate is None and name is None:
            return
        if learning_rate is None and name not in defaults:
            raise InvalidInputError(f"learning_rate requires a value, since the model's '{name}' has no default")
        self.learning_rate = shortest(defaults[name or ""].numpy()) if learning_rate is None else learning_rate


def _rebuilt(kind: type[Trainer], step: bytes, options: dict[str, Any], steps: int, trace_nan: bool) -> Trainer:
    trainer = kind(onnx.load_from_string(step), **options)
    trainer.steps, trainer.trace_nan = steps, trace_nan
    return trainer


def _check_state(state: TrainingState) -> None:
    if not state.pairs:
        raise InvalidModelError(
            "a trainer requires a training step: a model that records its state, or whose outputs are named "
            "'new_<input>' or 'grad_<input>', got neither. ll.from_onnx(model, loss, optimizer) makes a step of a "
            "model (--loss and --optimizer), whose loss may be one of its outputs, by name; ll.from_keras and "
            "ll.from_torch export whole steps, and state=TrainingState(...) describes the state of any other step"
        )


def _is_number(declared: Any) -> bool:
    return not declared.shape and dtype_of(declared) is not None


# A trainer in a few lines.


_CARRYING = (std.Moving, std.Identity, std.Cast)


def summary(
    model: ir.Model,
    state: TrainingState,
    inputs: Sequence[Any],
    metrics: Sequence[str],
    values: Mapping[str, Any],
    now: Mapping[str, Any],
) -> str:
    """The kind of a trainer, and where it is.

    Weights are grouped by the operator that reads them first, which tells a matrix from a scale of quantized numbers.

    Args:
        model: the step.
        state: of its model.
        inputs: data inputs as a session declares them.
        metrics: what its steps return beside the loss.
        values: arrays, or what has their shapes and dtypes, of the state.
        now: further values by name.
    """
    weights = [pair.input for pair in state.pairs if pair.role == "weight"]
    groups: dict[str, list[str]] = {}
    for name, reader in _readers(model.graph, weights).items():
        groups.setdefault(reader, []).append(f"{name} {list(values[name].shape)}")
    listed = "".join(f"\n        {shown(reader)}: {some(names, most=12)}" for reader, names in groups.items())
    rows = {
        "inputs": ", ".join(shown(f"{value.name} {signature(value)}") for value in inputs) or "none",
        "loss": shown(state.loss or "none"),
        "metrics": ", ".join(map(shown, metrics)) or "none",
        "state": f"{len(values)} values of {_bytes(values.values())}",
        "weights": f"{len(weights)} of {_bytes(values[name] for name in weights)}{listed}" if weights else "none",
        **now,
    }
    return "Trainer(" + "".join(f"\n    {name}: {value}" for name, value in rows.items()) + "\n)"


def _readers(graph: ir.Graph, names: Sequence[str]) -> dict[str, str]:
    """Name of an input -> the operator that first does more with its elements than move or cast them."""
    places = {node: place for place, node in enumerate(all_nodes(graph))}
    readers = {}
    for value in (value for value in graph.inputs if value.name in names):
        name, reader = str(value.name), None
        while uses := value.uses():
            reader = min((use.node for use in uses), key=places.__getitem__)
            if not any(kind.matches(reader) for kind in _CARRYING):
                break
            value = reader.outputs[0]
        readers[name] = "nothing" if reader is None else reader.op_type
    return readers


def _bytes(arrays: Iterable[Any]) -> str:
    return f"{sum(array.dtype.itemsize * array.size for array in arrays):,} bytes"
