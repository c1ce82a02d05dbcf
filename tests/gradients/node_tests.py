"""ONNX's own node tests as tests of gradients: a table of what is right, refused, or wrong for each operator.

    python -m tests.gradients.node_tests
    python -m tests.gradients.node_tests --match resize --jobs 2
    python -m tests.gradients.node_tests --twice

Exits with 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import sys

from tests.support.fuzz.node_tests import names
from tests.support.node_gradients import outcome, table


def main() -> int:
    """Runs them; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", help="only names that hold one of these words, between commas")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--twice", action="store_true", help="also the gradients of the gradients")
    given = parser.parse_args()
    chosen = [name for name in names() if any(word in name for word in given.match.split(","))]
    with multiprocessing.get_context("spawn").Pool(given.jobs, maxtasksperchild=200) as pool:
        outcomes = list(pool.imap(functools.partial(outcome, twice=given.twice), chosen, chunksize=4))
    sys.stdout.write(table(outcomes) + "\n")
    return int(any(one.kind == "wrong" for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
