"""The classes of `pipeline_copy`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class PipelineCopyDescriptor(Descriptor):
    """Copy a tensor, on CUDA through stages of shared memory that are filled ahead of time.

    When to use:
        Copies between tensors of any strides, and from memory that is slow to answer, such as
        managed pages: loads are under way while earlier ones are stored.

    Formula:
        ``output = input``, byte by byte; no NaN changes.

    Dtypes:
        float16, bfloat16, float32, float64, int8, uint8, int32, int64, float8_e4m3fn, float8_e5m2.

    Shapes:
        Rank 1 to 8, any extents, 0 included; both are alike. Broadcast by strides of 0.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of both operands.
        input_dtype: Their element type.

    Raises:
        DescriptorError: A type that is not listed.

    Source:
        bitsandbytes ``pipeline_test``, which never wrote its output.
    """

    operator: ClassVar[str] = "pipeline_copy"

    shape: Shape
    input_dtype: DTypeField


@args_class
class PipelineCopyArgs:
    """Operands of :class:`PipelineCopyDescriptor`.

    Attributes:
        input: The elements; any outer strides, innermost stride 1.
        output: Where they go; likewise.
    """

    input: Tensor
    output: Tensor


class PipelineCopyPlan(Plan):
    """A plan for :class:`PipelineCopyDescriptor`."""

    __slots__ = ()


register(PipelineCopyDescriptor, PipelineCopyArgs, PipelineCopyPlan)
