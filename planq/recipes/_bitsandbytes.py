"""Functions of bitsandbytes 0.43 that are several plans here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from planq.arguments import DTypeLike, StreamLike
from planq.dtypes import parse_member
from planq.errors import DescriptorError
from planq.ops.affine import DequantizeDescriptor, QuantizeBackwardDescriptor
from planq.ops.elementwise import AddDescriptor
from planq.ops.linear import MatmulDescriptor, MatmulInt8Descriptor
from planq.ops.memory import MultiplyDescriptor
from planq.ops.outlier import (
    Layout,
    TransformLayoutDescriptor,
    VectorwiseDequantizeDescriptor,
    VectorwiseForm,
)
from planq.preference import PlanPreference
from planq.recipes._recipe import Piece, Recipe, Steps, described
from planq.scope import Scope

_FLOAT: Final = "float32"
_LARGEST_CODE: Final = 127
_SCALARS: Final = (VectorwiseForm.LINEAR, VectorwiseForm.ZEROPOINT)
_OF_EACH: Final = (
    VectorwiseForm.VECTOR,
    VectorwiseForm.TRUNCATED,
    VectorwiseForm.VECTOR_ZEROPOINT,
)


def igemmlt(
    stream: StreamLike,
    *,
    shape: Sequence[int],
    weight_shape: Sequence[int],
    weight_layout: Layout | str = Layout.COL_TURING,
    output_dtype: DTypeLike = "int32",
    pref: PlanPreference | None = None,
) -> Recipe:
    """Multiply int8 matrices that lie in the layouts of cuBLASLt, exactly.

    When to use:
        For weights that bitsandbytes before 0.45 stored in such a layout, if what comes before and
        behind the product has them, too. In a new program ``transform_layout`` brings the weight to
        rows once, and ``matmul_int8`` alone multiplies.

    Formula:
        ``output[m, n] = sum over k of input[m, k] * weight[n, k]``, exact. int8 outputs are
        ``min(max(sum, -128), 127)``. Three plans of ``transform_layout`` bring input and weight to
        rows, and the product of ``matmul_int8`` to COL32.

    Operands:
        ``input`` int8 in COL32, ``weight`` int8 in ``weight_layout``, ``output`` in COL32, each
        with the shape that ``planq.layouts.buffer_shape`` says. Padding of inputs is not read, and
        that of the output is 0.

    Args:
        stream: As ``Plan.select`` takes it; only its device matters.
        shape: Of the input: columns are its last axis, rows all axes before.
        weight_shape: Of the weight, likewise; it has as many columns.
        weight_layout: COL_TURING or COL_AMPERE, as bitsandbytes has them, or another one.
        output_dtype: int32 or int8.
        pref: What each plan has to meet.

    Returns:
        The recipe. Each of its plans is BIT_EXACT.

    Raises:
        DescriptorError: Shapes that do not fit together, another layout or dtype, so many columns
            that a sum might overflow int32.
        NoKernelError: No kernel meets the preference.

    Source:
        bitsandbytes ``igemmlt``, ``cigemmlt_turing_32``, ``cigemmlt_ampere_32``,
        ``cigemmlt_turing_8`` and ``cigemmlt_ampere_8``.
    """
    to_rows = described(
        TransformLayoutDescriptor, shape=shape, from_layout=Layout.COL32, to_layout=Layout.ROW
    )
    weight_to_rows = described(
        TransformLayoutDescriptor,
        {"shape": "weight_shape", "from_layout": "weight_layout"},
        shape=weight_shape,
        from_layout=weight_layout,
        to_layout=Layout.ROW,
    )
    flat, weight_flat = (
        (math.prod(each.shape[:-1]), each.shape[-1]) for each in (to_rows, weight_to_rows)
    )
    product = described(
        MatmulInt8Descriptor,
        {"input_shape": "shape"},
        input_shape=flat,
        weight_shape=weight_flat,
        output_dtype=output_dtype,
    )
    made = (flat[0], weight_flat[0])
    back = described(
        TransformLayoutDescriptor, shape=made, dtype=product.output_dtype, to_layout=Layout.COL32
    )
    steps = Steps(stream, pref)
    rows = steps.room("rows", "int8", *flat)
    weight_rows = steps.room("rows of the weight", "int8", *weight_flat)
    sums = steps.room("sums", product.output_dtype, *made)
    steps.add("rows of the input", to_rows, input="input", output=rows.seen_as(*to_rows.shape))
    weight_out = weight_rows.seen_as(*weight_to_rows.shape)
    steps.add("rows of the weight", weight_to_rows, input="weight", output=weight_out)
    steps.add("product", product, input=rows, weight=weight_rows, output=sums)
    steps.add("output", back, input=sums, output="output")
    return steps.recipe()


def vectorwise_mm_dequant(
    stream: StreamLike,
    *,
    shape: Sequence[int],
    form: VectorwiseForm | str = VectorwiseForm.VECTOR,
    output_dtype: DTypeLike = "float16",
    pref: PlanPreference | None = None,
) -> Recipe:
    """Make of an exact product of vectorwise codes the product of what they stand for.

    When to use:
        Behind ``matmul_int8``, for factors that ``vectorwise_quantize`` or bitsandbytes'
        ``vectorwise_quant`` made codes of, in any form. Codes with zero points are multiplied as
        ``q - z``.

    Formula:
        ``fl`` is one IEEE operation in float32, S1 and S2 are the statistics of both factors, and
        ``x = fl(input)``. The output is ``y`` rounded once to its type; a NaN is canonical.

        - LINEAR, ROW: ``y = fl(x * fl(fl(S1 * S2) / 16129))``
        - VECTOR, TRUNCATED: ``y = fl(fl(x * fl(S1 / 127)) * fl(S2 / 127))``
        - ZEROPOINT, ROW_ZEROPOINT: ``y = fl(x * fl(1 / fl(S1 * S2)))``
        - VECTOR_ZEROPOINT: ``y = fl(fl(x * fl(1 / S1)) * fl(1 / S2))``

        Statistics of 0, infinities and NaN are taken as IEEE says.

    Operands:
        ``input`` int32 of ``shape``; ``row_scale``, which is S1, float32 of ``(*shape[:-1], 1)``;
        ``column_scale``, which is S2, float32 of ``(1, shape[-1])``; ``output`` of ``shape``. Under
        LINEAR and ZEROPOINT both scales are ``(1,)``. These are the shapes that
        ``vectorwise_quantize`` has for the last axis of the left factor and the first of the right.

    Args:
        stream: As ``Plan.select`` takes it; only its device matters.
        shape: Of the product, rank 1 to 8, any extents, 0 included.
        form: What the statistics are.
        output_dtype: float16, bfloat16 or float32.
        pref: What each plan has to meet.

    Returns:
        The recipe. Each of its plans is BIT_EXACT.

    Raises:
        DescriptorError: Another form or dtype, a shape that is none.
        NoKernelError: No kernel meets the preference.

    Source:
        bitsandbytes ``vectorwise_mm_dequant``. On a GPU, torch divides by 127 as it multiplies by
        a reciprocal; so the last bit may differ there.
    """
    form = parse_member(VectorwiseForm, form, "form")
    zero_points = form.endswith("zeropoint")
    steps, shape = Steps(stream, pref), _shape_of(shape)
    scope = Scope.pair() if form in _OF_EACH else Scope.group(1)
    desc = described(
        DequantizeDescriptor,
        shape=shape,
        input_dtype="int32",
        output_dtype=output_dtype,
        scope=Scope.tensor() if form in _SCALARS else scope,
        scale_dtype=_FLOAT,
    )
    scales: dict[str, Piece] = {}
    if form in _OF_EACH:
        rows, columns = (*shape[:-1], 1), (1, shape[-1])
        if zero_points:
            one = _reciprocal(steps, "1 / S1", "row_scale", rows, axis=-1)
            other = _reciprocal(steps, "1 / S2", "column_scale", columns, axis=0)
        else:
            one = _quotient(steps, "S1 / 127", "row_scale", rows, _LARGEST_CODE)
            other = _quotient(steps, "S2 / 127", "column_scale", columns, _LARGEST_CODE)
        scales = {"scale": one.seen_as(*shape[:-1]), "column_scale": other.seen_as(shape[-1])}
    else:
        made = _product_of_scales(steps, shape, scalars=form in _SCALARS)
        if zero_points:
            flat = (math.prod(made.shape), 1)
            norm = _reciprocal(steps, "1 / (S1 S2)", made.seen_as(*flat), flat, axis=-1)
        else:
            norm = _quotient(steps, "S1 S2 / 16129", made, made.shape, _LARGEST_CODE**2)
        scales = {"scale": norm.seen_as(*made.shape)}
    steps.add("output", desc, input="input", output="output", **scales)
    return steps.recipe()


def dequant_min_max(
    stream: StreamLike,
    *,
    shape: Sequence[int],
    weight_shape: Sequence[int],
    weight_dtype: DTypeLike = "float16",
    output_dtype: DTypeLike = "float16",
    pref: PlanPreference | None = None,
) -> Recipe:
    """Make of a product of codes the product of activations, whose codes begin at a row's middle.

    When to use:
        For activations whose codes are symmetric around the middle of each row's range: a code
        ``q`` stands for ``q * half_range / 127 + minimum + half_range``. The offset meets every
        element of the weight, so it adds sums of the weight's rows.

    Formula:
        ``fl`` is one IEEE operation in float32. For the row m and the output channel n:

        ``total[n] = sum over k of weight[n, k]`` in the order LANES of :class:`MatmulDescriptor`;
        ``x = fl(fl(fl(input) * fl(weight_scale[n] / 127)) * fl(half_range[m] / 127))``;
        ``offset = fl(fl(minimum[m] + half_range[m]) * total[n])``; and
        ``output = round(fl(x + offset))``, a NaN in its canonical form.

    Operands:
        ``input`` int32 of ``shape``, the product of codes; ``weight`` of ``weight_shape``, what the
        codes of the weight were made of; ``minimum`` and ``half_range`` float32 of
        ``(*shape[:-1], 1)``, a row's least element and half of the length of its range;
        ``weight_scale`` float32 of ``(n, 1)``, the largest magnitude of each row of the weight;
        ``output`` of ``shape``.

    Args:
        stream: As ``Plan.select`` takes it; only its device matters.
        shape: Of the product, ``(..., n)``, rank 1 to 8, any extents, 0 included.
        weight_shape: ``(n, k)``.
        weight_dtype: float16 or bfloat16.
        output_dtype: float16, bfloat16 or float32.
        pref: What each plan has to meet.

    Returns:
        The recipe. Each of its plans is BIT_EXACT.

    Raises:
        DescriptorError: Another dtype, shapes that do not fit together.
        NoKernelError: No kernel meets the preference.

    Source:
        bitsandbytes ``dequant_min_max``, whose ``SA`` is ``(minimum, half_range)`` and whose ``SB``
        is ``weight_scale``. torch sums the weight in another order.
    """
    shape, weight_shape = _shape_of(shape), _shape_of(weight_shape, "weight_shape")
    width = shape[-1]
    if len(weight_shape) != 2 or weight_shape[0] != width:
        raise DescriptorError("weight_shape", f"expected ({width}, k), got {weight_shape}")
    sums = described(
        MatmulDescriptor,
        {"input_dtype": "weight_dtype"},
        input_shape=(1, weight_shape[1]),
        weight_shape=weight_shape,
        input_dtype=weight_dtype,
        output_dtype=_FLOAT,
        accumulation="lanes",
    )
    last = described(
        AddDescriptor,
        shape=shape,
        input_dtype=_FLOAT,
        other_dtype=_FLOAT,
        output_dtype=output_dtype,
    )
    steps, rows = Steps(stream, pref), (*shape[:-1], 1)
    ones = steps.constant(1, sums.input_dtype, weight_shape[1]).seen_as(1, weight_shape[1])
    total, middle = steps.room("total", _FLOAT, 1, width), steps.room("middle", _FLOAT, *rows)
    steps.add("sums of the weight", sums, input=ones, weight="weight", output=total)
    added = AddDescriptor(shape=rows, input_dtype=_FLOAT)
    steps.add("minimum + half range", added, input="minimum", other="half_range", output=middle)
    columns = _quotient(steps, "weight scale / 127", "weight_scale", (width, 1), _LARGEST_CODE)
    steepness = _quotient(steps, "half range / 127", "half_range", rows, _LARGEST_CODE)
    product, factor = (steps.room(name, _FLOAT, *shape) for name in ("product", "factor"))
    by_column = DequantizeDescriptor(
        shape=shape, input_dtype="int32", output_dtype=_FLOAT, scope=Scope.channel(-1)
    )
    scale = columns.seen_as(width)
    steps.add("product by columns", by_column, input="input", scale=scale, output=product)
    every_one = steps.constant(1, _FLOAT, width)
    _outer(steps, "factors of rows", steepness, every_one, factor)
    multiplied = MultiplyDescriptor(shape=shape, input_dtype=_FLOAT)
    steps.add("product by rows", multiplied, input=product, other=factor, output=product)
    _outer(steps, "offsets", middle, total, factor)
    steps.add("output", last, input=product, other=factor, output="output")
    return steps.recipe()


def _shape_of(shape: Any, field: str = "shape") -> tuple[int, ...]:
    """The extents of a shape of at least one axis.

    Raises:
        DescriptorError: It is none.
    """
    desc = described(MultiplyDescriptor, {"shape": field}, shape=shape, input_dtype=_FLOAT)
    found: tuple[int, ...] = desc.shape
    return found


def _quotient(
    steps: Steps, name: str, x: Piece | str, shape: tuple[int, ...], divisor: int
) -> Piece:
    """``fl(x / divisor)``; a piece is divided in place.

    The one operator that divides by a number of float32 is the gradient of quantize. Where the
    quantized element is 0, all of the gradient goes through.
    """
    made = x if isinstance(x, Piece) else steps.room(name, _FLOAT, *shape)
    zeros = steps.constant(0, _FLOAT, max(shape[-1], 1)).repeated(shape)
    desc = QuantizeBackwardDescriptor(shape=shape, input_dtype=_FLOAT, output_dtype="int8")
    scale = steps.constant(divisor, _FLOAT, 1)
    steps.add(name, desc, grad_output=x, input=zeros, grad_input=made, scale=scale)
    return made


def _reciprocal(
    steps: Steps, name: str, x: Piece | str, shape: tuple[int, ...], *, axis: int
) -> Piece:
    """``fl(1 / x)`` of a tensor with one element along the axis.

    It is what the code 1 stands for where the zero point is 0 and ``x`` the statistic.
    """
    made = steps.room(name, _FLOAT, *shape)
    desc = VectorwiseDequantizeDescriptor(
        shape=shape, output_dtype=_FLOAT, form=VectorwiseForm.VECTOR_ZEROPOINT, axis=axis
    )
    codes = steps.constant(1, "uint8", max(shape[-1], 1)).repeated(shape)
    zeros = steps.constant(0, "int32", max(shape[-1], 1)).repeated(shape)
    steps.add(name, desc, input=codes, output=made, scale=x, zero_point=zeros)
    return made


def _outer(steps: Steps, name: str, row: Piece, column: Piece, output: Piece) -> None:
    """``fl(row[m] * column[n])``: what an accumulator of 1 dequantizes to."""
    shape = output.shape
    desc = DequantizeDescriptor(
        shape=shape, input_dtype="int32", output_dtype=_FLOAT, scope=Scope.pair()
    )
    ones = steps.constant(1, "int32", max(shape[-1], 1)).repeated(shape)
    scales = {"scale": row.seen_as(*shape[:-1]), "column_scale": column.seen_as(shape[-1])}
    steps.add(name, desc, input=ones, output=output, **scales)


def _product_of_scales(steps: Steps, shape: tuple[int, ...], *, scalars: bool) -> Piece:
    """``fl(S1 * S2)``: one number, or one for each element of the product."""
    if scalars:
        made = steps.room("S1 S2", _FLOAT, 1)
        desc = MultiplyDescriptor(shape=(1,), input_dtype=_FLOAT)
        steps.add("S1 S2", desc, input="row_scale", other="column_scale", output=made)
        return made
    row, column = (
        _copied(steps, name, own)
        for name, own in (("row_scale", (*shape[:-1], 1)), ("column_scale", (1, shape[-1])))
    )
    made = steps.room("S1 S2", _FLOAT, *shape)
    _outer(steps, "S1 S2", row, column, made)
    return made


def _copied(steps: Steps, name: str, shape: tuple[int, ...]) -> Piece:
    """An operand in the workspace, where it may have another shape."""
    made = steps.room(name, _FLOAT, *shape)
    ones = steps.constant(1, _FLOAT, max(shape[-1], 1)).repeated(shape)
    desc = MultiplyDescriptor(shape=shape, input_dtype=_FLOAT)
    steps.add(f"copy of {name}", desc, input=name, other=ones, output=made)
    return made
