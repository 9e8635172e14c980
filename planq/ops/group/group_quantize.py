"""The classes of `group_quantize`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Convention, Mode
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class GroupQuantizeDescriptor(Descriptor):
    """Quantize flat groups as DeepSpeed does, with measured or given parameters.

    When to use:
        Gradients and weights on their way between ranks (ZeRO++), and whatever DeepSpeed's kernels
        read. For weights and activations of products, `dynamic_range_quantize` wastes no code.

    Formula:
        ``fl`` is one IEEE operation in float32. Groups are ``group_size`` consecutive elements of
        the tensor in C order, across rows; the last one may be shorter. ``M = max|x|``,
        ``lo = min x``, ``hi = max x`` of the group, b the bits of a code.

        DEEPSPEED, SYMMETRIC: ``s = fl(2^(b-1) / M)``, ``o = 0``. ASYMMETRIC:
        ``s = fl(2^(b-1) / h)`` with ``h = fl(hi/2 - lo/2)``, ``o = fl(hi/2 + lo/2)``. ``s`` is at
        most the largest finite number, and 1 where ``M`` or ``h`` is 0. The code is
        ``clamp(rne(fl(fl(x - o) * s)), -2^(b-1), 2^(b-1) - 1)``; stored are ``fl(1 / s)`` and
        ``o``.

        DEEPSPEED_INTX: each operation is rounded once more, to the input's type T. The divisor is
        ``s = (2^b - 1) / (hi - lo)``, at most the largest finite number of T, and 1 where
        ``hi = lo``; the code is ``rne(clamp((x - lo) * s, 0, 2^b - 1))``; stored are ``s`` and
        ``lo``.

        A group with a NaN or an infinity has codes 0, a first parameter NaN and a second one 0, so
        that it decodes to NaN; so has a group of DEEPSPEED_INTX whose ``hi - lo`` T does not hold.
        ``parameters_given``: ``s = fl(1 / multiplier)``, at most the largest finite number, or the
        divisor; a code that would be NaN is 0. docs/numerics/group.md holds the whole contract.

    Dtypes:
        input float16, bfloat16, float32; output int8, int4 (DEEPSPEED), uint8, uint4
        (DEEPSPEED_INTX), two 4-bit codes a byte, the first in the high nibble; parameters float32;
        scale and minimum the input's.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``output`` has the input's shape; 4-bit codes are
        flat, ``(ceil(n / 2),)``, and the spare nibble behind an odd n is 0. ``parameters`` is
        ``(groups, 1)``, ASYMMETRIC ``(groups, 2)`` with the multiplier first; ``scale`` and
        ``minimum`` are ``(groups,)``.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT, and batch-invariant where no two rows share a group that is
        measured or a byte (int4).

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        output_dtype: int8 or int4; uint8 or uint4 for DEEPSPEED_INTX.
        group_size: Elements of a group, at least 1.
        mode: SYMMETRIC or ASYMMETRIC; DEEPSPEED_INTX has ASYMMETRIC alone.
        convention: DEEPSPEED or DEEPSPEED_INTX.
        parameters_given: Whether the parameters are inputs.

    Raises:
        DescriptorError: A group size below 1, codes or a mode that the convention does not have.

    Source:
        DeepSpeed ``launch_quant`` and the INTx quantizer. Corrected here: groups may have any size,
        and all are quantized, a remainder too; ranges are measured over elements alone; nothing
        beyond the last group is read; codes have the bits that were asked for; groups with a NaN or
        an infinity decode to NaN. Added: float32 and bfloat16.
    """

    operator: ClassVar[str] = "group_quantize"

    shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField
    group_size: int
    mode: Mode = Mode.SYMMETRIC
    convention: Convention = Convention.DEEPSPEED
    parameters_given: bool = False


@args_class
class GroupQuantizeArgs:
    """Operands of :class:`GroupQuantizeDescriptor`.

    Attributes:
        input: What to quantize; any outer strides, innermost stride 1.
        output: Where the codes go; likewise.
        parameters: Where multipliers go, with offsets beside them (ASYMMETRIC); an input with
            ``parameters_given``; None for DEEPSPEED_INTX.
        scale: Where divisors go; an input with ``parameters_given``; None for DEEPSPEED.
        minimum: Where minima go; likewise.
    """

    input: Tensor
    output: Tensor
    parameters: Tensor | None = None
    scale: Tensor | None = None
    minimum: Tensor | None = None


class GroupQuantizePlan(Plan):
    """A plan for :class:`GroupQuantizeDescriptor`."""

    __slots__ = ()


register(GroupQuantizeDescriptor, GroupQuantizeArgs, GroupQuantizePlan)
