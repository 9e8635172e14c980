"""The programs in examples/, as modules."""

from __future__ import annotations

import importlib.util
from typing import Any

import minilm_program
from support.docs import ROOT

# Those of MiniLM's encoder: how many products each of their schemes replaces.
ENCODERS = {
    "minilm_tensor_cores": {"NF4": 36, "bfloat16": 48},
    "minilm_weight_only": {
        "int4_group128": 36,
        "uint4_group128": 36,
        "nf4_block64": 36,
        "mxfp4": 36,
    },
}
WAYS = ("alone", "together", "reversed")
# Of each scheme those are linear layers, whose rows are computed alone as well.
LINEAR = 36


def load(name: str) -> Any:
    """A fresh module of one of them, which has not run its main."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def encode(name: str, *words: object) -> int:
    """The exit status of a program of MiniLM's encoder, given these words."""
    return minilm_program.main(load(name).SCHEMES, [str(word) for word in words])


def checked(name: str, device: str) -> list[str]:
    """What it prints where every recorded product has its digest on a device."""
    lines = []
    for scheme, count in ENCODERS[name].items():
        products = f"{count} of {count} products are the host's"
        lines += [f"{device}, {scheme}, {way}: {products}" for way in WAYS]
        rows = f"{LINEAR} of {LINEAR} products have the bits that they have among all rows"
        lines.append(f"{device}, {scheme}, rows alone: {rows}")
    return lines
