"""The elementwise affine operators on what hypothesis makes: shapes x dtypes x scopes x values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from planq.audit.memory import Host, Layout, SharedLayout
from planq.audit.ops.affine.adapter import AffineTests
from planq.audit.ops.affine.cases import Choices
from planq.audit.ops.affine.dequantize.adapter import TESTS as DEQUANTIZE
from planq.audit.ops.affine.dequantize.reference import DequantizeProblem
from planq.audit.ops.affine.dequantize_backward.adapter import TESTS as DEQUANTIZE_BACKWARD
from planq.audit.ops.affine.fake_quantize.adapter import TESTS as FAKE_QUANTIZE
from planq.audit.ops.affine.fake_quantize.reference import FakeQuantizeProblem
from planq.audit.ops.affine.fake_quantize_backward.adapter import TESTS as FAKE_QUANTIZE_BACKWARD
from planq.audit.ops.affine.inputs import storage_shape
from planq.audit.ops.affine.quantize.adapter import TESTS as QUANTIZE
from planq.audit.ops.affine.quantize.reference import QuantizeProblem
from planq.audit.ops.affine.quantize_backward.adapter import TESTS as QUANTIZE_BACKWARD
from planq.audit.ops.affine.reference import Problem
from planq.audit.ops.affine.scopes import ScopeSpec
from planq.audit.reference.formats import FLOATS, STORAGE, Array, Arrays, Float, bits
from planq.audit.runner import Bench

ADAPTERS = {
    "quantize": QUANTIZE,
    "dequantize": DEQUANTIZE,
    "fake_quantize": FAKE_QUANTIZE,
    "quantize_backward": QUANTIZE_BACKWARD,
    "dequantize_backward": DEQUANTIZE_BACKWARD,
    "fake_quantize_backward": FAKE_QUANTIZE_BACKWARD,
}
fixed = settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
fewer = settings(fixed, max_examples=75)


def special_values(fmt: Float) -> list[float]:
    """Zeros, ends of ranges, non-finite values, and halves that make ties."""
    tiny = fmt.smallest_normal
    one = [0.5, 1.0, 1.5, 2.5, 3.5, 7.5, 62.5, 126.5, 127.5, 128.5, 255.5, 448.0]
    ends = [0.0, tiny, tiny * 2.0 ** (1 - fmt.precision), fmt.largest, fmt.largest / 2]
    positive = one + ends + [float("inf")]
    return [*positive, *(-v for v in positive), float("nan")]


@st.composite
def scopes(draw: st.DrawFn, rank: int, pairs: bool) -> ScopeSpec:
    """Any scope of a tensor of this rank."""
    kinds = ["tensor", "channel", "token", "group"]
    kind = draw(st.sampled_from(kinds + ["block"] * (rank > 1) + ["pair"] * pairs))
    axis, sizes = draw(st.integers(-rank, rank - 1)), st.sampled_from([1, 2, 3, 4, 8, 16, 32, 100])
    if kind == "channel":
        return ("channel", axis)
    if kind == "group":
        return ("group", draw(sizes), axis)
    return ("block", draw(sizes), draw(sizes)) if kind == "block" else (kind,)


@st.composite
def problems(draw: st.DrawFn, tests: AffineTests) -> Problem:
    """Any problem of the operator's table, on a small tensor; static where ranges are optional."""
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=8, min_side=0, max_side=9))
    while np.prod(shape) > 4000:
        shape = shape[1:]
    kind = draw(st.sampled_from(tests.sample.kinds))
    sums = tests.operator == "dequantize" and kind[0][0] == "int32"
    scope = draw(scopes(len(shape), sums))
    return tests.sample.make(Choices(draw(st.integers(0, 10**6))), (scope, shape), kind)


@st.composite
def float_values(draw: st.DrawFn, shape: tuple[int, ...], dtype: str) -> Array:
    """Special values, arbitrary bit patterns, or a mixture of both."""
    fmt = FLOATS[dtype]
    with np.errstate(over="ignore"):
        table = np.array(special_values(fmt)).astype(fmt.dtype)
    used = draw(st.lists(st.integers(0, len(table) - 1), min_size=1, max_size=6))
    indices = draw(hnp.arrays(np.uint8, shape, elements=st.integers(0, len(used) - 1)))
    special = np.asarray(table[np.array(used)][indices])
    if draw(st.booleans()):
        return special
    unsigned = np.dtype(f"u{fmt.dtype.itemsize}")
    pattern = draw(hnp.arrays(unsigned, shape))
    mask = draw(hnp.arrays(np.bool_, shape))
    return np.asarray(np.where(mask, pattern, special.view(unsigned))).view(fmt.dtype)


@st.composite
def operands(draw: st.DrawFn, problem: Problem) -> Arrays:
    """All input operands, each of any bits."""
    made: Arrays = {}
    for name, tensor in problem.inputs.items():
        shape, dtype = storage_shape(problem, tensor), STORAGE[tensor.dtype]
        if tensor.dtype in FLOATS and dtype.itemsize > 1:
            made[name] = draw(float_values(shape, tensor.dtype))
        else:
            raw = np.dtype(f"u{dtype.itemsize}")
            made[name] = np.asarray(draw(hnp.arrays(raw, shape))).view(dtype)
    return made


def layouts() -> st.SearchStrategy[Layout]:
    """Somewhere, with gaps between rows."""
    return st.builds(Layout, st.integers(0, 17), st.integers(0, 9))


def input_layouts() -> st.SearchStrategy[Layout]:
    """The same, or rows that repeat, overlap or run backwards."""
    axes = st.sets(st.integers(0, 7)).map(lambda chosen: tuple(sorted(chosen)))
    shared = st.builds(
        SharedLayout,
        st.integers(0, 17),
        repeated=axes,
        slide=st.sampled_from([0, 0, 1, 2, 16]),
        backwards=st.booleans(),
    )
    return st.one_of(layouts(), shared)


def check(data: st.DataObject, tests: AffineTests) -> None:
    """One problem on one set of operands, somewhere in memory, with some threads."""
    problem = data.draw(problems(tests))
    lies = {name: data.draw(input_layouts()) for name in problem.inputs}
    lies |= {name: data.draw(layouts()) for name in problem.outputs}
    inputs = {
        name: lies[name].meant(values) for name, values in data.draw(operands(problem)).items()
    }
    host = Host(data.draw(st.integers(1, 4)))
    bench = Bench(host, tests.descriptor(problem), layouts=lies)
    bench.load(inputs)
    bench.run()
    bench.check(inputs, problem.expected(inputs), problem.id)


@fixed
@given(st.data(), st.sampled_from(sorted(ADAPTERS)))
def test_any_problem_has_the_bits_of_the_reference(data: st.DataObject, operator: str) -> None:
    """Given any descriptor, operands, layouts and threads, then every byte is right."""
    check(data, ADAPTERS[operator])


def static(problem: Problem) -> Any:
    """The same with given parameters, rounded to nearest, a NaN counted as 0."""
    assert isinstance(problem, FakeQuantizeProblem)
    return replace(
        problem,
        dynamic=False,
        rounding="nearest_even",
        nonfinite="saturate",
        include_zero=True,
        zero_point_dtype=None,
    )


@fewer
@given(st.data())
def test_fake_quantize_is_dequantize_of_quantize(data: st.DataObject) -> None:
    """Given bounds of some type of codes, when fused, then no bit changes."""
    faked = static(data.draw(problems(FAKE_QUANTIZE)))
    low, high = faked.bounds
    codes = "int8" if low >= -128 and high <= 127 else "uint8"
    faked = faked if codes == "int8" or low >= 0 else replace(faked, q_min=0)
    inputs = data.draw(operands(faked))
    fields = {
        "scope": faked.scope,
        "scale_dtype": faked.stored_scale,
        "mode": faked.mode,
    }
    quantized = QuantizeProblem(
        faked.shape,
        input_dtype=faked.input_dtype,
        q_min=faked.bounds[0],
        q_max=faked.bounds[1],
        quotient=faked.quotient,
        output_dtype=codes,
        **fields,
    )
    made = QUANTIZE.run(quantized, **inputs)["output"]
    back = DequantizeProblem(
        faked.shape, input_dtype=codes, output_dtype=faked.input_dtype, **fields
    )
    there = DEQUANTIZE.run(back, **{**inputs, "input": made})["output"]
    assert np.array_equal(bits(there), bits(FAKE_QUANTIZE.run(faked, **inputs)["output"]))


@fewer
@given(st.data())
def test_fake_quantize_is_idempotent(data: st.DataObject) -> None:
    """Given ordinary scales of the compute type, when run again, then nothing changes."""
    faked = static(data.draw(problems(FAKE_QUANTIZE)))
    wide = "float64" if data.draw(st.booleans()) else "float32"
    quotient = "divide" if faked.quotient == "ratio" else faked.quotient
    faked = replace(faked, input_dtype=wide, scale_dtype=None, quotient=quotient)
    inputs = data.draw(operands(faked))
    shape = inputs["scale"].shape
    sizes = data.draw(hnp.arrays(np.float64, shape, elements=st.floats(2.0**-20, 2.0**20)))
    inputs["scale"] = sizes.astype(wide)
    if faked.mode == "asymmetric":
        near = data.draw(hnp.arrays(np.int32, shape, elements=st.integers(-300, 300)))
        inputs["zero_point"] = near
    once = FAKE_QUANTIZE.run(faked, **inputs)["output"]
    twice = FAKE_QUANTIZE.run(faked, **{**inputs, "input": once})["output"]
    assert np.array_equal(once, twice)


@fewer
@given(st.data())
def test_codes_lie_within_the_bounds(data: st.DataObject) -> None:
    """Given any bits at all, when quantized to bytes, then no code is outside [q_min, q_max]."""
    low, high = sorted(
        data.draw(st.lists(st.integers(0, 255), min_size=2, max_size=2, unique=True))
    )
    problem = QuantizeProblem(
        (3, 17), ("token",), mode="asymmetric", q_min=low, q_max=high, output_dtype="uint8"
    )
    codes = QUANTIZE.run(problem, **data.draw(operands(problem)))["output"]
    assert codes.min() >= low
    assert codes.max() <= high


@fewer
@given(st.data())
def test_gradients_pass_or_are_plus_zero(data: st.DataObject) -> None:
    """Given any bits, then each gradient of a fake quantization is copied or +0."""
    problem = data.draw(problems(FAKE_QUANTIZE_BACKWARD))
    inputs = data.draw(operands(problem))
    got = bits(FAKE_QUANTIZE_BACKWARD.run(problem, **inputs)["grad_input"])
    assert ((got == bits(inputs["grad_output"])) | (got == 0)).all()
