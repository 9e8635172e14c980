"""The product of a layer with a frozen weight, and the gradient of its input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch

import planq.torch  # noqa: F401  (it defines the operators)
from planq._policy import held, in_force
from planq.torch._words import word

_FORMATS: Final = {torch.float8_e8m0fnu: "mx", torch.float8_e4m3fn: "nvfp4"}
"""The convention of ``dequantize`` that scales of a byte mean."""

Fields = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Product:
    """An operator, and what its call has beside input and tensors.

    Attributes:
        operator: The operator's name.
        names: The names of its tensors, in the order in which they are passed.
        fields: Its other arguments, as torch takes them.
        activations: The scope by which activations are quantized as they come; None: they are not.
    """

    operator: str
    names: tuple[str, ...]
    fields: Fields
    activations: str | None = None


def multiply(x: torch.Tensor, product: Product, *tensors: torch.Tensor) -> torch.Tensor:
    """The product, with the gradient of its input if one is recorded."""
    if x.requires_grad and torch.is_grad_enabled():
        apply: Any = _FrozenWeight.apply
        result: torch.Tensor = apply(x, product, *tensors)
        return result
    return _multiplied(x, product, *tensors)


def _multiplied(x: torch.Tensor, product: Product, *tensors: torch.Tensor) -> torch.Tensor:
    """The product alone. Kernels take any strides but the innermost, which has to be 1."""
    rows = x if x.dim() > 1 else x.unsqueeze(0)
    if rows.stride(-1) != 1:
        rows = rows.contiguous()
    given = dict(zip(product.names, tensors, strict=True))
    y: torch.Tensor
    if product.activations is None:
        y = getattr(torch.ops.planq, product.operator)(rows, **given, **dict(product.fields))
    else:
        y = _of_codes(rows, product, given)
    return y if x.dim() > 1 else y.squeeze(0)


def _of_codes(x: torch.Tensor, product: Product, given: dict[str, torch.Tensor]) -> torch.Tensor:
    """The product of codes on both sides."""
    fields, scope, dtype = dict(product.fields), product.activations, word(x.dtype)
    y: torch.Tensor
    if product.operator == "linear_w8a8_dynamic":
        y = torch.ops.planq.linear_w8a8_dynamic(x, output_dtype=dtype, input_scope=scope, **given)
        return y
    codes, scale = torch.ops.planq.dynamic_range_quantize(x, "float8_e4m3fn", scope=scope)
    y = torch.ops.planq.linear_fp8(
        codes,
        input_scale=scale,
        output_dtype=dtype,
        weight_dtype=fields["code_dtype"],
        input_scope=scope,
        weight_scope=fields["weight_scope"],
        **given,
    )
    return y


def dequantized(dtype: torch.dtype, product: Product, *tensors: torch.Tensor) -> torch.Tensor:
    """The weight ``(n, k)`` in a floating dtype: what ``dequantize`` has of its codes."""
    given = dict(zip(product.names, tensors, strict=True))
    fields = dict(product.fields)
    if "block_size" in fields:
        return _of_blocks(dtype, given, fields)
    scale = given["weight_scale"]
    zero_point = given.get("weight_zero_point")
    result: torch.Tensor = torch.ops.planq.dequantize(
        given["weight"],
        scale,
        fields["code_dtype"],
        word(dtype),
        None if zero_point is None else zero_point.to(torch.int32),
        tensor_scale=given.get("tensor_scale"),
        shape=fields["weight_shape"],
        scope=fields["weight_scope"],
        mode_=fields.get("weight_mode", "symmetric"),
        nibble_order=fields.get("nibble_order", "low_first"),
        convention=_FORMATS.get(scale.dtype, "planq"),
    )
    return result


def _of_blocks(
    dtype: torch.dtype, given: dict[str, torch.Tensor], fields: dict[str, Any]
) -> torch.Tensor:
    result: torch.Tensor = torch.ops.planq.blockwise_dequantize(
        given["weight"],
        given["absmax"],
        fields["code_dtype"],
        word(dtype),
        fields["block_size"],
        codebook_tensor=given.get("codebook_tensor"),
        nested_absmax=given.get("nested_absmax"),
        nested_offset=given.get("nested_offset"),
        nested_codebook=given.get("nested_codebook"),
        shape=fields["weight_shape"],
        codebook=fields["codebook"],
        nested_block_size=fields.get("nested_block_size"),
        nibble_order=fields["nibble_order"],
    )
    return result


class _FrozenWeight(torch.autograd.Function):
    """``y = x W^T + b``, of which x alone has a gradient: ``dx = dy W``."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, product: Product, *tensors: torch.Tensor) -> Any:
        # A compiled program cannot keep a policy: its calls ask when they run.
        if not torch.compiler.is_compiling():
            ctx.policy = in_force()
        ctx.product = product
        ctx.save_for_backward(*tensors)
        return _multiplied(x, product, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        tensors = ctx.saved_tensors  # once: gradient checkpointing computes them for one look
        others = (None,) * (1 + len(tensors))
        if torch.compiler.is_compiling():
            return _gradient(grads[0], ctx.product, *tensors), *others
        with held(ctx.policy):
            return _gradient(grads[0], ctx.product, *tensors), *others


def _gradient(grad: torch.Tensor, product: Product, *tensors: torch.Tensor) -> torch.Tensor:
    """``dy W``, by planq's product of 16-bit matrices; it has none of float32, so by torch's."""
    weight = dequantized(grad.dtype, product, *tensors)
    rows = grad.reshape(-1, grad.shape[-1]).contiguous()
    if grad.dtype == torch.float32:
        # A backward pass may be inside of autocast.
        with torch.autocast(grad.device.type, enabled=False):
            found = rows @ weight
    else:
        found = torch.ops.planq.matmul(rows, weight, transpose_weight=True)
    return found.reshape(*grad.shape[:-1], weight.shape[-1])
