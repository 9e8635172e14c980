"""What torch promises of its own operators, as far as it says so.

Sources:
    [1] ``torch.use_deterministic_algorithms``: with it, an operator takes an algorithm that gives
        the same output for the same input on the same software and hardware, or raises. The page
        lists operators that do neither without it.
    [2] ``torch.utils.deterministic.fill_uninitialized_memory``: with [1], new memory is filled.
    [3] "Numerical accuracy" among torch's notes: results of batched computations, and of slices
        of a tensor, are not promised to be bitwise those of the whole.

An operator that is not here is unknown. [3] holds for all that is rounded. It is set aside for
operators whose every element IEEE 754 tells, whatever code computes it: then rows cannot matter. It
is not set aside for other functions of one element. On CPUs, the last elements of a range take
other code than those before, and ``silu`` of a row alone has other bits than among others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from planq.dtypes import Determinism


@dataclass(frozen=True, slots=True)
class Documented:
    """What is known of a call of an operator of torch.

    Attributes:
        determinism: The rung; None: unknown.
        batch_invariant: Whether rows do not depend on those beside them; None: unknown.
        exact: Nothing is rounded.
        basis: Why, in one line.
    """

    determinism: Determinism | None
    batch_invariant: bool | None
    exact: bool
    basis: str


UNKNOWN: Final = Documented(None, None, False, "torch documents nothing of it that planq knows")
COMPILED: Final = Documented(None, None, False, "a compiler may compute it in another way")
SUBCLASS: Final = Documented(None, None, False, "a subclass of Tensor runs code of its own")

_MOVED: Final = Documented(
    Determinism.BIT_EXACT, True, True, "elements are moved or set, none is computed"
)
_ROUNDED: Final = Documented(
    Determinism.RUN_TO_RUN, True, False, "each element alone, as IEEE 754 defines it"
)
_FUNCTION: Final = Documented(
    Determinism.RUN_TO_RUN,
    None,
    False,
    "each element alone, by code that may depend on its place",
)
_SUMMED: Final = Documented(
    Determinism.RUN_TO_RUN, None, False, "torch.use_deterministic_algorithms is on"
)
_FILLED: Final = Documented(
    Determinism.RUN_TO_RUN, True, False, "torch.use_deterministic_algorithms fills new memory"
)
_OFF: Final = Documented(
    None, None, False, "only torch.use_deterministic_algorithms(True) promises anything"
)
_LISTED: Final = replace(
    _OFF,
    determinism=Determinism.NOT_GUARANTEED,
    basis="not deterministic without torch.use_deterministic_algorithms(True)",
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Views, copies of elements, and constants; indexing without sums.
_MOVES: Final = _words(
    """
    _reshape_alias _unsafe_view alias as_strided cat chunk clone concat constant_pad_nd
    contiguous detach diagonal embedding expand expand_as fill flatten flip full full_like
    gather index index_select lift_fresh masked_fill movedim narrow new_full new_ones new_zeros
    ones ones_like permute pixel_shuffle pixel_unshuffle repeat reshape roll scalar_tensor
    select select_scatter slice slice_scatter split split_with_sizes squeeze stack swapaxes t
    transpose tril triu unbind unfold unsafe_split unsqueeze view view_as where zero zeros
    zeros_like _local_scalar_dense
    """
)
# Operations of IEEE 754, comparisons, conversions, and choices between elements.
_ROUNDS: Final = _words(
    """
    _to_copy abs add bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp clamp_max
    clamp_min copy div eq floor ge gt hardtanh isfinite isinf isnan le logical_and logical_not
    logical_or logical_xor lt maximum minimum mul ne neg reciprocal relu rsub sign sqrt sub
    threshold_backward to trunc
    """
)
# Other functions of the elements in one place.
_FUNCTIONS: Final = _words(
    """
    addcdiv addcmul atan cos elu erf erfc erfinv exp exp2 expm1 floor_divide fmod gelu
    gelu_backward hardsigmoid hardswish leaky_relu lerp log log10 log1p log2 log_sigmoid_forward
    mish pow remainder round rsqrt sigmoid sigmoid_backward silu silu_backward sin softplus tan
    tanh tanh_backward
    """
)
# Sums, products and other reductions.
_SUMS: Final = _words(
    """
    _log_softmax _log_softmax_backward_data _softmax _softmax_backward_data addmm addmv all amax
    amin any argmax argmin avg_pool2d baddbmm bmm dot layer_norm linalg_vector_norm linear
    log_softmax logsumexp matmul max max_pool2d_with_indices mean min mm mse_loss mv
    native_batch_norm native_group_norm native_layer_norm native_layer_norm_backward norm prod
    softmax std sum var var_mean
    """
)
# Those of [1] that are not deterministic without it, on some device.
_LISTS: Final = _words(
    """
    _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward _embedding_bag
    _embedding_bag_backward adaptive_max_pool2d_backward adaptive_max_pool3d_backward
    avg_pool3d_backward bincount conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d convolution convolution_backward cumsum embedding_dense_backward
    grid_sampler_2d_backward grid_sampler_3d_backward histc index_add index_copy index_put
    _index_put_impl max_pool3d_with_indices_backward max_unpool2d max_unpool3d median
    nll_loss2d_forward nll_loss_forward put reflection_pad1d_backward reflection_pad2d_backward
    reflection_pad3d_backward repeat_interleave replication_pad1d_backward
    replication_pad2d_backward replication_pad3d_backward scatter scatter_add scatter_reduce
    upsample_bicubic2d_backward upsample_bilinear2d_backward upsample_linear1d_backward
    upsample_trilinear3d_backward
    """
)
# [2]
_NEW: Final = _words(
    """
    empty empty_like empty_strided new_empty new_empty_strided
    """
)
_IEEE: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool)


def name_of(operator: Any) -> str:
    """The name of an operator of torch in the tables, whatever its overload; "" for others'."""
    namespace, _, name = str(getattr(operator, "_schema", operator).name).partition("::")
    if namespace != "aten":
        return ""
    return name.removesuffix("_")


def is_listed(name: str) -> bool:
    """Whether anything is known of an operator of this name."""
    return any(name in names for names in (_MOVES, _ROUNDS, _FUNCTIONS, _SUMS, _LISTS, _NEW))


def documented(name: str, given: list[Any], named: dict[str, Any]) -> Documented:
    """What torch promises of a call.

    Args:
        name: The operator, as :func:`name_of` returns it.
        given: All arguments and results, without lists around them.
        named: The arguments, by their names in the schema.
    """
    if any(isinstance(each, torch.Tensor) and not _is_usual(each) for each in given):
        return UNKNOWN
    if name in _MOVES:
        return _MOVED
    if name in _ROUNDS:
        return _ROUNDED if _is_plain(named) else _FUNCTION
    if name in _FUNCTIONS:
        return _FUNCTION
    if name in _NEW:
        return _FILLED if is_strict() and _fills() else _OFF
    if name in _LISTS:
        return _SUMMED if is_strict() else _LISTED
    if name in _SUMS:
        return _SUMMED if is_strict() else _OFF
    return UNKNOWN


def is_strict() -> bool:
    """Whether torch raises rather than run what is not deterministic."""
    return (
        torch.are_deterministic_algorithms_enabled()
        and not torch.is_deterministic_algorithms_warn_only_enabled()
    )


def _fills() -> bool:
    settings: Any = torch.utils.deterministic  # a module whose attribute is a property
    return bool(settings.fill_uninitialized_memory)


def _is_usual(tensor: torch.Tensor) -> bool:
    """Strided, and of real numbers: the tables are about these."""
    return (
        tensor.layout is torch.strided
        and not tensor.dtype.is_complex
        and not tensor.is_quantized
        and not tensor.is_nested
    )


def _is_plain(named: dict[str, Any]) -> bool:
    """Whether IEEE 754 tells the result.

    It does not with a factor, which is fused or not, with a rule of division, or where a float
    becomes an integer or 8 bits wide: out of range, that is for the code to say.
    """
    if named.get("alpha", 1) != 1 or named.get("rounding_mode") is not None:
        return False
    source, wanted = named.get("self"), named.get("dtype")
    if "src" in named:  # copy_ writes self
        source, wanted = named["src"], getattr(source, "dtype", None)
    floats = isinstance(source, torch.Tensor) and source.dtype.is_floating_point
    return not floats or wanted is None or wanted in _IEEE
