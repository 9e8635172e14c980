"""What every optimizer takes beside its own arguments."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, TypedDict

import torch

from planq.dtypes import NonFiniteGradient, Rounding, StateFormat, TrustRatio, WeightDecayMode

Number: TypeAlias = "float | torch.Tensor"
Values: TypeAlias = dict[str, Any]


class Options(TypedDict, total=False):
    """What every optimizer takes beside its own arguments.

    Attributes:
        state_format: FLOAT32, BLOCKWISE8 or STATIC8; the ``8bit`` classes: BLOCKWISE8.
        min_8bit_size: Parameters with fewer elements have state of 32 bits; 4096.
        block_size: Elements of a block of BLOCKWISE8; 256.
        weight_decay_mode: DECOUPLED as in AdamW and in bitsandbytes, COUPLED or AFTER.
        trust_ratio: By what updates are multiplied; LAMB and LARS: LAYERWISE.
        skip_zeros: Elements whose gradient is 0 stay as they are.
        nonfinite: What becomes of gradients that are NaN or infinite: PROPAGATE or SKIP_ELEMENT. A
            GradScaler skips whole steps.
        rounding: STOCHASTIC draws the parameters of 16 bits.
        seed: Of the draws.
        gradient_scale: By which gradients are multiplied; 1.
        paged: States of parameters with 100,000 elements or more are memory that pages; the
            ``Paged`` classes: yes.
    """

    state_format: StateFormat | str
    min_8bit_size: int
    block_size: int
    weight_decay_mode: WeightDecayMode | str
    trust_ratio: TrustRatio | str
    skip_zeros: bool
    nonfinite: NonFiniteGradient | str
    rounding: Rounding | str
    seed: int
    gradient_scale: Number
    paged: bool


DEFAULTS: Final[Options] = {
    "state_format": StateFormat.FLOAT32,
    "min_8bit_size": 4096,
    "block_size": 256,
    "weight_decay_mode": WeightDecayMode.DECOUPLED,
    "trust_ratio": TrustRatio.DEFAULT,
    "skip_zeros": False,
    "nonfinite": NonFiniteGradient.PROPAGATE,
    "rounding": Rounding.NEAREST_EVEN,
    "seed": 0,
    "gradient_scale": 1.0,
    "paged": False,
}
