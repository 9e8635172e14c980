"""The reduce-scatter of FSDP2, behind fully_shard."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import planq
import planq.distributed as pd
from collectives import jobs, shards
from collectives.team import SIZE, Team


@pytest.mark.parametrize("levels", [(SIZE,), (2, 3)])
def test_gradients_behind_fully_shard_are_those_of_the_formulas(
    team: Team, levels: tuple[int, ...]
) -> None:
    """Means of the rows that a rank has, which are fewer on the last, or none."""
    options: dict[str, Any] = {"group_size": 32, "mode": "asymmetric"}
    found = team.run(jobs.sharded, levels, **options)
    gradients = [whole for whole, _ in found]
    assert [parts for _, parts in found] == shards.expected(gradients, levels, options)


def test_a_mesh_of_other_ranks_is_refused(team: Team) -> None:
    """And one without this process."""
    found = team.run(jobs.refused, (2, 2))
    assert all("mesh: expected FSDP's ranks [0, 1, 2, 3, 4, 5]" in each for each in found[:4])
    assert all("got a mesh without it" in each for each in found[4:])


def test_refusals(alone: Any) -> None:
    """Of what it cannot do, before anything is sent."""
    x = torch.ones(8)
    world: Any = dist.group.WORLD
    with pytest.raises(planq.DescriptorError, match="output_dtype"):
        pd.QuantizedReduceScatter(dtype="uint8")
    with pytest.raises(planq.ArgumentError, match="3 dimensions"):
        pd.QuantizedReduceScatter(init_device_mesh("cpu", (1, 1, 1)))
    comm = pd.QuantizedReduceScatter()
    assert comm.allocate((3, 4), dtype=torch.float16, device=x.device).shape == (3, 4)
    with pytest.raises(planq.ArgumentError, match="async_op: expected False"):
        comm(x, x, world, dist.ReduceOp.SUM, async_op=True)
    with pytest.raises(planq.ArgumentError, match="op: expected"):
        comm(x, x, world, dist.ReduceOp.MAX)
    with pytest.raises(planq.ArgumentError, match="out: expected 8 elements, got 7"):
        comm(x[:7], x, world, dist.ReduceOp.AVG)
