"""Where the tensors of a network lie: all in one block, by what each launch reads and writes."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import planq
from planq.dtypes import Role
from planq.errors import ArgumentError
from planq.networks.tensors import CudaTensor, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from planq.networks.machine import Machine

    Shapes = Mapping[str, tuple[Sequence[int], Any]]
    Launches = Callable[[Mapping[str, Any]], Iterable[tuple[planq.Plan, Any]]]

NONE: Shapes = MappingProxyType({})


class Places:
    """Shapes, types and places of tensors, by name.

    The lives of tensors are read off the launches themselves: :meth:`trace` is given the operands
    of each, made of tensors without memory. An operand that is all of a tensor and an output of its
    plan begins a new life. So a tensor may be used again in each layer. Results of the last launch
    are to be fetched before the next step runs.

    Args:
        kept: Tensors that live always, each with its shape and type: weights, a cache, what the
            host writes before a step, and what the next step reads.
        others: Tensors that share bytes where no launch has them together. Each has the most
            elements that a step has.

    Raises:
        ArgumentError: A name is in both.

    Attributes:
        arena: Their places.
    """

    def __init__(self, kept: Shapes, others: Shapes = NONE) -> None:
        self.arena = planq.Arena()
        for name in kept.keys() & others.keys():
            raise ArgumentError(name, "a tensor that is kept or shares bytes", "both")
        self._shapes = {**kept, **others}
        self._kept, self._launches = tuple(kept), 0
        for name, (shape, dtype) in self._shapes.items():
            self.arena.book(name, bytes_of(shape, dtype))
        self.arena.keep(*kept)

    def trace(self, launches: Launches, others: Shapes) -> None:
        """Reads the lives of tensors off the launches of a step. Each kind of step is traced.

        Args:
            launches: Makes the plan and the args of each launch, in order, of tensors by name.
            others: The tensors that may share bytes, with the extents of this step.
        """
        kept = {name: self._shapes[name] for name in self._kept}
        named = {name: _stand_in(name, *each) for name, each in {**kept, **others}.items()}
        for plan, args in launches(named):
            for name, begins in _uses(plan, args):
                (self.arena.write if begins else self.arena.use)(name, self._launches)
            self._trace_workspace(plan)
            self._launches += 1

    def _trace_workspace(self, plan: planq.Plan) -> None:
        size = plan.workspace_size()
        if size:
            name = workspace_name(plan)
            self._shapes[name] = (size,), "uint8"
            self.arena.book(name, size)
            self.arena.write(name, self._launches)

    def on(self, machine: Machine) -> dict[str, Any]:
        """Reserves the block of a machine. What the tensors hold is undefined.

        Returns:
            The tensors by name, and the workspaces by :func:`workspace_name`.

        Raises:
            ArgumentError: The machine has a block already.
            PlanqError: It has too little memory.
        """
        machine.reserve(self.arena.nbytes)
        return {
            name: machine.tensor(self.arena.offset(name), *each)
            for name, each in self._shapes.items()
        }


def workspace_name(plan: planq.Plan) -> str:
    """What the workspace of a plan is called: plans of equal size have one."""
    return f"workspace of {plan.workspace_size()} bytes"


def bytes_of(shape: Sequence[int], dtype: Any) -> int:
    """The bytes of a tensor without gaps."""
    return int(math.prod(shape) * np.dtype(dtype).itemsize)


class _Named(NamedTuple):
    """The owner of a tensor without memory."""

    name: str
    size: int


def _stand_in(name: str, shape: Sequence[int], dtype: Any) -> CudaTensor:
    """A tensor that can be cut and reshaped, and knows its name."""
    return CudaTensor(_Named(name, math.prod(shape)), 0, shape, dtype, Place(-1))


def _uses(plan: planq.Plan, args: Any) -> Iterator[tuple[str, bool]]:
    """The tensors of a launch, and whether it writes all of each without reading it."""
    for name, spec in plan.descriptor.operands().items():
        value = getattr(args, name)
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            owner = getattr(tensor, "owner", None)
            if isinstance(owner, _Named):
                yield owner.name, spec.role is Role.OUTPUT and tensor.size == owner.size
