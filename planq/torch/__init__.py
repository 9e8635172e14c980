"""planq's operators as operators of torch: ``torch.ops.planq.<name>`` and ``.out``.

Importing this module defines every registered operator twice::

    codes, scale = torch.ops.planq.dynamic_range_quantize(x, "int8")     # allocates its results
    torch.ops.planq.dynamic_range_quantize.out(x, codes, scale, "int8")  # writes them; returns ()

An operator that updates operands in place has one overload, which is like ``.out``.

Arguments:
    They have the names of operands and fields; those without a default come first. What an operand
    tells (its shape, its dtype) is no argument. Enumerations, dtypes and scopes are text:
    ``"asymmetric"``, ``"float8_e4m3fn"``, ``"group(128)"``. A number is ``rate=0.1``, or
    ``rate_tensor=t`` in memory; where fields decide whether it is whole, it is what was given. The
    field ``mode`` is ``mode_``, because torch takes that name for itself; where an operand and a
    field have one name, the operand has ``_tensor`` behind it. Operands that are packed do not tell
    their logical shape: pass ``shape=[...]``.

Results:
    A tensor or a tuple. An operator whose results depend on its fields (zero points, statistics)
    returns a list of those that there are, in the order of its args.

torch.compile:
    All of them work with ``fullgraph=True``, in ``torch.export`` and in CUDA graphs; before a
    capture, call once, so that the plan is there. A new number of rows compiles nothing anew, from
    2 rows up; as ever in torch, an extent of a result that is 1 is another matter than one of 2.
    What else an operator asks of extents, such as equal columns, it asks when the program runs.

Plans:
    A call selects a plan where none fits yet. A plan has a :class:`planq.Dim` for every extent but
    the last where the operator admits it, with the next power of two, at least 16, as its maximum;
    so a new batch size is nearly always a hit. The 1024 plans that were used last are kept.

Preferences:
    ``sku``, ``determinism``, ``batch_invariant``, ``max_ulp`` and ``max_workspace_bytes``, the last
    arguments of every overload, are those of :class:`planq.PlanPreference`, with its defaults.
    Where no kernel is left, that is a :class:`planq.NoKernelError`: nothing is weakened unasked.
    Under ``torch.use_deterministic_algorithms(True)`` a kernel that promises less than RUN_TO_RUN,
    which a call has to ask for, is that error too.

Streams:
    On a GPU, torch's current stream of the operands' device. On the host, as many threads as
    ``torch.get_num_threads()``; the bits do not depend on it.

Workspace:
    ``.out`` takes ``workspace=``, a byte tensor. Without it, and in overloads that allocate, what a
    kernel needs beside its operands comes from torch's allocator on the current stream.

Gradients:
    ``torch.ops.planq.fake_quantize`` and :func:`quantize_dequantize` have straight-through
    gradients of their input, by ``backward()``. Every other call with an operand that requires a
    gradient, while torch records them, raises :class:`planq.ArgumentError`; so does any call with
    an operand that has a tangent of forward mode, or that a transform of ``torch.func``
    differentiates by.

Errors:
    Those of planq: :class:`planq.DescriptorError`, :class:`planq.ArgumentError` and so on.
"""

from __future__ import annotations

from typing import Any

import torch

from planq.arguments import DTypeLike
from planq.dtypes import Mode, NibbleOrder, NonFinite, Quotient
from planq.scope import Scope
from planq.torch import _library
from planq.torch._straight_through import apply as _straight_through
from planq.torch._words import word as _word

__all__ = ["dequantize", "quantize", "quantize_dequantize"]

_library.define_all()


def quantize(
    x: torch.Tensor,
    dtype: DTypeLike,
    *,
    scope: Scope | str = "token()",
    mode: Mode | str = Mode.SYMMETRIC,
    q_min: float | None = None,
    q_max: float | None = None,
    scale_dtype: DTypeLike = None,
    quotient: Quotient | str = Quotient.DIVIDE,
    nonfinite: NonFinite | str = NonFinite.PROPAGATE,
    include_zero: bool = True,
    nibble_order: NibbleOrder | str = NibbleOrder.LOW_FIRST,
) -> tuple[torch.Tensor, ...]:
    """Measures the range of every segment and quantizes: ``dynamic_range_quantize``.

    Args:
        x: float16, bfloat16, float32 or float64; any outer strides, innermost stride 1.
        dtype: Of the codes: int8, uint8, int4, uint4, float8_e4m3fn or float8_e5m2.
        scope: Which elements share a scale.
        mode: ASYMMETRIC has zero points.
        q_min: Lowest code; None: of the type.
        q_max: Highest code; None: of the type.
        scale_dtype: Of the scales; None: float32, float64 for float64.
        quotient: How an element is divided by its scale.
        nonfinite: What a segment with a NaN or an infinity becomes.
        include_zero: ASYMMETRIC: the range always holds 0.
        nibble_order: Of 4-bit codes, two a byte along the last axis.

    Returns:
        ``(codes, scale)``, or ``(codes, scale, zero_point)``.

    Raises:
        DescriptorError: A field asks for something that has no meaning.
        ArgumentError: ``x`` requires a gradient, which codes do not carry.
    """
    return tuple(
        torch.ops.planq.dynamic_range_quantize(
            x,
            _word(dtype),
            None,  # a scale of the tensor, which formats of groups have
            _word(scope),
            _word(mode),
            q_min,
            q_max,
            None if scale_dtype is None else _word(scale_dtype),
            _word(quotient),
            _word(nonfinite),
            include_zero,
            _word(nibble_order),
        )
    )


def dequantize(
    codes: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    *,
    scope: Scope | str = "token()",
    dtype: DTypeLike = None,
    output_dtype: DTypeLike = "float32",
    shape: Any = None,
    nibble_order: NibbleOrder | str = NibbleOrder.LOW_FIRST,
) -> torch.Tensor:
    """Gives codes back their scale: ``dequantize``, of what :func:`quantize` returned.

    Args:
        codes: int8, uint8, fp8, or 4-bit codes two a byte.
        scale: One for each segment.
        zero_point: Likewise; None: symmetric.
        scope: Which elements share a scale.
        dtype: Of the codes; None: that of the tensor. 4-bit codes need it.
        output_dtype: Of the result.
        shape: The logical shape, which 4-bit codes do not tell; None: that of ``codes``.
        nibble_order: Of 4-bit codes.

    Raises:
        DescriptorError: A field asks for something that has no meaning.
        ArgumentError: An operand is not what the others ask for, or requires a gradient.
    """
    result: torch.Tensor = torch.ops.planq.dequantize(
        codes,
        scale,
        _word(codes.dtype if dtype is None else dtype),
        _word(output_dtype),
        zero_point,
        shape=shape,
        scope=_word(scope),
        mode_="symmetric" if zero_point is None else "asymmetric",
        nibble_order=_word(nibble_order),
    )
    return result


def quantize_dequantize(
    x: torch.Tensor,
    dtype: DTypeLike,
    *,
    scope: Scope | str = "token()",
    mode: Mode | str = Mode.SYMMETRIC,
    q_min: float | None = None,
    q_max: float | None = None,
    scale_dtype: DTypeLike = None,
    quotient: Quotient | str = Quotient.DIVIDE,
    nonfinite: NonFinite | str = NonFinite.PROPAGATE,
    include_zero: bool = True,
) -> torch.Tensor:
    """What is left of a tensor after quantizing and dequantizing, in its own dtype; differentiable.

    Formula:
        ``y = dequantize(*quantize(x, dtype))``. Gradient, straight through: ``dx = dy`` where the
        element's code before clamping lies in ``[q_min, q_max]``, +0 elsewhere; bit for bit of
        integer codes (``fake_quantize_backward``). Of fp8 codes ``dx = (dy * s) / s`` there, in
        float32 (float64 for float64), then rounded (``dequantize_backward`` and
        ``quantize_backward``), with scales two steps larger than the forward's: their rounding
        clips nothing.

    Args:
        x: float16, bfloat16, float32 or float64; any outer strides, innermost stride 1.
        dtype: Of the codes in between; the arguments that follow are those of :func:`quantize`.
        scope: Which elements share a scale.
        mode: ASYMMETRIC has zero points.
        q_min: Lowest code; None: of the type.
        q_max: Highest code; None: of the type.
        scale_dtype: Of the scales; None: float32, float64 for float64.
        quotient: How an element is divided by its scale.
        nonfinite: What a segment with a NaN or an infinity becomes.
        include_zero: ASYMMETRIC: the range always holds 0.

    Raises:
        DescriptorError: A field asks for something that has no meaning.
    """
    return _straight_through(
        x,
        _word(dtype),
        _word(scope),
        _word(mode),
        q_min,
        q_max,
        None if scale_dtype is None else _word(scale_dtype),
        _word(quotient),
        _word(nonfinite),
        include_zero,
    )
