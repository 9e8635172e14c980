"""A linear layer of a checkpoint: how planq runs it, and its operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

import planq
from planq.checkpoint.peers.parts import SCALE_VALUES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planq.arguments import DTypeField
    from planq.checkpoint.peers.parts import Array, Part

LinearDescriptor = planq.Linear4BitDescriptor | planq.LinearMixedDescriptor


class StoredAs(StrEnum):
    """The formats of layers."""

    GPTQ = "gptq"
    GPTQ_V2 = "gptq_v2"
    AWQ = "awq"
    PACK_QUANTIZED = "pack-quantized"
    MXFP4_PACK_QUANTIZED = "mxfp4-pack-quantized"
    NVFP4_PACK_QUANTIZED = "nvfp4-pack-quantized"
    MXFP4_BLOCKS = "mxfp4"
    BITSANDBYTES = "bitsandbytes"
    BITSANDBYTES_INT8 = "bitsandbytes-int8"
    INT_QUANTIZED = "int-quantized"
    FLOAT_QUANTIZED = "float-quantized"
    FP8 = "fp8"


@dataclass(frozen=True, slots=True)
class Layer:
    """A linear layer of quantized weights, as its file holds it. Nothing of it is read yet.

    Attributes:
        name: The module, such as ``model.layers.0.self_attn.q_proj``; for one of several experts in
            one tensor, its number follows in brackets.
        stored_as: The format.
        shape: The logical shape ``(n, k)`` of the weight.
        kind: The class of its descriptors.
        fields: The descriptor fields that follow from the format.
        parts: Its tensors, by the operand that each becomes.
        encode: The way back from `operands`: the bytes of the parts that follow from them, by part,
            and scales in the operands' type; `bias` and `kept` are not among them. It holds no
            tensor, and can be pickled.
        untold: The operands whose tensor does not follow from them, such as inverses.
    """

    name: str
    stored_as: StoredAs
    shape: tuple[int, int]
    kind: type[LinearDescriptor]
    fields: Mapping[str, Any]
    parts: Mapping[str, Part]
    _decode: Callable[[Mapping[str, Part]], dict[str, Array]] = field(repr=False)
    encode: Callable[[Mapping[str, Array]], dict[str, Array]] = field(repr=False)
    untold: tuple[str, ...] = field(default=(), repr=False)

    @property
    def nbytes(self) -> int:
        """The size of its parts in the files."""
        return sum(part.nbytes for part in self.parts.values())

    @property
    def args(self) -> type[planq.Linear4BitArgs | planq.LinearMixedArgs]:
        """The class of the plan's operands: ``layer.args(input=x, output=y, **operands)``."""
        four_bits = self.kind is planq.Linear4BitDescriptor
        return planq.Linear4BitArgs if four_bits else planq.LinearMixedArgs

    def descriptor(
        self, m: int | planq.Dim, input_dtype: DTypeField, **fields: Any
    ) -> LinearDescriptor:
        """Returns the descriptor of the layer.

        Args:
            m: The rows of the input: a number, or a :class:`planq.Dim`.
            input_dtype: Element type of the input.
            **fields: Further fields, such as ``output_dtype`` or ``residual_dtype``; they replace
                those of the format.

        Raises:
            DescriptorError: The layer's operator does not take a field.
        """
        own = {**self.fields, "bias_dtype": "float32" if "bias" in self.parts else None}
        n, k = self.shape
        return self.kind(
            input_shape=(m, k), weight_shape=(n, k), input_dtype=input_dtype, **(own | fields)
        )

    def operands(self) -> dict[str, Array]:
        """Reads the layer: returns the operands beside input and output, in new memory.

        They are NumPy arrays of integers, float16 and float32, which ``torch.from_numpy`` takes.
        Scales in bfloat16 and biases are widened to float32, which changes no value; scales of a
        byte are uint8, as operands may be.

        Raises:
            CheckpointError: The files changed or are closed, or values mean nothing in the format.
            OSError: The system refused.
        """
        operands = self._decode(self.parts)
        if "bias" in self.parts:
            operands["bias"] = self.parts["bias"].floats()
        return operands

    @property
    def kept(self) -> tuple[str, ...]:
        """The parts that `encode` does not make: who writes the layer again has to keep them."""
        known = self.descriptor(1, planq.DType.FLOAT32).operands()
        return tuple(name for name in self.parts if name not in known or name in self.untold)

    def check(self) -> None:
        """Reads the layer, and refuses numbers that are not finite.

        Raises:
            TensorError: A scale, an absmax, a table or the bias has such a number.
            CheckpointError: As by `operands`.
            OSError: The system refused.
        """
        for name, stored in self.operands().items():
            values = self._values(name, stored)
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                count = int((~np.isfinite(values)).sum())
                part = self.parts[name]
                raise part.refused("finite numbers", f"{count} of {values.size} that are not")

    def _values(self, name: str, stored: Array) -> Array:
        """What an operand stands for, if it is scales of a byte; else itself."""
        dtype = self.fields.get("scale_dtype")
        if name != "weight_scale" or dtype not in SCALE_VALUES:
            return stored
        return SCALE_VALUES[dtype][stored]
