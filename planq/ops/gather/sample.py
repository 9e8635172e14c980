"""The classes of `sample`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import DType
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class SampleDescriptor(Descriptor):
    """Draw an index of each row by the row's elements, which are logits.

    When to use:
        The next token of each request, by temperature, top-k, top-p and min-p. Each row has
        settings and a random number of its own, so requests of any kind share a batch, and a
        request's tokens do not depend on the requests beside it.

    Formula:
        ``fl`` is one IEEE operation in float32, ``x`` a row, ``M`` its largest element and ``T``
        its temperature. The probability of element ``i``, next to the largest one, is
        ``p[i] = exp(fl(fl(x[i] - M) * fl(1 / T)))``, and its weight the integer part of
        ``p[i] * 2^40``. Elements are ordered: the larger one first, and of equal ones the one with
        the lower index. Filters keep the first elements of this order:

        ``top_k`` keeps ``top_k`` of them; 0 or less keeps all. ``top_p`` keeps the fewest of these
        whose weights add up to ``top_p`` times the weights of them all, at least one; 1 keeps
        all. ``min_p`` keeps those with ``p[i] >= min_p``; 0 keeps all.

        ``S`` is the sum of the weights that are kept, and ``W`` a random word of 64 bits: words 0
        (low) and 1 (high) of Philox4x32-10 with the key ``seed`` at the counter ``position``. The
        output is the lowest index at which the running sum of the weights that are kept is above
        ``floor(W * S / 2^64)``.

        A temperature of 0 takes the lowest index of a largest element. An infinite element leaves
        nothing for those below it. All sums and comparisons are of integers, so they are exact.

        Rows with a NaN, rows of -infinity alone and rows whose settings make no sense have the
        output -1. ``invalid`` is how many of them there are. Settings make sense where ``T`` is
        finite and not below 0, and ``top_p`` and ``min_p`` are from 0 to 1.

    Dtypes:
        input float16, bfloat16, float32; output int64 or int32; seed and position int64;
        temperature, top_p and min_p float32; top_k int32; invalid int64.

    Shapes:
        ``shape`` is ``(..., n)`` of rank 1 to 8, ``n`` from 1 to 2^23. Other extents may be 0.
        ``invalid`` is ``(1,)``. All others have the shape without its last axis.

    Workspace:
        None. On compute capability 9.0 and later up to 8 multiprocessors share a row, in a cluster.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant: an index depends on its own row alone, on its
        settings, seed and position. ``invalid`` is of all rows.

    Attributes:
        shape: Shape of ``input``. Extents before the last one may be a ``Dim``.
        input_dtype: Its element type.
        output_dtype: Element type of the indices.

    Raises:
        DescriptorError: A type that is not listed, rows of no elements, or rows of more than 2^23.

    Source:
        The filters and their order are those of Hugging Face's ``TopKLogitsWarper``,
        ``TopPLogitsWarper`` and ``MinPLogitsWarper``. The random numbers are planq's own.
    """

    operator: ClassVar[str] = "sample"

    shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField = DType.INT64


@args_class
class SampleArgs:
    """Operands of :class:`SampleDescriptor`.

    Attributes:
        input: The rows; any outer strides, innermost stride 1.
        seed: The key of each row's random number, of any value; likewise.
        position: Its counter, of any value: the place of the token in its request; likewise.
        output: Where the indices go; likewise.
        temperature: What differences of elements are divided by; likewise. None: 1.
        top_k: How many elements are kept; likewise. None: all.
        top_p: How much of all weights is kept; likewise. None: all.
        min_p: The least probability that is kept, next to that of the largest element; likewise.
            None: 0.
        invalid: Where the number of rows that have no index goes. None: nowhere.
    """

    input: Tensor
    seed: Tensor
    position: Tensor
    output: Tensor
    temperature: Tensor | None = None
    top_k: Tensor | None = None
    top_p: Tensor | None = None
    min_p: Tensor | None = None
    invalid: Tensor | None = None


class SamplePlan(Plan):
    """A plan for :class:`SampleDescriptor`."""

    __slots__ = ()


register(SampleDescriptor, SampleArgs, SamplePlan)
