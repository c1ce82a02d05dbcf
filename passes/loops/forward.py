"""Loops in the one form that every runtime knows: forward, over axis 0.

onnxruntime walks a Scan backwards, and along any axis, at no cost, so lowering makes use of it. onnx's own reference
evaluator and some other runtimes implement only the plain form; for them the sequences are turned round outside the
loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.passes.decompositions.decompose import DecomposePass
from lstm_lower.passes.rewriting import Results


class ForwardScansPass(DecomposePass):
    """Rewrites Scans that run backwards or along another axis into forward ones over axis 0.

    A Scan along another axis of a sequence whose rank is not known stays as it is.
    """

    def __init__(self) -> None:
        super().__init__(std.Scan.matches)

    def formula(self, node: ir.Node, builder: Builder) -> Results | None:
        """The loop in plain form, with sequences turned round outside of it; `None` where it is that already."""
        scan = std.Scan.of(node, builder.facts)
        return None if scan is None else _in_plain_form(scan, builder)


def walks_across(scan: std.Scan) -> bool:
    """Whether a Scan walks along another axis than the first, of sequences whose ranks are known."""
    return any(scan.input_axes) and _ranks_are_known(scan, _inputs(scan))


def along_the_first_axis(scan: std.Scan, b: Builder) -> Sequence[ir.Value]:
    """The same loop along axis 0, whichever way it runs and whatever it makes."""
    moved = [_moved(b, value, axis, 0) if axis else value for value, axis, _ in _inputs(scan)]
    return _again(scan, b, moved, scan_input_axes=None)


_Sequences = Sequence[tuple[ir.Value, int, int]]


def _inputs(scan: std.Scan) -> list[tuple[ir.Value, int, int]]:
    """What is walked along, with its axis and its direction."""
    values = [value for value in scan.node.inputs[scan.states :] if value is not None]
    return list(zip(values, scan.input_axes, scan.input_directions, strict=True))


def _ranks_are_known(scan: std.Scan, sequences: _Sequences) -> bool:
    return not any(axis and scan.facts.rank(value) is None for value, axis, _ in sequences)


def _again(scan: std.Scan, e: Builder, sequences: Sequence[ir.Value], **changed: None) -> Sequence[ir.Value]:
    """Emits a Scan of other sequences, which takes over the body."""
    made = e.again(scan.node, [*scan.node.inputs[: scan.states], *sequences], **changed)
    scan.node.attributes.pop("body")
    return made.outputs


def _in_plain_form(scan: std.Scan, b: Builder) -> list[ir.Value] | None:
    states, inputs = scan.states, _inputs(scan)
    outputs = list(zip(scan.node.outputs[states:], scan.output_axes, scan.output_directions, strict=True))
    sequences = [*inputs, *outputs]
    if not any(axis or reverse for _, axis, reverse in sequences) or not _ranks_are_known(scan, sequences):
        return None
    axes = dict.fromkeys(("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions"))
    made = _again(scan, b, [_plain(b, *each) for each in inputs], **axes)
    turned = [_turned(b, new, *how) for new, (_, *how) in zip(made[states:], outputs, strict=True)]
    return [*made[:states], *turned]


def _plain(e: Builder, sequence: ir.Value, axis: int, reverse: int) -> ir.Value:
    """A sequence with time on axis 0, in the order of the walk."""
    sequence = _moved(e, sequence, axis, 0) if axis else sequence
    return e.reverse(sequence, 0) if reverse else sequence


def _turned(e: Builder, sequence: ir.Value, axis: int, reverse: int) -> ir.Value:
    """A sequence in plain form as it is to be laid out."""
    sequence = e.reverse(sequence, 0) if reverse else sequence
    return _moved(e, sequence, 0, axis) if axis else sequence


def _moved(e: Builder, sequence: ir.Value, source: int, target: int) -> ir.Value:
    rank = e.facts.rank(sequence)
    assert rank is not None
    return e.move_axis(sequence, source, target, rank)
