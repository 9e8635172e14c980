"""Plans that run one after another, and the memory between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, final

from planq import _core
from planq._classes import classes_of
from planq.arena import Arena
from planq.arguments import StreamLike, Tensor
from planq.descriptor import Descriptor, OperandSpec
from planq.dtypes import Backend, Determinism, Role
from planq.errors import ArgumentError, DescriptorError, WorkspaceError
from planq.ops.memory import FillDescriptor
from planq.plan import Plan, _address_of, _dtype_of, _empty_bytes
from planq.preference import PlanPreference

_ALIGNMENT: Final = _core.WORKSPACE_ALIGNMENT
_ITEM_BYTES: Final = {name: (bits + 7) // 8 for name, _, bits, *_ in _core.formats()}
# DLPack's numbers of memory that a host or a GPU reads; managed memory is of both.
_DEVICE_TYPES: Final = {Backend.HOST: (1, 3, 13), Backend.CUDA: (2, 13)}


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor in a recipe's workspace, or a part of one, or its memory seen in another way.

    Attributes:
        name: What the arena calls the memory.
        dtype: The element type.
        shape: The extents.
        strides: In elements; None without gaps.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    def seen_as(self, *shape: int) -> Piece:
        """The same memory with another shape."""
        return replace(self, shape=shape)

    def repeated(self, shape: tuple[int, ...]) -> Piece:
        """A vector as every row of a tensor."""
        return replace(self, shape=shape, strides=(*(0 for _ in shape[1:]), 1))

    def at(self, base: int, arena: Arena, device: str) -> tuple[Any, ...]:
        """What a plan takes."""
        return (base + arena.offset(self.name), self.shape, self.strides, self.dtype, device)


@dataclass(frozen=True, slots=True)
class Step:
    """A plan, and what its operands are.

    Attributes:
        plan: The plan.
        number: Its number in the arena.
        operands: Each operand by its name in the args: a piece of the workspace, a number, or the
            name of an operand of the recipe.
    """

    plan: Plan
    number: int
    operands: Mapping[str, Piece | float | str]

    def given(self) -> Iterator[tuple[str, str]]:
        """Operands of the recipe: the name in the plan's args, and the recipe's name."""
        for own, value in self.operands.items():
            if isinstance(value, str):
                yield own, value

    def bind(self, base: int, arena: Arena, operands: Mapping[str, Any]) -> _core.Launch:
        """Binds the operands.

        Raises:
            ArgumentError: One of them is not what the plan takes; it has the recipe's name.
        """
        place = self.plan.device
        device = "host" if place.backend is Backend.HOST else f"cuda:{place.index}"
        values = {
            own: value.at(base, arena, device)
            if isinstance(value, Piece)
            else operands[value]
            if isinstance(value, str)
            else value
            for own, value in self.operands.items()
        }
        lent = arena.workspace(self.number)
        workspace = None if lent is None else (base + lent[0], lent[1])
        args = classes_of(self.plan.descriptor.operator).args(**values)
        try:
            return self.plan.bind(workspace, args)
        except ArgumentError as error:
            names = dict(self.given())
            raise ArgumentError(
                names.get(error.operand, error.operand), error.expected, error.actual
            ) from None


@final
@dataclass(frozen=True, slots=True)
class RecipeLaunch:
    """A recipe with its operands bound; ``launch(stream)`` runs it. It keeps them alive."""

    _launches: tuple[_core.Launch, ...]
    _kept: tuple[object, ...] = field(repr=False)

    def __call__(self, stream: StreamLike) -> None:
        """Runs the plans, one after another.

        Raises:
            StreamError: It is no stream, or a stream of another device.
            CudaError: A launch failed.
        """
        for launch in self._launches:
            launch(stream)


@final
@dataclass(frozen=True, slots=True)
class Recipe:
    """A sequence of plans on one stream, with the memory between them in one workspace.

    :meth:`run` allocates nothing, waits for nothing and reads nothing back, so it can be captured
    in a CUDA graph. All operands are checked before the first plan runs. Recipes are immutable and
    may be shared by threads that have a workspace each.

    Attributes:
        plans: The plans by what they compute, in the order in which they run.
    """

    plans: Mapping[str, Plan]
    _steps: tuple[Step, ...] = field(repr=False)
    _arena: Arena = field(repr=False)

    def operands(self) -> dict[str, OperandSpec]:
        """What each operand has to be, by its name in :meth:`run`."""
        found: dict[str, OperandSpec] = {}
        for step in self._steps:
            specs = step.plan.descriptor.operands()
            for own, name in step.given():
                found.setdefault(name, replace(specs[own], name=name))
        return found

    def determinism(self) -> Determinism:
        """What all plans promise of their bits: the least that one of them does."""
        return min(plan.precision_guarantee().determinism for plan in self.plans.values())

    def workspace_size(self) -> int:
        """Bytes of workspace that :meth:`run` needs; 0 means that it takes None."""
        return self._arena.nbytes

    def empty_workspace(self, library: Any, *, device: Any = None) -> Any:
        """Workspace for :meth:`run`, allocated as :meth:`planq.Plan.empty_workspace` does."""
        return _empty_bytes(library, self.workspace_size(), device)

    def empty_outputs(self, library: Any, *, device: Any = None) -> dict[str, Any]:
        """Outputs, allocated as :meth:`planq.Plan.empty_outputs` does, by name."""
        places = {} if device is None else {"device": device}
        return {
            name: library.empty(spec.shape, dtype=_dtype_of(library, name, spec), **places)
            for name, spec in self.operands().items()
            if spec.role is Role.OUTPUT
        }

    def bind(self, workspace: object, **operands: Tensor) -> RecipeLaunch:
        """Checks operands and workspace once, and keeps them; ``launch(stream)`` then runs.

        Args:
            workspace: None if :meth:`workspace_size` is 0, else a byte tensor or
                ``(pointer, bytes)`` on the plans' device, aligned to
                ``planq.WORKSPACE_ALIGNMENT``, apart from all operands.
            **operands: Those of :meth:`operands`.

        Raises:
            ArgumentError: An operand is missing, unknown, or not what is expected.
            WorkspaceError: The workspace is missing, too small, misaligned, on another device, or
                overlaps an operand.
        """
        specs = self.operands()
        for name in (*specs, *operands):
            if name not in operands:
                raise ArgumentError(name, "a tensor", "none")
            if name not in specs:
                raise ArgumentError(name, f"one of {', '.join(specs)}", "another operand")
        base = self._address(workspace, operands)
        launches = tuple(step.bind(base, self._arena, operands) for step in self._steps)
        return RecipeLaunch(launches, (workspace, operands))

    def run(self, stream: StreamLike, workspace: object, **operands: Tensor) -> None:
        """Checks the operands, then runs the plans one after another.

        Args:
            stream: Any stream of the plans' device. On a host stream, the work is done on return.
            workspace: As :meth:`bind` takes it.
            **operands: Likewise.

        Raises:
            ArgumentError, WorkspaceError: As :meth:`bind`; nothing was launched.
            StreamError: It is no stream, or a stream of another device.
            CudaError: A launch failed.
        """
        self.bind(workspace, **operands)(stream)

    def _address(self, workspace: object, operands: Mapping[str, Any]) -> int:
        """Where the workspace begins."""
        needed = self.workspace_size()
        if needed == 0:
            return 0
        device = next(iter(self.plans.values())).device
        pointer, got, problem = _memory_of(workspace, device.backend, device.index)
        if not problem and got < needed:
            problem = "it is too small"
        elif not problem and (pointer == 0 or pointer % _ALIGNMENT):
            problem = "it is misaligned" if pointer else "its address is null"
        elif not problem:
            items = {name: _ITEM_BYTES[spec.storage] for name, spec in self.operands().items()}
            spans = [_span(operands[name], size) for name, size in items.items()]
            if any(first < pointer + needed and pointer < last for first, last in spans):
                problem = "it overlaps an operand"
        if problem:
            raise WorkspaceError(needed, got, _ALIGNMENT, problem)
        return pointer


def _memory_of(workspace: Any, backend: Backend, index: int) -> tuple[int, int, str]:
    """The address and the bytes of a workspace, or what is wrong with it."""
    if workspace is None:
        return 0, 0, "none was given"
    if isinstance(workspace, tuple):
        if len(workspace) == 2 and all(type(each) is int and each >= 0 for each in workspace):
            return *workspace, ""
        return 0, 0, "(pointer, bytes) are two unsigned integers"
    expected = "expected a writable one-dimensional byte tensor or (pointer, bytes)"
    try:
        kind, place = (int(each) for each in workspace.__dlpack_device__())
        pointer, (count,) = _address_of(workspace), workspace.shape
        dtype = str(workspace.dtype).removeprefix("torch.")
    except (AttributeError, KeyError, TypeError, ValueError):
        return 0, 0, expected
    strides = workspace.stride() if hasattr(workspace, "stride") else workspace.strides
    if dtype not in ("uint8", "int8") or (count > 1 and strides not in (None, (1,))):
        return 0, 0, expected
    if kind not in _DEVICE_TYPES[backend] or (backend is Backend.CUDA and place != index):
        return 0, 0, "it is on another device"
    return pointer, int(count), ""


def _span(tensor: Any, itemsize: int) -> tuple[int, int]:
    """The first address of a tensor and the one behind it; (0, 0) if it does not say them."""
    if isinstance(tensor, tuple) and len(tensor) == 5:
        pointer, shape, strides = tensor[:3]
        steps = None if strides is None else [stride * itemsize for stride in strides]
    elif hasattr(tensor, "data_ptr"):
        pointer, shape = tensor.data_ptr(), tuple(tensor.shape)
        steps = [stride * itemsize for stride in tensor.stride()]
    else:
        names = "__cuda_array_interface__", "__array_interface__"
        told = next((getattr(tensor, name) for name in names if hasattr(tensor, name)), None)
        if told is None:
            return 0, 0
        pointer, shape, steps = told["data"][0], told["shape"], told.get("strides")
    if not math.prod(shape):
        return 0, 0
    if steps is None:
        return pointer, pointer + math.prod(shape) * itemsize
    reach = [(extent - 1) * step for extent, step in zip(shape, steps, strict=True)]
    first = pointer + sum(step for step in reach if step < 0)
    return first, pointer + sum(step for step in reach if step > 0) + itemsize


class Steps:
    """Makes a recipe, step by step."""

    def __init__(self, stream: StreamLike, pref: PlanPreference | None) -> None:
        """Begins with none."""
        self._stream, self._pref = stream, pref
        self._plans: dict[str, Plan] = {}
        self._steps: list[Step] = []
        self._constants: dict[str, Piece] = {}
        self._arena = Arena()

    def room(self, name: str, dtype: str, *shape: int) -> Piece:
        """Books a tensor in the workspace."""
        self._arena.book(name, math.prod(shape) * _ITEM_BYTES[dtype])
        return Piece(name, dtype, shape)

    def constant(self, value: int, dtype: str, count: int) -> Piece:
        """Books a vector that is filled with a number at each run; once for equal ones."""
        name = f"{count} times {value} of {dtype}"
        if name not in self._constants:
            made = self._constants[name] = self.room(name, dtype, count)
            desc = FillDescriptor(shape=(count,), output_dtype=dtype)
            self.add(name, desc, output=made, value=value)
        return self._constants[name]

    def add(self, name: str, desc: Descriptor, **operands: Piece | float | str) -> None:
        """Selects the plan of a step, and says what its operands are."""
        plan = Plan.select(self._stream, desc, self._pref)
        self._plans[name] = plan
        number = self._arena.add(plan)
        for value in operands.values():
            if isinstance(value, Piece):
                self._arena.use(value.name, number)
        self._steps.append(Step(plan, number, operands))

    def recipe(self) -> Recipe:
        """All of it."""
        return Recipe(MappingProxyType(self._plans), tuple(self._steps), self._arena)


def described(make: Any, names: Mapping[str, str] = MappingProxyType({}), **fields: Any) -> Any:
    """A descriptor of a step.

    Args:
        make: Its class.
        names: What the recipe calls fields that have another name there.
        **fields: Its fields.

    Raises:
        DescriptorError: A field has a value that is not allowed; it has the recipe's name. Or an
            extent is a Dim, which recipes do not take.
    """
    try:
        desc = make(**fields)
    except DescriptorError as error:
        name = names.get(error.field, error.field)
        raise DescriptorError(name, str(error).removeprefix(f"{error.field}: ")) from None
    if dims := desc.dims():
        raise DescriptorError(names.get("shape", "shape"), f"expected extents, got {dims[0]}")
    return desc
