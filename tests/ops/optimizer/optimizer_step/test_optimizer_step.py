"""What is particular to `optimizer_step`: bounds, torch.optim, the defects of its sources."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import planq
from planq.audit.memory import Host
from planq.audit.ops.optimizer.optimizer_step.cases import SCALARS, Case, long_cases
from planq.audit.ops.optimizer.optimizer_step.reference import Problem, dynamic_map
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array, Arrays, bits
from planq.audit.runner import Bench, gathered

COUNT = 3000
F32 = np.float32
CODED = ("blockwise8", "static8")


def run(problem: Problem, given: Arrays) -> Arrays:
    """What is written, by planq on the host."""
    bench = Bench(Host(), planq.OptimizerStepDescriptor(**problem.fields))
    bench.load(given)
    bench.run()
    return bench.outputs()


def plan_of(problem: Problem) -> planq.Plan:
    """A plan for the host."""
    return planq.Plan.select(planq.HOST, planq.OptimizerStepDescriptor(**problem.fields))


def take(problem: Problem, given: dict[str, Any]) -> None:
    """A step on arrays by place, and scalars as they are."""
    plan = plan_of(problem)
    specs = plan.descriptor.operands()
    tensors = {name: x for name, x in given.items() if "[" in name or name.startswith("codebook")}
    args = {n: x for n, x in given.items() if n not in tensors and n in specs}
    room = np.empty(plan.workspace_size() + 256, np.uint8)
    room = room[-room.ctypes.data % 256 :][: plan.workspace_size()]
    listed = planq.OptimizerStepArgs(**gathered(plan.descriptor, tensors), **args)
    plan.run(planq.HOST, room if room.size else None, listed)


def zeros_of(problem: Problem, parameter: Array, gradient: Array) -> Arrays:
    """Operands before the first step of one tensor."""
    given = {"parameter[0]": parameter.copy(), "gradient[0]": gradient.copy()}
    dtype = np.float32 if problem.state_format == "float32" else np.uint8
    for k in range(problem.states):
        given[f"state{k + 1}[0]"] = np.zeros(parameter.shape, dtype)
        if dtype == np.uint8:
            given[f"absmax{k + 1}[0]"] = np.zeros(problem.blocks(0), F32)
            given[f"codebook{k + 1}"] = dynamic_map(problem.is_signed(k))
    given |= {name: np.array(SCALARS[name]) for name in problem.scalars}
    return {**given, "step": np.array(1)}


def bell(seed: int, count: int = COUNT) -> Array:
    """Bell-shaped float32."""
    return inputs.make("normal", (count,), "float32", seed)


# --- Bounds


def exact(algorithm: str, given: Arrays, t: int) -> tuple[Array, Array]:
    """p' in float64 with decoupled decay, and the update with magnitudes in its sums."""
    n = {name: float(x) for name, x in given.items() if x.ndim == 0}
    wide = {name: x.astype(np.float64) for name, x in given.items() if "[0]" in name}
    p, lr = wide["parameter[0]"] * (1 - n["lr"] * n["weight_decay"]), n["lr"]
    g = (F32(n["gradient_scale"]) * given["gradient[0]"]).astype(np.float64)
    s = [wide[f"state{k}[0]"] for k in (1, 2, 3) if f"state{k}[0]" in wide]
    b1, b2 = n.get("beta1", 0.0), n.get("beta2", 0.0)
    if algorithm in ("adam", "ademamix"):
        c1, c2 = 1 - b1**t, np.sqrt(1 - b2**t)
        below = np.sqrt(b2 * s[1] + (1 - b2) * g * g) / c2 + n["eps"]
        parts = [b1 * s[0] / c1, (1 - b1) * g / c1]
        if algorithm == "ademamix":
            b3 = n["beta3"]
            parts += [n["alpha"] * b3 * s[2], n["alpha"] * (1 - b3) * g]
    elif algorithm == "momentum":
        below, parts = np.ones_like(g), [g] if t == 1 else [b1 * s[0], (1 - b2) * g]
    elif algorithm == "adagrad":
        below, parts = np.sqrt(s[0] + g * g) + n["eps"], [g]
    else:
        below, parts = np.sqrt(b1 * s[0] + (1 - b1) * g * g) + n["eps"], [g]
    magnitude = np.sum([np.abs(part) for part in parts], axis=0)
    return p - lr * np.sum(parts, axis=0) / below, lr * magnitude / below


@pytest.mark.parametrize("algorithm", ["adam", "ademamix", "momentum", "rmsprop", "adagrad"])
@pytest.mark.parametrize("seed", [1, 2])
def test_parameters_are_as_near_to_float64_as_the_page_says(algorithm: str, seed: int) -> None:
    """From equal state, at two steps."""
    case = Case(Problem(((COUNT,),), algorithm), "normal", 3 * seed - 2)
    given = case.inputs()
    found = run(case.problem, given)["parameter[0]"].astype(np.float64)
    right, update = exact(algorithm, given, case.step)
    before = np.abs(given["parameter[0]"].astype(np.float64))
    bound = 2.0**-24 * (3 * before + np.abs(found) + 8 * update)
    assert (np.abs(found - right) <= bound).all()


def torch_step(algorithm: str, given: Arrays) -> Array:
    """torch.optim's parameter after a step from this state."""
    p = torch.nn.Parameter(torch.from_numpy(given["parameter[0]"].copy()))
    p.grad = torch.from_numpy(F32(given["gradient_scale"]) * given["gradient[0]"])
    s = [torch.from_numpy(given[f"state{k}[0]"].copy()) for k in (1, 2) if f"state{k}[0]" in given]
    n = {name: float(x) for name, x in given.items() if x.ndim == 0}
    decay, step = n["weight_decay"], torch.tensor(float(given["step"]) - 1)
    optimizer: torch.optim.Optimizer
    if algorithm == "adam":
        betas = (n["beta1"], n["beta2"])
        optimizer = torch.optim.AdamW([p], n["lr"], betas, n["eps"], decay)
        optimizer.state[p] = {"step": step, "exp_avg": s[0], "exp_avg_sq": s[1]}
    elif algorithm == "momentum":
        optimizer = torch.optim.SGD([p], n["lr"], n["beta1"], n["beta2"])
        optimizer.state[p] = {"momentum_buffer": s[0]}
    elif algorithm == "adagrad":
        optimizer = torch.optim.Adagrad([p], n["lr"], eps=n["eps"])
        optimizer.state[p] = {"step": step, "sum": s[0]}
    else:
        optimizer = torch.optim.RMSprop([p], n["lr"], n["beta1"], n["eps"])
        optimizer.state[p] = {"step": step, "square_avg": s[0]}
    optimizer.step()
    return p.detach().numpy()


@pytest.mark.parametrize("algorithm", ["adam", "momentum", "adagrad", "rmsprop"])
def test_torch_is_within_twice_the_bound(algorithm: str) -> None:
    """From equal state; decay is AdamW's."""
    case = Case(Problem(((COUNT,),), algorithm), "normal", 1)
    given = case.inputs()
    if algorithm != "adam":
        given["weight_decay"] = np.array(0.0)
    if algorithm == "momentum":
        given["beta2"] = np.array(0.25)
    found = run(case.problem, given)["parameter[0]"].astype(np.float64)
    _, update = exact(algorithm, given, case.step)
    before = np.abs(given["parameter[0]"].astype(np.float64))
    bound = 2.0**-24 * (3 * before + np.abs(found) + 8 * update)
    assert (np.abs(found - torch_step(algorithm, given)) <= 2 * bound).all()


# --- Defects of bitsandbytes that this operator does not have


@pytest.mark.parametrize("place", [0, 15000, 39999])
def test_a_static_maximum_is_that_of_the_whole_tensor(place: int) -> None:
    """Wherever it lies; bitsandbytes looked at a quarter, and a little more."""
    problem = Problem(((40000,),), "lion", state_format="static8")
    gradient = bell(1, 40000)
    gradient[place] = 1000
    given = zeros_of(problem, bell(2, 40000), gradient)
    after = run(problem, given)
    n = {name: float(x) for name, x in given.items() if x.ndim == 0}
    largest = F32(1 - n["beta2"]) * (F32(n["gradient_scale"]) * F32(1000))
    assert after["absmax1[0]"][0] == largest
    assert after["state1[0]"][place] == 255


@pytest.mark.parametrize("algorithm", ["momentum", "rmsprop", "adagrad", "lion", "adam"])
@pytest.mark.parametrize("state_format", CODED)
def test_scale_and_decay_reach_every_algorithm(algorithm: str, state_format: str) -> None:
    """Half of the gradient is the gradient by half; without decay the parameter is another."""
    problem = Problem(((COUNT,),), algorithm, state_format=state_format)
    given = zeros_of(problem, bell(3), bell(4))
    halved = {**given, "gradient[0]": given["gradient[0]"] / F32(2)}
    one = run(problem, {**given, "gradient_scale": np.array(0.5)})
    other = run(problem, {**halved, "gradient_scale": np.array(1.0)})
    assert all(np.array_equal(bits(one[name]), bits(other[name])) for name in one)
    free = run(problem, {**given, "weight_decay": np.array(0.0)})
    assert (free["parameter[0]"] != one["parameter[0]"]).mean() > 0.9


@pytest.mark.parametrize("algorithm", ["momentum", "rmsprop", "adagrad"])
@pytest.mark.parametrize("state_format", ["float32", *CODED])
def test_coupled_decay_and_scale_are_in_the_gradient_of_the_update(
    algorithm: str, state_format: str
) -> None:
    """Not in the state alone: the step is the one with that gradient and no decay."""
    problem = Problem(
        ((COUNT,),), algorithm, state_format=state_format, weight_decay_mode="coupled"
    )
    p, g, decay = bell(21), bell(22), F32(0.1)
    given = zeros_of(problem, p, g) | {"gradient_scale": np.array(0.75)}
    sums = zeros_of(problem, p, F32(0.75) * g + decay * p) | {"gradient_scale": np.array(1.0)}
    one = run(problem, given | {"weight_decay": np.array(float(decay))})
    other = run(problem, sums | {"weight_decay": np.array(0.0)})
    assert all(np.array_equal(bits(one[name]), bits(other[name])) for name in one)


@pytest.mark.parametrize("algorithm", ["adam", "momentum"])
def test_a_clip_multiplies_the_update_alone(algorithm: str) -> None:
    """At a learning rate of 0 nothing moves, however much is clipped."""
    problem = Problem(((COUNT,),), algorithm, trust_ratio="clip", state_format="static8")
    given = zeros_of(problem, bell(5), 1000 * bell(6)) | {"lr": np.array(0.0)}
    given["max_unorm"] = np.array(1e-6)
    after = run(problem, given)
    assert after["update_norm[0]"][0] > 0
    assert np.array_equal(bits(after["parameter[0]"]), bits(given["parameter[0]"]))


def test_the_third_state_has_a_memory_of_its_own() -> None:
    """Also where the last block is short: m follows beta1 alone, n beta3 alone."""
    problem = Problem(((257,),), "ademamix", state_format="blockwise8")
    given = zeros_of(problem, bell(7, 257), np.full(257, 4, F32)) | {"beta3": np.array(0.75)}
    after = run(problem, given)
    assert (after["absmax1[0]"] == F32(1 - 0.9) * F32(3)).all()
    assert (after["absmax3[0]"] == F32(0.25) * F32(3)).all()


@pytest.mark.parametrize("state_format", ["float32", *CODED])
def test_skipped_elements_keep_their_state(state_format: str) -> None:
    """Whatever the memory held before; so do the scales of blocks of nothing but such elements."""
    problem = Problem(((512,),), "rmsprop", state_format=state_format, skip_zeros=True)
    case = Case(problem, "normal", 1)
    given = case.inputs()
    touched = np.arange(512) % 3 == 0
    touched[256:] = False
    given["gradient[0]"] = np.where(touched, bell(8, 512), F32(0))
    after = run(problem, given)
    for name in ("parameter[0]", "state1[0]"):
        assert np.array_equal(bits(after[name])[~touched], bits(given[name])[~touched])
    assert (after["parameter[0]"][touched] != given["parameter[0]"][touched]).any()
    if state_format == "blockwise8":
        assert after["absmax1[0]"][1] == given["absmax1[0]"][1]
        assert after["absmax1[0]"][0] >= given["absmax1[0]"][0]


@pytest.mark.parametrize("state_format", CODED)
def test_a_block_of_zeros_has_the_codes_of_zero(state_format: str) -> None:
    """bitsandbytes: 0 / 0, then 255."""
    problem = Problem(((300,),), "adam", state_format=state_format)
    after = run(problem, zeros_of(problem, bell(9, 300), np.zeros(300, F32)))
    assert (after["state1[0]"] == 127).all()
    assert (after["state2[0]"] == 0).all()
    assert not after["absmax1[0]"].any()


def test_a_small_negative_state_stays_negative() -> None:
    """A positive one of that size is coded as 0, as by bitsandbytes."""
    problem = Problem(((64,),), "lion", state_format="blockwise8", block_size=64)
    gradient = np.zeros(64, F32)
    gradient[:4] = 1, -1e-8, 1e-8, -0.0
    after = run(problem, zeros_of(problem, bell(10, 64), gradient))
    assert after["state1[0]"][:4].tolist() == [255, 126, 127, 127]


def test_scalars_in_memory_are_read_when_a_bound_launch_runs() -> None:
    """A launch that was bound once trains: the rate changes, the plan counts the steps."""
    problem = Problem(((100,),), "adam", advance_step=True)
    given = zeros_of(problem, bell(11, 100), bell(12, 100)) | {"step": np.array(0)}
    lr, step = np.array(0.0), np.array(0)
    operands = {name: x for name, x in given.items() if "[" in name}
    scalars = {n: float(x) for n, x in given.items() if x.ndim == 0 and n not in ("lr", "step")}
    plan = plan_of(problem)
    args = planq.OptimizerStepArgs(
        **gathered(plan.descriptor, operands), **scalars, lr=lr, step=step
    )
    launch = plan.bind(None, args)
    expected = {name: x.copy() for name, x in given.items()}
    for rate in (0.5, 0.25, 0.0):
        lr[...] = rate
        launch(planq.HOST)
        expected |= problem.expected({**expected, "lr": np.array(rate)})
    assert step == 3
    for name in ("parameter[0]", "state1[0]", "state2[0]"):
        assert np.array_equal(bits(operands[name]), bits(expected[name]))


# --- The rest


def test_norms_of_more_leaves_than_a_run_has() -> None:
    """Three levels of the tree, beside a tensor of two."""
    case = Case(Problem(((2**20 + 1500,), (70000,)), "lamb"), "tiled", 1)
    given = case.inputs()
    found, right = run(case.problem, given), case.expected(given)
    assert all(np.array_equal(bits(found[name]), bits(right[name])) for name in right)


@pytest.mark.parametrize("case", long_cases(), ids=lambda case: case.id)
def test_long_tensors_and_other_maps(case: Case) -> None:
    """Whole tiles of a kernel and more; maps that are given, the compiled-in ones among them."""
    given = case.inputs()
    found, right = run(case.problem, given), case.expected(given)
    assert all(np.array_equal(bits(found[name]), bits(right[name])) for name in right)


@pytest.mark.parametrize("algorithm", ["ademamix", "rmsprop", "lamb"])
def test_without_codebooks_the_maps_are_dynamic(algorithm: str) -> None:
    """Signed and unsigned ones; bitsandbytes' files have signed ones everywhere."""
    case = Case(Problem(((700,),), algorithm, state_format="blockwise8", centered=False), seed=2)
    given = case.inputs()
    expected = case.expected(given)
    left = {name: x.copy() for name, x in given.items() if not name.startswith("codebook")}
    take(case.problem, left)
    names = [name for name in expected if name in left]  # not update_norm
    assert len(names) == 1 + 2 * case.problem.states
    assert all(np.array_equal(bits(left[name]), bits(expected[name])) for name in names)
    signed = {f"codebook{k + 1}": dynamic_map(True) for k in range(case.problem.states)}
    other = run(case.problem, {**given, **signed})
    right = case.problem.expected({**given, **signed})
    assert all(np.array_equal(bits(other[name]), bits(right[name])) for name in right)


def test_draws_have_the_mean_of_what_they_round() -> None:
    """Other steps and other tensors draw other numbers."""
    count = 40000
    problem = Problem(
        ((count,), (count,)), "momentum", "bfloat16", rounding="stochastic", tensor_ids=(4, 9)
    )
    given = Case(problem, seed=2).inputs()  # weight decay is 0
    for i in range(2):
        given[f"parameter[{i}]"] = np.ones(count, given["parameter[0]"].dtype)
        given[f"gradient[{i}]"] = np.full(count, 1, F32)
        given[f"state1[{i}]"] = np.zeros(count, F32)
    given |= {"lr": np.array(2.0**-10), "gradient_scale": np.array(1.0), "beta2": np.array(0.0)}
    one = run(problem, given)
    low = 1 - 2.0**-8
    found = [one[f"parameter[{i}]"].astype(np.float64) for i in range(2)]
    assert all(set(np.unique(x)) == {low, 1.0} for x in found)
    assert all(abs((1 - x).mean() - 2.0**-10) < 4e-5 for x in found)
    later = run(problem, {**given, "step": given["step"] + 1})
    assert (found[0] != found[1]).mean() > 0.3
    assert (found[0] != later["parameter[0]"].astype(np.float64)).mean() > 0.3


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("block_size", 128, "only the states of blockwise8 have blocks"),
        ("trust_ratio", "layerwise", "only lamb and lars"),
        ("nesterov", True, "only momentum and lars"),
        ("centered", True, "only rmsprop"),
        ("rounding", "stochastic", "float32 parameters are not rounded"),
        ("rounding", "none", "expected nearest_even or stochastic"),
        ("parameter_dtype", "float64", "parameter_dtype"),
        ("tensor_ids", (1, 2), "expected one for each of 1 tensors, got 2"),
        ("tensor_ids", (-1,), "expected 0 to 2^32 - 1, got -1"),
    ],
)
def test_what_has_no_meaning_is_refused(field: str, value: object, message: str) -> None:
    """With the field's name."""
    fields = Problem(((3,),)).fields | {field: value}
    with pytest.raises(planq.DescriptorError, match=message.replace("^", r"\^")) as caught:
        planq.OptimizerStepDescriptor(**fields)
    assert caught.value.field == field


@pytest.mark.parametrize("size", [32, 300, 8192])
def test_blocks_are_powers_of_two(size: int) -> None:
    """From 64 to 4096."""
    problem = replace(Problem(((3,),)), state_format="blockwise8", block_size=size)
    with pytest.raises(planq.DescriptorError, match="a power of two from 64 to 4096"):
        planq.OptimizerStepDescriptor(**problem.fields)


def test_what_is_left_out_is_resolved() -> None:
    """The trust ratio by the algorithm; ids that every list has are none."""
    fields = Problem(((3,), (4,)), "lamb", tensor_ids=(0, 1)).fields
    desc = planq.OptimizerStepDescriptor(**fields)
    assert desc.trust_ratio is planq.TrustRatio.LAYERWISE
    assert desc.tensor_ids == ()
    with pytest.raises(planq.DescriptorError, match="lamb is adam"):
        planq.OptimizerStepDescriptor(**(fields | {"trust_ratio": "none"}))
    with pytest.raises(planq.DescriptorError, match="leave it out"):
        planq.OptimizerStepDescriptor(**(fields | {"weight_decay_mode": "coupled"}))
    alone = planq.OptimizerStepDescriptor(**Problem(((3,),)).fields)
    assert alone.trust_ratio is planq.TrustRatio.NONE
