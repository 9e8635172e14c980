"""The classes of `llm_int8_quantize`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import NonFinite, Quotient
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class LlmInt8QuantizeDescriptor(Descriptor):
    """Quantize rows to int8 and keep the columns that hold outliers as they are.

    When to use:
        Before :class:`LinearLlmInt8Descriptor`: activations of which a few columns are far larger
        than the rest. Without outliers (``threshold`` 0) :class:`DynamicRangeQuantizeDescriptor`
        gives the same codes and scales.

    Formula:
        ``fl`` is one IEEE operation in float32. An outlier is a finite element with
        ``|x| >= threshold``; at a threshold of 0 there is none. Columns with an outlier in any row
        are outlier columns, and the first ``capacity`` of them are listed, ascending.

        Of each row, over the elements that are neither outliers nor NaN or infinite, those in
        outlier columns included: ``M = max|x|``, ``s = fl(M / 127)``, at least the smallest normal
        number, and 1 where ``M = 0``.
        ``output = 0`` in listed columns, else ``clamp(rne(v), -127, 127)`` with ``v = fl(x / s)``
        (DIVIDE), ``fl(x * fl(1 / s))`` (RECIPROCAL), ``fl(x * fl(127 / M))`` (RATIO).
        ``outlier[m, j] = x[m, index[j]]``.

        A NaN or an infinity makes no outlier column. PROPAGATE: its row has the scale NaN, and
        codes and outliers 0. SATURATE: infinities have the codes -127 and 127, and are the largest
        finite numbers in ``outlier``; NaN is 0 in both.

    Dtypes:
        input and outlier float16, bfloat16, float32; output int8; scale float32; index int32; count
        int64.

    Shapes:
        Rank 1 to 8, any extents, 0 included; the last axis has the columns, all others together are
        the rows. ``output`` has the input's shape, ``scale`` ``shape[:-1]``, ``index``
        ``(capacity,)``, ``count`` ``(1,)``, ``outlier`` ``(*shape[:-1], capacity)``.

    Workspace:
        A bit for each column, and a few bytes for each row.

    Guarantee:
        Every kernel is BIT_EXACT. None is batch-invariant: an outlier in one row removes its column
        from the codes of all rows.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        threshold: The smallest magnitude of an outlier, compared as real numbers. 0: there are no
            outliers.
        capacity: How many columns can be listed. Further ones are counted, and their outliers
            clamped.
        quotient: How an element is divided by its scale.
        nonfinite: What a NaN or an infinity does to its row.

    Raises:
        DescriptorError: A negative or infinite threshold, a negative capacity, more columns than
            int32 counts.

    Source:
        bitsandbytes ``int8_vectorwise_quant`` and the outlier columns of ``MatMul8bitLt``, whose
        ``outliers.any()`` waits for the device, and whose callers zero the columns themselves.
    """

    operator: ClassVar[str] = "llm_int8_quantize"

    shape: Shape
    input_dtype: DTypeField
    threshold: float = 6
    capacity: int
    quotient: Quotient = Quotient.DIVIDE
    nonfinite: NonFinite = NonFinite.PROPAGATE


@args_class
class LlmInt8QuantizeArgs:
    """Operands of :class:`LlmInt8QuantizeDescriptor`.

    Attributes:
        input: What is quantized; any outer strides, innermost stride 1.
        output: Where the codes go; likewise.
        scale: Where the scales go, one a row.
        index: Where the listed columns go, ascending; -1 after them.
        count: Where the number of outlier columns goes, those beyond the capacity included.
        outlier: Where the values of the listed columns go; 0 after them.
    """

    input: Tensor
    output: Tensor
    scale: Tensor
    index: Tensor
    count: Tensor
    outlier: Tensor


class LlmInt8QuantizePlan(Plan):
    """A plan for :class:`LlmInt8QuantizeDescriptor`."""

    __slots__ = ()


register(LlmInt8QuantizeDescriptor, LlmInt8QuantizeArgs, LlmInt8QuantizePlan)
