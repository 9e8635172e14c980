"""Results of other operators that become codes: the references of the parts, one after another.

An operator's problem has the fields of :class:`Codes`; they mean what the fields of
`dynamic_range_quantize` and `quantize` mean, whose references are asked here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import numpy as np

from planq.audit.ops.affine import inputs, microscaling
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem as Measured
from planq.audit.ops.affine.dynamic_range_quantize.reference import dynamic_range_quantize
from planq.audit.ops.affine.quantize.reference import QuantizeProblem
from planq.audit.ops.affine.scopes import ScopeSpec, parameter_shape
from planq.audit.reference.formats import FLOATS, Array, Arrays, canonical, narrowed
from planq.audit.reference.inputs import Chooser, hashed

FLOATING = (None, "float16", "bfloat16", "float32")
INTEGERS = ("int8", "int4", "uint8", "uint4")
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
# Formats of groups: conventions, types of codes, and the elements of a group.
FORMATS = (
    *(("mx", dtype, 32) for dtype in ("float4_e2m1fn", *FLOAT8)),
    *(("mx_round_up", dtype, 32) for dtype in ("float4_e2m1fn", *FLOAT8)),
    ("nvfp4", "float4_e2m1fn", 16),
)
# vLLM's: none, below most ranges of results, and among them.
RANGE_BOUNDS = (None, 0.001, 0.5, 2.0, 1200.0)
GROUPS = (8, 16, 32, 64, 128, 256, 7, 5, 1000)
# The codes that products with GGUF's weights take.
OF_GGUF: dict[str, Any] = {
    "output_dtype": "int8",
    "scope": ("group", 32, -1),
    "scale_dtype": "float32",
    "quotient": "ratio",
}
GIVEN: tuple[ScopeSpec, ...] = (("tensor",), ("channel", -1), ("token",), ("group", 32, -1))


@dataclass(frozen=True, kw_only=True)
class Codes:
    """The fields of an operator whose results may be codes, in plain values."""

    norm_dtype: str | None = None
    also_output: bool = False
    scale_given: bool = False
    scope: ScopeSpec = ("token",)
    mode: str = "symmetric"
    q_min: float | None = None
    q_max: float | None = None
    scale_dtype: str | None = None
    quotient: str = "divide"
    nonfinite: str = "propagate"
    include_zero: bool = True
    nibble_order: str = "low_first"
    convention: str = "planq"
    scale_ub: float | None = None


NAMES = tuple(item.name for item in fields(Codes))


def text_of(problem: Codes) -> str:
    """The fields that differ from their defaults, as a part of a name."""
    default = Codes()
    told = {
        name: getattr(problem, name)
        for name in NAMES
        if getattr(problem, name) != getattr(default, name)
    }
    if "scope" in told:
        told["scope"] = ".".join(map(str, told["scope"]))
    return "".join(f",{name}={value}" for name, value in told.items())


def is_coded(problem: Any) -> bool:
    """Whether there are codes."""
    return problem.output_dtype not in FLOATING


def _shared(problem: Any) -> dict[str, Any]:
    names = ("mode", "q_min", "q_max", "scale_dtype", "quotient", "nonfinite", "nibble_order")
    return {
        "shape": problem.shape,
        "input_dtype": problem.norm_dtype or problem.input_dtype,
        "output_dtype": problem.output_dtype,
        "scope": problem.scope,
        **{name: getattr(problem, name) for name in names},
    }


def _measured(problem: Any) -> Measured:
    own = ("include_zero", "convention", "scale_ub")
    return Measured(**_shared(problem), **{name: getattr(problem, name) for name in own})


def _given(problem: Any) -> QuantizeProblem:
    return QuantizeProblem(**_shared(problem))


def resolved(problem: Any) -> tuple[str, tuple[float, float]]:
    """The type of the scales, and the bounds of the codes."""
    made = _given(problem) if problem.scale_given else _measured(problem)
    return made.stored_scale, made.bounds


def results(problem: Any, y: Array, given: Arrays) -> Arrays:
    """The outputs of an operator whose results in float32 are these."""
    dtype = problem.output_dtype or problem.input_dtype
    if not is_coded(problem):
        return {"output": _narrowed(y, dtype)}
    floating = _narrowed(y, problem.norm_dtype or problem.input_dtype)
    made: Arrays = {"floating_output": floating} if problem.also_output else {}
    if problem.scale_given:
        return {**made, **_given(problem).expected({**given, "input": floating})}
    found = dynamic_range_quantize(_measured(problem), floating, given.get("inverse_tensor_scale"))
    made |= {"output": found.output, "scale": found.scale}
    return made if found.zero_point is None else {**made, "zero_point": found.zero_point}


def _narrowed(y: Array, dtype: str) -> Array:
    return canonical(y, dtype) if dtype == "float32" else narrowed(y, dtype)


def parameters(problem: Any, seed: int) -> Arrays:
    """The operands that codes need beside those of the operator."""
    if not is_coded(problem):
        return {}
    if problem.convention == "nvfp4":
        some = np.array([0.5, 3.0, 1e-3], np.float32)
        return {"inverse_tensor_scale": microscaling.factors(some, seed)}
    if not problem.scale_given:
        return {}
    shape, whole = parameter_shape(problem.shape, problem.scope), _given(problem)
    words = hashed(seed + 77, math.prod(shape))
    kind = ("usual", "powers", "usual", "special")[seed % 4]
    made = {"scale": inputs.scales(kind, words, FLOATS[whole.stored_scale]).reshape(shape)}
    if problem.mode == "asymmetric":
        zeros = inputs.zero_points("far" if seed % 3 == 0 else "near", words, "int32", whole.bounds)
        made["zero_point"] = zeros.astype(np.int32).reshape(shape)
    return made


def shared_by_rows(problem: Any) -> tuple[str, ...]:
    """The operands of codes that every row has whole."""
    one = problem.scale_given and problem.scope[0] in ("tensor", "channel")
    return ("inverse_tensor_scale", *(("scale", "zero_point") if one else ()))


# --- Problems ------------------------------------------------------------------------------------


def _kinds() -> Iterator[dict[str, Any]]:
    """Every type of codes with every scope, mode and convention that it goes with."""
    for dtype in (*INTEGERS, *FLOAT8):
        modes = [] if dtype.startswith("u") else ["symmetric"]
        modes += ["asymmetric"] if dtype in INTEGERS else []
        for mode, place in product(modes, ("token", "group", "given")):
            yield {"output_dtype": dtype, "mode": mode, "place": place}
        if "symmetric" in modes:
            yield {"output_dtype": dtype, "convention": "compressed_tensors", "place": "token"}
    for convention, dtype, size in FORMATS:
        yield {"output_dtype": dtype, "convention": convention, "place": size}
    for bound in RANGE_BOUNDS:
        vllm = {"output_dtype": "float8_e4m3fn", "convention": "vllm", "scale_ub": bound}
        yield {**vllm, "place": "token"}


def _chosen(kind: dict[str, Any], draw: Chooser) -> dict[str, Any]:
    """The kind's fields, and others that are drawn."""
    made = {name: value for name, value in kind.items() if name != "place"}
    made["norm_dtype"] = draw.pick((*[None] * 6, "float16", "bfloat16", "float32"))
    made["also_output"] = draw.pick((False, True))
    made["nibble_order"] = draw.pick(("low_first", "low_first", "high_first"))
    place, dtype = kind["place"], kind["output_dtype"]
    if isinstance(place, int):
        return {**made, "scope": ("group", place, -1)}
    made["nonfinite"] = draw.pick(("propagate", "propagate", "saturate"))
    if kind.get("convention") == "vllm":
        return made
    made["scale_dtype"] = draw.pick((None, None, None, "float16", "bfloat16", "float64"))
    rules = ("divide", "divide", "reciprocal", "ratio")
    plain = kind.get("mode") == "symmetric"
    made["quotient"] = draw.pick(rules if plain else rules[:3])
    if place == "given":
        return {**made, "scope": draw.pick(GIVEN), "scale_given": True}
    made["scope"] = ("token",) if place == "token" else ("group", draw.pick(GROUPS), -1)
    if kind.get("mode") == "asymmetric":
        made["include_zero"] = draw.pick((True, True, False))
    elif plain and dtype in INTEGERS:
        made["q_min"] = draw.pick((None, None, -8.0 if dtype == "int4" else -128.0))
    return made


def chosen_fields() -> Iterator[dict[str, Any]]:
    """Fields of codes, of every kind for every type of input; others change from case to case."""
    for place, (kind, dtype) in enumerate(product(_kinds(), FLOATING[1:])):
        yield {"input_dtype": dtype, **_chosen(kind, Chooser(4000 + place))}
