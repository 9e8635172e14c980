"""Batch invariance: a plan that promises it computes a row alone as it does among others.

The row is cut out of a case's operands by their own specs, whatever the operator: where the shape
of an operand follows the number of rows, it is the row's share.
"""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit import kernels
from planq.audit.memory import Host
from planq.audit.operators import OPERATORS, Case, inputs_of
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench

HOST = Host()
INVARIANT = planq.PlanPreference(batch_invariant=True)
MOST_CASES, MOST_ELEMENTS = 12, 1 << 16
# Operators whose operands are lists: of entries, in the order of a matrix, of tensors, of rows that
# are named by their numbers, or of where experts' rows begin; or the slots of a cache.
LISTS = {
    *("spmm_coo", "optimizer_step", "moe_unpermute", "grouped_linear"),
    *("attention", "kv_cache_append", "rotary_kv_cache_append", "linear_gguf_merged"),
}
# Outputs that are no row's: they count something of all rows.
COUNTS = {"invalid"}
S = planq.Scope


@dataclass(frozen=True)
class Rows:
    """A descriptor, and the same with a single row."""

    all: planq.Descriptor
    one: planq.Descriptor
    count: int

    def place(self, name: str) -> tuple[int, int] | None:
        """Along which axis an operand's rows are, and how long each is; None: it has no rows."""
        whole, single = self.all.operands()[name].shape, self.one.operands()[name].shape
        differ = [i for i, (a, b) in enumerate(zip(whole, single, strict=True)) if a != b]
        return (differ[0], single[differ[0]]) if differ else None

    @property
    def separate(self) -> bool:
        """Whether every operand is rows one after another: given parameters may be of two rows."""
        for name, spec in self.all.operands().items():
            place = self.place(name)
            if place and spec.shape[place[0]] != self.count * place[1]:
                return False
        return True

    def cut(self, name: str, values: Array, row: int) -> Array:
        """A row's share of an operand."""
        place = self.place(name)
        if place is None:
            return values
        axis, each = place
        return np.ascontiguousarray(values.take(range(row * each, (row + 1) * each), axis))


def rows_mix_in_memory(fields: dict[str, Any]) -> bool:
    """Whether two rows share a given parameter, a byte or a tile of memory: none can be cut out."""
    last = (fields.get("shape") or [1])[-1]
    size = fields.get("block_size") or fields.get("group_size") or 1
    packed = "int4" in str(fields.get("input_dtype")) and bool(fields.get("transpose_input"))
    return bool(last % size) or packed or fields.get("layout", "row") != "row"


def rows_of(desc: planq.Descriptor) -> Rows | None:
    """None where there are no two rows, or where a single one is no problem of this operator."""
    fields = json.loads(desc.to_json())
    if rows_mix_in_memory(fields):
        return None
    name = next(name for name in ("input_shape", "query_shape", "shape") if name in fields)
    shape = list(fields[name])
    last = len(shape) - (1 if fields.get("transpose_input") else 2)
    axis = last if name == "input_shape" else 0
    if len(shape) < 2 or shape[axis] < 2:
        return None
    count, shape[axis] = shape[axis], 1
    try:
        return Rows(desc, type(desc).from_json(json.dumps(fields | {name: shape})), count)
    except planq.DescriptorError:
        return None


def run(desc: planq.Descriptor, inputs: dict[str, Array]) -> dict[str, Array]:
    """The outputs of one run, whatever the kernel promises of rows."""
    bench = Bench(HOST, desc)
    bench.load(inputs)
    bench.run()
    return bench.outputs()


def differs(rows: Rows, inputs: dict[str, Array], row: int) -> bool:
    """Whether any output of a row alone is not that among the others."""
    among = run(rows.all, inputs)
    alone = run(rows.one, {name: rows.cut(name, inputs[name], row) for name in inputs})
    return any(
        rows.cut(name, among[name], row).tobytes() != values.tobytes()
        for name, values in alone.items()
        if name not in COUNTS
    )


@cache
def promising(operator: str) -> list[tuple[Case, Rows]]:
    """Cases whose plans promise batch invariance, and that have rows."""
    tests: Any = OPERATORS[operator]
    found = []
    for case in tests.cases():
        if case.size > MOST_ELEMENTS:
            continue
        desc = tests.descriptor(case.problem)
        if not planq.Plan.select(planq.HOST, desc).precision_guarantee().batch_invariant:
            continue
        rows = rows_of(desc)
        if rows and rows.separate:
            found.append((case, rows))
    return found[:: max(len(found) // MOST_CASES, 1)]


@pytest.mark.parametrize("operator", sorted(OPERATORS.keys() - LISTS))
def test_a_row_alone_is_the_row_among_others(operator: str) -> None:
    """Wherever a plan promises it, to the bit, for the first, the last and a middle row."""
    for case, rows in promising(operator):
        for row in {0, rows.count // 2, rows.count - 1}:
            assert not differs(rows, inputs_of(case), row), f"row {row} of {case.id}"


def test_most_operators_have_rows_that_stand_alone() -> None:
    """So that the test above is about something."""
    tested = {operator for operator in OPERATORS.keys() - LISTS if promising(operator)}
    assert {"matmul", "linear_w8a8", "quantize", "dynamic_range_quantize", "min_max"} <= tested
    assert len(tested) >= 25, sorted(tested)


def described(operator: str, **fields: Any) -> planq.Descriptor:
    """A descriptor of eight rows; float32 where nothing else is said."""
    known = {info.name: info.descriptor for info in planq.operators()}
    return known[operator](**{"shape": (8, 64), "input_dtype": "float32"} | fields)


RANGES = {"output_dtype": "int8"}
TABLE = {"output_dtype": "uint4", "codebook": "nf4", "block_size": 64}
DEEPSPEED = {"convention": "deepspeed", "bits": 8}
SHARED = {
    "tensor": described("dynamic_range_quantize", scope=S.tensor(), **RANGES),
    "channel": described("dynamic_range_quantize", scope=S.channel(1), **RANGES),
    "group of rows": described("dynamic_range_quantize", scope=S.group(4, axis=0), **RANGES),
    "tiles": described("dynamic_range_quantize", scope=S.block(4, 16), **RANGES),
    "channel of batches": described(
        "dynamic_range_quantize", shape=(2, 8, 64), scope=S.channel(1), **RANGES
    ),
    "ranges": described("min_max", scope=S.tensor()),
    "dynamic fake": described("fake_quantize", dynamic=True),
    "fake groups": described("fake_quantize", group_size=48, **DEEPSPEED),
    "draws": described("fake_quantize", group_size=64, rounding="stochastic", **DEEPSPEED),
    "blocks": described("blockwise_quantize", shape=(8, 48), **TABLE),
    "nested": described("blockwise_quantize", nested_block_size=256, **TABLE),
    "table": described("codebook_quantize", output_dtype="uint8", codebook="dynamic"),
    "groups": described("group_quantize", output_dtype="int8", group_size=48),
    "vectors": described("vectorwise_quantize", output_dtype="int8", axis=0),
    "columns": described("row_column_absmax"),
    "norm": described("norm"),
    "sums of columns": planq.CodeSumDescriptor(shape=(8, 64), input_dtype="int8", axis=0),
    "dynamic layer": planq.LinearW8A8DynamicDescriptor(
        input_shape=(8, 64),
        weight_shape=(32, 64),
        input_dtype="float32",
        output_dtype="float32",
        input_scope=S.tensor(),
    ),
}
APART = {
    "token": described("dynamic_range_quantize", scope=S.token(), **RANGES),
    "group": described("dynamic_range_quantize", scope=S.group(16), **RANGES),
    "channel of rows": described("dynamic_range_quantize", scope=S.channel(0), **RANGES),
    "tiles of a row": described("dynamic_range_quantize", scope=S.block(1, 16), **RANGES),
    "whole blocks": described("blockwise_quantize", **TABLE),
    "given absmax": described("blockwise_quantize", shape=(8, 48), absmax_given=True, **TABLE),
    "whole fake groups": described("fake_quantize", group_size=32, **DEEPSPEED),
    "given parameters": described("fake_quantize", scope=S.tensor()),
    "rows of vectors": described("vectorwise_quantize", output_dtype="int8"),
    "a flat tensor": described("dynamic_range_quantize", shape=(64,), scope=S.tensor(), **RANGES),
    "any number of rows": described(
        "dynamic_range_quantize", shape=(planq.Dim("m", max=64), 64), scope=S.token(), **RANGES
    ),
}


@pytest.mark.parametrize("device", ["host", "sm_80", "sm_90"])
@pytest.mark.parametrize("name", SHARED)
def test_rows_that_share_are_not_batch_invariant(name: str, device: str) -> None:
    """The plan says so, and a preference for it finds no kernel and says what rows share."""
    selection = planq.explain(SHARED[name], device=device)
    assert selection.chosen is not None
    chosen = next(c for c in selection.candidates if c.chosen)
    assert not chosen.guarantee.batch_invariant
    refused = planq.explain(SHARED[name], INVARIANT, device=device)
    assert refused.chosen is None
    (again,) = [c for c in refused.candidates if (c.sku, c.body) == (chosen.sku, chosen.body)]
    assert again.reason.startswith("is not batch invariant: ")


@pytest.mark.parametrize("name", SHARED)
def test_a_plan_of_rows_that_share_says_so(name: str) -> None:
    """Its guarantee, its JSON, and the error of a plan that may not be."""
    plan = planq.Plan.select(planq.HOST, SHARED[name])
    assert not plan.precision_guarantee().batch_invariant
    assert json.loads(plan.to_json())["guarantee"]["batch_invariant"] is False
    with pytest.raises(planq.NoKernelError, match="is not batch invariant: "):
        planq.Plan.select(planq.HOST, SHARED[name], INVARIANT)


@pytest.mark.parametrize("name", APART)
def test_rows_that_share_nothing_are_batch_invariant(name: str) -> None:
    """A promise is not given up where it holds."""
    plan = planq.Plan.select(planq.HOST, APART[name], INVARIANT)
    assert plan.precision_guarantee().batch_invariant


@pytest.mark.parametrize("name", ["tensor", "channel", "tiles", "ranges", "dynamic fake"])
def test_rows_that_share_differ_alone(name: str) -> None:
    """What is refused is no pedantry: one large neighbour changes another row's results."""
    rows = rows_of(SHARED[name])
    assert rows is not None
    x = np.random.default_rng(3).standard_normal(rows.all.operands()["input"].shape)
    x[1:] *= 8
    assert differs(rows, {"input": x.astype(np.float32)}, 0)


def test_a_guarantee_says_what_its_descriptor_decides() -> None:
    """Rounding of an optimizer, sums of ranks in float16, a norm that rounds nothing."""
    step = {"shapes": [(64,)], "parameter_dtype": "bfloat16", "gradient_dtype": "bfloat16"}
    for rounding in (planq.Rounding.NEAREST_EVEN, planq.Rounding.STOCHASTIC):
        desc = planq.OptimizerStepDescriptor(**step, rounding=rounding)
        assert planq.Plan.select(planq.HOST, desc).precision_guarantee().rounding is rounding
    sums = {"shape": (64,), "ranks": 2, "input_dtype": "int8", "output_dtype": "float16"}
    for dtype in (planq.DType.FLOAT32, planq.DType.FLOAT16):
        desc = planq.DequantizeReduceDescriptor(**sums, group_size=32, sum_dtype=dtype)
        assert planq.Plan.select(planq.HOST, desc).precision_guarantee().accumulator is dtype
    promise = planq.Plan.select(planq.HOST, described("norm", p="infinity")).precision_guarantee()
    assert promise.math is planq.MathPrecision.NONE
    assert promise.rounding is planq.Rounding.NONE


def test_kernels_know_of_no_descriptor() -> None:
    """The registry lists what a kernel promises where rows share nothing."""
    for operator, kernel in kernels.kernels(planq.Backend.HOST):
        assert kernel.guarantee.batch_invariant, (operator, kernel.sku)


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_a_descriptors_docstring_promises_what_its_plans_promise(operator: str) -> None:
    """Under "Guarantee": of rows, whether all plans of the cases are so, none, or some where."""
    [info] = [info for info in planq.operators() if info.name == operator]
    promise = re.split(r"\n(?=\w[\w ]*:\n)", inspect.cleandoc(info.descriptor.__doc__ or ""))
    [words] = [" ".join(part.split()) for part in promise if part.startswith("Guarantee:")]
    tests: Any = OPERATORS[operator]
    problems = {case.problem for case in tests.cases()}
    plans = [planq.Plan.select(planq.HOST, tests.descriptor(problem)) for problem in problems]
    apart = {plan.precision_guarantee().batch_invariant for plan in plans}
    assert ("None is batch-invariant: " in words) == (apart == {False}), words
    assert ("batch-invariant where " in words) == (apart == {True, False}), words
    assert "batch-invariant" in words

    weaker = {
        kernel.sku.rpartition("/")[0]
        for kernel in info.kernels
        if kernel.guarantee.determinism is not planq.Determinism.BIT_EXACT
    }
    assert set(re.findall(r"BIT_EXACT but for ``([\w/]+)``", words)) == weaker, words
    assert "BIT_EXACT" in words
