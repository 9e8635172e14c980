"""The classes of `group_dequantize`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Convention, Mode
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class GroupDequantizeDescriptor(Descriptor):
    """Make elements of the codes of flat groups, as DeepSpeed does.

    When to use:
        Behind `group_quantize`, and for codes that DeepSpeed's kernels made.

    Formula:
        ``fl`` is one IEEE operation in float32, ``round`` one rounding to the output's type T.
        DEEPSPEED: ``round(fl(q * p))``, ASYMMETRIC ``round(fl(fl(q * p) + o))``, with the group's
        multiplier ``p`` and offset ``o``. DEEPSPEED_INTX: ``round(fl(round(fl(q / s)) + m))``, with
        its divisor ``s`` and minimum ``m``. Groups are those of `group_quantize`.
        docs/numerics/group.md holds the whole contract.

    Dtypes:
        input int8, int4 (DEEPSPEED), uint8, uint4 (DEEPSPEED_INTX); output float16, bfloat16,
        float32; parameters float32; scale and minimum the output's.

    Shapes:
        Those of `group_quantize`, ``output`` in the place of ``input``.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of ``output``.
        input_dtype: int8 or int4; uint8 or uint4 for DEEPSPEED_INTX.
        output_dtype: Element type of ``output``.
        group_size: Elements of a group, at least 1.
        mode: SYMMETRIC or ASYMMETRIC; DEEPSPEED_INTX has ASYMMETRIC alone.
        convention: DEEPSPEED or DEEPSPEED_INTX.

    Raises:
        DescriptorError: A group size below 1, codes or a mode that the convention does not have.

    Source:
        DeepSpeed ``launch_dequantize_kernel`` and ``dequantize_int4_to_half_experimental``,
        ``dequantize_int8_to_half_experimental``. Corrected here: any group size and any number of
        groups, also fewer than 32; float32 outputs do not go through float16; nothing beyond the
        last element is read or written.
    """

    operator: ClassVar[str] = "group_dequantize"

    shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField
    group_size: int
    mode: Mode = Mode.SYMMETRIC
    convention: Convention = Convention.DEEPSPEED


@args_class
class GroupDequantizeArgs:
    """Operands of :class:`GroupDequantizeDescriptor`.

    Attributes:
        input: The codes; any outer strides, innermost stride 1.
        output: Where the elements go; likewise.
        parameters: Multipliers, with offsets beside them (ASYMMETRIC); None for DEEPSPEED_INTX.
        scale: Divisors; None for DEEPSPEED.
        minimum: Minima; likewise.
    """

    input: Tensor
    output: Tensor
    parameters: Tensor | None = None
    scale: Tensor | None = None
    minimum: Tensor | None = None


class GroupDequantizePlan(Plan):
    """A plan for :class:`GroupDequantizeDescriptor`."""

    __slots__ = ()


register(GroupDequantizeDescriptor, GroupDequantizeArgs, GroupDequantizePlan)
