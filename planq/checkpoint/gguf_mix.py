"""Which type each tensor of a GGUF file gets: the rule of llama-quantize.

A scheme is named as llama-quantize names it, after the type of most tensors. Some tensors get more
bits: the output layer, the values of attention, the second matrix of feed-forward networks. A type
whose blocks do not divide a row falls back to one whose blocks do. There is no importance matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.gguf_header import TYPES
from planq.checkpoint.schemes import Scheme

BLOCKS = {block.name: block for block in TYPES.values()}


class FileType(NamedTuple):
    """A mix of types: the number that a file tells it by, and the type of most tensors."""

    number: int
    default: str


FILE_TYPES = {
    Scheme.F32: FileType(0, "F32"),
    Scheme.F16: FileType(1, "F16"),
    Scheme.BF16: FileType(32, "BF16"),
    Scheme.Q8_0: FileType(7, "Q8_0"),
    Scheme.Q6_K: FileType(18, "Q6_K"),
    Scheme.Q5_K_M: FileType(17, "Q5_K"),
    Scheme.Q5_K_S: FileType(16, "Q5_K"),
    Scheme.Q5_1: FileType(9, "Q5_1"),
    Scheme.Q5_0: FileType(8, "Q5_0"),
    Scheme.Q4_K_M: FileType(15, "Q4_K"),
    Scheme.Q4_K_S: FileType(14, "Q4_K"),
    Scheme.Q4_1: FileType(3, "Q4_1"),
    Scheme.Q4_0: FileType(2, "Q4_0"),
    Scheme.IQ4_NL: FileType(25, "IQ4_NL"),
    Scheme.IQ4_XS: FileType(30, "IQ4_XS"),
    Scheme.Q3_K_L: FileType(13, "Q3_K"),
    Scheme.Q3_K_M: FileType(12, "Q3_K"),
    Scheme.Q3_K_S: FileType(11, "Q3_K"),
    Scheme.Q2_K: FileType(10, "Q2_K"),
    Scheme.MXFP4: FileType(38, "MXFP4"),
    Scheme.NVFP4: FileType(39, "NVFP4"),
    Scheme.TQ2_0: FileType(37, "TQ2_0"),
    Scheme.TQ1_0: FileType(36, "TQ1_0"),
    Scheme.Q2_0: FileType(41, "Q2_0"),
    Scheme.Q1_0: FileType(40, "Q1_0"),
}
"""The schemes of GGUF files."""

# Types of numbers, which have no blocks.
PLAIN = ("F32", "F16", "BF16")

_FALLBACK = {
    "IQ4_XS": "IQ4_NL",
    **dict.fromkeys(("Q2_0", "Q2_K", "Q3_K", "TQ1_0", "TQ2_0"), "Q4_0"),
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"


@dataclass(frozen=True, slots=True)
class Mix:
    """What the rule asks of a model.

    Attributes:
        scheme: The mix.
        layers: How many blocks the model has.
        shared: How many heads of queries share one of values.
        tied: Whether the embedding is the output layer, too.
        large: Whether llama.cpp takes it for Llama 70B, whose values get more bits.
    """

    scheme: Scheme
    layers: int
    shared: int
    tied: bool
    large: bool

    def type_of(self, name: str, row: int) -> str:
        """Returns the type of a weight that may be quantized.

        Args:
            name: Its name in the file.
            row: The elements of a row.

        Raises:
            CheckpointError: The type has no other one to fall back to.
        """
        default = FILE_TYPES[self.scheme].default
        if default in PLAIN:
            return default
        return _fitting(name, self._wanted(name, row, default), row)

    def _wanted(self, name: str, row: int, default: str) -> str:
        """The type before any fall-back."""
        if name == _OUTPUT or (name == _EMBEDDING and self.tied):
            if row % BLOCKS[default].elements or default == "Q8_0":
                return "Q8_0"
            return "Q6_K"
        if name == _EMBEDDING:
            few = self.scheme in (Scheme.TQ1_0, Scheme.TQ2_0, Scheme.Q2_0)
            return "Q4_K" if few else default
        _, layer, part = name.split(".", 2) if name.startswith("blk.") else ("", "0", "")
        if part == "attn_v.weight":
            wanted = self._values(int(layer)) or default
            return "Q5_K" if self.large and wanted in ("Q3_K", "Q4_K") else wanted
        if part == "ffn_down.weight":
            return self._down(int(layer)) or default
        if part == "attn_output.weight":
            more = {Scheme.Q2_K: "Q3_K", Scheme.Q3_K_M: "Q4_K", Scheme.Q3_K_L: "Q5_K"}
            return more.get(self.scheme, default)
        return default

    def _values(self, layer: int) -> str | None:
        """The type of the values of attention, if not the default."""
        match self.scheme:
            case Scheme.Q2_K:
                return "Q4_K" if self.shared >= 4 else "Q3_K"
            case Scheme.Q3_K_M:
                return "Q5_K" if layer < 2 else "Q4_K"
            case Scheme.Q3_K_L:
                return "Q5_K"
            case Scheme.IQ4_NL | Scheme.IQ4_XS if self.shared >= 4:
                return "Q5_K"
            case Scheme.Q4_K_M | Scheme.Q5_K_M if self._more_bits(layer):
                return "Q6_K"
            case Scheme.Q4_K_S if layer < 4:
                return "Q5_K"
        return None

    def _down(self, layer: int) -> str | None:
        """The type of the second matrix of a feed-forward network, if not the default."""
        match self.scheme:
            case Scheme.Q2_K:
                return "Q3_K"
            case Scheme.Q3_K_M:
                return "Q5_K" if layer < self.layers // 16 else "Q4_K"
            case Scheme.Q3_K_L:
                return "Q5_K"
            case Scheme.Q4_K_M | Scheme.Q5_K_M if self._more_bits(layer):
                return "Q6_K"
            case Scheme.Q4_K_S | Scheme.IQ4_NL | Scheme.IQ4_XS if layer < self.layers // 8:
                return "Q5_K"
        return None

    def _more_bits(self, layer: int) -> bool:
        """Whether a layer is of the first eighth, the last one, or every third between."""
        eighth = self.layers // 8
        return layer < eighth or layer >= 7 * self.layers // 8 or (layer - eighth) % 3 == 2


def _fitting(name: str, wanted: str, row: int) -> str:
    """The type itself, or the one it falls back to, whose blocks divide a row."""
    if row % BLOCKS[wanted].elements == 0:
        return wanted
    if wanted not in _FALLBACK:
        blocks = f"rows of a multiple of {BLOCKS[wanted].elements} elements for {wanted}"
        raise CheckpointError(f"tensor {name!r}: expected {blocks}, got {row}; --exclude it")
    found = _FALLBACK[wanted]
    return "F16" if row % BLOCKS[found].elements else found
