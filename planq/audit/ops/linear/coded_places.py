"""Places of layers whose weights are codes: extents, types and orders of sums."""

from __future__ import annotations

from planq.audit.reference.formats import INPUT_DTYPES

Extents = tuple[int, ...]
# Leading axes of the input, and (m, n, k).
PLACES: tuple[tuple[Extents, Extents], ...] = (
    ((), (7, 48, 64)),
    ((), (1, 1, 1)),
    ((3,), (4, 17, 256)),
    ((), (33, 65, 130)),
    ((), (2, 70, 384)),
    ((2, 3), (5, 9, 67)),
    ((), (98, 33, 260)),
    ((4,), (1, 40, 129)),
    ((), (17, 1, 1030)),
    ((1, 2, 1, 3), (3, 20, 200)),
    ((), (16, 64, 192)),
)
EMPTY: tuple[tuple[Extents, Extents], ...] = (
    ((), (0, 5, 7)),
    ((), (5, 0, 7)),
    ((), (5, 7, 0)),
    ((0,), (3, 4, 130)),
    ((2,), (3, 70, 0)),
)
OUTPUTS = ("float32", "bfloat16", "float16")
# Order of sums and type of the input.
ORDERS = (
    ("tensor_sm90", "bfloat16"),
    ("tensor_sm90", "float16"),
    ("lanes", "bfloat16"),
    ("lanes", "float16"),
    ("lanes", "float32"),
)
GROUPS = (128, 64, 32, 13, 1)
OPTIONAL = (None, None, *INPUT_DTYPES)
# A few rows, and terms in whole vectors of 32 codes of one segment: what LANES reads by vectors.
STREAMED: tuple[tuple[Extents, Extents], ...] = (
    ((), (1, 37, 96)),
    ((), (2, 40, 1056)),
    ((2,), (2, 33, 1024)),
    ((), (3, 5, 2080)),
)
SEGMENTS = (32, 64, 256)
# The order whose sums meet their scales. k at and beside the ends of steps, runs and spans; more
# rows than the host takes at a time; whole tiles.
RUNS: tuple[tuple[Extents, Extents], ...] = (
    ((), (1, 37, 1)),
    ((2,), (4, 64, 64)),
    ((), (3, 5, 17)),
    ((), (2, 33, 96)),
    ((2,), (2, 33, 31)),
    ((), (7, 48, 128)),
    ((), (5, 9, 127)),
    ((), (2, 64, 1024)),
    ((3,), (4, 20, 129)),
    ((), (17, 3, 2048)),
    ((), (2, 33, 1000)),
    ((), (66, 65, 384)),
    ((), (3, 16, 1030)),
    ((), (1, 40, 4096)),
    ((), (70, 7, 160)),
    ((), (1, 20, 4097)),
)
RUN_TYPES = ("bfloat16", "float16")
RUN_GROUPS = (16, 32, 64, 128, 256, 384, 2048)
RUN_BLOCKS = (32, 64, 128, 256, 384, 1024)
# Types of scales, and of zero points where codes have them.
SCALES = ("bfloat16", "float16", "float8_e8m0fnu", "float8_e4m3fn", "float32")
ZERO_POINTS = ("uint8", "int8", "int32")
# Places of codes and scales that are not integers under float32: whole rows of vectors and not.
TYPED: tuple[tuple[Extents, Extents], ...] = (
    ((), (5, 40, 512)),
    ((), (1, 37, 1184)),
    ((2,), (4, 33, 96)),
    ((), (3, 20, 130)),
    ((), (18, 70, 1024)),
    ((), (2, 64, 2080)),
)
TYPED_ORDERS = ("groups_sm90", "groups_sm90", "tensor_sm90", "lanes")
EMPTY_RUNS: tuple[tuple[Extents, Extents], ...] = (
    ((), (0, 5, 7)),
    ((), (5, 0, 64)),
    ((2,), (5, 7, 0)),
    ((), (1, 64, 0)),
)
