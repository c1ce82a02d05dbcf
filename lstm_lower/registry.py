"""Registries of ops, one entry an op: definitions, lowering rules, oracles; ours and those of other packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Generic, Protocol, TypeVar

from lstm_lower import plugins
from lstm_lower.errors import InvalidInputError

V = TypeVar("V")

# The domain that tf2onnx gives to ops it leaves alone, and the short form that users write by hand.
DOMAIN = "ai.onnx.converters.tensorflow"
SYNONYMS = {"tf": DOMAIN}

# Domains whose operators onnx defines.
ONNX_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training")

# Domain (never a synonym) and op type.
Key = tuple[str, str]


class HasKey(Protocol):
    """An op's definition."""

    domain: ClassVar[str]
    op_type: ClassVar[str]


Op = str | Key | type[HasKey]


def key_of(op: Op) -> Key:
    """The key of a definition, of a domain with an op type, or of an op type in our domain."""
    if isinstance(op, str):
        return DOMAIN, op
    domain, op_type = op if isinstance(op, tuple) else (op.domain, op.op_type)
    return SYNONYMS.get(domain, domain), op_type


def is_ours(module: str) -> bool:
    """Whether a module is part of lstm-lower."""
    return module.startswith("lstm_lower.")


class Registry(Mapping[Op, V], Generic[V]):
    """Op -> entry.

    It is filled when it is first read: by our own package of such entries, then by the installed packages that offer
    ops (the entry points `lstm_lower.ops`). A module that is executed again, a cell of a notebook above all, replaces
    what it registered before.
    """

    def __init__(self, what: str, *homes: str) -> None:
        """Makes an empty registry.

        Args:
            what: what an entry is, for errors.
            homes: our packages whose modules register our own entries.
        """
        self._what = what
        self._homes = homes
        self._entries: dict[Key, V] = {}
        self._modules: dict[Key, str] = {}
        self._filled = False

    def register(self, op: Op, entry: V, module: str) -> None:
        """Adds an entry, or replaces the one that the same module made before.

        Args:
            op: the op.
            entry: its entry.
            module: name of the module that makes it.

        Raises:
            InvalidInputError: another module has made one.
        """
        if not is_ours(module):
            self._load()
        key = key_of(op)
        other = self._modules.setdefault(key, module)
        if other != module:
            domain, op_type = key
            text = f"{op_type} of domain '{domain}' requires one {self._what}, got one of {other} and one of {module}"
            raise InvalidInputError(f"{text}; give yours a domain of its own")
        self._entries[key] = entry
        plugins.contributes(module)

    def module(self, op: Op) -> str:
        """Name of the module that registered an op's entry."""
        self._fill()
        return self._modules[key_of(op)]

    def __getitem__(self, op: Op) -> V:
        self._fill()
        return self._entries[key_of(op)]

    def __iter__(self) -> Iterator[Key]:
        self._fill()
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        self._fill()
        return len(self._entries)

    def _fill(self) -> None:
        if not self._filled:
            self._load()
            self._filled = plugins.load_installed()

    def _load(self) -> None:
        for home in self._homes:
            plugins.load_package(home)
