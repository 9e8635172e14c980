"""`planq.Arena`: tensors of one step never share bytes, others do, and plans run in the block."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import planq

ALIGNMENT = 256


def up(nbytes: int) -> int:
    """The next multiple of the alignment."""
    return (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def booked(tensors: dict[str, tuple[int, int, int]]) -> planq.Arena:
    """An arena of tensors by name: bytes, first and last step."""
    arena = planq.Arena()
    for name, (nbytes, first, last) in tensors.items():
        arena.book(name, nbytes)
        arena.use(name, last)
        arena.use(name, first)
    return arena


def test_no_two_tensors_of_a_step_share_a_byte() -> None:
    """Of many random lives; and the block is between what it has to be and the sum."""
    draw = np.random.default_rng(0)
    gained = 0
    for _ in range(200):
        tensors = {}
        for i in range(draw.integers(1, 30)):
            first, last = sorted(draw.integers(0, 12, 2).tolist())
            tensors[f"t{i}"] = (int(draw.integers(0, 5000)), first, last)
        arena = booked(tensors)
        spans = {
            name: (arena.offset(name), arena.offset(name) + n[0]) for name, n in tensors.items()
        }
        for step in range(12):
            alive = [name for name, (_, first, last) in tensors.items() if first <= step <= last]
            assert arena.nbytes >= sum(up(tensors[name][0]) for name in alive)
            for a, b in itertools.combinations(alive, 2):
                apart = spans[a][1] <= spans[b][0] or spans[b][1] <= spans[a][0]
                assert apart or not tensors[a][0] or not tensors[b][0]
        total = sum(up(n[0]) for n in tensors.values())
        assert all(first % ALIGNMENT == 0 for first, _ in spans.values())
        assert max(end for _, end in spans.values()) <= arena.nbytes <= total
        gained += arena.nbytes < total
    assert gained > 100


def test_what_is_written_anew_was_not_needed_before() -> None:
    """Of many random uses and writes, each step by itself: who needs bytes there has them alone."""
    draw = np.random.default_rng(1)
    gained = 0
    for _ in range(100):
        names = [f"t{i}" for i in range(draw.integers(2, 12))]
        without, arena = planq.Arena(), planq.Arena()
        sizes = {name: int(draw.integers(1, 5000)) for name in names}
        told = {name: {} for name in names}
        for name in names:
            for step in sorted(draw.choice(12, draw.integers(1, 5), replace=False).tolist()):
                told[name][step] = bool(draw.integers(2))
            for each in (without, arena):
                each.book(name, sizes[name])
            for step, reads in told[name].items():
                without.use(name, step)
                (arena.use if reads else arena.write)(name, step)
        owner: dict[int, str] = {}
        for step in range(12):
            for name in names:
                span = range(arena.offset(name), arena.offset(name) + sizes[name], ALIGNMENT)
                reads = told[name].get(step)
                if reads and any(earlier < step for earlier in told[name]):
                    assert all(owner[at] == name for at in span)
            for name in names:
                if step in told[name]:
                    span = range(arena.offset(name), arena.offset(name) + sizes[name], ALIGNMENT)
                    owner |= dict.fromkeys(span, name)
            both = [name for name in names if step in told[name]]
            for a, b in itertools.combinations(both, 2):
                places = (arena.offset(a), arena.offset(b))
                assert places[0] + sizes[a] <= places[1] or places[1] + sizes[b] <= places[0]
        assert arena.nbytes <= sum(map(up, sizes.values()))
        gained += arena.nbytes < without.nbytes
    assert gained > 30


def test_a_tensor_of_every_layer_leaves_its_bytes_to_others_between() -> None:
    arena = planq.Arena()
    for name in ("codes", "inner"):
        arena.book(name, 1000)
    for layer in range(3):
        arena.write("codes", 4 * layer)
        arena.use("codes", 4 * layer + 1)
        arena.write("inner", 4 * layer + 2)
        arena.use("inner", 4 * layer + 3)
    assert arena.nbytes == 1024
    # A step that reads it, too, needs what it holds; also one that is told in the other order.
    arena.use("codes", 8)
    assert arena.nbytes == 2048
    for order in (("use", "write"), ("write", "use")):
        both = booked({"a": (1, 0, 0), "b": (1, 1, 1)})
        for name in order:
            getattr(both, name)("a", 2)
        assert both.nbytes == 512


def test_places_of_a_chain() -> None:
    """Three tensors of a chain take the place of two; equal inputs have equal places."""
    chain = {"a": (1000, 0, 1), "b": (1000, 1, 2), "c": (1000, 2, 3), "small": (1, 0, 3)}
    arena = booked(chain)
    assert [arena.offset(name) for name in chain] == [0, 1024, 0, 2048]
    assert arena.nbytes == 2304
    arena.book("late", 300)
    arena.use("late", 3)
    assert (arena.offset("late"), arena.nbytes) == (1024, 2304)


def test_what_is_kept_or_never_used_shares_with_nothing() -> None:
    """An input that is written before the first step, and a result that is read later."""
    arena = booked({"x": (256, 0, 0), "y": (256, 2, 2), "z": (256, 4, 4)})
    assert arena.nbytes == 256
    arena.keep("x")
    assert arena.nbytes == 512
    arena.book("weight", 256)
    assert arena.nbytes == 768
    assert len({arena.offset(name) for name in ("x", "y", "weight")}) == 3
    assert arena.offset("y") == arena.offset("z")


K = 4096


def layers() -> list[tuple[Any, dict[str, str]]]:
    """Plans of a chain: codes, a histogram's quantiles with a workspace, values, codes again."""
    shape = (4, K)
    quantize = planq.DynamicRangeQuantizeDescriptor(
        shape=shape, input_dtype="float32", output_dtype="int8"
    )
    dequantize = planq.DequantizeDescriptor(
        shape=shape, input_dtype="int8", output_dtype="float32", scope=planq.Scope.token()
    )
    quantiles = planq.EstimateQuantilesDescriptor(shape=shape, input_dtype="float32")
    return [
        (quantize, {"input": "x", "output": "codes", "scale": "scale"}),
        (dequantize, {"input": "codes", "output": "values", "scale": "scale"}),
        (quantiles, {"input": "values", "output": "quantiles"}),
        (quantize, {"input": "values", "output": "last codes", "scale": "last scale"}),
    ]


def args_of(plan: planq.Plan) -> Any:
    """The class of a plan's args."""
    return next(o.args for o in planq.operators() if o.name == plan.descriptor.operator)


def test_outputs_of_plans_are_written_anew() -> None:
    """The codes of the last step were those of the first; in between they have no bytes."""
    for beside, shares in enumerate([False, False, True, False]):
        arena = planq.Arena()
        for desc, names in layers():
            codes = {operand: "codes" for operand, name in names.items() if name.endswith("codes")}
            arena.add(planq.Plan.select(planq.HOST, desc), **codes)
        arena.book("large", 1 << 30)  # the first to be placed
        arena.use("large", beside)
        assert (arena.offset("codes") < 1 << 30) == shares, beside


def test_plans_run_in_one_block_as_they_do_apart() -> None:
    """With their workspaces; what a tensor's bytes held before does not matter."""
    arena, plans, specs = planq.Arena(), [], {}
    arena.keep("x", "quantiles", "last codes", "last scale")
    for desc, names in layers():
        plans.append(planq.Plan.select(planq.HOST, desc))
        assert arena.add(plans[-1], **names) == len(plans) - 1
        specs |= {name: desc.operands()[operand] for operand, name in names.items()}
    assert any(arena.workspace(step) is not None for step in range(len(plans)))
    whole = np.full(arena.nbytes + ALIGNMENT, 0xFF, np.uint8)
    block = whole[-whole.ctypes.data % ALIGNMENT :][: arena.nbytes]

    def inside(name: str) -> Any:
        own = block[arena.offset(name) :][: specs[name].nbytes]
        return own.view(specs[name].storage).reshape(specs[name].shape)

    x = np.random.default_rng(1).standard_normal((4, K)).astype(np.float32)
    inside("x")[...] = x
    apart = {name: np.zeros(spec.shape, spec.storage) for name, spec in specs.items()}
    apart["x"][...] = x
    for step, (plan, (_, names)) in enumerate(zip(plans, layers(), strict=True)):
        lent = arena.workspace(step)
        room = None if lent is None else block[lent[0] : lent[0] + lent[1]]
        made = args_of(plan)
        plan.run(planq.HOST, room, made(**{own: inside(name) for own, name in names.items()}))
        own_room = plan.empty_workspace(np)
        plan.run(planq.HOST, own_room, made(**{own: apart[name] for own, name in names.items()}))
    for name in ("x", "quantiles", "last codes", "last scale"):
        assert inside(name).tobytes() == apart[name].tobytes(), name
    rooms = sum(up(plan.workspace_size()) for plan in plans)
    assert arena.nbytes < sum(up(spec.nbytes) for spec in specs.values()) + rooms


def test_what_is_wrong_is_named() -> None:
    """A tensor, a size, a step, an operand."""
    arena = planq.Arena()
    arena.book("a", 10)
    arena.book("a", 10)
    plan = planq.Plan.select(planq.HOST, layers()[0][0])
    wrong: list[tuple[Any, str]] = [
        (lambda: arena.book("a", 11), "a: expected 10 bytes, as before, got 11"),
        (lambda: arena.book("b", -1), "b: expected 0 bytes or more, got -1"),
        (lambda: arena.use("b", 0), "b: expected a tensor that is booked"),
        (lambda: arena.use("a", -1), "step: expected 0 or more, got -1"),
        (lambda: arena.write("b", 0), "b: expected a tensor that is booked"),
        (lambda: arena.write("a", -1), "step: expected 0 or more, got -1"),
        (lambda: arena.offset("b"), "b: expected a tensor that is booked"),
        (lambda: arena.workspace(0), "step: expected one of 0 steps, got 0"),
        (lambda: arena.add(plan, weight="w"), "weight: expected one of input, output, scale"),
        (lambda: arena.add(plan, input="a"), "a: expected 10 bytes, as before"),
    ]
    for call, message in wrong:
        with pytest.raises(planq.ArgumentError) as caught:
            call()
        assert str(caught.value).startswith(message)
    assert (arena.nbytes, arena.offset("a")) == (256, 0)
    with pytest.raises(planq.ArgumentError, match="step: expected one of 0 steps"):
        arena.workspace(0)
    arena.keep("never booked")
    with pytest.raises(planq.ArgumentError, match="never booked: expected a tensor"):
        _ = arena.nbytes


def test_an_operand_of_many_tensors_is_refused() -> None:
    """Its members have places of their own."""
    desc = planq.OptimizerStepDescriptor(
        shapes=((4,), (5,)), parameter_dtype="float32", gradient_dtype="float32"
    )
    arena = planq.Arena()
    with pytest.raises(planq.ArgumentError, match="gradient: expected a tensor, got a list"):
        arena.add(planq.Plan.select(planq.HOST, desc), gradient="g")


def test_a_dim_counts_with_its_largest_extent() -> None:
    """Of tensors and of workspaces."""
    desc = planq.DequantizeDescriptor(
        shape=(planq.Dim("m", max=100), 8), input_dtype="int8", output_dtype="float32"
    )
    arena = planq.Arena()
    arena.add(planq.Plan.select(planq.HOST, desc), input="codes", output="values")
    assert arena.nbytes == up(100 * 8) + up(100 * 8 * 4)


def test_an_empty_arena_needs_no_memory() -> None:
    """Nor do empty tensors."""
    assert planq.Arena().nbytes == 0
    assert booked({"a": (0, 0, 1), "b": (0, 0, 1)}).nbytes == 0
