"""The tests' own operators, with kernels of a kind that users' operators have none of yet.

Importing it lets the checks of :mod:`planq.audit.kernels` know them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import planq
from planq.audit.operators import ADAPTERS, OPERATORS, OperatorTests

FOLDER = Path(__file__).parent.parent / "operators"
# Some have no adapter: tests/api watches them.
PRIVATE = frozenset(path.parent.name for path in FOLDER.glob("*/desc.h"))


def _adapters() -> dict[str, OperatorTests]:
    names = sorted(path.stem for path in FOLDER.glob("adapters/*.py"))
    return {name: importlib.import_module(f"operators.adapters.{name}").TESTS for name in names}


OWN = _adapters()
ADAPTERS.update(OWN)


def own_kernels(backend: planq.Backend) -> Iterator[tuple[str, planq.KernelInfo]]:
    """Every kernel of a backend of those that have an adapter, with the name of its operator."""
    for operator in planq.operators():
        for kernel in operator.kernels if operator.name in OWN else ():
            if kernel.backend == backend:
                yield operator.name, kernel


__all__ = ["ADAPTERS", "OPERATORS", "OWN", "PRIVATE", "own_kernels"]
