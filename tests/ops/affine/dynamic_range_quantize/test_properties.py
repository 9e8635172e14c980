"""`dynamic_range_quantize` on inputs that hypothesis makes: shapes x dtypes x scopes x values."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from planq.audit.memory import Host, Layout
from planq.audit.ops.affine.cases import BOUNDS, FLOAT8, OUTPUTS
from planq.audit.ops.affine.dynamic_range_quantize.adapter import check_problem, descriptor
from planq.audit.ops.affine.dynamic_range_quantize.cases import outputs
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem
from planq.audit.ops.affine.scopes import ScopeSpec
from planq.audit.reference.formats import FLOATS, INPUT_DTYPES, Array, Float
from planq.audit.runner import Bench

fixed = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def special_values(fmt: Float) -> list[float]:
    """Zeros, ends of every range, non-finite values, and halves that make ties."""
    tiny = fmt.smallest_normal
    one = [0.5, 1.0, 1.5, 2.5, 3.5, 7.0, 62.5, 63.5, 126.5, 127.0, 127.5, 240.0, 255.0, 448.0]
    ends = [0.0, tiny, tiny * 2.0 ** (1 - fmt.precision), fmt.largest, fmt.largest / 2]
    positive = one + ends + [float("inf")]
    return [*positive, *(-v for v in positive), float("nan")]


@st.composite
def scopes(draw: st.DrawFn, rank: int) -> ScopeSpec:
    """Any scope of a tensor of this rank."""
    kinds = ["tensor", "channel", "token", "group", "block"]
    kind = draw(st.sampled_from(kinds if rank > 1 else kinds[:-1]))
    axis = draw(st.integers(-rank, rank - 1))
    if kind == "channel":
        return ("channel", axis)
    if kind == "group":
        return ("group", draw(st.sampled_from([1, 2, 3, 4, 8, 16, 32, 100])), axis)
    if kind == "block":
        sizes = st.sampled_from([1, 2, 3, 4, 5, 8, 100])
        return ("block", draw(sizes), draw(sizes))
    return (kind,)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Any problem of the operator's table, on a small tensor."""
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=8, min_side=0, max_side=9))
    while np.prod(shape) > 4000:
        shape = shape[1:]
    output_dtype, order = draw(st.sampled_from(OUTPUTS))
    modes = ["symmetric"] if output_dtype in FLOAT8 else ["symmetric", "asymmetric"]
    mode = draw(st.sampled_from(modes[output_dtype.startswith("u") :]))
    quotients = ["divide", "reciprocal", "ratio"][: 3 if mode == "symmetric" else 2]
    q_min, q_max = draw(st.sampled_from([(None, None), *BOUNDS[output_dtype, mode]]))
    return Problem(
        shape=shape,
        input_dtype=draw(st.sampled_from(INPUT_DTYPES)),
        output_dtype=output_dtype,
        scope=draw(scopes(len(shape))),
        mode=mode,
        q_min=q_min,
        q_max=q_max,
        scale_dtype=draw(st.sampled_from([None, "float16", "bfloat16", "float32", "float64"])),
        quotient=draw(st.sampled_from(quotients)),
        nonfinite=draw(st.sampled_from(["propagate", "saturate"])),
        include_zero=draw(st.booleans()),
        nibble_order=order,
    )


@st.composite
def tensors(draw: st.DrawFn, problem: Problem) -> Array:
    """Special values, arbitrary bit patterns, or a mixture of both."""
    fmt = FLOATS[problem.input_dtype]
    table = np.array(special_values(fmt)).astype(fmt.dtype)
    used = draw(st.lists(st.integers(0, len(table) - 1), min_size=1, max_size=6))
    indices = draw(hnp.arrays(np.uint8, problem.shape, elements=st.integers(0, len(used) - 1)))
    special = np.asarray(table[np.array(used)][indices])
    if draw(st.booleans()):
        return special
    unsigned = np.dtype(f"u{fmt.dtype.itemsize}")
    pattern = draw(hnp.arrays(unsigned, problem.shape)).view(fmt.dtype)
    mask = draw(hnp.arrays(np.bool_, problem.shape))
    raw = np.where(mask, pattern.view(unsigned), special.view(unsigned))
    return np.asarray(raw.view(fmt.dtype))


@fixed
@given(st.data())
def test_any_problem_has_the_bits_of_the_reference(data: st.DataObject) -> None:
    """Given any descriptor and any input, when run on the host, then every byte is right."""
    problem = data.draw(problems())
    check_problem(problem, data.draw(tensors(problem)))


@fixed
@given(st.data())
def test_any_layout_and_thread_count_has_the_same_bits(data: st.DataObject) -> None:
    """Given odd offsets, gaps between rows and any number of threads, nothing changes."""
    problem = data.draw(problems())
    x = data.draw(tensors(problem))
    layouts = {
        name: Layout(data.draw(st.integers(0, 17)), data.draw(st.integers(0, 9)))
        for name in ("input", "output", "scale", "zero_point")
    }
    bench = Bench(Host(data.draw(st.integers(1, 5))), descriptor(problem), layouts=layouts)
    bench.load({"input": x})
    bench.run()
    bench.check({"input": x}, outputs(problem, x), problem.id)


@fixed
@given(st.data())
def test_codes_lie_within_the_bounds(data: st.DataObject) -> None:
    """Given finite input, when quantized to bytes, then no code is outside [q_min, q_max]."""
    low, high = sorted(
        data.draw(st.lists(st.integers(0, 255), min_size=2, max_size=2, unique=True))
    )
    x = data.draw(hnp.arrays(np.float32, (3, 17), elements=st.floats(width=32, allow_nan=False)))
    problem = Problem(
        x.shape,
        output_dtype="uint8",
        mode="asymmetric",
        q_min=low,
        q_max=high,
        nonfinite="saturate",
        include_zero=data.draw(st.booleans()),
    )
    bench = Bench(Host(), descriptor(problem))
    bench.load({"input": x})
    bench.run()
    codes = bench.outputs()["output"]
    assert codes.min() >= low
    assert codes.max() <= high
