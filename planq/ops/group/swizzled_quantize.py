"""The classes of `swizzled_quantize`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Mode
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class SwizzledQuantizeDescriptor(Descriptor):
    """Quantize flat groups into the order in which a hierarchical all-to-all sends them.

    When to use:
        Before the exchange inside of nodes of a reduce-scatter of two levels (ZeRO++). Without
        nodes, `group_quantize`.

    Formula:
        Codes and parameters are those that `group_quantize` measures by DEEPSPEED. With
        ``N = nodes``, ``D = devices_per_node``, ``P = pipelining`` and
        ``C = groups / (N * D * P)``, group ``(z * P + y) * C + x`` of the input, ``z < N * D``,
        ``y < P``, ``x < C``, goes to place ``(y * N * D + (z mod D) * N + z div D) * C + x``.

        With ``error_feedback = beta``, codes are made of ``h = fl(x + err)``, in float32, and what
        they lose is kept for the next call: ``d`` is what `group_dequantize` makes of the codes
        before it rounds to an output type, and
        ``err' = fl(fl(beta * err) + fl(fl(1 - beta) * fl(h - d)))``, rounded to the type of
        ``error``. ``sum_dtype`` float16: ``h`` and ``d`` are rounded to float16, as DeepSpeed does.
        A NaN or an infinity in a group of ``h`` makes all errors of the group NaN.
        docs/numerics/group.md holds the whole contract.

    Dtypes:
        input float16, bfloat16, float32; output int8 or int4 (two codes a byte, the first in the
        high nibble); parameters float32; error float32 or float16.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``output`` is flat, ``(n,)``, int4 ``(n / 2,)``;
        ``parameters`` is ``(groups, 1)``, ASYMMETRIC ``(groups, 2)`` with the multiplier first.
        ``error`` is flat, ``(n,)``, in the order of ``output``.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT. None is batch-invariant: the place of a group depends on how many
        there are.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        output_dtype: int8 or int4.
        group_size: Elements of a group, at least 1; even for int4. The number of elements has to be
            a multiple of it.
        nodes: How many nodes there are.
        devices_per_node: Devices of each.
        pipelining: Slices that are sent one after another.
        mode: SYMMETRIC or ASYMMETRIC.
        error_feedback: ``beta``, the share of the previous error that stays in the next one, at
            least 0 and below 1. None: there is no error feedback.
        error_dtype: Element type of ``error``: float32, or float16, which large errors overflow.
        sum_dtype: float32; float16 for DeepSpeed's bits, if input and errors are float16. Only with
            error feedback.

    Raises:
        DescriptorError: A tensor that is no whole number of groups, groups that are not divisible
            by nodes, devices and slices, int4 in groups of an odd size, ``beta`` outside of [0, 1),
            types of errors or sums without error feedback.

    Source:
        DeepSpeed ``launch_swizzled_quant`` and ``launch_loco_swizzled_quant``. Corrected here:
        groups of more than 40960 elements are quantized, where DeepSpeed launches nothing; a
        remainder is refused, where DeepSpeed leaves it out; ranges are measured over elements
        alone.
    """

    operator: ClassVar[str] = "swizzled_quantize"

    shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField
    group_size: int
    nodes: int
    devices_per_node: int
    pipelining: int = 1
    mode: Mode = Mode.SYMMETRIC
    error_feedback: float | None = None
    error_dtype: DTypeField = "float32"
    sum_dtype: DTypeField = "float32"


@args_class
class SwizzledQuantizeArgs:
    """Operands of :class:`SwizzledQuantizeDescriptor`.

    Attributes:
        input: What to quantize; any outer strides, innermost stride 1.
        output: Where the codes go.
        parameters: Where multipliers go, with offsets beside them (ASYMMETRIC); any outer stride.
        error: The quantization error of earlier calls, 0 at first; updated in place. None without
            error feedback.
    """

    input: Tensor
    output: Tensor
    parameters: Tensor
    error: Tensor | None = None


class SwizzledQuantizePlan(Plan):
    """A plan for :class:`SwizzledQuantizeDescriptor`."""

    __slots__ = ()


register(SwizzledQuantizeDescriptor, SwizzledQuantizeArgs, SwizzledQuantizePlan)
