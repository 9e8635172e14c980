"""One team for all tests of the folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist

from collectives.team import Team


@pytest.fixture(scope="session")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Its processes end with the tests."""
    found = Team(str(tmp_path_factory.mktemp("ranks") / "store"))
    yield found
    found.end()


@pytest.fixture
def alone() -> Iterator[None]:
    """A group whose only rank is this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
