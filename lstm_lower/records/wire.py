"""Protobuf's wire format, to look at bytes before it is known which message they are."""

from __future__ import annotations

from collections.abc import Iterator


class DamageError(Exception):
    """The bytes are damaged; callers, which know the file, turn it into an InvalidModelError or InvalidInputError."""


def varint(content: bytes, position: int) -> tuple[int, int]:
    """A number of up to 64 bits, seven a byte, and the position behind it.

    Raises:
        DamageError: there is none.
    """
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(content):
            break
        byte = content[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise DamageError("a varint is truncated")


def varint_bytes(number: int) -> bytes:
    """A number, not negative, as `varint` reads it."""
    content = bytearray()
    while number > 127:
        content.append(number & 127 | 128)
        number >>= 7
    return bytes([*content, number])


def fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a message of which only the beginning may be there.

    Numbers come as such, all else as its bytes, as far as they reach.

    Raises:
        DamageError: the bytes are no message.
    """
    position = 0
    while position < len(content):
        tag, position = varint(content, position)
        number, kind = tag >> 3, tag & 7
        if number == 0 or kind not in (0, 1, 2, 5):
            raise DamageError(f"field {number} has wire type {kind}, which does not exist")
        if kind == 0:
            value, position = varint(content, position)
            yield number, value
            continue
        length = {1: 8, 5: 4}.get(kind)
        if length is None:
            length, position = varint(content, position)
        yield number, content[position : position + length]
        position += length


def places(content: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Field numbers of a message and where the bytes of each value that has bytes begin and end.

    Raises:
        DamageError: the bytes are no message.
    """
    position = start
    while position < end:
        tag, position = _varint_at(content, position, end)
        number, kind = tag >> 3, tag & 7
        if number == 0 or kind not in (0, 1, 2, 5):
            raise DamageError(f"field {number} has wire type {kind}, which does not exist")
        value, behind = _varint_at(content, position, end) if kind in (0, 2) else ({1: 8, 5: 4}[kind], position)
        if kind == 0:
            position = behind
            continue
        if behind + value > end:
            raise DamageError(f"field {number} is truncated")
        yield number, behind, behind + value
        position = behind + value


def _varint_at(content: memoryview, position: int, end: int) -> tuple[int, int]:
    value, length = varint(bytes(content[position : min(position + 10, end)]), 0)
    return value, position + length
