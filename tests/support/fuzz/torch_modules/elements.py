"""Arithmetic by element, comparisons, dtypes, reductions, products."""

from __future__ import annotations

import torch

from tests.support.fuzz.torch_modules.scope import Refused, Scope, idea

UNARY = [
    "torch.sin",
    "torch.cos",
    "torch.tan",
    "torch.atan",
    "torch.sinh",
    "torch.cosh",
    "torch.asinh",
    "torch.exp",
    "torch.expm1",
    "torch.abs",
    "torch.neg",
    "torch.square",
    "torch.sigmoid",
    "torch.tanh",
    "torch.erf",
    "torch.erfc",
    "torch.sign",
    "torch.floor",
    "torch.ceil",
    "torch.round",
    "torch.trunc",
    "torch.frac",
    "torch.relu",
    "torch.sinc",
    "torch.deg2rad",
    "torch.positive",
    "torch.sgn",
    "torch.exp2",
    "torch.special.expit",
    "F.softplus",
    "F.silu",
    "torch.nan_to_num",
    "torch.special.sinc",
    "torch.special.erfcx",
    "F.logsigmoid",
    "torch.special.log_ndtr",
    "torch.special.ndtr",
]
# Of numbers above 0.
POSITIVE = [
    "torch.log",
    "torch.log1p",
    "torch.sqrt",
    "torch.rsqrt",
    "torch.reciprocal",
    "torch.log2",
    "torch.log10",
    "torch.lgamma",
    "torch.digamma",
    "torch.special.entr",
    "torch.acosh",
]
# Of numbers between -1 and 1.
BOUNDED = ["torch.asin", "torch.acos", "torch.atanh", "torch.erfinv", "torch.arcsin", "torch.special.ndtri"]
BINARY = [
    "torch.add",
    "torch.sub",
    "torch.mul",
    "torch.maximum",
    "torch.minimum",
    "torch.atan2",
    "torch.hypot",
    "torch.fmax",
    "torch.fmin",
    "torch.copysign",
    "torch.logaddexp",
    "torch.logaddexp2",
    "torch.dist",
    "torch.heaviside",
]


@idea(4)
def unary(scope: Scope) -> None:
    x = scope.floats()
    match scope.choice("any", "any", "positive", "bounded"):
        case "any":
            scope.put(f"{scope.random.choice(UNARY)}({x})")
        case "positive":
            inner = scope.choice(f"{x}.abs() + 0.5", f"torch.exp({x})", f"F.softplus({x}) + 0.1", f"1 + {x} ** 2")
            scope.put(f"{scope.random.choice(POSITIVE)}({inner})")
        case _:
            scope.put(f"{scope.random.choice(BOUNDED)}(torch.tanh({x}) * 0.9)")


@idea(5)
def binary(scope: Scope) -> None:
    x = scope.floats()
    y = scope.like(x)
    if scope.chance(0.5):
        x, y = y, x
    scope.put(
        scope.choice(
            f"{x} {scope.choice('+', '-', '*')} {y}",
            f"{scope.random.choice(BINARY)}({x}, {y})",
            f"{x} / ({y}.abs() + 0.5)",
            f"({x}.abs() + 0.3) ** torch.tanh({y})",
            f"torch.{scope.choice('fmod', 'remainder')}({x}, {scope.choice('0.7', '-0.6', f'({y}.abs() + 0.4)')})",
            f"torch.div({x}, {y}.abs() + 0.7, rounding_mode='{scope.choice('floor', 'trunc')}')",
            f"torch.lerp({x}, {y}, {scope.choice('0.3', 'torch.tensor(0.8)')})",
            f"torch.addcmul({x}, {y}, {y}, value=0.5)",
            f"torch.addcdiv({x}, {y}, {y}.abs() + 1, value=-0.5)",
            f"torch.xlogy({x}, {y}.abs() + 0.2)",
            f"torch.rsub({x}, {y}, alpha=0.5)",
            f"torch.float_power({x}.abs() + 0.1, {scope.choice(2, 0.5)}).float()",
        )
    )


@idea(2)
def with_number(scope: Scope) -> None:
    x = scope.floats()
    scope.put(
        scope.choice(
            f"{x} ** {scope.choice(2, 3, 2.0)}",
            f"{scope.choice(2, 0.5, -1)} {scope.choice('+', '-', '*')} {x}",
            f"{x}.clamp({scope.choice('-0.5, 0.5', 'min=0.1', 'max=0.3', '0.2, -0.2')})",
            f"{x}.clamp(min={scope.like(x)})",
            f"{scope.choice('1', '2.0')} / ({x} ** 2 + 1)",
            f"{x} % 0.7",
            f"{x} // 0.4",
            f"2 ** {x}",
            f"torch.threshold({x}, 0.1, 0.2)",
            f"{x}.ldexp(torch.tensor(2))",
            f"{x} * math.pi",
            f"{x} - {x}.detach()",
            f"{x}.detach()",
        )
    )


@idea(2)
def masks(scope: Scope) -> None:
    x = scope.floats()
    y = scope.like(x)
    compare = scope.choice(">", "<", ">=", "<=", "==", "!=")
    mask = scope.put(
        scope.choice(
            f"{x} {compare} {y}",
            f"{x} {compare} {scope.choice('0', '0.3', f'{x}.mean()')}",
            f"torch.isclose({x}, {y}, atol=0.1)",
            f"({x} > 0) {scope.choice('&', '|', '^')} ({y} < 0.2)",
            f"~({x} > {y})",
            f"torch.logical_xor({x} > 0, {y})",
            f"torch.signbit({x})",
        )
    )
    use = [
        f"torch.where({mask}, {x}, {y})",
        f"torch.where({mask}, {x}, {scope.choice('0.0', '-1', '0.5')})",
        f"{x}.masked_fill({mask}, {scope.choice('0', '-1.5')})",
        f"{x} * {mask}",
        f"torch.softmax({x}.masked_fill({mask}, -1e9), -1)",
        f"{mask}.float() - {x}",
        f"{mask}.sum()",
        f"{mask}.{scope.choice('any', 'all')}(-1)",
        f"{mask}.float().mean(0)",
        f"{mask}.int().argmax(-1)",
        f"{mask}.long().cumsum(-1)",
        f"{x}.masked_scatter({mask}, {y}.expand_as({x}))",
        f"torch.where({mask}, torch.sqrt(torch.where({mask}, {x}.abs() + 1, 1.0)), {y})",
    ]
    scope.put(scope.random.choice(use))


@idea(4)
def reduction(scope: Scope) -> None:
    x = scope.floats(1)
    value = scope.values[x]
    axes: object = scope.axis(x)
    if value.dim() > 1 and scope.chance(0.3):
        axes = tuple(scope.random.sample(range(value.dim()), 2))
    keep = scope.choice("", ", keepdim=True")
    one = scope.axis(x)
    match scope.choice("several", "several", "one", "whole", "arg", "order"):
        case "several":
            name = scope.choice(
                "sum", "mean", "amax", "amin", "logsumexp", "std", "var", "nansum", "nanmean", "any_norm"
            )
            if name == "any_norm":
                scope.put(f"torch.linalg.vector_norm({x}, {scope.choice(1, 2, 3, 'math.inf', 0.5)}, {axes}{keep})")
                return
            more = scope.choice("", ", correction=0", ", unbiased=False") if name in ("std", "var") else ""
            scope.put(f"{x}.{name}({axes}{more}{keep})")
        case "one":
            name = scope.choice(
                "prod", "median", "nanmedian", "max", "min", "norm", "mode", "kthvalue", "quantile", "aminmax"
            )
            match name:
                case "prod":
                    scope.put(f"{x}.prod({one}{keep})")
                case "norm":
                    scope.put(f"{x}.norm({scope.choice('1', '2', repr('fro'))}, {one}{keep})")
                case "quantile":
                    how = scope.choice("", ", interpolation='lower'", ", interpolation='nearest'")
                    scope.put(f"{x}.quantile({scope.choice(0.3, 0.5, 1.0)}, {one}{keep}{how})")
                case "kthvalue":
                    scope.puts(2, f"{x}.kthvalue(2, {one}{keep})")
                case "aminmax":
                    scope.puts(2, f"torch.aminmax({x}, dim={one}{keep})")
                case _:
                    scope.puts(2, f"{x}.{name}({one}{keep})")
        case "whole":
            name = scope.choice(
                "sum", "mean", "max", "min", "std", "var", "prod", "norm", "median", "amax", "logsumexp"
            )
            scope.put(
                f"{x}.logsumexp(({', '.join(map(str, range(value.dim())))},))"
                if name == "logsumexp"
                else f"{x}.{name}()"
            )
        case "arg":
            scope.put(f"{x}.{scope.choice('argmax', 'argmin', 'argsort')}({one})")
        case _:
            match scope.choice("sort", "topk", "cumsum", "cumprod", "cummax", "logcumsumexp", "diff", "unique"):
                case "sort":
                    more = scope.choice("", ", descending=True", ", stable=True")
                    scope.puts(2, f"{x}.sort(dim={one}{more})")
                case "topk":
                    count = scope.random.randint(1, scope.size(x, one))
                    scope.puts(2, f"{x}.topk({count}, {one}{scope.choice('', ', largest=False', ', sorted=True')})")
                case "cummax":
                    scope.puts(2, f"{x}.{scope.choice('cummax', 'cummin')}({one})")
                case "diff":
                    scope.put(f"{x}.diff(dim={one})")
                case "unique":
                    raise Refused
                case name:
                    scope.put(f"{x}.{name}({one})")


@idea(3)
def product(scope: Scope) -> None:
    x = scope.floats(1)
    rank = scope.values[x].dim()
    match scope.choice("matmul", "self", "einsum", "einsum", "outer", "tensordot", "weights", "baddbmm"):
        case "matmul":
            y = scope.floats(1, test=lambda y: y.shape[-2 if y.dim() > 1 else -1] == scope.size(x, -1))
            scope.put(f"{x} @ {y}")
        case "self":
            scope.put(scope.choice(f"{x} @ {x}.mT", f"{x}.mT @ {x}", f"torch.cov({x})", f"torch.corrcoef({x} * 1)"))
        case "einsum":
            letters = "abcdef"[:rank]
            y = scope.floats(1, test=lambda y: y.shape[-1] == scope.size(x, -1))
            others = "uvwxyz"[: scope.values[y].dim() - 1] + letters[-1]
            kept = letters[:-1] + others[:-1] + letters[-1] * scope.choice(0, 0, 1)
            made = "".join(scope.random.sample(kept, scope.random.randint(0, min(4, len(kept)))))
            scope.put(f"torch.einsum('{letters},{others}->{made}', {x}, {y})")
        case "outer":
            y = scope.floats(1, 1)
            x = scope.floats(1, 1)
            scope.put(f"torch.{scope.choice('outer', 'kron')}({x}, {y})")
        case "tensordot":
            y = scope.floats(1, test=lambda y: y.shape[0] == scope.size(x, -1))
            scope.put(f"torch.tensordot({x}, {y}, dims=1)")
        case "weights":
            weight = scope.layer(f"nn.Parameter(torch.randn({scope.size(x, -1)}, 3) * 0.5)", "p")
            scope.put(scope.choice(f"{x} @ {weight}", f"torch.einsum('...i,ij->...j', {x}, {weight})"))
        case _:
            x = scope.floats(3, 3)
            y = scope.floats(3, 3, lambda y: y.shape[0] == scope.size(x, 0) and y.shape[1] == scope.size(x, 2))
            scope.put(f"torch.bmm({x}, {y})")


@idea(1.5)
def parameter(scope: Scope) -> None:
    x = scope.floats(1)
    shape = [size if scope.chance(0.7) else 1 for size in scope.values[x].shape]
    shape = shape[scope.random.randrange(len(shape)) :]
    made = scope.choice("nn.Parameter(torch.randn", "nn.Parameter(0.1 + torch.rand", "nn.Parameter(0 * torch.randn")
    held = scope.layer(f"{made}({shape}))", "p")
    scope.put(f"{x} {scope.choice('+', '*', '-')} {held}")


@idea(1)
def dtypes(scope: Scope) -> None:
    if scope.chance(0.5):
        x = scope.pick(lambda x: not x.is_floating_point())
        scope.put(scope.choice(f"{x}.float()", f"{x}.float() * 0.3", f"{x} * 0.5", f"{x}.to(torch.float32) / 3"))
        return
    x = scope.floats()
    few = scope.choice("torch.float16", "torch.bfloat16")
    scope.put(
        scope.choice(
            f"torch.tanh({x}.to({few})).float()",
            f"({x}.to({few}) * 2).sum(-1).float()",
            f"{x}.double().exp().float()",
            f"({x}.double() - {x}.double().mean()).float()",
            f"{x}.long()",
            f"({x} * 3).int()",
            f"{x}.bool()",
            f"({x} * 2).round().to(torch.int32) % 3",
            f"({x}.abs() * 3).to(torch.uint8).float()",
            f"{x}.type_as({x}.double()).float()",
        )
    )


@idea(1)
def integers(scope: Scope) -> None:
    x = scope.pick(lambda x: x.dtype in (torch.int64, torch.int32))
    scope.put(
        scope.choice(
            f"{x} // {scope.choice(2, 3, -2)}",
            f"{x} % {scope.choice(2, 3, -3)}",
            f"{x} * 2 - 1",
            f"{x} & 3",
            f"{x} << 1",
            f"{x}.clamp(1, 4)",
            f"{x}.sum(-1)",
            f"{x}.cumsum(0)",
            f"-{x}",
            f"{x}.abs()",
            f"torch.bincount({x}.flatten().clamp(0, 5), minlength=6)",
            f"F.one_hot({x}.clamp(0, 5), 6)",
            f"({x} == {x}.max()).float()",
            f"{x}.float().mean()",
            f"torch.bucketize({x}, torch.tensor([1, 3, 5]))",
            f"{x}.remainder(3).float()",
            f"{x} / 2",
            f"torch.fmod({x}, 3)",
            f"{x}.max(-1).values",
            f"{x} ** 2",
        )
    )
