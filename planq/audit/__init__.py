"""Whether a GPU's tensor cores compute what the promises of floating products rest on.

Kernels of :class:`planq.MatmulDescriptor`, :class:`planq.LinearFp8Descriptor` and what is made of
these promise BIT_EXACT because a tensor core's sums have a model that the host computes, too:
docs/tensor-cores.md says what it is and how it was measured. A model that was measured can be
measured again, on the GPU at hand: :func:`probe`, ``planq audit``.
"""

from planq.audit.tensor_cores import CLASSES, PAIRS, Finding, Probe, probe

__all__ = ["CLASSES", "PAIRS", "Finding", "Probe", "probe"]
