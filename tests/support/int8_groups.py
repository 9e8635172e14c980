"""Values for codes of int8 in groups of 32 by RATIO, as products with GGUF's weights take them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planq.audit.ops.affine.quantized_output import OF_GGUF
from planq.audit.ops.norm.cases import Case
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, Array, Arrays

F32 = np.float32
GROUP = 32
CODES = OF_GGUF
"""The fields of a problem, as `planq.networks.gemma3` asks for them."""

# Largest magnitudes about which a division or a product ends to be ordinary: of zeros, subnormal
# numbers, ratios that overflow, what a kernel may take for ordinary, and the largest number.
_PEAKS = (0.0, 1e-45, 1e-40, 2.0**-126, 3.7e-37, 3.8e-37, 2.0**-60, 2.0**60, 3.4028235e38)
PEAKS = tuple(
    float(peak)
    for middle in map(F32, _PEAKS)
    for peak in (middle, np.nextafter(middle, F32(0)), np.nextafter(middle, F32(3.4028235e38)))
)
SPECIAL = (np.nan, np.inf, -np.inf)


def hostile(rows: int, length: int, seed: int) -> Array:
    """Groups of every largest magnitude, of ties, of special values, and of usual numbers."""
    count = rows * length // GROUP
    made = inputs.make("normal", (count, GROUP), "float32", seed)
    shares = np.linspace(-1, 1, GROUP, dtype=F32)
    for group in range(count):
        kind, turn = (group + seed) % 4, (group + seed) // 4
        if kind == 0:
            made[group] = shares * F32(PEAKS[turn % len(PEAKS)])
            made[group, turn % 3 :: 7] = (0.0, -0.0)[turn % 2]
        elif kind == 1:  # a scale of a power of two, and quotients between two codes
            made[group] = (np.arange(GROUP, dtype=F32) * 4 - F32(63.5)) * F32(
                2.0 ** (turn % 90 - 45)
            )
            made[group, turn % GROUP] = F32(127 * 2.0 ** (turn % 90 - 45))
        elif kind == 2 and turn % 3 == 0:
            made[group, turn % GROUP] = SPECIAL[turn // 3 % 3]
    return made.reshape(rows, length)


def weights(length: int, seed: int) -> Array:
    """Powers of two by groups, so that what they multiply has every largest magnitude."""
    powers = F32(2) ** ((np.arange(length // GROUP) * 37 + seed) % 250 - 130).astype(F32)
    made = np.repeat(powers, GROUP)
    made[5::97] = 0.0
    return made


@dataclass(frozen=True)
class NormCase(Case):
    """Rows whose weights give their groups every largest magnitude."""

    def inputs(self) -> Arrays:
        """Of the weight's type, as near as it comes."""
        made = super().inputs()
        weight = weights(self.problem.shape[-1], self.seed)
        return {**made, "weight": weight.astype(FLOATS[self.problem.weight_dtype].dtype)}
