"""Calls of torch.ops.planq for the cases of any operator, on the host or on a GPU.

What becomes of an operand or a field is written here from the documented rules, not taken from
planq.torch: a field is text, ``mode`` is ``mode_``, a scalar in memory or an operand that has a
field's name ends with ``_tensor``.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import planq
import planq.torch
from planq.audit.kernels import spread
from planq.audit.operators import Case, expected, inputs_of
from planq.audit.promises import judge_of
from planq.audit.reference.formats import Array
from planq.audit.runner import gathered, places
from planq.dtypes import Vocabulary
from support.own import ADAPTERS
from support.tensors import as_torch, from_torch

OPERATORS = sorted(ADAPTERS)


def text(value: object) -> Any:
    """A field as torch takes it."""
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, tuple) and any(isinstance(each, Vocabulary) for each in value):
        return json.dumps([str(each) for each in value])
    return list(value) if isinstance(value, tuple) else str(value)


def field_of(name: str) -> str:
    """The field that an argument may be."""
    return name.removesuffix("_")


@dataclass(frozen=True)
class Call:
    """An overload with a case's arguments."""

    overload: Any
    arguments: dict[str, Any]
    outputs: tuple[str, ...]

    def __call__(self) -> dict[str, torch.Tensor]:
        """What came of it, by name."""
        results = self.overload(**self.arguments)
        if self.overload._schema.returns:
            made = [results] if isinstance(results, torch.Tensor) else results
            return dict(zip(self.outputs, made, strict=True))
        return {name: self.operand(name) for name in self.outputs}

    def operand(self, name: str) -> torch.Tensor:
        """One that was given."""
        of, _, member = name.removesuffix("]").partition("[")
        given = self.arguments.get(f"{of}_tensor", self.arguments.get(of))
        given = given[int(member)] if member else given
        assert isinstance(given, torch.Tensor)
        return given


def overloads(operator: str) -> list[Any]:
    """All of an operator's."""
    packet = getattr(torch.ops.planq, operator)
    return [getattr(packet, name) for name in packet.overloads()]


def unconstrained(desc: Any, place: str) -> str:
    """A kernel that takes operands wherever torch puts them."""
    candidates = planq.explain(desc, device=place).candidates
    return next(c.sku for c in candidates if not c.constraints and (c.chosen or not c.reason))


def call_of(overload: Any, desc: Any, inputs: dict[str, Array], device: str = "cpu") -> Call:
    """A call with the case's operands; those that it writes are poisoned."""
    specs, place = desc.operands(), "host" if device == "cpu" else device
    allocating = bool(overload._schema.returns)
    written = {
        place: (getattr(torch, spec.storage), shape)
        for spec in specs.values()
        for place, shape in places(spec)
        if spec.role != planq.Role.INPUT
    }
    tensors = {name: as_torch(values).to(device) for name, values in inputs.items()}
    if not allocating:
        for name in set(written) - set(tensors):
            dtype, shape = written[name]
            tensors[name] = torch.empty(shape, dtype=dtype, device=device)
            tensors[name].view(-1).view(torch.uint8).fill_(0xA5)
    given = gathered(desc, tensors)
    arguments: dict[str, Any] = {}
    if any(candidate.constraints for candidate in planq.explain(desc, device=place).candidates):
        arguments["sku"] = unconstrained(desc, place)
    for argument in overload._schema.arguments:
        name, tensor = argument.name, "Tensor" in str(argument.type)
        operand = name if name in specs else name.removesuffix("_tensor")
        if tensor and operand in given:
            arguments[name] = given[operand]
        elif not tensor and hasattr(desc, field_of(name)):
            arguments[name] = text(getattr(desc, field_of(name)))
    return Call(overload, arguments, tuple(written))


@functools.cache
def cases(operator: str, count: int) -> tuple[Case, ...]:
    """Some cases of an operator, small and large, and two without elements."""
    tests = ADAPTERS[operator]
    return (*spread(tests.cases(), count), *spread(tests.empty_cases(), 2))


def has_nan(outputs: dict[str, Array]) -> bool:
    """Whether some output has a NaN: one that signals is an invalid operand of a comparison."""
    with np.errstate(invalid="ignore"):
        return any(bool((values != values).any()) for values in outputs.values())


def some_call(operator: str, overload: Any, count: int, device: str = "cpu") -> tuple[Case, Call]:
    """A middling case.

    Not of fp8 tensors, which torch's own checks cannot multiply (bytes, where an operator has no
    others), nor with NaN in what comes of it, which differ from themselves there.
    """
    make = ADAPTERS[operator].descriptor
    found = [(case, make(case.problem)) for case in cases(operator, count) if case.size > 0]
    plain = [
        (case, desc)
        for case, desc in found
        if not any(spec.storage.startswith("float8") for spec in desc.operands().values())
    ]
    plain = plain or found
    numbers = [(case, desc) for case, desc in plain if not has_nan(expected(case))]
    case, desc = (numbers or plain)[len(numbers or plain) // 2]
    inputs = {
        name: values.view(np.uint8) if values.dtype.name.startswith("float8") else values
        for name, values in inputs_of(case).items()
    }
    return case, call_of(overload, desc, inputs, device)


def check(operator: str, case: Case, overload: Any, device: str = "cpu") -> None:
    """Calls, and compares every byte with the reference; or what a promise says of sums."""
    desc = ADAPTERS[operator].descriptor(case.problem)
    inputs, outputs = inputs_of(case), expected(case)
    results = call_of(overload, desc, inputs, device)()
    stream: Any = planq.HOST if device == "cpu" else torch.cuda.current_stream()
    judge = judge_of(planq.Plan.select(stream, desc), case, inputs)
    assert set(results) == set(outputs)
    for name, wanted in outputs.items():
        got = from_torch(results[name].cpu())
        what = f"{overload} on {case.id}: {name}"
        assert got.shape == wanted.shape, what
        if judge is not None:
            judge(f"{what}: {name}", got, wanted)
        else:
            assert got.tobytes() == np.ascontiguousarray(wanted).tobytes(), what
