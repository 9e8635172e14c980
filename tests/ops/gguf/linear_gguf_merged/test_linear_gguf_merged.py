"""`linear_gguf_merged`: the bits of layers alone, how threads share it, what it refuses."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import planq
from ops.gguf.linear_gguf.layers_of_blocks import COLUMNS, blocks_of, codes, layer
from planq.audit.ops.gguf.blocks import FORMATS
from planq.audit.ops.gguf.linear_gguf.cases import KNOWN
from planq.audit.reference.formats import STORAGE, Array

TERMS = 768
OUTPUTS = ("float32", "float16", "bfloat16")


def described(
    given: dict[str, Array], weights: list[Array], kinds: list[str], **changes: Any
) -> Any:
    """The layers as a descriptor."""
    fields = {
        "input_shape": given["input"].shape,
        "weight_shapes": [weight.shape for weight in weights],
        "types": kinds,
        "input_dtype": given["input"].dtype.name,
        "output_dtype": "float32",
    }
    return planq.LinearGgufMergedDescriptor(**(fields | changes))


def merged(
    given: dict[str, Array],
    weights: list[Array],
    kinds: list[str],
    output_dtype: str = "float32",
    threads: int = 1,
) -> Array:
    """The outputs of all layers, side by side."""
    dtypes = {
        f"{name}_dtype": given[name].dtype.name for name in ("bias", "residual") if name in given
    }
    desc = described(given, weights, kinds, output_dtype=output_dtype, **dtypes)
    stream = planq.host_stream(threads)
    plan = planq.Plan.select(stream, desc)
    columns = sum(map(len, weights))
    output = np.zeros((*given["input"].shape[:-1], columns), STORAGE[output_dtype])
    args = planq.LinearGgufMergedArgs(**given, weight=weights, output=output)
    plan.run(stream, plan.empty_workspace(np), args)
    return output


def weights_of(kinds: list[str], terms: int = TERMS) -> list[Array]:
    """Blocks, of another number of rows for each."""
    return [blocks_of(kind, terms)[: COLUMNS - 3 * i] for i, kind in enumerate(kinds)]


@pytest.mark.parametrize("first", KNOWN)
def test_all_pairs_of_types_have_the_bits_of_layers_alone(first: str) -> None:
    """Of a few rows and of many, of codes and of floats, in every output."""
    turns = itertools.cycle(itertools.product((1, 5, 18), OUTPUTS))
    for second in KNOWN:
        kinds = [first, second]
        weights = weights_of(kinds)
        rows, output_dtype = next(turns)
        given = codes((rows, TERMS))
        floats = {"input": np.sin(np.arange(rows * TERMS, dtype=np.float32)).reshape(rows, TERMS)}
        for each in (given, floats):
            alone = [
                layer(each | {"weight": weight}, kind, output_dtype)
                for weight, kind in zip(weights, kinds, strict=True)
            ]
            found = merged(each, weights, kinds, output_dtype)
            assert found.tobytes() == np.concatenate(alone, axis=-1).tobytes(), kinds


def test_eight_weights_with_all_that_is_added() -> None:
    """Bias and residual are cut as the output is; one weight has no rows, leading axes are two."""
    kinds = ["q5_0", "q5_0", "q8_0", "q6_k", "iq4_nl", "q4_k", "q2_k", "mxfp4"]
    weights = weights_of(kinds)
    weights[4] = weights[4][:0]
    given = codes((2, 3, TERMS))
    columns = sum(map(len, weights))
    draw = np.random.default_rng(1)
    added = {
        "bias": draw.standard_normal(columns).astype(np.float16),
        "residual": draw.standard_normal((2, 3, columns)).astype(np.float64),
    }
    found = merged(given | added, weights, kinds)
    end = 0
    for weight, kind in zip(weights, kinds, strict=True):
        first, end = end, end + len(weight)
        own = {name: np.ascontiguousarray(each[..., first:end]) for name, each in added.items()}
        alone = layer(given | own | {"weight": weight}, kind)
        assert found[..., first:end].tobytes() == alone.tobytes(), kind


@pytest.mark.parametrize("rows", [1, 3, 40, 200])
def test_threads_share_all_columns(rows: int) -> None:
    """However many they are, the bits are the same."""
    kinds = ["q4_0", "q8_0", "q6_k"]
    # So many rows that there is work for all.
    weights = [np.tile(weight, (40, 1)) for weight in weights_of(kinds)]
    given = codes((rows, TERMS))
    wanted = merged(given, weights, kinds)
    for threads in (2, 3, 7):
        assert merged(given, weights, kinds, threads=threads).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("input_dtype", ["int8", "float32"])
def test_one_plan_takes_every_number_of_rows(input_dtype: str) -> None:
    """The axis before the last may be a Dim, and rows of the output may be apart."""
    kinds = ["q5_k", "q8_0", "q5_k"]
    weights = weights_of(kinds)
    given = codes((33, TERMS))
    if input_dtype == "float32":
        given = {"input": given["input"].astype(np.float32)}
    whole = merged(given, weights, kinds)
    desc = described(given, weights, kinds, input_shape=(planq.Dim("m", max=33), TERMS))
    plan = planq.Plan.select(planq.HOST, desc)
    workspace = plan.empty_workspace(np)
    columns = whole.shape[1]
    for rows in (0, 1, 9, 33):
        room = np.zeros((rows, columns + 5), np.float32)
        own = {name: each[:rows] for name, each in given.items()}
        args = planq.LinearGgufMergedArgs(**own, weight=weights, output=room[:, 2:-3])
        plan.run(planq.HOST, workspace, args)
        assert room[:, 2:-3].tobytes() == whole[:rows].tobytes()
        launch = plan.bind(workspace, args)
        room[...] = 0
        launch(planq.HOST)
        assert room[:, 2:-3].tobytes() == whole[:rows].tobytes()
        assert not room[:, :2].any()
        assert not room[:, -3:].any()


def test_weights_of_one_type_share_what_sums_need_to_know_of_the_input() -> None:
    """So the workspace grows with types, not with weights."""
    given = codes((4, TERMS))
    sizes = []
    for kinds in (["q8_0"], ["q8_0", "q8_0"], ["q8_0", "q4_k"], ["q4_k", "q8_0", "q4_k"]):
        desc = described(given, weights_of(kinds), kinds)
        sizes.append(planq.Plan.select(planq.HOST, desc).workspace_size())
    assert sizes == [sizes[0], sizes[0], 2 * sizes[0], 2 * sizes[0]]


@pytest.mark.parametrize("rows", [1, 40])
def test_who_has_less_workspace_gets_plans_of_each_weight(rows: int) -> None:
    """One after another in one workspace, as on a GPU: with the same bits."""
    kinds = ["q8_0", "q4_k", "q6_k"]
    weights = weights_of(kinds)
    given = codes((rows, TERMS))
    desc = described(given, weights, kinds)
    wanted = merged(given, weights, kinds)
    whole = planq.Plan.select(planq.HOST, desc)
    room = whole.workspace_size() // len(kinds)
    plan = planq.Plan.select(planq.HOST, desc, planq.PlanPreference(max_workspace_bytes=room))
    bodies = {body.name: body.chosen for body in plan.bodies()}
    assert plan.sku == whole.sku
    assert bodies == {"blocks": False, "parts": True}
    output = np.zeros_like(wanted)
    args = planq.LinearGgufMergedArgs(**given, weight=weights, output=output)
    workspace = plan.empty_workspace(np)
    plan.run(planq.HOST, workspace, args)
    assert output.tobytes() == wanted.tobytes()
    launch = plan.bind(workspace, args)
    output[...] = 0
    launch(planq.HOST)
    assert output.tobytes() == wanted.tobytes()


FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "no weight": ("weight_shapes", {"weight_shapes": (), "types": ()}, "1 to 8 weights, got 0"),
    "nine weights": (
        "weight_shapes",
        {"weight_shapes": ((5, 36),) * 9, "types": ("q4_0",) * 9},
        "1 to 8 weights, got 9",
    ),
    "a type too few": ("types", {"types": ("q4_0",)}, "one for each of 2 weights, got 1"),
    "a type that files lack": (
        "types",
        {"types": ("q4_0", "q8_k")},
        "types[1]: expected a type that weights have in files; q8_k",
    ),
    "an unknown type": ("types", {"types": ("q4_0", "iq2_m")}, "item 1: expected GgufType"),
    "other bytes": (
        "weight_shapes",
        {"weight_shapes": ((5, 36), (3, 36))},
        "weight_shapes[1]: expected (n, 68), whose rows are 64 elements of q8_0, got (3, 36)",
    ),
    "three axes": (
        "weight_shapes",
        {"weight_shapes": ((2, 5, 36), (3, 68))},
        "weight_shapes[0]: expected (n, 36), whose rows are 64 elements of q4_0, got (2, 5, 36)",
    ),
    "half a block": ("input_shape", {"types": ("q4_0", "q4_k")}, "blocks of 256 elements, as q4_k"),
    "fewer rows than none": ("weight_shapes", {"weight_shapes": ((5, 36), (-1, 68))}, "negative"),
    "columns beyond all": (
        "weight_shapes",
        {"input_shape": (2**40, 64), "weight_shapes": ((2**19, 36), (2**20, 68))},
        "the product has more than 2^60 elements",
    ),
    "one axis": ("input_shape", {"input_shape": (64,)}, "2 to 8 axes"),
    "codes without a sign": ("input_dtype", {"input_dtype": "uint8"}, "uint8"),
    "integers": ("output_dtype", {"output_dtype": "int32"}, "int32"),
    "a bias of codes": ("bias_dtype", {"bias_dtype": "int8"}, "int8"),
    "rows that vary": (
        "weight_shapes",
        {"weight_shapes": ((planq.Dim("n", max=9), 36), (3, 68))},
        "integers in a list of shapes",
    ),
}
PLAIN: dict[str, Any] = {
    "input_shape": (3, 64),
    "weight_shapes": ((5, 36), (3, 68)),
    "types": ("q4_0", "q8_0"),
    "input_dtype": "int8",
    "output_dtype": "float32",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_descriptors_that_are_refused(fault: str) -> None:
    """Each names its field, the weight and what came."""
    field, changes, text = FAULTS[fault]
    with pytest.raises(planq.DescriptorError) as caught:
        planq.LinearGgufMergedDescriptor(**(PLAIN | changes))
    assert caught.value.field == field
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("weight[1]", {"weight": [np.zeros((5, 36), np.uint8), np.zeros((3, 67), np.uint8)]}),
        ("weight[0]", {"weight": [np.zeros((5, 36), np.int8), np.zeros((3, 68), np.uint8)]}),
        (
            "weight[1]",
            {"weight": [np.zeros((5, 36), np.uint8), np.zeros((3, 70), np.uint8)[:, :68]]},
        ),
        ("weight", {"weight": [np.zeros((5, 36), np.uint8)]}),
        ("input", {"input": np.zeros((3, 64), np.uint8)}),
        ("input_scale", {"input_scale": None}),
        ("bias", {"bias": np.zeros(8, np.float32)}),
        ("output", {"output": np.zeros((3, 9), np.float32)}),
    ],
)
def test_operands_that_do_not_fit_are_named(name: str, changes: dict[str, Any]) -> None:
    """Before anything runs; members of the list by their places."""
    given: dict[str, Any] = {
        "input": np.zeros((3, 64), np.int8),
        "input_scale": np.zeros((3, 2), np.float32),
        "weight": [np.zeros((5, 36), np.uint8), np.zeros((3, 68), np.uint8)],
        "output": np.full((3, 8), 7, np.float32),
    }
    plan = planq.Plan.select(planq.HOST, planq.LinearGgufMergedDescriptor(**PLAIN))
    workspace = plan.empty_workspace(np)
    assert plan.can_implement(planq.LinearGgufMergedArgs(**given))
    status = plan.can_implement(planq.LinearGgufMergedArgs(**(given | changes)))
    assert not status
    assert status.operand == name
    with pytest.raises(planq.ArgumentError) as caught:
        plan.run(planq.HOST, workspace, planq.LinearGgufMergedArgs(**(given | changes)))
    assert caught.value.operand == name
    assert (given["output"] == 7).all()


def test_a_stored_plan_is_read_again() -> None:
    """Types are names there."""
    desc = planq.LinearGgufMergedDescriptor(**PLAIN)
    assert desc.types == (planq.GgufType.Q4_0, planq.GgufType.Q8_0)
    assert '"types":["q4_0","q8_0"]' in desc.to_json().replace(" ", "")
    plan = planq.Plan.select(planq.HOST, desc)
    again = planq.Plan.from_json(planq.HOST, plan.to_json())
    assert isinstance(again, planq.LinearGgufMergedPlan)
    assert (again.sku, again.descriptor) == (plan.sku, desc)


def test_a_gpu_has_a_plan_for_codes_and_for_floats() -> None:
    """Each is made of plans of others."""
    for dtype, sku in (
        ("int8", "linear_gguf_merged/cuda/s8_f32"),
        ("bfloat16", "linear_gguf_merged/cuda"),
    ):
        desc = planq.LinearGgufMergedDescriptor(**(PLAIN | {"input_dtype": dtype}))
        chosen = planq.explain(desc, planq.PlanPreference(backend="cuda"), device="sm_90").chosen
        assert (chosen.sku, chosen.body) == (sku, "parts")
        assert chosen.guarantee.determinism is planq.Determinism.BIT_EXACT


def test_every_type_may_be_first() -> None:
    """So the table of types is whole."""
    for kind, form in FORMATS.items():
        if kind not in KNOWN:
            continue
        bytes_ = 512 // form.elements * form.nbytes
        desc = planq.LinearGgufMergedDescriptor(
            **(PLAIN | {"input_shape": (1, 512), "weight_shapes": ((4, bytes_),), "types": (kind,)})
        )
        assert desc.operands()["output"].shape == (1, 4)
