"""How weights that are codes are multiplied on sm_90; every choice gives the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.program import compiled, lines_of

MULTIPROCESSORS = 132  # of an H100 and of an H200
# Products, and the kernel that was the fastest of those measured on one H100.
MEASURED = {
    (17, 28672, 8192): ("tiles", 32, 1),
    (32, 28672, 8192): ("tiles", 32, 1),
    (64, 28672, 8192): ("tiles", 64, 2),
    (128, 28672, 8192): ("tiles", 64, 1),
    (512, 28672, 8192): ("tiles", 64, 2),
    (2048, 28672, 8192): ("panels", 0, 0),
    (32, 8192, 8192): ("tiles", 32, 1),
    (64, 8192, 8192): ("tiles", 64, 1),
    (128, 8192, 8192): ("tiles", 64, 2),
    (512, 8192, 8192): ("tiles", 64, 2),
    (2048, 8192, 8192): ("panels", 0, 0),
    (4096, 8192, 8192): ("panels", 0, 0),
    (64, 14336, 4096): ("tiles", 64, 2),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library's own choice, compiled once."""
    return compiled(
        Path(__file__).with_name("weight_only_choice.cpp"), tmp_path_factory.mktemp("d")
    )


def choices(program: Path, problems: list[tuple[int, ...]]) -> list[tuple[str, int, int]]:
    """Of (m, n, k)."""
    words = [
        line.split() for line in lines_of(program, [(*p, 1, MULTIPROCESSORS) for p in problems])
    ]
    return [(kind, int(tokens), int(owners)) for kind, tokens, owners in words]


def test_what_was_the_fastest(program: Path) -> None:
    """Of kernels that differ by more than a twentieth."""
    assert dict(zip(MEASURED, choices(program, list(MEASURED)), strict=True)) == MEASURED


@pytest.mark.parametrize("n", [4096, 8192, 28672])
def test_panels_are_for_many_rows(program: Path, n: int) -> None:
    """Between, whole rounds of tiles decide."""
    few, many = range(17, 257), range(4096, 9000, 100)
    assert {kind for kind, _, _ in choices(program, [(m, n, 8192) for m in few])} == {"tiles"}
    assert {kind for kind, _, _ in choices(program, [(m, n, 8192) for m in many])} == {"panels"}
