"""Functions of PyTorch as others that leave sizes open in a trace: its own fix them, or look at values."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.torch.aten.arrays import common_shape
from lstm_lower.torch.aten.tracing import operator, traces


def _is_open(*sizes: Any) -> bool:
    return any(isinstance(size, torch.SymInt) for size in sizes)


@traces(torch.squeeze, Tensor.squeeze)
def _squeeze(input: Tensor, dim: int | Sequence[int] | None = None) -> Any:
    """Without axes of one element: an open one of which the example has one element is dropped, too, as in PyTorch."""
    named = range(input.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = {axis % max(1, input.dim()) for axis in named} if input.dim() else set()
    single = [axis for axis in sorted(axes, reverse=True) if _is_one(input.shape[axis])]
    if not _is_open(*(input.shape[axis] for axis in single)):
        return NotImplemented
    return functools.reduce(lambda x, axis: x.squeeze(axis), single, input)


def _is_one(size: Any) -> bool:
    """Whether an axis has one element, an open one in the example."""
    if isinstance(size, torch.SymInt) and size.node.has_hint() and size.node.hint == 1:
        size.node.guard_int(__file__, 0)
    return bool(size == 1)


@traces(torch.equal, Tensor.equal)
def _equal(input: Tensor, other: Tensor) -> Any:
    """Whether tensors are equal, where no value tells: one tensor given twice is, other numbers of axes are not."""
    if input is other:
        return True
    return False if input.dim() != other.dim() else NotImplemented


# Numbers and windows.


@traces(torch.linspace)
def _linspace(start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    """Numbers at equal distances, counted from both ends."""
    if not _is_open(steps) or isinstance(start, Tensor) or isinstance(end, Tensor):
        return NotImplemented
    made: Callable[..., Tensor] = torch.scalar_tensor
    kind = dtype or torch.get_default_dtype()
    first, last, count = (made(x, dtype=kind) for x in (start, end, steps))
    counted: Callable[..., Tensor] = torch.arange
    numbers = counted(steps).to(kind)
    apart = (last - first) / (count - 1).clamp(min=1)
    return torch.where(numbers < torch.floor(count / 2), first + apart * numbers, last - apart * (count - 1 - numbers))


@operator("window(SymInt length, float[] shares, bool periodic, *, ScalarType dtype) -> Tensor")
def window(length: Any, shares: Sequence[float], periodic: bool, *, dtype: torch.dtype) -> Tensor:
    """A window that is a sum of cosines of multiples of the angle, by their shares."""
    return torch.empty(length, dtype=dtype)


def _cosines(*shares: float) -> Callable[..., Any]:
    def cosines(
        window_length: Any, periodic: bool = True, *rest: Any, dtype: torch.dtype | None = None, **options: Any
    ) -> Any:
        if rest or {"alpha", "beta"} & set(options) or not _is_open(window_length):
            return NotImplemented
        return window(window_length, list(shares), periodic, dtype=dtype or torch.get_default_dtype())

    return cosines


traces(torch.hamming_window)(_cosines(0.54, -0.46))
traces(torch.hann_window)(_cosines(0.5, -0.5))
traces(torch.blackman_window)(_cosines(0.42, -0.5, 0.08))


@operator("frequencies(SymInt n, float d, bool half, *, ScalarType dtype) -> Tensor")
def frequencies(n: Any, d: float, half: bool, *, dtype: torch.dtype) -> Tensor:
    """Those of the elements of a spectrum, or of half of them, in cycles for each step of `d`."""
    return torch.empty(n // 2 + 1 if half else n, dtype=dtype)


def _frequencies(*, half: bool) -> Callable[..., Any]:
    def of(n: Any, d: float = 1.0, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
        return frequencies(n, float(d), half, dtype=dtype or torch.get_default_dtype())

    return of


traces(torch.fft.fftfreq)(_frequencies(half=False))
traces(torch.fft.rfftfreq)(_frequencies(half=True))


@traces(torch.istft, Tensor.istft)
def _istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> Any:
    """Frames that are added where they overlap, over the sum of their squared windows (Griffin and Lim, 1984)."""
    if return_complex or onesided is False:
        return NotImplemented
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    real = torch.view_as_real(input).dtype
    shape = torch.ones(width, dtype=real) if window is None else window
    shape = functional.pad(shape, ((n_fft - width) // 2, n_fft - width - (n_fft - width) // 2))
    spectra = input if input.dim() == 3 else input.unsqueeze(0)
    frames = torch.fft.irfft(spectra, n=n_fft, dim=1, norm="ortho" if normalized else "backward")
    count: Any = frames.shape[2]
    whole = n_fft + hop * (count - 1)

    def added(parts: Tensor) -> Tensor:
        lined = functional.fold(parts, (1, whole), (1, n_fft), stride=(1, hop))
        return lined.squeeze(1).squeeze(1)

    weights = added((shape * shape).reshape(1, n_fft, 1).expand(1, n_fft, count))
    sums = added(frames * shape.unsqueeze(-1))
    start = n_fft // 2 if center else 0
    end = whole - start if length is None else start + length
    sums, weights = (x[:, start : min(end, whole) if length is None else end] for x in (sums, weights))
    result = sums / weights
    if length is not None:
        result = functional.pad(result, (0, length - result.shape[1]))
    return result if input.dim() == 3 else result.squeeze(0)


def _triangle(half: Callable[..., Tensor]) -> Callable[..., Any]:
    """Rows and columns of the elements on one side of a diagonal."""

    def places(row: Any, col: Any, offset: int = 0, **options: Any) -> Any:
        if not _is_open(row, col):
            return NotImplemented
        inside: Any = half(torch.ones(row, col), offset)
        return inside.nonzero().T.to(options.get("dtype") or torch.int64)

    return places


traces(torch.tril_indices)(_triangle(torch.tril))
_upper = _triangle(torch.triu)
traces(torch.triu_indices)(_upper)


@traces(torch.combinations)
def _combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    size: Any = input.shape[0]
    if r == 2 and _is_open(size):
        return input[_upper(size, size, 0 if with_replacement else 1)].T
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    return input[torch.tensor(list(choose(range(int(size)), r)))]


@traces(functional.one_hot)
def _one_hot(tensor: Tensor, num_classes: Any = -1) -> Any:
    """Of an open number of classes."""
    if not _is_open(num_classes):
        return NotImplemented
    classes = torch.arange(num_classes)
    return (classes.index_select(0, tensor.flatten()).reshape(tensor.shape).unsqueeze(-1) == classes).to(torch.int64)


# Elements by places.


@traces(torch.take_along_dim, Tensor.take_along_dim)
def _take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Elements along an axis, the other axes repeated as either operand has them; numbers go round the axis."""
    if dim is None:
        return input.flatten().index_select(0, indices.flatten())
    axis = dim % input.dim()
    shapes: list[list[Any]] = [list(input.shape), list(indices.shape)]
    along = [shape.pop(axis) for shape in shapes]
    common: list[Any] = list(common_shape(*shapes))
    operands = [x.expand(*common[:axis], size, *common[axis:]) for x, size in zip((input, indices), along, strict=True)]
    size: Any = torch.scalar_tensor(input.shape[axis], dtype=torch.int64)
    return operands[0].gather(axis, operands[1].to(torch.int64) % size)


@traces(Tensor.fill_diagonal_)
def _fill_diagonal(input: Tensor, fill_value: float, wrap: bool = False) -> Any:
    """A matrix with another diagonal, for which strides would be needed."""
    if input.dim() != 2 or wrap:
        return NotImplemented
    rows, columns = (torch.arange(size) for size in input.shape)
    return input.copy_(torch.where(rows.unsqueeze(1) == columns, fill_value, input))


@traces(torch.gradient)
def _gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> Any:
    """Differences of neighbours: central ones, and of the two at the ends."""
    if not isinstance(spacing, (int, float)) or edge_order != 1:
        return NotImplemented
    chosen: Sequence[int] = [dim] if isinstance(dim, int) else range(input.dim()) if dim is None else dim

    def along(axis: int) -> Tensor:
        size: Any = input.shape[axis]
        ends = [input.narrow(axis, place + 1, 1) - input.narrow(axis, place, 1) for place in (0, size - 2)]
        middle = (input.narrow(axis, 2, size - 2) - input.narrow(axis, 0, size - 2)) / 2
        return torch.cat([ends[0], middle, ends[1]], axis) / spacing

    return tuple(along(axis) for axis in chosen)


# Statistics.


@traces(torch.cov, Tensor.cov)
def _cov(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Any:
    """Of variables in rows: [n] and [1, n] give a number, [v, n] a matrix."""
    rows = input.unsqueeze(0) if input.dim() == 1 else input
    divisor: Any
    given = [weights for weights in (fweights, aweights) if weights is not None]
    weights = given[0] * given[1] if len(given) == 2 else given[0] if given else None
    if weights is not None:
        total = weights.sum()
        mean = (rows * weights).sum(1, keepdim=True) / total
        # Weights that are no counts say how much a sample tells (as numpy's do).
        lost = correction if aweights is None else correction * (weights * aweights).sum() / total
        divisor = total - lost if correction else total
    else:
        mean = rows.mean(1, keepdim=True)
        divisor = rows.shape[1] - correction
    centered = rows - mean
    products = (centered if weights is None else centered * weights) @ centered.mT / divisor
    return products[0, 0] if rows.shape[0] == 1 else products


@traces(torch.corrcoef, Tensor.corrcoef)
def _corrcoef(input: Tensor) -> Any:
    products = _cov(input)
    if products.dim() == 0:
        return products / products
    deviations = torch.sqrt(products.diagonal())
    return (products / deviations.unsqueeze(1) / deviations).clamp(-1.0, 1.0)


@traces(torch.pdist, functional.pdist)
def _pdist(input: Tensor, p: float = 2.0) -> Any:
    """Distances of each pair."""
    count: Any = input.shape[0]
    rows, columns = torch.triu_indices(count, count, 1) if not _is_open(count) else _upper(count, count, 1)
    return torch.linalg.vector_norm(input[rows] - input[columns], p, -1)


# Matrices.


@traces(torch.einsum)
def _einsum(equation: Any, *operands: Any) -> Any:
    """Without a search for the best order of products, which depends on sizes."""
    if not isinstance(equation, str):
        return NotImplemented
    given = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else list(operands)
    return torch.ops.aten.einsum(equation, given)


@traces(torch.linalg.multi_dot)
def _multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """From left to right; which order is best depends on sizes."""
    return functools.reduce(torch.matmul, tensors)


@traces(torch.kron)
def _kron(input: Tensor, other: Tensor) -> Tensor:
    """Each element times a whole matrix, one behind the other along all axes."""
    dims = max(input.dim(), other.dim())
    shapes: list[list[Any]] = [[1] * (dims - x.dim()) + list(x.shape) for x in (input, other)]
    first, second = (
        x.reshape([size for pair in zip(*sides, strict=True) for size in pair])
        for x, sides in ((input, (shapes[0], [1] * dims)), (other, ([1] * dims, shapes[1])))
    )
    return (first * second).reshape([a * b for a, b in zip(*shapes, strict=True)])


@traces(torch.linalg.matrix_norm)
def _matrix_norm(A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, **options: Any) -> Any:
    """The largest or least sum of magnitudes of rows or columns."""
    if ord not in (1, -1, math.inf, -math.inf) or options or isinstance(ord, str):
        return NotImplemented
    rows, columns = (axis % A.dim() for axis in dim)
    summed, rest = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = A.abs().sum(summed, keepdim=True)
    result = sums.amax(rest, keepdim=True) if ord > 0 else sums.amin(rest, keepdim=True)
    return result if keepdim else result.squeeze((rows, columns))


@traces(torch.linalg.tensorinv)
def _tensor_inverse(A: Tensor, ind: int = 2) -> Any:
    return torch.linalg.inv(A.flatten(ind).flatten(0, ind - 1)).reshape(*A.shape[ind:], *A.shape[:ind])


@traces(torch.linalg.tensorsolve)
def _tensor_solve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Any:
    moved = A if dims is None else A.movedim(tuple(dims), tuple(range(-len(dims), 0)))
    rest = moved.shape[B.dim() :]
    return torch.linalg.solve(moved.reshape(B.numel(), -1), B.flatten()).reshape(rest)


@operator("least_squares(Tensor a, Tensor b) -> Tensor")
def least_squares(a: Tensor, b: Tensor) -> Tensor:
    """The smallest x of all for which a x is closest to b, of matrices a of full rank."""
    batch = common_shape(a.shape[:-2], b.shape[:-2])
    # Column by column, as LAPACK has it.
    return b.new_empty(*batch, b.shape[-1], a.shape[-1]).mT


@traces(torch.linalg.lstsq)
def _lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """The solution of a matrix of full rank, and beside it what the driver of LAPACK tells."""
    if driver not in (None, "gelsy", "gels"):
        raise UnsupportedOpError(
            f"torch.linalg.lstsq requires a driver that finds no singular values, got {driver!r}; 'gelsy' finds the "
            "same solution of a matrix of full rank"
        )
    vector = B.dim() == 1
    right = B.unsqueeze(-1) if vector else B
    x = least_squares(A, right)
    rows, columns = A.shape[-2:]
    residuals, rank = A.new_zeros(0), torch.zeros(0, dtype=torch.int64)
    if driver != "gels":
        rank = torch.full(A.shape[:-2], min(rows, columns), dtype=torch.int64)
    elif rows > columns:
        residuals = (A @ x - right).square().sum(-2)
    kinds: Any = torch.return_types
    return kinds.linalg_lstsq((x.squeeze(-1) if vector else x, residuals, rank, A.new_zeros(0)))


# Parts of an axis of an open size, of which there are as many as the example's size gives.


@traces(torch.tensor_split, Tensor.tensor_split)
def _tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> Any:
    """Parts of which the first are longer by one where the size is no multiple."""
    whole: Any = input.shape[dim]
    if not isinstance(indices_or_sections, int) or not _is_open(whole):
        return NotImplemented
    count, parts, start = indices_or_sections, [], 0
    for number in range(count):
        size = (whole + count - 1 - number) // count
        parts.append(input.narrow(dim, start, size))
        start = start + size
    return tuple(parts)


@traces(torch.chunk, Tensor.chunk)
def _chunk(input: Tensor, chunks: int, dim: int = 0) -> Any:
    """Parts of equal sizes but for the last; there are fewer where they do not come out."""
    whole: Any = input.shape[dim]
    if not _is_open(whole):
        return NotImplemented
    size = (whole + chunks - 1) // chunks
    count = len(input.chunk(chunks, dim))
    if count != chunks:
        raise UnsupportedOpError(
            f"chunk requires an example whose axis {dim} gives as many parts as are asked for, got {count} of "
            f"{chunks}; take a longer example, or leave that axis out of dynamic_shapes"
        )
    last = size * (chunks - 1)
    return (
        *(input.narrow(dim, size * number, size) for number in range(chunks - 1)),
        input.narrow(dim, last, whole - last),
    )


@traces(torch.split, torch.functional.split, Tensor.split)
def _split(input: Tensor, split_size_or_sections: Any, dim: int = 0) -> Any:
    """How many parts of an open size there are is known where the whole is a multiple, whatever that size is."""
    size: Any = split_size_or_sections
    whole: Any = input.shape[dim]
    if not isinstance(size, torch.SymInt):
        return NotImplemented
    count, rest = _number(whole // size), _number(whole % size)
    if count is None or rest != 0:
        return NotImplemented
    return tuple(input.narrow(dim, size * number, size) for number in range(count))


def _number(size: Any) -> int | None:
    """A size that is the same whatever is fed."""
    known: int | None = size.node.maybe_as_int() if isinstance(size, torch.SymInt) else size
    return known
