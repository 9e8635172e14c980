"""`pack_int4` and `unpack_int4` on the host: torch, properties, edges, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.quantization._quantized_conversions import pack_int4_to_int8, unpack_int8_to_int4

import planq
from planq.audit.memory import Host
from planq.audit.ops.packing.int4 import DTYPES, ORDERS, Problem, random_bytes
from planq.audit.ops.packing.pack_int4 import reference as pack_reference
from planq.audit.ops.packing.pack_int4.adapter import descriptor as pack_descriptor
from planq.audit.ops.packing.pack_int4.adapter import pack
from planq.audit.ops.packing.unpack_int4 import reference as unpack_reference
from planq.audit.ops.packing.unpack_int4.adapter import descriptor as unpack_descriptor
from planq.audit.ops.packing.unpack_int4.adapter import unpack
from planq.audit.reference.formats import Array

ALL_BYTES = np.arange(256, dtype=np.uint8)


class TestValuesWorkedOutByHand:
    """The formula, without the reference."""

    @pytest.mark.parametrize(
        ("order", "packed"), [("low_first", [0x21, 0xF8, 0x07]), ("high_first", [0x12, 0x8F, 0x70])]
    )
    def test_neighbours_share_a_byte_and_the_spare_nibble_is_zero(
        self, order: str, packed: list[int]
    ) -> None:
        """1, 2, -8, -1, 7."""
        codes = np.array([1, 2, -8, -1, 7], np.int8)
        problem = Problem((5,), nibble_order=order)
        assert pack(problem, codes).tolist() == packed
        assert unpack(problem, np.array(packed, np.uint8)).tolist() == codes.tolist()

    def test_codes_are_taken_modulo_sixteen(self) -> None:
        """Whatever they hold above the fourth bit."""
        codes = np.array([0x71, -0x7E, 0x13, 0x24], np.int8)
        assert pack(Problem((4,)), codes).tolist() == [0x21, 0x43]
        wide = np.array([0xF1, 0x82], np.uint8)
        assert pack(Problem((2,), "uint4"), wide).tolist() == [0x21]

    def test_int4_is_signed_and_uint4_is_not(self) -> None:
        """The nibbles 8 and 15."""
        byte = np.array([0xF8], np.uint8)
        assert unpack(Problem((2,)), byte).tolist() == [-8, -1]
        assert unpack(Problem((2,), "uint4"), byte).tolist() == [8, 15]

    def test_a_spare_nibble_is_not_looked_at(self) -> None:
        """Of either side of the last byte."""
        byte = np.array([0x9C], np.uint8)
        assert unpack(Problem((1,), "uint4"), byte).tolist() == [12]
        high_first = Problem((1,), "uint4", nibble_order="high_first")
        assert unpack(high_first, byte).tolist() == [9]

    def test_rows_share_bytes_along_the_first_axis(self) -> None:
        """And the last of three rows is alone."""
        codes = np.array([[1, 2], [3, 4], [5, 6]], np.int8)
        problem = Problem((3, 2), axis=0)
        assert pack(problem, codes).tolist() == [[0x31, 0x42], [0x05, 0x06]]
        packed = np.array([[0x31, 0x42], [0x95, 0x96]], np.uint8)
        assert unpack(problem, packed).tolist() == codes.tolist()


@pytest.mark.parametrize("shape", [(1, 2), (3, 64), (17, 130), (64, 4096)])
class TestTorch:
    """torch's own routines: two axes, the last one even, low first, without signs."""

    def test_pack(self, shape: tuple[int, int]) -> None:
        """Of bytes of every value."""
        codes = random_bytes(shape, 1).view(np.int8)
        theirs = pack_int4_to_int8(torch.from_numpy(codes)).numpy().view(np.uint8)
        assert np.array_equal(pack(Problem(shape), codes), theirs)

    def test_unpack(self, shape: tuple[int, int]) -> None:
        """torch gives 0 to 15."""
        packed = random_bytes((shape[0], shape[1] // 2), 2)
        theirs = unpack_int8_to_int4(torch.from_numpy(packed.view(np.int8))).numpy()
        assert np.array_equal(unpack(Problem(shape, "uint4"), packed), theirs.view(np.uint8))
        signed = np.where(theirs > 7, theirs - 16, theirs)
        assert np.array_equal(unpack(Problem(shape), packed), signed)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Small tensors of any rank, packed along any axis."""
    shape = tuple(draw(st.lists(st.integers(0, 19), min_size=1, max_size=4)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return Problem(shape, draw(st.sampled_from(DTYPES)), axis, draw(st.sampled_from(ORDERS)))


class TestProperties:
    """Packing and unpacking undo each other, and agree with NumPy."""

    @settings(max_examples=300, deadline=None)
    @given(problem=problems(), seed=st.integers(0, 2**31 - 1))
    def test_any_shape_and_axis(self, problem: Problem, seed: int) -> None:
        """Both directions, on bytes of every value."""
        codes = random_bytes(problem.shape, seed).view(problem.storage)
        packed = pack(problem, codes)
        assert np.array_equal(packed, pack_reference.pack(problem, codes))
        other = random_bytes(problem.packed_shape, seed)
        assert np.array_equal(unpack(problem, other), unpack_reference.unpack(problem, other))
        low = problem.dtype == "int4"
        clean = (codes & 15) - 16 * (codes & 8 != 0) if low else codes & 15
        assert np.array_equal(unpack(problem, packed), clean)

    @pytest.mark.parametrize("order", ORDERS)
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_every_byte_comes_back(self, dtype: str, order: str) -> None:
        """All 256 packed bytes through unpacking and packing."""
        problem = Problem((512,), dtype, nibble_order=order)
        assert np.array_equal(pack(problem, unpack(problem, ALL_BYTES)), ALL_BYTES)

    @pytest.mark.parametrize("rank", range(1, 9))
    def test_every_rank_and_axis(self, rank: int) -> None:
        """Negative axes too."""
        shape = (2, 3, 1, 5, 2, 3, 4, 7)[-rank:]
        codes = random_bytes(shape, rank).view(np.int8)
        for axis in range(-rank, rank):
            problem = Problem(shape, axis=axis)
            assert np.array_equal(pack(problem, codes), pack_reference.pack(problem, codes))


def views(packed_axis: int) -> list[tuple[Array, Array]]:
    """Codes and packed bytes in memory that is not contiguous: apart, backwards, interleaved."""
    shape = [6, 10, 16]
    half = list(shape)
    half[packed_axis] //= 2
    apart = (np.zeros((9, 11, 19), np.int8)[1:7, :10, 2:18], np.zeros((8, 12, 33), np.uint8))
    backwards = (np.zeros(shape, np.int8)[::-1, ::-1], np.zeros(half, np.uint8)[::-1])
    swapped = (np.zeros((10, 6, 16), np.int8).transpose(1, 0, 2), np.zeros(half, np.uint8))
    cut = tuple(slice(extent) for extent in half)
    return [(apart[0], apart[1][cut]), backwards, swapped]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("layout", [0, 1, 2])
def test_any_outer_strides(axis: int, layout: int) -> None:
    """NumPy views in both directions."""
    codes, packed = views(axis)[layout]
    problem = Problem(codes.shape, axis=axis)
    codes[...] = random_bytes(codes.shape, 5).view(np.int8)
    plan = planq.Plan.select(planq.HOST, pack_descriptor(problem))
    plan.run(planq.HOST, None, planq.PackInt4Args(input=codes, output=packed))
    wanted = pack_reference.pack(problem, np.ascontiguousarray(codes))
    assert np.array_equal(packed, wanted)
    codes[...] = 99
    plan = planq.Plan.select(planq.HOST, unpack_descriptor(problem))
    plan.run(planq.HOST, None, planq.UnpackInt4Args(input=packed, output=codes))
    assert np.array_equal(codes, unpack_reference.unpack(problem, wanted))


def test_a_repeated_input_row_is_read_again() -> None:
    """Stride 0."""
    row = random_bytes((1, 32), 3).view(np.int8)
    repeated = np.broadcast_to(row, (6, 32))
    packed = np.zeros((3, 32), np.uint8)
    problem = Problem((6, 32), axis=0)
    plan = planq.Plan.select(planq.HOST, pack_descriptor(problem))
    plan.run(planq.HOST, None, planq.PackInt4Args(input=repeated, output=packed))
    assert np.array_equal(packed, pack_reference.pack(problem, repeated.copy()))


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_share_one_long_row(threads: int) -> None:
    """Pieces begin anywhere in it."""
    problem = Problem((3 * 2**18 + 1,))
    codes = random_bytes(problem.shape, 4).view(np.int8)
    assert np.array_equal(pack(problem, codes, Host(threads)), pack_reference.pack(problem, codes))
    packed = random_bytes(problem.packed_shape, 4)
    assert np.array_equal(
        unpack(problem, packed, Host(threads)), unpack_reference.unpack(problem, packed)
    )


BAD_FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"shape": ()}, "shape", "expected 1 to 8 axes, got 0"),
    ({"shape": (3, -1)}, "shape", "axis 1 is negative: -1"),
    ({"shape": (2**40, 2**40)}, "shape", "more than 2^60 elements"),
    ({"axis": 2}, "axis", "axis 2 is outside a shape of rank 2"),
    ({"axis": -3}, "axis", "axis -3 is outside a shape of rank 2"),
    ({"axis": 0.5}, "axis", "expected an integer, got 0.5"),
    ({"axis": None}, "axis", "expected an integer, got None"),
    ({"DTYPE": "int8"}, "DTYPE", "expected one of int4, uint4, got int8"),
    ({"DTYPE": None}, "DTYPE", "expected a dtype that planq knows, got None"),
]


@pytest.mark.parametrize(("fields", "field", "text"), BAD_FIELDS)
@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (planq.PackInt4Descriptor, "output_dtype"),
        (planq.UnpackInt4Descriptor, "input_dtype"),
    ],
)
def test_bad_fields_are_refused(
    make: Any, dtype: str, fields: dict[str, Any], field: str, text: str
) -> None:
    """At construction, by name."""
    named = {dtype if name == "DTYPE" else name: value for name, value in fields.items()}
    with pytest.raises(planq.DescriptorError) as caught:
        make(**{"shape": (4, 6), **named})
    wanted = dtype if field == "DTYPE" else field
    assert caught.value.field == wanted
    assert str(caught.value) == f"{wanted}: {text}"


def test_descriptors_are_equal_by_meaning() -> None:
    """A negative axis is the same as the positive one, and JSON keeps it."""
    negative, positive = Problem((4, 6), axis=-2), Problem((4, 6), axis=0)
    for descriptor in (pack_descriptor, unpack_descriptor):
        found = descriptor(negative)
        assert found == descriptor(positive)
        assert found.axis == 0
        assert planq.Descriptor.from_json(found.to_json()) == found


def test_operands_say_what_each_tensor_has_to_be() -> None:
    """Along the last axis the packed tensor is one of 4-bit codes, along another one of bytes."""
    last = pack_descriptor(Problem((4, 5))).operands()
    assert [(spec.dtype, spec.shape, spec.storage) for spec in last.values()] == [
        (planq.DType.INT8, (4, 5), "int8"),
        (planq.DType.INT4, (4, 3), "uint8"),
    ]
    first = unpack_descriptor(Problem((5, 4), "uint4", 0)).operands()
    assert [(spec.dtype, spec.shape, spec.storage) for spec in first.values()] == [
        (planq.DType.UINT8, (3, 4), "uint8"),
        (planq.DType.UINT8, (5, 4), "uint8"),
    ]
    assert [spec.role for spec in first.values()] == ["input", "output"]


PACKED = "shape (4, 3) uint8 (two int4 codes a byte)"
BAD_OPERANDS: list[tuple[Any, Any, str, str]] = [
    (
        np.zeros((4, 6), np.uint8),
        None,
        "input",
        "input: expected shape (4, 6) int8 on host, got (4, 6) uint8 on host",
    ),
    (
        np.zeros((6, 4), np.int8),
        None,
        "input",
        "input: expected shape (4, 6) int8 on host, got (6, 4) int8 on host",
    ),
    (
        None,
        np.full((4, 6), 7, np.uint8),
        "output",
        f"output: expected {PACKED} on host, got (4, 6) uint8 on host",
    ),
    (
        None,
        np.full((4, 3), 7, np.int8),
        "output",
        f"output: expected {PACKED} on host, got (4, 3) int8 on host",
    ),
]


@pytest.mark.parametrize(("given", "target", "operand", "text"), BAD_OPERANDS)
def test_bad_operands_are_refused_and_nothing_is_written(
    given: Any, target: Any, operand: str, text: str
) -> None:
    """With the operand's name, what it has to be and what it is."""
    codes = np.ones((4, 6), np.int8) if given is None else given
    packed = np.full((4, 3), 7, np.uint8) if target is None else target
    plan = planq.Plan.select(planq.HOST, pack_descriptor(Problem((4, 6))))
    args = planq.PackInt4Args(input=codes, output=packed)
    status = plan.can_implement(args)
    assert (bool(status), status.operand, status.reason) == (False, operand, text)
    with pytest.raises(planq.ArgumentError) as caught:
        plan.run(planq.HOST, None, args)
    assert (caught.value.operand, str(caught.value)) == (operand, text)
    assert (packed == 7).all()


def test_an_output_over_the_input_is_refused() -> None:
    """Unpacking in place would read what it has written."""
    memory = np.full(64, 7, np.uint8)
    plan = planq.Plan.select(planq.HOST, unpack_descriptor(Problem((64,), "uint4")))
    with pytest.raises(planq.ArgumentError) as caught:
        plan.run(planq.HOST, None, planq.UnpackInt4Args(input=memory[:32], output=memory))
    assert caught.value.operand == "output"
    assert (memory == 7).all()
