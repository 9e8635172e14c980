"""Tables that people read are made from the registry, and are fresh."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import planq
from support import kernels

ROOT = Path(__file__).parent.parent.parent


def test_generated_files_are_fresh() -> None:
    """The matrix, the error list and the stubs; `python docs/generate.py` renews them."""
    result = subprocess.run(
        [sys.executable, "-P", ROOT / "docs" / "generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_matrix_names_every_row_of_every_public_operator() -> None:
    """By its SKU up to the dtypes."""
    matrix = (ROOT / "docs" / "matrix.md").read_text()
    for operator in kernels.operators():
        assert f"`{operator.name}`" in matrix
        for kernel in operator.kernels:
            assert f"`{kernel.sku.rpartition('/')[0]}`" in matrix


def test_the_error_list_names_every_error_with_its_code() -> None:
    """Codes are meant for programs."""
    errors = (ROOT / "docs" / "errors.md").read_text()
    classes = [
        item
        for item in vars(planq).values()
        if isinstance(item, type) and issubclass(item, planq.PlanqError)
    ]
    assert len(classes) >= 8
    for error in classes:
        assert error.__name__ in errors
        assert error.code in errors


def test_the_stub_of_the_native_module_names_what_it_has() -> None:
    """Golden type stubs."""
    stub = (ROOT / "planq" / "_core.pyi").read_text()
    from planq import _core

    for name in vars(_core):
        if not name.startswith("_"):
            assert name in stub
