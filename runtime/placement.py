"""Which provider of onnxruntime runs which nodes: whether a model runs as a whole where it is meant to."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import onnx
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime import providers as provider_names
from lstm_lower.runtime.serialized import default_options
from lstm_lower.runtime.session import Session

# With it, onnxruntime keeps what it has decided.
_RECORD = "session.record_ep_graph_assignment_info"


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where a model's nodes run, after onnxruntime's own optimiser.

    Attributes:
        wanted: the provider that was to run them.
        nodes: full name of a provider -> its nodes, each as operator and name.
    """

    wanted: str
    nodes: dict[str, list[str]]

    @property
    def elsewhere(self) -> list[str]:
        """Nodes that another provider runs; what they exchange with the others is copied between devices."""
        return [f"{node} ({name})" for name, nodes in self.nodes.items() if name != self.wanted for node in nodes]

    def require_whole(self) -> None:
        """Makes sure that one provider runs everything.

        Raises:
            InvalidInputError: names the nodes that another one runs.
        """
        if elsewhere := self.elsewhere:
            more = f" and {len(elsewhere) - 8} more" if len(elsewhere) > 8 else ""
            raise InvalidInputError(
                f"provider '{self.wanted}' must run every node, got elsewhere {', '.join(elsewhere[:8])}{more}; "
                "lower(model, target=...) writes models for a runtime"
            )


def placement(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
    providers: Sequence[provider_names.Provider] | provider_names.Provider | None = None,
) -> Placement:
    """Opens a model and asks which provider runs what.

    Args:
        model: as for `Session`.
        providers: as for `Session`; the first is the wanted one.

    Raises:
        LstmLowerError: as `Session` does.
    """
    chosen = provider_names.resolve(providers)
    options = default_options()
    options.add_session_config_entry(_RECORD, "1")
    session = Session(model, chosen, options)
    nodes: dict[str, list[str]] = {}
    for part in session.ort.get_provider_graph_assignment_info():
        nodes.setdefault(part.ep_name, []).extend(f"{node.op_type} '{node.name}'" for node in part.get_nodes())
    return Placement(chosen[0][0] if chosen else "", nodes)
