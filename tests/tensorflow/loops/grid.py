"""The grid: recurrent models of TensorFlow 1 in loops of both kinds, with and without lengths, under four optimizers.

    python -m tests.tensorflow.loops.grid [NAME ...]

checks the whole product and all forms in both kinds, or what is named; the tests take a part in which each value of an
axis meets several of the others, most of it as TensorFlow made it once (`tests/data/record_tensorflow_loops.py`), and
the rest made on the spot. Where more examples are asked for, everything is.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path

from tests.support.examples import TIMES
from tests.tensorflow.loops.cells import MODELS
from tests.tensorflow.loops.checks import WAYS, Maker, check, tolerance_of
from tests.tensorflow.loops.forms import FORMS

KINDS = ("v1", "v2")
LENGTHS = ("whole", "lengths")
OPTIMIZERS = ("sgd", "momentum", "rmsprop", "adam")

PRODUCT = ["/".join(names) for names in itertools.product(KINDS, MODELS, LENGTHS, OPTIMIZERS)]

# Any two of a model, a kind and a choice of lengths meet, and any two of a kind, such a choice and an optimizer.
# Those of IN_BOTH_KINDS are there twice, since both kinds of loops end alike.
IN_BOTH_KINDS = ("block/whole/sgd", "lstm/lengths/momentum", "gru/whole/momentum", "bidirectional/lengths/adam")
PART = [
    "/".join((kind, model, lengths, OPTIMIZERS[(i + j + k) // 2 % 4]))
    for (i, model), (j, kind), (k, lengths) in itertools.product(*map(enumerate, (MODELS, KINDS, LENGTHS)))
    if (i + j + k) % 2 == 0
]
PART += [f"v2/{name}" for name in IN_BOTH_KINDS]

# What is refused, and what the error says. Stacks of TensorFlow 1 that loops in loops share hold numbers of one shape.
REFUSED = {
    "v1/growing_nested": "requires elements of a known shape.*enable_control_flow_v2",
    "v1/map_fn_thrice": "a list of TensorArrays.*must be read one by one.*enable_control_flow_v2",
}

# Every form in one of the two kinds, in turn.
SOME_FORMS = [
    f"{kind}/{name}"
    for number, name in enumerate(FORMS)
    for kind in KINDS
    if name in FORMS.names(frames=kind == "v1")
    and (number % 2 == KINDS.index(kind) or name.endswith("_functions"))
    and f"{kind}/{name}" not in REFUSED
]

ALL_FORMS = [
    name for kind in KINDS for form in FORMS.names(frames=kind == "v1") if (name := f"{kind}/{form}") not in REFUSED
]

# In turn of both kinds.
MADE_ON_THE_SPOT = [*SOME_FORMS, *PART] if TIMES > 1 else [*SOME_FORMS[::18], *PART[::14]]


def main() -> int:
    names = sys.argv[1:] or PRODUCT + ALL_FORMS
    failed = 0
    with tempfile.TemporaryDirectory() as folder, Maker(Path(folder)) as maker:
        for name, way in itertools.product(names, WAYS):
            try:
                check(maker.graph(name), way, tolerance_of(name))
            except Exception as error:  # noqa: BLE001
                failed += 1
                print(f"{name} {way}: {type(error).__name__}: {str(error)[:300]}")  # noqa: T201
    print(f"{len(names) * len(WAYS) - failed} right, {failed} wrong")  # noqa: T201
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
