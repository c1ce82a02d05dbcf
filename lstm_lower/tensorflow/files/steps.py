"""What a training graph does in a step: which losses and updates it has, what they need, and where data comes in.

A graph records little of it, so most are likely answers: names of gradients tell what they are gradients of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lstm_lower.tensorflow.files import values
from lstm_lower.tensorflow.files.pipelines import brings_data, is_placeholder, is_source
from lstm_lower.tensorflow.files.values import is_foreign
from lstm_lower.tensorflow.files.views import View, data_inputs

# Ops that write to variables.
_WRITES = re.compile(
    r"(Resource)?(Sparse)?Apply|Assign|(Resource)?Scatter(Nd)?(Add|Sub|Update|Mul|Div|Max|Min)$"
    r"|(Resource)?StridedSliceAssign|Rng(ReadAnd)?Skip|Stateful(Uniform|StandardNormal|TruncatedNormal)"
)
_OPTIMIZERS = re.compile(r"(Resource)?(Sparse)?Apply")

_BUILT_UP = re.compile(r"(?:.*/)?gradients(?:_\d+)?/(.+?)_grad(?:/|$)")
_LOSS = re.compile(r"(.*[/_])?(total_)?(loss|cost)(_?\d+)?", re.IGNORECASE)

# Ops that stand at a graph's end without being what it is for.
_BOOKKEEPING = re.compile(r"NoOp|Assign|Save|Restore|MergeV2Checkpoints|\w*Summary|Queue|Iterator|Is\w*Initialized")

# As many guesses as are of use.
_MOST = 3


def find_train_ops(view: View) -> list[str]:
    """Likely training steps: groups of updates, and what counts a step once these are done."""
    waiting = {name: {x[1:] for x in node.input if x.startswith("^")} for name, node in view.nodes.items()}
    for name, node in view.nodes.items():
        if node.op.startswith("AssignAdd"):
            # What is added may be what waits, a constant.
            waiting[name] |= {x for given in data_inputs(node) for x in waiting.get(given.partition(":")[0], ())}
    writes = {name for name, node in view.nodes.items() if _OPTIMIZERS.match(node.op)}
    if not writes:
        writes = {name for name, node in view.nodes.items() if re.match(r"Assign(Add|Sub)", node.op)}
    groups = {name for name, node in view.nodes.items() if node.op == "NoOp" and writes & waiting[name]}
    # A group inside a group, or behind which the counter of steps is raised, is not the last word.
    grown = True
    while grown:
        outer = {
            name
            for name, node in view.nodes.items()
            if name not in groups and groups & waiting[name] and (node.op == "NoOp" or node.op.startswith("AssignAdd"))
        }
        grown = bool(outer)
        groups |= outer
    inner = {other for name in groups for other in waiting[name]}
    last = [name for name in view.nodes if name in groups - inner]
    return last or [name for name in view.nodes if name in writes]


def find_losses(view: View) -> list[str]:
    """Likely losses: what gradients start from, else scalars that are called so."""
    found: dict[str, None] = {}
    starts = {
        name
        for name, node in view.nodes.items()
        if any("grad_ys_" in tensor.rpartition("/")[2] for tensor in [name, *data_inputs(node)])
    }
    for node in view.nodes.values():
        if node.name not in starts and any(name.partition(":")[0] in starts for name in data_inputs(node)):
            match = _BUILT_UP.match(node.name)
            if match is not None and match[1] in view.nodes and _is_scalar(view, match[1]):
                found[f"{match[1]}:0"] = None
    named = [name for name in view.nodes if _LOSS.fullmatch(name) and "gradient" not in name]
    named = [name for name in named if _is_scalar(view, name)]
    # Gradients of a sum have the names of its terms; the sum is what comes next that is called a loss.
    terms = {f"{name}:0": _terms(view, name) for name in named}
    sums = {tensor: made for tensor, made in terms.items() if made & found.keys()}
    sums = {tensor: made for tensor, made in sums.items() if not made & sums.keys()}
    covered = set().union(*sums.values())
    return [x for x in dict.fromkeys([*found, *sums]) if x not in covered][:_MOST] or list(terms)[:_MOST]


def _terms(view: View, name: str) -> set[str]:
    """The scalars of which a scalar is made up by others, itself left out."""
    found: set[str] = set()
    pending = [name]
    while pending:
        for tensor in data_inputs(view.nodes[pending.pop()]):
            node, number = view.made_by(tensor)
            if node is not None and f"{node.name}:{number}" not in found and view.shape(tensor) == ():
                found.add(f"{node.name}:{number}")
                pending.append(node.name)
    return found


def has_updates(view: View) -> bool:
    """Whether an optimizer's ops update variables."""
    return any(_OPTIMIZERS.match(node.op) for node in view.nodes.values())


def has_gradients(view: View) -> bool:
    """Whether the graph computes gradients, by their names."""
    return any(_BUILT_UP.match(name) or "gradient_tape/" in name for name in view.nodes)


def ends(view: View) -> list[str]:
    """The nodes that nothing reads, but for those that initialize, save or log."""
    read = {name.removeprefix("^").partition(":")[0] for node in view.nodes.values() for name in node.input}
    return [name for name, node in view.nodes.items() if name not in read and not _BOOKKEEPING.match(node.op)]


def _is_scalar(view: View, name: str) -> bool:
    if _BOOKKEEPING.match(view.nodes[name].op):
        # A summary has the dtype of what it tells, and is a string.
        return False
    dtype = values.onnx_dtype(view.dtype(name))
    return view.shape(name) in ((), None) and dtype is not None and dtype.is_floating_point()


def needed(view: View, roots: Iterable[str], cuts: Sequence[str] = ()) -> tuple[set[str], list[str]]:
    """What a step needs of a graph.

    Args:
        view: the graph.
        roots: tensors and nodes.
        cuts: tensors that are given instead of being computed.

    Returns:
        Names of the nodes, and the tensors where data comes in: `cuts` that were met, placeholders, ends of pipelines.
    """
    found: set[str] = set()
    ends: dict[str, None] = {}
    given = {name if ":" in name else f"{name}:0" for name in cuts}
    pending = list(roots)
    while pending:
        spelled = pending.pop()
        node, number = view.made_by(spelled)
        if node is None:
            continue
        tensor = f"{node.name}:{number}"
        control = spelled.startswith("^")
        if not control and (tensor in given or is_placeholder(node)):
            ends[tensor] = None
            continue
        if not control and brings_data(view, node):
            # Of texts it is what reads them that matters, which was met before.
            ends |= {} if is_foreign(view.dtype(tensor)) else {tensor: None}
            continue
        if control and not (node.op in ("NoOp", "Identity") or _WRITES.match(node.op)):
            # What is only waited for matters where it writes, or waits for what does.
            continue
        if node.name not in found:
            found.add(node.name)
            pending += node.input
    return found, sorted(ends, key=lambda tensor: _position(view, tensor))


def sources(view: View, roots: Iterable[str]) -> list[str]:
    """The tensors where an input pipeline hands data to what a step needs.

    Where such data is the default of a placeholder, that is the tensor which runs feed.
    """
    made = {end: view.made_by(end)[0] for end in needed(view, roots)[1]}
    return [end for end, node in made.items() if is_source(node.op) or sources(view, node.input)]


def _position(view: View, tensor: str) -> tuple[int, str, int]:
    name, _, number = tensor.rpartition(":")
    # Pipelines come first, which hold the data; placeholders often are rates and switches.
    return (0 if is_source(view.nodes[name].op) else 1, name, int(number))
