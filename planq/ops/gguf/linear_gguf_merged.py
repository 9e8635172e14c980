"""The classes of `linear_gguf_merged`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.ops.gguf.vocabulary import GgufType
from planq.plan import Plan
from planq.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterable


@descriptor_class
class LinearGgufMergedDescriptor(Descriptor):
    """Compute several linear layers of one input, each by weights that are blocks of a GGUF file.

    When to use:
        Layers that share their input: queries, keys and values of an attention, gate and up of an
        MLP. The input is quantized once, threads of the host share the rows of all weights out
        together, and an engine has one plan, one call and one output. Weights stay where they are,
        each with its own rows and its own type.

    Formula:
        That of :class:`LinearGgufDescriptor`, for each weight alone. Columns of the output, of the
        bias and of the residual are those of the first weight, then those of the second, and so on:
        ``output[..., a:b]`` is the output of the weight whose rows are ``a`` to ``b`` of all, and
        has the bits that a plan of that weight alone gives it.

    Dtypes:
        input float16, bfloat16, float32, or int8 codes with ``input_scale``, which is float32;
        weight uint8, the bytes of the blocks; output float16, bfloat16, float32; bias and residual
        float16, bfloat16, float32, float64.

    Shapes:
        ``input_shape`` is ``(..., m, k)``, of rank 2 to 8; k is a multiple of the elements in a
        block of each type. ``weight`` is a list of 1 to 8 tensors, whose shapes are
        ``weight_shapes``: ``(n, bytes)`` each, where ``bytes`` is what a row of k elements takes.
        With N the sum of all n, ``output`` and ``residual`` have ``(..., m, N)``, ``bias``
        ``(N,)``; ``input_scale`` has ``(..., m, k / 32)``.

    Workspace:
        Floating input: its codes and scales. On the host also, for each type among the weights, the
        codes in the order in which they are read, with what sums need to know of them; the body
        ``parts``, which computes one weight after another, has that for one type at a time.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant: integer sums do not depend on their order,
        and the rest is a fixed sequence of IEEE operations.

    Attributes:
        input_shape: Shape of ``input``.
        weight_shapes: Shapes of the weights as bytes.
        types: What the blocks of each are. ``q8_1`` and ``q8_k`` are in no file.
        input_dtype: Element type of ``input``; int8: it is codes.
        output_dtype: Element type of ``output``.
        bias_dtype: Element type of ``bias``; None: there is none.
        residual_dtype: Element type of ``residual``; None: there is none.

    Raises:
        DescriptorError: Shapes that do not fit together, a k that is no whole number of blocks,
            another number of types than of weights, another dtype, or a type that no file has.

    Source:
        The merged linear layers of engines, such as vLLM's ``MergedColumnParallelLinear``.
    """

    operator: ClassVar[str] = "linear_gguf_merged"

    input_shape: Shape
    weight_shapes: tuple[tuple[int, ...], ...]
    types: tuple[GgufType, ...]
    input_dtype: DTypeField
    output_dtype: DTypeField
    bias_dtype: DTypeField = None
    residual_dtype: DTypeField = None


@args_class
class LinearGgufMergedArgs:
    """Operands of :class:`LinearGgufMergedDescriptor`.

    Attributes:
        input: The activations, or their codes; any outer strides, innermost stride 1.
        weight: The bytes of the blocks of each weight, row by row without gaps, at any address.
        output: Where the results go, those of the first weight first; any outer strides.
        input_scale: The scales of the codes, one for each 32; None with floating ``input``.
        bias: What is added to each column; None without ``bias_dtype``.
        residual: What is added to each output; None without ``residual_dtype``.
    """

    input: Tensor
    weight: Iterable[Tensor]
    output: Tensor
    input_scale: Tensor | None = None
    bias: Tensor | None = None
    residual: Tensor | None = None


class LinearGgufMergedPlan(Plan):
    """A plan for :class:`LinearGgufMergedDescriptor`."""

    __slots__ = ()


register(LinearGgufMergedDescriptor, LinearGgufMergedArgs, LinearGgufMergedPlan)
