"""The formats of ``planq quantize``: which other programs read the file, and its layout for each.

A format decides the names of a weight's codes and scales, the schemes that its reader knows, the
weights that stay floating, and the entry in ``config.json``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import planq
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.gguf_mix import FILE_TYPES
from planq.checkpoint.layouts import Layout
from planq.checkpoint.schemes import FLOATING, GROUP_SIZE, GROUPED, Blocks, Groups, Scheme

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from planq.checkpoint.files import TensorEntry


class Format(StrEnum):
    """What ``--format`` takes."""

    PLAIN = "plain"
    COMPRESSED_TENSORS = "compressed-tensors"
    BITSANDBYTES = "bitsandbytes"
    GGUF = "gguf"


class Activations(StrEnum):
    """What ``--activations`` takes: whether a reader quantizes activations too."""

    NONE = "none"
    TOKEN = "token"


class QuantStorage(StrEnum):
    """What ``--quant-storage`` takes: the element type of the tensor that holds 4-bit codes."""

    UINT8 = "uint8"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


_INT8 = (Scheme.INT8_CHANNEL, Scheme.INT8_TENSOR)
_FLOAT8 = (Scheme.FP8_CHANNEL, Scheme.FP8_TENSOR, Scheme.FP8_BLOCK128)
_SCHEMES = {
    Format.PLAIN: tuple(scheme for scheme in Scheme if scheme not in FILE_TYPES),
    Format.COMPRESSED_TENSORS: (*_INT8, *_FLOAT8, *GROUPED),
    Format.BITSANDBYTES: (Scheme.INT8_CHANNEL, Scheme.NF4, Scheme.FP4),
    Format.GGUF: tuple(FILE_TYPES),
}
# The block sizes that bitsandbytes has kernels for.
_BLOCK_SIZES = tuple(2**power for power in range(5, 13))

# Parts of a name that indicate an embedding, an output layer, a norm or a router.
_FLOATING_PART = re.compile(
    r"embed|bias|^(wte|wpe|shared|score|classifier|cls|predictions|router|gate)$|head$|norm|^ln_"
)
# Last parts of a name that indicate a linear layer.
_LINEAR_PART = re.compile(
    r"^(q|k|v|o|qkv|kv|gate|up|down|gate_up|in|out|query|key|value|input|output)_(proj|lin|layer)$"
    r"|^(query|key|value|query_key_value|dense|dense_\w+|fc_?\w+|lin\d|linear\w*|W[qkvo]|Wqkv|pooler)$"
)
# Output layers that may share the weight of an embedding; then the file has none for them.
OUTPUT_LAYERS = (
    "cls.predictions.decoder",
    "embed_out",
    "generator_lm_head",
    "lm_head",
    "lm_head.decoder",
    "predictions.decoder",
    "proj_out",
    "vocab_projector",
)
_STRATEGIES: dict[Scheme, dict[str, Any]] = {
    Scheme.INT8_CHANNEL: {"num_bits": 8, "type": "int", "strategy": "channel"},
    Scheme.INT8_TENSOR: {"num_bits": 8, "type": "int", "strategy": "tensor"},
    **{key: {"num_bits": 4, "type": "int", "strategy": "group"} for key in GROUPED},
    Scheme.FP8_CHANNEL: {"num_bits": 8, "type": "float", "strategy": "channel"},
    Scheme.FP8_TENSOR: {"num_bits": 8, "type": "float", "strategy": "tensor"},
    Scheme.FP8_BLOCK128: {
        "num_bits": 8,
        "type": "float",
        "strategy": "block",
        "block_structure": [GROUP_SIZE, GROUP_SIZE],
    },
}


@dataclass(frozen=True, slots=True)
class Form:
    """A format with its options.

    Attributes:
        format: Who reads the file.
        activations: Whether its reader quantizes activations, too.
        quant_storage: The element type of the tensors that hold 4-bit codes of bitsandbytes.
    """

    format: Format = Format.PLAIN
    activations: Activations = Activations.NONE
    quant_storage: QuantStorage = QuantStorage.UINT8

    def check(self, scheme: Scheme, blocks: Blocks | None, *, calibrated: bool) -> None:
        """Refuses what the format's reader does not know.

        Raises:
            CheckpointError: A scheme, a block size or an option does not go with the format.
        """
        name = self.format.value
        if scheme not in _SCHEMES[self.format]:
            names = ", ".join(known.value for known in _SCHEMES[self.format])
            raise CheckpointError(f"--scheme: {name} has {names}, got {scheme.value}")
        if calibrated and self.format is not Format.PLAIN:
            raise CheckpointError(f"--calibrate: {name} measures its ranges; expected plain")
        self._check_blocks(blocks)
        self._check_activations(scheme)
        four_bits = self.format is Format.BITSANDBYTES and blocks is not None
        if self.quant_storage is not QuantStorage.UINT8 and not four_bits:
            raise CheckpointError("--quant-storage: only with bitsandbytes, and nf4 or fp4")

    def _check_blocks(self, blocks: Blocks | None) -> None:
        if self.format is Format.BITSANDBYTES and blocks and blocks.size not in _BLOCK_SIZES:
            sizes = ", ".join(map(str, _BLOCK_SIZES))
            raise CheckpointError(
                f"--block-size: bitsandbytes reads blocks of {sizes}, got {blocks.size}"
            )

    def _check_activations(self, scheme: Scheme) -> None:
        if self.activations is Activations.NONE:
            return
        if self.format is not Format.COMPRESSED_TENSORS or scheme in GROUPED:
            known = ", ".join(known.value for known in (*_INT8, *_FLOAT8))
            raise CheckpointError(f"--activations: only with compressed-tensors, and {known}")

    def layout(self, scheme: Scheme) -> Layout:
        """Returns how a weight with scales is laid out."""
        if self.format is Format.PLAIN:
            return Layout.PLAIN
        if self.format is Format.BITSANDBYTES:
            return Layout.ROWS
        packed = scheme in GROUPED or (scheme in _INT8 and self.activations is Activations.NONE)
        return Layout.PACKED if packed else Layout.NAIVE

    def rule(self) -> dict[str, Any]:
        """Returns the descriptor fields that the format prescribes for schemes with scales."""
        if self.format is Format.COMPRESSED_TENSORS:
            return {"convention": planq.Convention.COMPRESSED_TENSORS}
        if self.format is Format.BITSANDBYTES:  # which rounds a weight to float16 first
            return {"input_dtype": planq.DType.FLOAT16, "quotient": planq.Quotient.RATIO}
        return {}

    def leaves(self, name: str) -> bool:
        """Whether a weight of this name stays floating by default, as readers expect it to.

        Readers quantize linear layers alone. A weight stays as it is if its name indicates an
        embedding, an output layer, a norm or a router.
        """
        if self.format in (Format.PLAIN, Format.GGUF):
            return False
        module, _, last = name.rpartition(".")
        return last != "weight" or any(map(_FLOATING_PART.search, module.split(".")))

    def check_weight(self, scheme: Scheme, entry: TensorEntry, groups: Groups | None) -> None:
        """Refuses a weight that the format cannot hold.

        Raises:
            CheckpointError: Its name does not end with ``.weight``, its width is no multiple of the
                group or block.
        """
        if self.format is Format.PLAIN:
            return
        what = f"tensor {entry.name!r}: {self.format.value}"
        if not entry.name.endswith(".weight"):
            raise CheckpointError(f"{what} has weights whose names end with .weight; --exclude it")
        size = groups.size if groups else GROUP_SIZE
        cut = groups is not None or scheme is Scheme.FP8_BLOCK128
        if cut and self.format is Format.COMPRESSED_TENSORS and entry.shape[1] % size:
            wide = f"a width of {entry.shape[1]} is no multiple of {size}"
            raise CheckpointError(f"{what}: {wide}; --exclude it")

    def config(
        self,
        scheme: Scheme,
        blocks: Blocks | None,
        groups: Groups | None,
        floating: Sequence[str],
        dtype: str,
    ) -> dict[str, Any] | None:
        """Returns the entry ``quantization_config`` of ``config.json``; None for plain.

        Args:
            scheme: How weights are quantized.
            blocks: The blocks of a codebook scheme; None for the others.
            groups: The groups of a scheme that has some; None for the others.
            floating: The modules that the reader is to leave as they are.
            dtype: The type of the weights before quantization, in which bitsandbytes will multiply.
        """
        if self.format is Format.COMPRESSED_TENSORS:
            return self._compressed_tensors(scheme, groups, floating)
        if self.format is Format.BITSANDBYTES:
            return self._bitsandbytes(scheme, blocks, floating, dtype)
        return None

    def _compressed_tensors(
        self, scheme: Scheme, groups: Groups | None, floating: Sequence[str]
    ) -> dict[str, Any]:
        symmetric = scheme is not Scheme.UINT4_GROUP
        weights = {**_STRATEGIES[scheme], "symmetric": symmetric, "dynamic": False}
        if groups:
            weights["group_size"] = groups.size
        activations = None
        if self.activations is Activations.TOKEN:
            activations = {
                "num_bits": weights["num_bits"],
                "type": weights["type"],
                "strategy": "token",
                "symmetric": True,
                "dynamic": True,
            }
            if scheme is Scheme.FP8_BLOCK128:
                activations |= {"strategy": "group", "group_size": GROUP_SIZE}
        group = {
            "targets": ["Linear"],
            "weights": weights,
            "input_activations": activations,
            "output_activations": None,
        }
        return {
            "quant_method": "compressed-tensors",
            "quantization_status": "compressed",
            "format": self._compression(scheme),
            "config_groups": {"group_0": group},
            "ignore": list(floating),
            "kv_cache_scheme": None,
            "global_compression_ratio": None,
        }

    def _compression(self, scheme: Scheme) -> str:
        if self.layout(scheme) is Layout.PACKED:
            return "pack-quantized"
        if scheme in _INT8:
            return "int-quantized"
        return "naive-quantized" if self.activations is Activations.NONE else "float-quantized"

    def _bitsandbytes(
        self, scheme: Scheme, blocks: Blocks | None, floating: Sequence[str], dtype: str
    ) -> dict[str, Any]:
        config: dict[str, Any] = {
            "quant_method": "bitsandbytes",
            "load_in_4bit": blocks is not None,
            "load_in_8bit": blocks is None,
            # Present even if empty: without this key, transformers makes a list of its own.
            "llm_int8_skip_modules": list(floating),
        }
        if blocks:
            config |= {
                "bnb_4bit_quant_type": scheme.value,
                "bnb_4bit_use_double_quant": blocks.nested_size is not None,
                "bnb_4bit_compute_dtype": dtype,
                "bnb_4bit_quant_storage": self.quant_storage.value,
            }
        return config


PLAIN = Form()


def modules_of(names: Iterable[str]) -> list[str]:
    """Returns the modules whose weights these are, in order."""
    return sorted(name.removesuffix(".weight") for name in names if name.endswith(".weight"))


def is_linear(name: str, shape: tuple[int, ...], bias: tuple[int, ...] | None) -> bool:
    """Whether name, shape and bias of a weight leave no doubt that it is a linear layer's.

    A linear layer's bias has as many elements as its weight has rows. An embedding has no bias. A
    ``Conv1D`` of GPT-2 has a bias with as many elements as its weight has columns.

    Args:
        name: The weight.
        shape: Its two extents.
        bias: The shape of the module's bias; None where it has none.
    """
    rows, columns = shape
    if bias is not None and rows != columns:
        return bias == (rows,)
    module = name.removesuffix(".weight")
    return _LINEAR_PART.fullmatch(module.rpartition(".")[2]) is not None


def reaching(module: str) -> set[str]:
    """Returns every key of a skip list by which transformers leaves this module alone.

    A key matches the module of that name, all modules inside of it, and all modules whose names end
    with the key.
    """
    starts = {module[:at] for at, letter in enumerate(module) if letter == "."}
    return starts | {module[at:] for at in range(len(module))}


def usual_dtype(dtypes: Iterable[str]) -> str:
    """Returns planq's name for the type of weights, which come as the file's names.

    The type is float32 if the weights have several types, or there are none.
    """
    names = sorted({FLOATING[dtype].value for dtype in dtypes})
    return names[0] if len(names) == 1 else "float32"


def as_options(form: Form) -> Mapping[str, str]:
    """Returns the options of a format by name."""
    return {
        "format": form.format.value,
        "activations": form.activations.value,
        "quant_storage": form.quant_storage.value,
    }
