"""ONNX's own operators, each with a typed view. An operator's name is written in quotes nowhere else."""

from lstm_lower.graph.standard.arrays import *
from lstm_lower.graph.standard.base import OLDEST_VIEWED as OLDEST_VIEWED
from lstm_lower.graph.standard.base import VIEWS as VIEWS
from lstm_lower.graph.standard.base import Facet as Facet
from lstm_lower.graph.standard.base import Knowledge as Knowledge
from lstm_lower.graph.standard.base import Standard as Standard
from lstm_lower.graph.standard.base import undeclared as undeclared
from lstm_lower.graph.standard.complex_numbers import *
from lstm_lower.graph.standard.control_flow import *
from lstm_lower.graph.standard.elementwise import *
from lstm_lower.graph.standard.images import *
from lstm_lower.graph.standard.layers import *
from lstm_lower.graph.standard.normalization import *
from lstm_lower.graph.standard.products import *
from lstm_lower.graph.standard.recurrent import *
from lstm_lower.graph.standard.reductions import *
from lstm_lower.graph.standard.sequences import *
from lstm_lower.graph.standard.windows import *
