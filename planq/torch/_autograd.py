"""Gradients of the operators that have one: straight-through, by planq's backward operators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch

from planq._policy import held, in_force
from planq.torch._calls import Overload, gradient_error, is_dual

_OPERATOR: Final = "fake_quantize"
_FIELDS: Final = ("scope", "mode_", "q_min", "q_max", "zero_point_dtype", "quotient")
_PROMISES: Final = ("determinism", "batch_invariant", "max_ulp")
_NATIVE: Final[Any] = torch._C

Run = Callable[..., list[torch.Tensor]]


class _FakeQuantize(torch.autograd.Function):
    """The operator as an autograd function; scales and zero points that it measures have none."""

    @staticmethod
    def forward(ctx: Any, run: Run, names: tuple[str, ...], *args: Any) -> tuple[Any, ...]:
        given, results = dict(zip(names, args, strict=True)), run(*args)
        ctx.policy = in_force()
        ctx.mark_non_differentiable(*results[1:])
        ctx.fields = {name: given[name] for name in (*_FIELDS, *_PROMISES)}
        scale, zero_point = given["scale"], given["zero_point"]
        if given["dynamic"]:
            scale, zero_point, *_ = *results[1:], None
            ctx.fields["zero_point_dtype"] = None
        ctx.save_for_backward(given["input"], scale, zero_point)
        ctx.place = 2 + names.index("input")
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        source, scale, zero_point = ctx.saved_tensors
        found: list[Any] = [None] * len(ctx.needs_input_grad)
        with held(ctx.policy):
            found[ctx.place] = torch.ops.planq.fake_quantize_backward(
                grads[0].contiguous(), source, scale, zero_point, **ctx.fields
            )
        return tuple(found)


def register(library: Any, name: str, overload: Overload) -> bool:
    """Registers the gradient of an overload; returns whether it has one."""
    if name != _OPERATOR:
        return False
    names = tuple(argument.name for argument in overload.arguments)
    apply: Any = _FakeQuantize.apply

    def below(keyset: Any, *args: Any) -> Any:
        with _NATIVE._AutoDispatchBelowAutograd():
            operator = torch.ops.planq.fake_quantize.default
            return operator.redispatch(keyset & _NATIVE._after_autograd_keyset, *args)

    def autograd(keyset: Any, *args: Any) -> Any:
        wanted = [
            argument
            for argument, given in zip(names, args, strict=False)
            if isinstance(given, torch.Tensor) and given.requires_grad
        ]
        for argument, given in zip(names, args, strict=False):
            if isinstance(given, torch.Tensor) and is_dual(given):
                raise gradient_error(argument)
        if not wanted or not torch.is_grad_enabled():
            return below(keyset, *args)
        call = overload.whole(args)
        given = dict(zip(names, call, strict=True))
        # A transform would need the backward operator's own derivative.
        differentiable = given["convention"] == "planq" and not in_transform()
        for argument in wanted:
            if argument != "input" or not differentiable:
                raise gradient_error(argument)
        return list(apply(functools.partial(below, keyset), names, *call))

    library.impl(name, autograd, "Autograd", with_keyset=True)
    return True


def in_transform() -> bool:
    """Whether a transform of ``torch.func`` is active."""
    return bool(_NATIVE._are_functorch_transforms_active())
