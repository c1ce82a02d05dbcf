"""Reading and writing models: clear errors for bad bytes, external data, nothing half-written."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import io
import logging
import math
import os
import stat
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import google.protobuf.message
import numpy as np
import onnx
import onnx_ir as ir

from lstm_lower import budget
from lstm_lower.errors import InvalidModelError, LstmLowerError
from lstm_lower.forks import HeldSetting
from lstm_lower.graph.copies import detach_names
from lstm_lower.graph.edit import fix_initializers, name_outputs_of_calls
from lstm_lower.graph.subgraphs import all_graphs, all_nodes
from lstm_lower.graph.values import certain_first, declared_shape, stated
from lstm_lower.ops.ort_elementwise import MICROSOFT
from lstm_lower.records.content_kinds import is_tensorflow
from lstm_lower.records.files import (
    PROTOBUF_LIMIT,
    atomic_path,
    by_content,
    other_kind,
    path_within,
    protect,
    read_whole,
)
from lstm_lower.records.mapped_weights import MappedTensor, without_weights

# Sparse tensors of ONNX models, initializers and constants, written out: onnx_ir has none.


Locate = Callable[[ir.ExternalTensor], object]


def written_out(model: onnx.ModelProto, label: str, locate: Locate) -> onnx.ModelProto:
    """The model itself where it holds no sparse tensors, else a copy in which they are plain ones.

    Args:
        model: a model.
        label: what it is called in errors.
        locate: finds external data.

    Raises:
        InvalidModelError: a sparse tensor is malformed.
        OverBudgetError: plain ones would take more than the budget allows.
    """
    if not any(graph.sparse_initializer for graph in _graphs(model)) and not any(
        attribute.HasField("sparse_tensor") for attribute in _attributes(model)
    ):
        return model
    work = onnx.ModelProto()
    work.CopyFrom(model)
    for graph in _graphs(work):
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_dense(sparse, sparse.values.name, label, locate))
        graph.ClearField("sparse_initializer")
    for attribute in _attributes(work):
        if attribute.name == "sparse_value" and attribute.HasField("sparse_tensor"):
            dense = _dense(attribute.sparse_tensor, attribute.sparse_tensor.values.name, label, locate)
            attribute.CopyFrom(onnx.helper.make_attribute("value", dense))
    return work


def _attributes(model: onnx.ModelProto) -> Iterator[onnx.AttributeProto]:
    for owner in [*_graphs(model), *model.functions]:
        for node in owner.node:
            yield from node.attribute


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    waiting: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while waiting:
        owner = waiting.pop()
        if isinstance(owner, onnx.GraphProto):
            yield owner
        for node in owner.node:
            for attribute in node.attribute:
                waiting += [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def _dense(sparse: onnx.SparseTensorProto, name: str, label: str, locate: Locate) -> onnx.TensorProto:
    where, dims = f"{label}: the sparse tensor '{name}'", tuple(sparse.dims)
    values, indices = _part(sparse.values, locate), _part(sparse.indices, locate)
    if values.dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING) or indices.dtype != ir.DataType.INT64:
        got = f"{values.dtype.name} at {indices.dtype.name}"
        raise InvalidModelError(f"{where} requires numbers, and their places as INT64, got {got}")
    if not dims or min(dims) < 0:
        raise InvalidModelError(f"{where} requires sizes, got {list(dims)}")
    count = math.prod(dims)
    if count * values.dtype.bitwidth > 8 * PROTOBUF_LIMIT:
        raise InvalidModelError(
            f"{where} requires sizes of which 2 GB hold a plain tensor, got {list(dims)} of {values.dtype.name}; "
            "ScatterND and ConstantOfShape make one at run time"
        )
    budget.charge(where, size=count * values.dtype.bitwidth // 8)
    numbers, places = values.numpy(), indices.numpy()
    if numbers.ndim != 1 or places.shape not in ((len(numbers),), (len(numbers), len(dims))):
        got = f"{list(numbers.shape)} and {list(places.shape)}"
        raise InvalidModelError(f"{where} requires values [n] and places [n] or [n, {len(dims)}], got shapes {got}")
    limits = np.array(dims if places.ndim == 2 else count)
    beyond = (places < 0) | (places >= limits)
    outside = places[beyond.any(axis=-1) if places.ndim == 2 else beyond]
    if len(outside):
        raise InvalidModelError(f"{where} requires places within {list(dims)}, got {outside[0].tolist()}")
    dense = np.zeros(dims, numbers.dtype)
    if places.ndim == 2:
        dense[tuple(places.T)] = numbers
    else:
        dense.reshape(-1)[places] = numbers
    return ir.to_proto(ir.Tensor(dense, dtype=values.dtype, name=name))


def _part(tensor: onnx.TensorProto, locate: Locate) -> ir.TensorProtocol:
    read = ir.serde.deserialize_tensor(tensor)
    if isinstance(read, ir.ExternalTensor):
        locate(read)
    return read


# Model files that are neither ONNX nor TensorFlow graphs: what they are, and how to convert them.


_KERAS = "a Keras model; ll.from_keras(keras.models.load_model(path), loss, optimizer) makes a training step of it"
_TORCH = "a file of PyTorch's; ll.from_torch takes the module, ll.from_onnx what torch.onnx.export makes of it"
# What bytes begin with, from a place on.
_BEGINNINGS = (
    (0, b"\x89HDF\r\n\x1a\n", f"{_KERAS} (tf_keras.models.load_model, where Keras 2 wrote it)"),
    (4, b"TFL3", "a TensorFlow Lite model; `python -m tf2onnx.convert --tflite` converts it"),
    (4, b"ORTM", "a model in onnxruntime's own format; the .onnx file that it was made from is required"),
)
# A file in a zip archive whose name ends like this.
_MEMBERS = (("model.weights.h5", _KERAS), ("data.pkl", _TORCH), (".npy", "arrays of numpy"))


def named(data: bytes) -> str | None:
    """A description of bytes that are no ONNX model, and what to do with them; `None` where that is not known."""
    for place, beginning, what in _BEGINNINGS:
        if data[place : place + len(beginning)] == beginning:
            return what
    if not data.startswith(b"PK\x03\x04"):
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError, RuntimeError, LookupError):
        return None
    return next((what for end, what in _MEMBERS if any(name.endswith(end) for name in names)), None)


# Mark, in a model's `meta`, of one that is not as its file is: sparse tensors of that are plain ones, and outputs that
# calls leave out have names.
WRITTEN_OUT = "lstm_lower.written_out"

# Up to this many bytes a weight stays in the model where others lie in a file of their own.
_SMALL_BYTES = 256
# For fewer bytes no file of its own is made that several models share.
_WORTH_SHARING = 4096


def _silence() -> Callable[[], None]:
    logger = logging.getLogger("onnx_ir.serde")
    before, logger.disabled = logger.disabled, True

    def restore() -> None:
        logger.disabled = before

    return restore


# onnx_ir logs values of unknown dtype, which inference will find, and undefined ones, which our verifier names.
_quiet = HeldSetting(_silence)


def load(model: str | os.PathLike[str] | onnx.ModelProto, *, mapped: bool = False) -> ir.Model:
    """Reads a model; weights in external data are mapped, not copied.

    Args:
        model: a path or a protobuf.
        mapped: leave large weights in a file, the model's own, too, until somebody reads them, and for as long as
            that; for whoever is done with them before others may write the file.

    Raises:
        InvalidModelError: the bytes are no ONNX model, or its external data lies anywhere but in regular files in the
            model's folder, where onnx allows it to lie.
        FileNotFoundError: there is no such file.
    """
    given: object = model
    if not isinstance(given, (str, os.PathLike, onnx.ModelProto)):
        way = "; onnx.load_from_string reads bytes" if isinstance(given, bytes) else ""
        raise InvalidModelError(
            f"a model requires a path, a protobuf or an onnx_ir model, got {type(given).__name__}{way}"
        )
    try:
        with budget.account():
            return _load(model, mapped=mapped)
    except InvalidModelError as error:
        if isinstance(model, onnx.ModelProto) or not is_tensorflow(Path(model)):
            raise
        raise InvalidModelError(f"{error}; `lstm-lower lower {model}` imports TensorFlow's graphs") from error


def _load(model: str | os.PathLike[str] | onnx.ModelProto, *, mapped: bool) -> ir.Model:
    if isinstance(model, onnx.ModelProto):
        proto, base, label, data = model, None, "the model", b""
    else:
        path = Path(model)
        kind = other_kind(path)
        if kind not in (None, "pipe"):
            models = sorted(file.name for file in path.glob("*.onnx"))  # of a bundle, say
            holds = f" that holds {', '.join(models[:8])}: name one" if models else ""
            raise InvalidModelError(f"{path}: an ONNX file is required, got a {kind}{holds}")
        base, label = path.parent, str(path)
        proto = onnx.ModelProto()
        protect(path)
        data = (without_weights(path) if mapped else None) or read_whole(path)
        try:
            proto.ParseFromString(data)
        except google.protobuf.message.DecodeError as error:
            got = named(data) or f"bytes that are not one, or a damaged or incomplete one ({error})"
            raise InvalidModelError(f"{label}: an ONNX model is required, got {got}") from error
    if not proto.HasField("graph"):
        got = named(data) or ("one without a graph" if proto.ByteSize() else "nothing: 0 bytes")
        raise InvalidModelError(f"{label}: an ONNX model is required, got {got}")
    if not proto.opset_import:
        raise InvalidModelError(f"{label}: an ONNX model requires opset imports, got none")
    try:
        plain = written_out(proto, label, lambda tensor: _locate(tensor, base, label))
        with _quiet:
            loaded = ir.from_proto(plain)
        if plain is not proto:
            loaded.meta[WRITTEN_OUT] = True
        _declare_again(plain, loaded)
        _import_onnxruntimes(loaded)
        _find_external_data(loaded, base, label)
        for value in weights(loaded) if mapped else ():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = MappedTensor.of(value.const_value)
        fix_initializers(loaded)
        if name_outputs_of_calls(loaded):
            loaded.meta[WRITTEN_OUT] = True
    except LstmLowerError:
        raise
    except Exception as error:
        raise InvalidModelError(
            f"{label}: a well-formed ONNX model is required, got one that {_first_line(error)}"
        ) from error
    if proto is model:
        detach_names(loaded)
    return loaded


def _import_onnxruntimes(model: ir.Model) -> None:
    """Imports onnxruntime's own domain where nodes stand in it: its optimizers forget to, and it loads such files."""
    if MICROSOFT not in model.opset_imports and any(node.domain == MICROSOFT for node in all_nodes(model.graph)):
        model.opset_imports[MICROSOFT] = 1


def _declare_again(proto: onnx.ModelProto, model: ir.Model) -> None:
    """Joins what a graph declares of a value that is an input and an output of it, or an output twice.

    onnx_ir keeps the last word alone: what a loop hands on from step to step loses its shape where the output has none.
    """
    waiting: list[tuple[onnx.GraphProto | onnx.FunctionProto, ir.Graph | ir.Function]] = [(proto.graph, model.graph)]
    waiting += [(x, model.functions[x.domain, x.name, x.overload]) for x in proto.functions]
    while waiting:
        written, graph = waiting.pop()
        if isinstance(written, onnx.GraphProto):
            given = [*written.input, *written.output]
            declared = list(zip(given, [*graph.inputs, *graph.outputs], strict=True))
            counts = collections.Counter(value for _, value in declared)
            # Names of open sizes are those of inputs, which are told last.
            for info, value in reversed(declared):
                if counts[value] > 1:
                    told = ir.from_proto(info)
                    shape = certain_first(declared_shape(told), declared_shape(value))
                    value.type, value.shape = value.type or told.type, None if shape is None else stated(shape)
        for node, node_again in zip(written.node, graph, strict=True):
            for attribute in node.attribute if node_again.attributes.data else ():
                kept = node_again.attributes[attribute.name]
                if kept.type == ir.AttributeType.GRAPH and not kept.is_ref():
                    waiting.append((attribute.g, kept.as_graph()))
                elif kept.type == ir.AttributeType.GRAPHS and not kept.is_ref():
                    waiting += zip(attribute.graphs, kept.as_graphs(), strict=True)


def _first_line(error: Exception) -> str:
    cause: BaseException = error
    while cause.__cause__ or cause.__context__:
        cause = cause.__cause__ or cause.__context__ or cause
    return f"fails: {str(cause).splitlines()[0] if str(cause) else type(cause).__name__}"


def _find_external_data(model: ir.Model, folder: Path | None, label: str) -> None:
    """Says where weights in external data lie, and reads what attributes keep there, which is small."""
    for graph in all_graphs(model):
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                _locate(value.const_value, folder, label)
    read_attributes(model, lambda tensor: _locate(tensor, folder, label))


def read_attributes(model: ir.Model, before: Callable[[ir.ExternalTensor], object] = lambda _: None) -> None:
    """Reads external data of attributes.

    Args:
        model: the model.
        before: called with each such tensor before it is read.
    """
    for graph in all_graphs(model):
        for node in graph:
            for name, attribute in list(node.attributes.data.items()):
                tensor = attribute.value
                if isinstance(tensor, ir.ExternalTensor):
                    before(tensor)
                    node.attributes[name] = ir.AttrTensor(name, _read(tensor))


def _read(tensor: ir.ExternalTensor) -> ir.TensorProtocol:
    # A mapping of its own, which can be closed: numbers folded from the tensor may still be views of the tensor's.
    mapped = ir.ExternalTensor(
        tensor.location,
        tensor.offset,
        tensor.length,
        tensor.dtype,
        shape=tensor.shape,
        name=str(tensor.name),
        base_dir=tensor.base_dir,
    )
    read = ir.Tensor(mapped.numpy().copy(), dtype=tensor.dtype, name=tensor.name)
    mapped.release()
    return read


def _locate(tensor: ir.ExternalTensor, folder: Path | None, label: str) -> None:
    location = os.fspath(tensor.location)
    where = f"{label}: external data of '{tensor.name}'"
    if folder is None:
        raise InvalidModelError(
            f"{where} requires a folder to lie in, got a protobuf, which has none, that refers to {location!r}; "
            "onnx.load(path) reads the data into the protobuf, and a path may be given in its place"
        )
    tensor.base_dir = folder
    path = path_within(folder, location, where, "the model's folder")
    protect(path)
    try:
        status = path.stat()
    except OSError:
        # Missing weights are an error only for those who read them.
        return
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        kind = "another name of a file" if stat.S_ISREG(status.st_mode) else f"a {other_kind(path)}"
        raise InvalidModelError(f"{where} requires a regular file of its own, got {kind}: {location!r}")
    start, size = tensor.offset or 0, _size(tensor, where)
    if start < 0 or tensor.length not in (None, size) or start + size > status.st_size:
        wrong = tensor.length not in (None, size)
        got = f"a length of {tensor.length}" if wrong else f"an incomplete file of {status.st_size}, {location!r}"
        raise InvalidModelError(f"{where} requires {size} bytes from {start} on, got {got}")


def _size(tensor: ir.TensorProtocol, where: str) -> int:
    if tensor.dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING) or min(tensor.shape.numpy(), default=0) < 0:
        raise InvalidModelError(f"{where} requires numbers, got {tensor.dtype.name}{list(tensor.shape)}")
    return tensor.dtype.bitwidth * tensor.size + 7 >> 3


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """A model as a protobuf of its own, weights included: a reference would be looked for in whatever folder is next.

    Beyond 2 GB protobuf can hold weights, but not write them: `onnx.save(..., save_as_external_data=True)`. External
    data are read one after the other, so that they lie in memory once.
    """
    held = {name: value.const_value for name, value in model.graph.initializers.items()}
    external = {name: tensor for name, tensor in held.items() if isinstance(tensor, ir.ExternalTensor)}
    for value in weights(model):
        if isinstance(value.const_value, ir.ExternalTensor) and external.get(value.name or "") is not value.const_value:
            value.const_value = _read(value.const_value)
    read_attributes(model)
    proto = as_proto(model)
    for tensor in proto.graph.initializer:
        if tensor.name in external:
            content = io.BytesIO()
            external[tensor.name].tofile(content)
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = content.getvalue()
    return proto


def as_proto(model: ir.Model) -> onnx.ModelProto:
    """A model as a protobuf, in which external data stays where it is.

    Raises:
        InvalidModelError: the model holds what a protobuf cannot, such as a text that is no Unicode.
    """
    with _writing(), _quiet:
        return ir.to_proto(model)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        got = _first_line(error)
        raise InvalidModelError(f"a model that can be written is required, got one that {got}") from error


def read_all(model: ir.Model, beside: Path | None = None) -> None:
    """Reads external data, that of initializers and that of attributes.

    Args:
        model: the model.
        beside: a folder; initializers whose data lie in it stay there.
    """
    for value in weights(model):
        if isinstance(value.const_value, ir.ExternalTensor) and not _lies_in(beside, value.const_value):
            value.const_value = _read(value.const_value)
    read_attributes(model)


def weights(model: ir.Model) -> list[ir.Value]:
    """The initializers of all graphs."""
    return [value for graph in all_graphs(model) for value in graph.initializers.values()]


def weight_bytes(model: ir.Model, beside: Path | None = None) -> int:
    """The size of all weights of the main graph, but for those whose data lie in a folder."""
    held = [value.const_value for value in model.graph.initializers.values()]
    return sum(tensor.nbytes for tensor in held if tensor is not None and not _lies_in(beside, tensor))


def has_external_data(model: ir.Model) -> bool:
    """Whether a weight lies in a file of its own."""
    return any(isinstance(value.const_value, ir.ExternalTensor) for value in weights(model))


def data_in(model: ir.Model, folder: Path) -> set[str]:
    """Names of the files in a folder in which weights of a model lie."""
    held = [value.const_value for value in weights(model)]
    return {os.fspath(x.location) for x in held if isinstance(x, ir.ExternalTensor) and _lies_in(folder, x)}


def _lies_in(folder: Path | None, tensor: ir.TensorProtocol) -> bool:
    return folder is not None and isinstance(tensor, ir.ExternalTensor) and Path(tensor.base_dir) == folder


def save(
    model: onnx.ModelProto | ir.Model,
    path: str | os.PathLike[str],
    *,
    external_data: bool | None = None,
    check: Callable[[Path], object] | None = None,
) -> None:
    """Writes a model, whole or not at all: an existing file stays as it is until the new one is complete.

    Args:
        model: what to write.
        path: where to.
        external_data: keep weights in `<name>.<hash>.data` beside the file, of which the hash is that of their bytes;
            `None` does so only when the model would exceed protobuf's 2 GB.
        check: called with the path of the complete file before it takes its place; what it raises stops the writing.

    Raises:
        InvalidModelError: the model holds what a protobuf cannot.
        OSError: nothing can be written there.
    """
    path = Path(path)
    as_ir = model if isinstance(model, ir.Model) else load(model)
    with atomic_path(path) as temporary:
        write(as_ir, temporary, external_data=external_data)
        if check is not None:
            check(temporary)


def write(model: ir.Model, path: Path, *, external_data: bool | None = None) -> None:
    """Writes a model to where nobody looks for it yet.

    Args:
        model: what to write. Weights whose data lie in the file's folder stay there.
        path: where to.
        external_data: as for `save`, of other weights.

    Raises:
        InvalidModelError: the model holds what a protobuf cannot.
        OSError: nothing can be written there.
    """
    if external_data if external_data is not None else weight_bytes(model, path.parent) > PROTOBUF_LIMIT:
        read_attributes(model)
        _write_beside_data(model, path)
    else:
        read_all(model, path.parent)
        path.write_bytes(as_proto(model).SerializeToString())


def constants_as_weights(model: ir.Model, sources: Mapping[str, ir.TensorProtocol]) -> None:
    """Makes initializers of large constants among a model's nodes.

    Args:
        model: the model.
        sources: weights by name; a constant that is the transpose of one is called after it.
    """
    held = model.graph.initializers
    former = set(held)
    ir.passes.common.LiftConstantsToInitializersPass(size_limit=_SMALL_BYTES // 4)(model)
    transposes = {_digest(x.numpy().T): f"{name}/transposed" for name, x in sources.items() if len(x.shape) == 2}
    for value in [value for name, value in held.items() if name not in former]:
        name = transposes.get(_digest(value.const_value.numpy())) if value.const_value is not None else None
        if name is not None and name not in held:
            value.name = name


def _digest(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def share(models: Iterable[ir.Model], folder: Path, name: str, states: Mapping[str, str | None]) -> None:
    """Moves weights that several models hold into one file in a folder, `<name>.<hash>.data`, each once.

    Args:
        models: the models.
        folder: where the file goes, if there is a weight for it.
        name: of the file.
        states: initializer with the value of a state -> the state, which has a place of its own; `None` for what stays
            in its model.

    Raises:
        OSError: nothing can be written there.
    """
    held: dict[tuple[str, ir.DataType, str], dict[int, list[ir.Value]]] = {}
    for number, model in enumerate(models):
        for value in weights(model):
            tensor, state = value.const_value, states.get(str(value.name), "")
            if tensor is None or tensor.dtype == ir.DataType.STRING or state is None:
                continue
            if tensor.nbytes > _SMALL_BYTES:
                key = _digest(tensor.numpy()), tensor.dtype, state
                held.setdefault(key, {}).setdefault(number, []).append(value)
    shared = [[value for each in values.values() for value in each] for values in held.values() if len(values) > 1]
    if sum(values[0].const_value.nbytes for values in shared if values[0].const_value) >= _WORTH_SHARING:
        _move_beside([(values[0].const_value, values) for values in shared if values[0].const_value], folder, name)


def _move_beside(tensors: Sequence[tuple[ir.TensorProtocol, Collection[ir.Value]]], folder: Path, name: str) -> None:
    """Writes tensors into a file of a name of its own, where the values find them from now on."""
    with _writing():
        written = ir.external_data.convert_tensors_to_external([tensor for tensor, _ in tensors], folder, "weights")
    data = folder / "weights"
    location = by_content(data, name)
    data.rename(folder / location)
    for (_, values), tensor in zip(tensors, written, strict=True):
        for value in values:
            assert value.const_value is not None
            value.const_value = ir.ExternalTensor(
                location,
                tensor.offset,
                tensor.length,
                tensor.dtype,
                shape=ir.Shape(value.const_value.shape.numpy()),
                name=str(value.name),
                base_dir=folder,
            )


def _write_beside_data(model: ir.Model, path: Path) -> None:
    """Writes a model and, in a file of a name of its own beside it, its weights, but for small ones."""
    tensors = {
        value: value.const_value
        for value in weights(model)
        if value.const_value is not None and not _lies_in(path.parent, value.const_value)
    }
    large = {value: tensor for value, tensor in tensors.items() if tensor.nbytes > _SMALL_BYTES}
    try:
        for value, tensor in tensors.items():
            if isinstance(tensor, ir.ExternalTensor) and value not in large:
                value.const_value = _read(tensor)
        # Without any there is no such file; a runtime in a browser refuses an empty one.
        if large:
            _move_beside([(tensor, [value]) for value, tensor in large.items()], path.parent, path.name)
        path.write_bytes(as_proto(model).SerializeToString())
    finally:
        for value, tensor in tensors.items():
            value.const_value = tensor
