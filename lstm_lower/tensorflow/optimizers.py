"""TensorFlow's Apply ops as formulas: what each optimizer's kernel does to a variable and its slots.

Each function takes the op's operands under TensorFlow's names, the variables among them with their old values, and
returns the variables' new values. Sources: `training_ops.cc` and TensorFlow's documentation of each raw op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lstm_lower.tensorflow.graph import Tensor

Formula = Callable[..., dict[str, Tensor]]

# Op name without its prefix (Apply or ResourceApply) -> formula.
FORMULAS: dict[str, Formula] = {}


def _formula(*names: str) -> Callable[[Formula], Formula]:
    def register(function: Formula) -> Formula:
        FORMULAS.update(dict.fromkeys(names, function))
        return function

    return register


def formula_of(op: str) -> Formula | None:
    """The formula of an Apply op, on reference or resource variables, or `None`."""
    for prefix in ("ResourceApply", "Apply"):
        if op.startswith(prefix):
            return FORMULAS.get(op.removeprefix(prefix))
    return None


@_formula("GradientDescent")
def gradient_descent(*, var: Tensor, alpha: Tensor, delta: Tensor, **_: Any) -> dict[str, Tensor]:
    """Var - alpha delta."""
    return {"var": var - delta * alpha}


@_formula("Momentum")
def momentum(
    *, var: Tensor, accum: Tensor, lr: Tensor, grad: Tensor, momentum: Tensor, use_nesterov: bool, **_: Any
) -> dict[str, Tensor]:
    """Velocity in units of the gradient."""
    accum = accum * momentum + grad
    step = grad * lr + accum * momentum * lr if use_nesterov else accum * lr
    return {"var": var - step, "accum": accum}


@_formula("KerasMomentum")
def keras_momentum(
    *, var: Tensor, accum: Tensor, lr: Tensor, grad: Tensor, momentum: Tensor, use_nesterov: bool, **_: Any
) -> dict[str, Tensor]:
    """Velocity in units of the variable."""
    accum = accum * momentum - grad * lr
    step = accum * momentum - grad * lr if use_nesterov else accum
    return {"var": var + step, "accum": accum}


@_formula("Adam", "AdamWithAmsgrad")
def adam(
    *,
    var: Tensor,
    m: Tensor,
    v: Tensor,
    vhat: Tensor | None = None,
    beta1_power: Tensor,
    beta2_power: Tensor,
    lr: Tensor,
    beta1: Tensor,
    beta2: Tensor,
    epsilon: Tensor,
    grad: Tensor,
    use_nesterov: bool,
    **_: Any,
) -> dict[str, Tensor]:
    """Kingma and Ba, 2014, in the form with epsilon outside the bias correction.

    With `vhat`, with the largest second moment so far (Reddi et al., 2018).
    """
    rate = lr * (1.0 - beta2_power).sqrt() / (1.0 - beta1_power)
    m = m + (grad - m) * (1.0 - beta1)
    v = v + (grad * grad - v) * (1.0 - beta2)
    direction = m * beta1 + grad * (1.0 - beta1) if use_nesterov else m
    moments = {"m": m, "v": v}
    if vhat is not None:
        v = moments["vhat"] = vhat.maximum(v)
    return {"var": var - direction * rate / (v.sqrt() + epsilon), **moments}


@_formula("AdaMax")
def adamax(
    *,
    var: Tensor,
    m: Tensor,
    v: Tensor,
    beta1_power: Tensor,
    lr: Tensor,
    beta1: Tensor,
    beta2: Tensor,
    epsilon: Tensor,
    grad: Tensor,
    **_: Any,
) -> dict[str, Tensor]:
    """Adam with the largest absolute gradient in place of the second moment."""
    m = m + (grad - m) * (1.0 - beta1)
    v = (v * beta2).maximum(grad.abs())
    return {"var": var - m * (lr / (1.0 - beta1_power)) / (v + epsilon), "m": m, "v": v}


@_formula("RMSProp", "CenteredRMSProp")
def rmsprop(
    *,
    var: Tensor,
    mg: Tensor | None = None,
    ms: Tensor,
    mom: Tensor,
    lr: Tensor,
    rho: Tensor,
    momentum: Tensor,
    epsilon: Tensor,
    grad: Tensor,
    **_: Any,
) -> dict[str, Tensor]:
    """Gradient over the root of its mean square, epsilon inside the root; with `mg`, of the variance in its place."""
    ms = ms + (grad * grad - ms) * (1.0 - rho)
    means = {"ms": ms}
    if mg is not None:
        means["mg"] = mg + (grad - mg) * (1.0 - rho)
        ms = ms - means["mg"] * means["mg"]
    mom = mom * momentum + grad * lr / (ms + epsilon).sqrt()
    return {"var": var - mom, **means, "mom": mom}


@_formula("Adagrad", "AdagradV2")
def adagrad(
    *, var: Tensor, accum: Tensor, lr: Tensor, epsilon: Tensor | None = None, grad: Tensor, update_slots: bool, **_: Any
) -> dict[str, Tensor]:
    """Gradient over the root of its sum of squares; V2 with an epsilon outside the root."""
    if update_slots:
        accum = accum + grad * grad
    root = accum.sqrt() if epsilon is None else accum.sqrt() + epsilon
    return {"var": var - grad * lr / root, "accum": accum}


@_formula("Adadelta")
def adadelta(
    *,
    var: Tensor,
    accum: Tensor,
    accum_update: Tensor,
    lr: Tensor,
    rho: Tensor,
    epsilon: Tensor,
    grad: Tensor,
    **_: Any,
) -> dict[str, Tensor]:
    """Zeiler, 2012."""
    accum = accum * rho + grad * grad * (1.0 - rho)
    update = (accum_update + epsilon).sqrt() / (accum + epsilon).sqrt() * grad
    accum_update = accum_update * rho + update * update * (1.0 - rho)
    return {"var": var - update * lr, "accum": accum, "accum_update": accum_update}
