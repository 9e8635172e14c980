"""What ``planq quantize`` stores for a weight: its tensors, and the metadata that explains them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import planq
from planq.cli.checkpoint import TensorEntry
from planq.cli.failure import CommandError
from planq.cli.schemes import FLOATING, STORAGE, Quantizing, operand_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from planq.cli.checkpoint import Bytes, CheckpointReader
    from planq.cli.devices import Executor, Ran

METADATA_PREFIX = "planq."

_SUFFIX = {"output": "", "scale": "_scale", "zero_point": "_zero_point"}

# What follows a weight's own shape and type, and so differs between the weights of a file.
_OWN = ("shape", "input_dtype", "scale_dtype")


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """A weight as the file holds it.

    Attributes:
        original: The weight before it was quantized; its payload is not in the file.
        desc: What made the codes.
    """

    original: TensorEntry
    desc: Quantizing

    @property
    def parts(self) -> dict[str, TensorEntry]:
        """The tensors that the weight became, by operand of the quantization.

        A scale per channel is stored as a column, the form in which it multiplies the codes by
        broadcasting and in which loaders of quantized checkpoints expect it.
        """
        column = (1,) if self.desc.scope.kind == "channel" else ()
        return {
            name: TensorEntry(
                self.original.name + _SUFFIX[name],
                STORAGE[spec.storage][0],
                spec.shape if name == "output" else spec.shape + column,
                operand_bytes(spec),
            )
            for name, spec in self.desc.operands().items()
            if name != "input"
        }

    @property
    def nbytes(self) -> int:
        """Size of all parts."""
        return sum(part.nbytes for part in self.parts.values())

    def restoring(self, dtype: planq.DType | None = None) -> planq.DequantizeDescriptor:
        """Returns the way back to floating values; None is the weight's own type."""
        desc = self.desc
        return planq.DequantizeDescriptor(
            shape=desc.shape,
            input_dtype=desc.output_dtype,
            output_dtype=dtype or desc.input_dtype,
            scope=desc.scope,
            mode=desc.mode,
            scale_dtype=desc.scale_dtype,
            zero_point_dtype=getattr(desc, "zero_point_dtype", None),
            nibble_order=desc.nibble_order,
        )


def restore(
    weight: StoredWeight, plan: planq.Plan, reader: CheckpointReader, executor: Executor
) -> Ran:
    """Dequantizes one weight from its parts in an open file, which are dropped again."""
    parts = {name: reader.tensor(reader.by_name[part.name]) for name, part in weight.parts.items()}
    return executor.run(plan, as_inputs(parts))


def as_inputs(parts: Mapping[str, Bytes]) -> dict[str, Bytes]:
    """Names the operands of a quantization as the dequantization reads them."""
    return {"input" if name == "output" else name: data for name, data in parts.items()}


def is_quantized(metadata: Mapping[str, str]) -> bool:
    """Whether planq left its marks in the metadata of a file."""
    return any(key.startswith(METADATA_PREFIX) for key in metadata)


def describing(weights: Iterable[StoredWeight]) -> dict[str, str]:
    """Returns the metadata, without its prefix, by which `read_weights` finds weights again.

    The descriptor holds what the weights have in common: all but the shape, and the types that
    follow the weight's own.
    """
    stored = list(weights)
    facts = stored[0].desc.to_dict()
    for own in _OWN:
        del facts[own]
    originals = {
        weight.original.name: {"dtype": weight.original.dtype, "shape": weight.original.shape}
        for weight in stored
    }
    return {
        "descriptor": json.dumps(facts, sort_keys=True),
        "tensors": json.dumps(originals, separators=(",", ":")),
    }


def read_weights(reader: CheckpointReader) -> dict[str, StoredWeight]:
    """Finds the quantized weights of an open file, by name, and checks that all parts are there.

    Raises:
        CommandError: ``planq quantize`` did not write the file, or somebody changed it since.
    """
    if not is_quantized(reader.metadata):
        raise CommandError(f"{reader.path}: not written by planq quantize, nothing to restore")
    facts, originals = (_json_object(reader, key) for key in ("descriptor", "tensors"))
    weights = {}
    for name, original in originals.items():
        weights[name] = _stored_weight(reader, facts, name, original)
        for part in weights[name].parts.values():
            _check_part(reader, part, reader.by_name.get(part.name))
    return weights


def _json_object(reader: CheckpointReader, key: str) -> dict[str, Any]:
    try:
        values = json.loads(reader.metadata[METADATA_PREFIX + key])
    except (KeyError, ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not values:
        raise CommandError(f"{reader.path}: metadata {METADATA_PREFIX}{key} is missing or damaged")
    return values


def _stored_weight(
    reader: CheckpointReader, facts: Mapping[str, Any], name: str, original: object
) -> StoredWeight:
    where = f"{reader.path}: metadata of {name!r}"
    match original:
        case {"dtype": str(dtype), "shape": list(shape)} if dtype in FLOATING:
            own = {"shape": shape, "input_dtype": FLOATING[dtype]}
        case _:
            raise CommandError(f"{where}: expected a floating type and a shape")
    try:
        desc = planq.Descriptor.from_dict({**facts, **own})
    except planq.DescriptorError as error:
        raise CommandError(f"{where}: {error}") from error
    if not isinstance(desc, Quantizing):
        raise CommandError(f"{where}: {desc.operator} makes no codes that can be restored")
    nbytes = operand_bytes(desc.operands()["input"])
    return StoredWeight(TensorEntry(name, dtype, desc.shape, nbytes), desc)


def _check_part(reader: CheckpointReader, part: TensorEntry, found: TensorEntry | None) -> None:
    expected = f"{part.dtype} {list(part.shape)}"
    if found is None:
        raise CommandError(f"{reader.path}: no tensor {part.name!r}, expected {expected}")
    if (found.dtype, found.shape) != (part.dtype, part.shape):
        has = f"{found.dtype} {list(found.shape)}"
        raise CommandError(f"{reader.path}: tensor {part.name!r}: expected {expected}, found {has}")
