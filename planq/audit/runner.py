"""A plan with guarded operands, for any operator."""

from __future__ import annotations

from functools import cache
from typing import Any

import planq
from planq.audit.memory import (
    CONTIGUOUS,
    GUARD,
    INPUT_POISON,
    OUTPUT_POISON,
    Device,
    Layout,
    Operand,
    Workspace,
)
from planq.audit.promises import Judge
from planq.audit.reference.formats import Array


@cache
def args_classes() -> dict[type[planq.Descriptor], Any]:
    """The class of the args that belong to each class of descriptors."""
    return {operator.descriptor: operator.args for operator in planq.operators()}


def arguments(desc: planq.Descriptor, operands: dict[str, Any]) -> Any:
    """The args object of the descriptor's operator; what the descriptor does not have is None."""
    return args_classes()[type(desc)](**operands)


@cache
def specs_of(desc: planq.Descriptor) -> dict[str, planq.OperandSpec]:
    """The descriptor's operands, kept for its other benches."""
    return desc.operands()


def places(spec: planq.OperandSpec) -> list[tuple[str, tuple[int, ...]]]:
    """The tensors of an operand, and their shapes: itself, or members by `name[i]`."""
    if spec.kind is not planq.OperandKind.LIST:
        return [(spec.name, spec.shape)]
    return [(f"{spec.name}[{i}]", shape) for i, shape in enumerate(spec.shapes)]


def gathered(desc: planq.Descriptor, tensors: dict[str, Any]) -> dict[str, Any]:
    """Operands by name out of tensors by place; those that no tensor is there for are left out."""
    found: dict[str, Any] = {}
    for name, spec in specs_of(desc).items():
        listed = [tensors[place] for place, _ in places(spec) if place in tensors]
        if spec.kind is planq.OperandKind.LIST:
            if len(listed) == len(spec.shapes):
                found[name] = listed
        elif listed:
            found[name] = listed[0]
    return found


class Bench:
    """A selected plan with an operand set of its own on a device.

    `unguarded` operands end where their allocation ends; a workspace is left as allocated:
    a tool that watches memory then sees every access beside them, and every read of what nobody
    wrote. Otherwise both lie between guards and the workspace is poisoned.
    """

    def __init__(
        self,
        device: Device,
        desc: planq.Descriptor,
        *,
        pref: planq.PlanPreference | None = None,
        layouts: dict[str, Layout] | None = None,
        unguarded: bool = False,
        plan: planq.Plan | None = None,
        extents: dict[str, int] | None = None,
    ) -> None:
        """Selects, allocates and poisons; inputs are yet to be written.

        A plan of a descriptor with a `Dim` may be given instead, with what the extent is.
        """
        self.device, self.stream = device, device.stream()
        self.plan = plan or planq.Plan.select(self.stream, desc, pref or planq.PlanPreference())
        self.operands: dict[str, Operand] = {}
        self.roles: dict[str, str] = {}
        guard = 0 if unguarded else GUARD
        for name, spec in specs_of(desc).items():
            poison = INPUT_POISON if spec.role == "input" else OUTPUT_POISON
            for place, shape in places(spec):
                layout = (layouts or {}).get(place, CONTIGUOUS)
                if place != name:  # members of lists are contiguous
                    layout = Layout(offset=layout.offset)
                self.operands[place] = Operand(device, spec.storage, shape, layout, poison, guard)
                self.roles[place] = spec.role
        self.workspace = Workspace(device, self.plan.workspace_size(**extents or {}), guard)
        self.args = arguments(desc, self.tensors())

    def tensors(self) -> dict[str, Any]:
        """The operands by name, lists as lists."""
        return gathered(
            self.plan.descriptor, {name: operand.tensor for name, operand in self.operands.items()}
        )

    def load(self, inputs: dict[str, Array]) -> None:
        """Writes the inputs, what is updated in place among them, and poisons everything else."""
        for name, operand in self.operands.items():
            if self.roles[name] != "output":
                operand.write(inputs[name])
            else:
                operand.repoison()
        self.workspace.poison()

    def run(self) -> None:
        """Runs and waits."""
        self.plan.run(self.stream, self.workspace.argument, self.args)
        self.device.synchronize()

    def outputs(self) -> dict[str, Array]:
        """What the outputs hold, and what was updated in place."""
        return {n: o.read() for n, o in self.operands.items() if self.roles[n] != "input"}

    def check(
        self,
        inputs: dict[str, Array],
        outputs: dict[str, Array],
        what: str,
        judge: Judge | None = None,
    ) -> None:
        """Fails unless outputs are right and nothing else was written.

        Right is to the bit, unless a judge says of an operand what is near enough.
        """
        for name, operand in self.operands.items():
            held = inputs[name] if self.roles[name] == "input" else outputs[name]
            if judge and self.roles[name] != "input":
                near, held = held, operand.read()
                judge(f"{what}: {name}", held, near)
            operand.assert_holds(held, f"{what}: {name}")
        self.workspace.assert_guards(what)
