"""The optimizers, with the arguments that torch.optim or bitsandbytes give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Unpack

from planq.ops.optimizer import OptimizerAlgorithm, StateFormat, TrustRatio
from planq.torch.optim._optimizer import Optimizer
from planq.torch.optim._options import Number, Options, Values, refuse_other

_MAX_UNORM: Final = 1.0
_LARS_EPS: Final = 1e-8


class Adam(Optimizer):
    """Adam; weight decay is DECOUPLED, as bitsandbytes has it, unless an option says otherwise."""

    algorithm = OptimizerAlgorithm.ADAM
    signed = (True, False)

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of ``torch.optim.Adam``, and the options."""
        own = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, own, options)

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The rate, both betas and eps."""
        beta1, beta2 = options["betas"]
        return {"lr": options["lr"], "beta1": beta1, "beta2": beta2, "eps": options["eps"]}


class Adam8bit(Adam):
    """:class:`Adam` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class PagedAdam(Adam):
    """:class:`Adam` with state that pages."""

    default_paged = True


class PagedAdam8bit(Adam8bit):
    """:class:`Adam8bit` with state that pages."""

    default_paged = True


class AdamW(Adam):
    """AdamW: Adam with a weight decay of 0.01."""

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of ``torch.optim.AdamW``, and the options."""
        super().__init__(params, lr, betas, eps, weight_decay, **options)


class AdamW8bit(AdamW):
    """:class:`AdamW` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class PagedAdamW(AdamW):
    """:class:`AdamW` with state that pages."""

    default_paged = True


class PagedAdamW8bit(AdamW8bit):
    """:class:`AdamW8bit` with state that pages."""

    default_paged = True


class AdEMAMix(Optimizer):
    """AdEMAMix: Adam with a second, slower average of gradients.

    It has no schedules: change ``alpha`` and the third of ``betas`` in the param groups.
    """

    algorithm = OptimizerAlgorithm.ADEMAMIX
    signed = (True, False, True)

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        betas: tuple[float, float, float] = (0.9, 0.999, 0.9999),
        alpha: float = 5.0,
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of bitsandbytes' AdEMAMix, without schedules, and the options."""
        own = {"lr": lr, "betas": betas, "alpha": alpha, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, own, options)

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The rate, three betas, alpha and eps."""
        named = zip(("beta1", "beta2", "beta3"), options["betas"], strict=True)
        return {name: options[name] for name in ("lr", "alpha", "eps")} | dict(named)


class AdEMAMix8bit(AdEMAMix):
    """:class:`AdEMAMix` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class PagedAdEMAMix(AdEMAMix):
    """:class:`AdEMAMix` with state that pages."""

    default_paged = True


class PagedAdEMAMix8bit(AdEMAMix8bit):
    """:class:`AdEMAMix8bit` with state that pages."""

    default_paged = True


class Lion(Optimizer):
    """Lion: steps by signs."""

    algorithm = OptimizerAlgorithm.LION

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of bitsandbytes' Lion, and the options."""
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay}, options)

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The rate and both betas."""
        beta1, beta2 = options["betas"]
        return {"lr": options["lr"], "beta1": beta1, "beta2": beta2}


class Lion8bit(Lion):
    """:class:`Lion` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class PagedLion(Lion):
    """:class:`Lion` with state that pages."""

    default_paged = True


class PagedLion8bit(Lion8bit):
    """:class:`Lion8bit` with state that pages."""

    default_paged = True


class SGD(Optimizer):
    """Stochastic gradient descent with momentum."""

    algorithm = OptimizerAlgorithm.MOMENTUM

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of ``torch.optim.SGD``, and the options."""
        own: Values = {"lr": lr, "momentum": momentum, "dampening": dampening}
        super().__init__(
            params, own | {"weight_decay": weight_decay, "nesterov": nesterov}, options
        )

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The rate, momentum and dampening."""
        momentum, dampening = options["momentum"], options["dampening"]
        return {"lr": options["lr"], "beta1": momentum, "beta2": dampening}

    def refuse_idle(self, options: Mapping[str, Any]) -> None:
        """Refuses ``nesterov`` and ``dampening`` without momentum."""
        super().refuse_idle(options)
        if options["momentum"] == 0:
            refuse_other("nesterov", options, False, "without momentum, which is 0")
            refuse_other("dampening", options, 0, "without momentum, which is 0")

    def from_betas(self, betas: tuple[float, ...]) -> Values:
        """Momentum and dampening."""
        return {"momentum": betas[0], "dampening": betas[1]}


class SGD8bit(SGD):
    """:class:`SGD` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class RMSprop(Optimizer):
    """RMSprop, centered if wanted; without momentum."""

    algorithm = OptimizerAlgorithm.RMSPROP
    signed = (False,)

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        centered: bool = False,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of ``torch.optim.RMSprop`` but momentum, and the options."""
        own: Values = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**own, "centered": centered}, options)

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The rate, alpha and eps."""
        return {"lr": options["lr"], "beta1": options["alpha"], "eps": options["eps"]}

    def from_betas(self, betas: tuple[float, ...]) -> Values:
        """The decay ``alpha``."""
        return {"alpha": betas[0]}


class RMSprop8bit(RMSprop):
    """:class:`RMSprop` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class Adagrad(Optimizer):
    """Adagrad, without a decay of the learning rate."""

    algorithm = OptimizerAlgorithm.ADAGRAD
    signed = (False,)

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-2,
        weight_decay: float = 0.0,
        eps: float = 1e-10,
        **options: Unpack[Options],
    ) -> None:
        """Takes arguments of ``torch.optim.Adagrad``, and the options."""
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "eps": eps}, options)

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The rate and eps."""
        return {"lr": options["lr"], "eps": options["eps"]}


class Adagrad8bit(Adagrad):
    """:class:`Adagrad` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class LAMB(Adam):
    """LAMB: Adam with a trust ratio for each tensor; ``trust_ratio="clip"`` as bitsandbytes.

    ``max_unorm`` belongs to CLIP, and is refused without it.
    """

    algorithm = OptimizerAlgorithm.LAMB

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_unorm: float = _MAX_UNORM,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of bitsandbytes' LAMB, and the options."""
        super().__init__(params, lr, betas, eps, weight_decay, **options)
        self._also(max_unorm=max_unorm)

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The scalars of Adam, and the bound of CLIP."""
        clips = options["trust_ratio"] is TrustRatio.CLIP
        return super().scalars(options) | ({"max_unorm": options["max_unorm"]} if clips else {})

    def refuse_idle(self, options: Mapping[str, Any]) -> None:
        """Refuses ``max_unorm`` without CLIP."""
        super().refuse_idle(options)
        if options["trust_ratio"] is not TrustRatio.CLIP:
            refuse_other("max_unorm", options, _MAX_UNORM, "without trust_ratio CLIP")


class LAMB8bit(LAMB):
    """:class:`LAMB` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class LARS(SGD):
    """LARS: momentum with a trust ratio for each tensor; ``trust_ratio="clip"`` likewise.

    ``max_unorm`` is the trust coefficient, or the bound of CLIP. CLIP has no ``eps``.
    """

    algorithm = OptimizerAlgorithm.LARS

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        max_unorm: float = 0.02,
        eps: float = _LARS_EPS,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of bitsandbytes' LARS, and the options."""
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, **options)
        self._also(max_unorm=max_unorm, eps=eps)

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The scalars of SGD, ``max_unorm``, and for LAYERWISE ``eps``."""
        found = super().scalars(options) | {"max_unorm": options["max_unorm"]}
        clips = options["trust_ratio"] is TrustRatio.CLIP
        return found if clips else found | {"eps": options["eps"]}

    def refuse_idle(self, options: Mapping[str, Any]) -> None:
        """Refuses ``eps`` with CLIP, which does not divide by norms."""
        super().refuse_idle(options)
        if options["trust_ratio"] is TrustRatio.CLIP:
            refuse_other("eps", options, _LARS_EPS, "with trust_ratio CLIP")


class LARS8bit(LARS):
    """:class:`LARS` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8
