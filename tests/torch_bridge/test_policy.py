"""A policy holds for torch's operators when they run, whatever was called or compiled before."""

from __future__ import annotations

import _thread
import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import planq
import planq.torch
import planq.torch.optim
from planq import PlanPreference
from planq.torch import _calls, _library

importlib.import_module("operators.thirds")
OPS: Any = torch.ops.planq
STRICT = PlanPreference(determinism="bit_exact")
ROWS = PlanPreference(batch_invariant=True)
GPU = PlanPreference(backend="cuda")
# torch's memory is aligned as the first kernel wants it.
X = torch.from_numpy(np.random.default_rng(5).standard_normal((16, 64), np.float32)).clone()
# What the operator's two kernels compute. Without a policy, the first one runs.
PRODUCTS = X.numpy() * np.float32(1 / 3)
QUOTIENTS = X.numpy() / np.float32(3)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """Each test begins without a policy and without kept plans."""
    planq.set_policy(None)
    _calls.forget()
    yield
    planq.set_policy(None)


def functional(x: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = OPS.thirds(x)
    return made


def out(x: torch.Tensor) -> torch.Tensor:
    made = torch.empty_like(x)
    OPS.thirds.out(x, made)
    return made


def compiled() -> Callable[[torch.Tensor], torch.Tensor]:
    torch.compiler.reset()
    made: Callable[[torch.Tensor], torch.Tensor] = torch.compile(
        functional, fullgraph=True, backend="aot_eager"
    )
    return made


def bits(array: Any) -> bytes:
    return np.asarray(array).tobytes()


CALLS = pytest.mark.parametrize(
    "make", [lambda: functional, lambda: out, compiled], ids=["functional", "out", "compiled"]
)


def test_the_two_kernels_differ() -> None:
    """Otherwise the tests below would show nothing."""
    assert bits(PRODUCTS) != bits(QUOTIENTS)


@CALLS
@pytest.mark.parametrize("first_inside", [False, True])
def test_a_call_that_is_kept_is_not_taken_under_another_policy(
    make: Callable[[], Callable[[torch.Tensor], torch.Tensor]], first_inside: bool
) -> None:
    """Equal shapes, outside and inside by turns; a program is traced in the first call."""
    call = make()
    for step in range(4):
        if first_inside == (step % 2 == 0):
            with planq.policy(STRICT):
                assert bits(call(X)) == bits(QUOTIENTS)
        else:
            assert bits(call(X)) == bits(PRODUCTS)
    planq.set_policy(STRICT)
    assert bits(call(X)) == bits(QUOTIENTS)
    planq.set_policy(None)
    assert bits(call(X)) == bits(PRODUCTS)


def per_tensor(x: torch.Tensor) -> list[torch.Tensor]:
    made: list[torch.Tensor] = OPS.dynamic_range_quantize(x, "int8", scope="tensor()")
    return made


@pytest.mark.parametrize("first_inside", [False, True])
def test_a_policy_that_leaves_no_kernel_refuses_calls_that_are_kept(first_inside: bool) -> None:
    """Outside, they run again."""
    for inside in (first_inside, not first_inside, first_inside):
        if inside:
            with planq.policy(ROWS), pytest.raises(planq.NoKernelError, match="a policy in force"):
                per_tensor(X)
        else:
            assert len(per_tensor(X)) == 2


def test_a_program_that_was_compiled_outside_is_refused_inside() -> None:
    torch.compiler.reset()
    call = torch.compile(per_tensor, fullgraph=True, backend="aot_eager")
    call(X)
    with planq.policy(ROWS), pytest.raises(planq.NoKernelError, match="a policy in force"):
        call(X)
    assert len(call(X)) == 2


def test_equal_policies_share_kept_calls() -> None:
    """Also such as were merged of others; other policies have calls of their own."""
    counts = []
    for _ in range(3):
        with planq.policy(PlanPreference(determinism="bit_exact")):
            functional(X)
        with planq.policy(ROWS), planq.policy(STRICT):
            functional(X)
        counts.append(len(_library.OVERLOADS["thirds"].run))
    assert counts == [2, 2, 2]


def test_the_arguments_of_a_call_count_besides() -> None:
    """Neither weakens the other."""
    with planq.policy(STRICT):
        assert bits(OPS.thirds(X, determinism="not_guaranteed")) == bits(QUOTIENTS)
        with pytest.raises(planq.NoKernelError):
            OPS.thirds(X, sku="thirds/host/products")
    with planq.policy(ROWS):
        assert bits(OPS.thirds(X, determinism="bit_exact")) == bits(QUOTIENTS)


def test_a_policy_for_gpus_refuses_tensors_on_the_host() -> None:
    with planq.policy(GPU), pytest.raises(planq.NoKernelError, match="asks for cuda"):
        functional(X)


def test_threads_with_and_without_a_policy_share_no_calls() -> None:
    """At once, on equal shapes."""
    meet, faults = threading.Barrier(4), []

    def work(strict: bool) -> None:
        meet.wait(60)
        for _ in range(200):
            if strict:
                with planq.policy(STRICT):
                    found, wanted = functional(X), QUOTIENTS
            else:
                found, wanted = functional(X), PRODUCTS
            if bits(found) != bits(wanted):
                faults.append(strict)

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert faults == []


# --- Backward passes


@pytest.fixture
def selected(monkeypatch: pytest.MonkeyPatch) -> dict[str, PlanPreference]:
    """The preference that each operator's last plan was selected under."""
    found: dict[str, PlanPreference] = {}
    select = planq.Plan._select_exactly

    def record(stream: Any, desc: planq.Descriptor, pref: PlanPreference) -> planq.Plan:
        found[desc.operator] = pref
        return select(stream, desc, pref)

    monkeypatch.setattr(planq.Plan, "_select_exactly", record)
    return found


def fake(x: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = OPS.fake_quantize(x, dynamic=True)[0].sum()
    return made


def straight(x: torch.Tensor) -> torch.Tensor:
    return planq.torch.quantize_dequantize(x, "int8").sum()


def straight_fp8(x: torch.Tensor) -> torch.Tensor:
    return planq.torch.quantize_dequantize(x, "float8_e4m3fn").sum()


DIFFERENTIABLE = pytest.mark.parametrize(
    ("forward", "backward"),
    [
        (fake, {"fake_quantize_backward"}),
        (straight, {"fake_quantize_backward"}),
        (straight_fp8, {"dequantize_backward", "quantize_backward"}),
    ],
)


@DIFFERENTIABLE
def test_a_backward_pass_meets_the_policy_of_its_forward_pass(
    forward: Callable[[torch.Tensor], torch.Tensor],
    backward: set[str],
    selected: dict[str, PlanPreference],
) -> None:
    """Outside of the block, and besides another policy, in a foreign thread and in this one."""
    x = X.clone().requires_grad_()
    with planq.policy(STRICT):
        losses = [forward(x) for _ in range(3)]
    losses[0].backward()
    assert {name: selected[name] for name in backward} == dict.fromkeys(backward, STRICT)
    _calls.forget()
    selected.clear()
    both = PlanPreference(determinism="bit_exact", max_ulp=0)
    done = threading.Event()
    with planq.policy(PlanPreference(max_ulp=0)):
        _thread.start_new_thread(lambda: (losses[1].backward(), done.set()), ())
        assert done.wait(60)
        assert {name: selected[name] for name in backward} == dict.fromkeys(backward, both)
        _calls.forget()
        selected.clear()
        losses[2].backward()
    assert {name: selected[name] for name in backward} == dict.fromkeys(backward, both)


@DIFFERENTIABLE
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("programs", [False, True])
def test_a_backward_pass_meets_the_policy_that_is_in_force(
    forward: Callable[[torch.Tensor], torch.Tensor],
    backward: set[str],
    selected: dict[str, PlanPreference],
    programs: bool,
) -> None:
    """After a forward pass outside, eager and compiled, and after passes that were kept."""
    torch.compiler.reset()
    call = torch.compile(forward, fullgraph=True, backend="aot_eager") if programs else forward
    x = X.clone().requires_grad_()
    call(x).backward()
    assert {selected[name] for name in backward} == {PlanPreference()}
    loss = call(x)
    with planq.policy(STRICT):
        loss.backward()
    assert {selected[name] for name in backward} == {STRICT}


# --- What else keeps plans


def test_an_optimizer_keeps_plans_by_policy() -> None:
    """A step under a policy that leaves no kernel is refused, and changes nothing."""
    parameter = torch.nn.Parameter(torch.ones(8))
    optimizer = planq.torch.optim.Lion([parameter], lr=0.5)
    parameter.grad = torch.ones(8)
    optimizer.step()
    before = parameter.detach().clone()
    with planq.policy(GPU), pytest.raises(planq.NoKernelError, match="a policy in force"):
        optimizer.step()
    assert torch.equal(parameter.detach(), before)
    optimizer.step()
    assert not torch.equal(parameter.detach(), before)
