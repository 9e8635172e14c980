"""`attention` of whole prompts, and of one token of each of some texts.

The cases of the registry have few tokens. Here prompts have several tiles and several spans, and
texts are so few, or so many, that clusters of other sizes have them. The host has the same bits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ops.attention.attention.sequences import Batch, Chunk, Options, Paging
from planq.audit.memory import Device, Host
from planq.audit.ops.attention.attention.adapter import TESTS, attend
from planq.audit.ops.attention.attention.reference import Problem
from planq.audit.reference.formats import Arrays
from planq.audit.runner import Bench, arguments
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
    compare(attend(problem, given), attend(problem, given, GPU))


def compare(wanted: Arrays, found: Arrays) -> None:
    """Fails where bits differ."""
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


# --- One token of each text, whose starts the only kernel checks itself

LENGTHS = (2300, 1, 300, 1025, 0, 64, 1024, 129, 63, 700)
CACHES = {
    "numbers": {},
    "window": {"window": 513, "soft_cap": 3.0, "sink": True, "output": None},
    "codes of tokens": {"cache": "int8", "scope": "token"},
    "codes of heads": {"cache": "float8_e4m3fn", "scope": "head", "soft_cap": 3.0},
}


def attend_uncounted(problem: Problem, given: Arrays, device: Device) -> Arrays:
    """The outputs of a run that does not ask how many tokens have no answer."""
    bench = Bench(device, TESTS.descriptor(problem))
    operands = {name: each for name, each in bench.tensors().items() if name != "invalid"}
    bench.args = arguments(bench.plan.descriptor, operands)
    bench.load(given)
    bench.run()
    return {name: values for name, values in bench.outputs().items() if name != "invalid"}


def same_tokens(batch: Batch, chunks: list[Chunk], paging: Paging, **changed: object) -> None:
    """Both devices have the same bits for one token of each text."""
    problem, given = batch.operands(chunks, paging)
    problem = replace(problem, max_query=1)
    given |= {name: np.asarray(values, np.int32) for name, values in changed.items()}
    compare(attend_uncounted(problem, given, Host()), attend_uncounted(problem, given, GPU))


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("texts", [1, 3, 10, 40])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_tokens_have_the_bits_of_the_host(dtype: str, columns: int, texts: int, cache: str) -> None:
    """Of few texts each has a cluster of eight blocks, of 40 one block; spans have their own."""
    options = Options(dtype=dtype, heads=8, columns=columns, scale=columns**-0.5, **CACHES[cache])
    lengths = (LENGTHS * 4)[:texts]
    batch = Batch(options, lengths, seed=texts)
    chunks = [Chunk(i, max(n - 1, 0), n) for i, n in enumerate(lengths)]
    same_tokens(batch, chunks, Paging(16))


@pytest.mark.parametrize("heads", [(4, 1), (8, 1), (16, 1), (6, 3)])
@pytest.mark.parametrize("value_dim", [16, 80, 192, 256])
def test_tokens_of_other_shapes_have_the_bits_of_the_host(
    value_dim: int, heads: tuple[int, int]
) -> None:
    """Columns of values that blocks of a cluster share unevenly; 4, 8 and 16 rows; one span."""
    for cache in CACHES.values():
        options = Options(heads=heads[0], key_heads=heads[1], columns=48, **cache)
        batch = Batch(replace(options, value_dim=value_dim), (1000, 37, 260), seed=value_dim)
        chunks = [Chunk(0, 999, 1000), Chunk(2, 259, 260), Chunk(1, 36, 37)]
        same_tokens(batch, chunks, Paging(), query_start=(0, 1, 2, 3))


@pytest.mark.parametrize("cache", CACHES)
def test_a_token_beside_a_long_prompt_has_the_bits_of_the_host(cache: str) -> None:
    """So many rows that spans have no blocks of their own: a cluster goes through all of them."""
    options = Options(heads=4, key_heads=1, columns=64, scale=0.125, **CACHES[cache])
    batch = Batch(options, (1100, 2500), seed=5)
    same(batch, [Chunk(1, 2499, 2500), Chunk(0, 0, 1100)], Paging(16))


@pytest.mark.parametrize("starts", [(0, 2, 1, 3), (1, 1, 2, 3), (0, 1, 2, 2), (-1, 1, 2, 3)])
def test_wrong_starts_and_tokens_of_no_text_have_the_bits_of_the_host(
    starts: tuple[int, ...],
) -> None:
    """All rows are NaN, or those of no text are zeros."""
    for spans in (900, 1500):
        batch = Batch(Options(columns=64), (spans, 30, 2), seed=spans)
        chunks = [Chunk(0, spans - 1, spans), Chunk(1, 29, 30), Chunk(2, 1, 2)]
        same_tokens(batch, chunks, Paging(16), query_start=starts)
