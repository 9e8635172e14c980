"""`planq.audit.sections`: kernels keep their claims; one that does not is refuted by name."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import planq
from planq import _core
from planq.audit import every_input, places, report, sections
from planq.audit.claims import CLAIMS
from planq.audit.materials import bill_of_materials
from planq.audit.memory import Host
from planq.audit.operators import all_cases
from planq.audit.runner import Bench
from support import ending

ROOT = Path(__file__).parents[2]
SECTION = sections.Section("host", "codebook_quantize")
BY_NAME = {claim.name: claim for claim in CLAIMS}


def kernels_of_the_host(operator: str) -> list[planq.KernelInfo]:
    """Those of an operator, in the order of the registry."""
    (info,) = (each for each in planq.operators() if each.name == operator)
    return [kernel for kernel in info.kernels if kernel.backend is planq.Backend.HOST]


# Of one operator, the kernel that the faults are planted in.
OPERATOR = "quantize"
KERNEL, *_ = kernels_of_the_host(OPERATOR)
# What computes elementary functions of float32.
(UNARY,) = (kernel for kernel in kernels_of_the_host("unary") if "/f32_f32" in kernel.sku)
Fault = Callable[[Bench, int], None]


def outcome(claim: str) -> sections.Outcome:
    """What becomes of a claim about the kernel."""
    return sections.hold(BY_NAME[claim], Host(), OPERATOR, KERNEL, sections.QUICK)


def flip(bench: Bench, which: int) -> None:
    """Changes a bit of the first element of the outputs, if they have elements."""
    for name, operand in bench.operands.items():
        values = operand.read()
        if bench.roles[name] == "output" and values.size:
            values.view(np.uint8).flat[0] ^= 1
            operand.write(values)


def other_bits_the_second_time(bench: Bench, which: int) -> None:
    """The same, from the second run on."""
    if which:
        flip(bench, which)


def depend_on_alignment(bench: Bench, which: int) -> None:
    """The same, where an operand is not aligned."""
    pointers = [operand.tensor[0] for operand in bench.operands.values()]
    if any(pointer % 256 for pointer in pointers):
        flip(bench, which)


def depend_on_the_batch(bench: Bench, which: int) -> None:
    """The same, where there are many rows."""
    if any(len(o.shape) > 1 and o.shape[0] > 1 for o in bench.operands.values()):
        flip(bench, which)


def write_beside(bench: Bench, which: int) -> None:
    """Writes the byte in front of an output."""
    memory: Any = next(o for n, o in bench.operands.items() if bench.roles[n] == "output")
    image = memory._memory.download()
    image[0] ^= 1
    memory._memory.upload(image)


def write_nothing(bench: Bench, which: int) -> None:
    """Leaves an output as it was before the run."""
    for name, operand in bench.operands.items():
        if bench.roles[name] == "output":
            operand.repoison()


def change_an_input(bench: Bench, which: int) -> None:
    """Changes a bit of an input."""
    for name, operand in bench.operands.items():
        values = operand.read()
        if bench.roles[name] == "input" and values.size:
            values.view(np.uint8).flat[0] ^= 1
            operand.write(values)


def leave_a_raw_nan(bench: Bench, which: int) -> None:
    """Has a GPU's own NaN where the canonical one belongs."""
    for name, operand in bench.operands.items():
        if bench.roles[name] == "output":
            words = operand.read().view(np.uint32)
            words[words == every_input.CANONICAL_NAN] = every_input.DIGESTED_NAN
            operand.write(words.view(np.float32))


FAULTS: dict[Fault, str] = {
    flip: "reference",
    write_beside: "reference",
    write_nothing: "reference",
    change_an_input: "reference",
    other_bits_the_second_time: "again",
    depend_on_alignment: "misaligned",
    depend_on_the_batch: "rows alone",
}


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[Fault], None]:
    """Has a fault happen after every run of a bench."""
    run = Bench.run

    def planted(fault: Fault) -> None:
        runs: dict[int, int] = {}

        def faulty(bench: Bench) -> None:
            run(bench)
            fault(bench, runs.setdefault(id(bench), 0))
            runs[id(bench)] += 1

        monkeypatch.setattr(Bench, "run", faulty)

    return planted


@pytest.mark.parametrize(("fault", "claim"), FAULTS.items(), ids=[f.__name__ for f in FAULTS])
def test_a_fault_is_refuted(plant: Callable[[Fault], None], fault: Fault, claim: str) -> None:
    """By the claim that is about it; without it, the claim holds."""
    assert outcome(claim).state == sections.HELD
    plant(fault)
    found = outcome(claim)
    assert found.state == sections.REFUTED
    assert f"{KERNEL.sku}:{KERNEL.body}" in found.note


def every_function() -> sections.Outcome:
    """What becomes of the claim about elementary functions, in a quick audit."""
    return sections.hold(BY_NAME["every input"], Host(), "unary", UNARY, sections.QUICK)


def test_elementary_functions_have_their_digests() -> None:
    """All of them, and kernels of other types are not called held."""
    outcome = every_function()
    assert outcome.state == sections.HELD
    assert outcome.runs == len(every_input.functions_of("unary")) == 8
    other = next(kernel for kernel in kernels_of_the_host("unary") if kernel is not UNARY)
    found = sections.hold(BY_NAME["every input"], Host(), "unary", other, sections.QUICK)
    assert (found.state, found.runs) == (sections.NOT_TESTABLE, 0)


@pytest.mark.parametrize("function", ["exp", "erf"])
def test_a_function_with_another_digest_is_refuted(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name, with the digest that was found."""
    recorded = every_input.RECORDED[function]["sampled"]
    monkeypatch.setitem(every_input.RECORDED[function], "sampled", "0" * 64)
    found = every_function()
    assert found.state == sections.REFUTED
    assert f"{UNARY.sku}:{UNARY.body}: {function} has the digest {recorded}" in found.note


@pytest.mark.parametrize("fault", [flip, leave_a_raw_nan])
def test_a_function_with_other_bits_is_refuted(
    plant: Callable[[Fault], None], fault: Fault
) -> None:
    """One bit of a million results; a GPU's NaN in the place of the canonical one."""
    plant(fault)
    found = every_function()
    assert found.state == sections.REFUTED
    assert " has the digest " in found.note


def test_a_nan_that_is_left_as_it_is_has_another_digest_than_the_canonical_one() -> None:
    """Of the inputs 0, 0x7FFFFFFF and 0xFFFFFFFE, two of which are NaN."""
    step = int(every_input.DIGESTED_NAN)

    def canonical(words: every_input.Words) -> every_input.Words:
        return np.where(np.isnan(words.view(np.float32)), np.uint32(0x7FC00000), words)

    kept, made = every_input.digest(np.copy, step), every_input.digest(canonical, step)
    assert kept == hashlib.sha256(words_of(0, 0x7FC00000, 0xFFFFFFFE)).hexdigest()
    assert made == hashlib.sha256(words_of(0, 0x7FFFFFFF, 0x7FFFFFFF)).hexdigest()


def words_of(*values: int) -> bytes:
    """Each in four bytes, the lowest first."""
    return b"".join(value.to_bytes(4, "little") for value in values)


@pytest.mark.parametrize("size", [1000, 2**18, every_input.EVERY])
def test_parts_are_the_same_inputs_whatever_their_size(size: int) -> None:
    """Every 4099th, in ascending order, and so is their digest."""
    every = np.arange(0, every_input.EVERY, every_input.STEP, dtype=np.uint64)
    parts = list(every_input.parts(every_input.STEP, size))
    assert all(part.size == size for part in parts[:-1])
    assert 0 < parts[-1].size <= size
    assert (np.concatenate(parts) == every).all()
    found = every_input.digest(lambda words: words ^ 1, every_input.STEP, size)
    assert found == hashlib.sha256((every ^ 1).astype("<u4")).hexdigest()


def test_every_claim_is_in_the_report_and_a_refuted_one_decides() -> None:
    """With as many runs, and the command that repeats it."""
    audited = sections.audit_section(SECTION, sections.QUICK)
    found = report.evidence(audited, [], "quick", [])
    assert report.verdict(found) == sections.HELD
    assert len(found["kernels"]) == len(audited) > 10
    for kernel in found["kernels"]:
        assert set(kernel["claims"]) == set(found["claims"]) == set(BY_NAME)
        assert kernel["claims"]["reference"]["runs"] > 0
        assert re.fullmatch("[0-9a-f]{64}", kernel["digest"])
        assert "planq audit --device host --operators '^codebook_quantize$'" in kernel["repeat"]
    ids = "\n".join(case.id for case in all_cases("codebook_quantize"))
    assert found["cases"] == {
        "codebook_quantize": {
            "count": len(all_cases("codebook_quantize")),
            "sha256": hashlib.sha256(ids.encode()).hexdigest(),
        }
    }
    assert found["models"]["tensor_sm90"]["instructions"]["float16"]["fraction_bits"] == 25
    assert report.verdict({**found, "dropped": ["host fill"]}) == report.INCOMPLETE
    found["kernels"][3]["claims"]["again"] = {"state": sections.REFUTED, "note": "other bits"}
    assert report.verdict(found) == sections.REFUTED
    assert report.verdict({**found, "dropped": ["host fill"]}) == sections.REFUTED


def test_what_is_not_claimed_or_has_no_case_is_not_called_held() -> None:
    """It is not testable, with the reason."""
    guarantee = replace(KERNEL.guarantee, batch_invariant=False)
    alone = replace(KERNEL, guarantee=guarantee)
    found = sections.hold(BY_NAME["rows alone"], Host(), OPERATOR, alone, sections.QUICK)
    assert (found.state, found.runs) == (sections.NOT_TESTABLE, 0)
    assert found.note == "it does not promise batch invariance"
    never = replace(BY_NAME["empty"], check=lambda *_: 0)
    found = sections.hold(never, Host(), OPERATOR, KERNEL, sections.QUICK)
    assert (found.state, found.note) == (sections.NOT_TESTABLE, "no case of this kernel has it")


def test_a_kernel_that_ends_its_process_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody else: what ran beside it is audited again."""
    wanted = sections.sections(["host"], "^(arange|fill|pack_int4)$", claims="^guarantee$")
    monkeypatch.setattr(sections, "audit_section", ending.end_at_fill)
    found = {section.operator: kernels for section, kernels in sections.audit(wanted, 1)}
    states = {
        operator: {outcome.state for kernel in kernels or () for outcome in kernel.outcomes}
        for operator, kernels in found.items()
    }
    assert states == {
        "arange": {sections.HELD},
        "fill": {sections.REFUTED},
        "pack_int4": {sections.HELD},
    }
    assert {len(kernel.outcomes) for kernel in found["fill"] or ()} == {1}


def test_a_process_is_limited_to_an_instruction_set() -> None:
    """And to no other than it was told; a kernel with other bits there is refuted."""
    allowed = _core.instruction_sets()
    for name in allowed:
        program = "from planq import _core; print(*_core.instruction_sets())"
        environment = {**os.environ, places.INSTRUCTION_SET: name}
        command = [sys.executable, "-P", "-c", program]
        told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        assert told.stdout.split() == allowed[: allowed.index(name) + 1]


def test_another_instruction_set_with_other_bits_is_refuted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fault is in this process alone, so that the others are the ones that differ."""
    if not places.narrower():
        assert outcome("instruction sets").note == "the processor has one instruction set"
        return
    assert outcome("instruction sets").state == sections.HELD
    monkeypatch.setattr(places, "digest_of_cases", lambda *_: "0" * 64)
    found = outcome("instruction sets")
    assert found.state == sections.REFUTED
    assert f"writes other bits with {places.narrower()[0]}" in found.note


def test_a_name_of_no_instruction_set_is_refused() -> None:
    """Where planq is imported: kernels would be slow, and nobody would know why."""
    command = [sys.executable, "-P", "-c", "import planq"]
    environment = {**os.environ, places.INSTRUCTION_SET: "avx1024"}
    told = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert told.returncode == 1
    (line,) = [each for each in told.stderr.splitlines() if "ImportError" in each]
    assert line == (
        "ImportError: PLANQ_INSTRUCTION_SET: expected one of baseline, avx2, avx512, avx512_vnni, "
        "amx, got 'avx1024'"
    )


def test_reports_in_the_repository_are_whole() -> None:
    """Each has the digest of its evidence, and the verdict that follows from it.

    The page names each claim that they are older than, and no other.
    """
    files = sorted((ROOT / "docs" / "audit").glob("*.json.gz"))
    assert files
    claims = {claim.name: claim.says for claim in CLAIMS}
    page = (ROOT / "docs" / "audit.md").read_text()
    for file in files:
        newer = set(re.findall(rf"`{file.name}` is older than the claim `([^`]+)`", page))
        assert newer <= claims.keys()
        made = json.loads(gzip.decompress(file.read_bytes()))
        assert report.is_report(made)
        digest = hashlib.sha256(report.canonical(made["evidence"])).hexdigest()
        assert made["evidence_sha256"] == digest
        assert made["verdict"] == report.verdict(made["evidence"]) == sections.HELD
        told = {name: says for name, says in claims.items() if name not in newer}
        assert made["evidence"]["claims"] == told


def test_reports_are_compared_by_kernel() -> None:
    """A path for each difference, whatever the order of kernels."""
    audited = sections.audit_section(sections.Section("host", "pack_int4"), sections.QUICK)
    first, second = (
        report.report(report.evidence(a, [], "quick", []), {"os": os}, "now", 1.0)
        for a, os in ((audited, "one"), (audited[::-1], "other"))
    )
    assert list(report.differences(first, first)) == []
    paths = {path: (a, b) for path, a, b in report.differences(first, second)}
    assert paths.keys() == {"machine > os", "evidence_sha256"}
    second["evidence"]["kernels"][0]["digest"] = "0" * 64
    name = f"host {audited[-1].kernel.sku}:{audited[-1].kernel.body}"
    paths = {path: (a, b) for path, a, b in report.differences(first, second)}
    assert paths[f"evidence > kernels > {name} > digest"][1] == "0" * 64


def test_the_audit_imports_neither_torch_nor_a_test_runner() -> None:
    """It runs where only the wheel and its extra are installed."""
    program = (
        "import sys, planq.audit.sections, planq.cli.audit\n"
        "assert not {'torch', 'pytest', 'hypothesis'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-P", "-c", program], check=True)


def test_the_page_for_auditors_has_every_claim() -> None:
    """In the words of the report."""
    page = (ROOT / "docs" / "determinism.md").read_text()
    for claim in CLAIMS:
        assert f"| {claim.name} | {claim.says} |" in page


def test_the_bill_of_materials_names_what_is_installed() -> None:
    """The library by its bytes, and packages by the versions that they say they have."""
    made = bill_of_materials("ab" * 32)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    library = made["metadata"]["component"]
    assert library["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    properties = {each["name"]: each["value"] for each in library["properties"]}
    assert properties["planq:build_id"] == planq.build_info().build_id
    versions = {each["name"]: each["version"] for each in made["components"]}
    assert versions["numpy"] == np.__version__
    assert versions["ml_dtypes"] == ml_dtypes.__version__
    assert len({each["bom-ref"] for each in made["components"]}) == len(versions)
