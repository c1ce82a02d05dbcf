"""Arithmetic of complex numbers, of which the exporter knows little, as that of their real and imaginary parts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lstm_lower.torch.special import angle_of

Parts = tuple[Any, Any]


def has_complex(value: Any) -> bool:
    """Whether there is a complex number somewhere in a function's operands."""
    if isinstance(value, Tensor):
        return value.is_complex()
    if isinstance(value, Mapping):
        return any(map(has_complex, value.values()))
    return isinstance(value, complex) or (isinstance(value, (tuple, list)) and any(map(has_complex, value)))


def _parts(value: Any) -> Parts:
    """The real and the imaginary part; the latter is `None` where there is none."""
    if isinstance(value, Tensor) and value.is_complex():
        pairs = torch.view_as_real(value.resolve_conj())
        return pairs.select(-1, 0), pairs.select(-1, 1)
    return (value.real, value.imag) if isinstance(value, complex) else (value, None)


def _joined(real: Any, imag: Any) -> Any:
    """The complex numbers of two parts, or of each pair of several."""
    if isinstance(real, (tuple, list)):
        return type(real)([_joined(*pair) for pair in zip(real, imag, strict=True)])
    spread: Callable[..., list[Tensor]] = torch.broadcast_tensors
    return torch.view_as_complex(torch.stack(spread(real, imag), -1))


def _part(value: Any, index: int) -> Any:
    """The same operands with a part of each complex number in its place."""
    if isinstance(value, (tuple, list)):
        return type(value)([_part(each, index) for each in value])
    if isinstance(value, Tensor) and index and not value.is_complex() and value.is_floating_point():
        return torch.zeros_like(value)
    return _parts(value)[index] if has_complex(value) else value


def _by_parts(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that does to one part what it does to the other."""

    def called(*args: Any, **options: Any) -> Any:
        both = (_part(args, index) for index in (0, 1))
        named = ({name: _part(x, index) for name, x in options.items()} for index in (0, 1))
        return _joined(*(function(*given, **rest) for given, rest in zip(both, named, strict=True)))

    return called


def _bilinear(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is linear in each of two operands."""

    def called(a: Any, b: Any, *rest: Any, **options: Any) -> Any:
        (a_real, a_imaginary), (b_real, b_imaginary) = _parts(a), _parts(b)
        real, imaginary = function(a_real, b_real, *rest, **options), 0.0
        if a_imaginary is not None and b_imaginary is not None:
            real = real - function(a_imaginary, b_imaginary, *rest, **options)
        if b_imaginary is not None:
            imaginary = imaginary + function(a_real, b_imaginary, *rest, **options)
        if a_imaginary is not None:
            imaginary = imaginary + function(a_imaginary, b_real, *rest, **options)
        return _joined(real, imaginary)

    return called


def _product(a: Any, b: Any) -> Any:
    return a * b


def _sum(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    (a_real, a_imaginary), (b_real, b_imaginary) = _parts(a), _parts(b)
    real = a_real + b_real * alpha
    imaginary = (0.0 if a_imaginary is None else a_imaginary) + (0.0 if b_imaginary is None else b_imaginary * alpha)
    return _joined(*(x if isinstance(x, Tensor) else torch.tensor(x) for x in (real, imaginary)))


def _difference(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return _sum(a, b, alpha=-alpha)


def _reciprocal(x: Any) -> Any:
    real, imaginary = _parts(x)
    size = real * real + imaginary * imaginary
    return _joined(real / size, -imaginary / size)


def _quotient(a: Any, b: Any) -> Any:
    if isinstance(b, complex):
        return _bilinear(_product)(a, 1 / b)
    if not has_complex(b):
        real, imaginary = _parts(a)
        return _joined(real / b, imaginary / b)
    return _bilinear(_product)(a, _reciprocal(b))


def _exponential(input: Tensor) -> Any:  # noqa: A002
    real, imaginary = _parts(input)
    size = real.exp()
    return _joined(size * imaginary.cos(), size * imaginary.sin())


def _size(input: Tensor) -> Tensor:  # noqa: A002
    """The magnitude, without a slope at 0."""
    real, imaginary = _parts(input)
    square = real * real + imaginary * imaginary
    return torch.where(square > 0, torch.sqrt(torch.where(square > 0, square, 1.0)), 0.0)


def _angle(input: Tensor) -> Any:  # noqa: A002
    real, imaginary = _parts(input)
    return angle_of(imaginary, real)


def _choice(condition: Tensor, input: Any, other: Any) -> Any:  # noqa: A002
    parts = zip(_parts(input), _parts(other), strict=True)
    return _joined(*(torch.where(condition, *(0.0 if x is None else x for x in pair)) for pair in parts))


def _padded(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Any:  # noqa: A002
    return NotImplemented if value else _by_parts(functional.pad)(input, pad, mode)


def _logarithm(input: Tensor) -> Any:  # noqa: A002
    return _joined(_size(input).log(), _angle(input))


def _power(input: Any, exponent: Any) -> Any:  # noqa: A002
    if isinstance(exponent, int) and 0 < exponent <= 8:
        return functools.reduce(_bilinear(_product), [input] * exponent)
    return NotImplemented


def _conjugate(input: Tensor) -> Any:  # noqa: A002
    real, imaginary = _parts(input)
    return _joined(real, -imaginary)


def _einsum(equation: Any, *operands: Any) -> Any:
    given = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else list(operands)
    if len(given) == 1:
        return _by_parts(torch.einsum)(equation, *given)
    if len(given) == 2 and isinstance(equation, str):
        return _bilinear(functools.partial(torch.einsum, equation))(*given)
    return NotImplemented


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:  # noqa: A002
    product = _bilinear(functional.linear)(input, weight)
    return product if bias is None else _sum(product, bias)


def _square_sums(input: Tensor, *args: Any, **options: Any) -> Any:  # noqa: A002
    """Norms are those of the magnitudes."""
    return torch.linalg.vector_norm(_size(input), *args, **options)


def _assigned(x: Tensor, index: Any, value: Any) -> Any:
    """What is put into a tensor, part by part, in place."""
    if not x.is_complex():
        return NotImplemented
    pairs = torch.view_as_real(x)
    for place, part in enumerate(_parts(value)):
        pairs.select(-1, place)[index] = 0.0 if part is None else part
    return None


def _made_real(function: Callable[..., Any]) -> Callable[..., Any]:
    """Zeros and the like."""

    def called(*args: Any, **options: Any) -> Any:
        dtype = options.get("dtype")
        if not isinstance(dtype, torch.dtype) or not dtype.is_complex:
            return NotImplemented
        real = function(*args, **{**options, "dtype": dtype.to_real()})
        return _joined(real, torch.zeros_like(real))

    return called


def _to(x: Tensor, *args: Any, **options: Any) -> Any:
    wanted = next((y for y in (*args, options.get("dtype")) if isinstance(y, torch.dtype)), None)
    if wanted is None or not wanted.is_complex or x.is_complex():
        return NotImplemented
    real = x.to(wanted.to_real())
    return _joined(real, torch.zeros_like(real))


def _polar(abs: Tensor, angle: Tensor) -> Any:  # noqa: A002
    return _joined(abs * angle.cos(), abs * angle.sin())


def _inverse_of_half(input: Tensor, n: Any = None, dim: int = -1, norm: str | None = None) -> Any:  # noqa: A002
    """Real numbers of half of a spectrum; the exporter takes a known number of them alone."""
    count: Any = 2 * (input.shape[dim] - 1) if n is None else n
    if isinstance(count, int) and isinstance(input.shape[dim], int):
        return NotImplemented
    parts = []
    for sign, part in zip((1, -1), _parts(input), strict=True):
        along = part.movedim(dim, -1)
        if n is not None:
            # What is missing is 0.
            along = functional.pad(along, (0, count // 2 + 1))[..., : count // 2 + 1]
        mirrored = along[..., 1 : (count - 1) // 2 + 1].flip(-1)
        parts.append(torch.cat([along, mirrored * sign], -1))
    return torch.view_as_real(torch.fft.ifft(_joined(*parts), dim=-1, norm=norm)).select(-1, 0).movedim(-1, dim)


def _of(names: str, made: Callable[[Any], Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    found = {}
    for name in names.split():
        for holder in (torch, Tensor):
            if hasattr(holder, name):
                function = getattr(holder, name)
                found[function] = made(function)
    return found


def _always(handler: Callable[..., Any]) -> Callable[[Any], Callable[..., Any]]:
    return lambda _: handler


def _swapped(handler: Callable[..., Any]) -> Callable[[Any], Callable[..., Any]]:
    return lambda _: lambda a, b: handler(b, a)


# Where an operand is complex.
OF_COMPLEX: dict[Any, Callable[..., Any]] = {
    **_of(
        "__getitem__ cat chunk clone concat contiguous cumsum diagonal expand flatten flip gather index_select mean "
        "movedim narrow neg __neg__ permute repeat repeat_interleave reshape roll select split squeeze stack sum t "
        "transpose unbind unflatten unsqueeze view zeros_like",
        _by_parts,
    ),
    functional.pad: _padded,
    torch.where: _choice,
    **_of("mul multiply __mul__ __rmul__", _always(_bilinear(_product))),
    **_of("matmul mm bmm __matmul__ tensordot", _bilinear),
    **_of("add __add__ __radd__", _always(_sum)),
    **_of("sub __sub__", _always(_difference)),
    **_of("__rsub__", _swapped(_difference)),
    **_of("div true_divide __truediv__", _always(_quotient)),
    **_of("__rtruediv__", _swapped(_quotient)),
    **_of("pow __pow__", _always(_power)),
    **_of("reciprocal", _always(_reciprocal)),
    **_of("exp", _always(_exponential)),
    **_of("log", _always(_logarithm)),
    **_of("abs absolute __abs__", _always(_size)),
    **_of("angle", _always(_angle)),
    **_of("conj conj_physical", _always(_conjugate)),
    **_of("square", _always(lambda x: _power(x, 2))),
    torch.einsum: _einsum,
    functional.linear: _linear,
    torch.linalg.vector_norm: _square_sums,
    Tensor.__setitem__: _assigned,
    Tensor.real.__get__: lambda x: _parts(x)[0],  # type: ignore[attr-defined]
    Tensor.imag.__get__: lambda x: _parts(x)[1],  # type: ignore[attr-defined]
    torch.real: lambda x: _parts(x)[0],
    torch.imag: lambda x: _parts(x)[1],
    torch.fft.irfft: _inverse_of_half,
}

# Where the result is.
TO_COMPLEX: dict[Any, Callable[..., Any]] = {
    torch.complex: _joined,
    torch.polar: _polar,
    Tensor.to: _to,
    **{
        function: _made_real(function)
        for function in (torch.zeros, torch.ones, torch.zeros_like, torch.ones_like, Tensor.new_zeros)
    },
}
