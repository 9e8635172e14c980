"""Text and dictionaries of anybody's making: a value, or an error of planq's own.

`make fuzz` runs these for longer.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import torch

import planq
from support.hostile import Chaos, bounded, fuzzing

NESTED = planq.QuantState(
    absmax=np.zeros(6, np.uint8),
    codebook=planq.codebooks.nf4(),
    block_size=64,
    dtype="float32",
    shape=(6, 64),
    quant_type="nf4",
    nested_absmax=np.ones(2, np.float32),
    nested_codebook=planq.codebooks.dynamic(),
    nested_block_size=4,
    nested_offset=np.ones(1, np.float32),
)
DESCRIPTORS = [
    planq.DynamicRangeQuantizeDescriptor(
        shape=(4, 8), input_dtype="float32", output_dtype="int4", scope=planq.Scope.group(4)
    ),
    planq.DequantizeDescriptor(shape=(4, 8), input_dtype="int32", output_dtype="float16"),
    planq.BlockwiseQuantizeDescriptor(
        shape=(4, 64),
        input_dtype="float32",
        output_dtype="uint4",
        codebook=planq.Codebook.NF4,
        block_size=64,
    ),
    planq.PackInt4Descriptor(shape=(2, 2)),
    planq.MinMaxDescriptor(shape=(planq.Dim("m", 16), 8), input_dtype="float32"),
]
PREFERENCE = planq.PlanPreference(max_ulp=0, max_workspace_bytes=1 << 20)
ARRAYS = (
    *(np.zeros(6, np.uint8), np.zeros(0, np.float32), np.zeros((2, 2), np.float64)),
    *(np.array(1.5), np.float32(2), torch.zeros(6, dtype=torch.uint8), torch.zeros(2)),
)


def anything(chaos: Chaos) -> Any:
    """A value that JSON has, or an object that somebody may take for one."""
    return chaos.choice((chaos.json(), chaos.json(), chaos.choice(ARRAYS), 10**5000, b"w", {1: 2}))


def json_text(chaos: Chaos, tree: Any) -> str:
    """JSON that is nearly that of a tree."""
    text = json.dumps(chaos.tampered(tree))
    if chaos.random() < 0.2:
        text = chaos.spliced(text.encode()).decode(errors="surrogateescape")
    return text


@fuzzing(400)
def test_no_descriptor_raises_anything_else(chaos: Chaos) -> None:
    desc = chaos.choice(DESCRIPTORS)
    text = json_text(chaos, desc.to_dict())
    values = chaos.tampered(desc.to_dict(), lambda: anything(chaos))
    with bounded():
        with contextlib.suppress(planq.DescriptorError):
            made = planq.Descriptor.from_json(text)
            assert planq.Descriptor.from_json(made.to_json()) == made
            assert hash(made) == hash(made)
            made.operands()
            planq.explain(made)
        with contextlib.suppress(planq.DescriptorError):
            type(desc).from_dict(values)


@fuzzing(200)
def test_no_plan_raises_anything_else(chaos: Chaos) -> None:
    stored = planq.Plan.select(planq.HOST, chaos.choice(DESCRIPTORS), PREFERENCE).to_dict()
    text = json_text(chaos, stored)
    with bounded(), contextlib.suppress(planq.DescriptorError, planq.PlanMismatchError):
        assert planq.Plan.from_json(planq.HOST, text).workspace_size() >= 0


@fuzzing(200)
def test_no_preference_raises_anything_else(chaos: Chaos) -> None:
    values = chaos.tampered(PREFERENCE.to_dict(), lambda: anything(chaos))
    with bounded(), contextlib.suppress(planq.DescriptorError):
        made = planq.PlanPreference.from_dict(values)
        assert planq.PlanPreference.from_dict(made.to_dict()) == made
        planq.explain(DESCRIPTORS[0], made)


@fuzzing(400)
def test_no_state_raises_anything_else(chaos: Chaos) -> None:
    packed = chaos.random() < 0.5
    values = NESTED.to_dict(packed)
    if packed:
        key = next(key for key in values if key.startswith("quant_state"))
        text = json_text(chaos, json.loads(values[key].tobytes()))
        values[key] = np.frombuffer(text.encode(errors="surrogateescape"), np.uint8)
    if not packed or chaos.random() < 0.3:
        values = chaos.tampered(values, lambda: anything(chaos))
    with bounded(), contextlib.suppress(planq.ArgumentError):
        made = planq.QuantState.from_dict(values)
        planq.QuantState.from_dict(made.to_dict(packed=True))


@fuzzing(200)
def test_no_stream_raises_anything_else(chaos: Chaos) -> None:
    with contextlib.suppress(planq.StreamError):
        planq.host_stream(anything(chaos))
    with contextlib.suppress(planq.StreamError):
        planq.cuda_stream(anything(chaos), anything(chaos))
    with contextlib.suppress(planq.DescriptorError, planq.StreamError):
        planq.explain(DESCRIPTORS[0], device=anything(chaos))
