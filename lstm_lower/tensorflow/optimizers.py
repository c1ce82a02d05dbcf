"""TensorFlow's Apply ops as formulas: what each optimizer's kernel does to a variable and its slots.

A formula takes the op's operands, the variables among them with their old values, and returns the variables' new
values. Sources: `training_ops.cc` and TensorFlow's documentation of each raw op.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr


class ApplyStep:
    """Operands of an Apply op under TensorFlow's names, and its options."""

    def __init__(self, operands: Mapping[str, Expr], options: Mapping[str, bool]) -> None:
        self._operands = operands
        self.options = options

    def __getattr__(self, name: str) -> Expr:
        return self._operands[name]

    def get(self, name: str) -> Expr | None:
        """An operand that only some forms of the op have."""
        return self._operands.get(name)


Formula = Callable[[ApplyStep], dict[str, Expr]]


@dataclasses.dataclass(frozen=True)
class TensorFlowOptimizer:
    """One optimizer.

    Attributes:
        operands: names of the dense form's operands, in TensorFlow's order.
        formula: what it computes.
    """

    operands: tuple[str, ...]
    formula: Formula

    @property
    def sparse_operands(self) -> tuple[str, ...]:
        """Those of the form that changes some rows only: their numbers stand behind their gradients."""
        place = next(index for index, name in enumerate(self.operands) if name in GRADIENTS) + 1
        return (*self.operands[:place], "indices", *self.operands[place:])


# What a gradient is called, and what variables are.
GRADIENTS = ("grad", "delta")
VARIABLES = frozenset(
    (
        "var",
        "m",
        "v",
        "vhat",
        "ms",
        "mg",
        "mom",
        "accum",
        "accum_update",
        "linear",
        "gradient_accumulator",
        "gradient_squared_accumulator",
    )
)

# What the ops' attributes are where a graph does not say; the others only tell kernels how to work.
OPTIONS = {"use_nesterov": False, "update_slots": True, "multiply_linear_by_lr": False}

# Op name without its prefix (Apply or ResourceApply, SparseApply or ResourceSparseApply) -> optimizer.
OPTIMIZERS: dict[str, TensorFlowOptimizer] = {}

DENSE, SPARSE = ("Apply", "ResourceApply"), ("SparseApply", "ResourceSparseApply")


def _formula(**forms: str) -> Callable[[Formula], Formula]:
    """Registers a formula for ops, each given with its operands."""

    def register(formula: Formula) -> Formula:
        OPTIMIZERS.update(
            {name: TensorFlowOptimizer(tuple(operands.split()), formula) for name, operands in forms.items()}
        )
        return formula

    return register


def _of(op: type[std.Standard], *operands: Expr) -> Expr:
    return operands[0].builder.op(op, *operands)


@_formula(GradientDescent="var alpha delta")
def gradient_descent(o: ApplyStep) -> dict[str, Expr]:
    """Var - alpha delta."""
    return {"var": o.var - o.delta * o.alpha}


@_formula(Momentum="var accum lr grad momentum")
def momentum(o: ApplyStep) -> dict[str, Expr]:
    """Velocity in units of the gradient."""
    accum = o.accum * o.momentum + o.grad
    step = o.grad * o.lr + accum * o.momentum * o.lr if o.options["use_nesterov"] else accum * o.lr
    return {"var": o.var - step, "accum": accum}


@_formula(KerasMomentum="var accum lr grad momentum")
def keras_momentum(o: ApplyStep) -> dict[str, Expr]:
    """Velocity in units of the variable."""
    accum = o.accum * o.momentum - o.grad * o.lr
    step = accum * o.momentum - o.grad * o.lr if o.options["use_nesterov"] else accum
    return {"var": o.var + step, "accum": accum}


@_formula(
    Adam="var m v beta1_power beta2_power lr beta1 beta2 epsilon grad",
    AdamWithAmsgrad="var m v vhat beta1_power beta2_power lr beta1 beta2 epsilon grad",
)
def adam(o: ApplyStep) -> dict[str, Expr]:
    """Kingma and Ba, 2014, in the form with epsilon outside the bias correction.

    With `vhat`, with the largest second moment so far (Reddi et al., 2018).
    """
    rate = o.lr * (1.0 - o.beta2_power).sqrt() / (1.0 - o.beta1_power)
    m = o.m + (o.grad - o.m) * (1.0 - o.beta1)
    v = o.v + (o.grad * o.grad - o.v) * (1.0 - o.beta2)
    direction = m * o.beta1 + o.grad * (1.0 - o.beta1) if o.options["use_nesterov"] else m
    moments = {"m": m, "v": v}
    largest = o.get("vhat")
    if largest is not None:
        v = moments["vhat"] = largest.maximum(v)
    return {"var": o.var - direction * rate / (v.sqrt() + o.epsilon), **moments}


@_formula(AdaMax="var m v beta1_power lr beta1 beta2 epsilon grad")
def adamax(o: ApplyStep) -> dict[str, Expr]:
    """Adam with the largest absolute gradient in place of the second moment."""
    m = o.m + (o.grad - o.m) * (1.0 - o.beta1)
    v = (o.v * o.beta2).maximum(o.grad.abs())
    return {"var": o.var - m * (o.lr / (1.0 - o.beta1_power)) / (v + o.epsilon), "m": m, "v": v}


@_formula(
    RMSProp="var ms mom lr rho momentum epsilon grad",
    CenteredRMSProp="var mg ms mom lr rho momentum epsilon grad",
)
def rmsprop(o: ApplyStep) -> dict[str, Expr]:
    """Gradient over the root of its mean square, epsilon inside the root; with `mg`, of the variance in its place."""
    square = o.ms + (o.grad * o.grad - o.ms) * (1.0 - o.rho)
    means = {"ms": square}
    mean = o.get("mg")
    if mean is not None:
        means["mg"] = mean + (o.grad - mean) * (1.0 - o.rho)
        square = square - means["mg"] * means["mg"]
    mom = o.mom * o.momentum + o.grad * o.lr / (square + o.epsilon).sqrt()
    return {"var": o.var - mom, **means, "mom": mom}


@_formula(Adagrad="var accum lr grad", AdagradV2="var accum lr epsilon grad")
def adagrad(o: ApplyStep) -> dict[str, Expr]:
    """Gradient over the root of its sum of squares; V2 with an epsilon outside the root."""
    accum = o.accum + o.grad * o.grad if o.options["update_slots"] else o.accum
    epsilon = o.get("epsilon")
    root = accum.sqrt() if epsilon is None else accum.sqrt() + epsilon
    return {"var": o.var - o.grad * o.lr / root, "accum": accum}


@_formula(Adadelta="var accum accum_update lr rho epsilon grad")
def adadelta(o: ApplyStep) -> dict[str, Expr]:
    """Zeiler, 2012."""
    accum = o.accum * o.rho + o.grad * o.grad * (1.0 - o.rho)
    update = (o.accum_update + o.epsilon).sqrt() / (accum + o.epsilon).sqrt() * o.grad
    accum_update = o.accum_update * o.rho + update * update * (1.0 - o.rho)
    return {"var": o.var - update * o.lr, "accum": accum, "accum_update": accum_update}


def _shrunk(x: Expr, threshold: Expr) -> Expr:
    """X nearer to 0 by a threshold, and 0 within it: what an L1 norm asks for."""
    return _of(std.Sign, x) * (x.abs() - threshold).maximum(0.0)


@_formula(ProximalGradientDescent="var alpha l1 l2 delta")
def proximal_gradient_descent(o: ApplyStep) -> dict[str, Expr]:
    """Duchi and Singer, 2009: a step, and then towards 0 as the norms ask for."""
    return {"var": _shrunk(o.var - o.delta * o.alpha, o.alpha * o.l1) / (o.alpha * o.l2 + 1.0)}


@_formula(ProximalAdagrad="var accum lr l1 l2 grad")
def proximal_adagrad(o: ApplyStep) -> dict[str, Expr]:
    """The same with Adagrad's rate for each element."""
    accum = o.accum + o.grad * o.grad
    rate = o.lr / accum.sqrt()
    return {"var": _shrunk(o.var - o.grad * rate, rate * o.l1) / (rate * o.l2 + 1.0), "accum": accum}


@_formula(AdagradDA="var gradient_accumulator gradient_squared_accumulator grad lr l1 l2 global_step")
def adagrad_dual_averaging(o: ApplyStep) -> dict[str, Expr]:
    """Duchi et al., 2011: from all gradients so far at once, whatever the variable holds."""
    total = o.gradient_accumulator + o.grad
    squares = o.gradient_squared_accumulator + o.grad * o.grad
    steps = o.global_step.cast(o.var.dtype)
    var = -(_shrunk(total, o.l1 * steps) * o.lr) / (o.l2 * steps * o.lr + squares.sqrt())
    return {"var": var, "gradient_accumulator": total, "gradient_squared_accumulator": squares}


@_formula(AddSign="var m lr alpha sign_decay beta grad", PowerSign="var m lr logbase sign_decay beta grad")
def by_sign(o: ApplyStep) -> dict[str, Expr]:
    """Bello et al., 2017: larger steps where the gradient has the sign that it has on average."""
    m = o.m * o.beta + o.grad * (1.0 - o.beta)
    agreement = _of(std.Sign, o.grad) * _of(std.Sign, m) * o.sign_decay
    alpha = o.get("alpha")
    scale = _of(std.Exp, agreement * o.logbase) if alpha is None else agreement + alpha
    return {"var": o.var - o.grad * scale * o.lr, "m": m}


@_formula(
    Ftrl="var accum linear grad lr l1 l2 lr_power",
    FtrlV2="var accum linear grad lr l1 l2 l2_shrinkage lr_power",
)
def ftrl(o: ApplyStep) -> dict[str, Expr]:
    """McMahan et al., 2013: follow the regularised leader; V2 adds a penalty on the variable to the gradient.

    With `multiply_linear_by_lr`, all of it in units of the learning rate.
    """
    shrinkage, in_units = o.get("l2_shrinkage"), o.options["multiply_linear_by_lr"]
    gradient = o.grad if shrinkage is None else o.grad + o.var * (shrinkage * 2.0)
    accum = o.accum + o.grad * o.grad
    power = -o.lr_power
    new, old = _of(std.Pow, accum, power), _of(std.Pow, o.accum, power)
    if in_units:
        linear = o.linear + gradient * o.lr - (new - old) * o.var
        threshold, quadratic = o.l1 * o.lr, new + o.l2 * o.lr * 2.0
    else:
        linear = o.linear + gradient - (new - old) / o.lr * o.var
        threshold, quadratic = o.l1, new / o.lr + o.l2 * 2.0
    # Where nothing was ever learned the quotient is 0 / 0, but the threshold not passed.
    var = o.var.builder.where(linear.abs() > threshold, -_shrunk(linear, threshold) / quadratic, 0.0)
    return {"var": var, "accum": accum, "linear": linear}
