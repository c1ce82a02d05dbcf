"""Sessions: a lowered model in stock onnxruntime, with feeds checked before the run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from lstm_lower import arguments
from lstm_lower.dims import format_shape, is_name
from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.graph import standard as std
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.structure import verify_structure
from lstm_lower.graph.subgraphs import all_graphs, all_nodes
from lstm_lower.passes.composites import is_to_lower, unsupported_nodes
from lstm_lower.passes.driver import run_passes
from lstm_lower.passes.lower import lower
from lstm_lower.passes.malformed import malformed_models_explained
from lstm_lower.passes.targets.legalize import legalizing_passes
from lstm_lower.passes.targets.table import target_of
from lstm_lower.passes.tidy import NameOutputsPass, SortPass, UniqueNamesPass
from lstm_lower.records import contracts, lengths, names
from lstm_lower.records.model_files import WRITTEN_OUT, load, to_proto
from lstm_lower.runtime import providers as provider_names
from lstm_lower.runtime.buffers import Array, buffer, host_copy, input_devices, output_devices
from lstm_lower.runtime.kernels import lacking
from lstm_lower.runtime.loadable import NO_OUTPUTS
from lstm_lower.runtime.serialized import default_options, failures_explained, keeps_small_weights_outside, open_session
from lstm_lower.runtime.values import as_feed, dtype_of, number_dtype

if TYPE_CHECKING:
    from lstm_lower.runtime.measuring.fastest import Choice

__all__ = ["Session", "default_options"]


# Runs on buffers that stay where they are, as a provider needs that captures them: one set of buffers.


class CapturedRuns:
    """The buffers of a session whose provider may capture its runs; all its sizes are known."""

    def __init__(self, session: ort.InferenceSession) -> None:
        """Makes nothing yet: a trainer has bindings of its own."""
        self._session = session
        self._binding: ort.IOBinding | None = None
        self._inputs: dict[str, ort.OrtValue] = {}
        self._outputs: dict[str, ort.OrtValue] = {}

    def put(self, feeds: Mapping[str, Array]) -> None:
        """Copies values of all inputs into their buffers.

        Raises:
            InvalidInputError: a value is none of an input, but in place of an initializer that onnxruntime has placed.
        """
        devices = input_devices(self._session)
        fixed = [name for name in feeds if name not in devices]
        if fixed:
            raise InvalidInputError(
                f"a session that captures what it runs keeps the default of '{fixed[0]}', got a value for it; leave it "
                "away, or make the model without the default"
            )
        if self._binding is None:
            self._binding = self._session.io_binding()
            for declared in self._session.get_outputs():
                sizes = np.zeros(declared.shape, number_dtype(declared))
                output = buffer(sizes, output_devices(self._session)[declared.name])
                self._outputs[declared.name] = output
                self._binding.bind_ortvalue_output(declared.name, output)
        for name, array in feeds.items():
            if name not in self._inputs:
                self._inputs[name] = buffer(array, devices[name])
                self._binding.bind_ortvalue_input(name, self._inputs[name])
            elif array.size:
                self._inputs[name].update_inplace(np.asarray(array, order="C"))

    def run(self, options: ort.RunOptions | None = None) -> None:
        """Runs on what was put into the buffers last: the first time as usual, to capture it, then as captured."""
        assert self._binding is not None
        with failures_explained() as quiet:
            self._session.run_with_iobinding(self._binding, options or quiet)

    def results(self, names: Sequence[str] | None = None) -> dict[str, Array]:
        """Copies of outputs, of all without names."""
        return {name: host_copy(self._outputs[name]) for name in (self._outputs if names is None else names)}


# Open sizes that must not be zero: onnxruntime's LSTM and GRU end the process on an empty batch.


def batch_sizes(model: ir.Model) -> frozenset[str]:
    """Names of the open sizes that are the batch of an LSTM or a GRU anywhere in a model."""
    nodes = [node for node in all_nodes(model.graph) if std.LSTM.matches(node) or std.GRU.matches(node)]
    if not nodes:
        return frozenset()
    facts = Facts.of(model)
    sizes = set()
    for node in nodes:
        layout = node.attributes.get("layout")
        shape = facts.shape(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
        if shape is not None and len(shape) > 1:
            sizes.add(shape[0 if layout is not None and layout.as_int() else 1])
    return frozenset(size for size in sizes if isinstance(size, str))


def check_batches(named: frozenset[str], arrays: Mapping[str, Any], declared: Mapping[str, Any]) -> None:
    """Refuses feeds with an empty batch.

    Raises:
        InvalidInputError: one has it.
    """
    for name, array in arrays.items():
        for size, given in zip(declared[name].shape or (), array.shape, strict=False):
            if given == 0 and size in named:
                raise InvalidInputError(
                    f"input '{name}' requires a batch of one or more ({size}), got shape {list(array.shape)}; "
                    "onnxruntime's LSTM and GRU end the process on an empty one"
                )


# Of `Session` and `Trainer`.
NOT_SENT = (
    "{} that is sent to another process, or copied, requires session_options=None, got options, which onnxruntime "
    "writes down nowhere; send the model, and open it there with options made there"
)


class Session:
    """A model in onnxruntime.

    A model that still holds recurrent ops is lowered first, with default options. Feeds are checked by name, dtype and
    shape, and against the contracts of the recurrent ops that the model was lowered from.

    Attributes:
        inputs: names of the inputs that must be fed.
        outputs: names of the outputs, in order.
        ort: the onnxruntime session itself.
        casts: names of the inputs whose feeds are cast, as the framework that the model came from casts them.
        choice: which provider was chosen as the fastest, and why, where that was asked for.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
        providers: Sequence[provider_names.Provider] | provider_names.Provider | None = None,
        session_options: ort.SessionOptions | None = None,
        *,
        precision: str | None = None,
    ) -> None:
        """Loads a model.

        Args:
            model: a path, serialized bytes, a protobuf or an onnx_ir model.
            providers: execution providers by short (`"cpu"`, `"cuda"`, `"openvino"`, `"ggml"`, `"webgpu"`) or full
                name, alone or with options, in order of preference; or `"fastest"`, which measures those that are
                installed, once per model and machine, and `("fastest", {"batch": 32})` with these open sizes.
            session_options: passed through; `None` for onnxruntime's own defaults and those of `default_options`.
                Plug-ins are added to them.
            precision: the dtype in which the provider computes floats, such as `"bfloat16"`; `None` for `"float32"`,
                whatever the provider's own default is.

        Raises:
            InvalidInputError: a provider is not installed, has no device here, or does not offer the precision.
            InvalidModelError: the model is malformed, or onnxruntime refuses it.
            UnsupportedOpError: the model holds ops that cannot be lowered.
        """
        # What `__reduce__` takes; a model in memory is not kept for it.
        self._file = Path(model).absolute() if isinstance(model, (str, os.PathLike)) else None
        self._given_options, self._opened_with = session_options is not None, (providers, precision)
        options = default_options() if session_options is None else session_options
        if not isinstance(options, ort.SessionOptions):
            raise InvalidInputError(f"session_options requires an onnxruntime.SessionOptions, got {options!r}")
        if isinstance(model, bytes):
            model = _parse(model)
        self.choice: Choice | None = None
        if (sizes := provider_names.fastest_sizes(providers)) is not None:
            model, self.choice = _fastest(model, sizes, precision, options)
            providers = self.choice.provider
        chosen = provider_names.resolve(providers, precision, options)
        with malformed_models_explained(model):
            source, loaded = _loadable(model, chosen)
            self._stamps = {} if self._file is None else _stamps(self._file, loaded)
            self.ort = _open(source, options, chosen)
            self._batches = batch_sizes(loaded)
        provider_names.check_loaded(self.ort, chosen)
        self._captured = CapturedRuns(self.ort) if provider_names.is_captured(chosen) else None
        initialized = {value.name for value in self.ort.get_overridable_initializers()}
        self._inputs = {value.name: value for value in self.ort.get_inputs()}
        # onnxruntime tells these the same as scalars.
        self._unranked = {value.name for value in loaded.graph.inputs if value.shape is None}
        self._optional = {value.name: value for value in self.ort.get_overridable_initializers()}
        self.inputs = [name for name in self._inputs if name not in initialized]
        self.outputs = [value.name for value in self.ort.get_outputs()]
        self._contracts = contracts.read(self.ort.get_modelmeta().custom_metadata_map)
        self._lengths = lengths.parse(self.ort.get_modelmeta().custom_metadata_map)
        self.casts = names.parse(self.ort.get_modelmeta().custom_metadata_map, names.CASTS)
        self._checked: set[tuple[Any, ...]] = set()

    def run(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, run_options: ort.RunOptions | None = None
    ) -> dict[str, Array]:
        """Runs the model.

        Args:
            feeds: input name -> array (or number, or nested list); of a sequence a list of these, of an optional input
                also `None`.
            outputs: names of the wanted outputs; `None` for all.
            run_options: passed through.

        Returns:
            Output name -> array.

        Raises:
            InvalidInputError: a feed is missing, unknown, or of a wrong dtype, shape or value.
        """
        wanted = self.outputs if outputs is None else arguments.names("outputs", outputs)
        unknown = [name for name in wanted if name not in self.outputs]
        if unknown:
            raise InvalidInputError(f"output '{unknown[0]}' must be one of {self.outputs}", operand=unknown[0])
        arrays = self.check_feeds(feeds)
        if self._captured is not None:
            self._captured.put(arrays)
            self._captured.run(run_options)
            return self._captured.results(wanted)
        with failures_explained() as quiet:
            # onnxruntime takes no names for all.
            results = self.ort.run(wanted, arrays, run_options or quiet) if wanted else []
        return dict(zip(wanted, results, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        """Arguments with which another process opens it: the bytes of its model file, the providers, the precision.

        Raises:
            InvalidInputError: there are session options, or no model file that is as it was when it was opened.
        """
        if self._given_options:
            raise InvalidInputError(NOT_SENT.format("a session"))
        if self._file is None or any(_stamp(path) != stamp or stamp is None for path, stamp in self._stamps.items()):
            got = "a model in memory" if self._file is None else f"{self._file}, which has changed since"
            raise InvalidInputError(
                "a session that is sent to another process, or copied, requires a model file as it was opened, "
                f"got {got}; send the model, and open it there: ll.Session(model)"
            )
        return _opened, (type(self), serialized(load(self._file)), *self._opened_with)

    def fitted(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """The feeds, cast and reshaped for inputs whose metadata ask for it (`lstm_lower.records.names`)."""
        return (
            {
                name: names.fitted(np.asarray(value), dtype_of(self._inputs[name]), self._inputs[name].shape)
                if name in self.casts and name in self._inputs
                else value
                for name, value in feeds.items()
            }
            if self.casts
            else feeds
        )

    def check_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Checks feeds as `run` does and returns them as arrays, and lists of arrays for sequences."""
        declared = self._inputs | self._optional
        for name in arguments.mapping("feeds", feeds):
            if name not in declared:
                raise InvalidInputError(f"feed '{name}' must be one of the inputs {self.inputs}", operand=name)
        feeds = self.fitted(feeds)
        missing = [name for name in self.inputs if name not in feeds]
        if missing:
            text = f"input '{missing[0]}' requires a value, got nothing (missing: {missing})"
            raise InvalidInputError(text, operand=missing[0])
        given = {name: as_feed(value, declared[name], f"input '{name}'") for name, value in feeds.items()}
        arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
        # The same shapes need no second look, except where a contract reads values, such as a sequence length.
        signature = tuple((name, array.shape) for name, array in arrays.items())
        fresh = signature not in self._checked
        if fresh:
            _check_shapes({name: array for name, array in arrays.items() if name not in self._unranked}, declared)
            check_batches(self._batches, arrays, declared)
            for length in self._lengths:
                length.check(arrays)
        for contract in self._contracts:
            if fresh or any(contract.reads_value(name, array) for name, array in arrays.items()):
                contract.check(arrays)
        self._checked.add(signature)
        return given


def _opened(
    kind: type[Session],
    data: bytes,
    providers: Sequence[provider_names.Provider] | provider_names.Provider | None,
    precision: str | None,
) -> Session:
    return kind(data, providers, precision=precision)


def _fastest(
    model: str | os.PathLike[str] | onnx.ModelProto | ir.Model,
    sizes: Mapping[str, int],
    precision: str | None,
    options: ort.SessionOptions,
) -> tuple[str | os.PathLike[str] | onnx.ModelProto | ir.Model, Choice]:
    """The fastest provider for a model, and the model as it runs there."""
    from lstm_lower.runtime.measuring.fastest import choose

    loaded = run_passes(model, [SortPass(), NameOutputsPass()])
    verify_structure(loaded)
    choice = choose(loaded, sizes, precision=precision, threads=options.intra_op_num_threads)
    prepared = choice.prepared(loaded)
    return (model if prepared is None else prepared), choice


def _stamps(path: Path, model: ir.Model) -> dict[Path, tuple[int, int, int] | None]:
    """The stamps of a model's file and of those with its weights."""
    tensors = (value.const_value for graph in all_graphs(model) for value in graph.initializers.values())
    outside = {Path(tensor.path) for tensor in tensors if isinstance(tensor, ir.ExternalTensor)}
    return {file: _stamp(file) for file in (path, *outside)}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """A mark that differs where a file is written again; nothing of what is no file that can be read again."""
    if not path.is_file():
        return None
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def serialized(model: ir.Model) -> bytes:
    """A model as bytes, weights included.

    Raises:
        InvalidInputError: it is beyond the 2 GB that a protobuf holds.
    """
    try:
        data: bytes = to_proto(model).SerializeToString()
    except InvalidModelError:
        raise
    except ValueError as error:
        raise InvalidInputError(
            f"what is sent to another process requires a model below 2 GB: {error}; send its path, and open it there"
        ) from error
    return data


def _loadable(
    model: str | os.PathLike[str] | onnx.ModelProto | ir.Model, providers: Sequence[provider_names.Resolved]
) -> tuple[str | os.PathLike[str] | ir.Model, ir.Model]:
    """A source that onnxruntime can open, and the model in it.

    Composite ops that onnxruntime has no kernels for are lowered on the way, for the provider, and so is what it would
    fail on in a run.

    Raises:
        UnsupportedOpError: there are ops that cannot be lowered, or that the provider would compute otherwise.
    """
    # onnxruntime puts nodes in order itself, and bears with wrong declarations. It ends the process on malformed nodes.
    modified: list[bool] = []
    loaded = run_passes(model, [SortPass(), NameOutputsPass()], lambda _, result: modified.append(result.modified))
    verify_structure(loaded)
    target = provider_names.target_of(providers)
    # Kernels that onnxruntime has, providers have as well, or leave to it.
    if is_to_lower(loaded, stock=False) or (target is not None and _fails_in_runs(loaded, target)):
        lowered = lower(loaded, target=target)
        return lowered, lowered
    # What a capture cannot hold would fail in the run.
    steps = legalizing_passes(target_of(target), silent=not provider_names.is_captured(providers))
    with malformed_models_explained(loaded):
        legalized = [step(loaded).modified for step in steps]
    if any(legalized):
        # onnxruntime takes a name twice in places where it infers no types, of which there are fewer now.
        UniqueNamesPass()(loaded)
    modified += legalized
    modified.append(WRITTEN_OUT in loaded.meta)
    # A pipe cannot be read again.
    stays = isinstance(model, (str, os.PathLike)) and Path(model).is_file() and not any(modified)
    if isinstance(model, (str, os.PathLike)) and stays and not keeps_small_weights_outside(loaded):
        return model, loaded
    return loaded, loaded


def _fails_in_runs(model: ir.Model, target: str) -> bool:
    """Whether a provider takes nodes of a model that it fails on later."""
    facts, aim = Facts.of(model), target_of(target)
    bodies = (model.graph, *(function.graph for function in model.functions.values()))
    views = (facts.view(node) for body in bodies for node in all_nodes(body))
    return any(view is not None and aim.fails(view) for view in views)


def _parse(data: bytes) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception as error:
        raise InvalidModelError("an ONNX model is required, got bytes that are not one") from error
    return proto


def _open(
    source: str | os.PathLike[str] | ir.Model, options: ort.SessionOptions, providers: Sequence[provider_names.Resolved]
) -> Any:
    try:
        return open_session(source, options, providers)
    except InvalidInputError:
        raise
    except Exception as error:
        # It has operators of its own: only what it names as unknown is for others to define.
        model = source if isinstance(source, ir.Model) else load(source)
        if not model.graph.outputs:
            raise InvalidModelError(NO_OUTPUTS) from error
        missing = lacking(error, model)
        if missing is not None:
            raise InvalidModelError(
                f"the provider requires kernels for every node, got {missing}, for which onnxruntime has none; a model "
                "in float32 runs on every provider (in PyTorch: module.float(), with examples in float32)"
            ) from error
        unknown = next((f"; {reason}" for reason in unsupported_nodes(model) if reason.split()[0] in str(error)), "")
        target = provider_names.target_of(providers)
        way = f"; lower(model, target='{target}') writes it for this provider" if target is not None else ""
        raise InvalidModelError(f"onnxruntime refuses the model: {error}{unknown}{way}") from error


def _check_shapes(arrays: Mapping[str, Array], declared: Mapping[str, Any]) -> None:
    """Ranks, known sizes, and named sizes that must agree between inputs."""
    named: dict[str, tuple[int, str]] = {}
    for name, array in arrays.items():
        shape = declared[name].shape
        if shape is None:
            continue
        if len(shape) != array.ndim:
            required = f"rank {len(shape)} {format_shape(shape)}"
            text = f"input '{name}' requires {required}, got shape {format_shape(array.shape)}"
            raise InvalidInputError(text, operand=name)
        for axis, (wanted, size) in enumerate(zip(shape, array.shape, strict=True)):
            origin = ""
            expected = wanted
            if isinstance(wanted, str) and is_name(wanted):
                expected, first = named.setdefault(wanted, (size, name))
                origin = f" ({wanted} = {expected} from '{first}')"
            if isinstance(expected, int) and expected != size:
                required = f"shape {format_shape(shape)}{origin}"
                got = f"{format_shape(array.shape)} (axis {axis})"
                raise InvalidInputError(f"input '{name}' requires {required}, got {got}", operand=name)
