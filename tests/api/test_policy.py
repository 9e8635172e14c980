"""What a policy asks for holds for every selection inside, and for none outside."""

from __future__ import annotations

import _thread
import asyncio
import dataclasses
import importlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import planq
from planq import Determinism, PlanPreference, executors
from planq.plan import foresee, verify_foreseen

THIRDS: Any = importlib.import_module("operators.thirds")
# Its first kernel promises GPU_TO_GPU, a later one BIT_EXACT.
DESC = THIRDS.ThirdsDescriptor(shape=(4, 8))
LOOSE = PlanPreference()
FIRST, EXACT = "thirds/host/products", "thirds/host/quotients"
STRICT = PlanPreference(determinism=Determinism.BIT_EXACT)
TENSOR = planq.DynamicRangeQuantizeDescriptor(
    shape=(2, 4), input_dtype="float32", output_dtype="int8", scope=planq.Scope.tensor()
)
ROWS = PlanPreference(batch_invariant=True)


@pytest.fixture(autouse=True)
def no_policy() -> Iterator[None]:
    """Each test begins and ends without one."""
    planq.set_policy(None)
    yield
    planq.set_policy(None)


def sku() -> str:
    """The SKU that is selected here and now."""
    return planq.Plan.select(planq.HOST, DESC).sku


def in_thread(start: Callable[[Callable[[], None]], object], ask: Callable[[], Any]) -> Any:
    """What a function returns in a thread that is started so."""
    done, found = threading.Event(), []

    def work() -> None:
        try:
            found.append(ask())
        except Exception as error:
            found.append(error)
        done.set()

    start(work)
    assert done.wait(60)
    return found[0]


def python_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work).start()


def foreign_thread(work: Callable[[], None]) -> None:
    """One that the threading module did not start, as torch's are."""
    _thread.start_new_thread(work, ())


# --- The strictest of two


@pytest.mark.parametrize(
    ("field", "one", "other", "strictest"),
    [
        *(
            ("determinism", one, other, one if one.value > other.value else other)
            for one, other in itertools.product(Determinism, Determinism)
        ),
        ("batch_invariant", False, False, False),
        ("batch_invariant", False, True, True),
        ("batch_invariant", True, True, True),
        ("max_ulp", None, None, None),
        ("max_ulp", None, 0, 0),
        ("max_ulp", 1, 3, 1),
        ("max_workspace_bytes", None, None, None),
        ("max_workspace_bytes", 0, None, 0),
        ("max_workspace_bytes", 64, 32, 32),
        ("backend", None, None, None),
        ("backend", planq.Backend.HOST, None, planq.Backend.HOST),
        ("backend", planq.Backend.HOST, planq.Backend.HOST, planq.Backend.HOST),
    ],
)
def test_the_strictest_of_each_field_counts(
    field: str, one: Any, other: Any, strictest: Any
) -> None:
    """Whichever is the policy, the preference, the block around, or the process's."""
    loosest = PlanPreference(determinism=Determinism.NOT_GUARANTEED)
    first, second = (dataclasses.replace(loosest, **{field: value}) for value in (one, other))
    wanted = dataclasses.replace(loosest, **{field: strictest})
    for outer, inner in ((first, second), (second, first)):
        with planq.policy(outer) as held:
            assert held == outer
            with planq.policy(inner) as held:
                assert held == wanted
        planq.set_policy(outer)
        with planq.policy(inner) as held:
            assert held == wanted
        planq.set_policy(None)


def test_a_plan_says_what_held() -> None:
    """The preference of the call and that of the policy in one, also in its JSON."""
    with planq.policy(PlanPreference(determinism="bit_exact", max_workspace_bytes=64)):
        plan = planq.Plan.select(
            planq.HOST, DESC, PlanPreference(max_workspace_bytes=128, max_ulp=0, sku=EXACT)
        )
    wanted = PlanPreference(determinism="bit_exact", max_workspace_bytes=64, max_ulp=0, sku=EXACT)
    assert plan.preference == wanted
    assert plan.to_dict()["preference"] == wanted.to_dict()


def test_two_backends_are_refused() -> None:
    """By a block, and by selections inside one; the message names both."""
    cuda, host = (PlanPreference(backend=backend) for backend in ("cuda", "host"))
    planq.set_policy(cuda)
    with pytest.raises(planq.DescriptorError, match=r"backend: .*got host and cuda"):
        planq.policy(host).__enter__()
    with pytest.raises(planq.DescriptorError, match=r"backend: .*got host and cuda"):
        planq.Plan.select(planq.HOST, DESC, host)
    planq.set_policy(None)
    assert sku() == FIRST


@pytest.mark.parametrize("pin", [{"sku": EXACT}, {"body": "elements"}])
def test_a_policy_pins_no_kernel(pin: dict[str, str]) -> None:
    """It is about many operators."""
    for take in (planq.policy, planq.set_policy):
        with pytest.raises(
            planq.DescriptorError, match=f"{next(iter(pin))}: expected None"
        ) as told:
            take(PlanPreference(**pin))
        assert told.value.field == next(iter(pin))
    assert sku() == FIRST


@pytest.mark.parametrize("wrong", ["bit_exact", 3, {"determinism": "bit_exact"}])
def test_what_is_no_preference_is_refused(wrong: Any) -> None:
    for take in (planq.policy, planq.set_policy):
        with pytest.raises(planq.DescriptorError, match="pref: expected a PlanPreference"):
            take(wrong)
    with pytest.raises(planq.DescriptorError, match="pref: expected a PlanPreference, got None"):
        planq.policy(None)  # type: ignore[arg-type]


# --- All that selects


def test_another_kernel_is_selected_inside() -> None:
    """By select, the class itself, explain and foresee; outside again the first."""
    ask: list[Callable[[], str]] = [
        sku,
        lambda: THIRDS.ThirdsPlan(planq.HOST, DESC, LOOSE).sku,
        lambda: getattr(planq.explain(DESC).chosen, "sku", ""),
        lambda: foresee(DESC, None, "host")["sku"],
    ]
    assert [each() for each in ask] == [FIRST] * 4
    with planq.policy(STRICT):
        assert [each() for each in ask] == [EXACT] * 4
    assert [each() for each in ask] == [FIRST] * 4
    planq.set_policy(STRICT)
    assert [each() for each in ask] == [EXACT] * 4


def test_where_no_kernel_is_left_the_message_says_that_a_policy_asks() -> None:
    """By select, and by foresee; without a policy the message does not mention one."""
    asked = "a policy in force asks for determinism=RUN_TO_RUN, batch_invariant=True"
    with planq.policy(ROWS):
        with pytest.raises(planq.NoKernelError, match=asked) as refused:
            planq.Plan.select(planq.HOST, TENSOR)
        assert refused.value.selection.chosen is None
        with pytest.raises(planq.NoKernelError, match=asked):
            foresee(TENSOR, None, "host")
    with pytest.raises(planq.NoKernelError) as refused:
        planq.Plan.select(planq.HOST, TENSOR, ROWS)
    assert "policy" not in str(refused.value)


def test_a_plan_that_exists_is_not_touched() -> None:
    """It explains its choice as it was made, and reads back outside."""
    plan = planq.Plan.select(planq.HOST, DESC)
    with planq.policy(STRICT):
        assert plan.preference == LOOSE
        chosen = plan.explain().chosen
        assert chosen is not None
        assert chosen.sku == FIRST
    assert planq.Plan.from_json(planq.HOST, plan.to_json()).sku == FIRST


def read_back(text: str) -> dict[str, Any]:
    return planq.Plan.from_json(planq.HOST, text).to_dict()


@pytest.mark.parametrize(
    "read", [read_back, lambda text: verify_foreseen(text, "host")], ids=["plan", "foreseen"]
)
def test_a_stored_plan_has_to_meet_the_policy(read: Callable[[str], dict[str, Any]]) -> None:
    """A plan that does is read, and says what holds now; other kernels and none are refused."""
    first, exact = (
        planq.Plan.select(planq.HOST, DESC, pref) for pref in (LOOSE, PlanPreference(sku=EXACT))
    )
    tensor = planq.Plan.select(planq.HOST, TENSOR).to_json()
    with planq.policy(STRICT):
        assert read(exact.to_json())["sku"] == EXACT
        assert read(exact.to_json())["preference"]["determinism"] == "bit_exact"
        with pytest.raises(planq.PlanMismatchError, match=r"policy .*BIT_EXACT") as refused:
            read(first.to_json())
        assert refused.value.differences == {"sku": (FIRST, EXACT)}
    with planq.policy(ROWS), pytest.raises(planq.PlanMismatchError, match="a policy in force"):
        read(tensor)
    assert read(first.to_json())["preference"] == LOOSE.to_dict()


def test_a_changed_record_is_found_inside_too() -> None:
    """The policy does not hide other differences."""
    text = (
        planq.Plan.select(planq.HOST, DESC, STRICT)
        .to_json()
        .replace('"revision": 1', '"revision": 9')
    )
    assert '"revision": 9' in text
    with (
        planq.policy(PlanPreference(max_ulp=0)),
        pytest.raises(planq.PlanMismatchError, match="revision: stored 9, now 1"),
    ):
        planq.Plan.from_json(planq.HOST, text)


def test_kept_plans_of_executors_are_kept_by_policy() -> None:
    """A plan that was kept outside is not taken inside, where it is refused."""
    select = executors.plan_selector(executors.HostExecutor())
    outside = select(TENSOR)
    with planq.policy(ROWS), pytest.raises(planq.NoKernelError):
        select(TENSOR)
    assert select(TENSOR) is outside


# --- Where it holds


def test_blocks_end_where_an_exception_leaves_them() -> None:
    """And one object may be entered again, also inside of itself."""
    block = planq.policy(STRICT)
    with pytest.raises(ZeroDivisionError), block, block:
        raise ZeroDivisionError
    assert sku() == FIRST
    with block:
        assert sku() == EXACT
    assert sku() == FIRST


def test_a_block_that_was_not_entered_cannot_be_left() -> None:
    with pytest.raises(RuntimeError, match="not inside"):
        planq.policy(STRICT).__exit__()


def test_a_block_is_of_its_thread_and_the_policy_of_the_process_of_all() -> None:
    with planq.policy(STRICT):
        assert in_thread(python_thread, sku) == FIRST
    planq.set_policy(STRICT)
    assert in_thread(python_thread, sku) == EXACT


def test_a_thread_that_python_did_not_start_gets_the_strictest_of_all_blocks() -> None:
    """As nobody knows for which block it works; a block of its own counts alone."""
    assert in_thread(foreign_thread, sku) == FIRST

    def own() -> str:
        with planq.policy(LOOSE):
            return sku()

    with planq.policy(STRICT), planq.policy(ROWS):
        assert in_thread(foreign_thread, sku) == EXACT
        refused = in_thread(foreign_thread, lambda: planq.Plan.select(planq.HOST, TENSOR))
        assert isinstance(refused, planq.NoKernelError)
        assert in_thread(foreign_thread, own) == FIRST
    assert in_thread(foreign_thread, sku) == FIRST


def test_a_block_is_of_its_task() -> None:
    """Tasks beside it do not have it; those that are made inside do, and so does to_thread."""

    async def inside(entered: asyncio.Event, leave: asyncio.Event) -> list[str]:
        with planq.policy(STRICT):
            entered.set()
            await leave.wait()
            made = asyncio.create_task(later())
            return [sku(), await asyncio.to_thread(sku), await made]

    async def later() -> str:
        return sku()

    async def both() -> None:
        entered, leave = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(inside(entered, leave))
        await entered.wait()
        assert sku() == FIRST
        leave.set()
        assert await task == [EXACT] * 3

    asyncio.run(both())


def test_threads_that_enter_one_block_at_once_do_not_meet() -> None:
    """Each has its own, however they interleave."""
    block, meet = planq.policy(STRICT), threading.Barrier(4)
    found: list[str] = []

    def work() -> None:
        for _ in range(50):
            meet.wait(60)
            with block:
                found.append(sku())
            found.append(sku())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [FIRST] * 200 + [EXACT] * 200
