"""Batch invariance on the host: rows alone and in batches of every size of block."""

from __future__ import annotations

from typing import Any

import pytest

from ops.linear.batch_rows import IDS, PROBLEMS, check_rows
from planq.audit.memory import Host


@pytest.mark.parametrize(("operator", "problem"), PROBLEMS, ids=IDS)
def test_a_row_has_its_bits_in_every_batch(operator: str, problem: Any) -> None:
    """On two threads, which share the rows."""
    check_rows(Host(2), operator, problem)
