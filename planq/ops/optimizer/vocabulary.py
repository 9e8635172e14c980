"""The enumerations of descriptors of the optimizer family."""

from planq.dtypes import Vocabulary


class OptimizerAlgorithm(Vocabulary):
    """The update rule of an optimizer.

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

    ``FLOAT32``: as it is. ``BLOCKWISE8``: 8-bit codes, with an absmax for each block. ``STATIC8``:
    the same with the whole tensor as one block.
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
    """The factor by which the update of a tensor is multiplied.

    ``NONE``: 1. ``LAYERWISE``: LAMB's or LARS's ratio of norms. ``CLIP``: at most 1, so that the
    norm of the update is at most ``max_unorm`` times the parameter's. ``DEFAULT``: LAYERWISE for
    LAMB and LARS, NONE for the others.
    """

    DEFAULT = "default"
    NONE = "none"
    LAYERWISE = "layerwise"
    CLIP = "clip"


class NonFiniteGradient(Vocabulary):
    """What a gradient that is NaN or infinite does.

    ``PROPAGATE``: it is used like any other. ``SKIP_ELEMENT``: its parameter and state stay as they
    are. ``SKIP_STEP``: nothing changes if the operand ``found_nonfinite`` is not 0.
    """

    PROPAGATE = "propagate"
    SKIP_ELEMENT = "skip_element"
    SKIP_STEP = "skip_step"
