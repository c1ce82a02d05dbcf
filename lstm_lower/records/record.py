"""Records in a model's metadata, as JSON: what a type declares is what is written and what is read.

Types are dataclasses, and what these consist of: numbers, texts, mappings, sequences, `Literal` and unions with `None`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar, Union

import onnx_ir as ir

from lstm_lower.errors import InvalidModelError, damage_told

T = TypeVar("T")
A = TypeVar("A")


class Record(Generic[T, A]):
    """What models record under a key of their metadata.

    Attributes:
        key: the key.
    """

    def __init__(
        self, key: str, form: type[T], absent: A, *, version: int | None = None, later: Collection[str] = ()
    ) -> None:
        """Declares a record.

        Args:
            key: the key.
            form: its type.
            absent: what is read of a model without a record.
            version: the number by which a record of another form is told, if it has one.
            later: fields that former versions did not write.
        """
        self.key = key
        self._form, self._absent, self._version, self._later = form, absent, version, later

    def written(self, value: T) -> str:
        """A value as metadata have it."""
        content: Any = value
        if self._version is not None:
            content = {"version": self._version, **_fields(value)}
        return json.dumps(content, separators=(",", ":"), default=_fields)

    def write(self, model: ir.Model, value: T) -> None:
        """Records a value in a model, in place of what it recorded before."""
        model.metadata_props[self.key] = self.written(value)

    def parse(self, metadata_props: Mapping[str, str]) -> T | A:
        """Reads metadata, for example a session's.

        Raises:
            InvalidModelError: the record is malformed, or of another version.
        """
        text = metadata_props.get(self.key)
        if text is None:
            return self._absent
        with damage_told(lambda _: malformed(self.key, text)):
            content = json.loads(text)
            version = None if self._version is None else content.pop("version")
            if version == self._version:
                for name in _required(self._form) - {*self._later}:
                    content[name]
                value: T = decoded(self._form, content)
                return value
        raise InvalidModelError(f"metadata '{self.key}' requires version {self._version}, got {version!r}")


def malformed(key: str, got: str) -> InvalidModelError:
    """The error for metadata in another form than ours."""
    return InvalidModelError(f"metadata '{key}' requires the documented form, got {got[:80]!r}")


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _required(form: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(form)} if dataclasses.is_dataclass(form) else set()


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def decoded(form: Any, data: Any) -> Any:
    """What JSON's data stand for.

    Args:
        form: a type, as the module's docstring has it.
        data: the data.

    Raises:
        TypeError, ValueError, KeyError: they have another form.
    """
    kind, inner = typing.get_origin(form) or form, typing.get_args(form)
    if dataclasses.is_dataclass(kind):
        return form(**{name: decoded(_hints(form)[name], each) for name, each in dict(data).items()})
    return _DECODERS[kind](inner, data) if kind in _DECODERS else _scalar(kind, data)


def _scalar(kind: Any, data: Any) -> Any:
    if kind is float and type(data) is int:
        return float(data)
    if kind is not Any and type(data) is not kind:
        raise TypeError(f"{data!r} is no {kind}")
    if kind is int and not -(2**63) <= data < 2**63:
        raise ValueError(f"{data} is no number of 64 bits")
    return data


def _mapping(inner: Sequence[Any], data: dict[str, Any]) -> dict[Any, Any]:
    # JSON knows no other keys than texts.
    convert = int if inner[0] is int else functools.partial(decoded, inner[0])
    return {convert(key): decoded(inner[1], each) for key, each in data.items()}


def _sequence(inner: Sequence[Any], data: Any) -> list[Any]:
    return [decoded(inner[0], each) for each in _scalar(list, data)]


def _tuple(inner: Sequence[Any], data: Any) -> tuple[Any, ...]:
    if inner[-1] is ...:
        return tuple(_sequence(inner, data))
    return tuple(decoded(form, each) for form, each in zip(inner, data, strict=True))


def _literal(inner: Sequence[Any], data: Any) -> Any:
    if data not in inner:
        raise ValueError(f"{data!r} is none of {inner}")
    return data


def _one_of(inner: Sequence[Any], data: Any) -> Any:
    if data is None and type(None) in inner:
        return None
    for form in inner[:-1]:
        try:
            return decoded(form, data)
        except (TypeError, ValueError, KeyError, AttributeError):
            continue
    return decoded(inner[-1], data)


_DECODERS: dict[Any, Callable[[Sequence[Any], Any], Any]] = {
    Mapping: _mapping,
    dict: _mapping,
    Sequence: _sequence,
    list: _sequence,
    tuple: _tuple,
    Literal: _literal,
    Union: _one_of,
    types.UnionType: _one_of,
}
