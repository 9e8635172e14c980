"""The programs in examples/, as modules."""

from __future__ import annotations

import importlib.util
from typing import Any

from support.docs import ROOT


def load(name: str) -> Any:
    """A fresh module of one of them, which has not run its main."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
