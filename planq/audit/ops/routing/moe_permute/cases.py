"""The fixed problems and inputs of `moe_permute`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from planq.audit.ops.routing.moe_permute.reference import Problem, moe_permute
from planq.audit.ops.routing.routes import KINDS, any_bits, experts_of
from planq.audit.reference.formats import Array

DTYPES = ("bfloat16", "int8", "float16", "float8_e4m3fn", "float32")
# Tokens and width, ranks, experts. Rows are whole vectors, and words of 8 bytes and less; of less
# than a warp, and of more than a block reads at once. Pairs are as few as a block compares, and
# more; ranks are fewer and more than those whose rows are found together.
SIZES = (
    ((1, 1), 1, 1),
    ((1, 4096), 8, 256),
    ((2, 17), 3, 5),
    ((5, 96), 2, 8),
    ((8, 7168), 4, 64),
    ((33, 100), 6, 60),
    ((64, 40), 8, 255),
    ((300, 56), 1, 16),
    ((41, 64), 33, 100),
    ((3, 24), 70, 128),
    ((256, 8), 8, 256),
    ((257, 12), 8, 257),
    ((700, 128), 6, 160),
    ((1500, 33), 2, 2),
    ((5000, 6), 1, 1),
    ((4099, 10), 4, 1000),
)
EMPTY = (((0, 8), 2, 4), ((3, 0), 2, 4), ((0, 0), 1, 1), ((300, 0), 8, 3))


@dataclass(frozen=True)
class Case:
    """A problem with what a router chose."""

    problem: Problem
    kind: str = "spread"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the choices, as one word."""
        return f"{self.problem.id},{self.kind},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of the output, and offsets."""
        return self.problem.pairs * self.problem.input_shape[1] + self.problem.experts

    def reseeded(self, seed: int) -> Case:
        """Other choices and other rows."""
        return replace(self, kind=KINDS[seed], seed=seed + 1000)

    def inputs(self) -> dict[str, Array]:
        """Rows and choices."""
        problem, seed = self.problem, self.seed
        tokens = problem.input_shape[0]
        given = {
            "input": any_bits(problem.input_shape, problem.input_dtype, seed),
            "expert_index": experts_of(tokens, problem.top_k, problem.experts, self.kind, seed + 1),
        }
        if problem.scale_dtype:
            given["scale"] = any_bits((tokens,), problem.scale_dtype, seed + 2)
        return given

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's outputs."""
        return moe_permute(self.problem, given)

    def parts(self) -> Iterator[Any]:
        """None: where a row goes follows from all tokens."""
        return iter(())


def _cases(sizes: tuple[tuple[tuple[int, int], int, int], ...], turns: int) -> tuple[Case, ...]:
    found: list[Case] = []
    for shape, top_k, experts in sizes:
        for turn in range(turns):
            seed = len(found)
            scales = "float32" if seed % 3 == 0 else None
            problem = Problem(shape, DTYPES[(seed + turn) % len(DTYPES)], top_k, experts, scales)
            found.append(Case(problem, KINDS[(seed + seed // 8) % len(KINDS)], seed))
    return tuple(found)


@cache
def cases() -> tuple[Case, ...]:
    """Every size with several types and choices."""
    return _cases(SIZES, 5)


@cache
def empty_cases() -> tuple[Case, ...]:
    """No tokens, and rows without elements."""
    return _cases(EMPTY, 3)
