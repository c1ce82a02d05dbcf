"""Ordinary ops by tf2onnx, ours left as nodes; what it would only log becomes an error."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import onnx
import tensorflow as tf
from tf2onnx import optimizer, tf_loader, tfonnx

from lstm_lower.errors import InvalidInputError, InvalidModelError, UnsupportedOpError
from lstm_lower.tensorflow import draws
from lstm_lower.tensorflow.graph import GraphDef
from lstm_lower.tensorflow.plugin import DOMAIN, custom_ops, tf2onnx_ops
from lstm_lower.tensorflow.quick import quick_graphs

_OPTIMIZERS: Mapping[str, Callable[[], Any]] = optimizer._get_optimizers()

# The range that tf2onnx writes.
OPSETS = range(13, 19)


def fold(graph_def: GraphDef, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> GraphDef:
    """What TensorFlow's own optimiser makes of a graph without calls and variables: constants folded, dead nodes gone.

    Args:
        graph_def: the graph.
        inputs: public name -> tensor, in order.
        outputs: the same for outputs.

    Raises:
        InvalidModelError: TensorFlow refuses the graph.
    """
    with _refusals_explained(), tf.Graph().as_default(), tf.device("/cpu:0"):
        # Grappler reads a graph from the default one, which must not be the eager context.
        tf.import_graph_def(graph_def, name="")
        return tf_loader.tf_optimize(list(inputs.values()), list(outputs.values()), graph_def)


@contextlib.contextmanager
def _refusals_explained() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, tf.errors.OpError) as error:
        raise InvalidModelError(
            f"the graph requires to be one that TensorFlow loads, got: {first_line(error)}"
        ) from error


def convert(graph_def: GraphDef, inputs: Mapping[str, str], outputs: Mapping[str, str], opset: int) -> onnx.ModelProto:
    """Converts a graph without calls and variables.

    Args:
        graph_def: the graph, as `fold` leaves it.
        inputs: public name -> tensor, in order.
        outputs: the same for outputs.
        opset: version of `ai.onnx`.

    Raises:
        UnsupportedOpError: ops that tf2onnx cannot convert; every one is named.
        InvalidModelError: TensorFlow refuses the graph.
    """
    input_names, output_names = list(inputs.values()), list(outputs.values())
    graph = tf.Graph()
    with _refusals_explained(), graph.as_default():
        tf.import_graph_def(draws.mark(graph_def), name="")
    renamed = {tensor: name for name, tensor in [*inputs.items(), *outputs.items()] if tensor != name}
    handlers: dict[str, Any] = {op: (_keep, []) for op in custom_ops()} | draws.handlers()

    def process() -> Any:
        return tfonnx.process_tf_graph(
            graph,
            continue_on_error=True,
            opset=opset,
            custom_op_handlers=handlers,
            extra_opset=tf2onnx_ops()["extra_opset"],
            input_names=input_names,
            output_names=output_names,
            tensors_to_rename=renamed,
        )

    with graph.as_default(), quick_graphs(), _caught_log() as problems:
        try:
            made = process()
            if not problems:
                model: onnx.ModelProto = _optimized(made, process).make_model("lstm-lower")
                return model
        except Exception as error:
            if not problems:
                raise UnsupportedOpError(
                    f"tf2onnx requires a graph it can convert, got: {first_line(error)}"
                ) from error
    raise UnsupportedOpError("\n".join(dict.fromkeys(problems)))


def _optimized(made: Any, process: Callable[[], Any]) -> Any:
    """What tf2onnx's optimizers make of a graph; one that fails is left out.

    A failure leaves the graph half changed, so that the others start from a new one.
    """
    steps = dict(_OPTIMIZERS)
    while True:
        started: list[str] = []

        def noted(name: str, step: Callable[[], Any], started: list[str] = started) -> Callable[[], Any]:
            def make() -> Any:
                started.append(name)
                return step()

            return make

        try:
            noting = {name: noted(name, step) for name, step in steps.items()}
            return optimizer.optimize_graph(made, catch_errors=False, optimizers=noting)
        except Exception:
            if not started or started[-1] not in steps:
                raise
            del steps[started[-1]]
            made = process()


def check_opset(opset: int) -> None:
    """Refuses an opset that tf2onnx cannot write.

    Raises:
        InvalidInputError: it is outside the range.
    """
    if opset not in OPSETS:
        raise InvalidInputError(
            f"opset requires {OPSETS.start} to {OPSETS.stop - 1}, what tf2onnx writes (lower() raises it), got {opset}"
        )


def _keep(context: Any, node: Any, name: str, args: list[str]) -> Any:  # noqa: ARG001 (tf2onnx's signature)
    node.domain = DOMAIN
    return node


def first_line(error: Exception) -> str:
    """The part of an error's text that fits into one of ours."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


class _Collector(logging.Handler):
    """Turns tf2onnx's log records about ops it cannot convert into lines of an error."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(logging.ERROR)
        self.problems = problems

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args if isinstance(record.args, tuple) else ()
        if record.msg.startswith("Tensorflow op [%s: %s] is not supported"):
            self.problems.append(f"{arguments[1]} '{arguments[0]}': no conversion is known for it")
        elif record.msg.startswith("Failed to convert node"):
            error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
            reason = first_line(error) if isinstance(error, Exception) else "an error"
            summary = str(arguments[2]) if len(arguments) > 2 else ""
            op = (summary.partition("OP=")[2].splitlines() or ["?"])[0]
            self.problems.append(f"{op} '{arguments[0]}': tf2onnx cannot convert it: {reason}")


@contextlib.contextmanager
def _caught_log() -> Iterator[list[str]]:
    """Collects tf2onnx's complaints and keeps its log quiet."""
    problems: list[str] = []
    collector = _Collector(problems)
    log = logging.getLogger("tf2onnx")
    level, propagates, handlers = log.level, log.propagate, list(log.handlers)
    log.handlers[:] = [collector]
    log.propagate = False
    log.setLevel(logging.ERROR)
    try:
        yield problems
    finally:
        log.handlers[:] = handlers
        log.propagate = propagates
        log.setLevel(level)
