"""One worker's part of a data-parallel step, in onnxruntime; how messages travel between workers is not its concern."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.buffers import HOST, Device, buffer, host_copy, input_devices
from lstm_lower.runtime.serialized import failures_explained
from lstm_lower.runtime.training.device_state import DeviceState
from lstm_lower.runtime.training.parallel.program import Half, Program
from lstm_lower.runtime.values import number_dtype

Array = np.ndarray[Any, Any]

# Far from any other worker's place, whether a generator's first word is its seed or the low half of its counter.
_STREAM_DISTANCE = 0x3C6EF372


class Shard(NamedTuple):
    """A worker's part of a batch.

    Attributes:
        feeds: data input -> its rows.
        share: of the whole batch's rows.
        weight: what its gradients count: its share where the loss is a mean, 1 where it is a sum.
        outputs: names of outputs of the gradient half that are asked for.
    """

    feeds: dict[str, Array]
    share: float
    weight: float
    outputs: tuple[str, ...]


class ShardResult(NamedTuple):
    """Results of the gradient half for a shard, besides gradients.

    Attributes:
        loss: of the shard.
        outputs: those asked for, and the loss.
    """

    loss: float
    outputs: dict[str, Array]


class Replica:
    """State, and both halves of a step.

    A step is `gradients`, then `total` of each chunk on some worker, then `update`. Only `update` changes the state, at
    its very end: whatever fails before may be done again.

    Attributes:
        version: number of updates that the state has seen.
    """

    def __init__(self, program: Program, rank: int, state: Mapping[str, Array], version: int) -> None:
        """Opens the sessions.

        Args:
            program: both halves.
            rank: number of the worker, which its random streams depend on.
            state: state input -> value.
            version: number of updates that the state has seen.
        """
        self.version = version
        self._program, self._rank = program, rank
        self._first, self._second = _Bound(program.gradients, program), _Bound(program.updates, program)
        self._state = DeviceState(program.pairs, state, _joint(self._first.devices, self._second.devices, state))
        layout = program.layout
        gradients = {name: np.zeros(shape, dtype) for name, (shape, dtype) in layout.gradients.items()}
        self._summed = {name: buffer(array, self._second.devices[name]) for name, array in gradients.items()}
        # What the gradient half makes lies on the host, since it travels.
        self._computed = {name: buffer(array, HOST) for name, array in gradients.items()}
        moved = [pair for pair in program.gradients.pairs if pair.output is not None]
        self._inputs = {str(pair.output): pair.input for pair in moved}
        self._carried = {name: buffer(np.zeros_like(state[read]), HOST) for name, read in self._inputs.items()}
        # Workers draw from streams of their own; the first one from that of a single process.
        drawn = [name for name in program.streams if rank and state[name].dtype.kind in "iu" and state[name].size]
        self._streams = {name: buffer(state[name], self._first.devices[name]) for name in drawn}
        self._first.bind(self._state, given=self._streams, made=self._carried | self._computed)
        self._second.bind(self._state, given=self._summed, made={})

    def gradients(
        self, version: int, shard: Shard, chunks: int
    ) -> tuple[ShardResult, dict[str, Array], *tuple[Array, ...]]:
        """Computes a shard's gradients.

        Args:
            version: number of updates that the state is to have seen.
            shard: the rows.
            chunks: number of chunks of the vector.

        Returns:
            Loss and outputs; new places of streams; each chunk of the shard's part of the sums.

        Raises:
            InvalidInputError: onnxruntime fails on these rows.
        """
        self._check_version(version)
        for name, value in self._streams.items():
            value.update_inplace(_moved(self._state.read([name])[name], self._rank))
        results = self._first.run(shard.feeds, (self._program.loss, *shard.outputs))
        layout = self._program.layout
        vector = np.empty(layout.size, layout.dtype)
        parts = layout.parts(vector)
        for name in layout.gradients:
            np.multiply(_wide(self._computed[name], layout.dtype), layout.dtype.type(shard.weight), out=parts[name])
        for name in layout.statistics:
            np.multiply(_wide(self._carried[name], layout.dtype), layout.dtype.type(shard.share), out=parts[name])
        moved = {name: host_copy(value) for name, value in self._carried.items() if name not in layout.statistics}
        return (
            ShardResult(float(results[self._program.loss]), results),
            moved,
            *(vector[start:end] for start, end in layout.bounds(chunks)),
        )

    def total(self, *parts: Array) -> Array:
        """Sums one chunk of all workers, in their order, so that the sum is the same wherever it is made."""
        whole = parts[0].copy()
        for part in parts[1:]:
            whole += part
        return whole

    def update(
        self,
        version: int,
        learning_rate: float | None,
        outputs: tuple[str, ...],
        moved: Mapping[str, Array],
        *sums: Array,
    ) -> dict[str, Array]:
        """Updates the state.

        Args:
            version: number of updates that the state is to have seen.
            learning_rate: of this step, if the model has one.
            outputs: names of outputs of the update half that are asked for.
            moved: new places of streams.
            sums: the chunks of the sum.

        Raises:
            InvalidInputError: onnxruntime fails.
        """
        self._check_version(version)
        layout = self._program.layout
        parts = layout.parts(np.concatenate(sums) if len(sums) > 1 else sums[0])
        for name, value in self._summed.items():
            if parts[name].size:
                value.update_inplace(np.asarray(parts[name], layout.gradients[name][1], order="C"))
        rate = self._program.learning_rate
        feeds: dict[str, Array] = {}
        if rate is not None and rate in self._second.inputs:
            feeds[rate] = np.asarray(learning_rate, number_dtype(self._second.inputs[rate]))
        results = self._second.run(feeds, outputs)
        self._state.flip()
        statistics = {name: parts[name].astype(dtype) for name, (_, dtype) in layout.statistics.items()}
        carried = {**statistics, **moved}
        self._state.assign({self._inputs[name]: value for name, value in carried.items()})
        self.version += 1
        return results

    def at(self) -> int:
        """The version; that a worker answers at all shows that it lives."""
        return self.version

    def process(self) -> int:
        """The process id."""
        return os.getpid()

    def state(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """The state by input name, copied."""
        return self._state.read(names)

    def load(self, version: int, state: Mapping[str, Array]) -> None:
        """Puts another state in place of this one."""
        self._state.write(state)
        self.version = version

    def _check_version(self, version: int) -> None:
        if version != self.version:
            raise InvalidInputError(f"a worker requires a state after {version} updates, got one after {self.version}")


class _Bound:
    """A session whose state and results lie in buffers of their own.

    Attributes:
        inputs: declarations by name.
        devices: input -> where the session wants it to be.
    """

    def __init__(self, half: Half, program: Program) -> None:
        self.session = half.open(program.threads, program.providers)
        self.inputs = {value.name: value for value in self.session.get_inputs()}
        self.devices = input_devices(self.session)
        self._half = half
        self._given: dict[str, ort.OrtValue] = {}
        self._made: dict[str, ort.OrtValue] = {}
        # Per choice of outputs, a binding for each turn.
        self._bindings: dict[tuple[str, ...], tuple[ort.IOBinding, ort.IOBinding]] = {}

    def bind(self, state: DeviceState, *, given: Mapping[str, ort.OrtValue], made: Mapping[str, ort.OrtValue]) -> None:
        """Says where state, other inputs and results lie.

        Args:
            state: the state; what the half moves on goes into its other buffer, unless it is in `made`.
            given: input -> buffer, in place of the state's, too.
            made: output -> buffer.
        """
        self._state, self._given, self._made = state, dict(given), dict(made)

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        """Runs the half on the present state.

        Raises:
            InvalidInputError: onnxruntime fails.
        """
        fetched = tuple(dict.fromkeys(outputs))
        if fetched not in self._bindings:
            self._bindings[fetched] = (self._binding(0), self._binding(1))
        binding = self._bindings[fetched][self._state.turn]
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, buffer(array, self.devices[name]))
        # A bound output without a buffer keeps the one of its last run, which may be of another size.
        for name in fetched:
            binding.bind_output(name, HOST.kind, HOST.number)
        with failures_explained() as quiet:
            self.session.run_with_iobinding(binding, quiet)
        results = binding.get_outputs()
        # Outputs come in the order of binding.
        return dict(zip(fetched, map(host_copy, results[len(results) - len(fetched) :]), strict=True))

    def _binding(self, turn: int) -> ort.IOBinding:
        binding = self.session.io_binding()
        own = [
            pair if pair.output not in self._made else dataclasses.replace(pair, output=None)
            for pair in self._half.pairs
        ]
        self._state.bind(binding, turn, own)
        for name, value in self._given.items():
            binding.bind_ortvalue_input(name, value)
        for name, value in self._made.items():
            binding.bind_ortvalue_output(name, value)
        return binding


def _moved(place: Array, rank: int) -> Array:
    """A stream's place, moved far away in its first word."""
    moved = place.copy()
    words = moved.reshape(-1)
    with np.errstate(over="ignore"):
        words[0] += np.asarray(_STREAM_DISTANCE * rank & 0x7FFFFFFF).astype(words.dtype)
    return moved


def _wide(value: ort.OrtValue, dtype: np.dtype[Any]) -> Array:
    """A host buffer's contents, in a dtype in which they add up."""
    array: Array = value.numpy()
    return array.astype(dtype, copy=False)


def _joint(first: Mapping[str, Device], second: Mapping[str, Device], state: Mapping[str, Array]) -> dict[str, Device]:
    """Where each value of the state lies; what neither half reads stays on the host.

    Raises:
        InvalidInputError: the halves want it in different places.
    """
    joint = dict.fromkeys(state, HOST) | dict(second) | dict(first)
    for name in state:
        if second.get(name, joint[name]) != joint[name]:
            raise InvalidInputError(
                f"workers require state '{name}' on one device, got {joint[name]} and {second[name]}"
            )
    return joint
