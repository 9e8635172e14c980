"""Norms and gates of more rows than the generated tests have: many rows have kernels of their own.

Values of gates come from a table there, so the inputs hold what the table has and what it lacks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import planq
from planq.audit.ops.activation.activation.reference import function_of
from planq.audit.ops.norm.cases import Case
from planq.audit.ops.norm.layer_norm.adapter import TESTS as LAYER_NORM
from planq.audit.ops.norm.rms_norm.adapter import TESTS as RMS_NORM
from planq.audit.reference.formats import Array, bits
from support.gpu import Cuda

GPU = Cuda(0)
DTYPES = ("float16", "bfloat16", "float32")
MOST_CODES = {"int8": 127.0, "float8_e4m3fn": 448.0}
GROUP = 128
SHAPES = ((600, 4096), (280, 8192), (270, 5128), (270, 16384), (2000, 520))


def norm_problems() -> list[Any]:
    """Every type with and without a residual, alone and as codes; few of other types."""
    found: list[Any] = []
    for tests in (RMS_NORM, LAYER_NORM):
        for place, shape in enumerate(SHAPES):
            for dtype in DTYPES:
                own = {"shape": shape, "input_dtype": dtype, "weight_dtype": dtype}
                others = dict(tests.others[place % 3])
                if "bias_dtype" in others:
                    others["bias_dtype"] = dtype
                for residual in (None, dtype):
                    fields = {**own, "residual_dtype": residual, **others}
                    found.append((tests, {**fields, "output_dtype": dtype}))
                    found += [(tests, {**fields, **codes_of(dtype, to)}) for to in MOST_CODES]
                    if shape[1] % GROUP == 0:
                        grouped = {
                            **codes_of(dtype, "float8_e4m3fn"),
                            "scope": ("group", GROUP, -1),
                        }
                        found.append((tests, {**fields, **grouped}))
                other = DTYPES[(DTYPES.index(dtype) + 1) % 3]
                found.append((tests, {**own, "weight_dtype": other, "residual_dtype": dtype}))
    return found


def codes_of(dtype: str, output_dtype: str) -> dict[str, Any]:
    """The codes that layers ask for most often."""
    most = MOST_CODES[output_dtype]
    return {
        "output_dtype": output_dtype,
        "norm_dtype": dtype,
        "q_min": -most,
        "q_max": most,
        "scale_dtype": "float32",
    }


@pytest.mark.parametrize("data", ["normal", "patterns"])
@pytest.mark.parametrize("place", range(len(norm_problems())))
def test_norms_have_the_bits_of_the_reference(place: int, data: str) -> None:
    """Rows of blocks, in vectors that fill the threads and that do not."""
    tests, fields = norm_problems()[place]
    problem = tests.make_problem(**{"output_dtype": fields["input_dtype"], **fields})
    case = Case(problem, tests.formula, data, 1e-5, place)
    given = case.inputs()
    wanted = case.expected(given)
    found = tests.run(problem, given, GPU)
    for name, values in wanted.items():
        assert np.array_equal(bits(found[name]), bits(values)), f"{case.id}: {name}"


def gates(dtype: torch.dtype, shape: tuple[int, int], packed: int) -> torch.Tensor:
    """Numbers that data has, and in the last rows all numbers of the type."""
    generator = torch.Generator("cuda").manual_seed(packed)
    wide = (shape[0], shape[1] * packed)
    normal = torch.randn(wide, generator=generator, device="cuda", dtype=torch.float32).to(dtype)
    rest = shape[0] // 8 * wide[1]
    every = torch.randint(0, 1 << 16, (rest,), generator=generator, device="cuda")
    normal.view(-1)[-rest:] = every.to(torch.int32).to(torch.int16).view(dtype)
    return normal


def gated(function: str, gate: torch.Tensor, up: torch.Tensor | None) -> torch.Tensor:
    """The reference's value of each number of the type, times the up side, as bits."""
    dtype = gate.dtype
    numbers = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype).float().numpy()
    with np.errstate(all="ignore"):
        values: Array = function_of(function, numbers)
    table = torch.from_numpy(np.ascontiguousarray(values)).cuda()
    y = table[gate.view(torch.int16).int() & 0xFFFF]
    y = y if up is None else y * up.float()
    nan = {torch.float16: 0x7E00, torch.bfloat16: 0x7FC0}[dtype]
    rounded = y.to(dtype).view(torch.int16)
    return torch.where(y.isnan(), torch.full_like(rounded, nan), rounded)


def run(desc: Any, args: Any, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The outputs of a run."""
    stream = torch.cuda.current_stream()
    plan = planq.Plan.select(stream, desc)
    outputs = plan.empty_outputs(torch, device="cuda:0")
    need = plan.workspace_size()
    workspace = torch.empty(need, dtype=torch.uint8, device="cuda") if need else None
    plan.run(stream, workspace, args(**given, **outputs))
    return outputs


# Enough for a table: float16 has more numbers.
GATES = {torch.bfloat16: (1040, 9728), torch.float16: (8200, 9728)}


@pytest.mark.xdist_group("sizes")
@pytest.mark.parametrize("layout", ["alone", "separate", "halves", "interleaved"])
@pytest.mark.parametrize("function", ["silu", "gelu_tanh", "gelu_erf", "sigmoid"])
@pytest.mark.parametrize("dtype", list(GATES), ids=str)
def test_gates_have_the_bits_of_the_reference(
    dtype: torch.dtype, function: str, layout: str
) -> None:
    """Every number of the type, in the table and beside it; codes are those of separate plans."""
    shape, name = GATES[dtype], str(dtype).removeprefix("torch.")
    packed = 2 if layout in ("halves", "interleaved") else 1
    x = gates(dtype, shape, packed)
    up = gates(dtype, shape, 1).flip(0).contiguous() if layout == "separate" else None
    sides = {
        "alone": (x, None),
        "separate": (x, up),
        "halves": (x[:, : shape[1]], x[:, shape[1] :]),
        "interleaved": (x[:, 0::2], x[:, 1::2]),
    }[layout]
    fields: dict[str, Any] = {"shape": shape, "function": function, "input_dtype": name}
    if layout != "alone":
        fields |= {"gated": True, "layout": layout}
    given = {"input": x} if up is None else {"input": x, "up": up}
    found = run(planq.ActivationDescriptor(**fields), planq.ActivationArgs, given)["output"]
    wanted = gated(function, *(side if side is None else side.contiguous() for side in sides))
    assert torch.equal(found.view(torch.int16), wanted)
    scopes = [(code, planq.Scope.token()) for code in MOST_CODES]
    for code, scope in [*scopes, ("float8_e4m3fn", planq.Scope.group(GROUP))]:
        desc = planq.ActivationDescriptor(**fields, output_dtype=code, scope=scope)
        fused = run(desc, planq.ActivationArgs, given)
        alone = planq.DynamicRangeQuantizeDescriptor(
            shape=shape, input_dtype=name, output_dtype=code, scope=scope
        )
        apart = run(alone, planq.DynamicRangeQuantizeArgs, {"input": found})
        for output in ("output", "scale"):
            same = fused[output].view(torch.uint8), apart[output].view(torch.uint8)
            assert torch.equal(*same), f"{code}, {scope}: {output}"
