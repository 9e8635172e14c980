"""Error classes: what they derive from, what they carry, how they read."""

from __future__ import annotations

import pickle

import pytest

import planq
from support.samples import make_descriptor

BASES: dict[type[planq.PlanqError], type[Exception]] = {
    planq.DescriptorError: ValueError,
    planq.NoKernelError: NotImplementedError,
    planq.ArgumentError: ValueError,
    planq.WorkspaceError: ValueError,
    planq.StreamError: ValueError,
    planq.PlanMismatchError: RuntimeError,
    planq.PolicyError: RuntimeError,
    planq.CudaError: RuntimeError,
}


@pytest.mark.parametrize("error", BASES, ids=lambda error: error.__name__)
def test_every_error_is_a_planq_error_and_a_builtin_one(error: type[planq.PlanqError]) -> None:
    """So that both kinds of except clause catch it."""
    assert issubclass(error, planq.PlanqError)
    assert issubclass(error, BASES[error])


def test_codes_are_distinct_words() -> None:
    """Stable, for programs."""
    every: list[type[planq.PlanqError]] = [planq.PlanqError, *BASES]
    codes = [error.code for error in every]
    assert len(set(codes)) == len(codes)
    assert all(code == code.lower() and code.replace("_", "").isalpha() for code in codes)


def test_no_other_error_is_public() -> None:
    """The list above is whole."""
    public = {
        item
        for item in vars(planq).values()
        if isinstance(item, type) and issubclass(item, Exception)
    }
    assert public == {planq.PlanqError, *BASES}


def test_errors_carry_their_payload() -> None:
    """In the attributes that the contract names."""
    descriptor = planq.DescriptorError("scope", "no such axis")
    assert (descriptor.field, str(descriptor)) == ("scope", "scope: no such axis")
    argument = planq.ArgumentError("scale", "shape (4,)", "(4, 1)", "squeeze it")
    assert (argument.operand, argument.expected, argument.actual) == (
        "scale",
        "shape (4,)",
        "(4, 1)",
    )
    assert str(argument) == "scale: expected shape (4,), got (4, 1); squeeze it"
    workspace = planq.WorkspaceError(512, 100, 256, "it is too small")
    assert (workspace.needed, workspace.got, workspace.alignment) == (512, 100, 256)
    cuda = planq.CudaError(700, "cudaErrorIllegalAddress", "an illegal access", "launching")
    assert (cuda.cuda_code, cuda.cuda_name) == (700, "cudaErrorIllegalAddress")
    assert "cudaErrorIllegalAddress" in str(cuda)
    assert "700" in str(cuda)


@pytest.mark.parametrize(
    "error",
    [
        planq.DescriptorError("shape", "is odd"),
        planq.ArgumentError("input", "float32", "float16", "convert it"),
        planq.errors.CudaError(1, "cudaErrorInvalidValue", "invalid argument", "add"),
    ],
)
def test_errors_survive_pickle(error: planq.PlanqError) -> None:
    """A pool of processes hands them over; one that it could not would break the pool."""
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


def test_no_kernel_carries_the_selection() -> None:
    """The table, as data."""
    with pytest.raises(planq.NoKernelError) as caught:
        planq.Plan.select(
            planq.HOST, make_descriptor(), planq.PlanPreference(backend=planq.Backend.CUDA)
        )
    selection = caught.value.selection
    assert isinstance(selection, planq.Selection)
    assert selection.candidates
    assert selection.chosen is None
