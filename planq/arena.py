"""One block of memory for the tensors and workspaces of many plans."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Final

from planq import _core
from planq.dtypes import OperandKind, Role
from planq.errors import ArgumentError
from planq.plan import Plan

__all__ = ["Arena"]

_ALIGNMENT: Final = _core.WORKSPACE_ALIGNMENT


_ALWAYS: Final = -1  # every bit of an integer


@dataclass(slots=True)
class _Tensor:
    """A tensor, and the steps that use it: of each whether it needs what the tensor held before."""

    nbytes: int
    steps: dict[int, bool] = field(default_factory=dict)
    kept: bool = False

    def lives(self) -> int:
        """The steps in which its bytes are its own, as bits of an integer."""
        if self.kept or not self.steps:
            return _ALWAYS
        found, before = 0, None
        for step, needs in sorted(self.steps.items()):
            first = before if needs and before is not None else step
            found |= (2 << step) - (1 << first)
            before = step
        return found


class Arena:
    """Places in one block of memory, by when each tensor is used.

    When to use:
        For the activations of a network: plans run in one order again and again, and most tensors
        are read by the next few steps alone. Tensors that no step has together share bytes. The
        arena allocates nothing: it says how large the block is, and where everything lies. ::

            arena = planq.Arena()
            arena.keep("x", "y")
            arena.add(quantize, input="x", output="codes", scale="scale")
            arena.add(product, input="codes", input_scale="scale", output="y")
            block = numpy.empty(arena.nbytes, numpy.uint8)  # aligned, as a workspace is

    Formula:
        A tensor lives from the first step that uses it to the last one, but for the steps between a
        use and the next step that writes all of it without reading it. A kept one lives always, and
        the workspace of a plan in its own step. The largest tensor is placed first, and of equal
        ones the one that was booked first; each goes to the lowest multiple of
        ``planq.WORKSPACE_ALIGNMENT`` where it meets no tensor that lives in one of its steps.

        So the block has at least the bytes of the step that has most, and at most those of all
        tensors together. Both count each tensor rounded up to a multiple of the alignment.

    Source:
        Greedy by size, of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
        Inference" (2020).
    """

    __slots__ = ("_placed", "_steps", "_tensors", "_workspaces")

    def __init__(self) -> None:
        self._tensors: dict[str, _Tensor] = {}
        self._workspaces: dict[int, str] = {}
        self._steps = 0
        self._placed: tuple[dict[str, int], int] | None = None

    def book(self, name: str, nbytes: int) -> None:
        """Books a tensor; once more with the same size changes nothing.

        Until a step uses it, it lives always.

        Args:
            name: What it is called.
            nbytes: Its bytes, such as ``desc.operands()["output"].nbytes``.

        Raises:
            ArgumentError: The size is negative, or another one than before.
        """
        if nbytes < 0:
            raise ArgumentError(name, "0 bytes or more", str(nbytes))
        found = self._tensors.setdefault(name, _Tensor(nbytes))
        if found.nbytes != nbytes:
            raise ArgumentError(name, f"{found.nbytes} bytes, as before", str(nbytes))
        self._placed = None

    def use(self, name: str, step: int) -> None:
        """Says that a step needs a tensor: it stays from the step before that uses it.

        Raises:
            ArgumentError: No such tensor is booked, or the step is negative.
        """
        self._used(name, step)[step] = True

    def write(self, name: str, step: int) -> None:
        """Says that a step writes all of a tensor: what it held is needed no more.

        A step that uses it, too, needs what it held.

        Raises:
            ArgumentError: No such tensor is booked, or the step is negative.
        """
        self._used(name, step).setdefault(step, False)

    def _used(self, name: str, step: int) -> dict[int, bool]:
        """The steps of a tensor, to which one is to be added."""
        tensor = self._booked(name)
        if step < 0:
            raise ArgumentError("step", "0 or more", str(step))
        self._placed = None
        return tensor.steps

    def keep(self, *names: str) -> None:
        """Says that tensors live always: what is written before the first step, or read later.

        They may be booked afterwards.
        """
        for name in names:
            self._tensors.setdefault(name, _Tensor(-1)).kept = True
        self._placed = None

    def add(self, plan: Plan, **names: str) -> int:
        """Adds the next step: a plan, its workspace, and the names of its operands.

        Outputs are written, as by :meth:`write`, and all other operands are used.

        Args:
            plan: The plan. Of a ``Dim`` it has the largest extent.
            **names: The tensors by the names of the args. Operands that are left out lie elsewhere.

        Returns:
            The number of the step.

        Raises:
            ArgumentError: The plan has no such operand, or it is a list; or a tensor had another
                size in a step before.
        """
        specs, step = plan.descriptor.operands(), self._steps
        for operand, name in names.items():
            if operand not in specs:
                raise ArgumentError(operand, f"one of {', '.join(specs)}", "another operand")
            if specs[operand].kind is OperandKind.LIST:
                raise ArgumentError(operand, "a tensor", "a list of tensors")
            known = self._tensors.get(name)
            if known is not None and known.nbytes < 0:
                known.nbytes = specs[operand].nbytes
            self.book(name, specs[operand].nbytes)
        for operand, name in names.items():
            is_written = specs[operand].role is Role.OUTPUT
            (self.write if is_written else self.use)(name, step)
        self._add_workspace(plan, step)
        self._steps += 1
        return step

    def _add_workspace(self, plan: Plan, step: int) -> None:
        size = plan.workspace_size()
        if size:
            name = self._workspaces[step] = f"workspace of step {step}"
            self.book(name, size)
            self.use(name, step)

    @property
    def nbytes(self) -> int:
        """The bytes of the block, a multiple of ``planq.WORKSPACE_ALIGNMENT``.

        Raises:
            ArgumentError: A tensor that is kept was never booked.
        """
        return self._places()[1]

    def offset(self, name: str) -> int:
        """How many bytes behind the beginning of the block a tensor begins.

        It holds until something is booked, used, kept or added.

        Raises:
            ArgumentError: No such tensor is booked.
        """
        self._booked(name)
        return self._places()[0][name]

    def workspace(self, step: int) -> tuple[int, int] | None:
        """The offset and the bytes of a step's workspace; None if its plan needs none.

        Raises:
            ArgumentError: There is no such step.
        """
        if not 0 <= step < self._steps:
            raise ArgumentError("step", f"one of {self._steps} steps", str(step))
        name = self._workspaces.get(step)
        return None if name is None else (self.offset(name), self._tensors[name].nbytes)

    def _booked(self, name: str) -> _Tensor:
        found = self._tensors.get(name)
        if found is None or found.nbytes < 0:
            raise ArgumentError(name, "a tensor that is booked", "none of this name")
        return found

    def _places(self) -> tuple[dict[str, int], int]:
        """The offsets of all tensors, and the bytes of the block."""
        if self._placed is None:
            for name in self._tensors:
                self._booked(name)
            self._placed = _placed(self._tensors)
        return self._placed


def _placed(tensors: dict[str, _Tensor]) -> tuple[dict[str, int], int]:
    """Places tensors, the largest first, each at the lowest place that is free in its steps."""
    offsets: dict[str, int] = {}
    taken: list[tuple[int, int, int]] = []  # offset, end, and the steps of the tensor there
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: -item[1].nbytes):
        size, lives, offset = aligned(tensor.nbytes), tensor.lives(), 0
        for first, last, others in taken:
            if first >= offset + size:
                break
            if last > offset and lives & others:
                offset = last
        offsets[name] = offset
        if size:
            bisect.insort(taken, (offset, offset + size, lives))
        end = max(end, offset + size)
    return offsets, end


def aligned(nbytes: int) -> int:
    """The next multiple of the alignment."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
