"""Rows that share scales or zero points by their strides, where the registry's cases are too small.

Rows are longer than the stretches that the host works by, and so many that several threads have
some; on CUDA they are whole vectors and not, and enough for stacks of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planq.audit import kernels
from planq.audit.kernels import Sharing
from planq.audit.memory import Device, SharedLayout
from planq.audit.ops.affine.cases import Case, Place
from planq.audit.ops.affine.dequantize.reference import DequantizeProblem
from planq.audit.ops.affine.fake_quantize.reference import FakeQuantizeProblem
from planq.audit.ops.affine.fake_quantize_backward.reference import FakeQuantizeBackwardProblem
from planq.audit.ops.affine.quantize.reference import QuantizeProblem
from planq.audit.ops.affine.quantize_backward.reference import QuantizeBackwardProblem
from planq.audit.ops.affine.reference import Problem

PLACES: tuple[Place, ...] = (
    (("token",), (4, 30, 1101)),
    (("group", 5000, -1), (4, 30, 1104)),
    (("group", 48, -1), (4, 30, 1104)),
    (("group", 3, 0), (7, 3, 1104)),
    (("block", 8, 5000), (4, 30, 1104)),
)
# More vectors than the smallest tensor whose rows are stacked, and fewer.
PAIRS: tuple[Place, ...] = ((("pair",), (2, 600, 1024)), (("pair",), (4, 30, 1101)))
# An operator, and what its problems have besides shape and scope.
KINDS: dict[str, tuple[str, type[Problem], dict[str, Any]]] = {
    "quantize to int8": (
        "quantize",
        QuantizeProblem,
        {"output_dtype": "int8", "zero_point_dtype": "int8"},
    ),
    "quantize to int4": (
        "quantize",
        QuantizeProblem,
        {"output_dtype": "int4", "zero_point_dtype": "int4"},
    ),
    "dequantize uint4": (
        "dequantize",
        DequantizeProblem,
        {"input_dtype": "uint4", "zero_point_dtype": "uint4", "nibble_order": "high_first"},
    ),
    "dequantize int8": ("dequantize", DequantizeProblem, {"output_dtype": "bfloat16"}),
    "fake_quantize": ("fake_quantize", FakeQuantizeProblem, {"input_dtype": "float16"}),
    "fake_quantize by draws": (
        "fake_quantize",
        FakeQuantizeProblem,
        {"rounding": "stochastic", "zero_point_dtype": "uint8"},
    ),
    "quantize_backward": (
        "quantize_backward",
        QuantizeBackwardProblem,
        {"output_dtype": "int8", "zero_point_dtype": "int8"},
    ),
    "fake_quantize_backward": (
        "fake_quantize_backward",
        FakeQuantizeBackwardProblem,
        {"input_dtype": "bfloat16"},
    ),
}


def parameter_sharings(axes: dict[str, tuple[int, ...]]) -> Iterator[Sharing]:
    """The scale and the zero point in turn along each axis and all of them, then both."""
    parameters = [name for name in ("scale", "zero_point") if name in axes]
    for name in parameters:
        for repeated in dict.fromkeys((*((axis,) for axis in axes[name]), axes[name])):
            yield ((name, SharedLayout(repeated=repeated)),)
    yield tuple((name, SharedLayout(slide=1, backwards=True)) for name in parameters)


def check_kind(device: Device, kind: str) -> None:
    """An operator in every place, with its parameters shared in every way."""
    operator, problem, fields = KINDS[kind]
    for scope, shape in PLACES:
        check_case(device, operator, Case(problem(shape, scope, mode="asymmetric", **fields)))


def check_accumulators(device: Device) -> None:
    """Row scales that repeat, beside a scale and a bias for each column."""
    for scope, shape in PAIRS:
        problem = DequantizeProblem(shape, scope, input_dtype="int32", bias_dtype="float32")
        check_case(device, "dequantize", Case(problem))


def check_case(device: Device, operator: str, case: Case) -> None:
    """The case with its parameters shared in every way."""
    for sharing in parameter_sharings(kernels.outer_axes(operator, case.problem)):
        kernels.check_sharing(device, operator, case, sharing, kernels.PROMISE)
