"""The classes of `optimizer_step`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Scalar, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Rounding
from planq.ops.optimizer.vocabulary import (
    NonFiniteGradient,
    OptimizerAlgorithm,
    StateFormat,
    TrustRatio,
    WeightDecayMode,
)
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class OptimizerStepDescriptor(Descriptor):
    """Take a step of an optimizer for a list of tensors, with state of 32 or 8 bits, in place.

    When to use:
        Training with Adam, AdamW, AdEMAMix, SGD with momentum, RMSprop, Adagrad, Lion, LAMB or
        LARS: all tensors of a model in one plan, whose bits are those of tensor by tensor. States
        of 8 bits take a quarter of the memory. Scalars in memory (``lr``, ``step`` ...) let a
        captured graph train, with ``advance_step`` without any work between its replays.

    Formula:
        With g the gradient times ``gradient_scale``, p the parameter, all in float32, and scalars
        computed in float64 and rounded once:

        ADAM: ``m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g g;
        p -= (lr c2 / c1) (m / (sqrt(v) + eps c2))`` with ``c1 = 1 - beta1^step`` and
        ``c2 = sqrt(1 - beta2^step)``. ADEMAMIX: also ``n = beta3 n + (1 - beta3) g``,
        ``p -= lr c2 ((m / c1 + alpha n) / (sqrt(v) + eps c2))``. MOMENTUM:
        ``s = beta1 s + (1 - beta2) g`` (g at step 1; beta2 is the dampening), ``p -= lr s``,
        ``nesterov``: ``p -= lr (g + beta1 s)``. RMSPROP: ``s = beta1 s + (1 - beta1) g g;
        p -= lr g / (sqrt(s) + eps)``, ``centered``: ``h = beta1 h + (1 - beta1) g`` and
        ``s - h h`` under the root. ADAGRAD: ``s += g g; p -= lr g / (sqrt(s) + eps)``. LION:
        ``p -= lr sign(beta1 m + (1 - beta1) g); m = beta2 m + (1 - beta2) g``. LAMB: ADAM, with
        ``weight_decay p`` in the update, which is multiplied by ``|p| / |update|``. LARS:
        MOMENTUM of ``(g + weight_decay p)`` times ``max_unorm |p| / (|g| + weight_decay |p| +
        eps)``.

        CLIP: the update is multiplied by what keeps its norm at ``max_unorm |p|`` at most. Codes
        of states are those of ``blockwise_quantize`` with RECIPROCAL; a negative state whose code
        would be that of 0 gets the one below. docs/numerics/optimizer.md holds the contract.

    Dtypes:
        parameters and gradients float16, bfloat16, float32, each; states float32, or uint8 codes
        with float32 absmax; ``master``, ``update_norm``, codebooks float32.

    Shapes:
        Any list of shapes of rank 0 to 8, of any extents, 0 included; members of lists are
        contiguous. ``absmax`` has an element for each block of the flattened tensor, one with
        STATIC8.

    Workspace:
        None, but for trust ratios and STATIC8: ``plan.workspace_size()`` says.

    Guarantee:
        Every kernel is BIT_EXACT; a tensor's bits do not depend on the list that it is in (with
        STOCHASTIC: by its ``tensor_ids``). Each is batch-invariant where states are FLOAT32,
        without a trust ratio, SKIP_STEP and STOCHASTIC.

    Attributes:
        shapes: Shapes of the tensors.
        algorithm: Which optimizer.
        parameter_dtype: Element type of ``parameter``.
        gradient_dtype: Element type of ``gradient``.
        state_format: How states are stored.
        block_size: Elements that share an absmax with BLOCKWISE8: a power of two, 64 to 4096.
        weight_decay_mode: Where weight decay enters; LAYERWISE has it in the update.
        trust_ratio: The factor by which a tensor's update is multiplied.
        nesterov: MOMENTUM and LARS take Nesterov's step, see the formula.
        centered: RMSPROP subtracts the squared mean of gradients under the root.
        skip_zeros: Elements whose gradient is 0 stay as they are, with their state.
        nonfinite: What becomes of gradients that are NaN or infinite.
        rounding: How parameters of 16 bits are rounded.
        master: Whether parameters have a float32 copy, which is what is updated.
        advance_step: Whether ``step`` is incremented, in memory, before the step is taken.
        tensor_ids: Numbers that give each tensor its own draws with STOCHASTIC. Empty: 0, 1, ...

    Raises:
        DescriptorError: A field outside of the above; an option of another algorithm; LAMB or LARS
            without a trust ratio.

    Source:
        Formulas of torch.optim and bitsandbytes. Defects of bitsandbytes are corrected: absmax over
        a quarter of the tensor; gradient scale and weight decay ignored by some algorithms; a clip
        of updates that multiplies parameters; uninitialised states of skipped elements; norms
        summed in no fixed order.
    """

    operator: ClassVar[str] = "optimizer_step"

    shapes: tuple[Shape, ...]
    algorithm: OptimizerAlgorithm = OptimizerAlgorithm.ADAM
    parameter_dtype: DTypeField
    gradient_dtype: DTypeField
    state_format: StateFormat = StateFormat.FLOAT32
    block_size: int = 256
    weight_decay_mode: WeightDecayMode = WeightDecayMode.DECOUPLED
    trust_ratio: TrustRatio = TrustRatio.DEFAULT
    nesterov: bool = False
    centered: bool = False
    skip_zeros: bool = False
    nonfinite: NonFiniteGradient = NonFiniteGradient.PROPAGATE
    rounding: Rounding = Rounding.NEAREST_EVEN
    master: bool = False
    advance_step: bool = False
    tensor_ids: tuple[int, ...] = ()


@args_class
class OptimizerStepArgs:
    """Operands of :class:`OptimizerStepDescriptor`. Lists have a tensor for each shape.

    Attributes:
        parameter: Updated in place.
        gradient: The gradients.
        state1: m of ADAM, ADEMAMIX, LION and LAMB; s of the others; 0 before the first step, which
            is a code too: 127 of the signed dynamic map, 0 of the unsigned one.
        state2: v of ADAM, ADEMAMIX and LAMB; h of centered RMSPROP.
        state3: n of ADEMAMIX.
        absmax1: Of states of 8 bits: the largest magnitude of each block, 0 before the first step.
        absmax2: Likewise, of ``state2``.
        absmax3: Likewise, of ``state3``.
        master: The float32 parameters.
        update_norm: Where the norms of updates go, one element for each tensor; may be None.
        codebook1: 256 ascending values for the codes of ``state1``. None: the dynamic map, signed
            if the state is.
        codebook2: Likewise, of ``state2``.
        codebook3: Likewise, of ``state3``.
        found_nonfinite: With SKIP_STEP: nothing is done where it is not 0.
        seed: With STOCHASTIC: the key of the draws.
        offset: With STOCHASTIC: where their counter begins.
        lr: The learning rate.
        beta1: The decay of ``state1``; for LION the share of ``state1`` in the update.
        beta2: The decay of ``state2``; for LION that of ``state1``; for MOMENTUM the dampening.
        beta3: The decay of ``state3``.
        alpha: The weight of ``state3``.
        eps: Added to roots; of LARS to the norms.
        weight_decay: 0 where it is left out.
        gradient_scale: 1 where it is left out.
        max_unorm: With CLIP, the largest ratio of the update's norm to the parameter's; for LARS,
            the trust coefficient. 0 where it is left out, which clips nothing.
        step: The number of this step, from 1 on. With ``advance_step``, the number of the step
            before, in memory.
    """

    parameter: Iterable[Tensor]
    gradient: Iterable[Tensor]
    state1: Iterable[Tensor]
    state2: Iterable[Tensor] | None = None
    state3: Iterable[Tensor] | None = None
    absmax1: Iterable[Tensor] | None = None
    absmax2: Iterable[Tensor] | None = None
    absmax3: Iterable[Tensor] | None = None
    master: Iterable[Tensor] | None = None
    update_norm: Iterable[Tensor] | None = None
    codebook1: Tensor | None = None
    codebook2: Tensor | None = None
    codebook3: Tensor | None = None
    found_nonfinite: Scalar | None = None
    seed: Scalar | None = None
    offset: Scalar | None = None
    lr: Scalar
    beta1: Scalar | None = None
    beta2: Scalar | None = None
    beta3: Scalar | None = None
    alpha: Scalar | None = None
    eps: Scalar | None = None
    weight_decay: Scalar | None = None
    gradient_scale: Scalar | None = None
    max_unorm: Scalar | None = None
    step: Scalar


class OptimizerStepPlan(Plan):
    """A plan for :class:`OptimizerStepDescriptor`."""

    __slots__ = ()


register(OptimizerStepDescriptor, OptimizerStepArgs, OptimizerStepPlan)
