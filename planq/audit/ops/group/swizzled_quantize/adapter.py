"""`swizzled_quantize` for the tests that are generated from the registry."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from planq.audit.from_reference import ReferenceTests
from planq.audit.ops.group import cases
from planq.audit.ops.group.cases import ELEMENTS, KINDS
from planq.audit.ops.group.reference import FEEDBACK
from planq.audit.ops.group.swizzled_quantize.reference import SwizzledQuantizeProblem

# A shape, a group, nodes, devices and slices.
Place = tuple[tuple[int, ...], int, int, int, int]
PLACES: tuple[Place, ...] = (
    ((8, 64), 16, 2, 4, 2),
    ((3, 16, 20), 4, 3, 2, 1),
    ((4, 6, 128), 64, 2, 3, 2),
    ((6, 70), 10, 1, 3, 2),
    ((2, 3, 1000), 1000, 3, 2, 1),
    ((60, 14), 14, 5, 2, 3),
    ((4, 2048), 2048, 2, 2, 1),
    ((2, 5001, 2), 10002, 1, 2, 1),
)
# With error feedback: groups in a lane, in a warp and in a block; whole vectors, and none.
FEEDBACK_PLACES: tuple[Place, ...] = (
    ((8, 64), 16, 2, 4, 2),
    ((6, 70), 10, 1, 3, 2),
    ((3, 20, 40), 200, 3, 2, 1),
    ((60, 14), 14, 5, 2, 3),
    ((2, 1280), 1280, 1, 2, 1),
    ((2, 1002), 1002, 2, 1, 1),
    ((4, 2048), 2048, 2, 2, 1),
    ((2, 5001, 2), 10002, 1, 2, 1),
)
EMPTY: tuple[Place, ...] = (((0,), 4, 2, 2, 1), ((3, 0), 8, 1, 3, 2))


@dataclass(frozen=True)
class Case(cases.Case):
    """A problem with its operands."""

    def parts(self) -> Iterator[cases.Part]:
        """None: where a group goes depends on how many there are."""
        return iter(())


def cases_of(
    places: tuple[Place, ...], feedback: tuple[dict[str, Any], ...] = ({},)
) -> tuple[Case, ...]:
    """Every type of elements and codes at every place, in modes by turns."""
    found = []
    for seed, (place, elements, codes) in enumerate(
        itertools.product(places, ELEMENTS, ("int8", "int4"))
    ):
        shape, size, nodes, devices, slices = place
        problem = SwizzledQuantizeProblem(
            shape=shape,
            input_dtype=elements,
            output_dtype=codes,
            group_size=size,
            nodes=nodes,
            devices_per_node=devices,
            pipelining=slices,
            mode=("symmetric", "asymmetric")[(seed + seed // 6) % 2],
            **feedback[(seed + seed // 4) % len(feedback)],
        )
        found.append(Case(problem, KINDS[seed % len(KINDS)], seed))
    return tuple(found)


@dataclass(frozen=True)
class SwizzledQuantizeTests(ReferenceTests):
    """`swizzled_quantize` against its NumPy reference."""

    without_dims = "*"  # flat groups go across the ends of rows

    @cached_property
    def _found(self) -> tuple[Case, ...]:
        return cases_of(PLACES) + cases_of(FEEDBACK_PLACES, FEEDBACK)

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return self._found

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return cases_of(EMPTY) + cases_of(EMPTY, FEEDBACK)

    def variety(self, problem: Any) -> str:
        """Whether groups are whole vectors."""
        return "vectors" if problem.group_size % 8 == 0 else "edges"

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """A problem of so many elements, which all that they have to divide does."""
        del fields
        order = {"nodes": 2, "devices_per_node": 4, "pipelining": 2}
        return {"shape": [count], "group_size": 4, **order}


TESTS = SwizzledQuantizeTests("swizzled_quantize")
