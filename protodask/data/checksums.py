"""Hashes of JSON values: light to import."""

from __future__ import annotations

import hashlib
import json

CHECKSUM_BYTES = 16


def canonical_json(value: object) -> str:
    """The one text a JSON value has here."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def hash_text(text: str) -> str:
    """Hash of a text, 32 hexadecimal digits."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=CHECKSUM_BYTES).hexdigest()


def hash_json(value: object) -> str:
    """Hash of a JSON value in its canonical form."""
    return hash_text(canonical_json(value))
