"""How 4-bit weights are multiplied on sm_90; every choice gives the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.program import compiled, lines_of

H200 = 132  # multiprocessors
# Products, and the kernel that was the fastest of those measured on one H200.
MEASURED = {
    (1, 28672, 8192): ("tiles", 8, 1),
    (8, 28672, 8192): ("tiles", 8, 1),
    (16, 8192, 8192): ("tiles", 16, 1),
    (32, 8192, 8192): ("tiles", 32, 1),
    (32, 28672, 8192): ("tiles", 32, 4),
    (64, 28672, 8192): ("tiles", 64, 4),
    (128, 28672, 8192): ("tiles", 128, 2),
    (512, 28672, 8192): ("tiles", 128, 2),
    (128, 8192, 8192): ("tiles", 128, 2),
    (1, 4096, 4096): ("few", 0, 0),
    (4096, 28672, 8192): ("panels", 0, 0),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library's own choice, compiled once."""
    return compiled(
        Path(__file__).with_name("weight_only_choice.cpp"), tmp_path_factory.mktemp("d")
    )


def choices(program: Path, problems: list[tuple[int, ...]]) -> list[tuple[str, int, int]]:
    """Of (m, n, k, batches, whether few rows are taken, whether tiles are, nested or not)."""
    lines = [(*p[:4], H200, *p[4:], *[0] * (7 - len(p))) for p in problems]
    words = [line.split() for line in lines_of(program, lines)]
    return [(kind, int(tokens), int(owners)) for kind, tokens, owners in words]


def test_what_was_the_fastest(program: Path) -> None:
    """Of kernels that differ by more than a twentieth."""
    problems = [(m, n, k, 1, int(m <= 16), 1) for m, n, k in MEASURED]
    assert dict(zip(MEASURED, choices(program, problems), strict=True)) == MEASURED


def test_few_rows_under_nested_statistics(program: Path) -> None:
    """They were the faster of one row, but not of as many as a tile has."""
    problems = [(m, 28672, 8192, 1, 1, 1, 1) for m in (1, 16)]
    assert [kind for kind, _, _ in choices(program, problems)] == ["few", "tiles"]


def test_operands_that_a_kernel_does_not_take(program: Path) -> None:
    """They have another, whatever it costs."""
    for m in (1, 16, 17, 500, 5000):
        assert choices(program, [(m, 28672, 8192, 1, 0, 0)]) == [("panels", 0, 0)]
        found = choices(program, [(m, 28672, 8192, 1, 1, 0)])[0][0]
        assert found == ("few" if m <= 16 else found)
        assert choices(program, [(m, 28672, 8192, 1, 1, 0)])[0][0] != "tiles"


def test_no_more_tokens_than_there_are_where_weights_are_many(program: Path) -> None:
    """A tile is at most twice as wide as its tokens, from eight on, and has room for all to 128."""
    for m in range(1, 129):
        ((kind, tokens, _),) = choices(program, [(m, 28672, 8192, 1, 0, 1)])
        assert kind == "tiles"
        assert max(m, 8) <= tokens < max(2 * m, 9)
