"""What the codebook operators refuse: fields of descriptors, then operands by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.from_reference import descriptor_of, make_descriptor
from planq.audit.memory import Host, Workspace
from planq.audit.ops.codebook import inputs as codebook_inputs
from planq.audit.ops.codebook.blockwise_dequantize.reference import BlockwiseDequantizeProblem
from planq.audit.ops.codebook.blockwise_quantize.reference import BlockwiseQuantizeProblem
from planq.audit.ops.codebook.codebook_dequantize.reference import CodebookDequantizeProblem
from planq.audit.ops.codebook.codebook_quantize.reference import CodebookQuantizeProblem
from planq.audit.ops.codebook.reference import Problem
from planq.audit.reference.formats import Arrays
from planq.audit.runner import arguments

SHAPE = (4, 64)
FORTH = {"input_dtype": "float32", "output_dtype": "uint8"}
BACK = {"input_dtype": "uint8", "output_dtype": "float32"}
GOOD: dict[str, dict[str, Any]] = {
    "blockwise_quantize": {**FORTH, "block_size": 64},
    "blockwise_dequantize": {**BACK, "block_size": 64},
    "codebook_quantize": FORTH,
    "codebook_dequantize": BACK,
}
QUANTIZE = ("blockwise_quantize", "codebook_quantize")
DEQUANTIZE = ("blockwise_dequantize", "codebook_dequantize")
BLOCKWISE = ("blockwise_quantize", "blockwise_dequantize")
ALL = tuple(GOOD)
COUNT = "expected a positive integer or None, got "
# Where, which field is at fault, the change that makes it so, and the sentence.
Refusal = tuple[tuple[str, ...], str, dict[str, Any], str]
REFUSED: list[Refusal] = [
    (ALL, "shape", {"shape": ()}, "expected 1 to 8 axes, got 0"),
    (ALL, "shape", {"shape": (3, -1)}, "axis 1 is negative: -1"),
    (ALL, "shape", {"shape": (2**40, 2**40)}, "more than 2^60 elements"),
    (
        QUANTIZE,
        "input_dtype",
        {"input_dtype": "int8"},
        "expected one of float16, bfloat16, float32, float64, got int8",
    ),
    (
        QUANTIZE,
        "output_dtype",
        {"output_dtype": "int8"},
        "expected one of uint8, uint4, got int8",
    ),
    (
        DEQUANTIZE,
        "input_dtype",
        {"input_dtype": "int4"},
        "expected one of uint8, uint4, got int4",
    ),
    (
        DEQUANTIZE,
        "output_dtype",
        {"output_dtype": "float8_e5m2"},
        "expected one of float16, bfloat16, float32, float64, got float8_e5m2",
    ),
    (
        ALL,
        "codebook",
        {"codebook": "int3"},
        "expected Codebook (GIVEN, DYNAMIC, NF4, FP4, INT4, AF4), got 'int3'; did you mean INT4?",
    ),
    (
        QUANTIZE,
        "codebook",
        {"codebook": "nf4"},
        "nf4 goes with output_dtype uint4, got uint8",
    ),
    (
        QUANTIZE,
        "codebook",
        {"codebook": "dynamic", "output_dtype": "uint4"},
        "dynamic goes with output_dtype uint8, got uint4",
    ),
    (
        DEQUANTIZE,
        "codebook",
        {"codebook": "af4"},
        "af4 goes with input_dtype uint4, got uint8",
    ),
    (
        DEQUANTIZE,
        "codebook",
        {"codebook": "dynamic", "input_dtype": "uint4"},
        "dynamic goes with input_dtype uint8, got uint4",
    ),
    (ALL, "entries", {"entries": 257}, "expected 2 to 256 values for uint8, got 257"),
    (ALL, "entries", {"entries": 1}, "expected 2 to 256 values for uint8, got 1"),
    (ALL, "entries", {"entries": -5}, "expected 2 to 256 values for uint8, got -5"),
    (ALL, "entries", {"entries": 0}, COUNT + "0"),
    (ALL, "entries", {"entries": 2.5}, "expected an integer, got 2.5"),
    (
        QUANTIZE,
        "entries",
        {"entries": 17, "output_dtype": "uint4"},
        "expected 2 to 16 values for uint4, got 17",
    ),
    (
        DEQUANTIZE,
        "entries",
        {"entries": 17, "input_dtype": "uint4"},
        "expected 2 to 16 values for uint4, got 17",
    ),
    (ALL, "entries", {"codebook": "dynamic", "entries": 255}, "dynamic has 256 values, got 255"),
    (BLOCKWISE, "block_size", {"block_size": 0}, "expected at least 1, got 0"),
    (BLOCKWISE, "block_size", {"block_size": -64}, "expected at least 1, got -64"),
    (BLOCKWISE, "block_size", {"block_size": None}, "expected an integer, got None"),
    (BLOCKWISE, "nested_block_size", {"nested_block_size": -1}, "expected at least 1, got -1"),
    (BLOCKWISE, "nested_block_size", {"nested_block_size": 0}, COUNT + "0"),
    (
        ("blockwise_quantize",),
        "nested_block_size",
        {"nested_block_size": 256, "absmax_given": True},
        "nested statistics are of absmax that are measured, not given",
    ),
    (
        ("codebook_quantize",),
        "absmax_given",
        {"normalized": True, "absmax_given": True},
        "normalized elements have no absmax",
    ),
    (
        QUANTIZE,
        "quotient",
        {"quotient": "ratio"},
        "RATIO is of q_max, which a codebook does not have; use RECIPROCAL or DIVIDE",
    ),
    (QUANTIZE, "rounding", {"rounding": "none"}, "expected nearest_even or stochastic, got none"),
    (QUANTIZE, "absmax_given", {"absmax_given": 1}, "expected True or False, got 1"),
    (
        DEQUANTIZE,
        "absmax_dtype",
        {"absmax_dtype": "float16"},
        "expected one of float32, float64, got float16",
    ),
    (
        DEQUANTIZE,
        "absmax_dtype",
        {"absmax_dtype": "float64"},
        "float64 goes with output_dtype float64, got float32",
    ),
]
EACH = [
    pytest.param(operator, field, change, text, id=f"{operator}: {change}")
    for operators, field, change, text in REFUSED
    for operator in operators
]


@pytest.mark.parametrize(("operator", "field", "change", "text"), EACH)
def test_a_descriptor_outside_the_table_is_refused(
    operator: str, field: str, change: dict[str, Any], text: str
) -> None:
    """At construction, with the field that is wrong and what is wrong with it."""
    with pytest.raises(planq.DescriptorError) as caught:
        make_descriptor(operator, **{"shape": SHAPE, **GOOD[operator], **change})
    assert caught.value.field == field
    assert str(caught.value) == f"{field}: {text}"


FOUR = {"output_dtype": "uint4", "codebook": "nf4"}
ALLOWED: list[tuple[str, dict[str, Any]]] = [
    *((operator, {}) for operator in GOOD),
    *((operator, {"entries": 2}) for operator in GOOD),
    *((operator, {"codebook": "dynamic", "entries": 256}) for operator in GOOD),
    ("blockwise_quantize", {**FOUR, "entries": 16, "block_size": 2**62}),
    ("blockwise_quantize", {"nested_block_size": 1, "rounding": "stochastic"}),
    ("blockwise_quantize", {"nested_block_size": None, "absmax_given": True}),
    ("blockwise_dequantize", {"output_dtype": "float64", "absmax_dtype": "float32"}),
    ("blockwise_dequantize", {"output_dtype": "float64", "nested_block_size": 256}),
    ("codebook_quantize", {"normalized": True, "quotient": "divide", "shape": (0, 3)}),
    ("codebook_dequantize", {"input_dtype": "uint4", "codebook": "fp4"}),
]


@pytest.mark.parametrize(("operator", "change"), ALLOWED, ids=str)
def test_what_looks_alike_is_allowed(operator: str, change: dict[str, Any]) -> None:
    """Neighbours of the table above, through JSON too."""
    made: Any = make_descriptor(operator, **{"shape": SHAPE, **GOOD[operator], **change})
    assert planq.Descriptor.from_json(made.to_json()) == made
    assert hash(planq.Descriptor.from_json(made.to_json())) == hash(made)


def test_what_is_left_out_is_filled_in() -> None:
    """Equal by meaning: as many entries as codes, statistics of the compute type, no nesting."""
    plain: Any = make_descriptor(
        "blockwise_dequantize", shape=SHAPE, **GOOD["blockwise_dequantize"]
    )
    assert (plain.entries, plain.absmax_dtype) == (256, planq.DType.FLOAT32)
    assert plain.nested_block_size is None
    spelled = make_descriptor(
        "blockwise_dequantize",
        shape=SHAPE,
        **GOOD["blockwise_dequantize"],
        entries=256,
        absmax_dtype="float32",
    )
    assert plain == spelled
    nf4: Any = make_descriptor(
        "blockwise_quantize", shape=SHAPE, input_dtype="float64", block_size=8, **FOUR
    )
    assert nf4.entries == 16
    specs = nf4.operands()
    assert [(s.shape, s.storage) for s in specs.values()] == [
        ((4, 64), "float64"),
        ((128,), "uint8"),
        ((32,), "float64"),
    ]


BLOCKS = BlockwiseQuantizeProblem(shape=SHAPE, input_dtype="float32", entries=200)
PACKED = BlockwiseQuantizeProblem(
    shape=(5, 13), input_dtype="float32", output_dtype="uint4", codebook="nf4"
)
GIVEN = BlockwiseQuantizeProblem(
    shape=SHAPE, input_dtype="float64", codebook="dynamic", absmax_given=True
)
NESTED = BlockwiseQuantizeProblem(
    shape=SHAPE, input_dtype="float32", codebook="dynamic", block_size=4, nested_block_size=8
)
DRAWN = BlockwiseQuantizeProblem(
    shape=SHAPE, input_dtype="float32", codebook="dynamic", rounding="stochastic"
)
UNPACKED = BlockwiseDequantizeProblem(shape=(5, 13), input_dtype="uint4", codebook="nf4")
UNNESTED = BlockwiseDequantizeProblem(
    shape=SHAPE, codebook="dynamic", block_size=4, nested_block_size=8
)
WHOLE = CodebookQuantizeProblem(shape=SHAPE, input_dtype="float32", codebook="dynamic")
NORMALIZED = CodebookQuantizeProblem(
    shape=SHAPE, input_dtype="float32", codebook="dynamic", normalized=True
)
LOOKED_UP = CodebookDequantizeProblem(shape=SHAPE, normalized=True)
OPERATORS: dict[type[Problem], str] = {
    BlockwiseQuantizeProblem: "blockwise_quantize",
    BlockwiseDequantizeProblem: "blockwise_dequantize",
    CodebookQuantizeProblem: "codebook_quantize",
    CodebookDequantizeProblem: "codebook_dequantize",
}


def good_operands(problem: Problem) -> Arrays:
    """All operands of a problem, outputs filled with a mark."""
    given = codebook_inputs.make(problem, "normal", "ordinary", 1)
    wanted = problem.expected(given)
    return {**given, **{name: np.full_like(values, 77) for name, values in wanted.items()}}


def read_only(array: Any) -> Any:
    """The same memory, not to be written."""
    view = array.view()
    view.flags.writeable = False
    return view


Change = Callable[[Arrays], Any]
WRONG: dict[str, tuple[Problem, str, Change, str]] = {
    "an input of another float": (BLOCKS, "input", lambda o: o["input"].astype("f8"), "float64"),
    "a codebook of one value too few": (
        BLOCKS,
        "codebook",
        lambda o: o["codebook"][:-1],
        "expected shape (200,) float32 on host, got (199,) float32 on host",
    ),
    "a codebook in float64": (
        BLOCKS,
        "codebook",
        lambda o: o["codebook"].astype("f8"),
        "expected shape (200,) float32 on host, got (200,) float64 on host",
    ),
    "no codebook": (BLOCKS, "codebook", lambda o: None, "got None"),
    "a codebook of a table": (PACKED, "codebook", lambda o: np.zeros(16, "f4"), "expected None"),
    "a byte for each packed code": (
        PACKED,
        "output",
        lambda o: np.zeros((5, 13), np.uint8),
        "expected shape (33,) uint8 (two uint4 codes a byte) on host, got (5, 13) uint8 on host",
    ),
    "packed rows": (PACKED, "output", lambda o: np.zeros((5, 7), np.uint8), "(33,)"),
    "an absmax too few": (BLOCKS, "absmax", lambda o: o["absmax"][:3], "(4,) float32"),
    "absmax of another float": (GIVEN, "absmax", lambda o: o["absmax"].astype("f4"), "float64"),
    "read-only absmax": (BLOCKS, "absmax", lambda o: read_only(o["absmax"]), "read-only"),
    "absmax over the input": (BLOCKS, "absmax", lambda o: o["input"][0, :4], "overlaps input"),
    "nested absmax as floats": (
        NESTED,
        "absmax",
        lambda o: np.zeros(64, "f4"),
        "expected shape (64,) uint8 on host, got (64,) float32 on host",
    ),
    "nested absmax of absmax as they are": (
        BLOCKS,
        "nested_absmax",
        lambda o: np.zeros(1, "f4"),
        "expected None",
    ),
    "no nested absmax": (NESTED, "nested_absmax", lambda o: None, "got None"),
    "no nested offset": (NESTED, "nested_offset", lambda o: None, "got None"),
    "a nested offset as a number": (UNNESTED, "nested_offset", lambda o: 0.5, "got float"),
    "a nested codebook of 16": (
        UNNESTED,
        "nested_codebook",
        lambda o: o["nested_codebook"][:16],
        "expected shape (256,) float32 on host, got (16,) float32 on host",
    ),
    "no nested codebook": (UNNESTED, "nested_codebook", lambda o: None, "got None"),
    "packed codes in rows": (UNPACKED, "input", lambda o: np.zeros((3, 11), "u1"), "(33,)"),
    "signed bytes for codes": (UNNESTED, "input", lambda o: o["input"].view("i1"), "int8"),
    "no seed": (DRAWN, "seed", lambda o: None, "got None"),
    "a seed of no draws": (BLOCKS, "seed", lambda o: 5, "expected None"),
    "an offset of no draws": (WHOLE, "offset", lambda o: 5, "expected None"),
    "an absmax for each block": (WHOLE, "absmax", lambda o: np.zeros(4, "f4"), "(1,) float32"),
    "an absmax of nothing": (NORMALIZED, "absmax", lambda o: np.zeros(1, "f4"), "expected None"),
    "an absmax of a look-up": (LOOKED_UP, "absmax", lambda o: np.ones(1, "f4"), "expected None"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_operand_is_refused(case: tuple[Problem, str, Change, str]) -> None:
    """By name, with what was expected and what came; nothing is written."""
    problem, operand, change, words = case
    operands = good_operands(problem)
    desc = descriptor_of(OPERATORS[type(problem)], problem)
    plan = planq.Plan.select(planq.HOST, desc)
    before = {name: values.copy() for name, values in operands.items()}
    args = arguments(desc, {**operands, operand: change(operands)})
    held = Workspace(Host(), plan.workspace_size())
    with pytest.raises(planq.ArgumentError) as caught:
        plan.run(planq.HOST, held.argument, args)
    assert caught.value.operand == operand
    assert words in str(caught.value)
    status = plan.can_implement(args)
    assert (status.operand, status.reason) == (operand, str(caught.value))
    for name, values in operands.items():
        assert values.tobytes() == before[name].tobytes()


EVERY_PROBLEM = (
    BLOCKS,
    PACKED,
    GIVEN,
    NESTED,
    DRAWN,
    UNPACKED,
    UNNESTED,
    WHOLE,
    NORMALIZED,
    LOOKED_UP,
)


@pytest.mark.parametrize("problem", EVERY_PROBLEM, ids=lambda problem: problem.id)
def test_the_operands_without_the_change_are_taken(problem: Problem) -> None:
    """What the table above changes is what is refused."""
    desc = descriptor_of(OPERATORS[type(problem)], problem)
    plan = planq.Plan.select(planq.HOST, desc)
    assert plan.can_implement(arguments(desc, good_operands(problem)))


def test_only_nested_statistics_need_a_workspace() -> None:
    """The absmax in C, and the sums of their leaves; each piece begins at an alignment."""
    for problem in EVERY_PROBLEM:
        desc = descriptor_of(OPERATORS[type(problem)], problem)
        size = planq.Plan.select(planq.HOST, desc).workspace_size()
        assert size == (512 if problem is NESTED else 0)
