"""All further forms of loops and branches, by name."""

from __future__ import annotations

from tests.tensorflow.loops.branches import BRANCHES
from tests.tensorflow.loops.counts import COUNTS
from tests.tensorflow.loops.gradients import GRADIENTS
from tests.tensorflow.loops.kit import Forms
from tests.tensorflow.loops.layers import LAYERS
from tests.tensorflow.loops.lists import LISTS
from tests.tensorflow.loops.uneven import UNEVEN
from tests.tensorflow.loops.variables import VARIABLES

FORMS: Forms = Forms({**COUNTS, **LISTS, **BRANCHES, **GRADIENTS, **LAYERS, **VARIABLES, **UNEVEN})
