"""Plans with an extent that is known at run, against plans of that very extent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch
from functools import cache
from typing import Any

import numpy as np

import planq
from planq import _core
from planq.audit.kernels import PROMISE, accepted, pinned, running, spread
from planq.audit.memory import Device, Workspace
from planq.audit.operators import OPERATORS, Case, inputs_of
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench
from planq.selection import native_device

SHAPES = ("shape", "input_shape", "weight_shape", "query_shape", "key_shape")
# A name that no operator has for anything else.
NAME = "m"
FEWEST = 9
MOST_CASES = 3


def shape_of(desc: Any) -> tuple[str, tuple[int, ...]]:
    """The descriptor's first field that is a shape."""
    name = next(name for name in SHAPES if hasattr(desc, name))
    return name, getattr(desc, name)


def with_extent(desc: planq.Descriptor, axis: int, extent: int | planq.Dim) -> Any:
    """The descriptor with another extent of an axis of its shape."""
    fields: Any = desc
    name, shape = shape_of(desc)
    return replace(fields, **{name: (*shape[:axis], extent, *shape[axis + 1 :])})


def plans(device: Device, desc: Any, name: str | None) -> Iterator[tuple[int, planq.Plan]]:
    """The plans with a Dim in the place of an axis, for every axis that the operator admits."""
    if hasattr(desc, "shapes"):
        return
    pref = PROMISE if name is None else pinned(name)
    for axis, extent in enumerate(shape_of(desc)[1][:-1]):
        if extent == 0:
            continue
        try:
            varied = with_extent(desc, axis, planq.Dim(NAME, max=max(extent, FEWEST)))
        except planq.DescriptorError:
            continue
        # An error would have the reason of every kernel of the operator, for each of many cases.
        if _core.foresee(varied._native, pref._native, native_device(device.stream())) is not None:
            yield axis, planq.Plan.select(device.stream(), varied, pref)


def resized(case: Case, plan: planq.Plan, extent: int) -> dict[str, Array]:
    """The case's inputs with as many indices along the Dim, the given ones over and over."""
    inputs = dict(inputs_of(case))
    for name, spec in plan.descriptor.operands().items():
        if name not in inputs:
            continue
        for axis, dim in enumerate(spec.shape):
            if isinstance(dim, planq.Dim):
                indices = np.arange(extent) % inputs[name].shape[axis]
                inputs[name] = np.take(inputs[name], indices, axis=axis)
    return inputs


def check_extent(
    device: Device, case: Case, plan: planq.Plan, desc: planq.Descriptor, extent: int
) -> None:
    """One plan at one extent gives the bytes of the plan of that extent, and writes no others."""
    try:
        bench = Bench(device, desc, pref=pinned(running(plan)))
    except planq.NoKernelError:
        bench = Bench(device, desc, pref=PROMISE)
    inputs = resized(case, plan, extent)
    bench.load(inputs)
    bench.run()
    outputs = bench.outputs()
    needed = plan.workspace_size(**{NAME: extent})
    assert needed <= plan.workspace_size(), f"{plan.sku} at {extent}"
    workspace = Workspace(device, needed)
    launch = plan.bind(workspace.argument, bench.args)
    assert launch.body in {body.name for body in plan.bodies()}
    for run in (plan.run, launch):
        bench.load(inputs)
        workspace.poison()
        rest = (workspace.argument, bench.args) if run == plan.run else ()
        run(bench.stream, *rest)
        device.synchronize()
        bench.check(inputs, outputs, f"{plan.sku} on {case.id} with {extent} of {NAME}")
        workspace.assert_guards(plan.sku)


def check_dims(device: Device, operator: str, name: str, most: int = MOST_CASES) -> int:
    """Every axis of some cases of a kernel, pinned and not; how many cases there were."""
    cases = accepted(operator, name, device.name)
    chosen = spread(cases, most)
    others = (case for case in sorted(cases, key=lambda case: case.size) if case not in chosen)
    tried = 0
    for case in (*chosen, *others):
        tried += check_case(device, case, OPERATORS[operator].descriptor(case.problem), name)
        if tried == most:
            break
    return tried


def check_case(device: Device, case: Case, desc: Any, name: str) -> bool:
    """Whether the kernel takes the case with a Dim at all, which then is checked."""
    return check_plans(device, case, desc, name) | check_default(device, case, desc)


def check_plans(device: Device, case: Case, desc: Any, pin: str | None) -> bool:
    """Whether there are plans with a Dim, each of which has been checked at some extents."""
    tried = False
    for axis, plan in plans(device, desc, pin):
        tried = True
        for extent in sorted({0, 1, 2, 7, max(shape_of(desc)[1][axis], FEWEST)}):
            check_extent(device, case, plan, with_extent(desc, axis, extent), extent)
    return tried


@cache
def check_default(device: Device, case: Case, desc: planq.Descriptor) -> bool:
    """The same of what is chosen where nothing is pinned: once, whichever kernel the case is of."""
    return check_plans(device, case, desc, None)


def admits(operator: str, name: str) -> bool:
    """Whether some descriptor of the kernel can have a Dim at all.

    An adapter has a pattern `without_dims` of the SKUs of which none can.
    """
    return not fnmatch(name, getattr(OPERATORS[operator], "without_dims", ""))
