"""A training graph that holds a forward op and the backward op of it computes nothing twice."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import product

import onnx
import pytest
from onnx import helper

import lstm_lower as ll
from benchmarks import block
from lstm_lower import opdef
from tests.support.cudnn_cases import Case
from tests.support.cudnn_models import attributes_of, node_model, training_model
from tests.support.duplicates import RANDOM, all_nodes, duplicates
from tests.support.models import DOMAIN

CASES = [
    Case(mode, layers, bidirectional=layers == 2, ragged=ragged, masks=masks)
    for mode, (layers, masks), ragged in product(
        ("lstm", "gru", "rnn_tanh", "rnn_relu"), ((1, False), (2, False), (2, True)), (False, True)
    )
]


@dataclasses.dataclass(frozen=True)
class Work:
    """How often the costly operators stand in a lowered model, at any level."""

    loops: int
    products: int
    gates: int
    tanhs: int
    random: int

    @classmethod
    def of(cls, model: onnx.ModelProto) -> Work:
        count = Counter(node.op_type for node in all_nodes(model.graph))
        products = count["MatMul"] + count["Gemm"]
        return cls(
            count["Scan"],
            products,
            count["Sigmoid"] + count["Relu"],
            count["Tanh"],
            sum(count[op] for op in RANDOM),
        )


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cudnn(case: Case) -> None:
    operands = case.operands()
    fixed = [] if case.ragged else ["sequence_lengths"]

    def alone(op: str) -> onnx.ModelProto:
        node = node_model(op, operands, attributes_of(op, case), constants=fixed)
        return ll.lower(node, schedule="scan")

    both_model = ll.lower(training_model(case, operands, constants=fixed), schedule="scan")
    both, forward, backward = (
        Work.of(model) for model in (both_model, alone("CudnnRNNV3"), alone("CudnnRNNBackpropV3"))
    )
    pseudo_layers = case.layers * case.directions
    assert duplicates(both_model) == []
    # One loop forward and one backward; a backward op alone recomputes the gates outside of loops.
    assert (forward.loops, both.loops) == (pseudo_layers, 2 * pseudo_layers)
    # Forward two products, backward four: of the input's side and of the recurrent one, and a gradient of each factor.
    # A GRU's input side comes in two parts where its rows are more than its columns.
    found = (forward.products, backward.products, both.products)
    more = [count - wanted * pseudo_layers for count, wanted in zip(found, (2, 6, 6), strict=True)]
    most = pseudo_layers if case.mode == "gru" else 0
    assert 0 <= more[0] == more[2] <= most
    assert 0 <= more[1] <= 2 * most
    assert both.gates == forward.gates == backward.gates
    # At padded steps c stays, and the tanh of what stays is not the step's.
    of_cells = pseudo_layers if case.mode == "lstm" and case.ragged else 0
    assert both.tanhs == forward.tanhs + of_cells
    assert both.random == forward.random == int(case.masks)


@pytest.mark.parametrize("version", ["", "V2", "V3"])
def test_every_version(version: str) -> None:
    case = Case("lstm")
    model = training_model(case, case.operands(), constants=["sequence_lengths"])
    for node in model.graph.node:
        definition = opdef.REGISTRY[node.op_type.removesuffix("V3") + version]
        dropped = {x.name for x in opdef.REGISTRY[node.op_type].inputs} - {x.name for x in definition.inputs}
        node.op_type = definition.op_type
        kept = [name for name in node.input if name not in dropped]
        node.ClearField("input")
        node.input.extend(kept)
        known = {attribute.name for attribute in definition.attributes}
        fields = [attribute for attribute in node.attribute if attribute.name in known]
        node.ClearField("attribute")
        node.attribute.extend(fields)
        made = {output.name for output in definition.outputs}
        node.output[:] = [name for name in node.output if name in made]
    made = {name for node in model.graph.node for name in node.output}
    outputs = [value for value in model.graph.output if value.name in made]
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    lowered = ll.lower(model)
    assert duplicates(lowered) == []
    assert (Work.of(lowered).loops, Work.of(lowered).products) == (2, 6)


def test_masks_drawn_twice_are_two_masks() -> None:
    """Two forward ops of the same operands have their first layer in common, and no layer behind their own masks."""
    case = Case("lstm", 2, masks=True)
    first = node_model("CudnnRNNV3", case.operands(), attributes_of("CudnnRNNV3", case))
    second = onnx.NodeProto()
    second.CopyFrom(first.graph.node[0])
    second.name = "again"
    second.output[:] = [f"{name}_again" for name in second.output]
    first.graph.node.append(second)
    first.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in second.output)
    lowered = ll.lower(first)
    assert Work.of(lowered).random == 2
    assert Work.of(lowered).loops == 1 + 2
    assert duplicates(lowered) == []


@pytest.mark.parametrize("version", ["", "V2"])
@pytest.mark.parametrize("variant", ["plain", "peephole"])
def test_block(version: str, variant: str) -> None:
    """The backward op reads what the forward op saved, so that of the forward pass it repeats nothing at all."""
    case = block.Case("BlockLSTMGrad", (6, 2, 3, 4), variant)
    operands = block.arrays(case)
    forward, backward = (opdef.REGISTRY[f"{op}{version}"] for op in ("BlockLSTM", "BlockLSTMGrad"))
    saved = [output.name for output in forward.outputs]
    nodes = [
        helper.make_node(
            op.op_type,
            [operand.name for operand in op.inputs],
            [output.name for output in op.outputs],
            domain=DOMAIN,
            use_peephole=int(variant == "peephole"),
        )
        for op in (forward, backward)
    ]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in operands.items()
        if name not in (*saved, "seq_len_max")
    ]
    steps = onnx.numpy_helper.from_array(operands["seq_len_max"], "seq_len_max")
    made = [*saved, *(output.name for output in backward.outputs)]
    results = [helper.make_empty_tensor_value_info(name) for name in made]
    graph = helper.make_graph(nodes, "graph", inputs, results, [steps])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    lowered = ll.lower(helper.make_model(graph, opset_imports=imports, ir_version=9))
    assert duplicates(lowered) == []
    work = Work.of(lowered)
    # i, f and o; c and its tanh. Products: the two sides of the gates, and gradients of x, h and w.
    assert (work.loops, work.products, work.gates, work.tanhs) == (2, 5, 3, 2)


def test_the_checker_finds_what_is_computed_twice() -> None:
    case = Case("lstm")
    model = training_model(case, case.operands())
    found = duplicates(ll.lower(model, optimize=False))
    for op in ("Scan", "MatMul", "Sigmoid", "Tanh"):
        assert any(line.startswith(op) for line in found), op
