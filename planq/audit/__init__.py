"""Whether a GPU's tensor cores compute floating products as the host's model of them says.

Kernels of :class:`planq.MatmulDescriptor`, of :class:`planq.LinearFp8Descriptor` and of operators
built on them promise BIT_EXACT. The promise holds because the host computes a model of how tensor
cores sum. docs/tensor-cores.md describes the model and how it was measured. :func:`probe` and
``planq audit`` repeat the measurement on the GPU at hand.
"""

from planq.audit.tensor_cores import CLASSES, PAIRS, Finding, Probe, probe

__all__ = ["CLASSES", "PAIRS", "Finding", "Probe", "probe"]
