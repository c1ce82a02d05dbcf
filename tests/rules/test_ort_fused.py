"""Ops that onnxruntime's optimizers fuse: its own kernels, formulas where it has none, and differences."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import lstm_lower as ll
from lstm_lower.opdef import REGISTRY
from lstm_lower.ops.ort_elementwise import MICROSOFT
from lstm_lower.runtime.proof.check import check

FOLDER = Path(__file__).parents[1] / "data" / "onnxruntime_fused"

Arrays = dict[str, Any]


class Case(NamedTuple):
    op: str
    operands: Arrays
    attributes: Mapping[str, Any] = MappingProxyType({})
    outputs: tuple[str, ...] = ()
    # What onnxruntime's kernels for processors do not have.
    alone: bool = False


def cases() -> list[Case]:
    rng = np.random.default_rng(0)

    def n(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    def ints(*values: Any, dtype: Any = np.int32) -> Any:
        return np.array(values, dtype)

    skip = {"input": n(2, 3, 4), "skip": n(2, 3, 4), "gamma": n(4)}
    both = ("output", "input_skip_bias_sum")
    statistics = ("mean", "inv_std_var")
    words = {
        "input_ids": rng.integers(0, 7, (2, 3), np.int32),
        "word_embedding": n(7, 4),
        "position_embedding": n(5, 4),
    }
    words |= {"gamma": n(4), "beta": n(4)}
    segments = {"segment_ids": rng.integers(0, 2, (2, 3), np.int32), "segment_embedding": n(2, 4)}
    mask = ints([1, 1, 0], [1, 1, 1])
    image = {"X": n(2, 4, 5, 5), "W": n(3, 4, 3, 3), "B": n(3)}
    rows = {"A": n(3, 4), "B": n(4, 5), "C": n(5)}
    layer = {"input": n(2, 3, 8), "weights": n(8, 24), "bias": n(24)}
    heads = {"query": n(2, 3, 8), "key": n(2, 5, 8), "value": n(2, 5, 8)}
    square = {"query": n(2, 3, 8), "key": n(2, 3, 8), "value": n(2, 3, 8)}
    past = {"past_key": n(2, 2, 2, 4), "past_value": n(2, 2, 2, 4)}
    angles = rng.uniform(0, 3, (9, 4))
    tables = {"cos_cache": np.cos(angles).astype(np.float32), "sin_cache": np.sin(angles).astype(np.float32)}
    narrow = {name: np.ascontiguousarray(table[:, :2]) for name, table in tables.items()}
    groups = {"query": n(2, 3, 64), "key": n(2, 3, 32), "value": n(2, 3, 32)}
    angles = rng.uniform(0, 3, (9, 8))
    wide = {"cos_cache": np.cos(angles).astype(np.float32), "sin_cache": np.sin(angles).astype(np.float32)}
    two = {"num_heads": 2}
    shared = {"num_heads": 4, "kv_num_heads": 2}
    prompt = {"seqlens_k": ints(2, 2), "total_sequence_length": ints(3)[0:1].reshape(())}
    buffered = {"past_key": n(2, 2, 9, 16), "past_value": n(2, 2, 9, 16)}
    grown = {"past_key": n(2, 2, 4, 16), "past_value": n(2, 2, 4, 16)}
    present = ("output", "present_key", "present_value")

    def quantized(bits: int, size: int, inner: int) -> Arrays:
        blocks = -(-inner // size)
        packed = rng.integers(0, 256, (5, blocks, size * bits // 8), np.uint8)
        return {"A": n(2, 3, inner), "B": packed, "scales": np.abs(n(5, blocks))}

    def table(bits: int, size: int) -> Arrays:
        data = rng.integers(0, 256, (5, size * bits // 8), np.uint8)
        return {"data": data, "scales": np.abs(n(5, -(-size // 16)))}

    def points(bits: int, blocks: int) -> Arrays:
        return {"zero_points": rng.integers(0, 256, (5, -(-blocks * bits // 8)), np.uint8)}

    def layer_of_integers(directions: int, *columns: int, dtype: Any = np.int8) -> Arrays:
        middle = 0 if dtype is np.int8 else 128
        shapes = {"W": (directions, 3, 16), "R": (directions, 4, 16)}
        found = {name: rng.integers(middle - 8, middle + 9, shape, dtype) for name, shape in shapes.items()}
        for name in shapes:
            found[f"{name}_scale"] = rng.uniform(0.05, 0.1, (directions, *columns)).astype(np.float32)
            found[f"{name}_zero_point"] = rng.integers(middle - 2, middle + 3, (directions, *columns), dtype)
        return {"X": n(5, 2, 3), **found}

    states = {"initial_h": n(2, 2, 4), "initial_c": n(2, 2, 4)}
    both_ways = {"hidden_size": 4, "direction": "bidirectional"}
    of_layer = ("Y", "Y_h", "Y_c")
    return [
        Case("DynamicQuantizeLSTM", layer_of_integers(1), {"hidden_size": 4}, of_layer, alone=True),
        Case(
            "DynamicQuantizeLSTM",
            {**layer_of_integers(2, 16, dtype=np.uint8), **states, "B": n(2, 32), "P": n(2, 12)},
            both_ways,
            of_layer,
            alone=True,
        ),
        Case(
            "DynamicQuantizeLSTM",
            {**layer_of_integers(1, 16), "sequence_lens": ints(5, 2)},
            {"hidden_size": 4, "direction": "reverse"},
            ("Y",),
            alone=True,
        ),
        Case("SkipLayerNormalization", {**skip, "beta": n(4), "bias": n(4)}, {"epsilon": 0.125}, both),
        Case("SkipLayerNormalization", {**skip, "skip": n(3, 4), "beta": n(4)}),
        Case("SkipLayerNormalization", {**skip, "skip": n(1, 3, 4)}, {}, ("output", *statistics), alone=True),
        Case("SkipSimplifiedLayerNormalization", {**skip, "bias": n(4)}, {"epsilon": 0.125}, both),
        Case("SkipSimplifiedLayerNormalization", skip, {}, ("output", "inv_std_var"), alone=True),
        Case("EmbedLayerNormalization", words, {}, ("output", "mask_index")),
        Case(
            "EmbedLayerNormalization",
            {**words, **segments, "mask": mask},
            {},
            ("output", "mask_index", "embedding_sum"),
        ),
        Case("EmbedLayerNormalization", {**words, "position_ids": ints([4, 0, 1])}, {"epsilon": 0.0625}),
        Case("EmbedLayerNormalization", {**words, "position_ids": ints([4, 0, 1], [2, 2, 3])}, {"epsilon": 0.0625}),
        Case("FusedConv", {**image, "Z": n(2, 3, 5, 5)}, {"activation": "Relu", "pads": [1, 1, 1, 1]}),
        Case("FusedConv", image, {"activation": "LeakyRelu", "activation_params": [0.25], "strides": [2, 1]}),
        Case("FusedConv", image, {"activation": "Clip", "activation_params": [-1.0, 2.0]}),
        Case("FusedConv", {**image, "W": n(4, 2, 3, 3), "B": n(4)}, {"activation": "Tanh", "group": 2}),
        Case("FusedConv", image, {"activation": "HardSigmoid", "activation_params": [0.125, 0.375]}),
        Case("FusedGemm", rows, {"activation": "Relu"}),
        Case("FusedGemm", {**rows, "A": n(4, 3)}, {"activation": "LeakyRelu", "activation_alpha": 0.25, "transA": 1}),
        Case("FusedGemm", {**rows, "B": n(5, 4)}, {"activation": "Tanh", "transB": 1, "alpha": 0.5, "beta": 2.0}),
        Case("FusedGemm", {"A": n(3, 4), "B": n(4, 5)}, {"activation": "Elu", "activation_alpha": 0.75}),
        Case("MatMulNBits", quantized(4, 16, 32), {"K": 32, "N": 5, "block_size": 16}),
        Case("MatMulNBits", {**quantized(4, 16, 48), **points(4, 3)}, {"K": 48, "N": 5, "block_size": 16}),
        Case("MatMulNBits", {**quantized(8, 16, 32), **points(8, 2)}, {"K": 32, "N": 5, "block_size": 16, "bits": 8}),
        Case("MatMulNBits", {**quantized(4, 32, 40), "bias": n(5)}, {"K": 40, "N": 5, "block_size": 32}),
        Case("MatMulNBits", {**quantized(4, 16, 32), "zero_points": n(5, 2)}, {"K": 32, "N": 5, "block_size": 16}),
        Case("GatherBlockQuantized", {**table(4, 48), "indices": ints([0, 4], [2, 1])}, {"block_size": 16}),
        Case(
            "GatherBlockQuantized",
            {**table(8, 32), **points(8, 2), "indices": ints([3, -1])},
            {"block_size": 16, "bits": 8, "quantize_axis": 1},
        ),
        Case(
            "GatherBlockQuantized",
            {**table(4, 48), **points(4, 3), "indices": np.array([3, 0, 1])},
            {"block_size": 16},
        ),
        Case("Attention", layer, two),
        Case("Attention", {**layer, "mask_index": mask}, {**two, "mask_filter_value": -5.0}),
        Case("Attention", {**layer, "mask_index": ints(2, 3)}, {**two, "scale": 0.25}),
        Case("Attention", {**layer, "mask_index": ints(2, 3, 1, 0)}, two),
        Case("Attention", {**layer, "mask_index": rng.integers(-1, 3, (2, 3, 3), np.int32)}, two),
        Case("Attention", {**layer, "attention_bias": n(1, 2, 3, 3)}, {**two, "unidirectional": 1}),
        Case(
            "Attention",
            {**layer, "past": n(2, 2, 2, 2, 4)},
            {**two, "unidirectional": 1},
            ("output", "present"),
        ),
        Case(
            "Attention",
            {"input": n(2, 3, 8), "weights": n(8, 22), "bias": n(22)},
            {**two, "qkv_hidden_sizes": [8, 8, 6]},
        ),
        Case("MultiHeadAttention", heads, two),
        Case("MultiHeadAttention", {**heads, "bias": n(24)}, {**two, "scale": 0.25}),
        Case("MultiHeadAttention", {**heads, "key_padding_mask": rng.integers(0, 2, (2, 5), np.int32)}, two),
        Case("MultiHeadAttention", {**square, **past}, {**two, "unidirectional": 1}, present),
        Case("MultiHeadAttention", {**heads, "attention_bias": n(2, 1, 3, 5)}, two, ("output", "present_key")),
        Case("MultiHeadAttention", heads, two, ("output", "present_key", "present_value", "qk"), alone=True),
        Case("MultiHeadAttention", {"query": n(2, 3, 2, 3, 4)}, two, alone=True),
        Case("MultiHeadAttention", {"query": n(2, 3, 8), "key": n(2, 5, 2, 2, 4)}, two, alone=True),
        Case("MultiHeadAttention", {"query": n(2, 3, 8), "key": n(2, 2, 5, 4), "value": n(2, 2, 5, 4)}, two),
        Case(
            "MultiHeadAttention",
            {"query": n(2, 3, 8), "key": n(2, 2, 5, 4), "value": n(2, 2, 5, 4), "bias": n(24)},
            two,
        ),
        Case("RotaryEmbedding", {"input": n(2, 3, 16), "position_ids": ints(2, dtype=np.int64), **tables}),
        *(
            Case(
                "RotaryEmbedding",
                {"input": n(2, 2, 3, 8), "position_ids": ints([4, 0, 1], [2, 2, 3], dtype=np.int64), **tables},
                {"interleaved": mixed},
            )
            for mixed in (0, 1)
        ),
        Case(
            "RotaryEmbedding",
            {"input": n(2, 3, 16), "position_ids": ints(1, dtype=np.int64), **narrow},
            {"num_heads": 2, "rotary_embedding_dim": 4},
        ),
        Case("GroupQueryAttention", {**groups, **prompt}, shared),
        Case("GroupQueryAttention", {**groups, **prompt, **wide}, {**shared, "do_rotary": 1}, present),
        Case("GroupQueryAttention", {**groups, **prompt, **buffered}, {**shared, "local_window_size": 2}, present),
        Case(
            "GroupQueryAttention", {"query": n(2, 3, 128), **prompt, **wide}, {**shared, "do_rotary": 1, "scale": 0.125}
        ),
        Case("GroupQueryAttention", {**groups, **prompt}, {**shared, "softcap": 0.5}),
        Case(
            "GroupQueryAttention",
            {
                # onnxruntime takes several queries behind old keys of one row only.
                **{name: value[:1] for name, value in {**groups, **grown}.items()},
                "seqlens_k": ints(6),
                "total_sequence_length": np.array(7, np.int32),
                **wide,
            },
            {**shared, "do_rotary": 1, "rotary_interleaved": 1},
            present,
        ),
        Case(
            "GroupQueryAttention",
            {
                **{name: value[:, :1] for name, value in groups.items()},
                **{name: value[:, :, :5] for name, value in buffered.items()},
                "seqlens_k": ints(2, 4),
                "total_sequence_length": np.array(5, np.int32),
                **wide,
            },
            {**shared, "do_rotary": 1},
            present,
        ),
    ]


CASES = cases()


def one_node(case: Case, dtype: Any, *, weighted: bool = False) -> onnx.ModelProto:
    """A model of one node; weighted, also of the sum of its first output's elements by random weights."""
    op, operands = REGISTRY[MICROSOFT, case.op], feeds(case, dtype)
    wanted = case.outputs or (op.outputs[0].name,)

    def sizes(name: str, shape: Any) -> list[Any]:
        # Heads are made of the last axis, and batches and steps are open.
        is_open = (
            len(shape) == 3 and case.operands.get("mask_index", np.zeros((1, 1))).ndim > 1 and case.op != "MatMulNBits"
        )
        return [f"{name}_{axis}" if is_open and axis < 2 else size for axis, size in enumerate(shape)]

    def declared(name: str, array: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), sizes(name, array.shape)
        )

    names = [x.name if x.name in operands else "" for x in op.inputs]
    results = [x.name if x.name in wanted else "" for x in op.outputs]
    node = helper.make_node(op.op_type, names, results, "node", domain=MICROSOFT, **case.attributes)
    of_int = ("mask_index",) if case.op == "EmbedLayerNormalization" else ()
    floats = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    outputs = [
        helper.make_tensor_value_info(x, onnx.TensorProto.INT32 if x in of_int else floats, None) for x in wanted
    ]
    nodes, inputs = [node], [declared(name, array) for name, array in operands.items()]
    if weighted:
        nodes += [
            helper.make_node("Mul", [wanted[0], "by"], ["weighted"]),
            helper.make_node("ReduceSum", ["weighted"], ["loss"], keepdims=0),
        ]
        inputs.append(helper.make_tensor_value_info("by", floats, None))
        outputs = [helper.make_tensor_value_info("loss", floats, [])]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(helper.make_graph(nodes, "one", inputs, outputs), opset_imports=opsets, ir_version=8)


def feeds(case: Case, dtype: Any) -> Arrays:
    return {k: v.astype(dtype) if v.dtype == np.float32 else v for k, v in case.operands.items()}


def run(model: onnx.ModelProto, given: Arrays) -> Arrays:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))


def precision(case: Case) -> Any:
    """onnxruntime's processor has no convolution and no LSTM in float64."""
    return np.float32 if case.op in ("FusedConv", "DynamicQuantizeLSTM") else np.float64


def _layer(case: Case) -> Arrays:
    """ONNX's LSTM in onnxruntime, of the weights that integers stand for."""
    given = dict(case.operands)
    for name in ("W", "R"):
        stored, scale, zero = (given.pop(f"{name}{part}") for part in ("", "_scale", "_zero_point"))
        scale, zero = (np.reshape(value, (len(stored), 1, -1)).astype(np.float32) for value in (scale, zero))
        given[name] = ((stored.astype(np.float32) - zero) * scale).swapaxes(1, 2)
    names = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in given.items()
    ]
    outputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in case.outputs]
    operands = [name if name in given else "" for name in names]
    node = helper.make_node("LSTM", operands, case.outputs, **case.attributes)
    opsets = [helper.make_opsetid("", 18)]
    graph = helper.make_graph([node], "one", inputs, outputs)
    return run(helper.make_model(graph, opset_imports=opsets, ir_version=8), given)


def _heads(x: Any) -> Any:
    return np.stack(np.split(x, 2, axis=2), axis=1) if x.ndim == 3 else np.moveaxis(x, 3, 0)


def _attended(case: Case) -> Arrays:
    """Two heads of attention; queries, keys and values in one operand, in two or in three."""
    query, key, value = (case.operands.get(name) for name in ("query", "key", "value"))
    parts = [_heads(x) for x in (query, key, value) if x is not None]
    q, k, v = [part for x in parts for part in (x if x.ndim == 5 else [x])]
    q, k, v = (x.swapaxes(1, 2) if x.shape[1] != 2 else x for x in (q, k, v))
    scores = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3]))
    weights = scores / scores.sum(3, keepdims=True)
    output = np.concatenate([*(weights @ v).swapaxes(0, 1)], axis=2)
    return {"output": output, "present_key": k, "present_value": v, "qk": weights}


def _skipped(case: Case) -> Arrays:
    """Layer normalization of the sum, with or without the mean."""
    given = case.operands
    total = given["input"] + given["skip"]
    mean = 0 if "Simplified" in case.op else total.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(((total - mean) ** 2).mean(-1, keepdims=True) + 1e-12)
    return {"output": (total - mean) * inverse * given["gamma"], "mean": mean, "inv_std_var": inverse}


# Formulas for what onnxruntime's kernels for processors do not have.
BY_HAND = {
    "DynamicQuantizeLSTM": _layer,
    "MultiHeadAttention": _attended,
    "SkipLayerNormalization": _skipped,
    "SkipSimplifiedLayerNormalization": _skipped,
}


IDS = [f"{i}-{case.op}" for i, case in enumerate(CASES)]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_ops_compute_what_onnxruntimes_kernels_do(case: Case) -> None:
    model = one_node(case, np.float32)
    right = BY_HAND[case.op](case) if case.alone else run(model, feeds(case, np.float32))
    for dtype in {np.float32, precision(case)}:
        lowered = ll.lower(one_node(case, dtype))
        assert {node.domain for node in lowered.graph.node} == {""}
        onnx.checker.check_model(lowered, full_check=True)
        # The kernels add up in float32, where what is added to masked scores leaves few digits of these.
        rtol, atol = (2e-5, 5e-6) if dtype is np.float32 else (1e-3, 1e-3)
        for name, value in run(lowered, feeds(case, dtype)).items():
            np.testing.assert_allclose(value, right[name], rtol=rtol, atol=atol, err_msg=name)


def test_a_layer_of_integers_is_near_onnxruntimes_kernel() -> None:
    """Which rounds states to 8 bits in every step."""
    layers = [case for case in CASES if case.op == "DynamicQuantizeLSTM"]
    # The kernel takes one scale for all columns, or zero points that are all zero.
    operands = {**layers[0].operands, "W_zero_point": np.zeros(1, np.int8), "R_zero_point": np.zeros(1, np.int8)}
    model = one_node(layers[0]._replace(operands=operands), np.float32)
    ours, theirs = (run(it, operands) for it in (ll.lower(model), model))
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, atol=0.03, err_msg=name)
        assert np.abs(value).max() > 0.1


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_their_gradients_against_differences(case: Case) -> None:
    dtype = precision(case)
    step, allowed = (1e-5, 1e-7) if dtype is np.float64 else (1e-3, 1e-2)
    given = feeds(case, dtype)
    rng = np.random.default_rng(1)
    first = next(iter(run(ll.lower(one_node(case, dtype)), given).values()))
    given["by"] = rng.standard_normal(np.shape(first)).astype(dtype)
    model = one_node(case, dtype, weighted=True)
    wrt = [name for name, value in given.items() if value.dtype == dtype]
    found = run(ll.gradient(model, of="loss", wrt=wrt), given)
    forward = onnxruntime.InferenceSession(ll.lower(model).SerializeToString(), providers=["CPUExecutionProvider"])
    for name in wrt:
        direction = rng.standard_normal(given[name].shape).astype(dtype)
        ends = [
            forward.run(["loss"], {**given, name: given[name] + dtype(sign * step) * direction})[0] for sign in (1, -1)
        ]
        slope = float(ends[0] - ends[1]) / (2 * step)
        assert abs(slope - np.vdot(direction, found[f"grad/{name}"])) < allowed * max(1, abs(slope)), name


def test_a_fused_bert_is_what_it_was_made_of() -> None:
    """Its results are onnxruntime's, and it trains as the model before the optimizer does."""
    with np.load(FOLDER / "bert.npz") as file:
        recorded = dict(file)
    original, fused = (onnx.ModelProto.FromString(recorded.pop(name).tobytes()) for name in ("original", "fused"))
    hidden = recorded.pop("hidden")
    np.testing.assert_allclose(run(ll.lower(fused), recorded)["hidden"], hidden, rtol=0, atol=2e-6)
    assert all(row.verdict == "ok" for row in check(fused, sizes={"batch": 2, "sequence": 3}).outputs)
    data = {**recorded, "target": np.zeros_like(hidden)}
    losses, after = zip(*(_trained(model, data) for model in (original, fused)), strict=True)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    np.testing.assert_allclose(after[1], after[0], rtol=0, atol=1e-5)
    assert losses[0][2] < losses[0][0]


def _trained(model: onnx.ModelProto, data: Arrays) -> tuple[list[float], Any]:
    trainer = ll.Trainer(ll.from_onnx(model, "mse", "sgd"), learning_rate=0.1)
    history = trainer.fit(data, epochs=3, batch_size=3)
    feeds = {name: value for name, value in data.items() if name != "target"}
    return history["loss"], trainer.predict(feeds)["hidden"]


@pytest.mark.parametrize(
    ("op", "given", "attributes", "message"),
    [
        ("Attention", {}, {"num_heads": 3}, "weights requires heads of one size, got 8 for 3 of them"),
        ("Attention", {"mask_index": np.zeros((2, 1, 3, 3), np.int32)}, {}, "mask_index requires a mask of two or"),
        ("Attention", {"mask_index": np.zeros(8, np.int32)}, {}, r"got \[8\] for a batch of 2"),
        ("Attention", {}, {"do_rotary": 1}, r"attribute do_rotary requires one of \[0\], got 1"),
        ("FusedConv", {}, {"activation": "Clip", "activation_params": [1.0]}, "requires 2 numbers for Clip, got"),
        ("FusedGemm", {}, {"activation": "Odd"}, r"activation requires one of \['Elu'"),
        ("MatMulNBits", {"g_idx": np.zeros(32, np.int32)}, {}, "g_idx requires no groups of its own, got some"),
        ("MatMulNBits", {}, {"bits": 3}, r"attribute bits requires one of"),
        ("GroupQueryAttention", {}, {"kv_num_heads": 3}, "num_heads requires a multiple of kv_num_heads = 3, got 4"),
        ("GroupQueryAttention", {}, {"causal": 0}, r"attribute causal requires one of \[1\], got 0"),
        (
            "GroupQueryAttention",
            {"head_sink": np.zeros(4, np.float32)},
            {},
            "head_sink requires nothing, got an operand",
        ),
    ],
)
def test_other_forms_are_refused(op: str, given: Arrays, attributes: Arrays, message: str) -> None:
    case = next(case for case in CASES if case.op == op)
    changed = case._replace(operands={**case.operands, **given}, attributes={**case.attributes, **attributes})
    with pytest.raises(ll.LstmLowerError, match=message):
        ll.lower(one_node(changed, np.float32))


def test_a_layer_in_onnxs_own_domain_has_a_gradient() -> None:
    """onnxruntime writes one there that ONNX does not know."""
    text = """<ir_version: 10, opset_import: ["" : 18]> one (float[N, 3] x, float[3] scale) => (float[] loss) {
        y = SimplifiedLayerNormalization <axis = -1, epsilon = 0.5> (x, scale) loss = ReduceSum <keepdims = 0> (y) }"""
    given = {"x": np.array([[1, -2, 0.5]], np.float32), "scale": np.array([1, 2, 3], np.float32)}
    found = run(ll.gradient(onnx.parser.parse_model(text), of="loss", wrt=["scale"]), given)
    root = np.sqrt(np.mean(given["x"] ** 2) + 0.5)
    np.testing.assert_allclose(found["grad/scale"], given["x"][0] / root, rtol=1e-6)
