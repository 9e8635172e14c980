"""planq's operators as operators of torch: ``torch.ops.planq.<name>`` and ``.out``.

Importing this module defines every registered operator twice::

    codes, scale = torch.ops.planq.dynamic_range_quantize(x, "int8")     # allocates its results
    torch.ops.planq.dynamic_range_quantize.out(x, codes, scale, "int8")  # writes them; returns ()

An operator that updates operands in place has one overload, which is like ``.out``.

Arguments:
    They have the names of operands and fields; those without a default come first. Fields that
    follow from an operand (its shape, its dtype) are no arguments. Enumerations, dtypes and scopes
    are text: ``"asymmetric"``, ``"float8_e4m3fn"``, ``"group(128)"``. A scalar operand is given as
    a number, ``rate=0.1``, or in memory, ``rate_tensor=t``. If fields decide whether it is an
    integer or a float, it keeps the type that it is given with. The field ``mode`` is named
    ``mode_``, because torch reserves that name. If an operand and a field have the same name, the
    operand gets the suffix ``_tensor``. The logical shape does not follow from packed operands:
    pass ``shape=[...]``.

Results:
    A tensor or a tuple. An operator whose fields decide which results there are (zero points,
    statistics) returns a list of them, in the order of its args.

Compiled programs:
    All operators work with ``fullgraph=True``, in ``torch.export`` and in CUDA graphs. Before a
    capture, call the operator once, so that its plan exists. A new number of rows recompiles
    nothing, from 2 rows up; torch always specializes extents of 1. Other requirements on extents,
    such as equal columns, are checked when the program runs.

Plans:
    A call selects a plan if no kept one fits. If the operator allows it, a plan has a
    :class:`planq.Dim` for every extent but the last. The maximum of a Dim is the next power of two,
    at least 16. So a kept plan fits nearly every new batch size. The 1024 plans that were used last
    are kept.

Preferences:
    The last arguments of every overload are the fields of :class:`planq.PlanPreference`, with its
    defaults: ``sku``, ``body``, ``determinism``, ``batch_invariant``, ``max_ulp`` and
    ``max_workspace_bytes``. If no kernel qualifies, :class:`planq.NoKernelError` is raised; no
    requirement is weakened silently. The policy that is in force when the call runs counts besides
    (:func:`planq.policy`), in compiled programs too. :func:`audit` judges a whole model by it.
    ``torch.use_deterministic_algorithms(True)`` also refuses
    kernels that promise less than RUN_TO_RUN, which only calls that ask for it get.

Streams:
    On a GPU, torch's current stream of the operands' device. On the host, as many threads as
    ``torch.get_num_threads()``; the bits do not depend on the number.

Workspace:
    ``.out`` takes ``workspace=``, a uint8 tensor. Without it, and in overloads that allocate, the
    workspace comes from torch's allocator on the current stream.

Gradients:
    ``torch.ops.planq.fake_quantize`` and :func:`quantize_dequantize` have straight-through
    gradients with respect to their input, for ``backward()``. While torch records gradients, every
    other call with an operand that requires one raises :class:`planq.ArgumentError`. So does any
    call with an operand that has a forward-mode tangent, or with respect to which a transform of
    ``torch.func`` differentiates. A backward pass meets the policy that was
    in force in its forward pass as well. In compiled programs it does not: there, the policy counts
    that is in force where it runs.

Errors:
    Those of planq: :class:`planq.DescriptorError`, :class:`planq.ArgumentError` and so on.
"""

from __future__ import annotations

from typing import Any

import torch

from planq.arguments import DTypeLike
from planq.dtypes import Mode, NibbleOrder, NonFinite, Quotient
from planq.scope import Scope
from planq.torch import _library
from planq.torch._audit import ModelAudit, OperatorCall, audit
from planq.torch._straight_through import apply as _straight_through
from planq.torch._words import word as _word

__all__ = [
    "ModelAudit",
    "OperatorCall",
    "audit",
    "dequantize",
    "quantize",
    "quantize_dequantize",
]

_library.define_all()


def quantize(
    x: torch.Tensor,
    dtype: DTypeLike,
    *,
    scope: Scope | str = "token()",
    mode: Mode | str = Mode.SYMMETRIC,
    q_min: float | None = None,
    q_max: float | None = None,
    scale_dtype: DTypeLike = None,
    quotient: Quotient | str = Quotient.DIVIDE,
    nonfinite: NonFinite | str = NonFinite.PROPAGATE,
    include_zero: bool = True,
    nibble_order: NibbleOrder | str = NibbleOrder.LOW_FIRST,
) -> tuple[torch.Tensor, ...]:
    """Measures the range of every segment and quantizes: ``dynamic_range_quantize``.

    Args:
        x: float16, bfloat16, float32 or float64; any outer strides, innermost stride 1.
        dtype: Type of the codes: int8, uint8, int4, uint4, float8_e4m3fn or float8_e5m2.
        scope: Which elements share a scale.
        mode: ASYMMETRIC has zero points.
        q_min: Lowest code; None for the type's default.
        q_max: Highest code; None for the type's default.
        scale_dtype: Type of the scales; None for float32, or float64 for float64 ``x``.
        quotient: How an element is divided by its scale.
        nonfinite: What a segment with a NaN or an infinity becomes.
        include_zero: ASYMMETRIC: the range always holds 0.
        nibble_order: Which nibble has the first of two 4-bit codes; a byte has two along the last
            axis.

    Returns:
        ``(codes, scale)``, or ``(codes, scale, zero_point)``.

    Raises:
        DescriptorError: A field has a value that is not allowed.
        ArgumentError: ``x`` requires a gradient, which codes do not carry.
    """
    return tuple(
        torch.ops.planq.dynamic_range_quantize(
            x,
            _word(dtype),
            None,  # a scale of the tensor, which formats of groups have
            _word(scope),
            _word(mode),
            q_min,
            q_max,
            None if scale_dtype is None else _word(scale_dtype),
            _word(quotient),
            _word(nonfinite),
            include_zero,
            _word(nibble_order),
        )
    )


def dequantize(
    codes: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    *,
    scope: Scope | str = "token()",
    dtype: DTypeLike = None,
    output_dtype: DTypeLike = "float32",
    shape: Any = None,
    nibble_order: NibbleOrder | str = NibbleOrder.LOW_FIRST,
) -> torch.Tensor:
    """Dequantizes what :func:`quantize` returned: ``dequantize``.

    Args:
        codes: int8, uint8, fp8, or 4-bit codes two a byte.
        scale: One scale for each segment.
        zero_point: One zero point for each segment; None for symmetric codes.
        scope: Which elements share a scale.
        dtype: Type of the codes; None for that of the tensor. 4-bit codes need it.
        output_dtype: Type of the result.
        shape: The logical shape, which 4-bit codes need; None for that of ``codes``.
        nibble_order: Which nibble has the first of two 4-bit codes.

    Returns:
        The values, of the logical shape.

    Raises:
        DescriptorError: A field has a value that is not allowed.
        ArgumentError: An operand does not fit the others, or requires a gradient.
    """
    result: torch.Tensor = torch.ops.planq.dequantize(
        codes,
        scale,
        _word(codes.dtype if dtype is None else dtype),
        _word(output_dtype),
        zero_point,
        shape=shape,
        scope=_word(scope),
        mode_="symmetric" if zero_point is None else "asymmetric",
        nibble_order=_word(nibble_order),
    )
    return result


def quantize_dequantize(
    x: torch.Tensor,
    dtype: DTypeLike,
    *,
    scope: Scope | str = "token()",
    mode: Mode | str = Mode.SYMMETRIC,
    q_min: float | None = None,
    q_max: float | None = None,
    scale_dtype: DTypeLike = None,
    quotient: Quotient | str = Quotient.DIVIDE,
    nonfinite: NonFinite | str = NonFinite.PROPAGATE,
    include_zero: bool = True,
) -> torch.Tensor:
    """Quantizes and dequantizes a tensor, in its own dtype; differentiable.

    Formula:
        ``y = dequantize(*quantize(x, dtype))``. The gradient is straight-through: ``dx = dy`` where
        the element's code before clamping lies in ``[q_min, q_max]``, and +0 elsewhere. For integer
        codes, ``dx`` has the bits of ``dy`` (``fake_quantize_backward``). For fp8 codes,
        ``dx = (dy * s) / s`` in float32 (float64 for float64), then rounded
        (``dequantize_backward`` and ``quantize_backward``). There, ``s`` is two steps larger than
        the forward's scale, so that the rounding of scales does not clip the largest element.

    Args:
        x: float16, bfloat16, float32 or float64; any outer strides, innermost stride 1.
        dtype: Type of the codes; this and the following arguments are those of :func:`quantize`.
        scope: Which elements share a scale.
        mode: ASYMMETRIC has zero points.
        q_min: Lowest code; None for the type's default.
        q_max: Highest code; None for the type's default.
        scale_dtype: Type of the scales; None for float32, or float64 for float64 ``x``.
        quotient: How an element is divided by its scale.
        nonfinite: What a segment with a NaN or an infinity becomes.
        include_zero: ASYMMETRIC: the range always holds 0.

    Returns:
        The values, of the shape and dtype of ``x``.

    Raises:
        DescriptorError: A field has a value that is not allowed.
    """
    return _straight_through(
        x,
        _word(dtype),
        _word(scope),
        _word(mode),
        q_min,
        q_max,
        None if scale_dtype is None else _word(scale_dtype),
        _word(quotient),
        _word(nonfinite),
        include_zero,
    )
