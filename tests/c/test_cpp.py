"""planq.hpp: a program of two files that uses all of it, by each compiler and under sanitizers."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planq
from c.programs import STRICT, place, run
from planq import _core
from planq.plan import foresee

NOOP: Any = importlib.import_module("operators.noop")
LISTS: Any = importlib.import_module("operators.list300")
STEP: Any = importlib.import_module("operators.step14")
SOURCES = sorted((Path(__file__).parent / "cpp").glob("*.cpp"))
COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
BUILDS = {
    **{f"{name} {standard}": (name, f"-std={standard}", "-O2") for name in COMPILERS
       for standard in ("c++17", "c++20")},
    **{f"{name} sanitized": (name, "-std=c++17", *SANITIZED) for name in COMPILERS},
}  # fmt: skip
DESC = planq.DynamicRangeQuantizeDescriptor(
    shape=(planq.Dim("m", 16), 4), input_dtype="float32", output_dtype="int8"
)
X = np.array([[0.5, -1, 127, 3], [1, 2, -4, 0.25]], np.float32)


def test_there_is_a_compiler() -> None:
    """Without one, no other test of this file would run."""
    assert "g++" in COMPILERS


@pytest.fixture(scope="module", params=BUILDS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, in one build."""
    made = tmp_path_factory.mktemp("cpp") / "program"
    library = place("--library").parent
    linked = (f"-L{library}", "-lplanq", f"-Wl,-rpath,{library}")
    include = f"-I{place('--include-dir')}"
    run(*BUILDS[request.param], *STRICT, "-Wshadow", include, *SOURCES, *linked, "-o", made)
    return made


def lines_of(program: Path, what: str) -> list[str]:
    """What a part of the program prints; whatever a sanitizer says fails the test."""
    done = subprocess.run([program, what], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def quantized() -> list[str]:
    """The rows of X by the formula, as the program prints them."""
    scale = np.abs(X).max(axis=1) / np.float32(127)
    codes = np.rint(X / scale[:, None]).astype(int)
    return [
        f"{' '.join(map(str, row))} {float(s).hex()}" for row, s in zip(codes, scale, strict=True)
    ]


def same_numbers(found: list[str], expected: list[str]) -> bool:
    """Whether the lines are the same, hexadecimal floats by their values."""

    def parsed(line: str) -> list[Any]:
        return [float.fromhex(w) if "0x" in w else w for w in line.split()]

    return [*map(parsed, found)] == [*map(parsed, expected)]


def test_rows_are_quantized(program: Path) -> None:
    """By a plan of another file; strides, a copy of operands, and any order of them."""
    assert same_numbers(lines_of(program, "rows"), [*quantized(), *quantized()])


def test_a_run_takes_no_memory_from_the_heap(program: Path) -> None:
    """Nor does a launch, or can_implement; the text of a SKU does, so the counter counts."""
    assert lines_of(program, "allocations") == ["000001"]


def test_a_launch_outlives_what_it_was_made_of(program: Path) -> None:
    *rows, body, refusal = lines_of(program, "bound")
    assert same_numbers(rows, quantized())
    assert body == "rows"
    assert refusal.startswith("launch: no launch has this number")


def test_lists_and_numbers(program: Path) -> None:
    """Rates by value and in memory; what is refused, in planq's words."""
    found = lines_of(program, "lists")
    parameter = np.array([[1, 2, 3], [4, 5, 6]], float)
    for line, rate in zip(found[:4], (0.25, 1, 0.5, 0.5), strict=True):
        sums = parameter.sum(axis=1)
        parameter -= rate * np.array([[2.0], [4.0]])
        members = "".join(f"{' '.join(f'{x:g}' for x in member)}, " for member in parameter)
        assert line == members + " ".join(f"{x:g}" for x in sums)
    assert found[4:] == [
        "rate: expected a number, or shape () float64 (or float32) on host, got a bool",
        "gradient: expected a sequence of 2 tensors, got None",
        "gradient: expected a sequence of 2 tensors, got 0 of them",
        "gradient: expected a sequence of 2 tensors, got 1 of them",
    ]


def info_line(spec: planq.OperandSpec, shapes: list[tuple[int, ...]]) -> str:
    """An operand as the program prints it."""
    size = {"float32": 4, "int8": 1, "float64": 8, "int64": 8, "bool": 1}[spec.storage]
    roles, kinds = [*planq.Role], [*planq.OperandKind]
    words = [spec.name, roles.index(spec.role), kinds.index(spec.kind), int(spec.optional)]
    words += [spec.dtype, spec.storage]
    for shape in shapes:
        words += [f"({''.join(f'{e},' for e in shape)})", int(np.prod(shape)) * size]
    return " ".join(map(str, words))


def test_operands_are_those_of_the_descriptor(program: Path) -> None:
    """For the largest extents and smaller ones; each member of a list."""
    expected = []
    for m in (16, 7):
        for spec in DESC.operands().values():
            shape = tuple(m if isinstance(e, planq.Dim) else e for e in spec.shape)
            expected.append(info_line(spec, [shape]))
    for spec in LISTS.List300Descriptor(shapes=[(2, 3), (5,)]).operands().values():
        listed = spec.kind == planq.OperandKind.LIST
        expected.append(info_line(spec, [*spec.shapes] if listed else [spec.shape]))
    assert lines_of(program, "operands") == expected
    steps = STEP.Step14Descriptor(shape=(4, 4), amsgrad=True).operands().values()
    assert lines_of(program, "numbers") == [
        " ".join(info_line(spec, []).split()[:5]) for spec in steps
    ]


def test_a_plan_says_what_pythons_says(program: Path) -> None:
    """Every text, letter by letter."""
    plan = planq.Plan.select(planq.HOST, DESC)
    sku, stored, guarantee, explained, bodies, fewer, sizes, build, operators, again = lines_of(
        program, "texts"
    )
    assert sku == plan.sku
    assert stored == again == plan.to_json()
    assert json.loads(guarantee) == plan.precision_guarantee().to_dict()
    assert explained == json.dumps(plan.explain().to_dict())
    for text, extents in ((bodies, {}), (fewer, {"m": 1})):
        names = [(body["name"], body["chosen"]) for body in json.loads(text)]
        assert names == [(body.name, body.chosen) for body in plan.bodies(**extents)]
    assert sizes == f"{plan.workspace_size()} {plan.workspace_size(m=3)}"
    made = planq.build_info()
    assert build == f"{made.version} {made.build_id} {made.source_id}"
    assert {each["name"] for each in json.loads(operators)} >= {o.name for o in planq.operators()}


# DLPack's own numbers of types, by the letters before the bits.
CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6, "float8_e4m3fn": 10,
         "float8_e5m2": 12, "float8_e8m0fnu": 14, "float6_e2m3fn": 15, "float6_e3m2fn": 16,
         "float4_e2m1fn": 17}  # fmt: skip


def test_element_types_are_planqs(program: Path) -> None:
    """Every one, with DLPack's code; those of pointers."""
    *table, deduced = lines_of(program, "dtypes")
    bits = {row[0]: row[2] for row in _core.formats()}
    assert {line.split()[0] for line in table} == {str(dtype) for dtype in planq.DType}
    for line in table:
        name, code, width = line.split()
        kind = name if name in CODES else name.rstrip("0123456789")
        assert (int(code), int(width)) == (CODES[kind], bits[name])
    assert deduced.split() == ["int32", "float64", "bool", "int64", "uint8", "float16", "bfloat16"]


def test_descriptors_are_json(program: Path) -> None:
    """Texts with odd letters, numbers to their last digit, lists of lists, scopes as Python has."""
    made, empty, full, *extended = lines_of(program, "json")
    odd = 'a "b" \\ \n\x01 \u00e9'
    single = float(np.float32(0.1))
    scopes = [planq.Scope.tensor(), planq.Scope.channel(1), planq.Scope.token()]
    scopes += [planq.Scope.group(128), planq.Scope.group(8, 0), planq.Scope.block(2, 3)]
    assert json.loads(made) == {
        "op": "every",
        "text": odd,
        odd: "text",
        "flag": True,
        "none": None,
        "integer": -3,
        "large": 2**64 - 1,
        "least": -(2**63),
        "tenth": 0.1,
        "single": single,
        "small": 5e-324,
        "whole": 1e22,
        "shapes": [[3, 4], [5]],
        "single_list": [7],
        "empty": [],
        "dim": [{"dim": "m", "max": 16}, 4],
        "dtype": "float8_e4m3fn",
        "scopes": [scope.to_dict() for scope in scopes],
    }
    assert empty == "{}"
    pref = {"determinism": "gpu_to_gpu", "batch_invariant": True, "max_ulp": 0}
    pref |= {"max_workspace_bytes": 1, "backend": "host", "sku": "a", "body": "b"}
    assert json.loads(full) == pref
    assert list(pref) == list(planq.PlanPreference().to_dict())
    more = {"more": 1}
    assert [*map(json.loads, extended)] == [
        *(more, more, {"op": {}} | more, {"op": 1} | more, {"max_ulp": 3, "body": "b"})
    ]


def told(call: Callable[[], object]) -> str:
    """What Python's error says: its code, and the first line without a guess what was meant."""
    with pytest.raises(planq.PlanqError) as error:
        call()
    sentence = str(error.value).splitlines()[0].partition("; did you mean ")[0]
    return f"{CLASSES.index(error.value.code)} {error.value.code}: {sentence}"


# The names of codes in their order, which planq.h fixes.
CLASSES = ["ok", "descriptor", "no_kernel", "argument", "workspace", "stream", "plan_mismatch",
           "cuda", "handle", "buffer", "memory", "internal"]  # fmt: skip


def given(**changes: Any) -> planq.DynamicRangeQuantizeArgs:
    """Operands of DESC, some of them replaced."""
    outputs = {"output": np.zeros((2, 4), np.int8), "scale": np.zeros(2, np.float32)}
    return planq.DynamicRangeQuantizeArgs(**{"input": X, **outputs, **changes})


def pythons_refusals() -> list[str]:
    """What Python says of what the program does wrong, in its order; texts where it cannot be."""
    host = planq.HOST
    plan = planq.Plan.select(host, DESC)
    text = DESC.to_json()[:-1]

    def selected(more: str, **pref: Any) -> Callable[[], object]:
        wish = planq.PlanPreference.from_dict
        read = planq.Descriptor.from_json
        return lambda: planq.Plan.select(host, read(f"{text}{more}}}"), wish(pref))

    def ran(stream: Any = host, **changes: Any) -> Callable[[], object]:
        return lambda: plan.run(stream, None, given(**changes))

    shape = "input: expected shape (m <= 16, 4) float32 on host, got"
    elsewhere = (X.ctypes.data, (2,), (1,), "float32", "cuda:1")
    return [
        told(selected(', "colour": 3')),
        "1 descriptor: q_min: expected a finite number, got nan",
        "1 descriptor: q_max: expected a finite number, got -inf",
        "1 descriptor: op: not JSON: the name 'op' appears twice at byte",
        told(lambda: planq.Descriptor.from_json("?")),
        told(selected("", max_ulp=-1)),
        told(selected("", sku="nothing")),
        told(ran(scale=None)),
        told(ran(input=np.zeros((2, 5), np.float32))),
        f"3 argument: {shape} a tensor of 9 axes; it has more than 8 axes",
        told(ran(input=np.zeros((2, 4), np.uint16))),
        "3 argument: input: expected one operand of this name, got two",
        told(ran(input=None, output=None, scale=None)),
        told(ran(scale=elsewhere)),
        "3 argument: strides: expected 2 of them, got 1",
        told(lambda: plan.workspace_size(m=17)),
        "3 argument: extents: expected each Dim of the plan once, got 'k'",
        told(lambda: plan.workspace_size(m=17)),
        "3 argument: extents: expected one for each of 1 Dims, got 2",
        told(ran(planq.cuda_stream(0, 3))),
        told(lambda: planq.host_stream(0)),
        told(lambda: plan.bind(None, given())(planq.cuda_stream(0, 3))),
        told(lambda: planq.Plan.from_json(host, "{}")),
        told(lambda: planq.Plan.from_json(host, plan.to_json()[1:])),
        "8 handle: plan: no plan has this number: it ended, or there never was one",
        "8 handle: launch: no launch has this number: it ended, or there never was one",
    ]


def test_what_is_wrong_is_thrown(program: Path) -> None:
    """As the class of its code, with Python's sentence where Python can be wrong in this way."""
    found, expected = lines_of(program, "refused"), pythons_refusals()
    for line, sentence in zip(found, expected, strict=False):
        # Of an operand that is missing, Python's sentence goes on with what None has not.
        assert line.startswith(sentence.partition("; it offers ")[0])
    last = expected[-1].removeprefix("8 handle: ")
    codes = [f"{code} {name}: {last}" for code, name in enumerate(CLASSES)]
    assert found[len(expected) :] == ["nothing", *codes[1:], *2 * [f"unknown: {last}"]]


def test_a_workspace_is_refused_or_taken(program: Path) -> None:
    desc = NOOP.NoopDescriptor(shape=(8,), input_dtype="float32", output_dtype="int8")
    pref = planq.PlanPreference(sku="noop/host/exact", body="staged")
    needed = planq.Plan.select(planq.HOST, desc, pref).workspace_size()
    room, *found = lines_of(program, "workspaces")
    assert room == "1"
    start = f"4 workspace: workspace: expected at least {needed} bytes aligned to 256, got"
    assert found == [
        f"{start} 0 bytes; none was given",
        f"{start} {needed - 1} bytes; it is too small",
        f"{start} {needed} bytes; it is misaligned",
        "nothing",
    ]


def test_nothing_is_thrown_by_what_only_tries(program: Path) -> None:
    """And value() throws what was kept."""
    found = lines_of(program, "tries")
    assert found[:2] == ["1 ok: "] * 2
    assert same_numbers(found[2:4], quantized())
    assert found[4:7] == ["1 ok: "] * 3
    refused = pythons_refusals()
    scale = refused[7].partition("; it offers ")[0]
    expected = [refused[0], refused[22], scale, scale, scale]
    assert [line[2:] for line in found[7:12]] == [line[2:] for line in expected]
    assert found[12] == "0 stream: the plan was selected for host, the stream is on cuda:2"
    assert found[13].startswith("0 descriptor: op: no operator is called 'nothing'")
    assert found[14].startswith("1 descriptor: op: no operator is called ''")
    assert found[15].startswith("6 plan_mismatch: not a stored plan: not JSON")
    assert found[16:] == [planq.Plan.select(planq.HOST, DESC).sku]
    assert all(line.startswith("0 ") for line in found[7:14])


def test_the_last_reference_ends_a_plan(program: Path) -> None:
    """Copies, moves, assignments, a number that is taken over, a vector of them."""
    assert lines_of(program, "lifetimes") == ["1111111"]


def test_plans_are_foreseen_for_devices_that_are_absent(program: Path) -> None:
    """As Python foresees them; they run nowhere."""
    found = iter(lines_of(program, "foreseen"))
    for name in ("host", "sm_80", "sm_90"):
        device = planq.selection.native_device(name)
        numbers = (device.arch, device.multiprocessors)
        numbers += (device.shared_memory_per_block, device.l2_bytes)
        assert next(found) == f"{name} {int(name != 'host')} {' '.join(map(str, numbers))}"
        assert json.loads(next(found)) == foresee(DESC, None, name)
        assert next(found) == "0"
        for _ in range(3):
            assert next(found).startswith(f"5 stream: the plan was foreseen for {name} and runs")
    assert next(found) == foresee(DESC, None, "sm_90")["sku"]
    assert next(found) == told(lambda: planq.explain(DESC, device="sm_7")).partition(";")[0]
    assert next(found) == "2 no_kernel: no kernel of dynamic_range_quantize takes this descriptor"
    assert next(found) == "1 descriptor: device: expected PLANQ_HOST or PLANQ_CUDA, got 5"
    assert [*found] == []
