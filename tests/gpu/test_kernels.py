"""Every CUDA kernel of the registry against the reference, the host backend and its promises."""

from __future__ import annotations

import pytest
import torch

import planq
from planq.audit import cuda as audit
from planq.audit import kernels, places
from planq.audit.operators import OPERATORS, inputs_of, name_of
from planq.audit.runner import Bench
from support.gpu import Cuda

GPU = Cuda(0)
# The same device, on memory, streams and graphs of the audit's: its checks of these are run here.
AUDITED = audit.Cuda("cuda:0")
# Kernels of the same dtypes share many cases, so that one worker should have them all.
CUDA_ROWS = [
    pytest.param(
        operator,
        kernel,
        id=name_of(kernel),
        marks=pytest.mark.xdist_group(kernel.sku.rpartition("/")[2]),
    )
    for operator, kernel in kernels.kernels(planq.Backend.CUDA)
]
EXACT_ROWS = [
    row for row in CUDA_ROWS if row.values[1].guarantee.determinism is planq.Determinism.BIT_EXACT
]
every_cuda_row = pytest.mark.parametrize(("operator", "kernel"), CUDA_ROWS)


def test_there_are_cuda_rows_for_every_operator() -> None:
    """The two backends are equals."""
    with_kernels = {operator for operator, _ in kernels.kernels(planq.Backend.CUDA)}
    assert with_kernels == {operator.name for operator in kernels.operators()}


@pytest.mark.xdist_group("golden")
def test_every_case_is_taken_by_some_cuda_row() -> None:
    """On the GPU at hand."""
    for name, tests in OPERATORS.items():
        for case in (*tests.cases(), *tests.empty_cases()):
            assert kernels.takers(name, case.problem, GPU.name), case.id


@every_cuda_row
def test_a_row_gives_the_bits_of_the_reference(operator: str, kernel: planq.KernelInfo) -> None:
    """On every case that it accepts; also: the case list exercises the kernel at all."""
    kernels.check_bits(GPU, operator, name_of(kernel))


@pytest.mark.parametrize(("operator", "kernel"), EXACT_ROWS)
def test_a_row_gives_the_bits_of_the_host(operator: str, kernel: planq.KernelInfo) -> None:
    """In every third case; of a kernel that promises a bound the references alone tell."""
    assert places.check_host(AUDITED, operator, name_of(kernel))


@every_cuda_row
def test_ten_runs_give_the_same_bits(operator: str, kernel: planq.KernelInfo) -> None:
    """From outputs and workspace poisoned anew each time."""
    kernels.check_ten_runs(GPU, operator, name_of(kernel))


@every_cuda_row
def test_a_segment_alone_and_in_a_batch_is_equal(operator: str, kernel: planq.KernelInfo) -> None:
    """Batch invariance."""
    kernels.check_batch(GPU, operator, name_of(kernel))


@every_cuda_row
def test_misaligned_pointers_change_no_bit(operator: str, kernel: planq.KernelInfo) -> None:
    """Off by one element, each operand and all of them."""
    kernels.check_misaligned(GPU, operator, name_of(kernel))


@every_cuda_row
def test_strides_change_no_bit(operator: str, kernel: planq.KernelInfo) -> None:
    """And the gaps between strided rows stay untouched."""
    kernels.check_strided(GPU, operator, name_of(kernel))


@every_cuda_row
def test_rows_that_share_elements_change_no_bit(operator: str, kernel: planq.KernelInfo) -> None:
    """Inputs with stride 0, overlapping and negative strides, one, some and all at a time."""
    kernels.check_shared(GPU, operator, name_of(kernel))


@every_cuda_row
def test_groups_larger_than_the_tensor_are_the_tensor(
    operator: str, kernel: planq.KernelInfo
) -> None:
    """Up to the largest number that a descriptor takes."""
    kernels.check_oversized(GPU, operator, name_of(kernel))


@every_cuda_row
def test_empty_tensors_define_every_output(operator: str, kernel: planq.KernelInfo) -> None:
    """Scale 1 and the formula's zero point for each empty segment."""
    kernels.check_empty(GPU, operator, name_of(kernel))


@every_cuda_row
def test_a_plan_keeps_nothing_of_its_last_run(operator: str, kernel: planq.KernelInfo) -> None:
    """Three inputs through one plan and one set of operands."""
    kernels.check_new_inputs(GPU, operator, name_of(kernel))


@every_cuda_row
def test_a_row_promises_what_was_tested(operator: str, kernel: planq.KernelInfo) -> None:
    """BIT_EXACT, batch invariant, 0 ulp, the contract's arithmetic; the plan says the same."""
    kernels.check_guarantee(GPU, operator, kernel)


@every_cuda_row
def test_a_captured_run_replays_on_new_contents(operator: str, kernel: planq.KernelInfo) -> None:
    """The plan's first run is captured; replays, each with other inputs."""
    assert places.check_captured(AUDITED, operator, name_of(kernel))


@every_cuda_row
def test_a_run_waits_for_its_stream(operator: str, kernel: planq.KernelInfo) -> None:
    """It reads what was enqueued before it."""
    assert places.check_order(AUDITED, operator, name_of(kernel))


@every_cuda_row
def test_two_streams_at_once(operator: str, kernel: planq.KernelInfo) -> None:
    """One plan, two operand sets and workspaces, twenty interleaved runs."""
    case = kernels.spread(kernels.accepted(operator, name_of(kernel), GPU.name), 1)[0]
    desc = OPERATORS[operator].descriptor(case.problem)
    benches = [Bench(GPU, desc, pref=kernels.pinned(name_of(kernel))) for _ in range(2)]
    cases = [case.reseeded(seed) for seed in range(2)]
    for bench, own in zip(benches, cases, strict=True):
        bench.load(inputs_of(own))
    plan = benches[0].plan
    updates = any(spec.role == planq.Role.INOUT for spec in desc.operands().values())
    for _ in range(20):
        for bench, own in zip(benches, cases, strict=True):
            if updates:
                bench.load(inputs_of(own))
            plan.run(bench.stream, bench.workspace.argument, bench.args)
    for bench, own in zip(benches, cases, strict=True):
        places.check_outputs(bench, own, f"{name_of(kernel)} on two streams: {own.id}")


@every_cuda_row
def test_a_busy_gpu_changes_no_bit(operator: str, kernel: planq.KernelInfo) -> None:
    """While another stream multiplies matrices, so that blocks come late and in other orders."""
    assert places.check_busy(AUDITED, operator, name_of(kernel))


@pytest.mark.xdist_group("every device")
def test_every_device_runs_its_own_plans() -> None:
    """Whichever device is current; and it still is afterwards."""
    count = torch.cuda.device_count()
    for index in range(count):
        torch.cuda.set_device((index + 1) % count)
        for operator, kernel in kernels.kernels(planq.Backend.CUDA):
            case = kernels.spread(kernels.accepted(operator, name_of(kernel), f"cuda:{index}"), 1)[
                0
            ]
            kernels.check_kernel(Cuda(index), operator, name_of(kernel), case)
        assert torch.cuda.current_device() == (index + 1) % count
    torch.cuda.set_device(0)
