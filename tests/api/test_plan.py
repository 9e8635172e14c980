"""Plans: what they say of themselves, how they run, and that they never change."""

from __future__ import annotations

import dataclasses
import gc
import re
import weakref
from typing import Any

import numpy as np
import pytest
import torch

import planq
from support.samples import assign, make_descriptor, make_sample

SKU = re.compile(r"^[a-z0-9_]+(\.[a-z0-9_]+)?/(host|cuda)(/[a-z0-9_]+){0,2}$")


def make_plan() -> planq.Plan:
    """The plan of `make_sample()` on the host."""
    return planq.Plan.select(planq.HOST, make_descriptor())


def test_the_five_steps_give_the_result() -> None:
    """Select, ask, ask, ask, run."""
    sample = make_sample()
    pref = planq.PlanPreference(determinism=planq.Determinism.BIT_EXACT)
    plan = planq.Plan.select(planq.HOST, make_descriptor(), pref)
    assert plan.can_implement(sample.args())
    assert plan.workspace_size() == 0
    assert plan.precision_guarantee().determinism is planq.Determinism.BIT_EXACT
    plan.run(planq.HOST, None, sample.args())
    assert sample.right()


def test_select_returns_the_operators_own_class() -> None:
    """From the base class and from the subclass alike."""
    assert type(make_plan()) is planq.DynamicRangeQuantizePlan
    own = planq.DynamicRangeQuantizePlan.select(planq.HOST, make_descriptor())
    assert type(own) is planq.DynamicRangeQuantizePlan
    assert own.sku == make_plan().sku


def test_the_preference_has_a_default() -> None:
    """RUN_TO_RUN and nothing else."""
    assert make_plan().preference == planq.PlanPreference()
    assert planq.PlanPreference().determinism is planq.Determinism.RUN_TO_RUN


def test_a_plan_knows_what_it_was_made_from() -> None:
    """Descriptor, preference, kernel."""
    desc, pref = make_descriptor(), planq.PlanPreference(batch_invariant=True)
    plan = planq.Plan.select(planq.HOST, desc, pref)
    assert plan.descriptor == desc
    assert plan.preference == pref
    assert plan.sku in {k.sku for op in planq.operators() for k in op.kernels}


def test_names_of_kernels_are_unique_and_well_formed() -> None:
    """`operator.variant/backend/arithmetic/dtypes` and a body, in lower case."""
    names = [(k.sku, k.body) for op in planq.operators() for k in op.kernels]
    assert len(names) == len(set(names))
    for operator in planq.operators():
        for kernel in operator.kernels:
            assert SKU.match(kernel.sku), kernel.sku
            assert re.fullmatch("[a-z0-9_]+", kernel.body), kernel.sku
            assert kernel.sku.startswith(operator.name)
            assert kernel.sku.split("/")[1] == kernel.backend
            assert kernel.revision >= 1


def test_bodies_of_a_sku_promise_the_same() -> None:
    """One guarantee and one revision, whichever of them runs."""
    promises = {(k.sku, k.revision, k.guarantee) for op in planq.operators() for k in op.kernels}
    assert len(promises) == len({k.sku for op in planq.operators() for k in op.kernels})


def test_a_plan_lists_the_bodies_of_its_sku() -> None:
    """Those of explain; of them the chosen one runs, and a bound launch says so."""
    plan = make_plan()
    candidates = [c for c in plan.explain().candidates if c.sku == plan.sku]
    assert plan.bodies() == tuple(
        planq.Body(c.body, c.chosen, c.reason, c.workspace, c.constraints) for c in candidates
    )
    launch = plan.bind(None, make_sample().args())
    assert [body.name for body in plan.bodies() if body.chosen] == [launch.body]
    with pytest.raises(TypeError, match="only dims"):
        plan.bodies(m=1)


def test_the_guarantee_is_that_of_the_chosen_kernel() -> None:
    """As `explain` and the registry print it."""
    plan = make_plan()
    chosen = plan.explain().chosen
    assert chosen is not None
    assert chosen.sku == plan.sku
    assert chosen.guarantee == plan.precision_guarantee()
    listed = {k.sku: k.guarantee for op in planq.operators() for k in op.kernels}
    assert listed[plan.sku] == plan.precision_guarantee()


def test_the_guarantees_properties_follow_its_rung() -> None:
    """deterministic and bit_stable_on_same_hardware: RUN_TO_RUN or better."""
    promise = make_plan().precision_guarantee()
    for rung in planq.Determinism:
        changed = dataclasses.replace(promise, determinism=rung)
        assert changed.deterministic == (rung >= planq.Determinism.RUN_TO_RUN)
        assert changed.bit_stable_on_same_hardware == changed.deterministic


def test_guarantees_cannot_be_changed_or_left_incomplete() -> None:
    """Frozen, and without a single default."""
    promise = make_plan().precision_guarantee()
    with pytest.raises(dataclasses.FrozenInstanceError):
        assign(promise, "max_ulp", 3)
    for field in dataclasses.fields(planq.PrecisionGuarantee):
        assert field.default is dataclasses.MISSING
        assert field.default_factory is dataclasses.MISSING
    incomplete: Any = planq.PrecisionGuarantee
    with pytest.raises(TypeError):
        incomplete()


def test_the_ladder_of_determinism_is_ordered() -> None:
    """CCCL's three rungs and one above them."""
    ladder = planq.Determinism
    assert ladder.NOT_GUARANTEED < ladder.RUN_TO_RUN < ladder.GPU_TO_GPU < ladder.BIT_EXACT


def test_plans_cannot_be_changed() -> None:
    """They are shared by threads."""
    plan = make_plan()
    for name in ("sku", "descriptor", "preference", "colour"):
        with pytest.raises(AttributeError):
            setattr(plan, name, None)


def test_a_bound_launch_runs_on_what_it_was_bound_to() -> None:
    """Also after the args object has been changed, and again with new contents."""
    sample, other = make_sample(), make_sample()
    args = sample.args()
    launch = make_plan().bind(None, args)
    args.input, args.output, args.scale = other.x, other.q, other.s
    launch(planq.HOST)
    assert sample.right()
    assert other.untouched()
    sample.x[...] = sample.x[::-1] * np.float32(3)
    sample.poison()
    launch(planq.HOST)
    assert sample.right()


def test_a_launch_keeps_its_operands_alive() -> None:
    """And lets them go with it."""
    sample = make_sample()
    launch = make_plan().bind(None, sample.args())
    gone = weakref.ref(sample.x)
    del sample
    gc.collect()
    assert gone() is not None
    launch(planq.HOST)
    del launch
    gc.collect()
    assert gone() is None


def test_a_run_keeps_nothing_alive() -> None:
    """No cache of operands behind the caller's back."""
    sample, plan = make_sample(), make_plan()
    plan.run(planq.HOST, None, sample.args())
    gone = weakref.ref(sample.x)
    del sample
    gc.collect()
    assert gone() is None


def test_binding_checks_the_operands() -> None:
    """At once, not at the launch."""
    sample = make_sample()
    with pytest.raises(planq.ArgumentError):
        make_plan().bind(None, sample.args(scale=None))
    with pytest.raises(planq.WorkspaceError):
        make_plan().bind(np.empty(3, np.float32), sample.args())


def test_status_is_truthy_or_says_why() -> None:
    """And never raises on tensors, whatever they are."""
    sample, plan = make_sample(), make_plan()
    fine = plan.can_implement(sample.args())
    assert bool(fine) is True
    for wrong in (None, "text", 5, sample.x, object(), sample.s[:, None], np.empty(6)):
        status = plan.can_implement(sample.args(scale=wrong))
        assert bool(status) is False
        assert status.operand == "scale"
        assert status.reason.startswith("scale: expected shape (6,) float32 on host, got ")
    assert sample.untouched()


def test_status_and_run_say_the_same() -> None:
    """One check, two answers."""
    sample, plan = make_sample(), make_plan()
    args = sample.args(output=np.empty((6, 31), np.int8))
    status = plan.can_implement(args)
    with pytest.raises(planq.ArgumentError) as caught:
        plan.run(planq.HOST, None, args)
    assert str(caught.value) == status.reason
    assert caught.value.operand == status.operand == "output"


def test_can_implement_writes_nothing() -> None:
    """It only looks."""
    sample = make_sample()
    assert make_plan().can_implement(sample.args())
    assert sample.untouched()


def test_other_args_than_the_operators_are_refused() -> None:
    """Not even a look-alike."""
    plan = make_plan()
    wrongs: list[Any] = [None, {}, (1, 2, 3), make_sample()]
    for wrong in wrongs:
        assert not plan.can_implement(wrong)
        with pytest.raises(planq.ArgumentError):
            plan.run(planq.HOST, None, wrong)


def test_what_is_no_descriptor_or_preference_is_refused() -> None:
    """With typed errors, where a plan is selected and where one is explained."""
    select: Any = planq.Plan.select
    explain: Any = planq.explain
    for call in (lambda *request: select(planq.HOST, *request), explain):
        with pytest.raises(planq.DescriptorError, match="desc: expected a descriptor, got str"):
            call("int8")
        with pytest.raises(planq.DescriptorError, match="pref: expected a PlanPreference"):
            call(make_descriptor(), {"sku": "x"})


def test_operators_are_listed_with_their_classes() -> None:
    """What generates matrices and stubs."""
    info = {op.name: op for op in planq.operators()}["dynamic_range_quantize"]
    assert info.descriptor is planq.DynamicRangeQuantizeDescriptor
    assert info.args is planq.DynamicRangeQuantizeArgs
    assert info.plan is planq.DynamicRangeQuantizePlan
    assert info.operands == ("input", "output", "scale", "zero_point", "inverse_tensor_scale")
    names = [field.name for field in dataclasses.fields(info.descriptor) if field.init]
    assert list(info.fields) == names
    assert names[:5] == ["shape", "input_dtype", "output_dtype", "scope", "mode"]
    assert info.summary


def test_the_build_says_what_it_is() -> None:
    """For bug reports and stored plans."""
    info = planq.build_info()
    assert re.match(r"^\d+\.\d+", info.version)
    assert info.build_id
    assert isinstance(info.cuda, bool)
    assert planq.WORKSPACE_ALIGNMENT == 256


def test_a_plan_is_made_once() -> None:
    """Bound launches point into it, and other threads use it."""
    plan, sample = make_plan(), make_sample()
    launch = plan.bind(None, sample.args())
    other = make_descriptor(shape=(3, 5), output_dtype="uint8", mode=planq.Mode.ASYMMETRIC)
    with pytest.raises(TypeError, match="a plan is made once"):
        plan.__init__(planq.HOST, other, planq.PlanPreference())
    assert plan.descriptor == make_descriptor()
    assert plan.sku == make_plan().sku
    launch(planq.HOST)
    assert sample.right()


def test_a_plan_loses_nothing() -> None:
    """Neither assigned nor deleted."""
    plan = make_plan()
    for name in ("_descriptor", "_preference", "sku"):
        with pytest.raises(AttributeError, match="immutable"):
            delattr(plan, name)
    assert plan.descriptor == make_descriptor()


@pytest.mark.parametrize(
    ("make", "args", "expected"),
    [
        (planq.FillDescriptor, lambda o: planq.FillArgs(output=o, value=3.0), [3, 3, 3, 3]),
        (planq.ArangeDescriptor, lambda o: planq.ArangeArgs(output=o), [0, 1, 2, 3]),
    ],
    ids=["fill", "arange"],
)
def test_what_is_only_written_over_is_allocated(make: Any, args: Any, expected: list[int]) -> None:
    """Its role is INOUT, but nothing of it is read."""
    plan = planq.Plan.select(planq.HOST, make(shape=(4,), output_dtype="float32"))
    made = plan.empty_outputs(np)
    assert list(made) == ["output"]
    plan.run(planq.HOST, None, args(made["output"]))
    assert made["output"].tolist() == expected


@pytest.mark.parametrize("library", [np, torch], ids=["numpy", "torch"])
def test_a_workspace_is_allocated_as_run_takes_it(library: Any) -> None:
    """Of the size asked for, aligned, for some rows or for the most; None where none is needed."""
    rows = planq.Dim("m", max=300)
    layer = planq.LinearW8A8DynamicDescriptor(
        input_shape=(rows, 64), weight_shape=(16, 64), weight_dtype="int8", **FLOATS
    )
    plan = planq.Plan.select(planq.HOST, layer)
    for extents in ({}, {"m": 1}, {"m": 7}):
        made = plan.empty_workspace(library, **extents)
        size = plan.workspace_size(**extents)
        assert size > 0
        assert made.shape == (size,)
        assert made.dtype == library.uint8
        address = made.ctypes.data if library is np else made.data_ptr()
        assert address % planq.WORKSPACE_ALIGNMENT == 0
    operands = {
        "input": library.ones((7, 64), dtype=library.float32),
        "weight": library.ones((16, 64), dtype=library.int8),
        "weight_scale": library.ones((16,), dtype=library.float32),
    }
    outputs = plan.empty_outputs(library, m=7)
    args = planq.LinearW8A8DynamicArgs(**operands, **outputs)
    plan.run(planq.HOST, plan.empty_workspace(library, m=7), args)
    assert (outputs["output"] == 64).all()
    with pytest.raises(planq.DescriptorError, match="m"):
        plan.empty_workspace(library, m=301)
    with pytest.raises(TypeError, match="the extent of the dim m is missing"):
        plan.empty_workspace(library, k=3)
    fill = planq.Plan.select(planq.HOST, planq.FillDescriptor(shape=(4,), output_dtype="float32"))
    assert fill.empty_workspace(library) is None


FLOATS: dict[str, Any] = {"input_dtype": "float32", "output_dtype": "float32"}
