"""Selection from C for devices that need not be present: what Python foresees for them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit import dims, kernels
from planq.audit.memory import Host
from planq.plan import foresee
from support import c_library as c
from support.own import ADAPTERS, OPERATORS
from support.samples import make_descriptor, make_sample

DEVICES = ("host", "sm_80", "sm_89", "sm_90", "sm_120")
CASES = 5  # of an operator
# Operators with a workspace of which the host's kernels answer faster when they are prepared.
PREPARED = {"linear_gguf", "linear_gguf_merged", "linear_w8a8_dynamic"}
DESC = make_descriptor(shape=(planq.Dim("m", 16), 32))


def answer(call: Any) -> tuple[str, Any]:
    """What a call answers, or the code and the sentence of its error."""
    try:
        return "ok", call()
    except c.Refused as refused:
        return refused.code, refused.message
    except planq.PlanqError as error:
        return error.code, str(error)


@pytest.mark.parametrize("device", DEVICES)
def test_a_plan_is_the_one_that_python_foresees(device: str) -> None:
    """Of every operator, letter by letter; where no kernel qualifies, the table is the same."""
    facts, absent, selected = c.device_named(device), 0, 0
    for name, tests in ADAPTERS.items():
        for case in kernels.spread(tests.cases(), CASES):
            desc = tests.descriptor(case.problem)
            told = answer(lambda desc=desc: foresee(desc, None, device))
            made = answer(lambda desc=desc: c.Plan.foresee(facts, desc.to_json()))
            assert made[0] == told[0], name
            if told[0] != "ok":
                assert made[1].partition("\n")[2] == told[1].partition("\n")[2]
                absent += 1
                continue
            selected += 1
            plan = made[1]
            assert json.loads(plan.text("to_json")) == told[1]
            assert plan.text("sku") == told[1]["sku"]
            assert json.loads(plan.text("guarantee")) == told[1]["guarantee"]
            (chosen,) = (
                each for each in json.loads(plan.text("explain"))["candidates"] if each["chosen"]
            )
            expected = planq.explain(desc, device=device).chosen
            assert expected is not None
            assert chosen == json.loads(json.dumps(expected.to_dict()))
            if not desc.dims():
                assert plan.workspace_size() == expected.workspace
    assert selected > len(ADAPTERS)
    assert (absent == 0) == (device == "host")


def test_a_foreseen_plan_needs_what_a_selected_one_needs() -> None:
    """For every extent, also where a kernel that was prepared has a faster answer."""
    facts, with_workspace = c.device_named("host"), set()
    for name, tests in OPERATORS.items():
        for case in kernels.spread(tests.cases(), CASES):
            for _, plan in dims.plans(Host(), tests.descriptor(case.problem), None):
                desc, pref = plan.descriptor.to_json(), json.dumps(plan.preference.to_dict())
                foreseen = c.Plan.foresee(facts, desc, pref)
                most = foreseen.workspace_size()
                assert most == plan.workspace_size()
                (dim,) = plan.descriptor.dims()
                for extent in {0, 1, dim.max // 2, dim.max}:
                    bytes_ = foreseen.workspace_size(**{dim.name: extent})
                    assert bytes_ == plan.workspace_size(**{dim.name: extent})
                    if bytes_ > 0:
                        with_workspace.add(name)
    assert with_workspace >= PREPARED


def test_the_facts_of_a_device_are_those_of_python() -> None:
    """Of every name that stands for one here."""
    for name in (*DEVICES, *(f"cuda:{device.index}" for device in planq.devices())):
        facts = c.device_named(name)
        made = planq.DeviceFacts(
            facts.name.decode(),
            (planq.Backend.HOST, planq.Backend.CUDA)[facts.backend],
            facts.index,
            facts.arch,
            facts.multiprocessors,
            facts.shared_memory_per_block,
            facts.l2_bytes,
        )
        told = planq.explain(DESC, device=made).to_dict()
        assert told == planq.explain(DESC, device=name).to_dict()
        assert facts.name.decode() == name or name.startswith("cuda:")


def test_facts_of_ones_own_are_taken() -> None:
    """A kernel that this much memory is too little for is left out."""
    desc = make_descriptor(shape=(64, 8192), scope=planq.Scope.token())
    facts = c.device_named("sm_90")
    facts.shared_memory_per_block, facts.multiprocessors, facts.name = 1024, 2, b"a part"
    own = planq.DeviceFacts("a part", planq.Backend.CUDA, 0, 90, 2, 1024, facts.l2_bytes)
    made = c.Plan.foresee(facts, desc.to_json())
    assert made.text("explain") == json.dumps(planq.explain(desc, device=own).to_dict())
    facts.arch = 70
    assert answer(lambda: c.Plan.foresee(facts, desc.to_json()))[0] == "no_kernel"


@pytest.mark.parametrize(
    "name", ["", "sm_", "sm_75", "sm_90a", "HOST", "cuda", "cuda:99", "cuda:-1", "\u00e9"]
)
def test_a_name_that_no_device_has_is_refused_as_python_refuses_it(name: str) -> None:
    """But for Python's guess which one was meant."""
    code, sentence = answer(lambda: planq.explain(DESC, device=name))
    found = answer(lambda: c.device_named(name))
    assert found[0] == code == "descriptor"
    if name.isascii():
        assert found[1] == sentence.partition(";")[0]


def test_facts_that_are_none_are_refused() -> None:
    """Another backend, a name without an end, no device at all."""
    facts = c.device_named("sm_90")
    facts.backend = 2
    told = answer(lambda: c.Plan.foresee(facts, DESC.to_json()))
    assert told == ("descriptor", "device: expected PLANQ_HOST or PLANQ_CUDA, got 2")
    facts.backend = c.CUDA
    # A field of letters in ctypes ends at a zero; the memory behind it does not.
    np.ctypeslib.as_array(
        (c.ctypes.c_uint8 * 256).from_buffer(facts, c.DeviceFacts.name.offset)
    ).fill(ord("x"))
    told = answer(lambda: c.Plan.foresee(facts, DESC.to_json()))
    assert told[0] == "descriptor"
    assert told[1].startswith("device: expected a name that ends")
    handle = c.ctypes.c_uint64(5)
    told = answer(lambda: c.call("planq_foresee", None, b"{}", None, handle))
    assert told == ("argument", "device: expected a device, got NULL")
    for arguments in ((facts, None, None, handle), (facts, b"{}", None, None)):
        assert answer(lambda a=arguments: c.call("planq_foresee", *a))[0] == "argument"
    for arguments in ((None, facts), (b"host", None)):
        assert answer(lambda a=arguments: c.call("planq_device_named", *a))[0] == "argument"
    assert handle.value == 5


@pytest.mark.parametrize("device", ["host", "sm_90"])
def test_a_foreseen_plan_runs_nowhere(device: str) -> None:
    """Not even on a stream of such a device; nothing is written."""
    made = c.Plan.foresee(c.device_named(device), make_descriptor().to_json())
    sample = make_sample()
    given = {"input": sample.x, "output": sample.q, "scale": sample.s}
    stream = c.host() if device == "host" else c.Stream(c.CUDA, 0, 0, 0, None)
    sentence = (
        f"the plan was foreseen for {device} and runs nowhere: select it on a stream of the device"
    )
    for call in (
        lambda: made.run(given, stream=stream),
        lambda: made.bind(given),
        lambda: made.can_implement(given),
    ):
        assert answer(call) == ("stream", sentence)
    assert sample.untouched()


def test_what_is_foreseen_is_what_is_selected_there() -> None:
    """A stored plan of the host comes back as a plan that runs."""
    stored = c.Plan.foresee(c.device_named("host"), make_descriptor().to_json()).text("to_json")
    made, sample = c.Plan.from_json(stored), make_sample()
    made.run({"input": sample.x, "output": sample.q, "scale": sample.s})
    assert sample.right()
    assert planq.Plan.from_json(planq.HOST, stored).to_json() == stored
