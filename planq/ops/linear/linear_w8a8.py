"""The classes of `linear_w8a8`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Convention, Mode
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
class LinearW8A8Descriptor(Descriptor):
    """Compute a linear layer of integer codes: product, scales, zero points, bias, residual.

    When to use:
        A layer whose activations and weights are both quantized. The sums alone:
        :class:`MatmulInt8Descriptor`.

    Formula:
        ``acc[m, n] = sum over k of input[m, k] * weight[n, k]`` in int32; ``fl`` is one IEEE
        operation in C (float64 for float64 output, else float32), ``za`` and ``zw`` zero points, 0
        when symmetric, modulo 2^32:

        ``d = acc - za[m] * weight_sum[n] - zw[n] * input_sum[m] + k * za[m] * zw[n]``

        ``t = fl(fl(fl(d) * input_scale[m]) * weight_scale[n])``; with a bias ``t = fl(t +
        bias[n])``; with a residual ``t = fl(t + residual[m, n])``; ``output = round(t)``.

        BITSANDBYTES: ``t = fma(fl(fl(fl(d) * input_scale) * weight_scale), c, bias)`` with ``c`` =
        0x38820610 (6.200012e-05, the nearest to 1 / 127^2) and +0 without a bias: scales are
        absolute maxima. BARACUDA: ``t = fl(fl(input_scale * weight_scale) * fl(d))``.

        A NaN result is the canonical NaN of the output's type.

    Dtypes:
        input and weight int8, uint8, int4, uint4, one and the same or two (4-bit codes lie two a
        byte along the last axis, the first in the low nibble); output, scales, bias and residual
        float16, bfloat16, float32, float64; zero points and sums int32.

    Shapes:
        ``input_shape`` is ``(..., m, k)``, of rank 2 to 8, ``weight_shape`` ``(n, k)``; any
        extents, 0 included. ``output`` and ``residual`` have ``(..., m, n)``; ``input_scale`` and
        ``input_zero_point`` ``(..., m)``, or ``(1,)`` for ``tensor()``; ``weight_scale`` and
        ``weight_zero_point`` ``(n,)`` or ``(1,)``; ``input_sum`` ``(..., m)``; ``weight_sum`` and
        ``bias`` ``(n,)``. 4-bit: the last axis as stored is halved, rounded up.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant: integer sums do not depend on their order,
        and the rest is a fixed sequence of IEEE operations.

    Attributes:
        input_shape: Logical shape of ``input``.
        weight_shape: Logical shape of ``weight``.
        input_dtype: Element type of ``input``.
        weight_dtype: Element type of ``weight``.
        output_dtype: Element type of ``output``.
        input_scope: ``token()`` or ``tensor()``: which codes of ``input`` share a scale.
        weight_scope: ``channel(0)`` or ``tensor()``: likewise of ``weight``.
        input_mode: ASYMMETRIC: there are ``input_zero_point`` and ``weight_sum``.
        weight_mode: ASYMMETRIC: there are ``weight_zero_point`` and ``input_sum``.
        scale_dtype: Element type of the scales. Default: float32, float64 for float64 output.
        bias_dtype: Element type of ``bias``; None: there is none.
        residual_dtype: Element type of ``residual``; None: there is none.
        convention: Which library's order of operations: PLANQ, BITSANDBYTES or BARACUDA.

    Raises:
        DescriptorError: Shapes that do not fit together, another dtype or scope, so many terms that
            a sum might overflow int32, a convention with zero points.

    Source:
        baracuda ``quantized_linear`` and its smoothquant form; torch ``_int_mm`` and torchao's
        scaled products; bitsandbytes ``int8_scaled_mm``.
    """

    operator: ClassVar[str] = "linear_w8a8"

    input_shape: Shape
    weight_shape: Shape
    input_dtype: DTypeField = "int8"
    weight_dtype: DTypeField = "int8"
    output_dtype: DTypeField
    input_scope: Scope = Scope.token()
    weight_scope: Scope = Scope.channel(0)
    input_mode: Mode = Mode.SYMMETRIC
    weight_mode: Mode = Mode.SYMMETRIC
    scale_dtype: DTypeField = None
    bias_dtype: DTypeField = None
    residual_dtype: DTypeField = None
    convention: Convention = Convention.PLANQ


@args_class
class LinearW8A8Args:
    """Operands of :class:`LinearW8A8Descriptor`.

    Attributes:
        input: The codes of the activations; any outer strides, innermost stride 1.
        weight: The codes of the weights; likewise.
        output: Where the results go; likewise.
        input_scale: The scales of the rows, or of all of them.
        weight_scale: The scales of the columns, or of all of them.
        input_zero_point: The zero points of the rows; None when ``input_mode`` is symmetric.
        weight_zero_point: The zero points of the columns; None when ``weight_mode`` is symmetric.
        input_sum: The sums of ``input`` over k; None when ``weight_mode`` is symmetric.
        weight_sum: The sums of ``weight`` over k; None when ``input_mode`` is symmetric.
        bias: What is added to each column; None without ``bias_dtype``.
        residual: What is added to each output; None without ``residual_dtype``.
    """

    input: Tensor
    weight: Tensor
    output: Tensor
    input_scale: Tensor
    weight_scale: Tensor
    input_zero_point: Tensor | None = None
    weight_zero_point: Tensor | None = None
    input_sum: Tensor | None = None
    weight_sum: Tensor | None = None
    bias: Tensor | None = None
    residual: Tensor | None = None


class LinearW8A8Plan(Plan):
    """A plan for :class:`LinearW8A8Descriptor`."""

    __slots__ = ()


register(LinearW8A8Descriptor, LinearW8A8Args, LinearW8A8Plan)
