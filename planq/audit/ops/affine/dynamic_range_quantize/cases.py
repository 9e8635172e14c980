"""The fixed problems and inputs that every kernel and the golden digests are tested with.

The list is a covering sample of the operator's table: every input x output x scope, with the other
choices drawn by an integer hash, so that it is the same list everywhere. `instantiations.py` adds
shapes for all instantiations. Any change to the lists makes the golden digests be recorded anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from planq.audit.ops.affine import microscaling
from planq.audit.ops.affine.cases import BOUNDS, FLOAT8, OUTPUTS
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem, dynamic_range_quantize
from planq.audit.ops.affine.scopes import ScopeSpec
from planq.audit.reference import inputs
from planq.audit.reference.formats import INPUT_DTYPES, Array, pack_nibbles, unpack_nibbles
from planq.audit.reference.inputs import Chooser

KINDS = ("mixed", "mixed", "finite", "ties", "offset", "huge", "nonfinite", "constant", "patterns")
TOKEN_SHAPES = (
    (7, 40),
    (3, 5, 130),
    (2, 4096),
    (33, 64),
    (5, 1),
    (1, 20011),
    (1, 1, 1, 1, 1, 2, 3, 17),
    (300,),
    (2, 70000),
    (4, 1000),
)
SCOPES: tuple[tuple[ScopeSpec, tuple[tuple[int, ...], ...]], ...] = (
    (("token",), TOKEN_SHAPES[0::2]),
    (("token",), TOKEN_SHAPES[1::2]),
    (("tensor",), ((1000,), (3, 50, 37), (1, 1), (5, 30000), (2, 3, 4, 5, 6))),
    (("channel", 0), ((7, 300), (16, 4, 33), (3, 20000), (2048, 3), (5,))),
    (("channel", -1), ((300, 7), (37, 5, 64), (3, 4096), (1, 1), (70, 130))),
    (("channel", 1), ((3, 17, 100), (5, 4, 3, 2, 33), (2, 3, 5000))),
    (("group", 128, -1), ((5, 384), (3, 7, 300), (2, 4096), (130,), (1, 70001))),
    (("group", 32, -1), ((16, 64), (3, 1000), (9, 31), (2, 2, 96))),
    (("group", 7, 0), ((20, 33), (7, 3, 65), (15,), (1, 64))),
    (("group", 3, 1), ((2, 8, 50), (3, 3, 4, 5), (1, 10, 128))),
    (("group", 1, -1), ((4, 9), (2, 2, 64))),
    (("group", 5000, -1), ((2, 12000), (3, 70))),
    (("group", 64, -2), ((200, 48), (2, 65, 33), (64, 1))),
)
BLOCKS: tuple[tuple[ScopeSpec, tuple[tuple[int, ...], ...]], ...] = (
    (("block", 128, 128), ((256, 384), (130, 264), (2, 128, 136), (77, 129), (1, 300))),
    (("block", 1, 128), ((7, 256), (3, 5, 300), (2, 64))),
    (("block", 16, 1), ((40, 33), (2, 16, 8), (9, 1))),
    (("block", 4, 6), ((9, 20), (3, 5, 17), (8, 24), (2, 1, 3, 7))),
    (("block", 3, 5), ((7, 33), (2, 6, 20), (3, 5), (2, 2, 4, 64), (3, 331))),
    (("block", 32, 64), ((64, 128), (2, 33, 192), (40, 72), (3, 100))),
    (("block", 200, 3), ((70, 8), (2, 300, 6), (5, 1))),
    (("block", 2, 5000), ((5, 400), (3, 4, 129), (2, 10001))),
)
CONVENTION_SEED = 20000
WIDE_BLOCKS = (
    (("block", 128, 128), (300, 1032)),
    (("block", 700, 901), (1500, 1801)),
)
WIDE = (
    (("token",), (1, 2**20)),
    (("tensor",), (1, 2**20)),
    (("token",), (1500, 256)),
    (("token",), (5, 65536)),
    (("token",), (3, 33000)),
    (("channel", 0), (3, 300001)),
    (("channel", -1), (9000, 65)),
    (("group", 128, -1), (600, 640)),
    (("group", 128, 0), (1300, 257)),
    (("group", 70000, -1), (2, 150001)),
)


@dataclass(frozen=True)
class Part:
    """Some of a problem's segments, as a problem of their own.

    Attributes:
        whole: The problem that they are a part of.
        problem: The same on the part alone.
        piece: Where the part lies in the input.
        along: Where its parameters lie among all.
    """

    whole: Problem
    problem: Problem
    piece: tuple[slice, ...]
    along: tuple[slice, ...]

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's inputs out of the whole's."""
        return {**whole, "input": np.ascontiguousarray(whole["input"][self.piece])}

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's outputs out of the whole's, stored as if they were made alone."""
        cut = {name: values[self.along] for name, values in whole.items() if name != "output"}
        codes, order = whole["output"], self.whole.nibble_order
        if self.whole.output_dtype in ("int4", "uint4", "float4_e2m1fn"):
            logical = unpack_nibbles(codes, self.whole.shape[-1], order)
            return {**cut, "output": pack_nibbles(logical[self.piece], order)}
        return {**cut, "output": codes[self.piece]}


@dataclass(frozen=True)
class Case:
    """A problem with its input."""

    problem: Problem
    data: str = "mixed"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the input, as one word."""
        return f"{self.problem.id},data={self.data},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of the input."""
        return math.prod(self.problem.shape)

    def reseeded(self, seed: int) -> Case:
        """The problem on other values of all kinds."""
        return Case(self.problem, "mixed", seed)

    def inputs(self) -> dict[str, Array]:
        """Input operands by name."""
        x = inputs.make(self.data, self.problem.shape, self.problem.input_dtype, self.seed)
        if self.problem.convention != "nvfp4":
            return {"input": x}
        return {"input": x, "inverse_tensor_scale": microscaling.factors(x, self.seed)}

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """Output operands by name, as stored."""
        return outputs(self.problem, given["input"], given.get("inverse_tensor_scale"))

    def parts(self) -> Iterator[Part]:
        """Parts that share no segment with the rest; none where a segment spans the tensor."""
        problem = self.problem
        kind, rank = problem.scope[0], len(problem.shape)
        axis, step = 0, 1
        if kind == "channel":
            axis = problem.scope[1] % rank
        step = problem.cuts.get(0, 1)
        if kind == "tensor" or (kind == "token" and rank == 1):
            return
        for start in range(0, problem.shape[axis], step):
            part = slice(start, min(start + step, problem.shape[axis]))
            shape = list(problem.shape)
            shape[axis] = part.stop - part.start
            before = (slice(None),) * axis
            cut = slice(start // step, start // step + 1)
            along = (cut,) if kind == "channel" else (*before, cut)
            yield Part(problem, replace(problem, shape=tuple(shape)), (*before, part), along)


def outputs(
    problem: Problem, x: Array, inverse_tensor_scale: Array | None = None
) -> dict[str, Array]:
    """The reference's outputs by operand name."""
    result = dynamic_range_quantize(problem, x, inverse_tensor_scale)
    named = {"output": result.output, "scale": result.scale}
    return named if result.zero_point is None else {**named, "zero_point": result.zero_point}


def modes_of(output_dtype: str) -> tuple[str, ...]:
    """The modes that the output goes with."""
    if output_dtype in FLOAT8:
        return ("symmetric",)
    return ("asymmetric",) if output_dtype.startswith("u") else ("symmetric", "asymmetric")


def variant(
    chooser: Chooser,
    shape: tuple[int, ...],
    scope: ScopeSpec,
    input_dtype: str,
    output: tuple[str, str],
    mode: str,
) -> Problem:
    """A problem whose remaining fields are drawn at random among those that go together."""
    output_dtype, order = output
    quotients = ("divide", "divide", "reciprocal", "ratio" if mode == "symmetric" else "divide")
    default: tuple[tuple[float | None, float | None], ...] = ((None, None),) * 3
    q_min, q_max = chooser.pick(default + BOUNDS[output_dtype, mode])
    scale_dtypes = (None, None, None, None, "float16", "bfloat16", "float32", "float64")
    return Problem(
        shape=shape,
        input_dtype=input_dtype,
        output_dtype=output_dtype,
        scope=scope,
        mode=mode,
        q_min=q_min,
        q_max=q_max,
        scale_dtype=chooser.pick(scale_dtypes),
        quotient=chooser.pick(quotients),
        nonfinite=chooser.pick(("propagate", "saturate")),
        include_zero=mode == "symmetric" or chooser.pick((True, False)),
        nibble_order=order,
    )


@cache
def sampled_cases() -> tuple[Case, ...]:
    """Every input x output x scope in every mode, then wide and tall ones, then blocks."""
    cases: list[Case] = []
    for input_dtype in INPUT_DTYPES:
        for output in OUTPUTS:
            modes = modes_of(output[0])
            for scope, shapes in SCOPES:
                for repeat in range(2):
                    seed = len(cases)
                    chooser, mode = Chooser(seed), modes[repeat % len(modes)]
                    shape = shapes[(seed // 2 + repeat) % len(shapes)]
                    problem = variant(chooser, shape, scope, input_dtype, output, mode)
                    cases.append(Case(problem, chooser.pick(KINDS), seed))
    for input_dtype in INPUT_DTYPES:
        for index, (scope, shape) in enumerate(WIDE):
            seed = len(cases)
            chooser, output = Chooser(seed), OUTPUTS[(index + seed) % len(OUTPUTS)]
            mode = chooser.pick(modes_of(output[0]))
            problem = variant(chooser, shape, scope, input_dtype, output, mode)
            cases.append(Case(problem, "tiled", seed))
    return (*cases, *block_cases(len(cases)))


def block_cases(first: int) -> list[Case]:
    """Every input x output x shape of a block in every mode, and large tensors, from a seed on."""
    cases: list[Case] = []
    for input_dtype in INPUT_DTYPES:
        for output in OUTPUTS:
            modes = modes_of(output[0])
            for scope, shapes in BLOCKS:
                for mode in modes:
                    seed = first + len(cases)
                    chooser = Chooser(seed)
                    shape = shapes[seed % len(shapes)]
                    problem = variant(chooser, shape, scope, input_dtype, output, mode)
                    cases.append(Case(problem, chooser.pick(KINDS), seed))
    for index, input_dtype in enumerate(INPUT_DTYPES):
        for scope, shape in WIDE_BLOCKS:
            seed = first + len(cases)
            chooser, output = Chooser(seed), OUTPUTS[2 * index]
            problem = variant(chooser, shape, scope, input_dtype, output, modes_of(output[0])[-1])
            cases.append(Case(problem, "tiled", seed))
    return cases


def ggml_problems(shapes: tuple[tuple[int, ...], ...]) -> Iterator[Problem]:
    """Q8_0 and Q4_0 of every input, in every shape."""
    for input_dtype in ("float16", "bfloat16", "float32"):
        for output_dtype, order in OUTPUTS:
            for shape in shapes if output_dtype in ("int8", "int4") else ():
                yield Problem(
                    shape=shape,
                    input_dtype=input_dtype,
                    output_dtype=output_dtype,
                    scope=("group", 32, -1),
                    quotient="reciprocal",
                    nibble_order=order,
                    convention="ggml",
                )


FORMATS = (
    ("mx", "float4_e2m1fn", "low_first"),
    ("mx", "float4_e2m1fn", "high_first"),
    ("mx", "float8_e4m3fn", "low_first"),
    ("mx", "float8_e5m2", "low_first"),
    ("mx_round_up", "float4_e2m1fn", "low_first"),
    ("mx_round_up", "float8_e4m3fn", "low_first"),
    ("mx_round_up", "float8_e5m2", "low_first"),
    ("nvfp4", "float4_e2m1fn", "low_first"),
    ("nvfp4", "float4_e2m1fn", "high_first"),
)
FORMAT_SHAPES = (
    (32,),
    (7, 64),
    (3, 5, 96),
    (70, 4096),
    (2, 1, 3, 32),
    (5, 1),
    (4, 17),
    (3, 1007),
    (2, 3, 80),
    (9, 520),
    (1, 3072),
)
FORMAT_SEED = 30000


def format_problems(shapes: tuple[tuple[int, ...], ...]) -> Iterator[Problem]:
    """MX and NVFP4 of every input, in every shape."""
    for input_dtype in microscaling.INPUTS:
        for convention, output_dtype, order in FORMATS:
            for shape in shapes:
                yield Problem(
                    shape=shape,
                    input_dtype=input_dtype,
                    output_dtype=output_dtype,
                    scope=("group", microscaling.GROUP[convention], -1),
                    quotient="reciprocal" if convention == "nvfp4" else "divide",
                    nibble_order=order,
                    convention=convention,
                )


@cache
def format_cases() -> tuple[Case, ...]:
    """Values of every kind, NaN, infinities, zeros and subnormals among them."""
    cases: list[Case] = []
    for problem in format_problems(FORMAT_SHAPES):
        seed = FORMAT_SEED + len(cases)
        kind = Chooser(seed).pick((*KINDS, "subnormal", "zeros", "normal"))
        cases.append(Case(problem, kind, seed))
    # What gives every thread of a GPU several groups.
    for index, problem in enumerate(format_problems(((2100, 1056),))):
        if problem.convention != "mx_round_up" and problem.nibble_order == "low_first":
            cases.append(Case(problem, "tiled", FORMAT_SEED + 4 * index))
    return tuple(cases)


@cache
def convention_cases() -> tuple[Case, ...]:
    """compressed-tensors' rule for every input x output x scope, and GGML's for its formats."""
    cases: list[Case] = []
    scopes: tuple[tuple[ScopeSpec, tuple[int, ...]], ...] = (
        (("token",), (5, 264)),
        (("tensor",), (3, 700)),
        (("channel", 0), (9, 4100)),
        (("channel", -1), (37, 40)),
        (("group", 128, -1), (5, 384)),
        (("group", 32, -1), (16, 65)),
        (("block", 128, 128), (130, 264)),
        (("block", 16, 8), (40, 33)),
    )
    for input_dtype in INPUT_DTYPES:
        for output_dtype, order in OUTPUTS:
            for scope, shape in scopes if not output_dtype.startswith("u") else ():
                chooser = Chooser(CONVENTION_SEED + len(cases))
                problem = Problem(
                    shape=shape,
                    input_dtype=input_dtype,
                    output_dtype=output_dtype,
                    scope=scope,
                    scale_dtype=chooser.pick((None, None, "float16", "float32")),
                    quotient=chooser.pick(("divide", "divide", "reciprocal")),
                    nonfinite=chooser.pick(("propagate", "saturate")),
                    nibble_order=order,
                    convention="compressed_tensors",
                )
                data = chooser.pick((*KINDS, "subnormal", "zeros"))
                cases.append(Case(problem, data, CONVENTION_SEED + len(cases)))
    # What a block of threads does not hold.
    for input_dtype in ("bfloat16", "float32"):
        for scope, shape in (
            (("tensor",), (3, 150001)),
            (("token",), (2, 70000)),
            (("channel", -1), (3000, 72)),
        ):
            problem = Problem(shape, input_dtype, scope=scope, convention="compressed_tensors")
            cases.append(Case(problem, "tiled", CONVENTION_SEED + len(cases)))
    for problem in ggml_problems(((32,), (7, 64), (3, 5, 96), (70, 4096), (2, 1, 3, 32))):
        chooser = Chooser(CONVENTION_SEED + len(cases))
        kind = chooser.pick((*KINDS, "subnormal", "zeros", "zeros"))
        cases.append(Case(problem, kind, CONVENTION_SEED + len(cases)))
    return tuple(cases)


VLLM_SEED = 40000
# Beside no bound: usual ones, one below all ranges, and one above.
RANGE_BOUNDS = (None, None, 1200.0, 1.0, 0.0625, 1e-30, 3e38)
VLLM_SHAPES = (*TOKEN_SHAPES, (1500, 256), (3, 33000), (1, 2**19))


@cache
def vllm_cases() -> tuple[Case, ...]:
    """vLLM's rule for every input, in rows that every kernel of tokens takes."""
    cases: list[Case] = []
    for input_dtype in microscaling.INPUTS:
        for shape in VLLM_SHAPES:
            seed = VLLM_SEED + len(cases)
            chooser = Chooser(seed)
            problem = Problem(
                shape=shape,
                input_dtype=input_dtype,
                output_dtype="float8_e4m3fn",
                nonfinite=chooser.pick(("propagate", "saturate")),
                convention="vllm",
                scale_ub=chooser.pick(RANGE_BOUNDS),
            )
            small = math.prod(shape) < 2**17
            kinds = (*KINDS, "subnormal", "zeros", "normal") if small else ("tiled",)
            cases.append(Case(problem, chooser.pick(kinds), seed))
    return tuple(cases)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Tensors without elements, of every scope, some with segments and some without."""
    shapes = ((0,), (0, 5), (5, 0), (3, 0, 4), (0, 0), (2, 3, 0))
    cases: list[Case] = []
    for output in OUTPUTS:
        for shape in shapes:
            for scope in ("tensor", "token", "first", "last", "group", "outer"):
                scopes: dict[str, ScopeSpec] = {
                    "tensor": ("tensor",),
                    "token": ("token",),
                    "first": ("channel", 0),
                    "last": ("channel", -1),
                    "group": ("group", 4, -1),
                    "outer": ("group", 2, 0),
                }
                seed = len(cases)
                dtype = INPUT_DTYPES[seed % 4]
                chooser = Chooser(seed)
                mode = chooser.pick(modes_of(output[0]))
                problem = variant(chooser, shape, scopes[scope], dtype, output, mode)
                cases.append(Case(problem, "finite", seed))
    for output in OUTPUTS:
        for shape in shapes[1:]:
            seed = len(cases)
            chooser, dtype = Chooser(seed), INPUT_DTYPES[seed % 4]
            mode = chooser.pick(modes_of(output[0]))
            problem = variant(chooser, shape, ("block", 2, 3), dtype, output, mode)
            cases.append(Case(problem, "finite", seed))
    cases.extend(Case(problem, "finite", 0) for problem in ggml_problems(((0, 64), (3, 0))))
    cases.extend(Case(problem, "finite", 0) for problem in format_problems(((0, 64), (3, 0))))
    return tuple(cases)
