"""Branches, loops and maps of PyTorch, state, functions with gradients of their own, inner gradients."""

from __future__ import annotations

from tests.support.fuzz.torch_modules.layers import width_of
from tests.support.fuzz.torch_modules.scope import Refused, Scope, idea


@idea(1)
def cond(scope: Scope) -> None:
    x = scope.floats(1)
    y = scope.like(x)
    test = scope.choice(f"{x}.sum() > 0", f"{x}.mean() < {y}.mean()", f"{x}.size(0) > 2", f"({x} > 0).all()")
    held = scope.layer(f"nn.Linear({scope.size(x, -1)}, {scope.size(x, -1)})")
    yes = scope.choice("x * 2", "torch.tanh(x) + y", f"{held}(x)", "x - y.mean()", "x.cumsum(0)", "x * y[x > 0].sum()")
    no = scope.choice("x.sin()", "x * y", "-x", f"{held}(x) * y")
    scope.put(f"torch.cond({test}, lambda x, y: {yes}, lambda x, y: {no}, ({x}, {y}))")


@idea(1)
def scanned(scope: Scope) -> None:
    x = scope.floats(2, 3)
    shape = scope.values[x].shape
    body = scope.choice(
        "h = torch.tanh(h * 0.5 + s)\n    return h, h * 2",
        "h = h + s\n    return h, s * h.mean()",
        "h = torch.maximum(h, s)\n    return h, h.clone()",
        "h = h * 0.5 + s[s > 0].sum()\n    return h, h * s",
        "h = Scaled.apply(h + s, 0.5)\n    return h, h * s",
        "h = h + s\n    h.register_hook(lambda d: d * 0.5) if h.requires_grad else None\n    return h, h * s",
        "new = torch.where(s > 0, h * 0.9, s)\n    return new, new - h",
    )
    back = scope.choice("", ", reverse=True")
    axis = scope.choice(0, 0, 1)
    rest = [size for place, size in enumerate(shape) if place != axis]
    first, second = scope.name(), scope.name()
    scope.run(
        f"def step(h, s):\n    {body}\n{first}, {second} = scan(step, torch.ones({rest}), {x}, dim={axis}{back})",
        first,
        second,
    )


@idea(0.7)
def looped(scope: Scope) -> None:
    x = scope.floats(1)
    kind = scope.choice("while", "map", "associative", "vmap")
    name = scope.name()
    match kind:
        case "while":
            text = (
                f"_, {name} = while_loop(lambda i, h: i < {scope.choice(3, 'n')}, "
                f"lambda i, h: (i + 1, torch.tanh(h) * 0.9), (torch.tensor(0), {x}))"
            )
            text = f"n = ({x}.detach().sum() > 0).long() + 2\n{text}".replace("i < n", "i < n")
        case "map":
            text = f"{name} = torch._higher_order_ops.map(lambda s: torch.sin(s) * s.mean(), {x})"
        case "associative":
            combine = scope.choice("a + b", "torch.maximum(a, b)")
            text = f"{name} = associative_scan(lambda a, b: {combine}, {x}, 0, combine_mode='generic')"
        case _:
            body = scope.choice("s.softmax(-1)", "s * s.mean()", "s.cumsum(-1)", "s @ s", "s.sort(-1).values")
            text = f"{name} = torch.vmap(lambda s: {body})({x})"
    scope.run(text, name)


@idea(1.5)
def buffers(scope: Scope) -> None:
    x = scope.floats(1)
    width = scope.size(x, -1)
    held = f"self.{scope.name('b')}"
    scope.setup(f"self.register_buffer('{held[5:]}', torch.{scope.choice('zeros', 'ones')}({width}))")
    mean = f"{x}.detach().reshape(-1, {width}).mean(0)"
    name = scope.name()
    change = scope.choice(
        f"{held}.mul_(0.9).add_({mean}, alpha=0.1)",
        f"{held} = {held} * 0.9 + {mean}",
        f"with torch.no_grad():\n    {held}.copy_({held} * 0.5 + {mean})",
        f"if self.training:\n    {held}.lerp_({mean}, 0.2)",
        f"{held}.data = {held}.data * 0.9 + {mean}",
        f"{held} += 1",
        f"{held}[0] += 1",
    )
    scope.run(f"{change}\n{name} = {x} {scope.choice('*', '+', '-')} {held}", name)


@idea(0.8)
def counter(scope: Scope) -> None:
    x = scope.floats(1)
    held = f"self.{scope.name('b')}"
    scope.setup(f"self.register_buffer('{held[5:]}', torch.tensor({scope.choice('0', '0.0')}))")
    name = scope.name()
    use = scope.choice(f"{x} / ({held} + 1)", f"torch.where({held} > 1, {x}, -{x})", f"{x} + {held}")
    scope.run(f"{held} += 1\n{name} = {use}", name)


@idea(1)
def own_function(scope: Scope) -> None:
    x = scope.floats()
    held = scope.layer(f"nn.Linear({scope.size(x, -1)}, {width_of(scope)})") if scope.values[x].dim() else None
    use = [f"Straight.apply({x})", f"Scaled.apply({x}, 0.5)", f"Straight.apply(torch.tanh({x})) * {x}"]
    if held is not None:
        inside = scope.choice("torch.tanh", "torch.sin", "F.gelu")
        reentrant = scope.choice("False", "False", "True")
        use += [f"checkpoint(lambda x: {inside}({held}(x)), {x}, use_reentrant={reentrant})"] * 2
    scope.put(scope.random.choice(use))


@idea(0.7)
def inner_gradient(scope: Scope) -> None:
    x = scope.floats(1, 3)
    inner = scope.choice(
        "torch.sin(x).sum()", "(x ** 3).mean()", "torch.tanh(x).square().sum()", "x.logsumexp(-1).sum()"
    )
    name = scope.name()
    match scope.choice("grad", "func", "jvp", "jacrev"):
        case "grad":
            scope.run(
                f"x = {x} * 1.0\nif not x.requires_grad:\n    x.requires_grad_()\n"
                f"({name},) = torch.autograd.grad({inner}, x, create_graph=True)",
                name,
            )
        case "func":
            scope.run(f"{name} = torch.func.grad(lambda x: {inner})({x})", name)
        case "jvp":
            scope.run(f"_, {name} = torch.func.jvp(lambda x: torch.sin(x) * x, ({x},), ({x} * 0.5,))", name)
        case _:
            if scope.values[x].numel() > 20:
                raise Refused
            scope.run(f"{name} = torch.func.jacrev(lambda x: torch.tanh(x.sum(-1)))({x})", name)


@idea(0.8)
def stopped(scope: Scope) -> None:
    x = scope.floats()
    y = scope.like(x)
    name = scope.name()
    scope.run(
        scope.choice(
            f"with torch.no_grad():\n    {name} = torch.sin({x})",
            f"{name} = {x} + ({y} - {x}).detach()",
            f"{name} = {x}.round().detach() + {x} - {x}.detach()",
            f"with torch.no_grad():\n    scale = {x}.abs().max() + 1\n{name} = {x} / scale",
            f"with torch.no_grad():\n    with torch.enable_grad():\n        {name} = torch.cos({x})",
            f"{name} = {x}.clone()\n{name}.register_hook(lambda d: d * 0.5) if {name}.requires_grad else None",
            f"with torch.autocast('cpu', dtype=torch.bfloat16):\n    {name} = {x} * 2",
            f"{name} = {x} * float({x}.size(0)) / len({x}.shape or [1])"
            if scope.values[x].dim()
            else f"{name} = {x} * 1",
        ),
        name,
    )
