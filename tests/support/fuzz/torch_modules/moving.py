"""Views, joins, indices, scattering, changes in place."""

from __future__ import annotations

from tests.support.fuzz.torch_modules.scope import Refused, Scope, idea


def bounds(scope: Scope, size: int) -> str:
    """A slice."""
    start = scope.random.randrange(size)
    return scope.choice(
        ":",
        f"{start}:",
        f":{start + 1}",
        f"-{scope.random.randint(1, size)}:",
        "::2",
        f"{start}:{size + 3}",
        f":-{size - 1}" if size > 1 else ":",
    )


@idea(3)
def view(scope: Scope) -> None:
    x = scope.pick(lambda x: x.dim() > 0)
    value = scope.values[x]
    rank = value.dim()
    one, other = scope.axis(x), scope.axis(x)
    order = scope.random.sample(range(rank), rank)
    scope.put(
        scope.choice(
            f"{x}.transpose({one}, {other})",
            f"{x}.permute({order})",
            f"{x}.flip({scope.choice(one, order[:2])})",
            f"{x}.roll({scope.choice(1, -1, 2, 7)}, {one})",
            f"{x}.roll(2)",
            f"{x}.unsqueeze({one})",
            f"{x}.unsqueeze(-1).squeeze({one})",
            f"{x}.flatten({scope.random.randrange(rank)})",
            f"{x}.reshape({scope.choice('-1', f'{x}.size(0), -1', f'-1, {value.shape[-1]}')})",
            f"{x}.movedim({one}, {other})",
            f"{x}.unflatten({one}, ({scope.choice(1, 2)}, -1))",
            f"{x}.expand(2, *{x}.shape)",
            f"{x}.repeat({', '.join(str(scope.choice(1, 1, 2)) for _ in range(rank + scope.choice(0, 1)))})",
            f"{x}.repeat_interleave({scope.choice(2, 3)}, {one})",
            f"{x}.tile((2,))",
            f"{x}.rot90(1, ({one}, {other}))",
            f"{x}.swapaxes(0, -1).contiguous()",
            f"{x}.T.clone()" if rank == 2 else f"{x}.mT",
            f"{x}.ravel()",
            f"{x}.view({x}.shape[0], -1)",
            f"torch.atleast_3d({x})",
            f"{x}.unfold({one}, 2, {scope.choice(1, 2)})",
            f"{x}.narrow({one}, 0, 1)",
            f"{x}.squeeze()",
            f"{x}.diagonal(dim1={one}, dim2={other})",
            f"torch.{scope.choice('triu', 'tril')}({x}, {scope.choice(0, 1, -1)})",
            f"torch.diag_embed({x})",
            f"{x}.as_strided((2, 2), (1, 1))",
        )
    )


@idea(2)
def joined(scope: Scope) -> None:
    x = scope.floats(1)
    others = [scope.floats(1, test=lambda y: y.dim() == scope.values[x].dim()) for _ in range(scope.choice(1, 2))]
    match scope.choice("cat", "cat", "stack", "vstack", "meshgrid", "broadcast", "block"):
        case "cat":
            scope.put(f"torch.cat([{', '.join([x, *others])}], {scope.axis(x)})")
        case "stack":
            equal = [scope.floats(1, test=lambda y: y.shape == scope.values[x].shape) for _ in others]
            scope.put(f"torch.stack([{', '.join([x, *equal])}], {scope.axis(x)})")
        case "vstack":
            scope.put(f"torch.{scope.choice('vstack', 'hstack', 'dstack')}([{', '.join([x, *others])}])")
        case "meshgrid":
            scope.puts(
                2, f"torch.meshgrid({scope.floats(1, 1)}, {scope.floats(1, 1)}, indexing='{scope.choice('ij', 'xy')}')"
            )
        case "broadcast":
            scope.puts(2, f"torch.broadcast_tensors({x}, {scope.like(x)})")
        case _:
            scope.put(f"torch.block_diag({scope.floats(1, 2)}, {scope.floats(1, 2)})")


@idea(2)
def taken_apart(scope: Scope) -> None:
    x = scope.floats(1)
    axis = scope.axis(x)
    size = scope.size(x, axis)
    match scope.choice("chunk", "split", "sizes", "unbind", "tensor_split"):
        case "chunk":
            count = len(scope.values[x].chunk(2, axis))
            scope.puts(count, f"{x}.chunk(2, {axis})")
        case "split":
            scope.puts(-(-size // 2), f"{x}.split(2, {axis})")
        case "sizes":
            first = scope.random.randint(1, size)
            scope.puts(
                2 if first < size else 1, f"{x}.split({[first, size - first] if first < size else [first]}, {axis})"
            )
        case "tensor_split":
            scope.puts(2, f"torch.tensor_split({x}, 2, {axis})")
        case _:
            if size > 5:
                raise Refused
            scope.puts(size, f"{x}.unbind({axis})")


@idea(3)
def indexed(scope: Scope) -> None:
    x = scope.pick(lambda x: x.dim() > 0)
    shape = scope.values[x].shape
    parts = []
    for size in shape[: scope.random.randint(1, len(shape))]:
        index = scope.random.randrange(size)
        some = [scope.random.randrange(-size, size) for _ in range(scope.choice(1, 2, 3))]
        parts.append(
            scope.choice(
                bounds(scope, size),
                bounds(scope, size),
                str(scope.choice(index, index - size)),
                str(some),
                f"torch.tensor({some})",
                "None",
                f"torch.arange({x}.size({len(parts)})).flip(0)" if None not in parts else ":",
                str([scope.chance(0.7) for _ in range(size - 1)] + [True]),
            )
        )
    if scope.chance(0.2):
        parts[0] = "..."
        parts[1:] = [bounds(scope, shape[-1])]
    scope.put(f"{x}[{', '.join(parts)}]")


def _places(scope: Scope, x: str, axis: int) -> str:
    """Indices along an axis, of the same shape as `x` or of the half of it."""
    size = scope.size(x, axis)
    axis %= scope.values[x].dim()
    return scope.choice(
        f"{x}.detach().argsort({axis})",
        f"({x}.detach().abs() * 7).long() % {size}",
        f"(({x}.detach().abs() * 5).long() % {size}).narrow({axis}, 0, {(size + 1) // 2})",
        f"torch.zeros_like({x}, dtype=torch.int64)",
    )


@idea(2.5)
def gathered(scope: Scope) -> None:
    x = scope.floats(1)
    axis = scope.axis(x)
    size = scope.size(x, axis)
    places = scope.put(_places(scope, x, axis))
    some = [scope.random.randrange(size) for _ in range(scope.choice(1, 2, 4))]
    y = scope.put(f"torch.cos({x})")
    reduce, other = scope.choice("sum", "prod", "mean", "amax", "amin"), scope.choice("mean", "amax", "amin", "prod")
    include = scope.choice("True", "False")
    scope.put(
        scope.choice(
            f"{x}.gather({axis}, {places})",
            f"torch.take_along_dim({x}, {places}, {axis})",
            f"{x}.index_select({axis}, torch.tensor({some}))",
            f"{x}.scatter_add({axis}, {places}, {y})",
            f"{x}.scatter({axis}, {x}.detach().argsort({axis}), {y})",
            f"{x}.scatter({axis}, {places}, 0.5)",
            f"{x}.scatter_reduce({axis}, {places}, {y}.gather({axis}, {places}), '{reduce}', include_self={include})",
            f"torch.zeros_like({x}).index_add({axis}, torch.arange({size}).flip(0), {y}, alpha=0.5)",
            f"{x}.index_fill({axis}, torch.tensor({some}), 0.3)",
            f"{x}.index_copy({axis}, torch.arange({size}).flip(0), {y})",
            f"{x}.take({places} % {x}.numel())",
            f"{x}.flatten().index_put(({places}.flatten() % {size},), {y}.flatten()[0], accumulate=True)",
            f"{x}.index_reduce({axis}, torch.arange({size}) // 2, {y}, '{other}')",
        )
    )


@idea(1)
def selected(scope: Scope) -> None:
    """As many as a mask has, or a mean of them."""
    x = scope.floats(1)
    scope.put(
        scope.choice(
            f"{x}[{x} > {x}.mean()].sum()",
            f"torch.masked_select({x}, {x} >= {x}.min()).mean()",
            f"{x}[{x}.argmax(0)].mean(0)",
            f"({x} > 0).nonzero().float().mean()",
            f"torch.where({x} > 0)[0].sum()",
            f"{x}[torch.nonzero({x} < 9)[:, 0]].sum(0)",
            f"torch.count_nonzero({x} > 0)",
            f"torch.searchsorted({x}.detach().flatten().sort().values, 0.1)",
            f"{x}[:, {x}.sum(0).flatten().argsort(stable=True) % {x}.shape[1]]",
            f"torch.unique(({x}.detach() * 2).long()).float().sum()",
        )
    )


@idea(2.5)
def in_place(scope: Scope) -> None:
    x = scope.floats(1)
    value = scope.values[x]
    y = scope.like(x)
    axis = scope.axis(x)
    index = ", ".join(bounds(scope, size) for size in value.shape[: scope.random.randint(1, value.dim())])
    name = scope.name()
    change = scope.choice(
        f"{name}[{index}] = {scope.choice('0.5', '0', f'{x}[{index}] * 2', f'{y}.mean()')}",
        f"{name}[{index}] {scope.choice('+=', '-=', '*=')} {scope.choice('0.5', f'{y}.mean()')}",
        f"{name}[{name} > 0.2] = 0.1",
        f"{name}[{name}.detach() < 0] *= 0.5",
        f"{name}.add_({y})",
        f"{name}.mul_({y}).clamp_(-1, 1)",
        f"{name}.select({axis}, 0).fill_(0.7)",
        f"{name}.select({axis}, -1).mul_({y}.sum())",
        f"view = {name}.transpose(0, -1)\nview[0] = 1.0",
        f"view = {name}.view(-1)\nview[::2] += 1",
        f"part = {name}.narrow({axis}, 0, 1)\npart.copy_(part.detach() * 3)",
        f"{name} += {y}\n{name} /= 2",
        f"{name}.masked_fill_({y} > 0, 0.25)",
        f"{name}.zero_()",
        f"{name}.index_add_({axis}, torch.tensor([0, 0]), {x}.narrow({axis}, 0, 1).repeat_interleave(2, {axis}))",
        f"{name}.scatter_({axis}, torch.zeros_like({x}, dtype=torch.int64), 0.5)",
        f"for i in range({x}.size(0)):\n    {name}[i] = {x}[i] * (i + 1)",
        f"for i in range(1, {x}.size({axis})):\n    {name}.select({axis}, i).add_({name}.select({axis}, i - 1))",
        f"{name}.sub_({name}.mean()).tanh_()",
        f"{name}.flatten()[1:2].mul_(2)",
        f"{name}.t_()",
        f"{name}.unsqueeze_(0)",
        f"{name}.diagonal().zero_()",
        f"a, b = {name}.chunk(2, {axis})\na.mul_(2)\nb.add_(a.sum())",
        f"with torch.no_grad():\n    {name}.mul_(1.5)",
        f"{name}[..., 0], {name}[..., -1] = {name}[..., -1].clone(), {name}[..., 0].clone()",
    )
    zeros = scope.choice(f"torch.zeros_like({x})", f"{x}.new_ones({x}.shape)")
    start = scope.choice(f"{x} * 1", f"{x}.clone()", zeros, f"torch.relu({x})")
    scope.run(f"{name} = {start}\n{change}", name)


@idea(1)
def created(scope: Scope) -> None:
    x = scope.floats(1)
    size = f"{x}.size({scope.axis(x)})"
    scope.put(
        scope.choice(
            f"torch.arange({size}).float() * 0.1",
            f"torch.linspace(-1, 1, {size})",
            f"torch.eye({size})",
            f"torch.full(({size}, 2), 0.3)",
            f"torch.ones({x}.shape)",
            f"{x}.new_zeros({size}) + 0.1",
            "torch.tensor([0.1, 0.2, -0.3])",
            f"torch.triu(torch.ones({size}, {size}), 1)",
            f"torch.full_like({x}, 0.5)",
            f"torch.arange(0, {size}, 2)",
            f"torch.logspace(-1, 0, {size})",
            f"torch.arange(3 * {size}).view(3, -1) / 10",
            f"torch.hann_window({size}) + 0.1",
            f"torch.zeros({size}, dtype=torch.int64)",
            f"torch.tril_indices({size}, {size})[0]",
            f"torch.cartesian_prod(torch.arange(2), torch.arange({size}))",
            f"torch.arange({size}, 0, -1)",
        )
    )


@idea(0.6)
def linear_algebra(scope: Scope) -> None:
    x = scope.floats(2, test=lambda x: x.shape[-1] <= 6 and x.shape[-2] <= 6)
    square = f"({x} @ {x}.mT + 2 * torch.eye({x}.size(-2)))"
    scope.put(
        scope.choice(
            f"torch.linalg.inv{square}",
            f"torch.linalg.det{square} * 0.01",
            f"torch.linalg.solve({square}, {x})",
            f"torch.linalg.cholesky{square}",
            f"torch.linalg.slogdet{square}[1]",
            f"torch.linalg.matrix_norm({x})",
            f"torch.linalg.matrix_power({x} @ {x}.mT * 0.3, {scope.choice(2, 3)})",
            f"torch.trace({x} @ {x}.mT)",
            f"torch.cross({x}[..., :3], {x}[..., :3].flip(0), dim=-1)",
            f"torch.fft.rfft({x}).abs()",
            f"torch.fft.irfft(torch.fft.rfft({x}) * 0.5, n={x}.size(-1))",
            f"torch.stft({x}.flatten(1), 4, 2, window=torch.ones(4), return_complex=True).abs()",
        )
    )
