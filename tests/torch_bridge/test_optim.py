"""planq.torch.optim: optimizers of torch over optimizer_step."""

from __future__ import annotations

import copy
import io
from typing import Any

import numpy as np
import pytest
import torch

import planq
import planq.torch.optim as optim
from planq import memory
from planq.codebooks import dynamic
from support.bitsandbytes_host import optim as bnb
from support.training import network, train

pytestmark = pytest.mark.usefixtures("one_thread")
CLASSES = {
    "adam": optim.Adam,
    "adamw8bit": optim.AdamW8bit,
    "ademamix8bit": optim.AdEMAMix8bit,
    "lion8bit": optim.Lion8bit,
    "sgd8bit": lambda p, **o: optim.SGD8bit(p, lr=1e-2, momentum=0.9, nesterov=True, **o),
    "rmsprop8bit": lambda p, **o: optim.RMSprop8bit(p, lr=1e-3, centered=True, **o),
    "adagrad8bit": optim.Adagrad8bit,
    "lamb8bit": lambda p, **o: optim.LAMB8bit(p, lr=1e-2, weight_decay=0.01, **o),
    "lars8bit": lambda p, **o: optim.LARS8bit(p, lr=1e-1, momentum=0.9, **o),
}


def bits(model: torch.nn.Module) -> list[bytes]:
    """Every parameter."""
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def saved(optimizer: Any) -> dict[str, Any]:
    """Its state dict, as a file gives it back."""
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    found: dict[str, Any] = torch.load(file, weights_only=True)
    return found


def test_adam_of_8_bits_learns_as_well_as_that_of_32() -> None:
    """300 steps on a text: the loss of the last fifty within 2 percent."""
    runs = []
    for make in (optim.Adam, optim.Adam8bit):
        model = network()
        runs.append(train(model, make(model.parameters(), lr=3e-3), range(300)))
    wide, narrow = runs
    assert np.mean(narrow[-50:]) < 1.02 * np.mean(wide[-50:])
    assert np.mean(narrow[-50:]) < 0.7 * narrow[0]


def test_a_second_run_that_is_interrupted_has_the_bits_of_the_first() -> None:
    """300 steps; the second goes on from a file after 150."""
    first, second = network(), network()
    losses = train(first, optim.Adam8bit(first.parameters(), lr=3e-3), range(300))
    optimizer = optim.Adam8bit(second.parameters(), lr=3e-3)
    again = train(second, optimizer, range(150))
    resumed = optim.Adam8bit(second.parameters())
    resumed.load_state_dict(saved(optimizer))
    again += train(second, resumed, range(150, 300))
    assert again == losses
    assert bits(second) == bits(first)


def test_a_step_is_one_call_for_all_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones of 8 bits, and small ones of 32: two calls, of one plan each."""
    params = [torch.nn.Parameter(torch.ones(5000 if i % 2 else 5)) for i in range(40)]
    optimizer, calls = optim.Adam8bit(params), []
    monkeypatch.setattr(planq.Plan, "bind", lambda plan, *_: lambda _: calls.append(id(plan)))
    for _ in range(3):
        for p in params:
            p.grad = torch.ones_like(p)
        optimizer.step()
    assert len(calls) == 3 * 2
    assert len(set(calls)) == 2


@pytest.mark.parametrize("name", CLASSES)
def test_a_saved_and_resumed_state_has_the_bits_of_one_that_went_on(name: str) -> None:
    """By torch.save, after three steps; every optimizer learns."""
    model, make = network(), CLASSES[name]
    optimizer = make(model.parameters())
    losses = train(model, optimizer, range(3))
    kept, state = copy.deepcopy(model), saved(optimizer)
    losses += train(model, optimizer, range(3, 8))
    assert losses[-1] < losses[0]
    resumed = make(kept.parameters())
    resumed.load_state_dict(state)
    train(kept, resumed, range(3, 8))
    assert bits(kept) == bits(model)
    dtypes = {state["state1"].dtype for state in resumed.state.values()}
    assert dtypes == ({torch.float32} if name == "adam" else {torch.float32, torch.uint8})


def test_adamw_is_torchs() -> None:
    """Five steps, with a schedule of the learning rate, to a few units in the last place."""
    ours, theirs = network(), network()
    pairs = [
        (ours, optim.AdamW(ours.parameters(), lr=1e-2)),
        (theirs, torch.optim.AdamW(theirs.parameters(), lr=1e-2)),
    ]
    for model, optimizer in pairs:
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for step in range(5):
            train(model, optimizer, range(step, step + 1))
            schedule.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(p, q, rtol=0, atol=1e-5)


def test_a_group_has_options_of_its_own_and_so_has_a_parameter() -> None:
    """Coupled decay, other blocks, a rate, 32 bits."""
    p, q, r = (torch.nn.Parameter(torch.ones(8192)) for _ in range(3))
    groups: list[Any] = [{"params": [p], "block_size": 64}, {"params": [q, r], "lr": 0.5}]
    optimizer = optim.SGD8bit(groups, lr=1.0, momentum=0.9, weight_decay=0.25)
    optimizer.param_groups[1]["weight_decay_mode"] = "coupled"
    optimizer.override(r, state_format="float32", lr=0.125)
    for each in (p, q, r):
        each.grad = torch.full_like(each, 2)
    optimizer.step()
    assert p[0] == 1 * (1 - 0.25) - 2
    assert q[0] == 1 - 0.5 * (2 + 0.25)
    assert r[0] == 1 - 0.125 * (2 + 0.25)
    assert optimizer.state[p]["absmax1"].numel() == 128
    assert optimizer.state[q]["absmax1"].numel() == 32
    assert optimizer.state[r]["state1"].dtype == torch.float32
    with pytest.raises(planq.ArgumentError, match="no such parameter"):
        optimizer.override(torch.ones(1), lr=1.0)


def test_parameters_count_the_steps_that_they_took() -> None:
    """One without a gradient takes none; the others go on together."""
    params = [torch.nn.Parameter(torch.ones(4)) for _ in range(3)]
    optimizer = optim.Adam(params)
    for absent in (None, 1, None):
        for i, p in enumerate(params):
            p.grad = None if i == absent else torch.ones(4)
        optimizer.step()
    counts = [int(optimizer.state[p]["step"]) for p in params]
    assert counts == [3, 2, 3]
    first, _, third = (optimizer.state[p]["step"] for p in params)
    assert first is third


def test_a_step_of_16_bit_parameters_may_draw() -> None:
    """Updates below half a unit are not lost; the seed decides."""
    found = []
    for seed in (1, 1, 2):
        p = torch.nn.Parameter(torch.ones(4096, dtype=torch.bfloat16))
        optimizer = optim.SGD([p], lr=2.0**-12, rounding="stochastic", seed=seed)
        for _ in range(8):
            p.grad = torch.ones_like(p)
            optimizer.step()
        found.append(p.detach().float())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert abs(float(found[0].mean()) - (1 - 8 * 2.0**-12)) < 2e-4


def test_a_grad_scaler_scales_and_skips() -> None:
    """Without a look at its flag: a step with an infinity changes nothing, and is not counted."""
    p = torch.nn.Parameter(torch.ones(5000, dtype=torch.float16))
    optimizer = optim.Adam8bit([p], lr=0.25)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(torch.ones(()))
    for bad in (False, True, False):
        before, state = p.detach().clone(), copy.deepcopy(optimizer.state_dict()["state"])
        p.grad = torch.full_like(p, torch.inf if bad else 512.0)
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(p, before) == bad
        if bad:
            assert int(optimizer.state[p]["step"]) == 1
            assert torch.equal(optimizer.state[p]["state1"], state[0]["state1"])
    assert int(optimizer.state[p]["step"]) == 2
    assert scaler.get_scale() == 512
    first = np.float32(0.1) * np.float32(0.5)
    assert optimizer.state[p]["absmax1"][0] == np.float32(0.9) * first + np.float32(0.1)


@pytest.mark.parametrize("nested", [False, True])
def test_a_state_dict_of_bitsandbytes_is_read(nested: bool) -> None:
    """Blocks of the size that it has, its maps; the next step is that from the decoded state."""
    count, generator = 5000, torch.Generator().manual_seed(3)
    codes = [torch.randint(0, 256, (count,), generator=generator).to(torch.uint8) for _ in "mv"]
    absmax = [torch.rand(3, generator=generator) + 0.5 for _ in "mv"]
    maps = [torch.from_numpy(dynamic(True)), torch.from_numpy(dynamic(False)) * 1.0]
    maps[1][5:] *= 1 + 2.0**-20  # not quite planq's own
    maps[1][-1] = 1
    quant: dict[str, Any] = {
        f"{name}{k + 1}": values[k]
        for name, values in (("state", codes), ("absmax", absmax), ("qmap", maps))
        for k in range(2)
    }
    group = {"lr": 0.5, "betas": (0.5, 0.75), "eps": 0.25, "weight_decay": 0.0}
    group |= {"alpha": 0.0, "t_alpha": None, "t_beta3": None, "params": [0]}
    state = {"__bnb_optimizer_quant_state__": quant} if nested else quant
    saved = {"state": {0: {"step": 7, **state}}, "param_groups": [group]}
    p, q = (torch.nn.Parameter(torch.ones(count)) for _ in range(2))
    ours = optim.Adam8bit([p])
    ours.load_state_dict(saved)
    assert ours.param_groups[0]["betas"] == (0.5, 0.75)
    wide = optim.Adam([q], lr=0.5, betas=(0.5, 0.75), eps=0.25)
    decoded = [
        maps[k][codes[k].long()] * absmax[k].repeat_interleave(2048)[:count] for k in range(2)
    ]
    values = {"step": 7, "state1": decoded[0], "state2": decoded[1]}
    wide.load_state_dict({**wide.state_dict(), "state": {0: values}})
    for param, optimizer in ((p, ours), (q, wide)):
        param.grad = torch.linspace(-1, 1, count)
        optimizer.step()
        assert int(optimizer.state[param]["step"]) == 8
    assert torch.equal(p, q)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AdamW", {"weight_decay": 0.1}),
        ("AdEMAMix", {}),
        ("AdamW8bit", {"weight_decay": 0.1}),
        ("AdEMAMix8bit", {}),
        ("Lion8bit", {}),
        ("SGD8bit", {"momentum": 0.9}),
        ("RMSprop8bit", {}),
        ("Adagrad8bit", {}),
    ],
)
def test_bitsandbytes_goes_on_as_planq_does(name: str, options: dict[str, Any]) -> None:
    """From a state dict of its own after three steps; the fourth is the same but for rounding."""
    count, generator = 5000, torch.Generator().manual_seed(1)
    p = torch.nn.Parameter(torch.randn(count, generator=generator))
    theirs = getattr(bnb, name)([p], lr=1e-2, **options)
    for _ in range(3):
        p.grad = torch.randn(count, generator=generator)
        theirs.step()
    q = torch.nn.Parameter(p.detach().clone())
    ours = getattr(optim, name)([q])
    ours.load_state_dict(theirs.state_dict())
    before, p.grad = q.detach().clone(), torch.randn(count, generator=generator)
    q.grad = p.grad.clone()
    theirs.step()
    ours.step()
    assert (q - before).abs().max() > 5e-3
    assert (q - p).abs().max() < 5e-7


LARGE, SMALL = 100_000, 99_999


def steps_of(optimizer: Any, params: list[torch.nn.Parameter], seeds: range) -> None:
    """Steps with drawn gradients."""
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()


def large_and_small() -> list[torch.nn.Parameter]:
    """Parameters on either side of what is worth paging."""
    generator = torch.Generator().manual_seed(7)
    shapes = (SMALL,), (LARGE // 100, 100), (LARGE,)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def paged_states(optimizer: Any) -> set[tuple[int, str]]:
    """Parameters, by their places, and names of those of their states that are of the pool."""
    places = {pages.pointer for pages in optimizer.pool}
    found = {
        (i, name)
        for i, values in enumerate(optimizer.state.values())
        for name in ("state1", "state2", "state3")
        if name in values and values[name].data_ptr() in places
    }
    assert len(found) == len(places)
    return found


@pytest.mark.parametrize(
    ("name", "states"), [("Adam", 2), ("AdamW8bit", 2), ("Lion8bit", 1), ("AdEMAMix8bit", 3)]
)
def test_states_that_page_have_the_bits_of_those_that_do_not(name: str, states: int) -> None:
    """Of large parameters, and of no others; also after they were saved, loaded or copied."""
    plain, paged = large_and_small(), large_and_small()
    ours, theirs = getattr(optim, f"Paged{name}")(paged), getattr(optim, name)(plain)
    steps_of(theirs, plain, range(2))
    steps_of(ours, paged, range(2))
    wanted = {(i, f"state{k + 1}") for i in (1, 2) for k in range(states)}
    assert paged_states(ours) == wanted
    loaded = getattr(optim, f"Paged{name}")(paged)
    loaded.load_state_dict(saved(ours))
    assert paged_states(loaded) == wanted
    copied = copy.deepcopy(loaded)
    copies = copied.param_groups[0]["params"]
    steps_of(theirs, plain, range(2, 3))
    for optimizer, params in ((loaded, paged), (copied, copies)):
        steps_of(optimizer, params, range(2, 3))
        for p, q in zip(plain, params, strict=True):
            assert torch.equal(p, q)
            pairs = [(x, optimizer.state[q][key]) for key, x in theirs.state[p].items()]
            assert all(torch.equal(*pair) for pair in pairs)
    assert paged_states(copied) == wanted


def test_where_states_are_is_the_optimizers_own() -> None:
    """A state dict of one that pages or does not is that of the other; an override holds."""
    plain, paged = large_and_small(), large_and_small()
    theirs, ours = optim.Lion(plain), optim.Lion(paged, paged=True)
    steps_of(theirs, plain, range(1))
    ours.override(paged[1], paged=False)
    ours.load_state_dict(theirs.state_dict())
    assert paged_states(ours) == {(2, "state1")}
    theirs.load_state_dict(ours.state_dict())
    assert not len(theirs.pool)


def test_states_that_page_are_fetched_before_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last first, and those of nobody any more never."""
    params = large_and_small()
    optimizer = optim.PagedAdam8bit(params)
    done: list[int | str] = []

    def prefetch(pages: memory.PagedTensor, *order: object) -> None:
        done.append(pages.pointer)

    def bind(plan: planq.Plan, *operands: object) -> Any:
        return lambda stream: done.append("step")

    monkeypatch.setattr(memory.PagedTensor, "prefetch", prefetch)
    monkeypatch.setattr(planq.Plan, "bind", bind)
    steps_of(optimizer, params, range(2))
    names = ("state2", "state1")
    last_first = [optimizer.state[p][name].data_ptr() for p in params[:0:-1] for name in names]
    assert done == ["step", *last_first, "step"]
    done.clear()
    optimizer.load_state_dict(optim.Adam(params).state_dict())
    optimizer.prefetch()
    assert done == []


def test_what_is_refused() -> None:
    """Unknown options, sparse gradients, other groups."""
    p = torch.nn.Parameter(torch.ones(4, 4))
    unknown: Any = {"blocksize": 3}
    with pytest.raises(TypeError, match="no option 'blocksize'"):
        optim.Adam([p], **unknown)
    with pytest.raises(planq.DescriptorError, match="momentum, which is 0"):
        optim.SGD([p], nesterov=True)
    optimizer = optim.Lion([p])
    with pytest.raises(planq.ArgumentError, match="other parameter groups"):
        optimizer.load_state_dict({"state": {}, "param_groups": []})
    p.grad = torch.ones(4, 4).to_sparse()
    with pytest.raises(planq.ArgumentError, match="no sparse gradients"):
        optimizer.step()
