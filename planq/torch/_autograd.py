"""Gradients, of what has one: straight-through, by planq's own backward operators."""

from __future__ import annotations

from typing import Any, Final

import torch

from planq.torch._calls import Overload, gradient_error

_OPERATOR: Final = "fake_quantize"


def register(library: torch.library.Library, name: str, overload: Overload) -> bool:
    """Gives an overload its gradient; whether it has one."""
    if name != _OPERATOR:
        return False
    names = [argument.name for argument in overload.arguments]

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[torch.Tensor]) -> None:
        given = dict(zip(names, inputs, strict=True))
        # torch leaves arguments out that have their default.
        for argument, needed in zip(names, ctx.needs_input_grad, strict=False):
            if needed is True and argument != "input":
                raise gradient_error(argument)
        if given["convention"] != "planq" and ctx.needs_input_grad[names.index("input")]:
            raise gradient_error("input")
        ctx.dynamic = given["dynamic"]
        measured = [*output[1:], None, None] if ctx.dynamic else []
        scale, zero_point = measured[:2] or (given["scale"], given["zero_point"])
        ctx.save_for_backward(given["input"], scale, zero_point)
        ctx.fields = {
            field: given[field]
            for field in ("scope", "mode_", "q_min", "q_max", "zero_point_dtype", "quotient")
        }
        if ctx.dynamic:
            ctx.fields["zero_point_dtype"] = None

    def backward(ctx: Any, grads: list[torch.Tensor]) -> tuple[Any, ...]:
        source, scale, zero_point = ctx.saved_tensors
        grad = torch.ops.planq.fake_quantize_backward(
            grads[0].contiguous(), source, scale, zero_point, **ctx.fields
        )
        return (grad, *(None,) * (len(ctx.needs_input_grad) - 1))

    torch.library.register_autograd(
        f"planq::{name}", backward, setup_context=setup_context, lib=library
    )
    return True
