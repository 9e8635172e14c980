"""qparams against the reference, torch's observer, and the operator on tensors with such ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.ao.quantization.observer import MinMaxObserver

import planq
from planq.audit.ops.affine.dynamic_range_quantize import reference

EDGES = np.array(
    [
        (0.0, 0.0),
        (-0.0, 0.0),
        (-1.5, 3.25),
        (2.0, 5.0),
        (-7.0, -0.5),
        (3.0, 3.0),
        (-1e-45, 1e-45),
        (-3.4e38, 3.4e38),
        (-np.inf, 1.0),
        (np.nan, np.nan),
    ]
)
FORMATS = [
    ("int8", "symmetric"),
    ("int4", "symmetric"),
    ("float8_e4m3fn", "symmetric"),
    ("uint8", "asymmetric"),
    ("int8", "asymmetric"),
    ("uint4", "asymmetric"),
]


def ranges(count: int, seed: int) -> np.ndarray[Any, Any]:
    """Ranges of all magnitudes, and the edges."""
    rng = np.random.default_rng(seed)
    ends = rng.standard_normal((count, 2)) * 2.0 ** rng.integers(-40, 40, (count, 1))
    return np.concatenate([np.sort(ends, axis=-1), EDGES])


def same_bits(got: Any, wanted: Any) -> bool:
    """The same dtype, shape and bytes."""
    return bool(
        got.dtype == wanted.dtype
        and got.shape == wanted.shape
        and got.tobytes() == wanted.tobytes()
    )


@pytest.mark.parametrize("scale_dtype", [None, "float16", "bfloat16"])
@pytest.mark.parametrize("include_zero", [True, False])
@pytest.mark.parametrize("nonfinite", ["propagate", "saturate"])
@pytest.mark.parametrize("input_dtype", ["float32", "float64"])
@pytest.mark.parametrize(("output_dtype", "mode"), FORMATS)
def test_parameters_are_those_of_the_reference(
    output_dtype: str,
    mode: str,
    input_dtype: str,
    nonfinite: str,
    include_zero: bool,
    scale_dtype: str | None,
) -> None:
    """To the bit, with the special values among the ranges."""
    with np.errstate(over="ignore"):
        ends = ranges(300, 11).astype(input_dtype)
    problem = reference.Problem(
        shape=ends.shape,
        input_dtype=input_dtype,
        output_dtype=output_dtype,
        mode=mode,
        nonfinite=nonfinite,
        include_zero=include_zero or mode == "symmetric",
        scale_dtype=scale_dtype,
    )
    wanted = reference.dynamic_range_quantize(problem, ends)
    found = planq.qparams(
        ends[:, 0],
        ends[:, 1],
        output_dtype=output_dtype,
        input_dtype=input_dtype,
        mode=planq.Mode(mode),
        nonfinite=planq.NonFinite(nonfinite),
        include_zero=problem.include_zero,
        scale_dtype=scale_dtype,
    )
    assert same_bits(found.scale, wanted.scale)
    if mode == "symmetric":
        assert found.zero_point is None
    else:
        assert wanted.zero_point is not None
        assert same_bits(found.zero_point, wanted.zero_point)


def test_parameters_agree_with_the_observer_of_torch() -> None:
    """uint8, asymmetric, zero included: the same formula on ordinary ranges."""
    observer: Any = MinMaxObserver
    for low, high in ranges(200, 12)[:200].astype(np.float32):
        watcher = observer(dtype=torch.quint8, qscheme=torch.per_tensor_affine, eps=1e-30)
        watcher(torch.tensor([low, high]))
        scale, zero_point = watcher.calculate_qparams()
        found = planq.qparams(low, high, output_dtype="uint8", mode=planq.Mode.ASYMMETRIC)
        assert found.scale == scale.item()
        assert found.zero_point == zero_point.item()


@pytest.mark.parametrize("mode", ["symmetric", "asymmetric"])
def test_a_tensor_gets_the_parameters_of_its_range(mode: str) -> None:
    """What calibration promises: static parameters equal the dynamic ones."""
    x = np.random.default_rng(13).standard_normal((64, 501)).astype(np.float32)
    desc = planq.DynamicRangeQuantizeDescriptor(
        shape=x.shape, input_dtype="float32", output_dtype="int8", mode=planq.Mode(mode)
    )
    args = planq.DynamicRangeQuantizeArgs(
        input=x,
        output=np.empty(x.shape, np.int8),
        scale=np.empty(64, np.float32),
        zero_point=np.empty(64, np.int32) if mode == "asymmetric" else None,
    )
    planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    found = planq.qparams(x.min(axis=1), x.max(axis=1), output_dtype="int8", mode=planq.Mode(mode))
    assert same_bits(found.scale, args.scale)
    if mode == "asymmetric":
        assert same_bits(found.zero_point, args.zero_point)


def test_ranges_broadcast() -> None:
    """Scalars, and axes that one side lacks."""
    assert planq.qparams(-1.0, 2.0, output_dtype="int8").scale.shape == ()
    found = planq.qparams(
        np.zeros((3, 1)), np.ones(4), output_dtype="uint4", mode=planq.Mode.ASYMMETRIC
    )
    assert found.scale.shape == found.zero_point.shape == (3, 4)
    assert planq.qparams(np.empty(0), np.empty(0), output_dtype="int8").scale.shape == (0,)


REFUSED: list[tuple[dict[str, Any], type[planq.PlanqError], str]] = [
    (
        {"low": 2.0, "high": 1.0},
        planq.ArgumentError,
        "low: expected at most high, 1.0 at (), got 2.0",
    ),
    (
        {"low": [0.0, 3.0], "high": [1.0, 2.0]},
        planq.ArgumentError,
        "low: expected at most high, 2.0 at (1,), got 3.0",
    ),
    (
        {"low": np.zeros(3), "high": np.ones(4)},
        planq.ArgumentError,
        "high: expected a shape that broadcasts with (3,), got (4,)",
    ),
    ({"output_dtype": "uint8"}, planq.DescriptorError, "symmetric range needs a signed"),
    ({"output_dtype": "float32"}, planq.DescriptorError, "output_dtype"),
    ({"input_dtype": "int8"}, planq.DescriptorError, "input_dtype: expected a floating type"),
    ({"q_max": 200.0}, planq.DescriptorError, "q_max"),
]


@pytest.mark.parametrize(("changes", "error", "text"), REFUSED)
def test_bad_input_is_refused(
    changes: dict[str, Any], error: type[planq.PlanqError], text: str
) -> None:
    """With the operand or the field, what was expected and what came."""
    fields = {"low": -1.0, "high": 1.0, "output_dtype": "int8", **changes}
    with pytest.raises(error) as caught:
        planq.qparams(fields.pop("low"), fields.pop("high"), **fields)
    assert text in str(caught.value)
