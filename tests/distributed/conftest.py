"""One team for all tests of the folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distributed.team import Team


@pytest.fixture(scope="session")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Its processes end with the tests."""
    found = Team(str(tmp_path_factory.mktemp("ranks") / "store"))
    yield found
    found.end()
