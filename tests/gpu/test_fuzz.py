"""Random problems of every operator on every CUDA kernel, against the host backend.

`PLANQ_FUZZ=5000` takes as many new ones of each operator; README.md says more.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planq.audit.operators import OPERATORS
from support.fuzz.engine import Fuzzer, shard_of, summary
from support.fuzz.tally import PROPERTY
from support.gpu import Cuda, new_stream

FEW = 200
SHARDS = 8
NAME = "tests/gpu/test_fuzz.py::test_cuda_kernels_agree_with_the_host[{}-{}]"
SHARDED = [
    pytest.param(operator, shard, id=f"{operator}-{shard}")
    for shard in range(SHARDS)
    for operator in OPERATORS
]


@pytest.mark.parametrize(("operator", "shard"), SHARDED)
def test_cuda_kernels_agree_with_the_host(
    operator: str, shard: int, record_property: Callable[[str, object], None]
) -> None:
    """Every byte of every output, and none beside them; sums as near as they are promised."""
    gpu = Cuda(0, new_stream())
    fuzzer = Fuzzer(operator, gpu, reference=False, test=NAME.format(operator, shard))
    tally = fuzzer.run(*shard_of(operator, FEW, shard, SHARDS))
    record_property(PROPERTY, tally.text())
    assert not tally.found, summary(tally.found)
