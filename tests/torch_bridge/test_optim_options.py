"""planq.torch.optim: options, layouts and refusals; a refusal leaves everything as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import planq
import planq.torch.optim as optim

pytestmark = pytest.mark.usefixtures("one_thread")

# Of each: what no optimizer of the class can do with it, misspelt or not.
REFUSED: list[tuple[Any, str, Any]] = [
    (optim.Adam, "rounding", "stochastik"),
    (optim.Adam, "rounding", "nearest_away"),
    (optim.Adam, "state_format", "blockwise"),
    (optim.Adam, "weight_decay_mode", "l2"),
    (optim.Adam, "nonfinite", "skip_step"),
    (optim.Adam, "nonfinite", None),
    (optim.Adam, "trust_ratio", "clip"),
    (optim.SGD, "trust_ratio", "layerwise"),
    (optim.LAMB, "trust_ratio", "none"),
    (optim.LAMB, "weight_decay_mode", "coupled"),
    (optim.LAMB, "max_unorm", 0.5),
    (optim.LARS, "trust_ratio", ["clip"]),
    (optim.SGD, "nesterov", True),
    (optim.SGD, "dampening", 0.5),
    (optim.RMSprop, "centered", "no"),
    (optim.Lion, "skip_zeros", 1),
    (optim.Lion8bit, "block_size", 100),
    (optim.Lion8bit, "min_8bit_size", -1),
    (optim.Lion, "seed", 0.5),
    (optim.Lion, "paged", "no"),
]
NOT_OF_A_STEP = ("max_unorm", "nesterov", "dampening")  # numbers, which schedules may change


def parameter(count: int = 8, dtype: torch.dtype = torch.float32) -> torch.nn.Parameter:
    """With a gradient."""
    generator = torch.Generator().manual_seed(count)
    p = torch.nn.Parameter(torch.randn(count, generator=generator).to(dtype))
    p.grad = torch.randn(count, generator=generator).to(dtype)
    return p


def ends(make: Any, dtype: torch.dtype, **options: Any) -> torch.Tensor:
    """5000 elements after three steps."""
    p = parameter(5000, dtype)
    optimizer = make([p], lr=1e-2, **options)
    for _ in range(3):
        optimizer.step()
    return p.detach()


@pytest.mark.parametrize(("make", "name", "value"), REFUSED, ids=str)
def test_options_that_mean_nothing_are_refused_wherever_they_are_given(
    make: Any, name: str, value: Any
) -> None:
    """When it is made, by a group, a parameter, a state dict, or written into a group."""
    p, q = parameter(), parameter(9)
    optimizer = make([p])
    fine, bad = optimizer.state_dict(), copy.deepcopy(optimizer.state_dict())
    bad["param_groups"][0] |= {"lr": 77.0, name: value}
    attempts: list[Callable[[], Any]] = [
        lambda: make([p], **{name: value}),
        lambda: make([{"params": [p]}, {"params": [q], name: value}]),
        lambda: optimizer.add_param_group({"params": [q], name: value}),
        lambda: optimizer.override(p, **{name: value}),
    ]
    if name != "paged":  # of which state dicts say nothing
        attempts.append(lambda: optimizer.load_state_dict(bad))
    for attempt in attempts:
        with pytest.raises(planq.DescriptorError) as refused:
            attempt()
        assert refused.value.field == name
    assert repr(value) in str(refused.value) or name in ("block_size", "weight_decay_mode")
    assert optimizer.state_dict() == fine
    if name in NOT_OF_A_STEP:
        return
    before = p.detach().clone()
    optimizer.param_groups[0][name] = value
    with pytest.raises(planq.DescriptorError, match=name):
        optimizer.step()
    assert torch.equal(p, before)
    assert not optimizer.state


@pytest.mark.parametrize(
    ("make", "dtype", "name", "word"),
    [
        (optim.Adam, torch.bfloat16, "rounding", planq.Rounding.STOCHASTIC),
        (optim.Adam, torch.float32, "state_format", planq.StateFormat.STATIC8),
        (optim.Adam8bit, torch.float32, "state_format", planq.StateFormat.FLOAT32),
        (optim.AdamW, torch.float32, "weight_decay_mode", planq.WeightDecayMode.COUPLED),
        (optim.LAMB, torch.float32, "trust_ratio", planq.TrustRatio.CLIP),
    ],
    ids=lambda x: getattr(x, "__name__", str(x)),
)
def test_words_are_members_or_their_names_in_any_case(
    make: Any, dtype: torch.dtype, name: str, word: Any
) -> None:
    """As of descriptors, in a group too; and they do something."""
    more = {"max_unorm": 1e-3} if name == "trust_ratio" else {}
    wanted = ends(make, dtype, **{name: word}, **more)
    assert not torch.equal(wanted, ends(make, dtype))
    for each in (word.name, word.value, word.value.title()):
        assert torch.equal(ends(make, dtype, **{name: each}, **more), wanted)
        p = parameter(5000, dtype)
        optimizer = make([p], lr=1e-2)
        optimizer.param_groups[0] |= {name: each, **more}
        for _ in range(3):
            optimizer.step()
        assert torch.equal(p, wanted)


def test_names_of_options_that_there_are_not() -> None:
    """With the nearest; groups may hold what others keep in them."""
    p = parameter()
    unknown: Any = {"roundig": "nearest_even"}
    with pytest.raises(TypeError, match=r"Adam has no option 'roundig'; did you mean rounding\?"):
        optim.Adam([p], **unknown)
    optimizer = optim.Adam([{"params": [p], "name": "first"}])
    with pytest.raises(TypeError, match="no option 'momentum'"):
        optimizer.override(p, momentum=0.5)
    with pytest.raises(planq.DescriptorError, match=r"blockSize: .* did you mean block_size\?"):
        optimizer.add_param_group({"params": [parameter(9)], "blockSize": 64})
    assert [group["name"] for group in optimizer.param_groups] == ["first"]


def bad_parameters() -> dict[str, tuple[torch.nn.Parameter, str]]:
    """What no step is taken for, and what is said of it."""
    sparse, wide, folded = parameter(), parameter(dtype=torch.float64), parameter()
    sparse.grad = torch.ones(8).to_sparse()
    pairs = torch.nn.Parameter(torch.ones(8, dtype=torch.complex64))
    pairs.grad = torch.ones_like(pairs)
    folded.data = torch.ones(5).as_strided((3, 3), (1, 1))
    folded.grad = torch.ones(3, 3)
    return {
        "sparse": (sparse, ".grad: expected a dense tensor, got one of torch.sparse_coo"),
        "float64": (wide, ": expected float16, bfloat16 or float32, got torch.float64"),
        "complex": (pairs, ": expected float16, bfloat16 or float32, got torch.complex64"),
        "folded": (folded, ": expected strides under which no two elements share memory, got"),
    }


@pytest.mark.parametrize("name", ["sparse", "float64", "complex", "folded"])
def test_a_refused_step_changes_no_parameter_of_any_group(name: str) -> None:
    """What is wrong is in the last group; without it the step is that of a new optimizer."""
    first, (bad, message) = parameter(), bad_parameters()[name]
    other = torch.nn.Parameter(first.detach().clone())
    other.grad = first.grad
    optimizer = optim.Adam([{"params": [first]}, {"params": [bad]}])
    with pytest.raises(planq.ArgumentError) as refused:
        optimizer.step()
    assert str(refused.value).startswith(f"param_groups[1]['params'][0]{message}")
    assert torch.equal(first, other)
    assert not optimizer.state
    bad.grad = None
    optimizer.step()
    optim.Adam([other]).step()
    assert torch.equal(first, other)


@pytest.mark.parametrize(("name", "value"), [("lr", "much"), ("betas", (0.5,)), ("seed", -1)])
def test_values_that_plans_refuse_change_no_parameter_either(name: str, value: Any) -> None:
    """In the last group; the states of before stay, with their count."""
    first, second = parameter(), parameter(9)
    optimizer = optim.Adam([{"params": [first]}, {"params": [second]}])
    optimizer.step()
    before = copy.deepcopy((first, second, optimizer.state_dict()["state"]))
    optimizer.param_groups[1][name] = value
    with pytest.raises((planq.PlanqError, TypeError, ValueError)):
        optimizer.step()
    assert torch.equal(first, before[0])
    assert torch.equal(second, before[1])
    for number, state in optimizer.state_dict()["state"].items():
        assert all(torch.equal(x, before[2][number][key]) for key, x in state.items())


MAKERS: dict[str, Any] = {
    "adam": optim.AdamW,
    "adam8bit": lambda p, **o: optim.AdamW8bit(p, min_8bit_size=0, block_size=64, **o),
    "static8": lambda p, **o: optim.Adam(p, state_format="static8", min_8bit_size=0, **o),
    "sgd": lambda p, **o: optim.SGD(p, momentum=0.9, **o),
    "lamb": optim.LAMB,
    "drawn": lambda p, **o: optim.Lion(p, rounding="stochastic", **o),
}
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(0, 2).contiguous().transpose(0, 2),
    "spaced": lambda x: torch.stack([x, x], -1)[..., 0],
    "interleaved": lambda x: x.new_empty(7 * 240).as_strided(x.shape, (84, 14, 7, 3)).copy_(x),
    "negated": lambda x: torch.complex(torch.zeros_like(x), -x).conj().imag,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MAKERS)
def test_any_strides_have_the_bits_of_contiguous_ones(name: str, layout: str) -> None:
    """Of parameters and of gradients, which need not have the same; states are in C order."""
    dtype = torch.bfloat16 if name == "drawn" else torch.float32
    if layout == "negated":
        dtype = torch.float32  # no complex type has parts of 16 bits that planq takes
    generator = torch.Generator().manual_seed(1)
    shape = {"interleaved": (2, 3, 2, 2)}.get(layout, (4, 3, 5, 2))
    values = [torch.randn(shape, generator=generator).to(dtype) for _ in range(5)]
    plain = torch.nn.Parameter(values[0].clone())
    ours = torch.nn.Parameter(LAYOUTS[layout](values[0]))
    alike = torch.nn.Parameter(values[0].clone())
    assert not ours.is_contiguous() or ours.is_neg()
    strides = ours.stride()
    optimizers = [MAKERS[name]([p], lr=1e-2) for p in (plain, ours, alike)]
    for i, grad in enumerate(values[1:]):
        plain.grad, alike.grad = grad, LAYOUTS[layout](grad)
        ours.grad = LAYOUTS[layout](grad) if i % 2 else grad
        for optimizer in optimizers:
            optimizer.step()
    assert ours.stride() == strides
    for p, optimizer in zip((ours, alike), optimizers[1:], strict=True):
        assert torch.equal(p, plain)
        pairs = [(x, optimizer.state[p][key]) for key, x in optimizers[0].state[plain].items()]
        assert all(torch.equal(*pair) for pair in pairs)


def test_gradients_may_be_expanded_or_have_a_graph() -> None:
    """As sums and create_graph make them."""
    p, q = parameter(), parameter()
    p.grad, q.grad = torch.ones(1).expand(8), torch.ones(8)
    optimizers = [optim.Adam([each], lr=0.1) for each in (p, q)]
    for optimizer in optimizers:
        optimizer.step()
    assert torch.equal(p, q)
    p.grad = q.grad = None
    with pytest.warns(UserWarning, match="create_graph"):
        torch.autograd.backward(p.square().sum(), create_graph=True)
    torch.autograd.backward(q.square().sum())
    for optimizer in optimizers:
        optimizer.step()
    assert torch.equal(p, q)


def test_views_of_one_memory_take_their_steps_one_after_another() -> None:
    """As in torch: elements that two parameters have are stepped twice."""
    found = []
    for make in (optim.SGD, torch.optim.SGD):
        held = torch.zeros(4, 6)
        params = [torch.nn.Parameter(held[:, :4]), torch.nn.Parameter(held[:, 2:])]
        for p, by in zip(params, (1.0, 2.0), strict=True):
            p.grad = torch.full_like(p, by)
        make(params, lr=0.5).step()
        found.append(held)
    assert torch.equal(*found)
    assert found[0][0].tolist() == [-0.5, -0.5, -1.5, -1.5, -1.0, -1.0]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)], ids=str)
@pytest.mark.parametrize("make", [optim.Adam, optim.LAMB, optim.SGD8bit])
def test_single_elements_and_none(make: Any, shape: tuple[int, ...]) -> None:
    """Beside others, whose bits stay."""
    p, q, alone = torch.nn.Parameter(torch.ones(shape)), parameter(), parameter()
    p.grad = torch.ones(shape)
    optimizer = make([p, q], lr=0.5, min_8bit_size=0)
    optimizer.step()
    make([alone], lr=0.5, min_8bit_size=0).step()
    assert torch.equal(q, alone)
    assert p.numel() == 0 or p.item() < 1
    again = make([p, q], lr=0.5, min_8bit_size=0)
    again.load_state_dict(optimizer.state_dict())
    again.step()


def test_a_step_is_seen_by_autograd_and_a_closure_has_gradients() -> None:
    """A graph of before the step does not give wrong gradients in silence."""
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = optim.SGD([p], lr=0.5)
    loss = p.square().sum()

    def closure() -> float:
        optimizer.zero_grad()
        torch.autograd.backward(loss, retain_graph=True)
        return loss.item()

    with torch.no_grad():
        assert optimizer.step(closure) == 3
    assert p.tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(loss)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["AdamW8bit", "PagedLion8bit", "LAMB", "RMSprop8bit"])
def test_torchs_default_dtype_has_no_say(name: str, dtype: torch.dtype) -> None:
    """Before the first step, and in a state dict."""
    found = []
    for default in (torch.float32, dtype):
        p = parameter(8192, torch.bfloat16)
        torch.set_default_dtype(default)
        try:
            optimizer = getattr(optim, name)([p], lr=1e-2)
            optimizer.step()
            again = getattr(optim, name)([p], lr=1e-2)
            again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            again.step()
        finally:
            torch.set_default_dtype(torch.float32)
        found.append(p.detach())
    assert torch.equal(*found)


def test_parameters_that_come_later_draw_as_those_that_were_there() -> None:
    """By their places among all parameters; the group's options are its own."""
    found = []
    for later in (False, True):
        params = [parameter(64, torch.bfloat16) for _ in range(3)]
        optimizer = optim.SGD(params[: 1 if later else 3], lr=1e-3, rounding="STOCHASTIC")
        if later:
            optimizer.add_param_group({"params": params[1:]})
            optimizer = copy.deepcopy(optimizer)
            params = [p for group in optimizer.param_groups for p in group["params"]]
        for p in params:
            p.grad = torch.ones_like(p)
        optimizer.step()
        found.append(torch.stack([p.detach() for p in params]))
    assert torch.equal(*found)
    assert not torch.equal(found[0][0], found[0][1])
