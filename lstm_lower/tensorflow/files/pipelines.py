"""Where data comes into a graph: ops that hand on what queues, iterators, readers and decoders hold outside of it."""

from __future__ import annotations

import re
from typing import Any

from lstm_lower.checkpoints import values
from lstm_lower.checkpoints.messages import attribute
from lstm_lower.tensorflow.files.views import View, data_inputs

# Ops that hand out what another thread, another device or Python has put somewhere.
_KEPT = re.compile(
    r"QueueDequeue|\w*Iterator\w*GetNext(Sync|FromShard)?$|\w*Unstage|StagePeek|\w*MapPeek|BarrierTakeMany|Recv"
    r"|InfeedDequeue|EagerPyFunc|PyFunc|StatelessPyFunc|RecordInput"
)
# Ops that read numbers out of texts, bytes and packed tensors.
_READ = re.compile(
    r"ReaderRead|Parse|Decode(?!Proto)|StringTo(Number|HashBucket)|StringLength|UnicodeDecode|LookupTableFind"
    r"|TakeManySparseFromTensorsMap|Deserialize(Many)?Sparse|RaggedTensorFromVariant"
)
# Ops that only put something there, for another step or thread.
_STORED = re.compile(
    r"QueueEnqueue|QueueClose|\w*Stage(Clear)?$|\w*MapClear|BarrierInsertMany|Send|InfeedEnqueue|Outfeed"
)


def is_source(op: str) -> bool:
    """Whether an op hands out what an input pipeline made."""
    return bool(_KEPT.match(op) or _READ.match(op))


def only_feeds(op: str) -> bool:
    """Whether an op matters to an input pipeline alone where nothing reads its result."""
    return is_source(op) or _STORED.match(op) is not None


def is_placeholder(node: Any) -> bool:
    """Whether a node stands for a tensor that a run feeds."""
    return node.op.startswith("Placeholder") and values.base_dtype(attribute(node, "dtype").type) != values.RESOURCE


def brings_data(view: View, node: Any) -> bool:
    """Whether a node is where data comes in: a source that nothing else in the graph decides on.

    What Python computes from the network's results, or a list packs of them, is part of the network.
    """
    if not is_source(node.op):
        return False
    seen: set[str] = set()
    pending = list(data_inputs(node))
    while pending:
        above, number = view.made_by(pending.pop())
        if above is None or above.name in seen:
            continue
        seen.add(above.name)
        fed = is_placeholder(above) and not values.is_foreign(view.dtype(f"{above.name}:{number}"))
        if view.is_variable(above) or (fed and _READ.match(node.op)):
            return False
        if not is_source(above.op):
            pending += data_inputs(above)
    return True
