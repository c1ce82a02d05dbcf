"""Does the suite see a wrong rule? Each lowering rule in turn is made wrong, and a case of its op must fail.

    python -m tests.support.wrong_rules [OP ...]

prints a row for each rule and each of its outputs: which of the suite's cases saw it, those that TensorFlow recorded
first. An output is made wrong by itself: numbers by a
twentieth and some more, integers by one, truths are turned round.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
from onnx import TensorProto

from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import OpDef
from lstm_lower.ops.ort_elementwise import MICROSOFT
from lstm_lower.passes.rewriting import Results, values_of
from lstm_lower.passes.rules import ort_updates
from lstm_lower.passes.rules.registry import RULES, Formula, Node, lowerable
from lstm_lower.registry import key_of
from tests.ops import test_cudnn_bad_inputs
from tests.rules import (
    test_block_family,
    test_cudnn_lowering,
    test_drawing,
    test_gradients,
    test_math_ops,
    test_ordinary_ops,
    test_ort_fused,
    test_ort_quantized,
    test_ort_training,
    test_spatial_gradients,
)
from tests.support.ordinary.families import all_cases

# Raises an AssertionError where what an op is lowered to is not what was recorded, or what its oracle says.
Witness = Callable[[], object]
# Cases of an op that are asked, at most.
MOST = 40

# Outputs that hold nothing on a processor: what kernels of other devices leave for one another, and gradients that
# TensorFlow itself does not compute.
EMPTY = frozenset(
    {
        *((op, "reserve_space") for op in ("CudnnRNN", "CudnnRNNV2")),
        *((op, "host_reserved") for op in ("CudnnRNNV2", "CudnnRNNV3")),
        *((op, f"reserve_space_{i}") for op in ("FusedBatchNormGrad", "FusedBatchNormGradV2") for i in (3, 4)),
        *(("FusedBatchNormGradV3", f"reserve_space_{number}") for number in (4, 5)),
        ("FusedBatchNormV3", "reserve_space_3"),
        # What no rule makes: a node that is asked for it is refused.
        ("SkipSimplifiedLayerNormalization", "mean"),
        ("GroupQueryAttention", "output_qk"),
    }
)


def perturbed(result: Expr) -> Expr:
    """A wrong result, of the same type and shape."""
    if result.dtype == ir.DataType.BOOL:
        return ~result
    if result.dtype.is_floating_point():
        return result * 1.05 + 0.05
    # onnxruntime adds no small integers.
    return (result.cast(ir.DataType.INT64) + 1).cast(result.dtype)


@dataclasses.dataclass(eq=False)
class WrongRule:
    """A rule with one wrong output.

    Attributes:
        formula: the right rule.
        output: the output that is wrong.
        reached: whether it has been asked for that output.
    """

    formula: Formula
    output: str
    reached: bool = False

    def __call__(self, node: Node, builder: Builder) -> Results:
        """The results, those of that one output wrong."""
        results = values_of(self.formula(node, builder) or ())
        slots = node.op.output_slots(len(results), node.call.attributes)
        for place, (slot, value) in enumerate(zip(slots, results, strict=False)):
            if slot.operand.name == self.output and value is not None:
                results[place] = self._perturbed(node, builder, builder.wrap(value)).value
                self.reached = True
        return results

    @staticmethod
    def _perturbed(node: Node, builder: Builder, result: Expr) -> Expr:
        if isinstance(result.value.type, ir.SequenceType):
            return ort_updates._mapped(node, builder, [result], [], lambda x: [perturbed(x)])[0]
        return perturbed(result)


@contextlib.contextmanager
def wrong(op: type[OpDef], output: str) -> Iterator[WrongRule]:
    """Replaces an op's rule."""
    key, right = key_of(op), RULES[op]
    rule = WrongRule(right.formula, output)
    RULES._entries[key] = dataclasses.replace(right, formula=rule)
    try:
        yield rule
    finally:
        RULES._entries[key] = right


@dataclasses.dataclass(frozen=True)
class Row:
    """What became of one wrong output.

    Attributes:
        op: the op.
        output: the output.
        seen_by: the case that failed; empty where none did.
        reached: whether any case asks for the output.
    """

    op: str
    output: str
    seen_by: str
    reached: bool


def rows(op: type[OpDef], witnesses: Sequence[tuple[str, Witness]]) -> Iterator[Row]:
    """A row for each output of an op."""
    for output in op.outputs:
        if (op.op_type, output.name) in EMPTY:
            continue
        with wrong(op, output.name) as rule:
            seen_by = ""
            for name, witness in witnesses:
                try:
                    witness()
                except Exception:  # noqa: BLE001 (a wrong index or size may end in any error, too)
                    # What is wrong must have been asked for: nothing else may fail the case.
                    seen_by = name if rule.reached else ""
                    break
            yield Row(f"{op.domain}.{op.op_type}", output.name, seen_by, rule.reached)


class _Witnesses(dict[tuple[str, str], list[tuple[str, Witness]]]):
    """Cases by op."""

    def add(self, op: Any, name: str, check: Callable[..., object], *given: Any, **options: Any) -> None:
        """Adds a case, unless there are enough."""
        kept = self.setdefault(key_of(op), [])
        if len(kept) < MOST:
            kept.append((f"{check.__name__}[{name}]", functools.partial(check, *given, **options)))


@functools.cache
def all_witnesses() -> Mapping[tuple[str, str], list[tuple[str, Witness]]]:
    """The suite's cases by op, those that TensorFlow recorded first."""
    found = _Witnesses()
    ordinary = functools.partial(
        test_ordinary_ops.test_lowered_equals_tensorflow, opset=18, symbolic=False, unranked=False
    )
    functools.update_wrapper(ordinary, test_ordinary_ops.test_lowered_equals_tensorflow)

    def rank(entry: tuple[str, Any]) -> tuple[bool, ...]:
        _, case = entry
        parts = [part for value in case.operands.values() for part in (value if isinstance(value, list) else [value])]
        empty = not all(part.size for part in parts)
        return empty, not case.taken, "float32" not in case.what, not case.relative

    best = sorted(all_cases(), key=rank)
    for family, case in best:
        found.add(case.op, case.id, ordinary, [(family, case)])
    for module in (test_math_ops, test_gradients, test_spatial_gradients):
        for case in sorted(module.cases(), key=lambda case: "float32" not in case.id):
            found.add(case.op, case.id, module.test_lowered_equals_tensorflow, [case], 18, symbolic=False)
    for block in test_block_family.CASES:
        found.add(block.op, block.id, test_block_family.test_no_worse_than_tensorflow, block)
    _add_cudnn(found)
    _add_drawing(found)
    _add_onnxruntimes(found)
    return found


def _add_cudnn(found: _Witnesses) -> None:
    """TensorFlow has no kernels of these for processors: next to oracles, which PyTorch's results prove."""
    for op in ("CudnnRNN", "CudnnRNNV2"):
        for name in (op, op.replace("RNN", "RNNBackprop")):
            found.add(name, op, test_cudnn_lowering.test_older_versions, op)
    for op in ("CudnnRNNParamsSize", "CudnnRNNParamsToCanonicalV2", "CudnnRNNCanonicalToParamsV2"):
        found.add(op, op, test_cudnn_bad_inputs.test_params_ops)
    for op in ("CudnnRNNParamsToCanonical", "CudnnRNNCanonicalToParams"):
        found.add(op, op, test_cudnn_bad_inputs.test_params_round_trip, "lstm", "bidirectional", "linear_input")
    for case in test_cudnn_lowering.SAMPLE:
        found.add("CudnnRNNV3", str(case), test_cudnn_lowering.test_training_graph, case)
        found.add("CudnnRNNBackpropV3", str(case), test_cudnn_lowering.test_backward_alone, case)


def _add_drawing(found: _Witnesses) -> None:
    """What nobody can record: what the numbers are like."""
    single, t = TensorProto.FLOAT, test_drawing
    for op, form in {
        "RandomUniform": (0.5, 12**-0.5, 0, 1),
        "RandomStandardNormal": (0, 1, -7, 7),
        "TruncatedNormal": (0, 0.7737**0.5, -2, 2),
    }.items():
        found.add(op, "float32", t.test_distributions, op, *form, single, 18)
    found.add("RandomUniformInt", "int64", t.test_integers, -1, 3, 18)
    found.add("RandomShuffle", "rows", t.test_orders, 18)
    found.add("Multinomial", "logits", t.test_classes_by_logarithms, 18)
    found.add("RandomGamma", "float32", t.test_gamma_numbers, "float32", 18)
    for op in ("UniformCandidateSampler", "LogUniformCandidateSampler"):
        found.add(op, "unique", t.test_candidates_are_like_those_of_tensorflow, op, unique=True)
        found.add(op, "repeated", t.test_candidates_are_like_those_of_tensorflow, op, unique=False)


def _add_onnxruntimes(found: _Witnesses) -> None:
    for case in test_ort_fused.CASES:
        name = "-".join([case.op, *case.outputs])
        check = test_ort_fused.test_ops_compute_what_onnxruntimes_kernels_do
        found.add((MICROSOFT, case.op), name, check, case)
    for place, case in enumerate(test_ort_quantized.CASES):
        check = test_ort_quantized.test_ops_compute_what_onnxruntimes_kernels_do
        found.add((MICROSOFT, case.op), f"{case.op}-{place}", check, case)
    for case in test_ort_training.cases():
        found.add((MICROSOFT, case.op), case.op, test_ort_training.test_ops_compute_what_their_oracles_do, case)
    for forward, backward, attributes in test_ort_training.recurrent_cases():
        for op in (forward, backward):
            name, check = op.op_type, test_ort_training.test_recurrent_layers_in_float64
            found.add(op, name, check, forward, backward, attributes, ())
    for op in ("AveragePoolGrad", "MaxPoolGrad"):
        found.add((MICROSOFT, op), op, test_ort_training.test_gradients_of_poolings, op)
    found.add((MICROSOFT, "InplaceClipGradNorm"), "two", test_ort_training.test_gradients_whose_norm_is_clipped, 1.0)
    # Ops that come in whole graphs.
    for names, check in (
        (test_ort_training.GRAPHS, test_ort_training.test_training_graphs_compute_what_onnxruntime_training_does),
        (test_ort_training.OPTIMIZERS, test_ort_training.test_optimizers_compute_what_onnxruntime_training_does),
    ):
        for name in names:
            model = onnx.ModelProto.FromString(test_ort_training.recording(name)["model"].tobytes())
            for op in {node.op_type for node in model.graph.node if node.domain == MICROSOFT}:
                if (MICROSOFT, op) in RULES:
                    found.add((MICROSOFT, op), name, check, name)


def main(names: Sequence[str]) -> int:
    """Prints the table; 1 if any wrong rule is not seen."""
    unseen = 0
    for op in lowerable():
        if names and op.op_type not in names:
            continue
        for row in rows(op, all_witnesses().get(key_of(op), ())):
            unseen += not row.seen_by
            sys.stdout.write(f"{row.op} {row.output}: {row.seen_by or ('not seen' if row.reached else 'no case')}\n")
    sys.stdout.write(f"{unseen} not seen\n")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
