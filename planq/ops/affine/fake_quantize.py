"""The classes of `fake_quantize`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Scalar, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Convention, Mode, NonFinite, Quotient, Rounding
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
class FakeQuantizeDescriptor(Descriptor):
    """Quantize and dequantize in one pass: what a model will compute with, in its own type.

    When to use:
        Quantization-aware training, and measuring what codes of 2 to 8 bits would lose. In place if
        wanted: ``output`` may be exactly ``input``.

    Formula:
        ``y = round(fl(s * (q - z)))`` with ``q`` of :class:`QuantizeDescriptor` (integers): the
        bits of dequantize(quantize(x)). An element that is NaN stays NaN (PROPAGATE), or takes the
        zero point (SATURATE).

        STOCHASTIC: ``q = clamp(floor(fl(t + u)) + z, q_min, q_max)``, ``u = (w >> 8) * 2^-24``,
        ``w`` = word ``i mod 4`` of Philox4x32-10 with key ``seed`` and counter
        ``offset + i div 4``, ``i`` = the element's index in the logical tensor. So the result
        depends on seed, offset and index only.

        ``dynamic``: scale and zero point are those of :class:`DynamicRangeQuantizeDescriptor` for
        the segment, with its rules for NaN and infinities.

        ``Convention.DEEPSPEED``: a group is ``group_size`` consecutive elements of the tensor in C
        order, across rows; the last one may be shorter. ``M = max|x|``, ``lo = min x``,
        ``hi = max x`` of the group, b = ``bits``. SYMMETRIC:
        ``s = 2^(b-1) / fl(M + fl(eps/2))``, ``q = clamp(rne(x*s), -2^(b-1), 2^(b-1) - 1)``,
        ``y = q * fl(1/s)``. ASYMMETRIC: ``d = fl(fl(hi - lo) + eps) / 2^b``,
        ``q = clamp(rha((x - lo) * fl(1/d)), 0, 2^b - 1)``, ``y = q*d + lo``, with ties away from
        zero (``rha``). STOCHASTIC: the code is truncated. It moves one step away from zero
        (ASYMMETRIC: up) if ``u`` is below the fraction that was cut off. A group with a NaN or an
        infinity is NaN as a whole. docs/numerics/group.md holds the whole contract.

    Dtypes:
        input and output float16, bfloat16, float32, float64; scale likewise; zero_point int32, int8
        or uint8; seed and offset integers of 64 bits. DEEPSPEED: input and output float16, bfloat16
        or float32.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``scale`` and ``zero_point`` have the scope's
        parameter shape; ``seed`` and ``offset`` are one number. DEEPSPEED has neither ``scale`` nor
        ``zero_point``.

    Workspace:
        None for given parameters; ``plan.workspace_size()`` says for dynamic ones and for
        DEEPSPEED.

    Guarantee:
        Every kernel is BIT_EXACT, and batch-invariant where no two rows share a range that is
        measured, a group of DEEPSPEED's or draws (STOCHASTIC).

    Attributes:
        shape: Logical shape of ``input`` and ``output``.
        input_dtype: Element type of both.
        scope: Which elements share a scale; any but ``pair()``.
        mode: SYMMETRIC has no ``zero_point`` operand.
        q_min: Lowest code, an integer from -128. Default: -127 (symmetric), -128.
        q_max: Highest code, an integer to 255, at most ``q_min + 255``. Default: 127.
        scale_dtype: Element type of ``scale``. Default: float32, float64 for float64 input.
        zero_point_dtype: Element type of ``zero_point``. Default: int32; dynamic: always.
        quotient: How an element is divided by its scale.
        nonfinite: What a NaN becomes; dynamic: what a segment with a NaN or an infinity becomes.
        include_zero: Dynamic, asymmetric only: the range always holds 0.
        rounding: NEAREST_EVEN, or STOCHASTIC with a seed and an offset. DEEPSPEED, ASYMMETRIC:
            NEAREST_AWAY takes the place of NEAREST_EVEN.
        dynamic: Whether the range of each segment is measured; ``scale`` and ``zero_point`` are
            then outputs, and None if they are not wanted. DEEPSPEED: always.
        convention: PLANQ or DEEPSPEED. The latter fixes ``scope``, ``quotient``, ``nonfinite``,
            ``include_zero`` and the types of parameters.
        bits: DEEPSPEED: bits of a code, 2 to 8, which ``q_min`` and ``q_max`` follow from.
            Default: 8.
        group_size: DEEPSPEED: elements of a group, at least 1.
        eps: DEEPSPEED: what is added to the width of a range, ``2 * M`` or ``hi - lo``; from 0 to
            1. Default: 1e-5.

    Raises:
        DescriptorError: RATIO without symmetry, bounds that are no integers in [-128, 255] or hold
            more than 256 codes, ``q_max <= 0`` (symmetric), ``q_min >= q_max``, an axis outside of
            the shape, ``block()`` for a tensor of one axis. A field of one convention with the
            other; DEEPSPEED without a group size, or with bits or an eps outside of their ranges.

    Source:
        baracuda ``fake_quantize``; torch ``fake_quantize_per_channel_affine``. DEEPSPEED:
        DeepSpeed's ``ds_quantize``, ``ds_sr_quantize``, ``ds_quantize_asym`` and
        ``ds_sr_quantize_asym``. Corrected here: float32 values are dequantized and not left as
        integers; stochastic asymmetric codes are asymmetric; codes are clamped; a new ``offset``
        gives new random numbers; ranges may have any values; groups may have any length and
        address, and all of their elements are quantized; NaN is kept. Added: bfloat16 and ``eps``.
    """

    operator: ClassVar[str] = "fake_quantize"

    shape: Shape
    input_dtype: DTypeField
    scope: Scope = Scope.tensor()
    mode: Mode = Mode.SYMMETRIC
    q_min: float | None = None
    q_max: float | None = None
    scale_dtype: DTypeField = None
    zero_point_dtype: DTypeField = None
    quotient: Quotient = Quotient.DIVIDE
    nonfinite: NonFinite = NonFinite.PROPAGATE
    include_zero: bool = True
    rounding: Rounding = Rounding.NEAREST_EVEN
    dynamic: bool = False
    convention: Convention = Convention.PLANQ
    bits: int | None = None
    group_size: int | None = None
    eps: float | None = None


@args_class
class FakeQuantizeArgs:
    """Operands of :class:`FakeQuantizeDescriptor`.

    Attributes:
        input: What to quantize; any outer strides, innermost stride 1.
        output: Where the values go; likewise; may be exactly ``input``.
        scale: The scales, one per segment; dynamic: where they go, or None; DEEPSPEED: None.
        zero_point: The zero points, likewise; None when symmetric.
        seed: STOCHASTIC: an integer, or an int64 scalar on the plan's device; else None.
        offset: Likewise, in units of four elements; what a captured graph advances.
    """

    input: Tensor
    output: Tensor
    scale: Tensor | None = None
    zero_point: Tensor | None = None
    seed: Scalar | None = None
    offset: Scalar | None = None


class FakeQuantizePlan(Plan):
    """A plan for :class:`FakeQuantizeDescriptor`."""

    __slots__ = ()


register(FakeQuantizeDescriptor, FakeQuantizeArgs, FakeQuantizePlan)
