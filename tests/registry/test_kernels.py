"""Every host kernel of the registry against the NumPy reference and its own promises.

Users' kernels promise bits. Of the tests' own operators, two promise less, an error in ulp and a
bound of sums, and have constraints, and one updates in place: so the checks of such promises are
tested themselves.
"""

from __future__ import annotations

import pytest

import planq
from planq.audit import kernels
from planq.audit.memory import Host
from planq.audit.operators import OPERATORS, name_of
from support.alike import representatives
from support.own import PRIVATE, own_kernels

HOST = Host()
HOST_KERNELS = [
    pytest.param(operator, kernel, id=name_of(kernel))
    for operator, kernel in (
        *kernels.kernels(planq.Backend.HOST),
        *own_kernels(planq.Backend.HOST),
    )
]
# Of the others fewer strides and numbers of threads are tried.
WHOLE = representatives(str(param.id) for param in HOST_KERNELS)
every_host_kernel = pytest.mark.parametrize(("operator", "kernel"), HOST_KERNELS)


def test_every_operator_of_the_build_has_a_reference() -> None:
    """A new operator without an entry in OPERATORS fails here."""
    assert {operator.name for operator in planq.operators()} - PRIVATE == OPERATORS.keys()


def test_the_registry_lists_host_kernels_for_every_operator() -> None:
    """An operator that the host does not know would have no reference backend."""
    on_host = {operator for operator, _ in kernels.kernels(planq.Backend.HOST)}
    assert on_host == {operator.name for operator in kernels.operators()}


@every_host_kernel
def test_a_kernel_gives_what_it_promises_of_the_reference(
    operator: str, kernel: planq.KernelInfo
) -> None:
    """On every case that it accepts; also: the case list exercises the kernel at all."""
    kernels.check_bits(HOST, operator, name_of(kernel))


@every_host_kernel
def test_ten_runs_give_the_same_bits(operator: str, kernel: planq.KernelInfo) -> None:
    """From outputs and workspace poisoned anew each time."""
    kernels.check_ten_runs(HOST, operator, name_of(kernel))


@every_host_kernel
def test_a_segment_alone_and_in_a_batch_is_equal(operator: str, kernel: planq.KernelInfo) -> None:
    """Batch invariance, for every scope that has more than one segment."""
    kernels.check_batch(HOST, operator, name_of(kernel))


@every_host_kernel
def test_misaligned_pointers_change_no_bit(operator: str, kernel: planq.KernelInfo) -> None:
    """Off by one element, each operand and all of them."""
    kernels.check_misaligned(HOST, operator, name_of(kernel))


@every_host_kernel
def test_strides_change_no_bit(operator: str, kernel: planq.KernelInfo) -> None:
    """And the gaps between strided rows stay untouched."""
    kernels.check_strided(HOST, operator, name_of(kernel))


@every_host_kernel
def test_rows_that_share_elements_change_no_bit(operator: str, kernel: planq.KernelInfo) -> None:
    """Inputs with stride 0, overlapping and negative strides, one, some and all at a time."""
    places = None if name_of(kernel) in WHOLE else 2
    kernels.check_shared(HOST, operator, name_of(kernel), places=places)


@every_host_kernel
def test_groups_larger_than_the_tensor_are_the_tensor(
    operator: str, kernel: planq.KernelInfo
) -> None:
    """Up to the largest number that a descriptor takes."""
    kernels.check_oversized(HOST, operator, name_of(kernel))


@every_host_kernel
def test_empty_tensors_define_every_output(operator: str, kernel: planq.KernelInfo) -> None:
    """Scale 1 and the formula's zero point for each empty segment."""
    kernels.check_empty(HOST, operator, name_of(kernel))


@every_host_kernel
def test_a_plan_keeps_nothing_of_its_last_run(operator: str, kernel: planq.KernelInfo) -> None:
    """Three inputs through one plan and one set of operands."""
    kernels.check_new_inputs(HOST, operator, name_of(kernel))


@every_host_kernel
def test_the_number_of_threads_changes_no_bit(operator: str, kernel: planq.KernelInfo) -> None:
    """One, two, three and seven threads on a large and on a small case."""
    threads = kernels.THREADS if name_of(kernel) in WHOLE else (3,)
    kernels.check_threads(operator, name_of(kernel), threads=threads)


@every_host_kernel
def test_a_kernel_promises_what_was_tested(operator: str, kernel: planq.KernelInfo) -> None:
    """Users' kernels BIT_EXACT and batch invariant; the contract's arithmetic; the plan says so."""
    kernels.check_guarantee(HOST, operator, kernel)
