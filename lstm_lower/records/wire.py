"""Protobuf's wire format, as far as one looks at bytes before it is known which message they are."""

from __future__ import annotations

from collections.abc import Iterator


class DamageError(Exception):
    """The bytes are not what their place requires; whoever knows the file turns it into an error of ours."""


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
    raise DamageError("a number has no end")


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
            raise DamageError(f"a field {number} of type {kind} is none")
        if kind == 0:
            value, position = varint(content, position)
            yield number, value
            continue
        length = {1: 8, 5: 4}.get(kind)
        if length is None:
            length, position = varint(content, position)
        yield number, content[position : position + length]
        position += length
