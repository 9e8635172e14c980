"""Plans whose kernels may start before the plan ahead has ended have the bits of the host."""

from __future__ import annotations

import pytest
import torch

import planq
from support.chained import Chain
from support.gpu import cuda, new_stream

TIMES, REPLAYS = 25, 8


@pytest.mark.parametrize("apart", [False, True], ids=["fused", "apart"])
@pytest.mark.parametrize("tokens", [1, 7, 64, 1000])
def test_plans_that_follow_one_another_have_the_bits_of_the_host(tokens: int, apart: bool) -> None:
    """As one graph, many times, where launches stand back to back; and launch by launch."""
    host = Chain(tokens, apart=apart, device="cpu", stream=planq.HOST)
    host.run(TIMES * REPLAYS)
    stream = new_stream()
    single = Chain(tokens, apart=apart, device="cuda:0", stream=stream)
    graphed = Chain(tokens, apart=apart, device="cuda:0", stream=stream)
    torch.cuda.synchronize()
    single.run(TIMES * REPLAYS)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, stream=stream):
        graphed.run(TIMES)
    with cuda.stream(stream):
        for _ in range(REPLAYS):
            graph.replay()
    torch.cuda.synchronize()
    assert single.results() == host.results()
    assert graphed.results() == host.results()
