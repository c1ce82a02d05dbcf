"""The verifier on structure: what ONNX accepts passes, what is malformed gets one clear error of ours."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, parser

import lstm_lower as ll
from lstm_lower.graph.structure import verify_structure
from lstm_lower.passes.lower import lowering_passes

DATA = Path(__file__).parents[1] / "data"

HEADER = '<ir_version: 9, opset_import: ["": 18, "mine": 1]>\n'

SCAN = """g (float[2] x, float[3,2] s) => (float[2] y, float[3,2] z) {{
  y, z = Scan <{attributes}, body = b ({inputs}) => ({outputs}) {{ o = Add(h, i) p = Identity(o) }}> ({operands})
}}"""


def scan(
    attributes: str = "num_scan_inputs = 1",
    inputs: str = "float[2] h, float[2] i",
    outputs: str = "float[2] o, float[2] p",
    operands: str = "x, s",
) -> str:
    return SCAN.format(attributes=attributes, inputs=inputs, outputs=outputs, operands=operands)


IF = """g (float[2] x, bool c) => (float[2] y) {{ {before}
  u = If (c) <then_branch = a () => ({then}) {inner} {{ {body} }}, else_branch = b () => (float[2] e) {{ e = Neg(x) }}>
  {after} }}"""


def choice(body: str, before: str = "", after: str = "y = Neg(u)", then: str = "float[2] t", inner: str = "") -> str:
    return IF.format(body=body, before=before, after=after, then=then, inner=inner)


ACCEPTED = {
    "scan": scan(),
    "input shadows": scan(inputs="float[2] h, float[2] i").replace("h", "x").replace("(x, s)", "(x, s)"),
    "name used later outside": choice("t = Abs(x)", after="t = Neg(x) y = Add(u, t)"),
    "initializer shadows": choice(
        "r = Abs(t)", "t = Neg(x)", "y = Add(u, t)", then="float[2] r", inner="<float[2] t = {1, 2}>"
    ),
    "branches side by side": choice("e = Abs(x)", then="float[2] e"),
    "terms with spaces": 'g (float[2,3] x) => (float[2] y) { y = Einsum <equation = "... i -> ..."> (x) }',
    "output twice": "g (float[2] x) => (float[2] y, float[2] y) { y = Neg(x) }",
    "output that is an input": "g (float[2] x) => (float[2] x) { y = Neg(x) }",
    "same names of nodes": "g (float[2] x) => (float[2] y) { [n] z = Neg(x) [n] y = Neg(z) }",
    "unread output left out": 'g (float[4] x) => (float[2] y) { y, "" = Split <num_outputs = 2> (x) }',
    "function": """g (float[2] x) => (float[2] y) { y = mine.f <k = 1.0> (x) }
        <domain: "mine", opset_import: ["": 18]> f <k> (a) => (b) { b = LeakyRelu <alpha: float = @k> (a) }""",
}

REFUSED = {
    "shadowed by a node": (choice("t = Abs(x)", "t = Neg(x)"), "Abs 't': output 't' requires a name of its own"),
    "branch output from outside": (choice("q = Abs(x)", then="float[2] x"), "graph output 'x' requires a value of the"),
    "branch outputs": (
        choice("t = Abs(x) q = Abs(x)", then="float[2] t, float[2] q"),
        "then_branch requires 1 outputs, got 2",
    ),
    "no such attribute": ("g (float[2] x) => (float[2] y) { y = Neg <k = 1> (x) }", "requires no attributes, got k"),
    "attribute's type": (
        "g (float[2] x) => (float[2] y) { y = Softmax <axis = 1.5> (x) }",
        "attribute axis requires INT, got FLOAT",
    ),
    "attribute left out": (
        "g (float[2] x) => (float[2] y) { y = Cast (x) }",
        "attribute to requires a value, got none",
    ),
    "too few inputs": ("g (float[2] x) => (float[2] y) { y = Add (x) }", "2 inputs, got 1"),
    "too many inputs": ("g (float[2] x) => (float[2] y) { y = Neg (x, x) }", "1 inputs, got 2"),
    "too many outputs": ("g (float[2] x) => (float[2] y) { y, z = Neg (x) }", "1 outputs, got 2"),
    "input left out": ('g (float[2] x) => (float[2] y) { y = Add ("", x) }', "input 0 requires a value, got none"),
    "unknown operator": ("g (float[2] x) => (float[2] y) { y = Nope (x) }", "an operator of ai.onnx 18, got 'Nope'"),
    "operator of a later version": ("g (float[2] x) => (float[2] y) { y = Gelu (x) }", "of ai.onnx 18, got 'Gelu'"),
    "no import": ("g (float[2] x) => (float[2] y) { y = other.Op (x) }", "an opset import of domain 'other', got none"),
    "Split's outputs": (
        "g (float[4] x) => (float[2] y) { y, z = Split <num_outputs = 3> (x) }",
        "num_outputs requires 2, the number of outputs, got 3",
    ),
    "Einsum's equation": (
        'g (float[2] x) => (float[2] y) { y = Einsum <equation = "a1->a"> (x) }',
        "attribute equation requires terms of letters and ellipses, got 'a1->a'",
    ),
    "no scan input": (scan("num_scan_inputs = 0"), "num_scan_inputs requires 1 to 2, got 0"),
    "too many scan inputs": (scan("num_scan_inputs = 3"), "num_scan_inputs requires 1 to 2, got 3"),
    "body's inputs": (scan(inputs="float[2] h, float[2] i, float[2] j"), "body requires 2 inputs, got 3"),
    "body's outputs": (scan(outputs="float[2] o"), "body requires 2 outputs, got 1"),
    "scan axes": (scan("num_scan_inputs = 1, scan_input_axes = [0, 0]"), "scan_input_axes requires 1 values, got 2"),
    "scan directions": (
        scan("num_scan_inputs = 1, scan_output_directions = [2]"),
        "scan_output_directions requires values of 0 and 1",
    ),
    "loop's body": (
        """g (int64 n, bool c, float[2] x) => (float[2] y) {
        y = Loop (n, c, x) <body = b (int64 i, bool d) => (bool d, float[2] z) { z = Neg(x) } > }""",
        "body requires 3 inputs, got 2",
    ),
    "functions in a circle": (
        """g (float[2] x) => (float[2] y) { y = mine.f (x) }
        <domain: "mine", opset_import: ["": 18, "mine": 1]> f (a) => (b) { b = mine.h (a) }
        <domain: "mine", opset_import: ["": 18, "mine": 1]> h (a) => (b) { b = mine.f (a) }""",
        "cycle: mine.f -> mine.h -> mine.f",
    ),
    "function's import": (
        """g (float[2] x) => (float[2] y) { y = mine.f (x) }
        <domain: "mine", opset_import: ["mine": 1]> f (a) => (b) { b = Neg (a) }""",
        "an opset import of domain '', got none",
    ),
    "function's inputs": (
        """g (float[2] x) => (float[2] y) { y = mine.f (x, x) }
        <domain: "mine", opset_import: ["": 18]> f (a) => (b) { b = Neg (a) }""",
        "0 to 1 inputs, got 2",
    ),
}


def parsed(text: str) -> ir.Model:
    return ir.from_proto(parser.parse_model(HEADER + text))


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_onnx_accepts(case: str) -> None:
    model = parsed(ACCEPTED[case])
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    verify_structure(model)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_malformed(case: str) -> None:
    text, message = REFUSED[case]
    model = parsed(text)
    with pytest.raises(ll.InvalidModelError, match=re.escape(message)):
        verify_structure(model)


def neg_model(**initializer: onnx.TensorProto) -> onnx.ModelProto:
    shape = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Neg", ["w"], ["y"])], "g", [], [shape], **initializer)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize(
    "tensor",
    [
        TensorProto(name="w", data_type=1, dims=[2], raw_data=b"\0" * 7),
        TensorProto(name="w", data_type=1, dims=[2], raw_data=b"\0" * 12),
        TensorProto(name="w", data_type=1, dims=[2], float_data=[1.0]),
        TensorProto(name="w", data_type=1, dims=[-2], float_data=[1.0, 2.0]),
        TensorProto(name="w", data_type=1, dims=[1 << 40], raw_data=b"\0" * 8),
        TensorProto(name="w", data_type=1, dims=[2], raw_data=b"\0" * 8, float_data=[1.0, 2.0]),
        TensorProto(name="w", data_type=1, dims=[2]),
        TensorProto(name="w", data_type=TensorProto.INT4, dims=[5], raw_data=b"\0" * 2),
        TensorProto(name="w", data_type=TensorProto.INT4, dims=[5], int32_data=[1, 2]),
        TensorProto(name="w", data_type=TensorProto.UINT4, dims=[5], raw_data=b"\0" * 4),
    ],
)
def test_bytes_that_do_not_fill_a_weight(tensor: TensorProto) -> None:
    with pytest.raises(ll.InvalidModelError, match=r"initializer 'w' requires (data|sizes)"):
        ll.lower(neg_model(initializer=[tensor]))


@pytest.mark.parametrize("version", [0, 99])
def test_unknown_opset(version: int) -> None:
    model = neg_model(initializer=[onnx.numpy_helper.from_array(np.ones(2, np.float32), "w")])
    model.opset_import[0].version = version
    with pytest.raises(ll.InvalidModelError, match="opset of 1 to"):
        ll.optimize(model)


@pytest.mark.parametrize("named_first", [True, False])
def test_two_opsets(named_first: bool) -> None:
    """onnxruntime takes the last one, and the order is not kept."""
    model = onnx.parser.parse_model(HEADER + "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax(x) }")
    imports = [helper.make_opsetid("ai.onnx", 11), helper.make_opsetid("", 13)]
    del model.opset_import[:]
    model.opset_import.extend(imports if named_first else imports[::-1])
    with pytest.raises(ll.InvalidModelError, match=r"one opset of ai[.]onnx, got 13 and 11"):
        ll.optimize(model)


def test_reference_outside_of_a_function() -> None:
    model = neg_model(initializer=[onnx.numpy_helper.from_array(np.ones(2, np.float32), "w")])
    model.graph.node[0].attribute.append(onnx.AttributeProto(name="k", ref_attr_name="j", type=1))
    with pytest.raises(ll.InvalidModelError, match="a reference to attribute j outside of functions"):
        ll.lower(model)


@pytest.mark.parametrize("entrance", [ll.lower, ll.optimize])
@pytest.mark.parametrize(
    ("name", "message"),
    [("split_num_outputs", "num_outputs requires 3"), ("loop_body_strings", "body requires GRAPH, got STRINGS")],
)
def test_models_on_which_onnx_breaks(entrance, name: str, message: str) -> None:
    """The first one aborts onnx's checker, and the process with it."""
    path = DATA / "malformed" / f"{name}.onnx"
    with pytest.raises(ll.InvalidModelError, match=message):
        entrance(path)
    with pytest.raises(ll.InvalidModelError, match=message):
        entrance(ir.from_proto(onnx.load(path)))


def test_names_that_are_no_text() -> None:
    model = neg_model(initializer=[onnx.numpy_helper.from_array(np.ones(2, np.float32), "w")])
    damaged = onnx.ModelProto.FromString(model.SerializeToString().replace(b"\x12\x01y", b"\x12\x01\xff"))
    assert damaged.graph.node[0].output[0] != "y"
    with pytest.raises(ll.InvalidModelError):
        ll.lower(damaged)


def test_the_default_of_an_input_fills_its_shape() -> None:
    text = "d (float[2] x, float[2] w) => (float[2] y) { y = Add (x, w) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    model.graph.initializer.add(name="w", dims=[2], raw_data=bytes(8), data_type=100)
    with pytest.raises(ll.InvalidModelError, match="initializer 'w' requires data"):
        ll.lower(model)


def test_a_name_of_a_reduction_that_is_no_text() -> None:
    text = "r (float[2] x, int64[1,1] i, float[1] u) => (float[2] y) { y = ScatterND (x, i, u) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    model.graph.node[0].attribute.add(name="reduction", type=onnx.AttributeProto.STRING, s=b"\xf3")
    for step in lowering_passes():
        with contextlib.suppress(ll.LstmLowerError):
            step(ir.from_proto(model))
