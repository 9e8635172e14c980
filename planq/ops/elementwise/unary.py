"""The classes of `unary`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, EnumerationField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class UnaryDescriptor(Descriptor):
    """Compute an elementary function of each element.

    When to use:
        Exponentials, logarithms, gates and roots between planq's own launches, with the same bits
        on every machine; in place if wanted.

    Formula:
        ``output = rn(f(float32(input)))``: the element is widened to float32, which is exact, and
        ``f`` is computed in float32 as docs/numerics/functions.md writes it. The result is rounded
        once to the output's type, to nearest even; beyond its largest number it becomes infinite. A
        NaN becomes the canonical one. docs/numerics/elementwise.md holds the contract.

        ====================  ==================================================================
        ``function``          f(x)
        ====================  ==================================================================
        ``EXP``, ``EXP2``     e^x, 2^x
        ``LOG``, ``LOG2``     ln x, log2 x; of zeros -inf, of negative numbers NaN
        ``RSQRT``             1 / sqrt(x); of zeros an infinity of their sign, below them NaN
        ``SIGMOID``           1 / (1 + e^-x)
        ``TANH``, ``ERF``     tanh x, erf x
        ====================  ==================================================================

    Dtypes:
        input and output float16, bfloat16, float32, in any combination.

    Shapes:
        Rank 1 to 8, any extents, 0 included; both are alike.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of both operands.
        function: The function.
        input_dtype: Element type of ``input``.
        output_dtype: Element type of ``output``; that of the input by default.

    Raises:
        DescriptorError: A type that is not listed.

    Source:
        torch ``exp``, ``exp2``, ``log``, ``log2``, ``rsqrt``, ``sigmoid``, ``tanh``, ``erf``.
    """

    operator: ClassVar[str] = "unary"

    shape: Shape
    function: EnumerationField
    input_dtype: DTypeField
    output_dtype: DTypeField = None


@args_class
class UnaryArgs:
    """Operands of :class:`UnaryDescriptor`.

    Attributes:
        input: The elements; any outer strides, innermost stride 1.
        output: The results; likewise. It may be ``input`` itself where both have one type.
    """

    input: Tensor
    output: Tensor


class UnaryPlan(Plan):
    """A plan for :class:`UnaryDescriptor`."""

    __slots__ = ()


register(UnaryDescriptor, UnaryArgs, UnaryPlan)
