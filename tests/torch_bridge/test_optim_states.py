"""planq.torch.optim: copies, state dicts and hooks; training that goes on where torch's stopped."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import planq
import planq.torch.optim as optim
from planq.audit.reference.formats import Array

pytestmark = pytest.mark.usefixtures("one_thread")
COUNT = 8192


def drawn(seed: int, count: int = COUNT) -> torch.Tensor:
    """Gradients."""
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def stepped(optimizer: Any, seeds: range) -> list[torch.Tensor]:
    """Parameters after some steps."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for seed in seeds:
        for i, p in enumerate(params):
            p.grad = drawn(seed + i).to(p.dtype)
        optimizer.step()
    return [p.detach().clone() for p in params]


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda optimizer: pickle.loads(pickle.dumps(optimizer)),
}


@pytest.mark.parametrize("how", COPIES)
def test_copies_have_the_options_of_single_parameters(how: str) -> None:
    """Two copies after another: a rate of 0, blocks, and where states are."""
    params = [torch.nn.Parameter(torch.ones(n)) for n in (COUNT, COUNT, 100_000)]
    optimizer = optim.Adam8bit(params, lr=0.1, rounding="stochastic")
    optimizer.override(params[0], lr=0.0)
    optimizer.override(params[1], block_size=1024, betas=(0.5, 0.75))
    optimizer.override(params[2], paged=True)
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert len(optimizer.pool) == 2
    copied = COPIES[how](COPIES[how](optimizer))
    assert len(copied.pool) == 2
    copies = copied.param_groups[0]["params"]
    for each, tensors in ((optimizer, params), (copied, copies)):
        for p in tensors:
            p.grad = torch.full_like(p, 0.5)
        each.step()
    assert all(torch.equal(*pair) for pair in zip(params, copies, strict=True))
    assert (copies[0] == 1).all()
    copied.override(copies[0], lr=0.5)
    copied.step()
    optimizer.step()
    assert (params[0] == 1).all()
    assert (copies[0] != 1).all()


@pytest.mark.parametrize("how", COPIES)
def test_states_of_other_blocks_survive_copies_and_other_states(how: str) -> None:
    """How loaded states are stored holds as long as they do."""
    stored = {"state_format": "static8"}, {"block_size": 1024}, {"block_size": 256}, {}
    makers: list[Any] = [optim.Adam8bit] * 3 + [optim.Adam]
    ours = optim.Adam8bit([torch.nn.Parameter(torch.ones(COUNT))], lr=0.1)
    for make, options in zip(makers, stored, strict=True):
        theirs = make([torch.nn.Parameter(torch.ones(COUNT))], lr=0.1, **options)
        [p], [q] = stepped(theirs, range(1)), ours.param_groups[0]["params"]
        with torch.no_grad():
            q.copy_(p)
        saved = theirs.state_dict()
        saved["param_groups"][0] |= {"state_format": "blockwise8", "block_size": 256}
        ours.load_state_dict(saved)
        ours = COPIES[how](ours)
        assert torch.equal(stepped(ours, range(1, 3))[0], stepped(theirs, range(1, 3))[0])
    fresh = ours.state_dict()
    fresh["state"] = {}
    ours.load_state_dict(fresh)
    stepped(ours, range(1))
    assert next(iter(ours.state.values()))["absmax1"].numel() == COUNT // 256


def test_hooks_of_state_dicts_are_called() -> None:
    """The first may give another dictionary, or change its own; the caller's stays."""
    ours, seen = optim.Adam([torch.nn.Parameter(torch.ones(4))]), []
    saved = ours.state_dict()

    def before(optimizer: Any, state_dict: dict[str, Any]) -> dict[str, Any]:
        seen.append("before")
        assert state_dict is not saved
        [group] = state_dict["param_groups"]
        return {**state_dict, "param_groups": [{**group, "lr": 0.5}]}

    ours.register_load_state_dict_pre_hook(before)
    ours.register_load_state_dict_post_hook(
        lambda optimizer: seen.append(optimizer.param_groups[0]["lr"])
    )
    ours.load_state_dict(saved)
    assert seen == ["before", 0.5]
    assert saved["param_groups"][0]["lr"] == 1e-3


def without(name: str) -> Callable[[Any], None]:
    """Takes something out of the states of the last parameter."""
    return lambda saved: saved["state"][1].pop(name)


def put(name: str, value: Any) -> Callable[[Any], None]:
    """Puts something into them."""
    return lambda saved: saved["state"][1].update({name: value})


BROKEN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no state2": (without("state2"), "state[1]['state2']"),
    "no step": (without("step"), "state[1]['step']"),
    "half a step": (put("step", 0.5), "state[1]['step']"),
    "no absmax": (without("absmax2"), "state[1]['absmax2']"),
    "absmax of others": (put("absmax2", torch.ones(3)), "state[1]['absmax2']"),
    "blocks of no size": (put("absmax1", torch.ones(7)), "state[1]['absmax"),
    "other shape": (put("state1", torch.ones(2, COUNT // 2)), "state[1]['state1']"),
    "no tensor": (put("state1", 3), "state[1]['state1']"),
    "of two kinds": (put("state2", torch.ones(COUNT)), "state[1]['state2']"),
    "integers": (put("state1", torch.ones(COUNT, dtype=torch.int64)), "state[1]['state1']"),
    "map": (put("qmap1", torch.ones(16)), "state[1]['qmap1']"),
    "another's": (lambda saved: saved["state"].update({7: {}}), "state[7]"),
    "another optimizer's": (put("exp_avg", torch.ones(COUNT)), "state[1]"),
    "no groups": (lambda saved: saved.pop("param_groups"), "state_dict"),
    "no parameters": (lambda saved: saved["param_groups"][0].pop("params"), "param_groups[0]"),
    "fewer": (lambda saved: saved["param_groups"][0]["params"].pop(), "param_groups"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_refused_state_dict_has_no_effect(name: str) -> None:
    """Groups, states, formats and the next steps are those of before; the error says where."""
    spoil, operand = BROKEN[name]
    params = [torch.nn.Parameter(torch.ones(COUNT)) for _ in range(2)]
    ours = optim.Adam8bit(params, lr=0.1)
    stepped(ours, range(2))
    untouched = copy.deepcopy(ours)
    saved = copy.deepcopy(ours.state_dict())
    saved["param_groups"][0]["lr"] = 77.0
    for key in ("absmax1", "absmax2"):
        saved["state"][0][key] = torch.ones(COUNT // 1024)
    spoil(saved)
    with pytest.raises(planq.ArgumentError) as refused:
        ours.load_state_dict(saved)
    assert refused.value.operand.startswith(operand)
    assert ours.param_groups[0]["lr"] == 0.1
    both = [stepped(each, range(2, 4)) for each in (ours, untouched)]
    assert all(torch.equal(*pair) for pair in zip(*both, strict=True))


def test_what_is_loaded_is_copied() -> None:
    """A rate in memory is not shared, and neither are states."""
    first, second = (
        optim.Adam([torch.nn.Parameter(torch.ones(4))], lr=torch.tensor(0.5)) for _ in range(2)
    )
    for optimizer in (first, second):
        optimizer.param_groups[0]["params"][0].grad = torch.ones(4)
    first.step()
    saved = first.state_dict()
    second.load_state_dict(saved)
    saved["param_groups"][0]["lr"].fill_(0.25)
    saved["state"][0]["state1"].fill_(7)
    [group] = second.param_groups
    assert group["lr"] == 0.5
    assert second.state[group["params"][0]]["state1"][0] != 7


# --- torch's Adam and AdamW

UNIT = 2.0**-24  # half a unit of float32 in the last place, relative
STEPS = 10


def exact(given: list[Array], start: int, decay: float, coupled: bool) -> tuple[Array, Array]:
    """Adam in float64 from a state, and how far float32 may be from it; p, m, v and gradients.

    A bound for each element. A step rounds each of m, v, the root, the quotient and their
    coefficients a few times: less than 8 in any order of torch's or planq's. ``a`` is m with
    magnitudes in its sums. After k steps m is off by at most ``8 k u a``, v by ``8 k u v`` and its
    root by half of that, so the update by ``(12 k + 8) u`` of itself with ``a`` for m. p is rounded
    by the decay, the difference and when it is stored, once more by coupled decay: ``4 u |p|``.
    Coupled gradients are far larger than what decay adds to them, so that nothing cancels.
    """
    lr, b1, b2, eps = 1e-2, 0.9, 0.999, 1e-8
    p, m, v, *grads = given
    a, bound = np.abs(m), np.zeros_like(p)
    for k, grad in enumerate(grads, 1):
        g = grad + decay * p if coupled else grad
        p = p if coupled else p * (1 - lr * decay)
        m, v, a = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g, b1 * a + (1 - b1) * np.abs(g)
        c1, c2 = 1 - b1 ** (start + k), np.sqrt(1 - b2 ** (start + k))
        below = np.sqrt(v) / c2 + eps
        bound = bound + UNIT * (4 * np.abs(p) + (12 * k + 8) * lr / c1 * a / below)
        p = p - lr / c1 * m / below
    return p, bound


def gradients(seeds: range) -> list[torch.Tensor]:
    """Of magnitude 0.5 at least, so that what decay adds is small beside them."""
    return [drawn(seed) + 0.5 * drawn(seed).sign() for seed in seeds]


def go_on(optimizer: Any, grads: list[torch.Tensor]) -> torch.Tensor:
    """The only parameter, after them."""
    [p] = optimizer.param_groups[0]["params"]
    for grad in grads:
        p.grad = grad
        optimizer.step()
    found: torch.Tensor = p.detach()
    return found


@pytest.mark.parametrize(
    ("theirs", "ours", "decay"),
    [
        (torch.optim.AdamW, optim.AdamW, 0.1),
        (torch.optim.AdamW, optim.AdamW8bit, 0.1),
        (torch.optim.AdamW, optim.PagedAdam, 0.1),
        (torch.optim.Adam, optim.Adam, 0.0),
        (torch.optim.Adam, optim.Adam, 0.01),
        (torch.optim.Adam, optim.AdamW, 0.01),
    ],
)
def test_training_goes_on_where_torchs_stopped(theirs: Any, ours: Any, decay: float) -> None:
    """Ten steps; the decay is the one that it was, and rates of other kinds stay out of bounds."""
    before, after = gradients(range(STEPS)), gradients(range(STEPS, 2 * STEPS))
    first = theirs([torch.nn.Parameter(drawn(99))], lr=1e-2, weight_decay=decay)
    begun = go_on(first, before).clone()
    second = ours([torch.nn.Parameter(begun.clone())])
    saved = copy.deepcopy(first.state_dict())
    second.load_state_dict(saved)
    [state], coupled = saved["state"].values(), theirs is torch.optim.Adam
    assert second.param_groups[0]["weight_decay_mode"] == ("coupled" if coupled else "decoupled")
    assert not {"amsgrad", "fused", "foreach"} & second.param_groups[0].keys()
    arrays = [x.double().numpy() for x in (begun, state["exp_avg"], state["exp_avg_sq"], *after)]
    wanted, bound = exact(arrays, STEPS, decay, coupled)
    for optimizer in (first, second):
        assert (np.abs(go_on(optimizer, after).double().numpy() - wanted) <= bound).all()
    off, _ = exact(arrays, 2 * STEPS, decay, coupled)
    assert (np.abs(off - wanted) > 2 * bound).mean() > 0.99
    if decay:
        other, _ = exact(arrays, STEPS, decay, not coupled)
        assert (np.abs(other - wanted) > 2 * bound).mean() > 0.99
    assert {int(each["step"]) for each in second.state.values()} == {2 * STEPS}


@pytest.mark.parametrize(
    ("theirs", "options", "ours", "operand"),
    [
        (torch.optim.AdamW, {"amsgrad": True}, optim.AdamW, "param_groups[0]['amsgrad']"),
        (torch.optim.AdamW, {"maximize": True}, optim.AdamW, "param_groups[0]['maximize']"),
        (torch.optim.Adam, {"differentiable": True}, optim.Adam, "param_groups[0]['different"),
        (torch.optim.Adam, {}, optim.LAMB, "param_groups[0]"),
        (torch.optim.Adam, {}, optim.AdEMAMix, "param_groups[0]"),
        (torch.optim.RAdam, {}, optim.Adam, "param_groups[0]"),
        (torch.optim.NAdam, {}, optim.Adam, "param_groups[0]"),
        (torch.optim.SGD, {}, optim.SGD, "param_groups[0]"),
    ],
)
def test_states_of_torch_with_another_meaning_are_refused(
    theirs: Any, options: dict[str, Any], ours: Any, operand: str
) -> None:
    """By name, and nothing is changed."""
    first = theirs([torch.nn.Parameter(torch.ones(8))], lr=0.5)
    stepped_ = go_on(first, [torch.ones(8)])
    second = ours([torch.nn.Parameter(stepped_.clone())])
    saved, before = first.state_dict(), copy.deepcopy(second.state_dict())
    saved["param_groups"][0] |= options
    with pytest.raises(planq.ArgumentError) as refused:
        second.load_state_dict(saved)
    assert refused.value.operand.startswith(operand)
    assert second.state_dict() == before


def test_older_versions_of_torch_do_not_say_which_decay_it_was() -> None:
    """Without decay that does not matter."""
    first = torch.optim.AdamW([torch.nn.Parameter(torch.ones(8))], weight_decay=0.5)
    go_on(first, [torch.ones(8)])
    saved = copy.deepcopy(first.state_dict())
    [group] = saved["param_groups"]
    del group["decoupled_weight_decay"]
    ours = optim.AdamW([torch.nn.Parameter(torch.ones(8))])
    with pytest.raises(planq.ArgumentError, match="True of AdamW, False of Adam") as refused:
        ours.load_state_dict(saved)
    assert refused.value.operand == "param_groups[0]['decoupled_weight_decay']"
    group["weight_decay"] = 0.0
    ours.load_state_dict(saved)
    assert ours.param_groups[0]["weight_decay_mode"] == "decoupled"
