"""Recurrent layers, cells in loops, attention."""

from __future__ import annotations

from tests.support.fuzz.torch_modules.layers import width_of
from tests.support.fuzz.torch_modules.scope import Refused, Scope, idea


@idea(3)
def recurrent(scope: Scope) -> None:
    x = scope.floats(2, 3)
    kind = scope.choice("LSTM", "GRU", "RNN")
    batched = scope.values[x].dim() == 3
    hidden, layers = width_of(scope), scope.choice(1, 1, 2)
    first = batched and scope.chance(0.6)
    both = scope.chance(0.4)
    options = [f"{scope.size(x, -1)}, {hidden}", f"num_layers={layers}"]
    options += ["bidirectional=True"] * both + ["batch_first=True"] * first
    options += ["bias=False"] * scope.chance(0.2)
    project = kind == "LSTM" and hidden > 2 and scope.chance(0.25)
    options += [f"proj_size={hidden - 1}"] * project
    options += ["nonlinearity='relu'"] * (kind == "RNN" and scope.chance(0.4))
    held = scope.layer(f"nn.{kind}({', '.join(options)})")
    directions = layers * (1 + both)
    out = hidden - 1 if project else hidden
    given = x
    if batched and scope.chance(0.3):
        lengths = scope.put(_lengths(scope, x, first=first))
        total = scope.choice("", f", total_length={x}.size({int(first)})")
        order = scope.choice("False", "False", "True")
        if order == "True":
            lengths = scope.put(f"{lengths}.sort(descending=True).values")
        packed = f"pack_padded_sequence({x}, {lengths}, batch_first={first}, enforce_sorted={order})"
        name, state = scope.name(), scope.name()
        scope.run(
            f"out, state = {held}({packed})\n"
            f"{name}, _ = pad_packed_sequence(out, batch_first={first}{total})\n"
            f"{state} = {'state[0]' if kind == 'LSTM' else 'state'}",
            name,
            state,
        )
        return
    if scope.chance(0.3):
        batch = f"{x}.size({0 if first else 1}), " if batched else ""
        states = [f"{x}.new_{scope.choice('zeros', 'ones')}({directions}, {batch}{size})" for size in (out, hidden)]
        if scope.chance(0.5):
            start = scope.layer(f"nn.Parameter(torch.randn({directions}, {'1, ' * batched}{out}) * 0.5)", "p")
            states[0] = f"{start}.expand({directions}, {batch}{out})" if batched else start
        given += f", ({states[0]}.contiguous(), {states[1]})" if kind == "LSTM" else f", {states[0]}.contiguous()"
    name, state = scope.name(), scope.name()
    last = "state" if kind != "LSTM" else scope.choice("state[0]", "state[1]")
    if kind == "LSTM":
        scope.run(f"{name}, state = {held}({given})\n{state} = {last}", name, state)
    else:
        scope.run(f"{name}, {state} = {held}({given})", name, state)


def _lengths(scope: Scope, x: str, *, first: bool) -> str:
    """Lengths of the sequences in `x`, none of which is empty."""
    batch, steps = (0, 1) if first else (1, 0)
    return scope.choice(
        f"torch.arange({x}.size({batch})) % {x}.size({steps}) + 1",
        f"({x}.size({steps}) - torch.arange({x}.size({batch}))).clamp(min=1)",
        f"({x}.detach().abs().sum(({steps}, 2)) * 7).long() % {x}.size({steps}) + 1",
    )


@idea(1.5)
def cells(scope: Scope) -> None:
    x = scope.floats(3, 3)
    kind = scope.choice("LSTM", "GRU", "RNN")
    held = scope.layer(f"nn.{kind}Cell({scope.size(x, -1)}, {width_of(scope)})")
    steps = scope.choice(f"{x}.unbind(1)", f"{x}.unbind(0)", f"reversed({x}.unbind(1))", f"{x}.transpose(0, 1)")
    name = scope.name()
    state = "h[0]" if kind == "LSTM" else "h"
    last = scope.choice(f"torch.stack(found, {scope.choice(0, 1)})", "found[-1]", "sum(found)", "torch.cat(found, -1)")
    scope.run(
        f"h, found = None, []\nfor step in {steps}:\n    h = {held}(step, h)\n    found.append({state})\n"
        f"{name} = {last}",
        name,
    )


@idea(2)
def attention(scope: Scope) -> None:
    x = scope.floats(3, 3, lambda x: x.shape[-1] % 2 == 0)
    width = scope.size(x, -1)
    match scope.choice("multihead", "multihead", "encoder", "decoder", "function", "function", "transformer"):
        case "multihead":
            first = scope.chance(0.6)
            more = scope.choice("", "bias=False, ", "add_bias_kv=True, ", "add_zero_attn=True, ")
            held = scope.layer(f"nn.MultiheadAttention({width}, 2, {more}batch_first={first})")
            options = scope.choice("", "", ", need_weights=False", ", average_attn_weights=False")
            mask = ""
            if scope.chance(0.3) and "add" not in more:
                size = f"{x}.size({int(first)})"
                mask = f", attn_mask=nn.Transformer.generate_square_subsequent_mask({size})"
            if "need" in options:
                name = scope.name()
                scope.run(f"{name}, _ = {held}({x}, {x}, {x}{mask}{options})", name)
            else:
                scope.puts(2, f"{held}({x}, {x}, {x}{mask}{options})")
        case "encoder" | "decoder" as kind:
            more = scope.choice("", "norm_first=True, ", "activation='gelu', ", "bias=False, ")
            text = f"{width}, 2, 5, dropout=0.0, {more}batch_first={scope.chance(0.6)}"
            if kind == "encoder":
                scope.put(f"{scope.layer(f'nn.TransformerEncoderLayer({text})')}({x})")
            else:
                scope.put(f"{scope.layer(f'nn.TransformerDecoderLayer({text})')}({x}, torch.tanh({x}))")
        case "transformer":
            held = scope.layer(f"nn.Transformer({width}, 2, 1, 1, 5, dropout=0.0, batch_first={scope.chance(0.6)})")
            scope.put(f"{held}({x}, {x}.flip(1))")
        case _:
            options = scope.choice("", ", is_causal=True", ", scale=0.3")
            parts = scope.puts(3, f"{scope.layer(f'nn.Linear({width}, {3 * width})')}({x}).chunk(3, -1)")
            heads = [f"{part}.unflatten(-1, (2, -1)).transpose(1, 2)" for part in parts]
            scope.put(f"F.scaled_dot_product_attention({', '.join(heads)}{options}).transpose(1, 2).flatten(2)")


@idea(1)
def steps(scope: Scope) -> None:
    """A loop in Python over time."""
    x = scope.floats(2, 4)
    axis = scope.random.randrange(scope.values[x].dim())
    if scope.size(x, axis) > 8:
        raise Refused
    state = scope.choice(
        "h = 0.7 * h + step",
        "h = torch.maximum(h, step)",
        "h = torch.where(step > 0, h * 0.9, step)",
        "h = torch.tanh(h + step * h.mean())",
        "h = h + step\n    h = h / (1 + h.abs().max())",
        "if i % 2 == 0:\n        h = h - step",
        "h = h * torch.sigmoid(step)\n    if i == 1:\n        continue",
    )
    name = scope.name()
    each = f"{x}.select({axis}, i)"
    last = scope.choice("torch.stack(found)", "h", f"torch.stack(found, {axis}).cumsum({axis})")
    scope.run(
        f"h, found = {x}.select({axis}, 0) * 0.5, []\n"
        f"for i in range({x}.size({axis})):\n    step = {each}\n    {state}\n    found.append(h)\n{name} = {last}",
        name,
    )
