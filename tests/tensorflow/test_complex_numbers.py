"""Complex numbers and Fourier transforms in graphs, and training steps through them, against TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.dtypes import parts_of

tf = pytest.importorskip("tensorflow")

Loss = Callable[..., Any]


def normal(*shape: int) -> Any:
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(np.float32)


def spectrogram(x: Any, w: Any) -> Any:
    mel = tf.signal.linear_to_mel_weight_matrix(16, 129, 8000)
    magnitude = tf.abs(tf.signal.stft(x[:, 1:] - 0.9 * x[:, :-1], 200, 80, 256))
    return tf.reduce_mean(tf.square(tf.math.log(magnitude @ mel + 1e-3) @ w))


def spectral_loss(x: Any, w: Any) -> Any:
    made, loss = tf.tanh(x @ w), 0.0
    for length, hop in ((100, 25), (128, 32)):
        wanted, found = (tf.abs(tf.signal.stft(y, length, hop, length, pad_end=True)) for y in (x, made))
        loss += tf.norm(wanted - found) / tf.norm(wanted)
        loss += tf.reduce_mean(tf.abs(tf.math.log(wanted + 1e-4) - tf.math.log(found + 1e-4)))
    return loss


def fnet(x: Any, w: Any) -> Any:
    mixed = x + tf.math.real(tf.signal.fft2d(tf.cast(x, tf.complex64)))
    return tf.reduce_mean(tf.square(tf.nn.gelu(mixed @ w)))


def filtered(x: Any, w: Any) -> Any:
    spectra = tf.signal.stft(x, 32, 8) * tf.complex(w[0], w[1]) / tf.complex(1 + w[0] ** 2, w[1])
    signal = tf.signal.inverse_stft(spectra, 32, 8, window_fn=tf.signal.inverse_stft_window_fn(8))
    return tf.reduce_mean(tf.square(signal)) + tf.reduce_mean(tf.square(tf.math.angle(spectra)))


def convolved(x: Any, w: Any) -> Any:
    return tf.reduce_mean(tf.signal.irfft(tf.signal.rfft(x, [15]) * tf.signal.rfft(w, [15]), [15]) ** 2)


def image(x: Any, w: Any) -> Any:
    turned = tf.signal.rfft2d(x * w) * tf.exp(tf.complex(0.0, w[:, :5]))
    return tf.reduce_mean(tf.abs(turned)) + tf.reduce_mean(tf.signal.irfft2d(turned) ** 2)


def recurrent(x: Any, w: Any) -> Any:
    """A complex state, which a loop carries, and complex lists of its gradient."""
    h = tf.zeros([2, 4], tf.complex64)
    for t in tf.range(tf.shape(x)[1]):
        h = tf.matmul(h, tf.complex(w[0], w[1])) + tf.cast(x[:, t], tf.complex64)
        h = h / tf.cast(1.0 + tf.abs(h), tf.complex64)
    return tf.reduce_mean(tf.abs(h) ** 2) + tf.reduce_sum(tf.math.imag(h))


def gathered(x: Any, w: Any) -> Any:
    """Rows of complex numbers, whose gradients are added up."""
    rows = tf.gather(tf.complex(w[0], w[1]), [1, 0, 1])
    spread = tf.scatter_nd([[2], [2], [0]], rows, [3, 4]) * tf.cast(x, tf.complex64)
    return tf.reduce_mean(tf.abs(spread + 0.5))


STEPS: dict[str, tuple[Loss, tuple[int, ...], tuple[int, ...]]] = {
    "spectrogram": (spectrogram, (3, 1000), (16, 4)),
    "spectral-loss": (spectral_loss, (2, 300), (300, 300)),
    "fnet": (fnet, (2, 10, 12), (12, 12)),
    "filter": (filtered, (2, 128), (2, 17)),
    "convolution": (convolved, (2, 15), (15,)),
    "image": (image, (2, 6, 8), (6, 8)),
    "gathered": (gathered, (3, 4), (2, 2, 4)),
    "recurrent": (recurrent, (2, 5, 4), (2, 4, 4)),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "open_sizes"), [(name, number % 4 != 3) for number, name in enumerate(STEPS)])
def test_steps_are_those_of_tensorflow(name: str, open_sizes: bool) -> None:
    loss_of, shape, weights = STEPS[name]
    w = tf.Variable(0.3 * normal(*weights), name="w")

    def step(x: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = loss_of(x, w)
        w.assign_sub(0.05 * tape.gradient(loss, w))
        return {"loss": loss}

    # Of products with weights the last size is known.
    sizes = [None] * (len(shape) - 1) + [None if name == "spectrogram" else shape[-1]] if open_sizes else shape
    traced = tf.function(step, input_signature=[tf.TensorSpec(sizes, tf.float32, name="x")])
    trainer = ll.Trainer(ll.from_tensorflow(traced))
    for number in range(3):
        x = normal(*shape) + np.float32(0.1 * number)
        np.testing.assert_allclose(trainer.step({"x": x}).loss, traced(x)["loss"], rtol=2e-5)


def test_a_function_is_imported_after_gradients_were_taken_through_it() -> None:
    @tf.function(input_signature=[tf.TensorSpec([2, 300], tf.float32, name="x")])
    def loss_of(x: Any) -> dict[str, Any]:
        spectra = tf.signal.stft(x, 100, 40, 128)
        return {
            "loss": tf.reduce_mean(tf.math.log(tf.abs(spectra) + 1e-3)) + tf.reduce_mean(tf.math.angle(spectra) ** 2)
        }

    x = tf.constant(normal(2, 300))
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = loss_of(x)["loss"]
    wanted = tape.gradient(loss, x).numpy()
    model = ll.gradient(ll.from_tensorflow(loss_of), of="loss", wrt=["x"])
    found = ll.Session(ll.lower(model)).run({"x": x.numpy()})
    np.testing.assert_allclose(found["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(found["grad/x"], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("length", [5, 8])
def test_eager_calls_take_and_return_complex_numbers(length: int) -> None:
    x = (normal(2, length) + 1j * normal(length, 2).T).astype(np.complex64)
    found = ll.raw_ops.FFT(input=ll.raw_ops.Mul(x=x, y=2j))
    assert found.dtype == np.complex64
    np.testing.assert_allclose(found, np.fft.fft(2j * x), rtol=0, atol=1e-5)
    real = ll.raw_ops.IRFFT(input=x, fft_length=np.array([length], np.int32))
    np.testing.assert_allclose(real, np.fft.irfft(x, length), rtol=0, atol=1e-5)


def test_complex_inputs_and_outputs_are_pairs() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.complex64, name="x")])
    def double(x: Any) -> dict[str, Any]:
        y = tf.concat(
            [x, tf.cond(tf.math.real(x[0, 0]) > 0, lambda: x * 2.0, lambda: x * tf.constant(1j, tf.complex64))], 0
        )
        return {"y": y, "shape": tf.shape(y)}

    session = ll.Session(ll.from_tensorflow(double))
    for sign in (1, -1):
        x = sign * (np.abs(normal(2, 3)) + 1j * normal(2, 3)).astype(np.complex64)
        found, wanted = session.run({"x": parts_of(x)}), double(x)
        np.testing.assert_allclose(found["y"], parts_of(wanted["y"].numpy()), rtol=1e-6)
        assert found["shape"].tolist() == [4, 3]


def test_what_has_no_form_in_parts_is_refused() -> None:
    @tf.function(input_signature=[tf.TensorSpec([3], tf.complex64, name="x")])
    def f(x: Any) -> Any:
        return tf.raw_ops.Exp(x=x) + tf.raw_ops.Tanh(x=x)

    with pytest.raises(ll.UnsupportedOpError, match=r"Tanh.* requires real numbers, got complex64"):
        ll.from_tensorflow(f)


@pytest.mark.parametrize("function", [tf.math.log, tf.sqrt, tf.tanh, tf.math.reduce_prod, lambda z: z**1.5])
def test_functions_of_real_numbers_alone_say_how_to_go_on(function: Callable[[Any], Any]) -> None:
    @tf.function(input_signature=[tf.TensorSpec([3], tf.complex64, name="z")])
    def of(z: Any) -> Any:
        return tf.abs(function(z))

    with pytest.raises(ll.UnsupportedOpError, match=r"got complex64; write it with tf.math.real"):
        ll.from_tensorflow(of)
