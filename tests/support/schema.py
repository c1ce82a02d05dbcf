"""The schema of training.json, which what is written is compared with."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from lstm_lower.records import manifest

PATH = Path(__file__).parents[2] / "docs" / "training.schema.json"


@functools.cache
def validator() -> Any:
    """What checks descriptions."""
    return jsonschema.Draft202012Validator(json.loads(PATH.read_text(encoding="utf-8")))


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Refuses, in the block, to write a description that does not fit."""
    write = manifest.write

    def fitting(description: Mapping[str, Any], folder: Path) -> None:
        write(description, folder)
        validator().validate(json.loads((folder / manifest.NAME).read_text(encoding="utf-8")))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "write", fitting)
        yield
