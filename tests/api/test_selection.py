"""Selection is a pure function of descriptor, preference and device facts, and explains itself."""

from __future__ import annotations

import dataclasses
import json

import pytest

import planq
from planq import _core
from planq.audit import selections
from planq.audit.operators import name_of
from planq.audit.ops.affine.dynamic_range_quantize.adapter import descriptor
from planq.audit.ops.affine.dynamic_range_quantize.cases import sampled_cases
from planq.plan import foresee
from support.samples import assign, make_descriptor

SAMPLE = sampled_cases()[::37]


def facts(arch: int) -> planq.DeviceFacts:
    """A GPU that need not exist."""
    return planq.DeviceFacts(
        name="a GPU",
        arch=arch,
        multiprocessors=132,
        shared_memory_per_block=232448,
        l2_bytes=62914560,
    )


def has_kernels(device: str) -> bool:
    """Whether this build has kernels for a device."""
    return device == "host" or planq.build_info().cuda


def architectures_of(*operators: planq.OperatorInfo) -> set[str]:
    """The words for every range of architectures that CUDA kernels are for."""
    return {
        f"sm_{row.min_arch} or later"
        if row.max_arch is None
        else f"sm_{row.min_arch}"
        if row.max_arch == row.min_arch
        else f"sm_{row.min_arch} to sm_{row.max_arch}"
        for operator in operators
        for row in operator.kernels
        if row.backend is planq.Backend.CUDA
    }


@pytest.mark.parametrize("device", ["sm_75", "sm_9O", "sm_0", "sm_"])
def test_an_unknown_architecture_is_told_which_there_are(device: str) -> None:
    """Those of the registry and of the build, not some that somebody wrote down once."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.explain(make_descriptor(), device=device)
    assert caught.value.field == "device"
    said, _, code = str(caught.value).rpartition("; compiled for ")
    if planq.build_info().cuda:
        assert code == planq.build_info().architectures
        listed = said.rpartition("this build has kernels for ")[2].split(", ")
        assert set(listed) == architectures_of(*planq.operators())
        assert len(set(listed)) == len(listed)
    else:
        assert str(caught.value).endswith("this build has no kernels for CUDA")


def test_a_gpu_that_is_too_old_is_told_what_the_operator_has() -> None:
    """In the first line of the error, which is all that a command prints."""
    desc = planq.MatmulDescriptor(
        input_shape=(64, 512), weight_shape=(8, 512), input_dtype="float16", output_dtype="float16"
    )
    with pytest.raises(planq.NoKernelError) as caught:
        foresee(desc, None, facts(75))
    line = str(caught.value).splitlines()[0]
    if planq.build_info().cuda:
        assert line.startswith(
            "no kernel of matmul runs on this architecture; matmul has kernels for "
        )
        (matmul,) = (each for each in planq.operators() if each.name == "matmul")
        listed = line.split("kernels for ")[1].split("; ")[0]
        assert set(listed.split(", ")) == architectures_of(matmul)
        assert line.endswith(f"compiled for {planq.build_info().architectures}")
    else:
        assert line == "no kernel of matmul takes this descriptor"


def test_an_architecture_without_kernels_of_its_own_takes_those_for_8_0() -> None:
    """And none that asks for more shared memory than its blocks can have."""
    product = planq.MatmulInt8Descriptor(input_shape=(128, 256), weight_shape=(64, 256))
    tensor = make_descriptor(shape=(1024, 1024), scope=planq.Scope.tensor())
    if planq.build_info().cuda:
        chosen = [planq.explain(each, device="sm_120").chosen for each in (product, tensor)]
        assert [each.body for each in chosen if each] == ["mma", "split"]
        (resident,) = (
            each
            for each in planq.explain(tensor, device="sm_120").candidates
            if each.body == "resident" and "shared memory" in each.reason
        )
        assert resident.reason.endswith("the device has 101376")


@pytest.mark.parametrize("device", ["host", "sm_80", "sm_90"])
def test_the_same_question_has_the_same_answer(device: str) -> None:
    """Asked twice, and in another order."""
    first = [planq.explain(descriptor(case.problem), device=device) for case in SAMPLE]
    again = [planq.explain(descriptor(case.problem), device=device) for case in SAMPLE[::-1]]
    assert first == again[::-1]


@pytest.mark.parametrize("device", ["host", "sm_80", "sm_90"])
def test_the_first_accepted_candidate_is_chosen_and_every_other_has_a_verdict(device: str) -> None:
    """In the order of (rank, sku, body); a rejected kernel has a reason, the others none."""
    for case in SAMPLE:
        candidates = planq.explain(descriptor(case.problem), device=device).candidates
        keys = [(c.rank, c.sku, c.body) for c in candidates]
        assert keys == sorted(keys)
        accepted = [c for c in candidates if not c.reason]
        assert bool(accepted) == has_kernels(device)
        assert [c.chosen for c in accepted] == [True, *[False] * len(accepted)][: len(accepted)]
        assert not any(c.chosen for c in candidates if c.reason)


@pytest.mark.parametrize("device", ["host", "sm_80", "sm_90"])
def test_every_kernel_of_the_operator_is_in_the_table(device: str) -> None:
    """None loses in silence."""
    desc = make_descriptor()
    listed = {
        name_of(k) for op in planq.operators() if op.name == desc.operator for k in op.kernels
    }
    selection = planq.explain(desc, device=device)
    assert {name_of(c) for c in selection.candidates} == listed
    assert (selection.chosen is not None) == has_kernels(device)
    if selection.chosen is not None:
        assert selection.chosen.sku in str(selection)


def test_kernels_of_the_other_backend_are_rejected_as_such() -> None:
    """A stream never changes its backend behind the caller's back."""
    for device, other in (("host", "cuda"), ("sm_90", "host")):
        for candidate in planq.explain(make_descriptor(), device=device).candidates:
            if candidate.backend == other:
                assert candidate.reason
                assert not candidate.chosen


@pytest.mark.parametrize("device", ["sm_80", "sm_90"])
def test_every_case_has_a_kernel_on_every_supported_gpu(device: str) -> None:
    """Exactly when CUDA kernels are compiled in; no GPU is needed to know.

    An eighth of the cases whose answers tests/registry compares with those recorded.
    """
    for case in list(selections.cover("dynamic_range_quantize", device))[::8]:
        chosen = planq.explain(descriptor(case.problem), device=device).chosen
        assert (chosen is not None) == planq.build_info().cuda, case.id


def test_names_of_gpus_stand_for_facts() -> None:
    """Any GPU can be asked about with its numbers."""
    for arch in (80, 90):
        named = planq.explain(make_descriptor(), device=f"sm_{arch}")
        given = planq.explain(make_descriptor(), device=facts(arch))
        assert named.chosen is None or given.chosen is not None
        assert [c.sku for c in named.candidates] == [c.sku for c in given.candidates]


def test_a_gpu_that_is_too_old_has_no_kernel() -> None:
    """And the reason names its architecture."""
    selection = planq.explain(make_descriptor(), device=facts(70))
    assert selection.chosen is None
    cuda = [c for c in selection.candidates if c.backend == "cuda"]
    assert all("sm_70" in c.reason for c in cuda)


NO_DEVICES: list[object] = [
    *("sm_90x", "gpu", "", "cuda:99", "cuda:", 7, None, "grün", "\ud800", "sm_90\0"),
    *(planq.DeviceFacts("\ud800"), planq.DeviceFacts("x", l2_bytes=2**64)),
    planq.DeviceFacts("x", backend="abacus"),
]


@pytest.mark.parametrize("device", NO_DEVICES, ids=range(len(NO_DEVICES)))
def test_an_unknown_device_is_refused(device: object) -> None:
    """Not guessed."""
    with pytest.raises((planq.DescriptorError, planq.StreamError)):
        planq.explain(make_descriptor(), device=device)


def test_a_plan_explains_what_selection_said() -> None:
    """The same table, the same choice."""
    for case in SAMPLE:
        desc = descriptor(case.problem)
        plan = planq.Plan.select(planq.HOST, desc)
        assert plan.explain() == planq.explain(desc, device="host")
        assert plan.explain().chosen == next(c for c in plan.explain().candidates if c.chosen)
        chosen = plan.explain().chosen
        assert chosen is not None
        assert plan.workspace_size() == chosen.workspace


def test_selections_are_plain_data() -> None:
    """Frozen, and JSON for a program."""
    selection = planq.explain(make_descriptor())
    content = json.loads(json.dumps(selection.to_dict()))
    candidates = content["candidates"]
    assert [candidate["sku"] for candidate in candidates] == [c.sku for c in selection.candidates]
    assert sum(candidate["chosen"] for candidate in candidates) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        assign(selection, "candidates", ())


def test_every_combination_is_bit_exact_and_says_so() -> None:
    """The strictest preference of bits takes nothing away from this operator."""
    strict = planq.PlanPreference(determinism=planq.Determinism.BIT_EXACT, max_ulp=0)
    for device in ("host", "sm_90"):
        for case in SAMPLE:
            loose = planq.explain(descriptor(case.problem), device=device).chosen
            tight = planq.explain(descriptor(case.problem), strict, device=device).chosen
            assert loose == tight


@pytest.mark.parametrize("info", planq.operators(), ids=lambda info: str(info.name))
def test_a_sku_is_made_of_what_a_kernel_says_of_itself(info: planq.OperatorInfo) -> None:
    """Operator, variant, backend, arithmetic, dtypes."""
    short = {planq.DType(name): brief for name, brief, *_ in _core.formats()}
    for kernel in info.kernels:
        op, backend, *rest = kernel.sku.split("/")
        assert op.partition(".")[0] == info.name
        assert backend == kernel.backend
        dtypes = ["_".join(short[dtype] for dtype in kernel.dtypes)] * bool(kernel.dtypes)
        assert rest[len(rest) - len(dtypes) :] == dtypes
        arithmetic = rest[: len(rest) - len(dtypes)]
        assert len(arithmetic) <= 1
        assert all(name.isidentifier() for name in (*arithmetic, kernel.body))
