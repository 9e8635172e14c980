"""The classes of `dequantize_reduce`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Mode
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class DequantizeReduceDescriptor(Descriptor):
    """Add what several ranks sent as codes, and make codes or elements of the sum.

    When to use:
        Between the two halves of a quantized all-reduce, and at the end of a quantized
        reduce-scatter.

    Formula:
        ``fl`` is one IEEE operation in float32. ``v_j`` is what `group_dequantize` makes of the
        codes of rank j, before it rounds to an output type. ``a = +0``, then ``a = fl(a + v_j)``
        for one rank after another; ``mean``: ``a = fl(a / ranks)``. The output is ``a``, rounded to
        its type, or the codes and parameters that `group_quantize` makes of ``a`` in groups of
        ``output_group_size``.

        ``sum_dtype`` float16: every ``v_j``, every sum and the mean are rounded to float16, as
        DeepSpeed does. A group with a NaN in one rank is NaN in the sum.

        With ``error_feedback = beta``, codes are made of ``h = fl(a + err)``, and what they lose is
        kept for the next call: ``d`` is what `group_dequantize` makes of the codes before it rounds
        to an output type, and ``err' = fl(fl(beta * err) + fl(fl(1 - beta) * fl(h - d)))``, rounded
        to the type of ``error``. ``sum_dtype`` float16: ``h`` and ``d`` are rounded to float16 too.
        A NaN or an infinity in a group of ``h`` makes all errors of the group NaN.
        docs/numerics/group.md holds the whole contract.

    Dtypes:
        input int8 or int4 (two codes a byte, the first in the high nibble); parameters and
        output_parameters float32; output the input's type, float16, bfloat16 or float32; error
        float32 or float16.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``input`` is flat for each rank, ``(ranks, n)``, int4
        ``(ranks, ceil(n / 2))``; ``parameters`` ``(ranks, groups, 1)``, ASYMMETRIC
        ``(ranks, groups, 2)``. Ranks may lie any distance apart. ``output`` has the shape; int4 is
        flat, ``(ceil(n / 2),)``. ``output_parameters`` is ``(groups of the output, 1 or 2)``;
        ``error`` is flat, ``(n,)``.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT, and batch-invariant where elements come out, or codes of which no
        two rows share a group or a byte (int4).

    Attributes:
        shape: Shape of the tensor that every rank has.
        ranks: How many there are, 1 to 64.
        input_dtype: int8 or int4.
        output_dtype: The same for codes; or float16, bfloat16, float32.
        group_size: Elements of a group of the input.
        output_group_size: Elements of a group of the output; None: the same. For codes alone.
        mode: SYMMETRIC or ASYMMETRIC, on both sides.
        mean: Whether the sum is divided by the number of ranks.
        sum_dtype: float32; float16 for DeepSpeed's bits.
        error_feedback: ``beta``, the share of the previous error that stays in the next one, at
            least 0 and below 1. None: there is no error feedback. For codes alone.
        error_dtype: Element type of ``error``: float32, or float16, which large errors overflow.

    Raises:
        DescriptorError: A group size below 1, more than 64 ranks, output codes of another type than
            the input's, ``output_group_size`` or error feedback without output codes, ``beta``
            outside of [0, 1).

    Source:
        DeepSpeed ``launch_dequant_reduce`` and ``launch_loco_dequant_reduce``. Corrected here:
        every rank's own asymmetric parameters are used; sums are float32; groups may have any size,
        and there may be any number of ranks up to 64; ranges are measured over elements alone.
    """

    operator: ClassVar[str] = "dequantize_reduce"

    shape: Shape
    ranks: int
    input_dtype: DTypeField
    output_dtype: DTypeField
    group_size: int
    output_group_size: int | None = None
    mode: Mode = Mode.SYMMETRIC
    mean: bool = False
    sum_dtype: DTypeField = "float32"
    error_feedback: float | None = None
    error_dtype: DTypeField = "float32"


@args_class
class DequantizeReduceArgs:
    """Operands of :class:`DequantizeReduceDescriptor`.

    Attributes:
        input: The codes of all ranks; any outer stride.
        parameters: Their multipliers, with offsets beside them (ASYMMETRIC); any outer strides.
        output: Where codes or elements go; any outer strides.
        output_parameters: Where the parameters of codes go; None without codes.
        error: The quantization error of earlier calls, 0 at first; updated in place. None without
            error feedback.
    """

    input: Tensor
    parameters: Tensor
    output: Tensor
    output_parameters: Tensor | None = None
    error: Tensor | None = None


class DequantizeReducePlan(Plan):
    """A plan for :class:`DequantizeReduceDescriptor`."""

    __slots__ = ()


register(DequantizeReduceDescriptor, DequantizeReduceArgs, DequantizeReducePlan)
