"""Shapes of a model's data inputs, and along which axis of each the samples lie."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from lstm_lower.dtypes import native
from lstm_lower.errors import InvalidInputError, warn
from lstm_lower.records import names
from lstm_lower.runtime.values import number_dtype, signature

Array = np.ndarray[Any, Any]
Batch = dict[str, Array]
# A digest of data by what it is of: samples, or the files that they lie in.
Fingerprint = dict[Literal["arrays", "files"], str]


@dataclasses.dataclass(frozen=True)
class Field:
    """A data input.

    Attributes:
        name: the input's name.
        dtype: its dtype.
        shape: its axes; a name or `None` where the model leaves the size open.
        axis: the one along which samples lie.
        signature: dtype and shape for messages, such as `float32[batch, 8, 8]`.
        is_cast: whether values of any numeric dtype are cast, and a last axis of size 1 may be missing or too many.
        told: dtypes of values that were converted with a warning.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...]
    axis: int
    signature: str
    is_cast: bool = False
    told: set[str] = dataclasses.field(default_factory=set, compare=False)

    @property
    def batch_size(self) -> int | None:
        """Samples per batch where the model fixes them."""
        size = self.shape[self.axis]
        return size if isinstance(size, int) else None

    @property
    def sample_shape(self) -> tuple[int | str | None, ...]:
        """The axes of one sample."""
        return self.shape[: self.axis] + self.shape[self.axis + 1 :]

    def checked(self, value: Any, where: str = "data") -> Array:
        """A value as an array that fits, with any number of samples; of an input without axes, the one for all of them.

        Raises:
            InvalidInputError: it has another dtype, rank or size.
        """
        # What numpy makes of others' tensors it makes of PyTorch's on the host and without gradients only.
        plain = value.detach().cpu() if hasattr(value, "detach") else value
        array = native(plain, f"{where} '{self.name}'")
        if self.is_cast:
            array = names.fitted(array, self.dtype, self.shape)
        if array.ndim != len(self.shape):
            means = "" if self.shape else ", one number for all samples (batches of your own may have one each)"
            raise InvalidInputError(
                f"{where} '{self.name}' requires rank {len(self.shape)}, {self.signature}{means}, "
                f"got {list(array.shape)}"
            )
        if isinstance(value, (bool, int, float)) and np.can_cast(array.dtype, self.dtype, "same_kind"):
            # Python's numbers have no dtype of their own.
            array = array.astype(self.dtype)
        array = self.converted(array, where)
        self.check_sizes(array.shape, where)
        return array

    def converted(self, array: Array, where: str) -> Array:
        """An array in the input's dtype; other precisions, and whole numbers of other sizes, with one warning.

        Raises:
            InvalidInputError: it has another kind of dtype, lies in a file, or holds what the input's does not.
        """
        if array.dtype == self.dtype:
            return array
        kinds = ("f", "iu")
        alike = any({array.dtype.kind, self.dtype.kind} <= set(kind) for kind in kinds)
        if not alike or isinstance(array, np.memmap):
            self.check_dtype(array.dtype, where)
        with np.errstate(over="ignore"):
            made = array.astype(self.dtype)
        lost = ~np.isfinite(made) & np.isfinite(array) if self.dtype.kind == "f" else made != array
        if lost.any():
            raise InvalidInputError(
                f"{where} '{self.name}' requires numbers that {self.dtype} holds, got {array[lost][0]}"
            )
        if array.dtype.name not in self.told:
            self.told.add(array.dtype.name)
            warn(f"{where} '{self.name}' is {self.signature}: values in {array.dtype.name} are converted")
        return made

    def check_dtype(self, dtype: np.dtype[Any], where: str) -> None:
        """Raises an InvalidInputError for another dtype than the input's."""
        if dtype != self.dtype:
            raise InvalidInputError(
                f"{where} '{self.name}' requires {self.signature}, got {dtype.name}; "
                f"array.astype('{self.dtype}') converts it"
            )

    def check_sizes(self, shape: tuple[int, ...], where: str) -> None:
        """Raises an InvalidInputError for a size that the model fixes to another one, that of the samples aside."""
        for axis, (size, got) in enumerate(zip(self.shape, shape, strict=True)):
            if isinstance(size, int) and size != got and axis != self.axis:
                raise InvalidInputError(
                    f"{where} '{self.name}' requires {self.signature}, got {list(shape)} (axis {axis})"
                )


class Layout:
    """The data inputs that a model is fed with.

    Attributes:
        fields: input name -> what it looks like, in the order of the model's inputs.
        batch_size: samples per batch where the model fixes them, else `None`.
    """

    def __init__(
        self, declared: Iterable[Any], sample_axis: Mapping[str, int] | None = None, casts: Collection[str] = ()
    ) -> None:
        """Finds the samples' axis of each input.

        It is the one of the dimension that all inputs have by name (`batch` in `x[time, batch, 8]` and `y[batch]`);
        where there is none such, or several, the first axis whose size is open, or else the first one.

        Args:
            declared: inputs as an onnxruntime session declares them.
            sample_axis: input name -> axis, where it is another one.
            casts: inputs whose values are cast, see `Session.casts`.

        Raises:
            InvalidInputError: `sample_axis` names no input or no axis, or batch sizes contradict each other.
        """
        given = dict(sample_axis or {})
        values = {value.name: value for value in declared}
        unknown = [name for name in given if name not in values]
        if unknown:
            raise InvalidInputError(f"sample_axis '{unknown[0]}' must be one of the inputs {sorted(values)}")
        axes = sample_axes({name: value.shape for name, value in values.items()}) | given
        self.fields: dict[str, Field] = {}
        for name, value in values.items():
            shape = tuple(value.shape)
            axis = axes[name]
            if not -len(shape) <= axis < max(1, len(shape)):
                raise InvalidInputError(f"sample_axis of '{name}' requires an axis of {signature(value)}, got {axis}")
            place = axis % max(1, len(shape))
            self.fields[name] = Field(name, number_dtype(value), shape, place, signature(value), name in casts)
        sizes = {field.batch_size for field in self.fields.values() if field.shape and field.batch_size is not None}
        if len(sizes) > 1:
            raise InvalidInputError(
                f"data inputs require one number of samples per batch, got {', '.join(map(str, sorted(sizes)))}; "
                "sample_axis={'<input>': axis} says along which axis samples lie"
            )
        self.batch_size = next(iter(sizes), None)

    def samples(self, batch: Mapping[str, Array]) -> int:
        """How many samples a batch holds."""
        for name, field in self.fields.items():
            if name in batch and np.ndim(batch[name]) > field.axis:
                return int(np.shape(batch[name])[field.axis])
        return 1


def sample_axes(shapes: Mapping[str, Sequence[int | str | None]]) -> dict[str, int]:
    """The axis of each input along which samples lie, as `Layout` finds it."""
    shared = _shared_symbol(shapes.values())
    return {name: _axis(tuple(shape), shared) for name, shape in shapes.items()}


def _shared_symbol(shapes: Iterable[Any]) -> str | None:
    names = [{size for size in shape if isinstance(size, str)} for shape in shapes if shape]
    shared = set.intersection(*names) if names else set()
    return shared.pop() if len(shared) == 1 else None


def _axis(shape: tuple[int | str | None, ...], shared: str | None) -> int:
    if shared in shape:
        return shape.index(shared)
    return next((axis for axis, size in enumerate(shape) if not isinstance(size, int)), 0)
