"""What layers whose weights are codes have in common: the order of sums that follows from types."""

from __future__ import annotations

import pytest

import planq

SHAPES = {"input_shape": (3, 64), "weight_shape": (5, 64)}


@pytest.mark.parametrize(
    ("input_dtype", "weight_dtype", "expected"),
    [
        ("bfloat16", None, "tensor_sm90"),
        ("float16", "float16", "tensor_sm90"),
        ("float16", "bfloat16", "lanes"),
        ("bfloat16", "float32", "lanes"),
        ("float32", None, "lanes"),
    ],
)
def test_the_order_of_sums_follows_from_the_types(
    input_dtype: str, weight_dtype: str | None, expected: str
) -> None:
    """Where it is left out; the descriptor then is the one that names it."""
    dtypes = {"input_dtype": input_dtype, "weight_dtype": weight_dtype}
    for make, fields in (
        (planq.Linear4BitDescriptor, {"block_size": 32}),
        (planq.LinearMixedDescriptor, {}),
    ):
        desc = make(**SHAPES, **dtypes, **fields)
        assert desc.accumulation is planq.Accumulation(expected)
        named = make(**SHAPES, **dtypes, **fields, accumulation=expected)
        assert named == desc
        assert hash(named) == hash(desc)
        assert planq.Descriptor.from_json(desc.to_json()) == desc
        assert desc.to_dict()["accumulation"] == expected
