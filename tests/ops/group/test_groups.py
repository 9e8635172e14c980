"""The group operators on the host: DeepSpeed's vectors, its defects, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.memory import Host
from planq.audit.ops.group.cases import ELEMENTS, FORMS
from planq.audit.ops.group.group_dequantize.adapter import TESTS as DEQUANTIZE
from planq.audit.ops.group.group_quantize.adapter import TESTS as QUANTIZE
from planq.audit.ops.group.reference import GroupDequantizeProblem, GroupQuantizeProblem
from planq.audit.reference import inputs
from planq.audit.reference.formats import STORAGE, Array, Arrays, unpack_nibbles

F16, F32 = np.float16, np.float32


def quantized(x: Array, size: int, codes: str = "int8", **fields: Any) -> Arrays:
    """The outputs for a tensor."""
    fields = {"mode": "asymmetric", **fields} if codes.startswith("u") else fields
    convention = "deepspeed_intx" if codes.startswith("u") else "deepspeed"
    problem = GroupQuantizeProblem(
        shape=x.shape,
        input_dtype=x.dtype.name,
        output_dtype=codes,
        group_size=size,
        convention=convention,
        **fields,
    )
    return QUANTIZE.run(problem, input=x)


def decoded(
    found: Arrays,
    shape: tuple[int, ...],
    size: int,
    output: str,
    codes: str = "int8",
    **fields: Any,
) -> Array:
    """The elements of quantized()'s outputs."""
    fields = {"mode": "asymmetric", **fields} if codes.startswith("u") else fields
    convention = "deepspeed_intx" if codes.startswith("u") else "deepspeed"
    problem = GroupDequantizeProblem(
        shape=shape,
        input_dtype=codes,
        output_dtype=output,
        group_size=size,
        convention=convention,
        **fields,
    )
    given = dict(found)
    return DEQUANTIZE.run(problem, input=given.pop("output"), **given)["output"]


def nibbles(packed: Array, count: int) -> list[int]:
    """Signed codes of packed bytes."""
    patterns = unpack_nibbles(packed, count, "high_first").astype(int)
    return [int(code) - 16 if code > 7 else int(code) for code in patterns]


class TestVectors:
    """Numbers worked out by hand from DeepSpeed's formulas."""

    SYMMETRIC = np.array([1, -1, 0.5, 0.25, -0.125, 0.0039, 0, 0.999], F16)
    RAMP = np.arange(8).astype(F16)

    def test_symmetric(self) -> None:
        """The largest positive element loses a step, the largest negative one does not."""
        found = quantized(self.SYMMETRIC, 8)
        assert found["parameters"].tolist() == [[0.0078125]]
        assert found["output"].tolist() == [127, -128, 64, 32, -16, 0, 0, 127]
        found = quantized(self.SYMMETRIC, 8, "int4")
        assert found["parameters"].tolist() == [[0.125]]
        assert found["output"].tobytes() == bytes.fromhex("7842F007")
        assert nibbles(found["output"], 8) == [7, -8, 4, 2, -1, 0, 0, 7]

    def test_asymmetric(self) -> None:
        """The middle of the range is the offset."""
        found = quantized(self.RAMP, 8, mode="asymmetric")
        assert found["parameters"].tolist() == [[float(F32(0.027343748)), 3.5]]
        assert found["output"].tolist() == [-128, -91, -55, -18, 18, 55, 91, 127]
        values = decoded(found, (8,), 8, "float32", mode="asymmetric")
        wanted = [2.4e-7, 1.0117, 1.9961, 3.0078, 3.9922, 5.0039, 5.9883, 6.9727]
        assert np.allclose(values, wanted, rtol=0, atol=5e-5)  # as many digits as are given
        assert values[0] == np.spacing(F32(3.0))
        found = quantized(self.RAMP, 8, "int4", mode="asymmetric")
        assert found["parameters"].tolist() == [[float(F32(0.43749997)), 3.5]]
        assert nibbles(found["output"], 8) == [-8, -6, -3, -1, 1, 3, 6, 7]

    def test_intx(self) -> None:
        """Codes count from the minimum; the first of two has the high nibble."""
        x = np.array([-1, 14, 0, 6.5, 2, 1], F16)
        found = quantized(x, 6, "uint4")
        assert (found["scale"].tolist(), found["minimum"].tolist()) == ([1.0], [-1.0])
        assert found["output"].tobytes() == bytes.fromhex("0F1832")
        assert decoded(found, (6,), 6, "float16", "uint4").tolist() == [-1, 14, 0, 7, 2, 1]


class TestDefects:
    """What the originals do wrong, one test each."""

    @pytest.mark.parametrize("size", [1, 12, 200, 16392, 50000])
    def test_groups_of_any_size(self, size: int) -> None:
        """Beyond 16384 nothing was launched; others were misaligned, or in 16 threads."""
        x = inputs.make("normal", (2 * size,), "float16", size)
        for mode, convention, codes in FORMS:
            QUANTIZE.check(
                GroupQuantizeProblem(
                    shape=x.shape,
                    input_dtype="float16",
                    output_dtype=codes,
                    group_size=size,
                    mode=mode,
                    convention=convention,
                ),
                Host(2),
                input=x,
            )

    @pytest.mark.parametrize("size", [24, 136, 4104])
    def test_zero_is_not_in_the_range_of_groups_without_it(self, size: int) -> None:
        """Idle lanes counted as 0."""
        x = (np.arange(size) % 8 + 100).astype(F16)
        parameters = quantized(x, size, mode="asymmetric")["parameters"]
        assert parameters.tolist() == [[float(F32(0.027343748)), 103.5]]

    @pytest.mark.parametrize("groups", [1, 3, 5, 31])
    def test_nothing_behind_the_last_group_is_read(self, groups: int) -> None:
        """Groups were loaded by whole blocks: of elements between guards nothing changes."""
        x = inputs.make("normal", (groups * 16,), "float16", groups)
        around = np.full(x.size + 512, np.inf, F16)
        around[256:-256] = x
        found = quantized(around[256:-256], 16, mode="asymmetric")
        assert np.isfinite(found["parameters"]).all()
        assert found["output"].tobytes() == quantized(x, 16, mode="asymmetric")["output"].tobytes()

    def test_the_remainder_is_a_group(self) -> None:
        """`numel % groups` elements were left out."""
        found = quantized(np.array([1, -1, 2, -2, 4], F16), 2)
        assert found["parameters"].ravel().tolist() == [1 / 128, 2 / 128, 4 / 128]
        assert found["output"].tolist() == [127, -128, 127, -128, 127]

    @pytest.mark.parametrize("elements", ELEMENTS)
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_a_bad_element_makes_its_group_nan(self, value: float, elements: str) -> None:
        """NaN became 0, or the group's middle; others keep their bits."""
        x = inputs.make("normal", (96,), elements, 5)
        bad = x.copy()
        bad[40] = value
        for mode, _, codes in FORMS:
            clean, found = (quantized(each, 32, codes, mode=mode) for each in (x, bad))
            per = len(found["output"]) // 3
            assert (found["output"][per : 2 * per] == 0).all()
            assert np.array_equal(found["output"][:per], clean["output"][:per])
            values = decoded(found, (96,), 32, elements, codes, mode=mode)
            assert np.flatnonzero(np.isnan(values.astype(F32))).tolist() == list(range(32, 64))

    def test_float32_does_not_go_through_float16(self) -> None:
        """Asymmetric values above 65504 became infinite."""
        x = np.array([1e6, 3e6, 2e6, 1.000001e6], F32)
        found = quantized(x, 4, mode="asymmetric")
        values = decoded(found, (4,), 4, "float32", mode="asymmetric")
        assert np.isfinite(values).all()
        assert np.allclose(values, x, rtol=0, atol=2e6 / 256)  # a step of the codes

    @pytest.mark.parametrize("count", [1, 3, 5, 4097])
    def test_elements_that_fill_no_chunk(self, count: int) -> None:
        """Whole chunks were read and written; guards lie behind the operands here."""
        for mode, convention, codes in FORMS:
            problem = GroupDequantizeProblem(
                shape=(count,),
                input_dtype=codes,
                output_dtype="float32",
                group_size=3,
                mode=mode,
                convention=convention,
            )
            DEQUANTIZE.check(problem, **problem.inputs("", count))

    @pytest.mark.parametrize("groups", [1, 31, 33])
    def test_intx_of_fewer_than_32_groups(self, groups: int) -> None:
        """No block was launched for them."""
        x = inputs.make("normal", (groups, 8), "float16", groups)
        for codes, largest in (("uint8", 255), ("uint4", 15)):
            found = quantized(x, 8, codes)
            values = decoded(found, x.shape, 8, "float16", codes).astype(F32)
            span = np.ptp(x.astype(F32), axis=1, keepdims=True)
            assert (np.abs(values - x.astype(F32)) <= span * (0.5 / largest + 2.0**-9)).all()

    @pytest.mark.parametrize("elements", ELEMENTS)
    def test_a_constant_group_is_exact(self, elements: str) -> None:
        """Its INTx divisor was infinite, its codes undefined; zeros are groups like others."""
        for value in (0.0, -0.0, 3.0, -5.5):
            x = np.full(20, value).astype(STORAGE[elements])
            for codes in ("int8", "int4", "uint8", "uint4"):
                found = quantized(x, 10, codes, mode="asymmetric")
                assert not found["output"].any()
                values = decoded(found, (20,), 10, elements, codes, mode="asymmetric")
                assert (values.astype(F32) == F32(value)).all()

    @pytest.mark.parametrize("elements", ["bfloat16", "float32"])
    def test_subnormal_groups_have_a_finite_factor(self, elements: str) -> None:
        """2^(b-1) / M overflows."""
        x = (np.array([1, -1, 0.5, 0]) * 2.0**-122).astype(STORAGE[elements])
        found = quantized(x, 4)
        assert found["parameters"][0, 0] == F32(1) / F32(np.finfo(F32).max)
        assert found["output"].tolist() == [64, -64, 32, 0]

    def test_large_spans_do_not_overflow(self) -> None:
        """hi - lo is infinite, its half is not."""
        top = np.finfo(F32).max
        found = quantized(np.array([top, -top, 0], F32), 3, mode="asymmetric")
        assert found["output"].tolist() == [127, -128, 0]
        values = decoded(found, (3,), 3, "float32", mode="asymmetric")
        assert np.isfinite(values).all()

    def test_more_bits_than_a_code_has_are_refused(self) -> None:
        """Others than 4 and 8 ran the kernel of 8 bits beyond the output."""
        with pytest.raises(planq.DescriptorError, match="expected one of int8, int4"):
            planq.GroupQuantizeDescriptor(
                shape=(8,), input_dtype="float16", output_dtype="int32", group_size=8
            )


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("group_size", {"group_size": 0}, "expected at least 1, got 0"),
    ("CODES", {"CODES": "uint8"}, "expected one of int8, int4, got uint8"),
    (
        "CODES",
        {"CODES": "int8", "convention": "deepspeed_intx", "mode": "asymmetric"},
        "expected one of uint8, uint4, got int8",
    ),
    (
        "mode",
        {"CODES": "uint8", "convention": "deepspeed_intx"},
        "Convention.DEEPSPEED_INTX goes with Mode.ASYMMETRIC",
    ),
    ("convention", {"convention": "planq"}, "expected deepspeed or deepspeed_intx, got planq"),
    (
        "ELEMENTS",
        {"ELEMENTS": "float64"},
        "expected one of float16, bfloat16, float32, got float64",
    ),
    ("shape", {"shape": ()}, "expected 1 to 8 axes, got 0"),
]


@pytest.mark.parametrize(("field", "change", "text"), REFUSED)
def test_bad_fields_are_refused(field: str, change: dict[str, Any], text: str) -> None:
    """By both operators, by name."""
    for make, names in (
        (planq.GroupQuantizeDescriptor, {"ELEMENTS": "input_dtype", "CODES": "output_dtype"}),
        (planq.GroupDequantizeDescriptor, {"CODES": "input_dtype", "ELEMENTS": "output_dtype"}),
    ):
        fields = {"shape": (4, 6), "ELEMENTS": "float16", "CODES": "int8", "group_size": 3} | change
        named: dict[str, Any] = {names.get(name, name): value for name, value in fields.items()}
        with pytest.raises(planq.DescriptorError) as caught:
            make(**named)
        assert str(caught.value) == f"{names.get(field, field)}: {text}"


def test_strides_do_not_matter() -> None:
    """Rows backwards and with others in between; parameters in every other row."""
    x = inputs.make("normal", (30, 7, 33), "float32", 4)[::-3]
    wide = np.full((30, 7, 40), 77, np.int8)
    output = wide[::3][..., :33]
    parameters = np.zeros((2 * 47, 3), F32)[::2, 1:]
    problem = GroupQuantizeProblem(
        shape=x.shape,
        input_dtype="float32",
        output_dtype="int8",
        group_size=50,
        mode="asymmetric",
    )
    wanted = problem.expected({"input": np.ascontiguousarray(x)})
    args = planq.GroupQuantizeArgs(input=x, output=output, parameters=parameters)
    planq.Plan.select(planq.HOST, QUANTIZE.descriptor(problem)).run(planq.HOST, None, args)
    assert np.array_equal(output, wanted["output"])
    assert np.array_equal(parameters, wanted["parameters"])
    output[...] = 77
    assert (wide == 77).all()
