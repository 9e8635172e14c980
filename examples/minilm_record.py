"""The digests of a run in a small JSON file, and the numbers that a machine needs to check them.

Activations of the model take tens of megabytes. A record tells their shapes, magnitudes and
digests. It has the digests of two results of each product. One is of the activations, which are in
a file beside the record, where there is one. The other is of hashed numbers, which stand for
weights and activations, and which every machine makes again to the bit.
"""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import minilm_torch
import planq

if TYPE_CHECKING:
    from collections.abc import Iterable

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
# Of kernels that differ by what the processor has, the newest.
INSTRUCTION_SETS = {
    "AMX": "amx_int8",
    "AVX-512 VNNI": "avx512_vnni",
    "AVX-512": "avx512f",
    "AVX2": "avx2",
}
BITS = 24


def machine() -> dict[str, str]:
    """What computed the digests."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    told = dict(reversed([[part.strip() for part in x.split(":", 1)] for x in lines if ":" in x]))
    flags = told.get("flags", "").split()
    found = [name for name, flag in INSTRUCTION_SETS.items() if flag in flags]
    build = planq.build_info()
    return {
        "processor": told.get("model name", platform.machine()),
        "instruction_set": found[0] if found else "unknown",
        "planq": f"{build.version}, build {build.build_id}",
        "torch": torch.__version__,
    }


def described(x: torch.Tensor) -> dict[str, Any]:
    """Shape, type, the exponent of the greatest magnitude, and whether any is negative."""
    exponent = int(np.frexp(float(x.float().abs().max()))[1])
    dtype = str(x.dtype).removeprefix("torch.")
    signed = bool((x < 0).any())
    return {"shape": list(x.shape), "dtype": dtype, "exponent": exponent, "signed": signed}


def hashed(key: str, told: dict[str, Any]) -> torch.Tensor:
    """Numbers of such a description that are the same on every machine.

    Element i is `k * 2**(exponent - 24 - s)`: the odd k of 24 bits, its sign and s of 0 to 7 are
    bits of SplitMix64's number i, whose seed is the key. All of it is exact in float32, which may
    then be rounded to bfloat16.

    Args:
        key: A number in hexadecimal digits.
        told: What described() returned.
    """
    count = int(np.prod(told["shape"]))
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64(int(key, 16))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    x ^= x >> np.uint64(31)
    size = (x >> np.uint64(64 - BITS)).astype(np.int32) | 1
    if told["signed"]:
        size *= 1 - 2 * (x & np.uint64(1)).astype(np.int32)
    exponent = told["exponent"] - BITS - ((x >> np.uint64(1)) & np.uint64(7)).astype(np.int32)
    made = torch.from_numpy(np.ldexp(size.astype(np.float32), exponent))
    return made.reshape(told["shape"]).to(DTYPES[told["dtype"]])


def without_padding(x: torch.Tensor, lengths: list[int], *, square: bool) -> torch.Tensor:
    """Zeros for the tokens beyond the end of each sentence."""
    x = x.clone()
    for one, length in enumerate(lengths):
        x[one, ..., length:, :] = 0
        if square:
            x[one, ..., length:] = 0
    return x


class Record:
    """What one machine found.

    Attributes:
        told: `machine`; `lengths`, tokens of each sentence; `arrays`, descriptions of them by
            digests of their bits; `schemes`, of each the digests of all its products; `products`,
            each with its scheme, name, class, arrays, and the digests of its results. `digest` is
            of what activations give, `hashed` of what hashed numbers give.
    """

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told

    @classmethod
    def made(
        cls,
        schemes: Iterable[minilm_torch.Scheme],
        activations: dict[str, Any],
        tensors: dict[str, torch.Tensor],
    ) -> Record:
        """That of a run on the host, which computes the results of hashed numbers as well.

        Args:
            schemes: Those of the run.
            activations: What the record tells of them: `lengths`, `schemes` and `products`.
            tensors: What the products are made of and were fed, by digests.
        """
        lengths = activations["lengths"]
        arrays = {key: described(x) for key, x in tensors.items()}
        record = cls({"machine": machine(), "arrays": arrays} | activations)
        together = minilm_torch.ways(len(lengths))["together"]
        for scheme in schemes:
            found = minilm_torch.digests(record.fed(scheme), lengths, together, "cpu")
            record.told["schemes"][scheme.name]["hashed"] = found.every
            for entry, digest in zip(record.entries(scheme), found.each, strict=True):
                entry["hashed"] = digest
        return record

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(self.told, indent=1) + "\n")

    @classmethod
    def read(cls, file: Path) -> Record:
        return cls(json.loads(file.read_text()))

    def entries(self, scheme: minilm_torch.Scheme) -> list[dict[str, Any]]:
        """The products of a scheme."""
        return [each for each in self.told["products"] if each["scheme"] == scheme.name]

    def fed(self, scheme: minilm_torch.Scheme) -> list[minilm_torch.Fed]:
        """They, made of hashed numbers and fed these."""
        kinds = {each.__name__: each for each in scheme.kinds}
        return [self._fed(kinds[entry["kind"]], entry) for entry in self.entries(scheme)]

    def _fed(self, kind: type[minilm_torch.Product], entry: dict[str, Any]) -> minilm_torch.Fed:
        made_of, operands = (
            [hashed(key, self.told["arrays"][key]) for key in entry[part]]
            for part in ("made_of", "operands")
        )
        given = (
            without_padding(x, self.told["lengths"], square=square)
            for x, square in zip(operands, kind.squares[:-1], strict=True)
        )
        return minilm_torch.Fed(entry["name"], kind(*made_of), tuple(given))


def digest(x: torch.Tensor) -> str:
    """Of a tensor's bits: the name of an array."""
    return hashlib.sha256(x.contiguous().view(torch.uint8).numpy()).hexdigest()[:16]
