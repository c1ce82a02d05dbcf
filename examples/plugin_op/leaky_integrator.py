"""A leaky integrator over a sequence, y[t] = decay * y[t-1] + x[t] @ w, and its gradient: two ops for lstm-lower."""

import numpy as np

from lstm_lower.extend import OpDef, Pairing, attr, lowers, operand, oracle, pairs


class LeakyIntegrator(OpDef):
    """y[t] = decay * y[t-1] + x[t] @ w, from y = 0 on. T steps, B batch, I inputs, H units."""

    domain = "com.example"

    class Types:
        T = ("float16", "float32", "float64")

    class Inputs:
        x = operand("T B I")
        w = operand("I H")

    class Outputs:
        y = operand("T B H")

    class Attrs:
        decay = attr(float, 0.9)


class LeakyIntegratorGrad(OpDef):
    """Gradient of LeakyIntegrator."""

    domain = "com.example"
    forward = "LeakyIntegrator"

    class Types:
        T = ("float16", "float32", "float64")

    class Inputs:
        x = operand("T B I")
        w = operand("I H")
        y_grad = operand("T B H")

    class Outputs:
        x_grad = operand("T B I")
        w_grad = operand("I H")

    class Attrs:
        decay = attr(float, 0.9)


@lowers(LeakyIntegrator)
def lower_leaky_integrator(n, b):
    """The recurrence of the definition."""

    def step(states, inputs):
        y = states[0] * n.decay + inputs[0] @ n.w
        return [y], [y]

    start = b.fill(0, [n.size("B"), n.size("H")], n.x.dtype)
    _, (y,) = b.scan(step, states=[start], inputs=[n.x])
    return y


@lowers(LeakyIntegratorGrad)
def lower_leaky_integrator_grad(n, b):
    """Backwards in time: the gradient of y[t] is y_grad[t] plus decay times the gradient of y[t+1]."""

    def step(states, inputs):
        later, w_grad = states
        x, y_grad = inputs
        total = later * n.decay + y_grad
        return [total, w_grad + x.mT @ total], [total @ n.w.mT]

    nothing = b.fill(0, [n.size("B"), n.size("H")], n.x.dtype)
    states = [nothing, b.zeros_like(n.w)]
    (_, w_grad), (x_grad,) = b.scan(step, states=states, inputs=[n.x, n.y_grad], reverse=True)
    return [x_grad, w_grad]


def weights(steps, decay):
    """The factor of x[s] @ w in y[t], as a matrix [t, s]: decay ** (t - s), and 0 for later steps s."""
    age = np.arange(steps)[:, None] - np.arange(steps)
    return np.where(age >= 0, decay ** np.maximum(age, 0.0), 0)


@oracle(LeakyIntegrator)
def leaky_integrator(*, x, w, decay=0.9):
    """A sum over all steps so far, without a recurrence."""
    x, w = np.asarray(x, np.float64), np.asarray(w, np.float64)
    return {"y": np.einsum("ts,sbi,ih->tbh", weights(len(x), decay), x, w)}


@oracle(LeakyIntegratorGrad)
def leaky_integrator_grad(*, x, w, y_grad, decay=0.9):
    """Step s contributes to y[s] and all later outputs."""
    x, w, y_grad = (np.asarray(value, np.float64) for value in (x, w, y_grad))
    total = np.einsum("ts,tbh->sbh", weights(len(x), decay), y_grad)
    return {"x_grad": total @ w.T, "w_grad": np.einsum("tbi,tbh->ih", x, total)}


def sample(rng, attributes):
    """Small operands of LeakyIntegrator."""
    return {"x": rng.normal(size=(5, 2, 3)), "w": rng.normal(size=(3, 4))}


def gradients(operands, outputs):
    """Which output of LeakyIntegratorGrad is the gradient of which operand of LeakyIntegrator."""
    return {"x": outputs["x_grad"], "w": outputs["w_grad"]}


pairs(LeakyIntegratorGrad, Pairing(LeakyIntegrator, {"y_grad": "y"}, gradients, sample))
