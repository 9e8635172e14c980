"""Scales and zero points of groups that no plan measures by itself.

They are those of compressed-tensors with zero points, and those that ``--search mse`` finds.

**The search.** The ends ``low`` and ``high`` of a group's range are shrunk by each of 33 factors
``f = 1 - i / 64``, ``i`` from 0 to 32. ``f * low`` and ``f * high``, rounded to the weight's type
T, make the scale (and the zero point) as a group with that range would have them. The codes and the
restored values are those of the operators `quantize` and `dequantize`, in T. The error of a factor
is ``sum (x - y)^2`` over the group, in float64. The least error wins, and among equal ones the
largest factor. So a group whose error is NaN or overflows keeps its full range.

**The same bytes everywhere.** Plans are BIT_EXACT. The rest is elementwise IEEE arithmetic, one
rounding each, and one sum. NumPy's own sum of float64 depends on the layout of the array and on its
version. So elements are added in one fixed order: the second half of the group to the first half,
then the same with what remains. A group that ends with its row is filled up with zeros.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import planq
from planq.checkpoint.quality import group_errors, widened
from planq.checkpoint.schemes import Search

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planq.executors import Bytes, Executor

Float64 = npt.NDArray[np.float64]
Operands = dict[str, npt.NDArray[Any]]

FACTORS = tuple(1 - step / 64 for step in range(33))

_quietly = np.errstate(all="ignore")  # a weight may hold anything
_LOWEST, _HIGHEST, _STEPS = -8, 7, 15  # of compressed-tensors' signed codes of 4 bits
# The difference of 1 and the next number: what takes the place of a scale of 0.
_EPSILON = {
    planq.DType.FLOAT16: 2.0**-10,
    planq.DType.BFLOAT16: 2.0**-7,
    planq.DType.FLOAT32: 2.0**-23,
    planq.DType.FLOAT64: 2.0**-52,
}


@dataclass(frozen=True, slots=True)
class GroupMeasure:
    """Measures the scales of one weight's groups.

    Attributes:
        desc: The quantization, for which scales are wanted.
        search: How they are found.
        ranges: The plan that measures the ends of each group.
        scales: The plan that makes scales of ends; None for compressed-tensors' zero points.
        codes: The plan that quantizes.
        back: The plan that restores.
    """

    desc: planq.QuantizeDescriptor
    search: Search
    ranges: planq.Plan
    scales: planq.Plan | None
    codes: planq.Plan
    back: planq.Plan

    def parameters(self, executor: Executor, values: Bytes) -> tuple[dict[str, Bytes], float]:
        """Returns the bytes of scales and zero points, by operand, and the seconds of the plans.

        A group with a NaN or an infinity gets the scale NaN.

        Args:
            executor: Where plans run.
            values: The bytes of the weight, in the descriptor's type.
        """
        ran = executor.run(self.ranges, {"input": values})
        wide = np.float64 if self.desc.input_dtype is planq.DType.FLOAT64 else np.float32
        ends = [ran.outputs[end].view(wide).astype(np.float64) for end in ("minimum", "maximum")]
        best, seconds = self._made(executor, ends, 1.0)
        seconds += ran.seconds
        if self.search is Search.MSE:
            seconds += self._search(executor, values, ends, best)
        return {name: _bytes(found) for name, found in best.items()}, seconds

    def _search(
        self, executor: Executor, values: Bytes, ends: list[Float64], best: Operands
    ) -> float:
        """Puts what has the least error in place of the parameters of the full range."""
        least, seconds = self._errors(executor, values, best)
        for factor in FACTORS[1:]:
            made, making = self._made(executor, ends, factor)
            errors, restoring = self._errors(executor, values, made)
            better = errors < least
            least[better] = errors[better]
            for name, found in best.items():
                found[better] = made[name][better]
            seconds += making + restoring
        return seconds

    @_quietly
    def _made(
        self, executor: Executor, ends: list[Float64], factor: float
    ) -> tuple[Operands, float]:
        """The parameters of shrunk ranges, in the types of their operands."""
        dtype = self.desc.input_dtype
        shrunk = [rounded(end * factor, dtype) for end in ends]
        if self.scales is None:
            return _asymmetric(widened(shrunk[0], dtype), widened(shrunk[1], dtype), dtype), 0.0
        ran = executor.run(self.scales, {"input": _bytes(np.stack(shrunk, axis=-1))})
        # Bits of a scale move as integers, so that bfloat16 needs no type of its own.
        kept = {"scale": _BITS[self.desc.scale_dtype], "zero_point": np.int32}
        found: Operands = {
            name: ran.outputs[name].view(kind) for name, kind in kept.items() if name in ran.outputs
        }
        return found, ran.seconds

    def _errors(self, executor: Executor, values: Bytes, made: Operands) -> tuple[Float64, float]:
        """The squared error of each group."""
        given = {name: _bytes(found) for name, found in made.items()}
        codes = executor.run(self.codes, {"input": values, **given})
        back = executor.run(self.back, {"input": codes.outputs["output"], **given})
        return (
            group_errors(self.desc, values, back.outputs["output"]),
            codes.seconds + back.seconds,
        )


_BITS = {
    planq.DType.FLOAT16: np.uint16,
    planq.DType.BFLOAT16: np.uint16,
    planq.DType.FLOAT32: np.uint32,
    planq.DType.FLOAT64: np.uint64,
}


def measure_of(
    desc: planq.QuantizeDescriptor,
    back: planq.DequantizeDescriptor,
    rule: Mapping[str, Any],
    search: Search,
    select: Callable[[Any], planq.Plan],
) -> GroupMeasure:
    """Returns what measures the scales of a weight.

    Args:
        desc: The quantization with given scales.
        back: What restores the weight in its own type.
        rule: The descriptor fields that the format prescribes for measured scales.
        search: How scales are found.
        select: Selects plans.
    """
    scales = None
    segments = math.prod(desc.operands()["scale"].extents)
    if not (rule and desc.mode is planq.Mode.ASYMMETRIC):
        pairs = planq.DynamicRangeQuantizeDescriptor(
            shape=(segments, 2),
            input_dtype=desc.input_dtype,
            output_dtype=desc.output_dtype,
            scope=planq.Scope.token(),
            mode=desc.mode,
            **rule,
        )
        scales = select(pairs)
    ranges = planq.MinMaxDescriptor(
        shape=desc.shape,
        input_dtype=desc.input_dtype,
        scope=desc.scope,
        mode=planq.Mode.ASYMMETRIC,
    )
    return GroupMeasure(desc, search, select(ranges), scales, select(desc), select(back))


def rounded(values: Float64, dtype: planq.DType) -> npt.NDArray[Any]:
    """Returns values in a type, bfloat16 as its bits: to nearest, ties to even.

    Values come from float64 by way of float32 where T is bfloat16. A value here is a number of T
    times a factor of 7 bits, or one operation on two numbers of T. The first is exact in float32.
    The second, rounded twice, is what one rounding gives, since float32 has more than twice the
    bits.
    """
    if dtype is not planq.DType.BFLOAT16:
        return values.astype(dtype.value)
    bits = values.astype(np.float32).view(np.uint32)
    up = (bits >> 16 & 1) + np.uint32(0x7FFF)
    high = np.where(np.isnan(values), np.uint32(0x7FC00000), bits + up) >> 16
    return high.astype(np.uint16)


def _asymmetric(low: Float64, high: Float64, dtype: planq.DType) -> Operands:
    """The scales and zero points of compressed-tensors, plus 8 as they are packed.

    ``scale = fl(fl(hi - lo) / 15)``, ``zero_point = rne(clamp(fl(-8 - fl(lo / scale)), -8, 7))``,
    where ``lo`` and ``hi`` are widened to hold 0 and ``fl`` rounds to the weight's type. A scale of
    0 becomes the type's epsilon. A group of zeros has the zero point 0. Where ``hi - lo``
    overflows, halves are taken.
    """

    def fl(values: Float64) -> Float64:
        if dtype is not planq.DType.FLOAT64:  # one IEEE operation in float32 is rounded already
            values = values.astype(np.float32).astype(np.float64)
        return widened(rounded(values, dtype), dtype)

    finite = np.isfinite(low) & np.isfinite(high)
    lo, hi = np.minimum(low, 0.0), np.maximum(high, 0.0)
    span = fl(hi - lo)
    halves = fl(fl(hi / 2 - lo / 2) / (_STEPS / 2))
    scale = np.where(np.isfinite(span), fl(span / _STEPS), halves)
    places = np.clip(fl(_LOWEST - fl(lo / scale)), _LOWEST, _HIGHEST)
    places = np.where(np.isnan(places), 0.0, np.rint(places))
    scale = np.where(scale == 0.0, _EPSILON[dtype], scale)
    scale = np.where(finite, scale, np.nan)
    return {
        "scale": rounded(scale, dtype),
        "zero_point": (places - _LOWEST).astype(np.int32),
    }


def _bytes(values: npt.NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
