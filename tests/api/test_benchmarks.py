"""What benchmarks/ says of a case is right: names, targets, checked bits, floors, peers.

The machine is a stub: memory on the host, launches that run once, and times that the test chooses.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bench
import decode
import encoder
import llama
import planq
from checkpoint import small_gemma3
from cli import demo_model
from harness.core.cases import Case, Target, load_cases, read_file
from harness.core.check import (
    HOST_COLUMNS,
    MOST_ELEMENTS,
    check,
    host_reference,
    part_of,
    torch_reference,
)
from harness.core.data import fill_elements
from harness.core.models import shapes_of
from harness.core.report import Record, Report
from harness.core.workload import Arena, Launch, Rate, Timing, Workload, tensors_of
from harness.formulas.gguf import weight
from harness.native.native import cutlass_command
from harness.peers import layer_peers
from harness.peers.peers import make_peer
from planq.torch import optim
from support.bitsandbytes_host import bnb

CASES = Path(bench.__file__).with_name("cases")
SECONDS = 1e-3
LAYERS = (
    *("4096x4096", "6144x4096", "28672x4096", "4096x14336"),
    *("8192x8192", "10240x8192", "57344x8192", "8192x28672", "28672x8192"),
)


class Stub:
    """Runs every launch once, says that each took a millisecond, and has the rates it is given."""

    cold_bytes = 0
    distinct = 1 << 16
    large_bytes = 1000
    stream: Any = planq.HOST

    def __init__(self, bytes_per_second: float = 1e9, peak: float | None = None) -> None:
        self.inputs, self.outputs, self.parameters = (Arena(1 << 23, "cpu") for _ in range(3))
        self.rate = Rate(bytes_per_second, 1.0, "a stub")
        self.operations = peak

    def measure(self, launches: Sequence[Launch], traffic: int, graphs: bool = True) -> Timing:
        for launch in launches:
            launch()
        return Timing(SECONDS, SECONDS, SECONDS, 1, 1, "stub")

    def ceiling(self, reads: int, writes: int, streams: int = 1) -> Rate:
        return self.rate

    def copy(self, nbytes: int) -> Rate:
        return self.rate

    def bare(self, case: Case) -> None:
        return None

    def peak(self) -> float | None:
        return self.operations

    def facts(self) -> dict[str, Any]:
        return {}


def product(m: int, n: int, k: int, **fields: Any) -> Any:
    """A descriptor of linear_w8a8."""
    fields = {"output_dtype": "bfloat16", **fields}
    return planq.LinearW8A8Descriptor(input_shape=(m, k), weight_shape=(n, k), **fields)


def case_of(descriptor: Any, *targets: Target, peers: tuple[str, ...] = (), **more: Any) -> Case:
    title = f"E1/{descriptor.operator}"
    return Case(title, 1, descriptor, 1, 0, targets, peers, **more)


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {case.name: case for case in load_cases(CASES, "cuda")}


# --- cases and targets ----------------------------------------------------------------------------


def test_every_case_has_a_name_of_its_own() -> None:
    """Two groups may list one case, but not two cases under one name."""
    for backend in ("cuda", "host"):
        listed = [
            case
            for path in CASES.glob("*.toml")
            for wanted, case in read_file(path)
            if wanted == backend
        ]
        named = {case.name: case.descriptor for case in listed}
        assert [case.name for case in listed if named[case.name] != case.descriptor] == []
        assert {case.name for case in load_cases(CASES, backend)} == named.keys()
        assert len(named) > 20


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "E1/linear_w8a8/s8_bf16/2x3x8"),
        ({"output_dtype": "float32", "bias_dtype": "float32"}, "E1/linear_w8a8/s8_f32_bias/2x3x8"),
        ({"residual_dtype": "float16"}, "E1/linear_w8a8/s8_bf16_residual/2x3x8"),
        (
            {"input_dtype": "uint8", "input_mode": "asymmetric"},
            "E1/linear_w8a8/u8_bf16_asym/2x3x8",
        ),
    ],
)
def test_products_are_named_by_their_problem(fields: dict[str, Any], name: str) -> None:
    assert case_of(product(2, 3, 8, **fields)).name == name


GROUPS: dict[str, Any] = {
    "code_dtype": "int4",
    "weight_scope": planq.Scope.group(8),
    "nibble_order": "low_first",
}


def coded(m: int, n: int, k: int, **fields: Any) -> Any:
    """A descriptor of linear_4bit."""
    fields = {"input_dtype": "bfloat16", **fields}
    return planq.Linear4BitDescriptor(input_shape=(m, k), weight_shape=(n, k), **fields)


def grouped(m: int, experts: int, n: int, k: int, **fields: Any) -> Any:
    """A descriptor of grouped_linear with groups of 32 codes."""
    fields = {"code_dtype": "int4", "weight_scope": planq.Scope.group(32), **fields}
    return planq.GroupedLinearDescriptor(
        input_shape=(m, k), weight_shape=(experts, n, k), input_dtype="bfloat16", **fields
    )


def test_layers_of_experts_are_named_and_counted_by_the_weights() -> None:
    """Every weight is read, and each row meets one."""
    case = case_of(grouped(5, 3, 7, 64))
    assert case.name == "E1/grouped_linear/experts3-s4-group32/bf16_bf16/5x7x64"
    assert case.product is not None
    assert case.product.operations == 2 * 5 * 7 * 64
    assert case.input_bytes == 2 * 5 * 64 + 3 * 7 * 32 + 4 * 4 + 3 * 7 * 2 * 4


@pytest.mark.parametrize(
    ("desc", "name"),
    [
        (coded(2, 3, 8, block_size=4, nested_block_size=2), "nf4-4/bf16_bf16_nested"),
        (coded(2, 3, 8, **GROUPS), "s4-group8/bf16_bf16"),
        (coded(2, 3, 8, block_size=4, weight_dtype="float32"), "nf4-4-f32-lanes/bf16_bf16"),
        (coded(2, 3, 8, block_size=4, weight_layout="packed"), "nf4-4-packed/bf16_bf16"),
    ],
)
def test_layers_of_codes_are_named_by_their_weight(desc: Any, name: str) -> None:
    assert case_of(desc).name == f"E1/linear_4bit/{name}/2x3x8"


def test_a_product_is_counted_by_what_it_moves_and_computes() -> None:
    case = case_of(product(2, 3, 8))
    assert (case.rows, case.columns, str(case.product)) == (2, 8, "2x3x8")
    assert case.product is not None
    assert case.product.operations == 2 * 2 * 3 * 8
    assert case.input_bytes == 2 * 8 + 3 * 8 + 4 * 2 + 4 * 3
    assert case.output_bytes == 2 * 2 * 3


def test_no_batched_products_are_measured() -> None:
    both = planq.MatmulInt8Descriptor(input_shape=(2, 3, 8), weight_shape=(2, 4, 8))
    rows = planq.MatmulInt8Descriptor(
        input_shape=(2, 8, 3), weight_shape=(4, 8), transpose_input=True
    )
    for desc in (both, rows):
        with pytest.raises(ValueError, match="measured"):
            _ = case_of(desc).product


def transposed(m: int, n: int, k: int, *sides: str, **fields: Any) -> Any:
    """A descriptor of matmul with these sides transposed."""
    return planq.MatmulDescriptor(
        input_shape=(k, m) if "input" in sides else (m, k),
        weight_shape=(k, n) if "weight" in sides else (n, k),
        input_dtype="bfloat16",
        **{f"transpose_{side}": True for side in sides},
        **fields,
    )


@pytest.mark.parametrize(
    ("sides", "name"),
    [
        (("input",), "input_transposed"),
        (("weight",), "weight_transposed"),
        (("input", "weight"), "input_transposed-weight_transposed"),
    ],
)
def test_a_transposed_product_is_the_same_problem(sides: tuple[str, ...], name: str) -> None:
    case = case_of(transposed(2, 3, 8, *sides))
    assert case.name == f"E1/matmul/{name}/bf16_bf16/2x3x8"
    assert (case.rows, case.columns) == (2, 8)
    assert case.traffic == 2 * (2 * 8 + 3 * 8 + 2 * 3)


def test_transposed_products_are_among_the_cases(cases: dict[str, Case]) -> None:
    """With the shapes that memory has, and the target of all products of this size."""
    for sides in (("input",), ("weight",), ("input", "weight")):
        words = "-".join(f"{side}_transposed" for side in sides)
        case = cases[f"D2/matmul/{words}/bf16_bf16/4096x4096x4096"]
        assert case.descriptor == transposed(4096, 4096, 4096, *sides)
        assert case.target_for("torch_linear") is not None
    wide = cases["D2/matmul/weight_transposed/bf16_bf16/128x8192x8192"].descriptor
    assert (wide.input_shape, wide.weight_shape) == ((128, 8192), (8192, 8192))


def test_e1_covers_the_layers_that_the_targets_are_of(cases: dict[str, Case]) -> None:
    """Every layer of both models at every number of rows, and the bounds of what is named."""
    for layer in LAYERS:
        for m in (1, 16, 64, 128, 512, 2048, 8192):
            assert f"E1/linear_w8a8/s8_bf16/{m}x{layer}" in cases

    def bounds(problem: str) -> dict[str, str]:
        case = cases[f"E1/linear_w8a8/s8_bf16/{problem}"]
        measures = ("us", "ceiling", "cutlass", "int_mm_scaled")
        found = {measure: case.target_for(measure) for measure in measures}
        return {name: target.bound for name, target in found.items() if target is not None}

    assert bounds("128x8192x8192") == {"us": "<= 24.0", "int_mm_scaled": ">= 1.3"}
    for m in (1, 16):
        assert bounds(f"{m}x28672x8192") == {
            "us": "<= 66.0",
            "ceiling": ">= 0.8",
            "int_mm_scaled": ">= 1.3",
        }
    assert bounds("512x28672x8192") == {"cutlass": ">= 1.0"}
    assert bounds("4096x4096x4096") == {"cutlass": ">= 1.0", "int_mm_scaled": ">= 1.4"}


def test_every_shape_that_a_target_names_is_one_of_a_case(cases: dict[str, Case]) -> None:
    named = {
        (case.title, shape)
        for case in cases.values()
        for target in case.targets
        for shape in target.shapes or ()
    }
    assert named
    assert named <= {(case.title, case.shape) for case in cases.values()}


# --- the bits of what was timed -------------------------------------------------------------------

PRODUCTS = [
    planq.MatmulInt8Descriptor(input_shape=(3, 40), weight_shape=(5, 40)),
    planq.MatmulInt8Descriptor(input_shape=(3, 40), weight_shape=(5, 40), output_dtype="int8"),
    product(3, 5, 40),
    product(3, 5, 40, output_dtype="float32", input_scope=planq.Scope.tensor()),
    product(3, 5, 40, output_dtype="float16", bias_dtype="float16", residual_dtype="float32"),
    product(3, 5, 40, input_dtype="uint8", input_mode="asymmetric", weight_mode="asymmetric"),
    product(1, HOST_COLUMNS + 7, 8),
]


@pytest.mark.parametrize("desc", PRODUCTS, ids=lambda desc: case_of(desc).name)
def test_products_are_checked_with_torch_and_the_host(desc: Any) -> None:
    """The formula in torch agrees with the host backend; a single wrong byte is counted."""
    case = case_of(desc)
    workload = Workload(Stub(), case)
    workload.measure()
    operands = workload.sets[-1]
    found = check(case, operands, [host_reference, torch_reference])
    assert case.product is not None
    elements = case.product.m * case.product.n
    assert (found.elements, found.differing) == (elements, 0)
    assert found.reference == "host_reference, torch_reference"
    operands["output"].view(torch.uint8)[-1, 0] ^= 1
    assert check(case, operands, [torch_reference]).differing == 1
    assert check(case, operands, [host_reference]).differing == 1


def dense(name: str, m: int, n: int, k: int, **fields: Any) -> Any:
    """A descriptor of another floating product."""
    made = {info.name: info.descriptor for info in planq.operators()}[name]
    return made(input_shape=(m, k), weight_shape=(n, k), **fields)


WIDE = HOST_COLUMNS + 8
BLOCKS = {"input_scope": planq.Scope.group(128), "weight_scope": planq.Scope.block(128, 128)}
FLOATING = [
    dense("matmul", 6, WIDE, 24, input_dtype="bfloat16", bias_dtype="float32"),
    transposed(6, WIDE, 24, "input", residual_dtype="float32"),
    transposed(6, WIDE, 24, "weight", bias_dtype="float32"),
    transposed(6, WIDE, 24, "input", "weight"),
    coded(6, WIDE, 24, block_size=16, nested_block_size=4),
    coded(6, WIDE, 24, **GROUPS),
    coded(6, WIDE, 24, block_size=16, weight_layout="packed", accumulation="lanes"),
    dense("linear_mixed", 6, WIDE, 24, input_dtype="float16"),
    dense("linear_mixed", 6, WIDE, 24, input_dtype="bfloat16", code_dtype="float8_e4m3fn"),
    dense("linear_mixed", 6, 128, 64, input_dtype="float16", weight_layout="reordered"),
    dense("linear_fp8", 6, WIDE, 24, output_dtype="bfloat16"),
    dense("linear_fp8", 6, WIDE, 256, output_dtype="bfloat16", **BLOCKS),
    grouped(9, 2, WIDE, 64),
    grouped(9, 3, WIDE, 32, code_dtype="float4_e2m1fn", scale_dtype="float8_e8m0fnu"),
]


@pytest.mark.parametrize("desc", FLOATING, ids=lambda desc: case_of(desc).name)
def test_floating_products_are_checked_with_the_host(desc: Any) -> None:
    """A few rows of them, and where rows of the weight cannot be told apart all columns."""
    case = case_of(desc)
    workload = Workload(Stub(), case)
    workload.measure()
    operands = workload.sets[-1]
    found = check(case, operands, [host_reference, torch_reference])
    assert (found.differing, found.reference) == (0, "host_reference")
    assert found.elements in (4 * HOST_COLUMNS, 4 * desc.weight_shape[-2])
    operands["output"].view(torch.uint8)[-1, -1] ^= 1
    assert check(case, operands, [host_reference]).differing == 1


@pytest.mark.parametrize("code_dtype", ["uint4", "int4"])
def test_packed_weights_are_checked_with_torch_and_the_host(code_dtype: str) -> None:
    desc = planq.PackWeight4BitDescriptor(weight_shape=(128, 192), code_dtype=code_dtype)
    case = Case("I1/pack_weight_4bit", 1, desc, 1, 0, (), ())
    assert case.name == f"I1/pack_weight_4bit/{code_dtype[0]}4/128x192".replace("/i4", "/s4")
    workload = Workload(Stub(), case)
    workload.measure()
    found = check(case, workload.sets[-1], [host_reference, torch_reference])
    assert (found.elements, found.differing) == (128 * 192, 0)
    assert found.reference == "host_reference, torch_reference"


def made(name: str, **fields: Any) -> Any:
    """A descriptor of an operator."""
    return {info.name: info.descriptor for info in planq.operators()}[name](**fields)


def step(*shapes: tuple[int, ...], **fields: Any) -> Any:
    """A descriptor of optimizer_step."""
    types = {"parameter_dtype": "bfloat16", "gradient_dtype": "bfloat16"}
    return made("optimizer_step", shapes=shapes, **types | fields)


CODED = {"state_format": "blockwise8"}
LARGE = ((MOST_ELEMENTS // 2 + 100,), (3, 5), (MOST_ELEMENTS + 700,))
GROUPED = {"shape": (8192,), "group_size": 64}
FED = [
    made(
        "dequantize_reduce",
        ranks=4,
        input_dtype="int4",
        output_dtype="int4",
        error_feedback=0.25,
        **GROUPED,
    ),
    made(
        "swizzled_quantize",
        input_dtype="float16",
        output_dtype="int8",
        nodes=2,
        devices_per_node=8,
        pipelining=2,
        error_feedback=0.25,
        error_dtype="float16",
        **GROUPED,
    ),
]
TURNED = {"query_shape": (20, 4, 32), "key_heads": 2, "dtype": "bfloat16", "max_position": 9}
NORMS: tuple[dict[str, Any], ...] = ({}, {"norm_weight_dtype": "bfloat16"})
APPENDED: dict[str, Any] = {"key_shape": (32, 2, 24), "pages": 4, "page_size": 8}
APPENDED |= {"input_dtype": "bfloat16"}
BOTH: dict[str, Any] = {"value_dim": 32, "pages": 4, "page_size": 8}
UPDATED = [
    (step((1000,), (3, 5), ()), True),
    (step((1000,), (3, 5), (), parameter_dtype="float32"), True),
    (step((1000,), (3, 5), algorithm="ademamix", **CODED), False),
    (step((1000,), (3, 5), algorithm="lamb", **CODED), False),
    (step((1000,), algorithm="rmsprop"), False),
    (made("percentile_clip", shape=(3000,), input_dtype="bfloat16"), False),
    (made("fill", shape=(3000,), output_dtype="bfloat16"), True),
    (made("fill", shape=(2, 4096), output_dtype="uint8"), True),
    *((desc, True) for desc in FED),
    *((made("rotary_embedding", **TURNED, **norm), False) for norm in NORMS),
    *((made("kv_cache_append", **APPENDED, cache_dtype=codes), False) for codes in (None, "int8")),
    *((made("rotary_kv_cache_append", **TURNED, **BOTH, **norm), False) for norm in NORMS),
]


@pytest.mark.parametrize(
    ("desc", "in_torch"), UPDATED, ids=lambda one: one if one in (0, 1) else case_of(one).name
)
def test_what_is_updated_in_place_is_checked_by_one_more_launch(desc: Any, in_torch: bool) -> None:
    """With what it found; a launch that does something else is found by its first byte."""
    case = case_of(desc)
    workload = Workload(Stub(), case)
    workload.measure()
    operands, references = workload.sets[-1], [host_reference, torch_reference]
    found = check(case, operands, references, workload.launches[-1])
    assert (found.elements, found.differing) == (math.prod(case.extents), 0)
    assert found.reference == "host_reference" + ", torch_reference" * in_torch

    def wrong() -> None:
        workload.launches[-1]()
        written = next(name for name, spec in case.operands.items() if spec.role != "input")
        tensors_of(operands[written])[-1].view(-1)[:1].view(torch.uint8)[0] ^= 1

    assert check(case, operands, references, wrong).differing == 1 + in_torch


def test_of_large_lists_some_blocks_of_every_tensor_are_checked() -> None:
    """The last ones, which are short, among them."""
    case = case_of(step(*LARGE, **CODED))
    part = part_of(case, torch.empty(0))
    lengths = [shape[0] for shape in part.fields["shapes"]]
    assert sum(lengths) < MOST_ELEMENTS
    assert lengths[1] == 15
    assert [length % 256 for length in lengths] == [100, 15, 700 % 256]
    whole = torch.arange(MOST_ELEMENTS + 700)
    tensors = [whole[: MOST_ELEMENTS // 2 + 100], whole[:15], whole]
    chosen = part.of("parameter", tensors)
    assert [len(one) for one in chosen] == lengths
    assert [int(one[-1]) for one in chosen] == [len(one) - 1 for one in tensors]
    assert (
        part.of("absmax1", [one[::256] for one in tensors])[2].tolist() == chosen[2][::256].tolist()
    )


FLAT = [
    made("group_quantize", input_dtype="bfloat16", output_dtype="int4", **GROUPED),
    made("group_dequantize", input_dtype="int8", output_dtype="bfloat16", **GROUPED),
    made("dequantize_reduce", ranks=4, input_dtype="int4", output_dtype="int4", **GROUPED),
    made("dequantize_reduce", ranks=4, input_dtype="int8", output_dtype="bfloat16", **GROUPED),
    made(
        "swizzled_quantize",
        input_dtype="bfloat16",
        output_dtype="int8",
        nodes=2,
        devices_per_node=8,
        **GROUPED,
    ),
    made("fake_quantize", input_dtype="bfloat16", convention="deepspeed", **GROUPED),
    made(
        "fake_quantize",
        input_dtype="float32",
        convention="deepspeed",
        mode="asymmetric",
        bits=4,
        **GROUPED,
    ),
]


@pytest.mark.parametrize("desc", FLAT, ids=lambda desc: case_of(desc).name)
def test_groups_are_checked_with_torch_and_the_host(desc: Any) -> None:
    case = case_of(desc)
    workload = Workload(Stub(), case)
    workload.measure()
    operands = workload.sets[-1]
    found = check(case, operands, [host_reference, torch_reference])
    assert (found.elements, found.differing) == (8192, 0)
    assert found.reference == "host_reference, torch_reference"
    operands["output"].view(torch.uint8).view(-1)[-1] ^= 1
    assert check(case, operands, [host_reference]).differing == 1


@pytest.mark.parametrize("output_dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("kind", ["q4_0", "q8_0", "q4_k", "q6_k"])
def test_blocks_of_files_are_finite_and_checked_with_torch_and_the_host(
    kind: str, output_dtype: str
) -> None:
    case = case_of(made("gguf_dequantize", shape=(6, 512), type=kind, output_dtype=output_dtype))
    assert f"/{kind}/" in case.name
    workload = Workload(Stub(), case)
    workload.measure()
    operands = workload.sets[-1]
    assert operands["output"].isfinite().all()
    found = check(case, operands, [host_reference, torch_reference])
    assert (found.elements, found.differing) == (6 * 512, 0)
    assert found.reference == "host_reference, torch_reference"
    operands["output"].view(torch.uint8).view(-1)[-1] ^= 1
    assert check(case, operands, [host_reference]).differing == 1


@pytest.mark.parametrize("kind", ["q8_0", "q4_k"])
def test_rows_of_blocks_are_checked_with_torch_and_the_host(kind: str) -> None:
    fields = {"shape": (6, 512), "type": kind, "output_dtype": "bfloat16", "table_rows": 6}
    case = case_of(made("gguf_dequantize", **fields))
    workload = Workload(Stub(), case)
    workload.measure()
    operands = workload.sets[-1]
    assert sorted(operands["index"].tolist()) == list(range(6))
    found = check(case, operands, [host_reference, torch_reference])
    assert (found.elements, found.differing) == (6 * 512, 0)
    assert found.reference == "host_reference, torch_reference"
    operands["output"].view(torch.uint8).view(-1)[-1] ^= 1
    assert check(case, operands, [host_reference]).differing == 1


@pytest.mark.parametrize("kind", ["q4_0", "q8_0", "q4_k", "q6_k"])
def test_blocks_of_numbers_are_checked_with_torch_and_the_host(kind: str) -> None:
    case = case_of(made("gguf_quantize", shape=(6, 512), input_dtype="float32", type=kind))
    assert f"/{kind}/" in case.name
    workload = Workload(Stub(), case)
    workload.measure()
    operands = workload.sets[-1]
    found = check(case, operands, [host_reference, torch_reference])
    assert (found.elements, found.differing) == (6 * 512, 0)
    assert found.reference == "host_reference, torch_reference"
    operands["output"].view(-1)[-1] ^= 1
    assert check(case, operands, [host_reference]).differing == 1


def layer_of_blocks(m: int, n: int, k: int, **fields: Any) -> Any:
    """A descriptor of linear_gguf."""
    shapes = {"input_shape": (m, k), "weight_shape": (n, k)}
    return made("linear_gguf", **shapes, **({"output_dtype": "bfloat16"} | fields))


@pytest.mark.parametrize("input_dtype", ["int8", "bfloat16"])
@pytest.mark.parametrize(
    ("kind", "nbytes"), [("q4_0", 18), ("q8_0", 34), ("q4_k", 144), ("q6_k", 210)]
)
@pytest.mark.parametrize("shape", [(3, 40, 512), (30, 5, 768)])
def test_layers_of_blocks_are_finite_and_checked_with_torch_and_the_host(
    shape: tuple[int, int, int], kind: str, nbytes: int, input_dtype: str
) -> None:
    """Where weights are most of the memory, and where activations are; the bytes of all count."""
    m, n, k = shape
    fields = {"type": kind, "input_dtype": input_dtype, "bias_dtype": "float32"}
    case = case_of(layer_of_blocks(m, n, k, **fields))
    short = {"int8": "s8", "bfloat16": "bf16"}[input_dtype]
    assert case.name == f"E1/linear_gguf/{kind}/{short}_bf16_bias/{m}x{n}x{k}"
    weights = n * k // (256 if kind.endswith("k") else 32) * nbytes
    activations = m * k + 4 * m * k // 32 if input_dtype == "int8" else 2 * m * k
    assert case.traffic == weights + activations + 2 * m * n + 4 * n
    workload = Workload(Stub(), case)
    workload.measure()
    operands = workload.sets[-1]
    assert operands["output"].isfinite().all()
    assert len(operands["output"].unique()) > m * n // 2
    found = check(case, operands, [host_reference, torch_reference])
    assert (found.elements, found.differing) == (m * n, 0)
    assert found.reference == "host_reference, torch_reference"
    operands["output"].view(torch.uint8).view(-1)[-1] ^= 1
    for reference in (host_reference, torch_reference):
        assert check(case, operands, [reference]).differing == 1


def test_lists_are_named_by_their_number_and_what_is_updated_counts_twice() -> None:
    case = case_of(step((512, 2), (3,), **CODED))
    assert case.name == "E1/optimizer_step/adam-blockwise8/bf16_bf16/2-tensors-1027"
    numbers = 8 * len([spec for spec in case.operands.values() if spec.kind == "scalar"])
    updated = 1027 * (2 + 1 + 1) + 2 * 4 * (4 + 1)
    assert case.input_bytes == 1027 * 2 + updated + numbers
    assert case.output_bytes == updated
    fill = case_of(made("fill", shape=(3000,), output_dtype="bfloat16"))
    assert (fill.name, fill.input_bytes, fill.output_bytes) == ("E1/fill/bf16/3000", 8, 6000)


def test_a_list_is_measured_beside_one_tensor_with_as_many_elements(cases: dict[str, Case]) -> None:
    """The parameters of Llama 3 8B, which are 291."""
    assert sum(map(math.prod, shapes_of("llama-8b"))) == 8030261248
    lists = [case for case in cases.values() if "-tensors-" in case.shape]
    assert len(lists) == 2
    for case in lists:
        assert case.baseline is not None
        assert len(case.descriptor.shapes) == 291
        flat = replace(case, descriptor=case.baseline)
        assert flat.extents == case.extents
        assert flat.baseline.to_dict() | {"shapes": 0} == case.descriptor.to_dict() | {"shapes": 0}


def test_data_of_products_repeat_in_no_row_and_fill_their_range() -> None:
    """A kernel that reads a wrong row is found: no two rows of a weight are the same."""
    machine = Stub()
    weight = Workload(machine, case_of(product(4, 1 << 12, 64))).sets[0]["weight"]
    assert weight.numel() > 2 * machine.distinct
    assert len(np.unique(weight.numpy(), axis=0)) == len(weight)
    assert (int(weight.min()), int(weight.max())) == (-127, 127)
    clamped = float((weight.abs() == 127).float().mean())
    assert 0 < clamped < 0.01


def test_activations_of_another_type_than_the_weights_are_filled_as_such() -> None:
    """And what comes next finds memory of its own type."""
    machine = Stub()
    desc = product(64, 256, 512, input_dtype="uint8", input_mode="asymmetric")
    operands = Workload(machine, case_of(desc)).sets[0]
    assert 120 < operands["input"].float().mean() < 136
    assert abs(operands["weight"].float().mean()) < 4
    assert torch.equal(operands["weight_sum"], operands["weight"].sum(-1, dtype=torch.int32))
    after = Workload(machine, case_of(product(64, 256, 512))).sets[0]["input"]
    assert abs(after.float().mean()) < 4


# --- what bounds a product ------------------------------------------------------------------------


def measures(machine: Stub, case: Case) -> Record:
    return bench.measure_case(machine, case)


def test_the_floor_of_a_product_is_its_bytes_or_its_operations() -> None:
    """Whichever takes longer; the line tells the rate and the floor."""
    case = case_of(product(2, 3, 8))
    operations, seconds = 96, case.traffic / 1e6
    record = measures(Stub(1e6, peak=1e12), case)
    assert record.measures == {"ceiling": pytest.approx(seconds / SECONDS)}
    assert record.details["problem"] == [2, 3, 8]
    assert record.details["floor_us"] == pytest.approx(seconds * 1e6)
    record = measures(Stub(1e12, peak=1e6), case)
    assert record.measures == {"peak": pytest.approx(operations / 1e6 / SECONDS)}
    assert record.details["tops"] == pytest.approx(operations / SECONDS / 1e12)
    assert record.line().endswith("0.096 (peak) 9.6e-08 TOPS, floor 96.0 us")
    assert record.details["check"]["differing"] == 0


def test_the_peak_is_that_of_the_factors() -> None:
    """Of 16 bits half as many operations, of float32 a few."""
    for desc, share in (
        (product(2, 3, 8), 1),
        (dense("linear_fp8", 2, 3, 8, output_dtype="bfloat16"), 1),
        (dense("matmul", 2, 3, 8, input_dtype="bfloat16"), 0.5),
        (dense("matmul", 2, 3, 8, input_dtype="float16", accumulation="lanes"), 67 / 1979),
    ):
        record = measures(Stub(1e12, peak=1e6), case_of(desc))
        assert record.measures == {"peak": pytest.approx(96 / (1e6 * share) / SECONDS)}


def test_a_machine_without_a_known_peak_tells_rates_alone() -> None:
    record = measures(Stub(), case_of(product(2, 3, 8)))
    assert record.measures == {}
    assert "ceiling" not in record.details
    assert record.line().endswith("9.6e-08 TOPS")


def test_microseconds_of_a_named_problem_are_a_target() -> None:
    target = Target(measure="us", at_most=999.0, shapes=("2x3x8",))
    record = measures(Stub(), case_of(product(2, 3, 8), target))
    assert record.verdicts == [
        {"measure": "us", "bound": "<= 999.0", "value": 1000.0, "met": False}
    ]
    assert measures(Stub(), case_of(product(2, 3, 9), target)).verdicts == []


def test_a_target_that_names_a_gpu_is_of_that_gpu_alone() -> None:
    """Others have the next rule for the measure, or none."""
    target = Target(measure="us", gpu="NVIDIA H200", at_most=999.0)
    alone, both = (
        case_of(product(2, 3, 8), *targets)
        for targets in ((target,), (target, Target(measure="us", at_most=1001.0)))
    )
    for case, machine, bounds in (
        (alone, "NVIDIA H200", ["<= 999.0"]),
        (alone, "NVIDIA H100 80GB HBM3", []),
        (both, "NVIDIA H200", ["<= 999.0"]),
        (both, "host", ["<= 1001.0"]),
    ):
        record = measures(Stub(), case.on(machine))
        assert [verdict["bound"] for verdict in record.verdicts] == bounds
        assert ("us" in record.measures) == bool(bounds)


def test_every_target_in_microseconds_names_a_gpu_that_has_records(cases: dict[str, Case]) -> None:
    """A name that no GPU has would drop the target without a word."""
    records = (CASES.parent / "results").glob("*/*.json")
    machines = [json.loads(path.read_text()).get("machine", {}) for path in records]
    names = {machine.get("name") for machine in machines}
    targets = {target for case in cases.values() for target in case.targets}
    assert all(target.gpu for target in targets if target.measure == "us")
    assert {target.gpu for target in targets} - {None} <= names


def test_a_word_that_targets_do_not_have_is_an_error(tmp_path: Path) -> None:
    """A limit that nobody reads would widen the target."""
    rule = '{ measure = "us", gpus = "NVIDIA H200", at_most = 4.0 }'
    (tmp_path / "one.toml").write_text(f"[A1.go]\nrows = [{rule}]\n[[A1.group]]\n")
    with pytest.raises(TypeError, match="gpus"):
        load_cases(tmp_path, "cuda")


@pytest.mark.parametrize(
    ("machine", "folder"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("host", "host"),
    ],
)
def test_records_lie_in_a_folder_for_each_gpu(machine: str, folder: str, tmp_path: Path) -> None:
    """One file for each id; memory and maker are no part of the folder's name."""
    report = Report({"name": machine})
    report.add(measures(Stub(), case_of(product(2, 3, 8))))
    report.write(tmp_path)
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*.json")] == [
        Path(folder, "E1.json")
    ]


def test_a_case_is_compared_with_another_operator() -> None:
    """Over its time, and beyond it and what quantizing the input takes at the machine's rate."""
    baseline = planq.MatmulInt8Descriptor(input_shape=(2, 8), weight_shape=(3, 8))
    targets = Target(measure="over", at_most=1.1), Target(measure="extra_us", at_most=0.0)
    record = measures(Stub(1e6), case_of(product(2, 3, 8), *targets, baseline=baseline))
    assert record.details["baseline"] == {
        "operator": "matmul_int8",
        "us": 1000.0,
        "again_us": 1000.0,
    }
    assert record.measures == {"over": 1.0, "extra_us": pytest.approx(-2 * 8 * (1 + 1))}
    assert [verdict["met"] for verdict in record.verdicts] == [True, True]


# --- peers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("peer", ["int_mm", "int_mm_scaled", "bitsandbytes"])
def test_peers_of_products_compute_the_same_layer(peer: str, output: str) -> None:
    """torch to the bit; bitsandbytes with a constant of its own; sums are not compared."""
    workload = Workload(Stub(), case_of(product(32, 16, 64, output_dtype=output)))
    made = make_peer(peer, Stub(), workload)
    assert made is not None
    assert len(made.launches) == len(workload.sets)
    expected = workload.sets[0]["output"].float()
    found = made.launches[0]()
    if peer == "int_mm":
        assert made.differing is None
    elif peer == "int_mm_scaled":
        assert made.differing == 0.0
    else:
        torch.testing.assert_close(found.float(), expected, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("peer", ["int_mm", "bitsandbytes"])
def test_peers_of_the_sums_give_the_same_ones(peer: str) -> None:
    desc = planq.MatmulInt8Descriptor(input_shape=(32, 64), weight_shape=(16, 64))
    workload = Workload(Stub(), case_of(desc))
    made = make_peer(peer, Stub(), workload)
    assert made is not None
    assert made.differing == 0.0
    given = workload.sets[0]
    assert torch.equal(made.launches[0](), bnb.int8_linear_matmul(given["input"], given["weight"]))


@pytest.mark.parametrize(
    ("peer", "desc"),
    [
        ("torch_linear", dense("matmul", 5, 24, 128, input_dtype="bfloat16")),
        ("torch_linear", transposed(5, 24, 128, "input")),
        ("torch_linear", transposed(5, 24, 128, "weight")),
        ("torch_linear", transposed(5, 24, 128, "input", "weight", bias_dtype="bfloat16")),
        ("torch_linear", coded(5, 24, 128, block_size=64)),
        ("torch_linear", coded(5, 24, 128, **GROUPS)),
        ("torch_linear", dense("linear_mixed", 5, 24, 128, input_dtype="bfloat16")),
        ("dequantize_linear", coded(5, 24, 128, **GROUPS, bias_dtype="float32")),
        ("dequantize_linear", coded(5, 24, 128, block_size=64)),
        ("bitsandbytes", coded(5, 32, 128, block_size=64)),
        ("grouped_mm", grouped(9, 3, 16, 128)),
    ],
)
def test_peers_of_floating_products_compute_the_same_layer(peer: str, desc: Any) -> None:
    """With sums in another order, and a rounding of them before the bias or of the weights."""
    workload = Workload(Stub(), case_of(desc))
    made = make_peer(peer, Stub(), workload)
    assert made is not None
    expected, found = workload.sets[0]["output"].float(), made.launches[0]()
    assert isinstance(found, torch.Tensor)
    roundings = 2**-8 * float(expected.abs().max())
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=2 * roundings)


def test_a_peer_of_layers_of_blocks_multiplies_the_input_before_it_becomes_codes() -> None:
    """Off by half a step of each code, at most, besides the roundings of the layers above."""
    desc = layer_of_blocks(5, 24, 256, type="q4_k", input_dtype="bfloat16")
    workload = Workload(Stub(), case_of(desc))
    made = make_peer("torch_linear", Stub(), workload)
    assert made is not None
    given = workload.sets[0]
    expected, found = given["output"].float(), made.launches[0]()
    assert isinstance(found, torch.Tensor)
    groups = given["input"].float().view(5, 8, 32)
    half_steps = (groups.abs().amax(2, keepdim=True) / 254).expand_as(groups).reshape(5, 256)
    bound = half_steps @ weight(desc, given["weight"]).float().abs().T
    roundings = 2 * 2**-8 * float(expected.abs().max())
    off = (found.float() - expected).abs()
    assert (off <= bound + roundings).all()
    assert off.max() > 0  # codes are not the input


@pytest.mark.parametrize(
    ("peer", "algorithm", "fields"),
    [
        ("torch_fused", "AdamW", {"parameter_dtype": "float32", "gradient_dtype": "float32"}),
        ("torch_foreach", "AdamW", {}),
        ("torch_foreach", "SGD", {"algorithm": "momentum"}),
        ("bitsandbytes", "AdamW", {"parameter_dtype": "float32", "gradient_dtype": "float32"}),
        ("bitsandbytes", "AdamW8bit", CODED),
        ("bitsandbytes", "Lion8bit", CODED | {"algorithm": "lion"}),
    ],
)
def test_peers_of_optimizers_take_the_same_steps(
    peer: str, algorithm: str, fields: dict[str, Any]
) -> None:
    """As an optimizer of planq, from the same parameters on: one or two steps, nearly."""
    desc = step((40, 128), (7,), **fields)
    workload = Workload(Stub(), case_of(desc))
    found = make_peer(peer, Stub(), workload)
    assert found is not None
    given = workload.sets[0]
    ours = [torch.nn.Parameter(p.clone()) for p in given["parameter"]]
    arguments: dict[str, Any] = {"lr": 1e-3, "weight_decay": 0.01}
    if algorithm == "SGD":
        arguments = {"lr": 1e-3, "momentum": 0.9}
    optimizer = getattr(optim, algorithm)(ours, **arguments)
    for _ in range(2 if peer.startswith("torch") else 1):
        for p, gradient in zip(ours, given["gradient"], strict=True):
            p.grad = gradient
        optimizer.step()
    found.launches[0]()
    launch: Any = found.launches[0]
    theirs = launch.__self__.param_groups[0]["params"]
    near = 2e-4 if desc.parameter_dtype is planq.DType.BFLOAT16 else 1e-5  # of steps of 1e-3
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(q, p, rtol=1e-2, atol=near)
    assert not torch.equal(theirs[0], given["parameter"][0])


@pytest.mark.parametrize(
    ("peer", "algorithm"), [("torch_fused", "lion"), ("bitsandbytes", "lamb"), ("torchao", "adam")]
)
def test_an_optimizer_that_others_do_not_have_has_no_peer(peer: str, algorithm: str) -> None:
    workload = Workload(Stub(), case_of(step((128,), algorithm=algorithm)))
    assert make_peer(peer, Stub(), workload) is None


@pytest.mark.parametrize(
    "desc",
    [
        *(made("norm", shape=(3000,), input_dtype="bfloat16", p=p) for p in planq.NormOrder),
        made("square_sum", shape=(3000,), input_dtype="float32"),
        made("percentile_clip", shape=(3000,), input_dtype="float32"),
    ],
    ids=lambda desc: f"{desc.operator}-{getattr(desc, 'p', '')}",
)
def test_the_norm_of_torch_is_nearly_planqs(desc: Any) -> None:
    workload = Workload(Stub(), case_of(desc))
    workload.measure()
    found = make_peer("vector_norm", Stub(), workload)
    assert found is not None
    given, theirs = workload.sets[0], found.launches[0]()
    assert isinstance(theirs, torch.Tensor)
    ours = given["norm"] if "norm" in given else given["output"]
    ours = ours.sqrt() if desc.operator == "square_sum" else ours
    torch.testing.assert_close(theirs.view(1), ours, rtol=1e-5, atol=0)


LAYERS_OF_VLLM = (
    made("rms_norm", shape=(5, 96), input_dtype="bfloat16", weight_dtype="bfloat16"),
    made(
        "rms_norm",
        shape=(5, 96),
        input_dtype="bfloat16",
        weight_dtype="bfloat16",
        residual_dtype="bfloat16",
    ),
    made("activation", shape=(5, 96), input_dtype="bfloat16", function="silu", gated=True),
    made(
        "rms_norm",
        shape=(5, 96),
        input_dtype="bfloat16",
        weight_dtype="bfloat16",
        output_dtype="int8",
        residual_dtype="bfloat16",
    ),
    made(
        "activation",
        shape=(5, 96),
        input_dtype="bfloat16",
        function="silu",
        gated=True,
        output_dtype="float8_e4m3fn",
    ),
)


@pytest.mark.parametrize("desc", LAYERS_OF_VLLM, ids=lambda desc: desc.operator)
def test_layers_of_vllm_are_nearly_planqs(desc: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the same residual on, whatever was launched before."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    workload = Workload(Stub(), case_of(desc))
    workload.measure()
    found = make_peer("vllm_compiled", Stub(), workload)
    assert found is not None
    assert found.differing is not None
    assert found.differing < 0.5  # they round once more, before the last product
    given, launch = workload.sets[1], found.launches[1]
    theirs: Any = launch()
    workload.launches[1]()
    ours = given["output"].view(theirs[0].dtype)
    wide = [
        codes.float() * (scale[:, None] if desc.output_dtype.value in layer_peers.LIMITS else 1)
        for codes, scale in ((theirs[0], theirs[-1]), (ours, given.get("scale")))
    ]
    # Of bfloat16, a rounding is 2^-8 of a number at most. Both round their results, theirs rounds
    # before the last product, and planq normalises the sum with the residual as it is stored.
    roundings = 4 if "residual" in given else 3
    parts = {"int8": 2**-6, "float8_e4m3fn": 2**-3}
    bound = parts.get(desc.output_dtype.value, roundings * 2**-8)
    torch.testing.assert_close(*wide, rtol=0, atol=bound * float(wide[1].abs().max()))
    if "residual" in given:
        own = launch.args[0]["residual"]  # type: ignore[attr-defined]
        assert own.data_ptr() != given["residual"].data_ptr()
        assert torch.equal(own, given["residual"])


@pytest.mark.parametrize("desc", LAYERS_OF_VLLM[-2:], ids=lambda desc: desc.operator)
def test_codes_of_norms_and_gates_are_checked_on_the_host(desc: Any) -> None:
    """And so are their scales; the name tells the scope and the type."""
    record = measures(Stub(), case_of(desc))
    assert record.details["check"]["differing"] == 0
    assert record.details["check"]["reference"] == "host_reference"
    assert "token/bf16_" in record.case.name
    workload = Workload(Stub(), record.case)
    workload.measure()
    workload.sets[0]["scale"][3] *= 2
    checked = check(record.case, workload.sets[0], [host_reference], lambda: None)
    assert checked.differing > 0


def test_only_layers_that_vllm_has_are_its_peers() -> None:
    for fields in ({"function": "gelu_tanh", "gated": True}, {"function": "silu"}):
        desc = made("activation", shape=(5, 96), input_dtype="bfloat16", **fields)
        with pytest.raises(ValueError, match="vLLM has no"):
            layer_peers.of_vllm(desc, "bfloat16")


@pytest.mark.parametrize(
    ("code", "rule"),
    [("int8", planq.Quotient.RATIO), ("float8_e4m3fn", planq.Quotient.RECIPROCAL)],
)
def test_codes_of_vllm_are_those_of_a_field_of_planq(code: str, rule: planq.Quotient) -> None:
    x = torch.randn(64, 200, generator=torch.Generator().manual_seed(1)).bfloat16()
    desc = made(
        "dynamic_range_quantize",
        shape=x.shape,
        input_dtype="bfloat16",
        output_dtype=code,
        quotient=rule,
    )
    plan = planq.Plan.select(planq.HOST, desc)
    ours = {"output": torch.empty(x.shape, dtype=torch.int8), "scale": torch.empty(64)}
    if code != "int8":
        ours["output"] = ours["output"].view(torch.float8_e4m3fn)
    plan.run(planq.HOST, None, planq.DynamicRangeQuantizeArgs(input=x, **ours))
    codes, scale = layer_peers.quantized(x, code)
    assert torch.equal(codes.view(torch.int8), ours["output"].view(torch.int8))
    assert torch.equal(scale, ours["scale"])


def test_a_step_of_a_layer_has_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the record and in the table, for each number of tokens."""
    words = ["--backend", "host", "--small", "--quick", "--tokens", "1,3", "--json"]
    monkeypatch.setattr(sys, "argv", ["decode.py", *words, str(tmp_path)])
    assert decode.main() == 0
    record = json.loads((tmp_path / "host" / "decode.json").read_text())
    found = {step["name"]: step["launches"] for step in record["steps"]}
    assert found == {
        f"{form}/{rows}x256": launches
        for rows in (1, 3)
        for form, launches in (("unfused", 13), ("fused", 10))
    }
    for entry in record["steps"]:
        assert entry["us"] > entry["parts"]["norm"]["us"] > 0
        assert entry["parts"].keys() == {"products", "norm", "gate"}


def test_a_step_with_other_bits_than_the_hosts_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fused one is wrong here, and the exit status says so."""
    gated = decode.decode_layer.Layer.gated

    def faulty(layer: Any, at: Any) -> Any:
        return [] if layer.fused else gated(layer, at)

    monkeypatch.setattr(decode.decode_layer.Layer, "gated", faulty)
    words = ["--backend", "host", "--small", "--quick", "--tokens", "2"]
    monkeypatch.setattr(sys, "argv", ["decode.py", *words])
    assert decode.main() == 1
    *_, unfused, fused = capsys.readouterr().out.splitlines()
    assert "OTHER BITS" not in unfused
    assert fused.endswith("OTHER BITS than the host's")


def test_gaps_are_where_no_kernel_runs() -> None:
    """Kernels that overlap leave none, and one within another counts twice."""
    spans = [("a", 0.0, 10.0), ("b", 8.0, 30.0), ("a", 12.0, 20.0), ("a", 34.0, 40.0)]
    found = decode.gaps([(name, 8 * begin, 8 * end) for name, begin, end in spans])
    assert found == {"kernels": 0.5, "gaps_us": 4.0, "kernels_us": {"a": 24.0, "b": 22.0}}
    assert decode.gaps([]) == {}


@pytest.mark.parametrize(
    "given", [(), ("temperature",), ("temperature", "top_k", "top_p"), ("top_p", "min_p")]
)
def test_drawn_indices_are_checked_and_have_a_peer(given: tuple[str, ...]) -> None:
    """By torch and by the host; settings that are named are given, and part of a name."""
    case = case_of(made("sample", shape=(9, 700), input_dtype="bfloat16"), given=given)
    assert case.name == "/".join(("E1/sample", *filter(None, ["-".join(given)]), "bf16_s64/9x700"))
    workload = Workload(Stub(), case)
    assert workload.sets[0].keys() == {"input", "seed", "position", "output", *given}
    workload.launches[0]()
    operands = workload.sets[0]
    found = check(case, operands, [torch_reference, host_reference])
    assert (found.differing, found.reference) == (0, "torch_reference, host_reference")
    operands["output"][3] += 1
    assert check(case, operands, [torch_reference]).differing > 0
    peer = make_peer("torch_multinomial", Stub(), workload)
    assert peer is not None
    [drawn] = peer.launches[0]()  # type: ignore[misc]
    assert drawn.shape == (9,)
    if "top_k" in given:  # what torch drew is among the elements that are kept
        largest = operands["input"].float().topk(50).indices
        assert (largest == drawn[:, None]).any(1).all()


def test_torch_fills_with_the_same_bits() -> None:
    workload = Workload(Stub(), case_of(made("fill", shape=(3000,), output_dtype="bfloat16")))
    found = make_peer("torch_fill", Stub(), workload)
    assert found is not None
    assert found.differing == 0.0


@pytest.mark.parametrize(
    "peer", ["cutlass", "scaled_mm", "scaled_mm_accurate", "tinygemm", "torchao", "triton"]
)
def test_peers_that_need_a_gpu_are_absent_without(peer: str) -> None:
    workload = Workload(Stub(), case_of(product(32, 16, 64)))
    assert make_peer(peer, Stub(), workload) is None


def test_cutlass_is_compiled_where_its_headers_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the architecture with wgmma; without the headers there is no such peer."""
    monkeypatch.setenv("CUDACXX", sys.executable)
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cutlass_command() is None
    (tmp_path / "include" / "cutlass").mkdir(parents=True)
    command = cutlass_command()
    assert command is not None
    assert command[0] == sys.executable
    assert {f"-I{tmp_path}/include", "arch=compute_90a,code=sm_90a"} <= set(command)


def test_codes_are_those_of_normal_elements() -> None:
    values = torch.empty(1 << 16, dtype=torch.uint8)
    fill_elements(values, "uint8")
    assert 127 < values.float().mean() < 129


def test_products_are_measured_beside_ggml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both compute one thing, but for what codes of activations lose."""
    for name, value in (("SIDE", 256), ("COLD", 1), ("LEAST", 0.0), ("ROWS", (1, 3))):
        monkeypatch.setattr(llama, name, value)
    monkeypatch.setattr(llama, "in_own_process", llama.part_of)
    assert llama.main(["--threads", "1", "--turns", "1", "--json", str(tmp_path)]) == 0
    record = json.loads((tmp_path / "host" / "llama.json").read_text())
    found = record["llama"]["products"]
    assert [each["name"] for each in found] == [
        f"{kind}/{rows}x256x256" for kind in llama.ggml.NUMBERS for rows in (1, 3)
    ]
    assert all(0 < each["rms_between"] < 0.02 for each in found)
    assert all(each["peer"].startswith("ggml") and each["speedup"] > 0 for each in found)
    assert len(capsys.readouterr().out.splitlines()) == len(found)
    assert record["llama"]["texts"] == []


def test_texts_are_measured_beside_llama_cpp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here beside a stub, with the small model of the example's tests."""

    class Texts:
        """Reads and writes so many tokens a second."""

        def __init__(self, path: Path, threads: int, context: int) -> None:
            assert context > llama.PROMPT + llama.WRITTEN

        def rates(self, prompt: list[int], tokens: int) -> tuple[float, float]:
            assert (len(prompt), tokens) == (8, 3)
            return 1e-3, 1e9

    for name, value in (("PROMPT", 8), ("WRITTEN", 3), ("LEAST", 0.0)):
        monkeypatch.setattr(llama, name, value)
    monkeypatch.setattr(llama.ggml, "Texts", Texts)
    found = llama.texts(small_gemma3.write(tmp_path / "small.gguf"), 1, 1)
    assert found["prompt"]["speedup"] > 1 > found["text"]["speedup"]
    assert 0 < found["text"]["products_share"] < 1


@pytest.mark.usefixtures("one_thread")
def test_an_encoder_is_measured_beside_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a small model, whose embeddings all are near."""
    folder = demo_model.write(tmp_path).parent
    monkeypatch.setattr(encoder, "LEAST", 0.0)
    monkeypatch.setattr(encoder, "in_own_process", encoder.part_of)
    words = [str(folder), "--threads", "1", "--batches", "1,3", "--turns", "1"]
    assert encoder.main([*words, "--json", str(tmp_path)]) == 0
    record = json.loads((tmp_path / "host" / "encoder.json").read_text())
    assert [each["sentences"] for each in record["encoder"]] == [1, 3]
    for each in record["encoder"]:
        names = ["bfloat16", "w8a8", "torch float32", "torch bfloat16"]
        assert list(each["sentences_per_second"]) == names
        assert all(rate > 0 for rate in each["sentences_per_second"].values())
        assert all(cosine > 0.99 for cosine in each["least_cosine"].values())
        assert each["tokens"] <= each["padded_tokens"]
    assert len(capsys.readouterr().out.splitlines()) == 2 * 5
