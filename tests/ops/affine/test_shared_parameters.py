"""Parameters that rows share by their strides, in long rows and with any number of threads."""

from __future__ import annotations

import pytest

from ops.affine.shared_parameters import KINDS, check_accumulators, check_kind
from planq.audit.memory import Host

every_number_of_threads = pytest.mark.parametrize("threads", [1, 3])


@every_number_of_threads
@pytest.mark.parametrize("kind", KINDS)
def test_each_row_has_its_own_scale_and_zero_point(kind: str, threads: int) -> None:
    """Where the scale repeats the zero point does not, and the other way round."""
    check_kind(Host(threads), kind)


@every_number_of_threads
def test_each_row_of_accumulators_has_its_own_scale(threads: int) -> None:
    """Beside the scales and biases of the columns."""
    check_accumulators(Host(threads))
