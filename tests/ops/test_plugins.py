"""Ops of other packages do what ours do: lowered anywhere in a model, checked, called; faults of them are named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from lstm_lower import extend, plugins, schemas
from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.passes.opset.installed import newest_opset
from lstm_lower.passes.rules.registry import lowerable_as
from lstm_lower.runtime.proof.check import check
from tests.support.plugins import LEAKY, doubling, float_info, leaky_model, leaky_node, own_registry  # noqa: F401

pytestmark = pytest.mark.usefixtures("own_registry")

HERE = Path(__file__).parents[2]


@pytest.fixture
def leaky(own_registry: None) -> None:  # noqa: F811
    plugins.load([str(LEAKY)])


@pytest.mark.usefixtures("leaky")
class TestInModels:
    @pytest.mark.parametrize("opset", [13, 18, newest_opset()])
    @pytest.mark.parametrize("where", ["main", "branch", "loop", "scan", "function"])
    def test_lowered_everywhere(self, where: str, opset: int) -> None:
        model = leaky_model(where, opset)
        lowered = ll.lower(model, verify_each=True)
        assert [imported.domain for imported in lowered.opset_import] == [""]
        onnx.checker.check_model(lowered, full_check=True)
        assert check(model, lowered, sizes={"T": 4, "B": 2}).passed

    def test_optimised_and_scheduled(self) -> None:
        for schedule in ("scan", "unroll", "chunk:2"):
            assert check(leaky_model("scan"), schedule=schedule, sizes={"T": 4, "B": 2}).passed

    def test_converted_with_the_rest_of_the_model(self) -> None:
        model = leaky_model("function", 18)
        assert ll.lower(model, 13).opset_import[0].version == 13
        assert check(model, opset=newest_opset(), sizes={"T": 4, "B": 2}).passed

    def test_any_version_of_its_domain(self) -> None:
        assert check(leaky_model(version=7), sizes={"T": 4, "B": 2}).passed

    def test_the_domain_must_be_imported(self) -> None:
        model = leaky_model()
        del model.opset_import[1]
        with pytest.raises(ll.InvalidModelError, match=r"requires an opset import of domain 'com\.example', got none"):
            ll.lower(model)

    def test_verified_like_ours(self) -> None:
        model = leaky_model()
        model.graph.input[1].CopyFrom(float_info("w", 4, 3))
        with pytest.raises(ll.InvalidModelError, match=r"LeakyIntegrator 'leaky': w requires shape \[I, H\]"):
            ll.lower(model)
        model = leaky_model()
        model.graph.node[0].CopyFrom(leaky_node(decai=0.5))
        with pytest.raises(ll.InvalidModelError, match=r"attribute decai requires a name of \['decay'\]"):
            ll.lower(model)

    def test_onnx_knows_it(self) -> None:
        schemas.register()
        model = leaky_model()
        del model.graph.output[0].type.tensor_type.shape.dim[:]
        model.graph.output[0].type.tensor_type.ClearField("shape")
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        assert [d.dim_param or d.dim_value for d in inferred.graph.output[0].type.tensor_type.shape.dim] == [
            "T",
            "B",
            3,
        ]

    def test_a_function_of_the_model_comes_first(self) -> None:
        """What a model says of a name itself is what the name means in it."""
        model = leaky_model()
        halve = onnx.parser.parse_function(
            '<domain: "com.example", opset_import: ["" : 18]> LeakyIntegrator (x, w) => (y) { y = Neg(x) }'
        )
        model.functions.append(halve)
        x = np.ones((2, 1, 3), np.float32)
        (y,) = ll.Session(ll.lower(model)).run({"x": x, "w": np.ones((3, 3), np.float32)}).values()
        np.testing.assert_array_equal(y, -x)

    def test_feeds_of_a_session_are_checked(self) -> None:
        session = ll.Session(leaky_model())
        with pytest.raises(InvalidInputError, match="w"):
            session.run({"x": np.ones((2, 1, 3), np.float32), "w": np.ones((4, 3), np.float32)})

    def test_gradient_against_central_differences(self) -> None:
        model = onnx.load(LEAKY.with_name("leaky.onnx"))
        report = check(model, sizes={"T": 3, "B": 2}, finite_differences=True)
        assert report.passed
        assert {row.operand: row.verdict for row in report.gradients} == {"x": "ok", "w": "ok"}

    def test_a_wrong_gradient_is_found(self) -> None:
        grad = lowerable_as("LeakyIntegratorGrad")
        assert grad is not None
        right = extend.Pairing(
            "LeakyIntegrator", {"y_grad": "y"}, lambda _, o: {"x": 2 * o["x_grad"]}, lambda r, _: sample(r)
        )
        with pytest.raises(InvalidInputError, match="requires one pairing, got one of"):
            extend.pairs(grad, right)


def sample(random: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": random.normal(size=(3, 2, 3)), "w": random.normal(size=(3, 3))}


@pytest.mark.usefixtures("leaky")
def test_called_eagerly() -> None:
    x, w = np.ones((3, 1, 1), np.float32), np.ones((1, 1), np.float32)
    np.testing.assert_allclose(ll.raw_ops.LeakyIntegrator(x=x, w=w, decay=0.5).ravel(), [1, 1.5, 1.75])
    gradient = ll.raw_ops.LeakyIntegratorGrad(x=x, w=w, y_grad=x, decay=0.5)
    np.testing.assert_allclose(gradient.x_grad.ravel(), [1.75, 1.5, 1])
    assert "LeakyIntegrator" in dir(ll.raw_ops)
    assert "decay: float, default 0.9" in ll.raw_ops.LeakyIntegrator.__doc__
    with pytest.raises(InvalidInputError, match=r"LeakyIntegrator: w requires shape \[I, H\]"):
        ll.raw_ops.LeakyIntegrator(x=x, w=np.ones((2, 1), np.float32))


def doubled() -> onnx.ModelProto:
    """A model of one node of the op that `doubling` defines."""
    node = onnx.helper.make_node("Doubling", ["x"], ["y"], domain="com.example")
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("com.example", 1)]
    graph = onnx.helper.make_graph([node], "g", [float_info("x", 2)], [float_info("y", 2)])
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_defining_twice_replaces(tmp_path: Path) -> None:
    """A cell of a notebook that is run again: the definition, the rule, the oracle, and what onnx is told."""
    path = str(doubling(tmp_path / "cell.py"))
    plugins.load([path])
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(ll.raw_ops.Doubling(x=x), 2 * x)
    schemas.register()
    text = doubling(tmp_path / "cell.py", factor=3.0).read_text()
    (tmp_path / "cell.py").write_text(text.replace('operand("*S")', 'operand("N")'))
    plugins.load([path])
    np.testing.assert_array_equal(ll.raw_ops.Doubling(x=x), 3 * x)
    with pytest.raises(InvalidInputError, match=r"x requires rank 1 \[N\]"):
        ll.raw_ops.Doubling(x=x[None])
    model = doubled()
    schemas.register()
    assert [
        d.dim_value for d in onnx.shape_inference.infer_shapes(model).graph.output[0].type.tensor_type.shape.dim
    ] == [2]
    assert check(model).passed


def test_names_of_others_are_theirs(tmp_path: Path) -> None:
    first, second = doubling(tmp_path / "first.py"), doubling(tmp_path / "second.py", factor=3.0)
    plugins.load([str(first)])
    with pytest.raises(InvalidInputError) as caught:
        plugins.load([str(second)])
    assert f"Doubling of domain 'com.example' requires one definition, got one of {first} and one of {second}" in str(
        caught.value
    )
    assert "give yours a domain of its own" in str(caught.value)
    np.testing.assert_array_equal(ll.raw_ops.Doubling(x=np.float32([1])), [2])
    ours = doubling(tmp_path / "ours.py", op="BlockLSTM", domain="tf")
    with pytest.raises(InvalidInputError, match=r"got one of lstm_lower\.ops\.block and one of"):
        plugins.load([str(ours)])


def test_a_name_in_several_domains(tmp_path: Path) -> None:
    for domain in ("a.example", "b.example"):
        plugins.load([str(doubling(tmp_path / f"{domain}.py", domain=domain))])
    with pytest.raises(UnsupportedOpError, match=r"a\.example\.Doubling or b\.example\.Doubling"):
        _ = ll.raw_ops.Doubling
    np.testing.assert_array_equal(getattr(ll.raw_ops, "b.example.Doubling")(x=np.float32([1])), [2])
    plugins.load([str(doubling(tmp_path / "softplus.py", op="SoftplusGrad"))])
    assert "gradients" in ll.raw_ops.SoftplusGrad.__doc__
    assert "features" not in getattr(ll.raw_ops, "com.example.SoftplusGrad").__doc__


BROKEN = {
    "import nothing_of_this_name": "ModuleNotFoundError: No module named 'nothing_of_this_name'",
    "def (": "SyntaxError: ",
    "1 / 0": "ZeroDivisionError: division by zero",
    "raise SystemExit(3)": "SystemExit: 3",
    "x = 1": "no definition, rule or oracle",
    "from lstm_lower.extend import *\nclass A(OpDef):\n  domain = 'ai.onnx.ml'": (
        "A requires a domain of its own, got ONNX's"
    ),
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_module_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    for _ in range(2):
        with pytest.raises(InvalidInputError) as caught:
            plugins.load([str(path)])
        message = str(caught.value)
        assert message.startswith(f"plugin '{path}' requires a module that can be imported and registers ops, got ")
        assert BROKEN[text] in message
        assert message.endswith("name a module on Python's path or a Python file that defines ops")


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    for name in (str(tmp_path / "missing.py"), "missing.module", "numpy", "", "..", "a b"):
        with pytest.raises(InvalidInputError, match=r"plugin '.*' requires a module that can be imported"):
            plugins.load([name])


RULES_AT_FAULT = {
    "return {'y': n.x}": "TypeError: a rule returns",
    "return n.missing": "AttributeError: Doubling has no operand or attribute 'missing' here",
    "return n.builder.concat([n.x, n.x], axis=0)": "AttributeError: Doubling has no operand or attribute",
    "return []": "none",
    "return [None]": "none",
    "return b.concat([n.x, n.x], axis=0)": "[4]",
}


@pytest.mark.parametrize("text", RULES_AT_FAULT)
def test_a_broken_rule_is_named(text: str, tmp_path: Path) -> None:
    path = doubling(tmp_path / "broken.py")
    path.write_text(path.read_text().replace("return n.x * 2.0", text))
    plugins.load([str(path)])
    with pytest.raises(UnsupportedOpError) as caught:
        ll.lower(doubled())
    assert f"the lowering rule of {path} requires to return " in str(caught.value)
    assert f", got {RULES_AT_FAULT[text]}" in str(caught.value)


@pytest.mark.parametrize("arguments", ["n", "n, b, c", "n, *, b", ""])
def test_a_rule_takes_a_node_and_a_builder(arguments: str, tmp_path: Path) -> None:
    path = doubling(tmp_path / "other.py")
    path.write_text(path.read_text().replace("def rule(n, b)", f"def rule({arguments})"))
    text = f"the lowering rule of Doubling requires two arguments, the node and the builder, got ({arguments})"
    with pytest.raises(InvalidInputError, match=re.escape(text)):
        plugins.load([str(path)])


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("verify = classmethod(lambda cls, call: call.sizes['K'])", "KeyError: 'K'"),
        ("output_infos = classmethod(lambda cls, call: None)", "TypeError: "),
        ("shape_spec = classmethod(lambda cls, operand, attributes: 3)", "AttributeError: "),
    ],
)
def test_a_broken_definition_is_named(method: str, reason: str, tmp_path: Path) -> None:
    path = doubling(tmp_path / "broken.py")
    path.write_text(path.read_text().replace('domain = "com', f'{method}\n    domain = "com'))
    plugins.load([str(path)])
    message = re.escape(f"the definition of {path} requires to verify its use, got {reason}")
    with pytest.raises(ll.InvalidModelError, match=f"Doubling 'y': {message}"):
        ll.lower(doubled())
    with pytest.raises(InvalidInputError, match=f"Doubling: {message}"):
        ll.raw_ops.Doubling(x=np.ones(2, np.float32))


def test_what_draws_random_numbers_is_not_compared(tmp_path: Path) -> None:
    path = doubling(tmp_path / "random.py")
    text = path.read_text().replace(
        'domain = "com', 'draws = classmethod(lambda cls, attributes: True)\n    domain = "com'
    )
    path.write_text(text)
    plugins.load([str(path)])
    report = check(doubled())
    assert [row.verdict for row in report.outputs] == ["random"]


# Entry points: Python looks for them once, so that each of these runs in a process of its own.


def installed(folder: Path, name: str, value: str) -> None:
    """What pip leaves of a package."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[lstm_lower.ops]\nmine = {value}\n")


def python(folder: Path, program: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{folder}"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


ERRORS = """
import lstm_lower as ll
for attempt in (lambda: ll.raw_ops.BlockLSTM, lambda: ll.raw_ops.BlockLSTM):
    try:
        attempt()
    except ll.LstmLowerError as error:
        print(error)
"""


def test_installed_packages_offer_ops(tmp_path: Path) -> None:
    (tmp_path / "leaky_integrator.py").write_text(LEAKY.read_text())
    installed(tmp_path, "leaky-integrator", "leaky_integrator")
    program = (
        "import lstm_lower as ll, sys; before = 'leaky_integrator' in sys.modules\n"
        "from lstm_lower.opdef import our_definitions\n"
        "print(before, ll.raw_ops.LeakyIntegrator(x=[[[1.0]]], w=[[2.0]]), 'LeakyIntegrator' in dir(ll.raw_ops))\n"
        "print([op.op_type for op in our_definitions() if 'LeakyI' in op.op_type])"
    )
    assert python(tmp_path, program) == "False [[[2.]]] True\n[]\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("x = 1", "no definition, rule or oracle"),
        (None, "InvalidInputError: BlockLSTM of domain 'ai.onnx.converters.tensorflow' requires one definition"),
    ],
)
def test_a_broken_package_is_named(text: str | None, reason: str, tmp_path: Path) -> None:
    module = tmp_path / "broken_ops.py"
    if text is None:
        doubling(module, op="BlockLSTM", domain="tf")
    else:
        module.write_text(text)
    installed(tmp_path, "broken-ops", "broken_ops")
    first, second = python(tmp_path, ERRORS).splitlines()
    assert first == second
    assert first.startswith(
        "the entry point mine = broken_ops (group lstm_lower.ops) of the installed package 'broken-ops' "
        f"requires a module that can be imported and registers ops, got {reason}"
    )
    assert first.endswith("; mend or uninstall it")
