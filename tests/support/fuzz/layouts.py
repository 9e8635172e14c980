"""How operands lie: anywhere, with gaps, or with rows that share elements."""

from __future__ import annotations

import planq
from planq.audit.memory import CONTIGUOUS, Layout, SharedLayout
from planq.audit.reference.formats import Arrays
from support.fuzz.problems import Draw

OFFSETS = (0, 0, 0, 1, 1, 2, 3, 5, 8)
PITCHES = (0, 0, 0, 1, 3, 8, 16)


def layout(draw: Draw, spec: planq.OperandSpec) -> Layout:
    """Of one operand."""
    rows = [axis for axis, extent in enumerate(spec.extents[:-1]) if extent > 1]
    if spec.role == "input" and rows and draw.chance(0.06):
        if draw.chance(0.5):
            return SharedLayout(repeated=(draw.choice(rows),))
        return SharedLayout(slide=draw.choice((1, 3, 16)), backwards=draw.chance(0.5))
    return Layout(draw.choice(OFFSETS), draw.choice(PITCHES))


def layouts(draw: Draw, desc: planq.Descriptor) -> dict[str, Layout]:
    """Of all operands, some of the time; members of lists take an offset alone."""
    specs = desc.operands()
    if draw.chance(0.4):
        return {}
    listed = planq.OperandKind.LIST
    return {name: layout(draw, spec) for name, spec in specs.items() if spec.kind is not listed}


def meant(found: dict[str, Layout], given: Arrays) -> Arrays:
    """The inputs that strides mean."""
    return {name: found.get(name, CONTIGUOUS).meant(values) for name, values in given.items()}
