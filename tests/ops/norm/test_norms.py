"""`rms_norm` and `layer_norm` on the host: other libraries, edges, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import planq
from planq.audit.memory import Host
from planq.audit.ops.norm.adapter import NormTests
from planq.audit.ops.norm.layer_norm import reference as layer
from planq.audit.ops.norm.layer_norm.adapter import TESTS as LAYER
from planq.audit.ops.norm.rms_norm import reference as rms
from planq.audit.ops.norm.rms_norm.adapter import TESTS as RMS
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, Array, bits

F32 = np.float32
BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = ("float16", "bfloat16", "float32")
BOTH = ((RMS, rms.Problem), (LAYER, layer.Problem))
both = pytest.mark.parametrize(("tests", "problem"), BOTH, ids=["rms_norm", "layer_norm"])
# Half a unit of the output's type, and the error of float32 arithmetic with sums of 16 levels.
UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 0.0}
ARITHMETIC = 32 * 2.0**-24


def plain(problem: Any, shape: tuple[int, ...], dtype: str, **fields: Any) -> Any:
    """A problem of one type."""
    return problem(shape=shape, input_dtype=dtype, weight_dtype=dtype, **fields)


def given_to(p: Any, seed: int, eps: float = 1e-6, data: str = "normal") -> dict[str, Array]:
    """Operands of a problem."""
    made = {
        "input": inputs.make(data, p.shape, p.input_dtype, seed),
        "weight": inputs.make("normal", p.shape[-1:], p.weight_dtype, seed + 1),
        "eps": np.array(eps),
    }
    if p.residual_dtype:
        made["residual"] = inputs.make(data, p.shape, p.residual_dtype, seed + 2)
    if getattr(p, "bias_dtype", None):
        made["bias"] = inputs.make("normal", p.shape[-1:], p.bias_dtype, seed + 3)
    return made


def check(tests: NormTests, p: Any, given: dict[str, Array], host: Host | None = None) -> None:
    """Every output against the reference."""
    ours = tests.run(p, given, host)
    with np.errstate(all="ignore"):
        wanted = tests.formula(p, given)
    assert set(ours) == set(wanted)
    for name, values in wanted.items():
        assert np.array_equal(bits(ours[name]), bits(values)), name


@pytest.mark.parametrize("dtype", DTYPES)
@both
def test_every_length(tests: NormTests, problem: Any, dtype: str) -> None:
    """An odd one out at every level of the tree, a leaf more or less, the longest row."""
    for length in (*range(1, 67), 255, 1023, 1024, 1025, 2049, 5120, 9001, 65535, 65536):
        p = plain(problem, (2, length), dtype, residual_dtype=(None, *DTYPES)[length % 4])
        check(tests, p, given_to(p, length, data=("finite", "normal")[length % 2]))


@pytest.mark.parametrize("threads", [2, 5])
@both
def test_threads_change_no_bit(tests: NormTests, problem: Any, threads: int) -> None:
    """Rows are shared."""
    p = plain(problem, (300, 257), "bfloat16", residual_dtype="bfloat16")
    check(tests, p, given_to(p, 1), Host(threads))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_of_torch(dtype: str) -> None:
    """In float64, to the rounding of the output and the error of float32 arithmetic."""
    p = plain(rms.Problem, (40, 1111), dtype)
    given = given_to(p, 7)
    x, w = (torch.from_numpy(given[name].astype(np.float64)) for name in ("input", "weight"))
    theirs = torch.nn.functional.rms_norm(x, (1111,), w, 1e-6).numpy()
    ours = RMS.run(p, given)["output"].astype(np.float64)
    tiny = FLOATS[dtype].smallest_normal * 2.0 ** (1 - FLOATS[dtype].precision)
    assert (np.abs(ours - theirs) <= (UNITS[dtype] + ARITHMETIC) * np.abs(theirs) + tiny).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm_of_torch(dtype: str) -> None:
    """The same; the mean's error counts in units of the row's largest element."""
    p = plain(layer.Problem, (40, 1111), dtype, bias_dtype=dtype)
    given = given_to(p, 8)
    x, w, b = (
        torch.from_numpy(given[name].astype(np.float64)) for name in ("input", "weight", "bias")
    )
    theirs = torch.nn.functional.layer_norm(x, (1111,), w, b, 1e-6).numpy()
    ours = LAYER.run(p, given)["output"].astype(np.float64)
    deviation = np.sqrt(x.numpy().var(-1, keepdims=True) + 1e-6)
    largest = np.abs(x.numpy()).max(-1, keepdims=True) / deviation * np.abs(w.numpy())
    error = UNITS[dtype] * np.abs(theirs) + ARITHMETIC * (largest + np.abs(b.numpy()))
    assert (np.abs(ours - theirs) <= error * (1 + ARITHMETIC) + 1e-7).all()


def llama(x: Array, weight: Array, eps: float) -> Array:
    """`LlamaRMSNorm` of transformers: the variance in float32, the weight on rounded numbers."""
    dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16}[x.dtype.name]
    wide = torch.from_numpy(x.astype(F32))
    hidden = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    w = torch.from_numpy(weight.astype(F32)).to(dtype)
    product: Array = (w * hidden.to(dtype)).float().numpy()
    return product


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_round_before_weight_is_that_of_llama(dtype: str) -> None:
    """Sums in another order move few numbers, by a unit before the weight and one behind it."""
    p = plain(rms.Problem, (64, 1024), dtype, round_before_weight=True)
    given = given_to(p, 9)
    theirs = llama(given["input"], given["weight"], 1e-6)
    ours = RMS.run(p, given)["output"].astype(F32)
    differ = ours != theirs
    assert differ.mean() < 0.002
    near = np.abs(ours - theirs) <= 8 * UNITS[dtype] * np.abs(theirs) + 1e-7
    assert near.all()
    late = RMS.run(replace(p, round_before_weight=False), given)["output"].astype(F32)
    assert (late != theirs).mean() > 0.05


@both
def test_a_nan_stays_in_its_row(tests: NormTests, problem: Any) -> None:
    """Other rows have the bits that they have without it."""
    p = plain(problem, (9, 130), "float16")
    given = given_to(p, 3)
    clean = tests.run(p, given)["output"]
    given["input"][4, 77] = np.nan
    ours = tests.run(p, given)["output"]
    assert (bits(ours[4]) == 0x7E00).all()
    others = np.arange(9) != 4
    assert np.array_equal(bits(ours[others]), bits(clean[others]))


@both
def test_zeros(tests: NormTests, problem: Any) -> None:
    """Of rows of nothing but zeros, eps says whether they are zeros or NaN."""
    for value in (0.0, -0.0):
        for length in (1, 2, 3, 1024, 1025, 1500, 3073, 65536):
            p = plain(problem, (2, length), "float32")
            given = given_to(p, 4)
            given["input"][...] = value
            check(tests, p, given)
            assert (tests.run(p, given)["output"] == 0).all()
            check(tests, p, given | {"eps": np.array(0.0)})
            assert np.isnan(tests.run(p, given | {"eps": np.array(0.0)})["output"]).all()


def test_squares_that_overflow_make_zeros() -> None:
    """The factor is then 1 / sqrt(inf); an infinity times it is NaN."""
    p = plain(rms.Problem, (2, 40), "float32")
    given = given_to(p, 5)
    given["weight"][...] = 1
    given["input"][0] = 3e38
    given["input"][1, 3] = np.inf
    ours = RMS.run(p, given)["output"]
    assert (ours[0] == 0).all()
    assert np.isnan(ours[1, 3])
    assert (np.delete(ours[1], 3) == 0).all()


@both
def test_subnormals_count(tests: NormTests, problem: Any) -> None:
    """As numbers of their own, whatever their squares are."""
    for dtype in DTYPES:
        p = plain(problem, (20, 70), dtype, residual_dtype=dtype)
        for eps in (0.0, 1e-45, 1e-38):
            check(tests, p, given_to(p, 6, eps, "subnormal"))


@both
def test_the_residual_is_rounded_before_it_is_normalized(tests: NormTests, problem: Any) -> None:
    """1 + 2^-9 is 1 in bfloat16, and so it is in a float32 output."""
    p = plain(problem, (1, 4), "bfloat16", residual_dtype="bfloat16", output_dtype="float32")
    given = {
        "input": np.array([[1, 1, -1, 3]], BF16),
        "residual": np.array([[2**-9, 0, 0, 0]], BF16),
        "weight": np.ones(4, BF16),
        "eps": np.array(0.0),
    }
    ours = tests.run(p, given)
    assert ours["residual"].astype(F32).tolist() == [[1, 1, -1, 3]]
    assert ours["output"][0, 0] == ours["output"][0, 1]


@pytest.mark.parametrize("output_dtype", ["float16", "bfloat16"])
@both
def test_in_place(tests: NormTests, problem: Any, output_dtype: str) -> None:
    """Of any type of the input's size; of another size it is an overlap."""
    p = plain(problem, (3, 2050), "bfloat16", output_dtype=output_dtype)
    given = given_to(p, 11)
    wanted = tests.run(p, given)["output"]
    desc = tests.descriptor(p)
    memory = given["input"].copy()
    args: dict[str, Any] = {name: values for name, values in given.items() if name != "eps"}
    args |= {"input": memory, "output": memory.view(wanted.dtype), "eps": 1e-6}
    kind = planq.RmsNormArgs if tests is RMS else planq.LayerNormArgs
    planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, kind(**args))
    assert np.array_equal(bits(memory), bits(wanted))


@both
def test_what_is_refused(tests: NormTests, problem: Any) -> None:
    """With the field's name, what was expected and what came."""
    good = plain(problem, (2, 8), "float16")
    for changes, words in (
        ({"shape": (2, 0)}, "shape: expected 1 to 65536 elements along the last axis, got 0"),
        ({"shape": (2, 65537)}, "shape: expected 1 to 65536"),
        ({"input_dtype": "float64"}, "input_dtype"),
        ({"weight_dtype": "int8"}, "weight_dtype"),
        ({"output_dtype": "int32"}, "output_dtype"),
        ({"residual_dtype": "float64"}, "residual_dtype"),
        ({"weight_offset": float("nan")}, "weight_offset"),
        ({"weight_offset": 1e39}, "weight_offset"),
    ):
        with pytest.raises(planq.DescriptorError, match=words.split(":")[0]) as raised:
            tests.descriptor(replace(good, **changes))
        assert words.split(": ")[-1] in str(raised.value)


def test_a_bias_has_one_of_the_types() -> None:
    """Its field is layer_norm's own."""
    with pytest.raises(planq.DescriptorError, match="bias_dtype"):
        LAYER.descriptor(plain(layer.Problem, (2, 8), "float16", bias_dtype="float64"))


@both
def test_tokens_may_be_a_dim(tests: NormTests, problem: Any) -> None:
    """One plan for every number of them; eps in memory, of float32."""
    p = plain(problem, (7, 96), "bfloat16")
    given = given_to(p, 12, 1e-5)
    wanted = tests.run(p, given)["output"]
    desc = replace(tests.descriptor(p), shape=(planq.Dim("tokens", 16), 96))
    plan = planq.Plan.select(planq.HOST, desc)
    kind = planq.RmsNormArgs if tests is RMS else planq.LayerNormArgs
    eps = np.array([1e-5], F32)
    for count in (7, 3, 0):
        output = np.zeros((count, 96), BF16)
        x = given["input"][:count]
        plan.run(planq.HOST, None, kind(input=x, weight=given["weight"], output=output, eps=eps))
        assert np.array_equal(bits(output), bits(wanted[:count]))
