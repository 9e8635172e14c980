"""Runs plans on guarded operands and compares bits."""

from __future__ import annotations

from typing import Any

import planq
from reference.cases import Case, outputs
from reference.dynamic_range_quantize import Problem
from reference.formats import Array
from support.bridge import OPERATORS, descriptor, expected, inputs_of
from support.memory import (
    CONTIGUOUS,
    INPUT_POISON,
    OUTPUT_POISON,
    Device,
    Host,
    Layout,
    Operand,
    Workspace,
)

HOST_DEVICE = Host()


class Bench:
    """A selected plan with an operand set of its own on a device."""

    def __init__(
        self,
        device: Device,
        desc: planq.Descriptor,
        *,
        pref: planq.PlanPreference | None = None,
        layouts: dict[str, Layout] | None = None,
        operator: str = "dynamic_range_quantize",
    ) -> None:
        """Selects, allocates and poisons; inputs are yet to be written."""
        self.device, self.stream = device, device.stream()
        self.plan = planq.Plan.select(self.stream, desc, pref or planq.PlanPreference())
        self.operands: dict[str, Operand] = {}
        self.roles: dict[str, str] = {}
        for name, spec in desc.operands().items():
            layout = (layouts or {}).get(name, CONTIGUOUS)
            poison = INPUT_POISON if spec.role == "input" else OUTPUT_POISON
            self.operands[name] = Operand(device, spec.storage, spec.shape, layout, poison)
            self.roles[name] = spec.role
        self.workspace = Workspace(device, self.plan.workspace_size())
        self.args = OPERATORS[operator].arguments(
            {name: operand.tensor for name, operand in self.operands.items()}
        )

    def load(self, inputs: dict[str, Array]) -> None:
        """Writes the inputs and poisons everything else."""
        for name, operand in self.operands.items():
            if self.roles[name] == "input":
                operand.write(inputs[name])
            else:
                operand.repoison()
        self.workspace.poison()

    def run(self) -> None:
        """Runs and waits."""
        self.plan.run(self.stream, self.workspace.argument, self.args)
        self.device.synchronize()

    def outputs(self) -> dict[str, Array]:
        """What the outputs hold."""
        return {n: o.read() for n, o in self.operands.items() if self.roles[n] == "output"}

    def check(self, inputs: dict[str, Array], outputs: dict[str, Array], what: str) -> None:
        """Fails unless outputs are right to the bit and nothing else was written."""
        for name, operand in self.operands.items():
            held = inputs[name] if self.roles[name] == "input" else outputs[name]
            operand.assert_holds(held, f"{what}: {name}")
        self.workspace.assert_guards(what)


def check_case(
    device: Device,
    case: Case,
    *,
    pref: planq.PlanPreference | None = None,
    layouts: dict[str, Layout] | None = None,
) -> Bench:
    """Runs one case and compares every byte; returns the bench for further runs."""
    bench = Bench(device, descriptor(case.problem), pref=pref, layouts=layouts)
    bench.load(inputs_of(case))
    bench.run()
    bench.check(inputs_of(case), expected(case), f"{bench.plan.sku} on {case.id}")
    return bench


def quantize(
    problem: Problem, x: Array, device: Device = HOST_DEVICE, pref: Any = None
) -> dict[str, Array]:
    """Quantizes `x` and returns the outputs as stored, fp8 codes as bytes."""
    bench = Bench(device, descriptor(problem), pref=pref)
    bench.load({"input": x})
    bench.run()
    results = bench.outputs()
    if problem.output_dtype.startswith("float8"):
        results["output"] = results["output"].view("u1")
    return results


def check_problem(problem: Problem, x: Array, device: Device = HOST_DEVICE) -> None:
    """Quantizes `x` and compares every byte with the reference."""
    bench = Bench(device, descriptor(problem))
    bench.load({"input": x})
    bench.run()
    bench.check({"input": x}, outputs(problem, x), f"{bench.plan.sku} on {problem.id}")
