"""What ``planq quantize`` stores for a weight: its tensors, and the metadata that explains them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import planq
from planq.checkpoint.digests import expect_content
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.files import TensorEntry, expect
from planq.checkpoint.header import BITS
from planq.checkpoint.layouts import Layout, inputs_of, parts_of, payloads_of
from planq.checkpoint.schemes import FLOATING, Quantizing, Scaling
from planq.checkpoint.states import CodebookWeight, codebook_weight, read_states

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from planq.checkpoint.files import CheckpointReader
    from planq.executors import Bytes, Executor, Ran

METADATA_PREFIX = "planq."

# Descriptor fields that differ between the weights of a file.
_OWN = ("shape", "input_dtype", "scale_dtype")


@dataclass(frozen=True, slots=True)
class ScaledWeight:
    """A weight as the file holds it, with scales beside its codes.

    Attributes:
        original: The weight before it was quantized; its payload is not in the file.
        desc: The descriptor that made the codes.
        layout: The names of its parts, and the order of their bytes.
    """

    original: TensorEntry
    desc: Scaling
    layout: Layout = Layout.PLAIN

    @property
    def quantizing(self) -> tuple[planq.Descriptor, ...]:
        """The descriptors that make all that is stored; the first makes the codes."""
        if self.layout is not Layout.ROWS:
            return (self.desc,)
        desc = self.desc
        ranges = planq.MinMaxDescriptor(
            shape=desc.shape, input_dtype=desc.input_dtype, scope=desc.scope
        )
        return (desc, ranges)

    @property
    def parts(self) -> dict[str, TensorEntry]:
        """The tensors that the weight became, by operand of the quantization."""
        return parts_of(self.layout, self.original, self.desc)

    @property
    def nbytes(self) -> int:
        """Size of all parts."""
        return sum(part.nbytes for part in self.parts.values())

    def restoring(self, dtype: planq.DType | None = None) -> planq.DequantizeDescriptor:
        """Returns the descriptor that dequantizes it, to ``dtype`` or to the weight's own type."""
        desc = self.desc
        return planq.DequantizeDescriptor(
            shape=desc.shape,
            input_dtype=desc.output_dtype,
            output_dtype=dtype or FLOATING[self.original.dtype],
            scope=desc.scope,
            mode=desc.mode,
            scale_dtype=desc.scale_dtype,
            zero_point_dtype=getattr(desc, "zero_point_dtype", None),
            nibble_order=desc.nibble_order,
        )

    def values(self, payload: Bytes) -> Bytes:
        """Returns the bytes that the plans read: the weight in their input type."""
        return converted(payload, FLOATING[self.original.dtype], self.desc.input_dtype)

    def payloads(self, made: Mapping[str, Bytes]) -> dict[str, Bytes]:
        """Returns the bytes of each part, made from the operands of the quantization."""
        stored = payloads_of(self.layout, self.original, self.desc, dict(made))
        return {name: stored[name] for name in self.parts}

    def inputs(self, payloads: Mapping[str, Bytes]) -> dict[str, Bytes]:
        """Returns the operands of the dequantization, made from the bytes of the parts."""
        return inputs_of(self.layout, self.original, self.desc, dict(payloads))


def converted(payload: Bytes, dtype: planq.DType, wanted: planq.DType) -> Bytes:
    """Returns the bytes of values in another type; float16 is rounded to nearest, ties to even."""
    if dtype is wanted:
        return payload
    values: npt.NDArray[Any]
    if dtype is planq.DType.BFLOAT16:
        values = (payload.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        values = payload.view(dtype.value)
    with np.errstate(all="ignore"):
        narrow: Bytes = values.astype(wanted.value).view(np.uint8)
    return narrow


StoredWeight = ScaledWeight | CodebookWeight


def stored_weight(
    original: TensorEntry, desc: Quantizing, layout: Layout = Layout.PLAIN, storage: str = "uint8"
) -> StoredWeight:
    """Returns the form in which a weight is stored.

    Args:
        original: The weight.
        desc: The descriptor that makes its codes.
        layout: The layout, for schemes with scales.
        storage: The element type of the tensor that holds 4-bit codes, for codebook schemes.
    """
    if isinstance(desc, planq.BlockwiseQuantizeDescriptor):
        return codebook_weight(original, desc, storage)
    return ScaledWeight(original, desc, layout)


def restore(
    weight: StoredWeight, plan: planq.Plan, reader: CheckpointReader, executor: Executor
) -> Ran:
    """Dequantizes one weight from its parts in an open file."""
    payloads = {key: reader.tensor(reader.by_name[part.name]) for key, part in weight.parts.items()}
    return executor.run(plan, weight.inputs(payloads))


def is_quantized(reader: CheckpointReader) -> bool:
    """Whether an open file is quantized: it has planq's metadata, or states of bitsandbytes."""
    return has_digests(reader) or bool(read_states(reader))


def describing(desc: Quantizing, weights: Iterable[StoredWeight]) -> dict[str, str]:
    """Returns metadata, without the prefix of its keys, that describes how codes were made.

    The descriptor in it has the fields that all weights share. It lacks the shape, and the types
    that depend on the weight's own. `read_weights` needs it for weights with scales. States of
    codebook weights are complete without it.

    Args:
        desc: The descriptor that made the codes of one of the weights.
        weights: All weights.
    """
    facts = {key: value for key, value in desc.to_dict().items() if key not in _OWN}
    described = {"descriptor": json.dumps(facts, sort_keys=True)}
    scaled = [weight for weight in weights if isinstance(weight, ScaledWeight)]
    originals = {
        weight.original.name: {"dtype": weight.original.dtype, "shape": weight.original.shape}
        for weight in scaled
    }
    if originals:
        described["layout"] = scaled[0].layout.value
        described["tensors"] = json.dumps(originals, separators=(",", ":"))
    return described


def read_weights(reader: CheckpointReader, *, compare: bool = True) -> dict[str, StoredWeight]:
    """Finds the quantized weights of an open file, by name, and checks that all parts are there.

    A file of ``planq quantize`` has digests. With ``compare``, its header is compared with them
    now, and each tensor when it is read.

    Raises:
        CheckpointError: Neither ``planq quantize`` nor bitsandbytes wrote the file, or somebody
            changed it since.
    """
    if compare and has_digests(reader):
        expect_content(reader)
    states = read_states(reader)
    if states:
        return dict(states)
    if not has_digests(reader):
        raise CheckpointError(
            f"{reader.path}: not written by planq quantize or bitsandbytes, nothing to restore"
        )
    facts, originals = (_json_object(reader, key) for key in ("descriptor", "tensors"))
    layout = _layout(reader)
    weights: dict[str, StoredWeight] = {}
    for name, original in originals.items():
        weights[name] = _scaled_weight(reader, facts, name, original, layout)
        for part in weights[name].parts.values():
            expect(reader, part)
    return weights


def has_digests(reader: CheckpointReader) -> bool:
    """Whether ``planq quantize`` wrote an open file, which therefore holds digests."""
    return any(key.startswith(METADATA_PREFIX) for key in reader.metadata)


def _json_object(reader: CheckpointReader, key: str) -> dict[str, Any]:
    try:
        values = json.loads(reader.metadata[METADATA_PREFIX + key])
    except (KeyError, ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not values:
        raise CheckpointError(
            f"{reader.path}: metadata {METADATA_PREFIX}{key} is missing or damaged"
        )
    return values


def _layout(reader: CheckpointReader) -> Layout:
    name = reader.metadata.get(f"{METADATA_PREFIX}layout", Layout.PLAIN.value)
    if name not in [layout.value for layout in Layout]:
        what = f"metadata {METADATA_PREFIX}layout is none that this planq knows: {name!r}"
        raise CheckpointError(f"{reader.path}: {what}")
    return Layout(name)


def _scaled_weight(
    reader: CheckpointReader, facts: Mapping[str, Any], name: str, original: object, layout: Layout
) -> ScaledWeight:
    where = f"{reader.path}: metadata of {name!r}"
    match original:
        case {"dtype": str(dtype), "shape": list(shape)} if dtype in FLOATING:
            read = planq.DType.FLOAT16 if layout is Layout.ROWS else FLOATING[dtype]
            own = {"shape": shape, "input_dtype": read}
            if layout in (Layout.NAIVE, Layout.PACKED):  # whose scales have the weight's type
                own["scale_dtype"] = read
        case _:
            raise CheckpointError(f"{where}: expected a floating type and a shape")
    try:
        desc = planq.Descriptor.from_dict({**facts, **own})
    except planq.DescriptorError as error:
        raise CheckpointError(f"{where}: {error}") from error
    if not isinstance(desc, Scaling):
        raise CheckpointError(f"{where}: {desc.operator} makes no codes that can be restored")
    nbytes = math.prod(desc.shape) * BITS[dtype] // 8
    return ScaledWeight(TensorEntry(name, dtype, desc.shape, nbytes), desc, layout)
