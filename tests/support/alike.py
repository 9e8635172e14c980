"""Which kernels of the host stand for others: one source, for types of the same sizes.

A test of every kernel may take few cases of those that another one stands for. With
PLANQ_EXHAUSTIVE=1 it takes all cases of all kernels, which `make exhaustive` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

EXHAUSTIVE = os.environ.get("PLANQ_EXHAUSTIVE") == "1"
# Types that differ in the meaning of their bits, and in nothing that a loop does with them.
SAME = {"bf16": "f16", "u8": "s8", "u4": "s4", "e5m2": "e4m3"}


def kind(name: str) -> tuple[str, ...]:
    """Of a kernel by its name, "SKU:body": all but the meaning of its types."""
    sku, _, body = name.partition(":")
    *before, types = sku.split("/")
    return *before, *(SAME.get(each, each) for each in types.split("_")), body


def representatives(names: Iterable[str]) -> frozenset[str]:
    """The first of each kind, of which a test takes all that there is; or every kernel."""
    if EXHAUSTIVE:
        return frozenset(names)
    first: dict[tuple[str, ...], str] = {}
    for name in names:
        first.setdefault(kind(name), name)
    return frozenset(first.values())
