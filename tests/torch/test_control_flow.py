"""`torch.cond`, `while_loop` and `scan`: gradients as those of the same in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._higher_order_ops import associative_scan, scan, while_loop  # noqa: E402
from torch._higher_order_ops.map import map as mapped  # noqa: E402

import lstm_lower as ll  # noqa: E402
from lstm_lower.errors import UnsupportedOpError  # noqa: E402


class Flow(nn.Module):
    """Reads weights in its functions; in Python, or in PyTorch's operators."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.plain = False
        torch.manual_seed(2)
        self.layer = nn.Linear(3, 3)
        self.cells = nn.GRU(3, 3, batch_first=True)
        if kind == "views":
            self.turned = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))

    def forward(self, x: Any) -> Any:
        return getattr(self, f"{self.kind}_plain" if self.plain else self.kind)(x)

    def cond(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda: self.cells(x)[0] * 2, lambda: torch.tanh(self.layer(x)))

    def cond_plain(self, x: Any) -> Any:
        return self.cells(x)[0] * 2 if x.sum() > 0 else self.layer(x).tanh()

    def given(self, x: Any) -> Any:
        """Branches are given what has a gradient, and read weights."""
        y = self.cells(x)[0]
        return torch.cond(x.sum() > 0, lambda y: self.layer(y).tanh(), lambda y: y * self.layer(y[:, -1:]), (y,))

    def given_plain(self, x: Any) -> Any:
        y = self.cells(x)[0]
        return self.layer(y).tanh() if x.sum() > 0 else y * self.layer(y[:, -1:])

    def loop(self, x: Any) -> Any:
        def step(number: Any, y: Any) -> Any:
            return number + 1, torch.tanh(self.layer(y))

        return while_loop(lambda number, _: number < 3, step, (torch.tensor(0), x))[1]

    def loop_plain(self, x: Any) -> Any:
        for _ in range(3):
            x = torch.tanh(self.layer(x))
        return x

    def scan(self, x: Any) -> Any:
        def step(carried: Any, part: Any) -> Any:
            new = torch.tanh(carried["h"] + self.layer(part))
            return {"h": new}, new * 2

        return scan(step, {"h": x.new_zeros(x.size(0), 3)}, x, dim=1)[1]

    def masked(self, x: Any) -> Any:
        """Sizes within functions depend on values."""

        def step(carried: Any, part: Any) -> Any:
            new = carried * 0.5 + part[part > 0].sum() + part
            return new, new[torch.nonzero(part[:, 0] > 0)[:, 0]].sum(0) * part

        y = torch.cond(x.sum() > 0, lambda y: self.layer(y)[y > 0.5].sum() * y, lambda y: y - y[y < 0].sum(), (x,))
        parts = scan(step, self.layer(y[:, 0]), self.layer(y), dim=1)[1]
        return while_loop(lambda n, _: n < 2, lambda n, y: (n + 1, y - y[y > 0].sum()), (torch.tensor(0), parts))[1]

    def masked_plain(self, x: Any) -> Any:
        y = self.layer(x)[x > 0.5].sum() * x if x.sum() > 0 else x - x[x < 0].sum()
        carried, parts = self.layer(y[:, 0]), []
        for part in self.layer(y).unbind(1):
            carried = carried * 0.5 + part[part > 0].sum() + part
            parts.append(carried[part[:, 0] > 0].sum(0) * part)
        y = torch.stack(parts, 1)
        for _ in range(2):
            y = y - y[y > 0].sum()
        return y

    def twice(self, x: Any) -> Any:
        """A tensor that is given twice."""
        y = torch.cond(x.sum() > 0, lambda a, b: self.layer(a) * b, lambda a, b: a + self.layer(b), (x, x))
        _, both = while_loop(lambda a, _: a.sum() < 9, lambda a, b: (a + b.exp(), b * 0.5), (y, y))
        return scan(lambda carried, parts: (carried + parts[0], carried * parts[1]), x[:, 0], (both, both), dim=1)[1]

    def twice_plain(self, x: Any) -> Any:
        y = self.layer(x) * x if x.sum() > 0 else x + self.layer(x)
        total, both, carried, parts = y, y, x[:, 0], []
        while total.sum() < 9:
            total, both = total + both.exp(), both * 0.5
        for part in both.unbind(1):
            parts.append(carried * part)
            carried = carried + part
        return torch.stack(parts, 1)

    def views(self, x: Any) -> Any:
        """Views of what is given, or read, too; PyTorch takes orthogonal weights apart."""
        y = self.turned(x)
        y = torch.cond(x.sum() > 0, lambda a, b: self.layer(a) * b, lambda a, b: a + b * y[:, :1], (y, y[..., :1]))
        return scan(lambda a, part: (a + part, a * part), y[:, 0], y, dim=1)[1]

    def views_plain(self, x: Any) -> Any:
        y = self.turned(x)
        y = self.layer(y) * y[..., :1] if x.sum() > 0 else y + y[..., :1] * y[:, :1]
        carried, parts = y[:, 0], []
        for part in y.unbind(1):
            parts.append(carried * part)
            carried = carried + part
        return torch.stack(parts, 1)

    def nested(self, x: Any) -> Any:
        """Carries and results in parts, and what is done for each part."""

        def step(carried: Any, part: Any) -> Any:
            new = torch.tanh(carried["h"] + self.layer(part))
            return {"h": new, "sum": (carried["sum"][0] + new,)}, (new * 2, {"y": new + carried["sum"][0]})

        first = x.new_zeros(x.size(0), 3)
        last, (twice, more) = scan(step, {"h": first, "sum": (first.clone(),)}, x, dim=1)
        each = mapped(lambda row: torch.tanh(self.layer(row)), x)
        sums = associative_scan(lambda a, b: a + b, each, 1, combine_mode="generic")
        looped = while_loop(
            lambda number, _: number < 2,
            lambda number, held: (number + 1, {"y": held["y"] * 2}),
            (x.sum() * 0, {"y": x}),
        )[1]["y"]
        rows, columns = torch.vmap(lambda row: (row, self.layer(row)), in_dims=1, out_dims=(0, 1))(x)
        columns = torch.vmap(torch.sub, in_dims=1, out_dims=(1,))(columns + x, rows.movedim(0, 1))
        return twice + more["y"] + last["sum"][0][:, None] + sums + looped + columns

    def nested_plain(self, x: Any) -> Any:
        h, total, parts = x.new_zeros(x.size(0), 3), x.new_zeros(x.size(0), 3), []
        for part in x.unbind(1):
            h = torch.tanh(h + self.layer(part))
            parts.append(h * 3 + total)
            total = total + h
        y = self.layer(x)
        return torch.stack(parts, 1) + total[:, None] + y.tanh().cumsum(1) + x * 4 + y

    def scan_plain(self, x: Any) -> Any:
        carried, parts = x.new_zeros(x.size(0), 3), []
        for part in x.unbind(1):
            carried = torch.tanh(carried + self.layer(part))
            parts.append(carried * 2)
        return torch.stack(parts, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cond", "given", "loop", "scan", "masked", "twice", "views", "nested"])
def test_gradients_are_those_of_python(kind: str) -> None:
    module = Flow(kind)
    step = ll.from_torch(module, torch.rand(2, 5, 3), "mse", what="gradients")
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    module.plain = True
    for sign, rows, steps in ((1, 2, 5), (-1, 3, 4), (1, 2, 1)):
        x = torch.rand(rows, steps, 3) * sign
        got = session.run({"x": x.numpy(), "target": np.zeros((rows, steps, 3), np.float32)})
        module.zero_grad()
        loss = (module(x) ** 2).mean()
        loss.backward()
        assert got["loss"] == pytest.approx(loss.item(), rel=1e-5)
        for name, parameter in module.named_parameters():
            if f"grad/{name}" in got:
                wanted = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                np.testing.assert_allclose(got[f"grad/{name}"], wanted, rtol=1e-4, atol=1e-6, err_msg=name)
        assert "grad/layer.weight" in got


class Choice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: self.first(x).tanh(), lambda x: self.second(x).sin(), (x,))


class Unread(Choice):
    """Decides by weights, and hands them to branches, neither of which reads them."""

    def forward(self, x: Any) -> Any:
        y = self.second(x)
        return torch.cond(x.sum() > y.min() * 9, lambda x, _: self.first(x).tanh(), lambda x, _: x.sin(), (x, y))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # PyTorch asks for it itself
@pytest.mark.parametrize(
    ("kind", "sign", "decaying"),
    [(Choice, 1, {"first", "second"}), (Choice, -1, {"first", "second"}), (Unread, 1, {"first"})],
)
def test_weights_that_branches_read_decay(kind: type[Choice], sign: int, decaying: set[str]) -> None:
    """PyTorch has gradients of them, zeros of those of the other branch."""
    module, x, y = kind(), torch.rand(4, 3) * sign, torch.rand(4, 3)
    optimizer = torch.optim.AdamW(module.parameters(), 0.1, weight_decay=0.5)
    trainer = ll.Trainer(ll.from_torch(module, x, "mse", optimizer, example_targets=y))
    trainer.step({"x": x.numpy(), "target": y.numpy()})
    before = {name: weight.detach().clone() for name, weight in module.named_parameters()}
    nn.functional.mse_loss(module(x), y).backward()
    optimizer.step()
    got = kind()
    trainer.to_torch(got)
    for name, weight in module.named_parameters():
        assert torch.allclose(weight, before[name], atol=1e-3) == (name.partition(".")[0] not in decaying)
        torch.testing.assert_close(got.get_parameter(name), weight)


@pytest.mark.slow
def test_weights_of_a_branch_that_a_size_leaves_do_not_decay() -> None:
    """PyTorch takes that branch as Python does, and has no gradients of the other one's weights."""

    class BySize(Choice):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.size(0) > 2, lambda x: self.first(x).tanh(), lambda x: self.second(x).sin(), (x,))

    module, x = BySize(), torch.rand(4, 3)
    with pytest.raises(UnsupportedOpError, match=r"another update of 'second.weight'"):
        ll.from_torch(module, x, "mse", torch.optim.AdamW(module.parameters(), 0.1, weight_decay=0.5))
    assert ll.from_torch(module, x, "mse", torch.optim.Adam(module.parameters(), 0.1))
