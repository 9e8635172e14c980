"""Which kernel of sm_90 a floating product takes; all of them give the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from support.program import compiled, lines_of

H200 = 132  # multiprocessors


class Chooser:
    """The library's own choice, compiled for this processor."""

    def __init__(self, folder: Path) -> None:
        """Compiled once."""
        self.program = compiled(Path(__file__).with_name("float_choice.cpp"), folder)

    def choices(
        self,
        problems: Sequence[tuple[int, ...]],
        size: int = 2,
        scaled: bool = False,
        transposed: bool = False,
    ) -> list[tuple[int, int]]:
        """Tokens and blocks a multiprocessor for each (m, n, k, batches, multiprocessors).

        Of tiles, 0 and their rows. `size`: bytes of a number. `scaled`: slices have scales.
        `transposed`: the input is.
        """
        kind = (size, int(scaled), int(transposed))
        lines = lines_of(self.program, [(*problem, *kind) for problem in problems])
        pairs = [line.split() for line in lines]
        return [(int(tokens), int(rows)) for tokens, rows in pairs]


@pytest.fixture(scope="module")
def chooser(tmp_path_factory: pytest.TempPathFactory) -> Chooser:
    """Compiled once."""
    return Chooser(tmp_path_factory.mktemp("choice"))


def test_the_narrowest_kernel_that_has_room_for_all_tokens(chooser: Chooser) -> None:
    """More tokens than the widest has are tiles under weights that keep the GPU busy."""
    rows = range(1, 300)
    for n, k in ((132 * 32 + 1, 8), (8192, 8192), (132 * 64, 4096)):
        found = chooser.choices([(m, n, k, 1, H200) for m in rows])
        for m, (tokens, _) in zip(rows, found, strict=True):
            assert tokens == next((width for width in (16, 32, 64, 128) if m <= width), 0)


def test_rings_are_as_deep_as_the_blocks_of_a_multiprocessor_leave_room(chooser: Chooser) -> None:
    """One block where all run alone, up to what registers hold where there are more."""
    columns = (64, 132 * 64, 132 * 64 + 1, 2 * 132 * 64 + 1, 28_672, 600_000)
    for m, most in ((16, 4), (32, 4), (64, 2)):
        found = chooser.choices([(m, n, 4096, 1, H200) for n in columns])
        blocks = [(n + 63) // 64 for n in columns]
        wanted = [min((count + H200 - 1) // H200, most) for count in blocks]
        assert [resident for _, resident in found] == wanted


def test_the_widest_is_for_blocks_that_run_at_a_time(chooser: Chooser) -> None:
    """Where they would take turns, tiles have twice the columns; of 16 bits, of any m."""
    for m, rows in ((65, 1), (128, 1), (129, 2), (512, 4), (12 * 128, 12), (132 * 128, 132)):
        n = 132 // rows * 64
        problems = [(m, n + more, 8192, 1, H200) for more in (0, 1)]
        assert chooser.choices(problems) == [(128, 1), (0, 128)]
        of_bytes = (128, 1) if rows == 1 else (0, 128)
        assert chooser.choices(problems, size=1) == [of_bytes, (0, 128)]
        assert chooser.choices([(m, n, 8192, 2, H200)])[0][0] == 0


def test_batches_are_blocks_as_columns_are(chooser: Chooser) -> None:
    """And half a GPU has half as many multiprocessors."""
    whole, batched, half = chooser.choices(
        [(16, 4 * 4096, 512, 1, H200), (16, 4096, 512, 4, H200), (16, 2 * 4096, 512, 1, H200 // 2)]
    )
    assert whole == batched == half == (16, 2)


def test_slices_with_scales_are_streamed_for_fewer_tokens(chooser: Chooser) -> None:
    """Beyond 32 of them tiles are faster; numbers of 8 bits without such scales are as others."""
    problems = [(m, 8192, 8192, 1, H200) for m in (16, 17, 32, 33, 64, 65, 128)]
    scaled = chooser.choices(problems, size=1, scaled=True)
    assert [tokens for tokens, _ in scaled] == [16, 32, 32, 0, 0, 0, 0]
    assert chooser.choices(problems, size=1) == chooser.choices(problems)


def test_tall_tiles_are_where_they_halve_the_rounds(chooser: Chooser) -> None:
    """One takes 1.9 times a small one's time: 4 rounds instead of 8 are faster, not 4 of 7."""
    tall = ((4096, 4096), (8192, 8192), (2048, 8192), (512, 8192), (129, 28_672), (4096, 4100))
    small = ((256, 8192), (512, 28_672), (4096, 4228))
    for rows, shapes in ((256, tall), (128, small)):
        problems = [(m, n, 4096, 1, H200) for m, n in shapes]
        assert chooser.choices(problems) == [(0, rows)] * len(shapes)
        assert chooser.choices(problems, size=1) == [(0, 128)] * len(shapes)


def test_tokens_that_lie_transposed_come_by_64(chooser: Chooser) -> None:
    """No kernel is narrower; beyond that it is as for any other product."""
    few = chooser.choices([(m, 4096, 8192, 1, H200) for m in (8, 32, 64)], transposed=True)
    assert few == [(64, 1)] * 3
    shapes = ((65, 8192), (128, 8192), (129, 8192), (4096, 4096), (512, 28_672), (8192, 8192))
    many = [(m, n, 4096, 1, H200) for m, n in shapes]
    assert chooser.choices(many, transposed=True) == chooser.choices(many)


def test_many_products_with_small_weights_are_tiles(chooser: Chooser) -> None:
    """Of 33 to 64 tokens, where tiles use all of their columns and blocks take several turns."""
    small = ((64, 128, 64, 384), (40, 256, 128, 384), (33, 1024, 512, 96), (64, 512, 1024, 96))
    assert chooser.choices([(*p, H200) for p in small]) == [(0, 128)] * len(small)
    streamed = ((32, 128, 64, 384), (64, 64, 64, 1536), (64, 128, 64, 192), (64, 1024, 1024, 96))
    found = chooser.choices([(*p, H200) for p in streamed])
    assert [tokens for tokens, _ in found] == [32, 64, 64, 64]
    of_bytes = chooser.choices([(*p, H200) for p in small], size=1)
    assert [tokens for tokens, _ in of_bytes] == [64] * len(small)
