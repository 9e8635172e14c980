"""What layers whose weights are codes have in common: the order of sums and what it is due to."""

from __future__ import annotations

from typing import Any

import pytest

import planq

SHAPES = {"input_shape": (3, 64), "weight_shape": (5, 64)}
LAYER, MIXED = planq.Linear4BitDescriptor, planq.LinearMixedDescriptor


@pytest.mark.parametrize(
    ("input_dtype", "weight_dtype", "expected"),
    [
        ("bfloat16", None, "groups_sm90"),
        ("float16", "float16", "groups_sm90"),
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
        (LAYER, {"block_size": 32}),
        (MIXED, {}),
    ):
        desc = make(**SHAPES, **dtypes, **fields)
        assert desc.accumulation is planq.Accumulation(expected)
        named = make(**SHAPES, **dtypes, **fields, accumulation=expected)
        assert named == desc
        assert hash(named) == hash(desc)
        assert planq.Descriptor.from_json(desc.to_json()) == desc
        assert desc.to_dict()["accumulation"] == expected


GROUP = planq.Scope.group
GROUPS_OR_NOT: tuple[tuple[Any, int, dict[str, Any], bool], ...] = (
    *((LAYER, 96, {"block_size": size}, size != 16) for size in (16, 32)),
    (LAYER, 96, {"block_size": 64}, False),
    (LAYER, 100, {"block_size": 4}, False),
    (LAYER, 512, {"block_size": 256}, True),
    (LAYER, 768, {"block_size": 384}, True),
    (LAYER, 512, {"block_size": 1024}, False),
    (LAYER, 0, {"block_size": 64}, True),
    *((LAYER, 100, {"weight_scope": GROUP(size)}, True) for size in (16, 32, 64, 128, 256, 640)),
    *((LAYER, 100, {"weight_scope": GROUP(size)}, False) for size in (1, 8, 24, 48, 96, 100, 160)),
    *((MIXED, k, {}, True) for k in (0, 1, 100, 4096)),
    (MIXED, 100, {"weight_scope": GROUP(16)}, True),
    (MIXED, 100, {"weight_scope": GROUP(100)}, False),
)


@pytest.mark.parametrize(("make", "k", "fields", "holds"), GROUPS_OR_NOT)
def test_the_order_of_sums_follows_from_the_groups(
    make: Any, k: int, fields: dict[str, Any], holds: bool
) -> None:
    """GROUPS_SM90 where its runs fit to them; asked for elsewhere, it is refused by name."""
    every = {"input_shape": (3, k), "weight_shape": (5, k), "input_dtype": "float16", **fields}
    expected = planq.Accumulation.GROUPS_SM90 if holds else planq.Accumulation.TENSOR_SM90
    assert make(**every).accumulation is expected
    for named in ("tensor_sm90", "lanes"):
        assert make(**every, accumulation=named).accumulation.value == named
    if holds:
        assert make(**every, accumulation="groups_sm90") == make(**every)
        return
    words = "blocks of 32, 64 or a multiple of 128 codes that divide k = " + str(k)
    words = words if "block_size" in fields else "groups of 16, 32, 64 or a multiple of 128 terms"
    with pytest.raises(planq.DescriptorError, match=words) as caught:
        make(**every, accumulation="groups_sm90")
    assert caught.value.field == "accumulation"


@pytest.mark.parametrize("make", [LAYER, MIXED])
@pytest.mark.parametrize(
    ("input_dtype", "weight_dtype"), [("float32", None), ("float16", "bfloat16")]
)
def test_groups_are_for_one_type_of_16_bits(
    make: Any, input_dtype: str, weight_dtype: str | None
) -> None:
    """As tensor cores are."""
    fields: dict[str, Any] = {"weight_scope": GROUP(32)}
    dtypes = {"input_dtype": input_dtype, "weight_dtype": weight_dtype}
    with pytest.raises(planq.DescriptorError, match="expected lanes, since groups_sm90") as caught:
        make(**SHAPES, **dtypes, **fields, accumulation="groups_sm90")
    assert caught.value.field == "accumulation"
