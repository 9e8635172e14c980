"""The enumerations of descriptors of the optimizer family."""

from planq.dtypes import Vocabulary


class OptimizerAlgorithm(Vocabulary):
    """What an optimizer keeps of gradients, and makes of them.

    ``ADAM``: also AdamW, by the mode of decay. ``MOMENTUM``: SGD with momentum. ``LAMB`` and
    ``LARS`` are Adam and momentum with a trust ratio for each tensor. docs/numerics/optimizer.md
    has the formulas.
    """

    ADAM = "adam"
    ADEMAMIX = "ademamix"
    MOMENTUM = "momentum"
    RMSPROP = "rmsprop"
    ADAGRAD = "adagrad"
    LION = "lion"
    LAMB = "lamb"
    LARS = "lars"


class StateFormat(Vocabulary):
    """How an optimizer's state is stored.

    ``FLOAT32``: as it is. ``BLOCKWISE8``: codes of a byte, and the largest magnitude of each block.
    ``STATIC8``: the same with one block, the tensor.
    """

    FLOAT32 = "float32"
    BLOCKWISE8 = "blockwise8"
    STATIC8 = "static8"


class WeightDecayMode(Vocabulary):
    """Where weight decay enters a step.

    ``DECOUPLED``: parameters shrink before the update (AdamW). ``COUPLED``: it is added to the
    gradient (L2). ``AFTER``: parameters shrink after the update, and the update with them
    (bitsandbytes' Adam on CUDA).
    """

    DECOUPLED = "decoupled"
    COUPLED = "coupled"
    AFTER = "after"


class TrustRatio(Vocabulary):
    """By what the update of a tensor is multiplied.

    ``NONE``: by 1. ``LAYERWISE``: by LAMB's or LARS's ratio of norms. ``CLIP``: by what keeps its
    norm below ``max_unorm`` times the parameter's. ``DEFAULT``: LAYERWISE for LAMB and LARS, NONE
    for the others.
    """

    DEFAULT = "default"
    NONE = "none"
    LAYERWISE = "layerwise"
    CLIP = "clip"


class NonFiniteGradient(Vocabulary):
    """What becomes of a gradient that is NaN or infinite.

    ``PROPAGATE``: it is computed with. ``SKIP_ELEMENT``: its parameter and state stay as they are.
    ``SKIP_STEP``: everything stays where the operand ``found_nonfinite`` is not 0.
    """

    PROPAGATE = "propagate"
    SKIP_ELEMENT = "skip_element"
    SKIP_STEP = "skip_step"
