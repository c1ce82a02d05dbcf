"""Where a model comes from: a mark in its metadata that an import leaves for `lower`.

What a source imports is written for correctness, op by op; `lower` optimises it even if no recurrent op is in it. The
mark is gone afterwards, so that lowering twice changes nothing.
"""

from __future__ import annotations

METADATA_KEY = "lstm_lower.origin"
