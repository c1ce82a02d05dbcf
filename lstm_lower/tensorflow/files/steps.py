"""What a training graph does in a step: which losses and updates it has, what they need, and where data comes in.

A graph records little of it, so most are likely answers: names of gradients tell what they are gradients of.
"""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lstm_lower.checkpoints import values
from lstm_lower.checkpoints.values import is_foreign
from lstm_lower.dtypes import is_floating
from lstm_lower.reachability import reached
from lstm_lower.tensorflow.files.pipelines import brings_data, is_placeholder, is_source
from lstm_lower.tensorflow.files.views import View, data_inputs

# Ops that write to variables.
_WRITES = re.compile(
    r"(Resource)?(Sparse)?Apply|Assign|(Resource)?Scatter(Nd)?(Add|Sub|Update|Mul|Div|Max|Min)$"
    r"|(Resource)?StridedSliceAssign|Rng(ReadAnd)?Skip|Stateful(Uniform|StandardNormal|TruncatedNormal)"
)
_OPTIMIZERS = re.compile(r"(Resource)?(Sparse)?Apply")

# The scope of one call of `tf.gradients`, and the end of the scope in it that belongs to one op.
_GRADIENTS = re.compile(r"(?:^|/)gradients(?:_\d+)?/")
_OF_ONE_OP = re.compile(r"_grad(?=/|$)")
# Gradients of gradients of gradients ... that a name tells.
_NESTED = 16
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


def recorded_train_ops(view: View, recorded: Iterable[str]) -> list[str]:
    """Training steps that a file records, as an optimizer does by itself.

    Programs often run one op that waits for such a step and writes more, such as moving averages or a target network:
    where it is the only one, it is the step.
    """
    steps = [name for name in (spelled.partition(":")[0] for spelled in recorded) if name in view.nodes]
    if not steps:
        return []
    readers: dict[str, list[str]] = collections.defaultdict(list)
    for node in view.nodes.values():
        for spelled in node.input:
            readers[spelled.removeprefix("^").partition(":")[0]].append(node.name)
    return list(dict.fromkeys(_behind_step(view, readers, name) for name in steps))


def _behind_step(view: View, readers: Mapping[str, Sequence[str]], step: str) -> str:
    """The only op that is run last behind a step and writes more; else the step itself."""
    ends = {name for name in _behind(readers, step) if view.nodes[name].op == "NoOp" or _writes(view, name)}
    last = [name for name in view.nodes if name in ends and ends.isdisjoint(_behind(readers, name))]
    written = {name for name in needed(view, [step])[0] if _writes(view, name)}
    more = [name for name in last if any(_writes(view, x) and x not in written for x in needed(view, [name])[0])]
    return more[0] if len(more) == 1 else step


def _behind(readers: Mapping[str, Sequence[str]], name: str) -> set[str]:
    """The nodes that read a node, or wait for it, and those that these do so for."""
    return set(reached(readers.get(name, ()), lambda reader: readers.get(reader, ())))


def _writes(view: View, name: str) -> bool:
    return _WRITES.match(view.nodes[name].op) is not None


def find_losses(view: View) -> list[str]:
    """Likely losses: what gradients start from, else scalars that are called so."""
    found = {scalar: None for name in _differentiated(view) if (scalar := _only_scalar(view, name)) is not None}
    # What a gradient starts from is handed on to the terms of a difference, too.
    inner = set().union(*(_terms(view, tensor.partition(":")[0]) for tensor in found))
    found = {tensor: None for tensor in found if tensor not in inner}
    named = [name for name in view.nodes if _LOSS.fullmatch(name) and "gradient" not in name]
    named = [name for name in named if _is_scalar(view, name)]
    # Gradients of a sum have the names of its terms; the sum is what comes next that is called a loss.
    terms = {f"{name}:0": _terms(view, name) for name in named}
    sums = {tensor: made for tensor, made in terms.items() if made & found.keys()}
    sums = {tensor: made for tensor, made in sums.items() if not made & sums.keys()}
    covered = set().union(*sums.values())
    return [x for x in dict.fromkeys([*found, *sums]) if x not in covered][:_MOST] or list(terms)[:_MOST]


def _differentiated(view: View) -> list[str]:
    """The ops whose results `tf.gradients` was called for; where some are certain to be scalars, these.

    In its scope there are ops without a scope of their own, by which a gradient of ones gets to the first op with one.
    TensorFlow's versions have different names for them.
    """
    scoped = {name for name in view.nodes if _GRADIENTS.search(name)}
    owners = {name: owner for name in scoped if (owner := _differentiated_op(view, name)) is not None}
    between = [view.nodes[name] for name in view.nodes if name in scoped and name not in owners]
    readers: dict[str, list[str]] = collections.defaultdict(list)
    for node in between:
        # What is filled with ones has a shape of its own.
        for name in _reads(node) if node.op != "Fill" else ():
            readers[name].append(node.name)
    seeds: dict[str, bool] = {}
    ranks = [(node.name, _rank_of_seed(view, node)) for node in between if _is_seed(view, node)]
    pending = [(name, rank == 0) for name, rank in ranks if rank in (0, None)]
    while pending:
        name, is_scalar = pending.pop()
        if name not in seeds:
            seeds[name] = is_scalar
            pending += [(reader, is_scalar) for reader in readers[name]]
    found: dict[str, bool] = {}
    for name in view.nodes:
        if name in owners:
            for seed in _reads(view.nodes[name]) & seeds.keys():
                found[owners[name]] = found.get(owners[name], False) or seeds[seed]
    return [owner for owner, is_scalar in found.items() if is_scalar] or list(found)


def _is_seed(view: View, node: Any) -> bool:
    return "grad_ys_" in node.name.rpartition("/")[2] or _is_ones(view, node)


def _rank_of_seed(view: View, node: Any) -> int | None:
    """The rank of what starts a gradient: what is filled says how many sizes it has."""
    if node.op != "Fill":
        shape = view.shape(node.name)
        return None if shape is None else len(shape)
    sizes = view.shape(node.input[0])
    return None if sizes is None or len(sizes) != 1 else sizes[0]


def _differentiated_op(view: View, name: str) -> str | None:
    """The op of whose gradient a node is a part, by its name; of gradients of gradients the outermost."""
    for scope in itertools.islice(_GRADIENTS.finditer(name), _NESTED):
        ends = [match.start() for match in _OF_ONE_OP.finditer(name, scope.end())][-_NESTED:]
        for end in reversed(ends):
            if name[scope.end() : end] in view.nodes:
                return name[scope.end() : end]
    return None


def _is_ones(view: View, node: Any) -> bool:
    """Whether a node makes floating-point ones, and nothing else."""
    dtype = values.onnx_dtype(view.dtype(node.name))
    if not is_floating(dtype):
        return False
    if node.op == "Fill":
        filled = view.made_by(node.input[1])[0] if len(node.input) > 1 else None
        return filled is not None and filled.op == "Const" and _is_ones(view, filled)
    return node.op == "OnesLike" or (node.op == "Const" and values.only_number(node) == 1)


def _reads(node: Any) -> set[str]:
    return {tensor.partition(":")[0] for tensor in data_inputs(node)}


def _terms(view: View, name: str) -> set[str]:
    """The scalars of which a scalar is made up by others, itself left out."""

    def scalars(tensor: str) -> Iterator[str]:
        for term in data_inputs(view.nodes[tensor.partition(":")[0]]):
            node, number = view.made_by(term)
            if node is not None and view.shape(term) == ():
                yield f"{node.name}:{number}"

    return set(reached(scalars(name), scalars))


def gradient_scope(name: str) -> str | None:
    """The scope of the call of `tf.gradients` that made a node, by its name; the outermost of several."""
    match = _GRADIENTS.search(name)
    return None if match is None else name[: match.end()]


def has_updates(view: View) -> bool:
    """Whether an optimizer's ops update variables."""
    return any(_OPTIMIZERS.match(node.op) for node in view.nodes.values())


def has_gradients(view: View) -> bool:
    """Whether the graph computes gradients, by their names."""
    scopes = ((name, _GRADIENTS.search(name)) for name in view.nodes)
    return any(
        "gradient_tape/" in name or (scope is not None and _OF_ONE_OP.search(name, scope.end()) is not None)
        for name, scope in scopes
    )


def ends(view: View) -> list[str]:
    """The nodes that nothing reads, but for those that initialize, save or log."""
    read = {name.removeprefix("^").partition(":")[0] for node in view.nodes.values() for name in node.input}
    return [name for name, node in view.nodes.items() if name not in read and not _BOOKKEEPING.match(node.op)]


def _only_scalar(view: View, name: str) -> str | None:
    """The result of a node that may be a loss; `None` where none is, or one of several, as of a loop, may be."""
    lists = (view.nodes[name].attr[key].list.type for key in ("T", "Tout") if key in view.nodes[name].attr)
    count = max([1, *map(len, lists)])
    found = [tensor for tensor in (f"{name}:{number}" for number in range(count)) if _is_scalar(view, tensor)]
    return found[0] if len(found) == 1 else None


def _is_scalar(view: View, tensor: str) -> bool:
    """Whether a tensor may be a scalar of a floating dtype."""
    node, _ = view.made_by(tensor)
    if _BOOKKEEPING.match(node.op):
        # A summary has the dtype of what it tells, and is a string.
        return False
    dtype = values.onnx_dtype(view.dtype(tensor))
    return view.shape(tensor) in ((), None) and is_floating(dtype)


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
