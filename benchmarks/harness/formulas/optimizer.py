"""A step of an optimizer as torch operations, and the optimizers of others."""

from __future__ import annotations

import importlib
import importlib.util
import math
import time
from typing import Any, Final

import torch

import planq
from harness.core.data import SCALARS
from harness.core.workload import Workload
from harness.formulas.segments import Operands
from harness.peers.peer import Peer

_BETAS: Final = (SCALARS["beta1"], SCALARS["beta2"])
_BY_MOMENTUM: Final = {"lr": SCALARS["lr"], "momentum": SCALARS["beta1"]}
_BY_RATE: Final = {"lr": SCALARS["lr"]}
_BY_BETAS: Final = {**_BY_RATE, "betas": _BETAS, "weight_decay": SCALARS["weight_decay"]}
# The classes of bitsandbytes, which with 8bit behind them have such states; LAMB's and LARS's
# have other trust ratios.
_BITSANDBYTES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "adam": ("AdamW", _BY_BETAS),
    "ademamix": ("AdEMAMix", _BY_RATE),
    "momentum": ("SGD", _BY_MOMENTUM),
    "rmsprop": ("RMSprop", _BY_RATE),
    "adagrad": ("Adagrad", _BY_RATE),
    "lion": ("Lion", _BY_BETAS),
}
_TORCH: Final[dict[str, tuple[Any, dict[str, Any]]]] = {
    "adam": (torch.optim.AdamW, _BY_BETAS),
    "momentum": (torch.optim.SGD, _BY_MOMENTUM),
}


class Step:
    """A step of Adam with float32 states, one tensor after another."""

    def __init__(self, desc: Any) -> None:
        plain = desc.weight_decay_mode is planq.WeightDecayMode.DECOUPLED
        plain &= desc.trust_ratio is planq.TrustRatio.NONE and not (desc.skip_zeros or desc.master)
        plain &= desc.nonfinite is planq.NonFiniteGradient.PROPAGATE and not desc.advance_step
        is_adam = desc.algorithm is planq.OptimizerAlgorithm.ADAM
        wide = desc.state_format is planq.StateFormat.FLOAT32
        rounds = desc.rounding is planq.Rounding.NEAREST_EVEN
        if not (plain and is_adam and wide and rounds):
            raise ValueError(f"no torch formula for {desc}")

    def __call__(self, given: Operands) -> tuple[list[torch.Tensor], ...]:
        """Parameters and both states; scalars are rounded once."""
        lr, b1, b2, t = (given[name] for name in ("lr", "beta1", "beta2", "step"))
        c1, c2 = 1 - _power(b1, t), math.sqrt(1 - _power(b2, t))
        keep, rate = _once(1 - lr * given["weight_decay"]), _once(lr * c2 / c1)
        eps, scale = _once(given["eps"] * c2), _once(given["gradient_scale"])
        lists = [given[name] for name in ("parameter", "gradient", "state1", "state2")]
        made: list[tuple[torch.Tensor, ...]] = []
        for p, gradient, m, v in zip(*lists, strict=True):
            g = gradient.float() * scale
            new_m = m * _once(b1) + g * _once(1 - b1)
            new_v = v * _once(b2) + (g * g) * _once(1 - b2)
            root = new_v.double().sqrt().float()  # that of float32 is not always the nearest
            u = new_m / (root + eps)
            made.append(((p.float() * keep - u * rate).to(p.dtype), new_m, new_v))
        return tuple(list(one) for one in zip(*made, strict=True))


def _once(x: float) -> float:
    """A scalar in float32."""
    return float(torch.tensor(x, dtype=torch.float32))


def _power(base: float, count: int) -> float:
    """By squaring, in doubles."""
    found = 1.0
    while count > 0:
        found, base, count = (found * base if count % 2 else found), base * base, count // 2
    return found


def _parameters(operands: Operands) -> list[torch.nn.Parameter]:
    """Copies of the parameters, with the gradients."""
    made = [torch.nn.Parameter(p.clone()) for p in operands["parameter"]]
    for p, gradient in zip(made, operands["gradient"], strict=True):
        p.grad = gradient
    return made


def torch_optimizer(name: str, workload: Workload, **how: bool) -> Peer | None:
    """An optimizer of torch; its states have the parameter's type."""
    desc = workload.case.descriptor
    if desc.algorithm not in _TORCH or desc.parameter_dtype != desc.gradient_dtype:
        return None
    make, arguments = _TORCH[desc.algorithm]
    states = len([name for name in desc.operands() if name.startswith("state")])
    launches: list[Any] = []
    for operands in workload.sets:
        params = _parameters(operands)
        if params[0].is_cuda and make is torch.optim.AdamW:
            how["capturable"] = True
        launches.append(make(params, **arguments, **how).step)
        launches[-1]()  # makes its states
    each = workload.sets[0]["parameter"][0].element_size()
    moved = sum(map(math.prod, desc.shapes)) * each * (3 + 2 * states)
    extra = moved - workload.case.traffic
    return Peer(name, launches, extra_bytes=extra, what=f"states in {desc.parameter_dtype}")


def bitsandbytes(workload: Workload) -> Peer | None:
    """Of the same kind and format; it waits for the device after each tensor."""
    desc = workload.case.descriptor
    if desc.algorithm not in _BITSANDBYTES or importlib.util.find_spec("bitsandbytes") is None:
        return None
    if desc.state_format is planq.StateFormat.STATIC8:
        return None
    library: Any = importlib.import_module("bitsandbytes.optim")
    name, arguments = _BITSANDBYTES[desc.algorithm]
    is_wide = desc.state_format is planq.StateFormat.FLOAT32
    make = getattr(library, name + ("" if is_wide else "8bit"))
    launches = [make(_parameters(operands), **arguments).step for operands in workload.sets]
    return Peer("bitsandbytes", launches, capturable=False)


def torchao(workload: Workload) -> Peer | None:
    """Its AdamW with state of 8 bits, which torch.compile makes for each shape."""
    desc = workload.case.descriptor
    missing = [name for name in ("torchao", "triton") if importlib.util.find_spec(name) is None]
    if missing or (desc.algorithm, desc.state_format) != ("adam", "blockwise8"):
        return None
    params = [_parameters(operands) for operands in workload.sets]
    if not params[0][0].is_cuda:
        return None
    make: Any = importlib.import_module("torchao.optim").AdamW8bit
    begin = time.perf_counter()
    launches = [make(some, **_BY_BETAS, block_size=desc.block_size).step for some in params]
    for launch in launches:
        launch()
    prepared = time.perf_counter() - begin
    # It counts steps on the host, which a graph would not.
    return Peer("torchao", launches, capturable=False, prepared=prepared)
