"""`unary` and `add` on the host: every 16-bit number, torch, numbers by value, places, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import planq
from planq.audit.ops.elementwise.elements import TYPES, special
from planq.audit.reference import inputs
from planq.audit.reference.formats import STORAGE, Array, bits, canonical
from planq.audit.reference.functions import FUNCTIONS
from support.tensors import as_torch

# The largest errors of docs/numerics/functions.md in float32, in units in the last place.
MOST_ULP = {
    "exp": 0.5340,
    "exp2": 0.5339,
    "log": 0.5995,
    "log2": 0.6193,
    "rsqrt": 0.5,
    "sigmoid": 1.0004,
    "tanh": 0.9794,
    "erf": 0.9909,
}
EXACT = {
    **{name: getattr(torch, name) for name in ("exp", "exp2", "log", "log2", "rsqrt", "tanh")},
    "sigmoid": torch.sigmoid,
    "erf": torch.special.erf,
}
every_function = pytest.mark.parametrize("function", list(planq.UnaryFunction))


def unary(
    function: str, x: Array, dtype: Any = None, output: Array | None = None, threads: int = 1
) -> Array:
    """By planq."""
    desc = planq.UnaryDescriptor(
        shape=x.shape, function=function, input_dtype=x.dtype, output_dtype=dtype
    )
    if output is None:
        output = np.empty(x.shape, STORAGE[desc.output_dtype.value])
    args = planq.UnaryArgs(input=x, output=output)
    planq.Plan.select(planq.HOST, desc).run(planq.host_stream(threads=threads), None, args)
    return output


def add(x: Array, y: Array, output: Array, alpha: Any = None, threads: int = 1) -> Array:
    """By planq."""
    desc = planq.AddDescriptor(
        shape=output.shape,
        input_dtype=x.dtype,
        other_dtype=y.dtype,
        output_dtype=output.dtype,
    )
    args = planq.AddArgs(input=x, other=y, output=output, alpha=alpha)
    planq.Plan.select(planq.HOST, desc).run(planq.host_stream(threads=threads), None, args)
    return output


@every_function
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_16_bit_number(dtype: str, function: planq.UnaryFunction) -> None:
    """Against the function's sequence in NumPy, whose float32 ml_dtypes and NumPy round once."""
    x = np.arange(2**16).astype(np.uint16).view(STORAGE[dtype])
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[function.value](x.astype(np.float32))
        wanted = canonical(exact.astype(x.dtype), dtype)
    assert np.array_equal(bits(unary(function, x)), bits(wanted))
    assert np.array_equal(bits(unary(function, x, "float32")), bits(exact))


@every_function
def test_torch_in_float64_is_as_near_as_promised(function: planq.UnaryFunction) -> None:
    """Of float32 the errors that docs/numerics/functions.md has; results below 2^-126 aside."""
    x = inputs.make("normal", (60_000,), "float32", 3)
    x = np.abs(x) if function.value in ("log", "log2", "rsqrt") else x
    ours = unary(function, x)
    exact = EXACT[function.value](torch.from_numpy(x).double()).numpy()
    normal = np.isfinite(ours) & (np.abs(exact) >= 2.0**-126) & (x != 0)
    assert normal.sum() > 50_000
    unit = np.ldexp(1.0, np.frexp(exact[normal])[1] - 24)
    assert (np.abs(ours[normal] - exact[normal]) / unit).max() <= MOST_ULP[function.value] + 1e-4


@every_function
def test_limits(function: planq.UnaryFunction) -> None:
    """Infinities, zeros and NaN of both signs."""
    x = np.array([np.inf, -np.inf, 0.0, -0.0, np.nan, -np.nan], np.float32)
    nan = math.nan
    wanted = {
        "exp": [np.inf, 0.0, 1.0, 1.0, nan, nan],
        "exp2": [np.inf, 0.0, 1.0, 1.0, nan, nan],
        "log": [np.inf, nan, -np.inf, -np.inf, nan, nan],
        "log2": [np.inf, nan, -np.inf, -np.inf, nan, nan],
        "rsqrt": [0.0, nan, np.inf, -np.inf, nan, nan],
        "sigmoid": [1.0, 0.0, 0.5, 0.5, nan, nan],
        "tanh": [1.0, -1.0, 0.0, -0.0, nan, nan],
        "erf": [1.0, -1.0, 0.0, -0.0, nan, nan],
    }[function.value]
    assert bits(unary(function, x)).tolist() == bits(np.array(wanted, np.float32)).tolist()


@pytest.mark.parametrize("dtype", TYPES)
def test_torch_has_the_same_sums(dtype: str) -> None:
    """Without a factor: it rounds 16-bit sums once, from float32."""
    x = inputs.make("finite", (40_000,), dtype, 5)
    y = inputs.make("finite", (40_000,), dtype, 6)
    theirs = torch.add(as_torch(x), as_torch(y))
    ours = as_torch(add(x, y, np.empty_like(x)))
    assert not theirs.isnan().any()
    assert torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8))


def test_a_product_is_rounded_before_the_sum() -> None:
    """By fma the sum would be 2^-46."""
    x = np.full(5, 1 + 2.0**-23, np.float32)
    y = np.full(5, -(1 + 2.0**-22), np.float32)
    assert add(x, y, np.empty_like(x), float(x[0])).tolist() == [0.0] * 5


def test_numbers_by_value_and_in_memory_are_one() -> None:
    """Rounded to float32, also those that overflow; float32 in memory is taken as it is."""
    x, y = (inputs.make("normal", (999,), "bfloat16", seed) for seed in (1, 2))
    for alpha in (0.1, -3.0, 1e300, 1 + 2.0**-24 + 2.0**-50):
        with np.errstate(over="ignore"):
            narrow = np.array([alpha]).astype(np.float32)
        made = [
            add(x, y, np.empty(999, np.float32), given)
            for given in (alpha, np.array([alpha]), narrow)
        ]
        assert all(np.array_equal(bits(made[0]), bits(each)) for each in made[1:])
    one = add(x, y, np.empty_like(x))
    assert np.array_equal(bits(one), bits(add(x, y, np.empty_like(x), 1.0)))


def test_broadcast_by_strides_of_0() -> None:
    """A bias for every row, in two axes of three."""
    x = special((3, 4, 50), "float16", 1)
    bias = inputs.make("normal", (1, 1, 50), "float32", 2)
    spread = np.broadcast_to(bias, x.shape)
    whole = add(x, np.ascontiguousarray(spread), np.empty(x.shape, np.float32))
    assert spread.strides[:2] == (0, 0)
    assert np.array_equal(bits(add(x, spread, np.empty(x.shape, np.float32))), bits(whole))


def test_in_place_and_by_any_number_of_threads() -> None:
    """An output may be the input itself, and rows may lie apart."""
    x, y = (inputs.make("tiled", (301, 1001), "float16", seed) for seed in (1, 2))
    function, total = unary("tanh", x), add(x, y, np.empty_like(x), 0.3)
    for threads in (1, 3):
        padded = np.empty((301, 1024), np.float16)
        own = padded[:, :1001]
        own[...] = x
        assert np.array_equal(bits(unary("tanh", own, None, own, threads)), bits(function))
        own[...] = x
        assert np.array_equal(bits(add(own, y, own, 0.3, threads)), bits(total))


def test_an_output_of_another_size_is_not_the_input() -> None:
    """At one address their elements would overlap."""
    room = np.zeros(100, np.float32)
    half = room.view(np.float16)[:100]
    for given, output in ((room, half), (half, room)):
        with pytest.raises(planq.ArgumentError) as error:
            unary("exp", given, output.dtype, output)
        assert error.value.operand == "output"
        with pytest.raises(planq.ArgumentError) as error:
            add(given, np.zeros(100, np.float32), output)
        assert error.value.operand == "output"


def test_rows_may_be_a_dim() -> None:
    """One plan for every number of tokens."""
    x = special((5, 96), "bfloat16", 9)
    tokens = planq.Dim("tokens", 8)
    plan = planq.Plan.select(
        planq.HOST,
        planq.UnaryDescriptor(shape=(tokens, 96), function="sigmoid", input_dtype="bfloat16"),
    )
    for rows in (0, 1, 5):
        output = np.empty((rows, 96), x.dtype)
        plan.run(planq.HOST, None, planq.UnaryArgs(input=x[:rows], output=output))
        assert np.array_equal(bits(output), bits(unary("sigmoid", x)[:rows]))


@pytest.mark.parametrize("field", ["input_dtype", "output_dtype"])
@pytest.mark.parametrize("dtype", ["float64", "int8", "float8_e4m3fn"])
def test_types_that_are_refused(field: str, dtype: str) -> None:
    """By their field."""
    own = {"shape": (4,), "input_dtype": "float32"} | {field: dtype}
    with pytest.raises(planq.DescriptorError) as error:
        planq.UnaryDescriptor(function="exp", **own)
    assert error.value.field == field
    with pytest.raises(planq.DescriptorError) as error:
        planq.AddDescriptor(**own)
    assert error.value.field == field


def test_other_refusals() -> None:
    """A function that there is not, another type of the second terms, no axes."""
    with pytest.raises(planq.DescriptorError) as error:
        planq.UnaryDescriptor(shape=(4,), function="gelu", input_dtype="float32")
    assert error.value.field == "function"
    with pytest.raises(planq.DescriptorError) as error:
        planq.AddDescriptor(shape=(4,), input_dtype="float32", other_dtype="int32")
    assert error.value.field == "other_dtype"
    with pytest.raises(planq.DescriptorError) as error:
        planq.AddDescriptor(shape=(), input_dtype="float32")
    assert error.value.field == "shape"


def test_defaults_are_the_type_of_the_input() -> None:
    """Of the output, and of the second terms."""
    own = {"shape": (4,), "input_dtype": "bfloat16"}
    assert planq.UnaryDescriptor(function="exp", **own).output_dtype is planq.DType.BFLOAT16
    desc = planq.AddDescriptor(**own)
    assert desc.other_dtype is desc.output_dtype is planq.DType.BFLOAT16
