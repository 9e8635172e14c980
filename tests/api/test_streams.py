"""The stream is always given, and always the plan's."""

from __future__ import annotations

from typing import Any

import pytest

import planq
from support.samples import make_descriptor, make_sample


class CudaStreamLike:
    """An object with the CUDA stream protocol."""

    def __init__(self, answer: object) -> None:
        """Answers so."""
        self._answer = answer

    def __cuda_stream__(self) -> object:
        """(version, handle) where it is right."""
        return self._answer


WRONG = [None, 0, 5, 1.5, "host", object(), (1, 2, 3), (), True]


@pytest.mark.parametrize(
    "wrong", WRONG, ids=lambda wrong: "object" if type(wrong) is object else repr(wrong)
)
def test_what_is_no_stream_is_refused(wrong: object) -> None:
    """By select, run and launch; None and bare handles above all."""
    sample = make_sample()
    plan = planq.Plan.select(planq.HOST, make_descriptor())
    launch = plan.bind(None, sample.args())
    for refused in (
        lambda: planq.Plan.select(wrong, make_descriptor()),
        lambda: plan.run(wrong, None, sample.args()),
        lambda: launch(wrong),
    ):
        with pytest.raises(planq.StreamError):
            refused()
    assert sample.untouched()


def test_the_message_for_none_says_what_to_pass() -> None:
    """There is no current stream to fall back to."""
    with pytest.raises(planq.StreamError, match=r"None.*planq\.HOST"):
        planq.Plan.select(None, make_descriptor())


def test_the_message_for_a_handle_says_how_to_name_its_device() -> None:
    """An integer does not tell it."""
    with pytest.raises(planq.StreamError, match=r"planq\.cuda_stream"):
        planq.Plan.select(12345, make_descriptor())


def test_a_host_plan_refuses_another_devices_stream() -> None:
    """A CUDA stream on a host plan is a StreamError, before anything is enqueued."""
    sample = make_sample()
    plan = planq.Plan.select(planq.HOST, make_descriptor())
    with pytest.raises(planq.StreamError, match="host"):
        plan.run(planq.cuda_stream(0, 0), None, sample.args())
    with pytest.raises(planq.StreamError, match="host"):
        plan.bind(None, sample.args())(planq.cuda_stream(0, 0))
    assert sample.untouched()


@pytest.mark.parametrize("answer", [None, 7, (0,), (0, "handle"), "stream"])
def test_a_broken_stream_protocol_is_a_stream_error(answer: object) -> None:
    """Whatever the object answers."""
    with pytest.raises(planq.StreamError):
        planq.Plan.select(CudaStreamLike(answer), make_descriptor())


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 64])
def test_host_streams_of_any_number_of_threads_run_the_plan(threads: int) -> None:
    """Also streams other than the one it was selected with."""
    sample = make_sample()
    plan = planq.Plan.select(planq.HOST, make_descriptor())
    plan.run(planq.host_stream(threads=threads), None, sample.args())
    assert sample.right()


THREADS: list[Any] = [0, -1, 100_000, 2**63, 2**64, -(2**70), 10**5000, 1.5, "4", None]


@pytest.mark.parametrize("threads", THREADS, ids=range(len(THREADS)))
def test_a_host_stream_needs_a_sensible_number_of_threads(threads: Any) -> None:
    """At least one."""
    with pytest.raises(planq.StreamError, match="1 to 1024 threads, got"):
        planq.host_stream(threads=threads)


HANDLES: list[Any] = [
    (2**64, 0),
    (-1, 0),
    (0, 2**31),
    (10**5000, 0),
    ("0", 0),
    (0, None),
    (None, 0),
]


@pytest.mark.parametrize("named", HANDLES, ids=range(len(HANDLES)))
def test_a_cuda_stream_needs_a_handle_and_a_device(named: Any) -> None:
    """Integers of 64 and 32 bits."""
    with pytest.raises(planq.StreamError, match="integers of 64 and 32 bits"):
        planq.cuda_stream(*named)
