"""Decoders as builders of language models write them for onnxruntime: fused operators, weights of 4 bits, past keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import lstm_lower as ll
from lstm_lower.ops.ort_elementwise import MICROSOFT
from lstm_lower.runtime.session import _loadable

WORDS, SIZE, HEADS, SHARED, WIDTH, INNER, LAYERS = 12, 32, 4, 2, 16, 48, 2
BATCH, STEPS = 3, 5
# In onnxruntime's domain; SimplifiedLayerNormalization it has in ONNX's.
FUSED = {"GroupQueryAttention", "MatMulNBits", "SkipSimplifiedLayerNormalization"}


class Decoder:
    """Writes a decoder of random weights, node by node."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, name: str, value: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, name: str, *shape: int, scale: float = 0.3) -> str:
        return self.constant(name, (self.random.standard_normal(shape) * scale).astype(np.float32))

    def op(self, op: str, inputs: list[str], *outputs: str, **attributes: Any) -> str:
        domain = MICROSOFT if op in FUSED else ""
        self.nodes.append(helper.make_node(op, inputs, list(outputs), outputs[0], domain=domain, **attributes))
        return outputs[0]

    def product(self, x: str, name: str, inner: int, outer: int) -> str:
        bits = self.constant(f"{name}_bits", self.random.integers(0, 256, (outer, inner // 16, 8), np.uint8))
        scales = np.abs(self.random.standard_normal((outer, inner // 16))) * 0.03
        operands = [x, bits, self.constant(f"{name}_scales", scales.astype(np.float32))]
        return self.op("MatMulNBits", operands, name, K=inner, N=outer, block_size=16, bits=4)

    def layer(self, number: int, x: str, rest: str) -> tuple[str, str]:
        def name(what: str) -> str:
            return f"{what}.{number}"

        wide, narrow = HEADS * WIDTH, SHARED * WIDTH
        parts = [self.product(x, name(part), SIZE, size) for part, size in (("q", wide), ("k", narrow), ("v", narrow))]
        past, present = ([name(f"{when}_{part}") for part in ("key", "value")] for when in ("past", "present"))
        operands = [*parts, *past, "lengths", "total", "cosines", "sines"]
        groups = {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": 1}
        y = self.op("GroupQueryAttention", operands, name("attention"), *present, **groups)
        y = self.product(y, name("o"), wide, SIZE)
        operands, results = [rest, y, self.weight(name("norm"), SIZE)], [name("normed"), "", "", name("sum")]
        y = self.op("SkipSimplifiedLayerNormalization", operands, *results, epsilon=1e-5)
        gate, up = (self.product(y, name(part), SIZE, INNER) for part in ("gate", "up"))
        swish = self.op("Mul", [gate, self.op("Sigmoid", [gate], name("sigmoid"))], name("swish"))
        y = self.product(self.op("Mul", [swish, up], name("gated")), name("down"), INNER, SIZE)
        operands, results = [name("sum"), y, self.weight(name("last"), SIZE)], [name("out"), "", "", name("rest")]
        return self.op("SkipSimplifiedLayerNormalization", operands, *results, epsilon=1e-5), name("rest")

    def model(self) -> onnx.ModelProto:
        angles = np.arange(16)[:, None] * 100.0 ** -(np.arange(WIDTH // 2) / 8)
        for name, table in (("cosines", np.cos(angles)), ("sines", np.sin(angles))):
            self.constant(name, table.astype(np.float32))
        one = self.constant("one", np.array([1]))
        count = self.op("ReduceSum", ["mask", one], "count", keepdims=0)
        self.op("Cast", [self.op("Sub", [count, one], "last_place")], "lengths", to=onnx.TensorProto.INT32)
        width = self.op("Gather", [self.op("Shape", ["mask"], "sizes"), self.constant("axis", np.array(1))], "width")
        self.op("Cast", [width], "total", to=onnx.TensorProto.INT32)
        rest = self.op("Gather", [self.weight("words", WORDS, SIZE, scale=1), "ids"], "word")
        x = self.op("SimplifiedLayerNormalization", [rest, self.weight("first", SIZE)], "x", axis=-1, epsilon=1e-5)
        for number in range(LAYERS):
            x, rest = self.layer(number, x, rest)
        self.op("MatMul", [x, self.weight("head", SIZE, WORDS)], "logits")
        info, floating, whole = helper.make_tensor_value_info, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
        inputs = [info("ids", whole, ["B", "S"]), info("mask", whole, ["B", "T"])]
        caches = [f"{part}.{number}" for number in range(LAYERS) for part in ("key", "value")]
        inputs += [info(f"past_{name}", floating, ["B", SHARED, "P", WIDTH]) for name in caches]
        outputs = [info("logits", floating, ["B", "S", WORDS])]
        outputs += [info(f"present_{name}", floating, ["B", SHARED, "T", WIDTH]) for name in caches]
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.weights)
        # Builders do not import the domain of their operators either.
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def decoder() -> onnx.ModelProto:
    return Decoder().model()


@pytest.fixture
def feeds() -> dict[str, Any]:
    random = np.random.default_rng(1)
    caches = [f"past_{part}.{number}" for number in range(LAYERS) for part in ("key", "value")]
    nothing = np.zeros((BATCH, SHARED, 0, WIDTH), np.float32)
    words = random.integers(0, WORDS, (BATCH, STEPS))
    return {"ids": words, "mask": np.ones((BATCH, STEPS), np.int64), **dict.fromkeys(caches, nothing)}


def test_a_decoder_reads_and_goes_on(decoder: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    original, lowered = session(decoder), session(ll.lower(decoder))
    read = original.run(None, feeds)
    past = dict(zip(list(feeds)[2:], read[1:], strict=True))
    further = {"ids": feeds["ids"][:, :1], "mask": np.ones((BATCH, STEPS + 1), np.int64), **past}
    for given in (feeds, further):
        for ours, theirs in zip(lowered.run(None, given), original.run(None, given), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)


def test_a_session_leaves_it_to_onnxruntimes_kernels(decoder: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    """Written in other operators it would take eight times the memory."""
    found = ll.Session(decoder)
    (logits,) = session(decoder).run(["logits"], feeds)
    np.testing.assert_array_equal(found.run(feeds)["logits"], logits)
    kept = {node.op_type for node in ll.optimize(decoder).graph.node}
    assert {"SimplifiedLayerNormalization", *FUSED} < kept


@pytest.mark.parametrize("provider", ["CUDAExecutionProvider", "OpenVINOExecutionProvider", "ggml"])
def test_other_providers_leave_it_to_them_too(decoder: onnx.ModelProto, provider: str) -> None:
    _, loaded = _loadable(decoder, [(provider, {})])
    assert {node.domain for node in loaded.graph} == {"", MICROSOFT}


def test_a_decoder_is_trained(decoder: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    """Its tables of angles stay what they are, and so do the bits and their scales."""
    trainer = ll.Trainer(ll.from_onnx(decoder, "mse", "adam"), learning_rate=0.01)
    trained = set(trainer.weights())
    assert {"words", "first", "head", "norm.0"} < trained
    assert trained.isdisjoint({"cosines", "sines", "q.1_bits", "q.1_scales"})
    target = np.eye(WORDS, dtype=np.float32)[feeds["ids"]]
    losses = trainer.fit({**feeds, "target": target}, epochs=8, batch_size=BATCH)["loss"]
    assert losses[-1] < losses[0] / 2
