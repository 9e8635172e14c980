"""The digests of a file, computed again by hand from docs/determinism.md."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from cli.files import FORMAT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cli.files import Array

ALL, EACH = "planq.digest", "planq.tensor_sha256"


def sha256(values: Array) -> str:
    """The digest of a tensor's bytes."""
    return hashlib.sha256(values.tobytes()).hexdigest()


def content(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> str:
    """One digest over tensors, with their names, types and shapes, and strings beside them."""
    facts = {
        name: {
            "dtype": FORMAT[values.dtype.name],
            "sha256": sha256(values),
            "shape": list(values.shape),
        }
        for name, values in tensors.items()
    }
    strings = {key: text for key, text in metadata.items() if key not in (ALL, EACH)}
    text = json.dumps(
        {"metadata": strings, "tensors": facts}, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def sealed(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> dict[str, str]:
    """The metadata of a file that is what planq wrote, for all that its digests tell."""
    each = {name: sha256(values) for name, values in tensors.items()}
    return {**metadata, EACH: json.dumps(each), ALL: content(tensors, metadata)}
