"""Vectorwise quantization on the host: bitsandbytes' formulas, planted defects, what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import planq
from planq.audit.ops.outlier.vectorwise import FORMS, WHOLE, Problem
from planq.audit.ops.outlier.vectorwise_dequantize.adapter import dequantize
from planq.audit.ops.outlier.vectorwise_dequantize.reference import dequantize as dequantized
from planq.audit.ops.outlier.vectorwise_quantize.adapter import descriptor, quantize
from planq.audit.ops.outlier.vectorwise_quantize.reference import quantize as reference
from planq.audit.reference import inputs
from planq.audit.reference.formats import INPUT_DTYPES, Array

VECTORS = tuple(form for form in FORMS if form not in WHOLE)


def published(x: torch.Tensor, form: str, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The published formulas of 0.43 in torch: what is stored for elements, and the statistic.

    With true divisions: of a number by a tensor torch makes a product with a reciprocal.
    """
    along = {} if form in WHOLE else {"dim": dim, "keepdim": True}
    if "zeropoint" in form:
        low = torch.amin(x, **along) if along else x.min()
        width = (torch.amax(x, **along) if along else x.max()) - low
        qx = torch.div(torch.tensor(255.0), torch.where(width == 0, 1.0, width))
        shift = torch.round(low * qx)
        return torch.round(qx * x - shift) + shift, qx
    most = torch.amax(x.abs(), **along) if along else x.abs().max()
    if form in ("row", "vector"):
        return torch.round(x * torch.div(torch.tensor(127.0), most)), most
    if form == "truncated":
        most = most * 0.7
        x = torch.where(x.abs() > most, most * torch.sign(x), x)
    return torch.round(x / most * 127), most


def room_for(size: int) -> Array | None:
    """A workspace."""
    memory = np.zeros(size + planq.WORKSPACE_ALIGNMENT, np.uint8)
    return memory[-memory.ctypes.data % planq.WORKSPACE_ALIGNMENT :][:size] if size else None


def returned(problem: Problem, found: dict[str, Array]) -> Array:
    """What codes and statistics of a run stand for."""
    return dequantize(problem, {"input": found["output"], **found})


class TestPublishedFormulas:
    """float32 tensors, whose statistics the originals compute as planq does."""

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize(("shape", "axis"), [((37, 100), 1), ((37, 100), 0), ((3, 8, 50), 2)])
    def test_codes_and_statistics(self, form: str, shape: tuple[int, ...], axis: int) -> None:
        """To the bit; a zero point stays in their codes."""
        x = inputs.make("normal", shape, "float32", 11)
        problem = Problem(shape, "float32", form, -1 if form in WHOLE else axis)
        ours = quantize(problem, x)
        stored, statistic = published(torch.from_numpy(x), form, axis)
        codes = ours["output"].astype(np.float32)
        if problem.shifted:
            codes = codes - ours["zero_point"].astype(np.float32)
        assert np.array_equal(codes, stored.numpy())
        assert ours["scale"].tobytes() == statistic.numpy().tobytes()

    def test_the_way_back(self) -> None:
        """Which the original has of one form."""
        x = inputs.make("normal", (9, 64), "float32", 12)
        ours = quantize(Problem((9, 64)), x)
        back = returned(Problem((9, 64)), ours)
        codes, scale = torch.from_numpy(ours["output"]), torch.from_numpy(ours["scale"])
        assert back.tobytes() == (codes / 127.0 * scale).numpy().tobytes()


class TestPlantedDefects:
    """What the originals get wrong."""

    @pytest.mark.parametrize("form", FORMS)
    def test_no_form_changes_its_input(self, form: str) -> None:
        """The truncated one clips a copy."""
        x = inputs.make("normal", (16, 48), "float32", 1)
        before = x.copy()
        output = np.zeros((16, 48), "uint8" if "zeropoint" in form else "int8")
        problem = Problem((16, 48), "float32", form)
        args: dict[str, Any] = {"scale": np.zeros(problem.statistic_shape, np.float32)}
        if problem.shifted:
            args["zero_point"] = np.zeros(problem.statistic_shape, np.int32)
        plan = planq.Plan.select(planq.HOST, descriptor(problem))
        room = room_for(plan.workspace_size())
        plan.run(planq.HOST, room, planq.VectorwiseQuantizeArgs(input=x, output=output, **args))
        assert x.tobytes() == before.tobytes()

    def test_truncated_means_seven_tenths_of_each_vector(self) -> None:
        """And elements beyond are clipped to it, to the last code of their side."""
        x = np.array([[1.0, -1.0, 0.7, -0.5, 0.35, 0], [10, -8, 5, 0, 1, 7]], np.float32)
        found = quantize(Problem((2, 6), "float32", "truncated"), x)
        assert found["scale"].tolist() == [[np.float32(0.7)], [np.float32(10) * np.float32(0.7)]]
        assert found["output"].tolist() == [
            [127, -127, 127, -91, 64, 0],
            [127, -127, 91, 0, 18, 127],
        ]

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("dtype", INPUT_DTYPES)
    def test_zeros_have_the_code_of_zero_and_come_back(self, form: str, dtype: str) -> None:
        """Of a vector among others, and alone: nothing is divided by 0."""
        x = inputs.make("normal", (4, 32), dtype, 2)
        x[1:] = 0 if form in WHOLE else x[1:]
        x[2] = 0
        x[0] = 0 if form in WHOLE else x[0]
        found = quantize(Problem((4, 32), dtype, form), x)
        back = returned(Problem((4, 32), dtype, form), found)
        assert not np.isnan(found["scale"]).any()
        assert (back[2].astype(np.float64) == 0).all()

    @pytest.mark.parametrize("form", VECTORS)
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_bad_data_stays_in_its_vector_and_stays_bad(self, form: str, bad: float) -> None:
        """The originals turn a NaN into some code."""
        x = inputs.make("normal", (3, 40), "float32", 3)
        clean = quantize(Problem((3, 40), "float32", form), x)
        x[1, 7] = bad
        found = quantize(Problem((3, 40), "float32", form), x)
        back = returned(Problem((3, 40), "float32", form), found)
        assert np.isnan(found["scale"]).reshape(-1).tolist() == [False, True, False]
        assert not found["output"][1].any()
        assert np.isnan(back[1]).all()
        assert np.array_equal(found["output"][::2], clean["output"][::2])

    @pytest.mark.parametrize("form", ["row_zeropoint", "zeropoint"])
    @pytest.mark.parametrize("constant", [1e-6, 3.7, -250.0, 1e8, 1e30, -1e-30])
    def test_constants_come_back(self, form: str, constant: float) -> None:
        """The originals round their codes to multiples of 1/255, however small the constant is."""
        x = np.full((2, 5), constant, np.float32)
        found = quantize(Problem((2, 5), "float32", form), x)
        back = returned(Problem((2, 5), "float32", form), found)
        assert (np.abs(back - x) <= 2.0**-22 * np.abs(x)).all()

    def test_a_range_that_overflows(self) -> None:
        """Its quotient is made of halves."""
        most = np.finfo(np.float32).max
        x = np.array([[-most, most, 0]], np.float32)
        found = quantize(Problem((1, 3), "float32", "vector_zeropoint"), x)
        assert found["scale"][0, 0] > 0
        assert found["output"].tolist() == [[0, 255, 128]]
        assert found["zero_point"].tolist() == [[128]]

    @pytest.mark.parametrize("form", ["row", "vector"])
    def test_a_factor_that_overflows(self, form: str) -> None:
        """Vectors of subnormals are divided instead."""
        x = np.array([[2.0**-140, -(2.0**-141), 0, 2.0**-149]], np.float32)
        found = quantize(Problem((1, 4), "float32", form), x)
        assert found["output"].tolist() == [[127, -64, 0, 0]]

    @pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
    @pytest.mark.parametrize("form", VECTORS)
    def test_three_axes(self, form: str, axis: int) -> None:
        """Every vector is that of a matrix; statistics keep the axis."""
        x = inputs.make("normal", (4, 6, 10), "float32", 5)
        problem = Problem((4, 6, 10), "float32", form, axis)
        found = quantize(problem, x)
        flat = np.moveaxis(x, axis, -1)
        matrix = np.ascontiguousarray(flat.reshape(-1, flat.shape[-1]))
        each = quantize(Problem(matrix.shape, "float32", form), matrix)
        codes = np.moveaxis(found["output"], axis, -1).reshape(matrix.shape)
        assert np.array_equal(codes, each["output"])
        assert found["scale"].shape == problem.statistic_shape
        scales = np.moveaxis(found["scale"], axis, -1).reshape(-1, 1)
        assert np.array_equal(scales, each["scale"])


@st.composite
def problems(draw: st.DrawFn) -> tuple[Problem, str]:
    """Small tensors of any rank, in any form, with values of any kind."""
    shape = tuple(draw(st.lists(st.integers(0, 12), min_size=1, max_size=4)))
    form = draw(st.sampled_from(FORMS))
    axis = -1 if form in WHOLE else draw(st.integers(-len(shape), len(shape) - 1))
    kinds = st.sampled_from(("mixed", "finite", "offset", "huge", "subnormal", "patterns"))
    return Problem(shape, draw(st.sampled_from(INPUT_DTYPES)), form, axis), draw(kinds)


@settings(max_examples=300, deadline=None)
@given(drawn=problems(), seed=st.integers(0, 2**31 - 1))
def test_any_shape_form_and_axis(drawn: tuple[Problem, str], seed: int) -> None:
    """Both directions, to the bit."""
    problem, kind = drawn
    x = inputs.make(kind, problem.shape, problem.dtype, seed)
    ours, wanted = quantize(problem, x), reference(problem, x)
    for name, values in wanted.items():
        assert ours[name].tobytes() == values.tobytes(), name
    back = dequantized(problem, {"input": wanted["output"], **wanted})
    assert returned(problem, ours).tobytes() == back.tobytes()


@pytest.mark.parametrize("form", FORMS)
def test_codes_are_within_half_a_step(form: str) -> None:
    """Of what the elements were, clipped ones aside."""
    x = inputs.make("normal", (20, 200), "float64", 6)
    problem = Problem((20, 200), "float64", form)
    found = quantize(problem, x)
    back = returned(problem, found)
    step = 1 / found["scale"] if problem.shifted else found["scale"] / 127
    inside = np.abs(x) <= found["scale"] if form == "truncated" else np.ones(x.shape, bool)
    assert inside.mean() > 0.9
    assert (np.abs(back - x) <= 0.5000001 * step)[inside].all()


def all_codes(form: str) -> Array:
    """Every code of the form's type."""
    return np.arange(256, dtype=np.uint8).view("uint8" if "zeropoint" in form else "int8")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_share_of_every_code_is_the_quotient(dtype: str) -> None:
    """q / 127 by one division, for all q."""
    codes = all_codes("vector")[None]
    one = {"input": codes, "scale": np.ones((1, 1), dtype)}
    found = dequantize(Problem((1, 256), dtype), one)
    assert np.array_equal(found, codes.astype(dtype) / np.dtype(dtype).type(127))


BAD_FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"shape": ()}, "shape", "expected 1 to 8 axes, got 0"),
    ({"DTYPE": "int8"}, "DTYPE", "expected one of float16, bfloat16, float32, float64, got int8"),
    ({"CODES": "uint8"}, "CODES", "expected one of int8, got uint8"),
    ({"CODES": "int8", "form": "zeropoint"}, "CODES", "expected one of uint8, got int8"),
    ({"axis": 2}, "axis", "axis 2 is outside a shape of rank 2"),
    (
        {"form": "linear", "axis": 0},
        "axis",
        "form linear has one statistic for the whole tensor; leave the axis out",
    ),
    (
        {"form": "zeropoint", "axis": 0},
        "axis",
        "form zeropoint has one statistic for the whole tensor; leave the axis out",
    ),
    ({"form": "truncated-vector"}, "form", "expected VectorwiseForm"),
]


@pytest.mark.parametrize(("fields", "field", "text"), BAD_FIELDS)
@pytest.mark.parametrize(
    ("make", "elements", "codes"),
    [
        (planq.VectorwiseQuantizeDescriptor, "input_dtype", "output_dtype"),
        (planq.VectorwiseDequantizeDescriptor, "output_dtype", "input_dtype"),
    ],
)
def test_bad_fields_are_refused(
    make: Any, elements: str, codes: str, fields: dict[str, Any], field: str, text: str
) -> None:
    """At construction, by name."""
    words = {"DTYPE": elements, "CODES": codes}
    named = {words.get(name, name): value for name, value in fields.items()}
    with pytest.raises(planq.DescriptorError) as caught:
        make(**{"shape": (4, 6), elements: "float32", **named})
    wanted = words.get(field, field)
    assert caught.value.field == wanted
    assert str(caught.value).startswith(f"{wanted}: {text}")


def test_descriptors_are_equal_by_meaning() -> None:
    """What was left out is filled in, and JSON keeps it."""
    left_out = planq.VectorwiseQuantizeDescriptor(
        shape=(4, 6), input_dtype="float16", form="row_zeropoint", axis=-2
    )
    said = planq.VectorwiseQuantizeDescriptor(
        shape=(4, 6), input_dtype="float16", output_dtype="uint8", form="row_zeropoint", axis=0
    )
    assert left_out == said
    assert planq.Descriptor.from_json(left_out.to_json()) == said
    assert list(said.operands()) == ["input", "output", "scale", "zero_point"]
    assert said.operands()["scale"].shape == (1, 6)


@pytest.mark.parametrize("form", ["row", "vector_zeropoint", "linear"])
@pytest.mark.parametrize("rows", [0, 1, 7, 64])
def test_a_dim_of_rows(form: str, rows: int) -> None:
    """That no vector goes along: the bits are those of the fixed shape."""
    desc = planq.VectorwiseQuantizeDescriptor(
        shape=(planq.Dim("m", max=64), 40), input_dtype="float32", form=form
    )
    plan = planq.Plan.select(planq.HOST, desc)
    problem = Problem((rows, 40), "float32", form)
    x = inputs.make("normal", (rows, 40), "float32", rows)
    outputs = {
        "output": np.zeros((rows, 40), problem.code),
        "scale": np.zeros(problem.statistic_shape, np.float32),
    }
    if problem.shifted:
        outputs["zero_point"] = np.zeros(problem.statistic_shape, np.int32)
    room = room_for(plan.workspace_size())
    plan.run(planq.HOST, room, planq.VectorwiseQuantizeArgs(input=x, **outputs))
    for name, values in reference(problem, x).items():
        assert outputs[name].tobytes() == values.tobytes()
