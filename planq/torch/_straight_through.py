"""Quantize and dequantize with a gradient."""

from __future__ import annotations

from typing import Any, Final

import torch

from planq._policy import held, in_force
from planq.dtypes import DType, Mode
from planq.errors import DescriptorError
from planq.ops.affine import DynamicRangeQuantizeDescriptor


def _bounds_of(dtype: DType, mode: Mode) -> tuple[float, float, bool] | None:
    """The lowest and the highest code, and whether codes are integers; None if not supported."""
    try:
        desc = DynamicRangeQuantizeDescriptor(
            shape=(1,), input_dtype=DType.FLOAT32, output_dtype=dtype, mode=mode
        )
    except DescriptorError:
        return None
    if desc.q_min is None or desc.q_max is None:
        return None
    return desc.q_min, desc.q_max, "int" in desc.output_dtype


# A table, because Dynamo can trace a look-up but not the making of a descriptor. Marking the latter
# as untraceable would import Dynamo.
_BOUNDS: Final = {
    (str(dtype), mode.name): bounds
    for dtype in DType
    for mode in Mode
    if (bounds := _bounds_of(dtype, mode))
}


def _larger(scale: torch.Tensor) -> torch.Tensor:
    """The scales, two steps larger.

    A scale is rounded, so the largest element's quotient may lie a step beyond the highest code.
    Integer quotients are rounded before they are compared. Those of fp8 are not, and the element
    would lose its gradient.
    """
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[scale.element_size()]
    return (scale.view(bits) + 2).view(scale.dtype)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dtype: str, scope: str, mode: str, *rest: Any) -> Any:
        codes, scale, *zero_points = torch.ops.planq.dynamic_range_quantize(
            x, dtype, None, scope, mode, *rest
        )
        zero_point = zero_points[0] if zero_points else None
        # A compiled program cannot keep a policy: its calls ask when they run.
        if not torch.compiler.is_compiling():
            ctx.policy = in_force()
        ctx.save_for_backward(x, scale, zero_point)
        ctx.fields = dtype, scope, mode, rest[0], rest[1], rest[3]
        return torch.ops.planq.dequantize(
            codes,
            scale,
            dtype,
            str(x.dtype).removeprefix("torch."),
            zero_point,
            shape=x.shape,
            scope=scope,
            mode_=mode,
        )

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        if torch.compiler.is_compiling():
            return _gradient(ctx, grads[0].contiguous()), *(None,) * 9
        with held(ctx.policy):
            return _gradient(ctx, grads[0].contiguous()), *(None,) * 9


def _gradient(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    """The gradient with respect to the input; Dynamo traces this."""
    x, scale, zero_point = ctx.saved_tensors
    dtype, scope, mode, q_min, q_max, quotient = ctx.fields
    lowest, highest, whole = _BOUNDS[dtype, mode.upper()]
    low, high = lowest if q_min is None else q_min, highest if q_max is None else q_max
    if whole:
        grad = torch.ops.planq.fake_quantize_backward(
            grad, x, scale, zero_point, scope, mode, low, high, None, quotient
        )
    else:
        scale = _larger(scale)
        wide = torch.promote_types(x.dtype, torch.float32)
        grad = torch.ops.planq.dequantize_backward(grad.to(wide), scale, scope)
        grad = torch.ops.planq.quantize_backward(
            grad, x.to(wide), scale, dtype, None, scope, mode, low, high, None, quotient
        ).to(x.dtype)
    return grad


def apply(x: torch.Tensor, *fields: Any) -> torch.Tensor:
    """Quantizes and dequantizes; the fields are those of dynamic_range_quantize, in its order."""
    call: Any = _StraightThrough.apply
    result: torch.Tensor = call(x, *fields)
    return result
