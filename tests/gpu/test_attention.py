"""`attention` of many rows: those whose kernels bring blocks of keys while they multiply.

The cases of the registry have few tokens. Here prompts have several tiles and several spans, and
the host has the same bits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ops.attention.attention.sequences import Batch, Chunk, Options, Paging
from planq.audit.ops.attention.attention.adapter import attend
from support.gpu import Cuda

pytestmark = pytest.mark.gpu
GPU = Cuda(0)
COLUMNS = (64, 80, 96, 128, 192, 256)
PLAIN = Options(heads=6, key_heads=2)
EVERYTHING = Options(
    heads=5, key_heads=1, causal=False, window=1300, soft_cap=2.0, sink=True, output=None
)
WAYS = {
    "alone": (PLAIN, Paging()),
    "pages": (PLAIN, Paging(16, "hnd")),
    "everything": (EVERYTHING, Paging(128)),
}


def options_of(way: str, dtype: str, columns: int) -> Options:
    """Scores are spread as those of a model are."""
    return replace(WAYS[way][0], dtype=dtype, columns=columns, scale=columns**-0.5)


def same(batch: Batch, chunks: list[Chunk], paging: Paging) -> None:
    """Both devices have the same bits."""
    problem, given = batch.operands(chunks, paging)
    wanted, found = attend(problem, given), attend(problem, given, GPU)
    for name, values in wanted.items():
        own = found[name]
        wrong = np.argwhere((own != values) & ((own == own) | (values == values)))
        assert own.tobytes() == values.tobytes(), f"{name}: {len(wrong)}, first {wrong[:3]}"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_long_prompts_have_the_bits_of_the_host(dtype: str, columns: int, way: str) -> None:
    """A block has all spans of its rows. Beside it a token, and a text of a tile and a bit."""
    batch = Batch(options_of(way, dtype, columns), (2080, 131, 1400), seed=columns)
    same(batch, [Chunk(0, 0, 2080), Chunk(2, 1399, 1400), Chunk(1, 0, 131)], WAYS[way][1])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_pieces_of_prompts_have_the_bits_of_the_host(dtype: str, columns: int, way: str) -> None:
    """Spans have blocks of their own. A text of one token, and one without tokens, are between."""
    batch = Batch(options_of(way, dtype, columns), (2300, 1030, 40), seed=columns + 1)
    chunks = [Chunk(0, 2041, 2300), Chunk(1, 1029, 1030), Chunk(2, 7, 7), Chunk(2, 0, 40)]
    same(batch, chunks, WAYS[way][1])


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_nan_and_infinity_reach_the_rows_that_see_them(dtype: str, columns: int) -> None:
    """Of values and of a key, which some rows of a tile see and others do not."""
    batch = Batch(options_of("pages", dtype, columns), (700, 300), seed=columns + 2)
    first, second = batch.sequences
    first.value[400, 1, columns - 1] = np.inf
    first.value[650, 0, 3] = np.nan
    second.key[200, 1, 5] = np.nan
    same(batch, [Chunk(0, 0, 700), Chunk(1, 0, 300)], Paging(16))
