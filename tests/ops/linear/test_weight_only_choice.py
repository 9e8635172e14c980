"""How weights that are codes are multiplied on sm_90; every choice gives the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.program import compiled, lines_of

MULTIPROCESSORS = 132  # of an H100 and of an H200
# Products, and the kernel that was the fastest of those measured on one H100, of int4 in groups of
# 128; that of 32 rows and 28672 columns on one H200. Two kernels for 28672 x 8192 and 64 rows, and
# tiles of 128 rows and panels for 4096, differ by less than a twentieth.
MEASURED = {
    (32, 28672, 8192): ("tiles", 32, 2),
    (128, 28672, 8192): ("tiles", 128, 2),
    (512, 28672, 8192): ("tiles", 128, 2),
    (32, 8192, 8192): ("tiles", 32, 1),
    (64, 8192, 8192): ("tiles", 64, 1),
    (128, 8192, 8192): ("tiles", 64, 2),
    (512, 8192, 8192): ("tiles", 128, 2),
    (64, 4096, 4096): ("tiles", 32, 1),
    (128, 4096, 4096): ("tiles", 64, 1),
    (512, 4096, 4096): ("tiles", 128, 2),
    (64, 4096, 14336): ("tiles", 32, 1),
    (128, 4096, 14336): ("tiles", 64, 1),
    (512, 4096, 14336): ("tiles", 128, 2),
}
# Few rows of NF4 in blocks of 64, and whether tiles were faster on one H200.
FEW = {
    (16, 28672, 8192): True,
    (16, 8192, 8192): True,
    (16, 4096, 14336): True,
    (16, 4096, 4096): False,
    (8, 28672, 8192): False,
    (1, 8192, 8192): False,
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library's own choice, compiled once."""
    return compiled(
        Path(__file__).with_name("weight_only_choice.cpp"), tmp_path_factory.mktemp("d")
    )


def told(program: Path, problems: list[tuple[int, ...]], run: int) -> list[list[str]]:
    """The words of the program's lines for (m, n, k)."""
    asked = [(*problem, 1, MULTIPROCESSORS, run) for problem in problems]
    return [line.split() for line in lines_of(program, asked)]


def choices(
    program: Path, problems: list[tuple[int, ...]], run: int = 128
) -> list[tuple[str, int, int]]:
    """Of (m, n, k)."""
    words = told(program, problems, run)
    return [(kind, int(tokens), int(owners)) for kind, tokens, owners, _ in words]


def test_what_was_the_fastest(program: Path) -> None:
    """Of kernels that differ by more than a twentieth."""
    assert dict(zip(MEASURED, choices(program, list(MEASURED)), strict=True)) == MEASURED


@pytest.mark.parametrize("n", [4096, 8192, 28672])
def test_panels_are_for_many_rows_of_short_runs(program: Path, n: int) -> None:
    """There are no tiles of 128 rows for them. Between, whole rounds of tiles decide."""
    few, many = range(17, 257), range(4096, 9000, 100)
    kinds = [
        {kind for kind, _, _ in choices(program, [(m, n, 8192) for m in rows], 32)}
        for rows in (few, many)
    ]
    assert kinds == [{"tiles"}, {"panels"}]


def test_short_runs_have_tiles_of_64_rows_at_most(program: Path) -> None:
    """Wider tiles have no kernel for them."""
    problems = [(m, n, 8192) for m in (65, 128, 500) for n in (4096, 28672)]
    for run in (16, 32):
        assert all(tokens <= 64 for _, tokens, _ in choices(program, problems, run))


def test_tiles_are_for_few_rows_of_large_layers_whose_codes_are_looked_up(program: Path) -> None:
    """Not for the shortest runs."""
    for run, wanted in ((64, list(FEW.values())), (16, [False] * len(FEW))):
        words = told(program, list(FEW), run)
        assert [bool(int(for_few)) for *_, for_few in words] == wanted
