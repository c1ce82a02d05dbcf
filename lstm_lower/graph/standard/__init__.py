"""ONNX's own operators, each with a typed view. An operator's name is written in quotes nowhere else."""

from lstm_lower.graph.standard.arrays import *
from lstm_lower.graph.standard.control_flow import *
from lstm_lower.graph.standard.elementwise import *
from lstm_lower.graph.standard.images import *
from lstm_lower.graph.standard.networks import *
from lstm_lower.graph.standard.reductions import *
from lstm_lower.graph.standard.view import OLDEST_VIEWED as OLDEST_VIEWED
from lstm_lower.graph.standard.view import VIEWS as VIEWS
from lstm_lower.graph.standard.view import Facet as Facet
from lstm_lower.graph.standard.view import Knowledge as Knowledge
from lstm_lower.graph.standard.view import Standard as Standard
from lstm_lower.graph.standard.view import guarded as guarded
from lstm_lower.graph.standard.view import undeclared as undeclared
