"""CRC-32C (Castagnoli), the checksum of checkpoints, over whole arrays at a time.

A checksum is linear over GF(2): many parts of the data are summed side by side, four bytes a step, and then joined, two
neighbours at a time, by the matrix that carries a state over as many zero bytes as the right one has.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF
_MASK = 0xA282EAD8

# Bytes that are summed at once, which bounds the memory, and below which joining costs more than it saves.
_CHUNK = 1 << 23
_SHORT = 1 << 14


def crc32c(data: bytes) -> int:
    """The checksum of some bytes."""
    state = _ONES
    for start in range(0, len(data), _CHUNK):
        state = _extended(state, data[start : start + _CHUNK])
    return state ^ _ONES


def unmasked(stored: int) -> int:
    """A checksum as it is, of one as files store it, which is changed so that files of checksums have good ones."""
    rotated = (stored - _MASK) & _ONES
    return (rotated >> 17 | rotated << 15) & _ONES


def masked(crc: int) -> int:
    """A checksum as files store it."""
    return ((crc >> 15 | crc << 17) + _MASK) & _ONES


def _extended(state: int, data: bytes) -> int:
    if len(data) < _SHORT:
        single = _byte_table()
        for byte in data:
            state = single[(state ^ byte) & 255] ^ state >> 8
        return state
    # As many lanes as steps, roughly; in front of the data zeros, which leave the state 0 as it is.
    lanes = 1 << (len(data) // 4).bit_length() // 2
    steps = -(-len(data) // (4 * lanes))
    padded = np.zeros(4 * lanes * steps, np.uint8)
    start = len(padded) - len(data)
    padded[start:] = np.frombuffer(data, np.uint8)
    padded[start : start + 4] ^= np.frombuffer(state.to_bytes(4, "little"), np.uint8)
    low, high = _word_tables()
    states: Array = np.zeros(lanes, np.uint32)
    for step in np.ascontiguousarray(padded.view("<u4").reshape(lanes, steps).T):
        states = states ^ step
        states = low[states & 0xFFFF] ^ high[states >> 16]
    matrix = _zeros_matrix(4 * steps)
    while len(states) > 1:
        states = _apply(matrix, states[0::2]) ^ states[1::2]
        matrix = _apply(matrix, matrix)
    return int(states[0])


@functools.cache
def _byte_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


@functools.cache
def _word_tables() -> tuple[Array, Array]:
    """What four bytes of zeros make of the lower half of a state, and of the upper one."""
    single = np.array(_byte_table(), np.uint32)
    halves = np.arange(1 << 16, dtype=np.uint32)
    low, high = halves, halves << 16
    for _ in range(4):
        low, high = single[low & 255] ^ low >> 8, single[high & 255] ^ high >> 8
    return low, high


def _apply(matrix: Array, states: Array) -> Array:
    """Products of a matrix, the images of the 32 unit vectors, with states."""
    result = np.zeros(len(states), np.uint32)
    for bit in range(32):
        result ^= np.where(states >> bit & 1, matrix[bit], 0).astype(np.uint32)
    return result


def _zeros_matrix(count: int) -> Array:
    """What `count` zero bytes make of a state."""
    single = np.array(_byte_table(), np.uint32)
    units = np.uint32(1) << np.arange(32, dtype=np.uint32)
    power = single[units & 255] ^ units >> 8
    matrix = units
    while count:
        if count & 1:
            matrix = _apply(power, matrix)
        power = _apply(power, power)
        count >>= 1
    return matrix
