"""Scales and zero points of ranges that are known before a run, for calibration, on the host."""

from __future__ import annotations

from typing import Any, NamedTuple

from planq.arguments import DTypeLike
from planq.dtypes import DType, Mode, NonFinite, Role
from planq.errors import ArgumentError, DescriptorError
from planq.ops.affine import DynamicRangeQuantizeArgs, DynamicRangeQuantizeDescriptor
from planq.plan import Plan
from planq.preference import PlanPreference
from planq.stream import HOST


class QParams(NamedTuple):
    """Parameters of an affine code, as NumPy arrays: ``x ~ scale * (code - zero_point)``.

    Attributes:
        scale: One scale for each range, in ``scale_dtype``.
        zero_point: One int32 for each range; None when symmetric.
    """

    scale: Any
    zero_point: Any


def qparams(
    low: Any,
    high: Any,
    *,
    output_dtype: DTypeLike,
    input_dtype: DTypeLike = DType.FLOAT32,
    mode: Mode = Mode.SYMMETRIC,
    q_min: float | None = None,
    q_max: float | None = None,
    scale_dtype: DTypeLike = None,
    nonfinite: NonFinite = NonFinite.PROPAGATE,
    include_zero: bool = True,
) -> QParams:
    """Computes scale and zero point of ranges, on the host: for calibration.

    The host kernel of :class:`DynamicRangeQuantizeDescriptor` quantizes each range as a segment of
    two elements. So the bits are those that every kernel gives a segment with these extremes.

    Formula:
        That of :class:`DynamicRangeQuantizeDescriptor` with ``lo = low``, ``hi = high`` and
        ``M = max(|low|, |high|)``.

    Shapes:
        ``low`` and ``high`` broadcast, up to rank 7; the results have the broadcast shape.

    Args:
        low: Smallest elements; ``-high`` or 0 if only absolute maxima are known.
        high: Largest elements.
        output_dtype: Element type of the codes.
        input_dtype: Element type of the tensor whose ranges these are; ranges and arithmetic are
            float64 for float64, else float32.
        mode: SYMMETRIC has no zero point.
        q_min: Lowest code; default as in the descriptor.
        q_max: Highest code; likewise.
        scale_dtype: Element type of the scales; default float32, float64 for float64 input.
            bfloat16 needs the package ml_dtypes.
        nonfinite: What a range with a NaN or an infinity becomes.
        include_zero: Asymmetric only: the range always holds 0.

    Raises:
        DescriptorError: Fields that do not fit together, as for the descriptor.
        ArgumentError: ``low`` above ``high``, or shapes that do not broadcast.

    Source:
        torch ``MinMaxObserver.calculate_qparams``, with planq's arithmetic.
    """
    import numpy as np  # not above: importing planq does not import NumPy

    parsed = DType.parse(input_dtype, "input_dtype")
    if parsed not in (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64):
        raise DescriptorError("input_dtype", f"expected a floating type, got {parsed.value}")
    compute = parsed if parsed is DType.FLOAT64 else DType.FLOAT32
    pairs = _pairs(low, high, compute.value)
    desc = DynamicRangeQuantizeDescriptor(
        shape=pairs.shape,
        input_dtype=compute,
        output_dtype=output_dtype,
        mode=mode,
        q_min=q_min,
        q_max=q_max,
        scale_dtype=scale_dtype,
        nonfinite=nonfinite,
        include_zero=include_zero,
    )
    written = {
        name: np.empty(spec.extents, _numpy_dtype(spec.storage))
        for name, spec in desc.operands().items()
        if spec.role is Role.OUTPUT
    }
    plan = Plan.select(HOST, desc, PlanPreference(max_workspace_bytes=0))
    plan.run(HOST, None, DynamicRangeQuantizeArgs(input=pairs, **written))
    return QParams(written["scale"], written.get("zero_point"))


def _pairs(low: Any, high: Any, dtype: str) -> Any:
    """Stacks both ends along a new last axis of 2."""
    import numpy as np

    ends = [np.asarray(end, dtype=dtype) for end in (low, high)]
    try:
        pairs = np.stack(np.broadcast_arrays(*ends), axis=-1)
    except ValueError:
        expected = f"a shape that broadcasts with {ends[0].shape}"
        raise ArgumentError("high", expected, str(ends[1].shape)) from None
    crossed = np.argwhere(pairs[..., 0] > pairs[..., 1])
    if len(crossed):
        where = tuple(int(i) for i in crossed[0])
        first, second = pairs[where].tolist()
        raise ArgumentError("low", f"at most high, {second} at {where}", str(first))
    return pairs


def _numpy_dtype(storage: str) -> Any:
    import numpy as np

    try:
        return np.dtype(storage)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, storage))
