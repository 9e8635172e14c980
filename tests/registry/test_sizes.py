"""Sizes that no memory has are refused with a sentence, and never wrap to small ones."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import planq
from planq.audit.dims import SHAPES
from planq.audit.operators import OPERATORS, name_of
from planq.audit.ops.affine.quantized_output import FLOATING
from planq.audit.reference.formats import STORAGE
from planq.audit.runner import places

MOST = 2**63 - 1  # bytes; offsets are signed
# Two sizes that everything is linear between, and beyond; then sizes that may be too large.
SMALL, DOUBLE = 2**40, 2**41
LARGE = (2**50, 2**57, 2**58, 2**59, 2**60)
EACH = 8  # problems of an operator
DEVICES = ("host", "sm_90")  # the latter has kernels in a build with CUDA
Fields = dict[str, Any]


def finest(fields: Fields) -> Fields:
    """The same with as many parameters as there can be."""
    own: Fields = {}
    floating = "also_output" in fields and fields["output_dtype"] in FLOATING
    if "scope" in fields and not floating and fields.get("convention", "planq") == "planq":
        own["scope"] = {"kind": "group", "axis": len(fields["shape"]) - 1, "size": 1}
    for size in ("block_size", "nested_block_size"):
        if fields.get(size) is not None:
            own[size] = 1
    return {**fields, **own}


def problems(operator: str) -> Iterator[Fields]:
    """Problems of the operator as plain values, with the parameters that they have and more."""
    tests = OPERATORS[operator]
    cases = tests.cases()
    for case in cases[:: -(-len(cases) // EACH)]:
        fields = json.loads(tests.descriptor(case.problem).to_json())
        yield fields
        yield finest(fields)


def sized(fields: Fields, count: int) -> planq.Descriptor:
    """The problem on `count` elements, a multiple of 64 along both ends of a shape."""
    return planq.Descriptor.from_json(json.dumps({**fields, **shapes(fields, count)}))


def shapes(fields: Fields, count: int) -> Fields:
    """The problem's shapes; where one shape alone has no meaning, the operator's tests say them."""
    resize = getattr(OPERATORS[fields["op"]], "sized", None)
    if resize is not None:
        resized: Fields = resize(fields, count)
        return resized
    rank = len(fields["shape"])
    return {"shape": [count] if rank == 1 else [64, *[1] * (rank - 2), count // 64]}


def extrapolated(size: Callable[[int], int], count: int) -> int:
    """A size that grows with the number of elements, from two numbers that wrap nothing."""
    small, double = size(SMALL), size(DOUBLE)
    return small + (double - small) * (count - SMALL) // SMALL


def largest_operand(desc: planq.Descriptor) -> int:
    """Bytes of the largest operand."""
    return max(
        math.prod(shape) * STORAGE[spec.storage].itemsize
        for spec in desc.operands().values()
        for _, shape in places(spec)
    )


def verdicts(desc: planq.Descriptor, device: str) -> dict[str, planq.Candidate]:
    """What becomes of each kernel."""
    return {
        name_of(candidate): candidate for candidate in planq.explain(desc, device=device).candidates
    }


@pytest.mark.parametrize("operator", OPERATORS)
def test_operands_larger_than_offsets_count_are_no_descriptor(operator: str) -> None:
    """Nor are operands refused that offsets do count."""
    for fields in problems(operator):
        for count in LARGE:
            wanted = extrapolated(lambda n, own=fields: largest_operand(sized(own, n)), count)
            if wanted <= MOST:
                assert math.isclose(largest_operand(sized(fields, count)), wanted, rel_tol=1e-3)
                continue
            with pytest.raises(planq.DescriptorError) as caught:
                sized(fields, count)
            assert caught.value.field in {*SHAPES, "shapes"}
            assert "2^63 - 1 bytes" in str(caught.value)


@pytest.mark.parametrize("operator", OPERATORS)
def test_no_workspace_wraps(operator: str) -> None:
    """A kernel's workspace goes on growing with the tensor, or the kernel says that it cannot."""
    for fields in problems(operator):
        for device in DEVICES:
            small, double = (verdicts(sized(fields, n), device) for n in (SMALL, DOUBLE))
            takes = [
                name
                for name, candidate in double.items()
                if not candidate.reason or candidate.chosen
            ]
            for count in LARGE:
                try:
                    found = verdicts(sized(fields, count), device)
                except planq.DescriptorError:
                    continue
                for name in takes:
                    at = {SMALL: small[name].workspace, DOUBLE: double[name].workspace}
                    wanted, candidate = extrapolated(at.__getitem__, count), found[name]
                    if wanted > MOST and "takes its part" in candidate.reason:
                        continue  # what is too large is the workspace of a part
                    if wanted > MOST:
                        assert candidate.reason_kind == "shape", (name, count)
                        assert "2^63 - 1 bytes of workspace" in candidate.reason
                    elif not candidate.reason:
                        assert math.isclose(candidate.workspace, wanted, rel_tol=1e-2), (
                            name,
                            count,
                        )


def test_a_workspace_that_cannot_be_leaves_no_kernel() -> None:
    """2^60 groups of one element: sixteen bytes for each are none when they wrap."""
    desc = planq.FakeQuantizeDescriptor(
        shape=(2**60,), input_dtype="float16", scope=planq.Scope.group(1), dynamic=True
    )
    with pytest.raises(planq.NoKernelError, match=r"2\^63 - 1 bytes of workspace"):
        planq.Plan.select(planq.HOST, desc)
