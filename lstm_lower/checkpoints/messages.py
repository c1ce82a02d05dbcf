"""TensorFlow's protobuf messages without TensorFlow: tensorboard's copies, and descriptors for what it has none of."""

from __future__ import annotations

from typing import Any

import google.protobuf.text_format
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from lstm_lower.errors import InvalidModelError
from lstm_lower.extras import needed_by

with needed_by("reading a TensorFlow file"):
    from tensorboard.compat.proto import (
        attr_value_pb2,
        function_pb2,
        graph_pb2,
        meta_graph_pb2,
        node_def_pb2,
        op_def_pb2,
        saved_object_graph_pb2,
        tensor_pb2,
        tensor_shape_pb2,
        trackable_object_graph_pb2,
        types_pb2,
        variable_pb2,
        versions_pb2,
    )

_OTHER = "another kind of file or a damaged one"

# Messages are typed loosely: their classes are made when the program runs.
AttrValue: Any = attr_value_pb2.AttrValue
FunctionDef: Any = function_pb2.FunctionDef
GraphDef: Any = graph_pb2.GraphDef
MetaGraphDef: Any = meta_graph_pb2.MetaGraphDef
NodeDef: Any = node_def_pb2.NodeDef
OpDefProto: Any = op_def_pb2.OpDef
SavedObjectGraph: Any = saved_object_graph_pb2.SavedObjectGraph
TensorProto: Any = tensor_pb2.TensorProto
TensorShapeProto: Any = tensor_shape_pb2.TensorShapeProto
TrackableObjectGraph: Any = trackable_object_graph_pb2.TrackableObjectGraph
DataType: Any = types_pb2.DataType
VariableDef: Any = variable_pb2.VariableDef

_PACKAGE = "lstm_lower.checkpoints"
_TYPES = {
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "fixed32": descriptor_pb2.FieldDescriptorProto.TYPE_FIXED32,
    "double": descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}

# Message -> field -> (number, type); a type in capitals is another message, one with `*` repeats. Enums are read as
# the numbers that they are on the wire. A field without presence cannot tell 0 from nothing, which a slice must:
# it gives no length where it takes everything.
_FIELDS = {
    "SavedModel": {"saved_model_schema_version": (1, "int64"), "meta_graphs": (2, "*tensorboard.MetaGraphDef")},
    "CheckpointState": {
        "model_checkpoint_path": (1, "string"),
        "all_model_checkpoint_paths": (2, "*string"),
        "all_model_checkpoint_timestamps": (3, "*double"),
        "last_preserved_timestamp": (4, "double"),
    },
    "Extent": {"start": (1, "int64"), "length": (2, "?int64")},
    "TensorSlice": {"extent": (1, "*Extent")},
    # The first entry of a tensor bundle's index, and the others.
    "BundleHeader": {
        "num_shards": (1, "int32"),
        "endianness": (2, "int32"),
        "version": (3, "tensorboard.VersionDef"),
    },
    "BundleEntry": {
        "dtype": (1, "int32"),
        "shape": (2, "tensorboard.TensorShapeProto"),
        "shard_id": (3, "int32"),
        "offset": (4, "int64"),
        "size": (5, "int64"),
        "crc32c": (6, "fixed32"),
        "slices": (7, "*TensorSlice"),
    },
    # Checkpoints of the first kind.
    "SavedSliceMeta": {
        "name": (1, "string"),
        "shape": (2, "tensorboard.TensorShapeProto"),
        "type": (3, "int32"),
        "slice": (4, "*TensorSlice"),
    },
    "SavedTensorSliceMeta": {"tensor": (1, "*SavedSliceMeta")},
    "SavedSlice": {"name": (1, "string"), "slice": (2, "TensorSlice"), "data": (3, "tensorboard.TensorProto")},
    "SavedTensorSlices": {"meta": (1, "SavedTensorSliceMeta"), "data": (2, "SavedSlice")},
}


def _made() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=[module.DESCRIPTOR.name for module in (meta_graph_pb2, tensor_pb2, tensor_shape_pb2, versions_pb2)],
    )
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            added = message.field.add(name=field, number=number)
            added.label = added.LABEL_REPEATED if kind.startswith("*") else added.LABEL_OPTIONAL
            if kind.startswith("?"):
                added.proto3_optional = True
                added.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field}")
            plain = kind.lstrip("*?")
            if plain in _TYPES:
                added.type = _TYPES[plain]
            else:
                added.type, added.type_name = added.TYPE_MESSAGE, f".{plain if '.' in plain else f'{_PACKAGE}.{plain}'}"
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _FIELDS}


_CLASSES = _made()
SavedModel = _CLASSES["SavedModel"]
CheckpointState = _CLASSES["CheckpointState"]
BundleHeader = _CLASSES["BundleHeader"]
BundleEntry = _CLASSES["BundleEntry"]
SavedTensorSlices = _CLASSES["SavedTensorSlices"]


_NOTHING = AttrValue()


def attribute(node: Any, name: str) -> Any:
    """An attribute of a node, an empty one where it has none; unlike `node.attr[name]` it adds none."""
    return node.attr.get(name, _NOTHING)


def parse(kind: Any, content: bytes, what: str) -> Any:
    """Reads a message from bytes.

    Args:
        kind: its class.
        content: the bytes.
        what: where they come from, the beginning of the error.

    Raises:
        InvalidModelError: the bytes are not such a message.
    """
    message = kind()
    try:
        message.ParseFromString(content)
    except Exception as error:
        raise InvalidModelError(f"{what}: a {_name(kind)} is required, got {_OTHER} ({error})") from error
    return message


def parse_text(kind: Any, text: bytes, what: str) -> Any:
    """Reads a message from protobuf's text form; arguments and errors are those of `parse`."""
    message = kind()
    try:
        google.protobuf.text_format.Parse(text.decode("utf-8"), message)
    except Exception as error:
        # Beside its own error the parser lets others through: of conversions, and of texts that nest too deep.
        raise InvalidModelError(f"{what}: a {_name(kind)} is required, got {_OTHER} ({error})") from error
    return message


def text(message: Any) -> str:
    """A message in protobuf's text form."""
    return str(google.protobuf.text_format.MessageToString(message))


def _name(kind: Any) -> str:
    return str(kind.DESCRIPTOR.name)


def as_ours(kind: Any, message: Any) -> Any:
    """A message of another library's class, TensorFlow's above all, as one of ours.

    Raises:
        InvalidModelError: it holds what cannot be written.
    """
    if isinstance(message, kind):
        return message
    try:
        content = message.SerializeToString()
    except Exception as error:
        raise InvalidModelError(f"the {_name(kind)} must be written, got one that is not: {error}") from error
    return parse(kind, content, f"the {_name(kind)}")
