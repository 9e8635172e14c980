"""A call of an operator through torch: from arguments to a descriptor, a plan and a run."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from planq import _core
from planq.descriptor import Descriptor
from planq.dim import Dim
from planq.dtypes import Determinism, OperandKind, Role
from planq.errors import ArgumentError, DescriptorError, NoKernelError, shown
from planq.plan import Plan
from planq.preference import PlanPreference
from planq.registry import OperatorInfo
from planq.scope import Scope
from planq.stream import host_stream
from planq.torch import _shapes
from planq.torch._schema import Argument, Field, Table, results_of

PLANS: Final = 1024
"""How many plans are kept, the least recently used of them dropped first."""
CALLS: Final = 4096
"""How many calls of an overload, each with its shapes and fields, find their plan at once."""
FEWEST_ROWS: Final = 16
"""The smallest maximum of a Dim."""
_MOST_DIMS: Final = 4
_ALIGNMENT: Final = _core.WORKSPACE_ALIGNMENT
_SCOPE: Final = re.compile(r"\s*(\w+)\s*(?:\((.*)\))?\s*")

Call = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A plan with what a call of certain shapes needs beside it.

    Attributes:
        workspace: Bytes for these very shapes.
        outputs: Of an allocating call: place among the operands, shapes, torch's dtype, whether it
            is a list.
        indefinite: Whether two runs may give different bits.
    """

    plan: Plan
    run: Callable[..., None]
    workspace: int
    outputs: tuple[tuple[int, tuple[tuple[int, ...], ...], torch.dtype, bool], ...]
    indefinite: bool


# --- From arguments to a descriptor


def scope_of(text: str) -> Scope:
    """Reads what ``str`` writes of a scope: ``token()``, ``group(128, axis=-1)``, ``block(2, 3)``.

    Raises:
        DescriptorError: The text is something else.
    """
    match = _SCOPE.fullmatch(text)
    make = getattr(Scope, match[1], None) if match and not match[1].startswith("_") else None
    if match and match[1] in ("tensor", "channel", "token", "group", "block", "pair") and make:
        try:
            numbers = [int(part.rpartition("=")[2]) for part in (match[2] or "").split(",") if part]
            made: Scope = make(*numbers)
        except (TypeError, ValueError):
            pass
        else:
            return made
    raise DescriptorError("scope", f"expected a scope such as 'token()', got {shown(text)}")


def _shapes_of(text: str) -> tuple[tuple[int, ...], ...]:
    try:
        return tuple(tuple(shape) for shape in json.loads(text))
    except (ValueError, TypeError):
        expected = "a JSON list of shapes such as '[[2, 3]]'"
        raise DescriptorError("shapes", f"expected {expected}, got {shown(text)}") from None


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "scope": scope_of,
    "shape": tuple,
    "shape_list": _shapes_of,
}


def _told(field: Field, operand: Any) -> Any:
    """What an operand tells of a field."""
    if field.part == "dtype":
        return str(operand.dtype).removeprefix("torch.")
    if field.kind == "shape_list":
        return tuple(tuple(member.shape) for member in operand)
    return tuple(operand.shape)


class Overload:
    """An overload of an operator: what torch calls."""

    def __init__(
        self, info: OperatorInfo, table: Table, arguments: tuple[Argument, ...], *, allocating: bool
    ) -> None:
        """Prepares what does not depend on a call."""
        self.info, self.table, self.arguments = info, table, arguments
        self.allocating = allocating
        self._defaults = tuple(argument.default for argument in arguments)
        places = {(item.role, item.of): i for i, item in enumerate(arguments)}
        self._operands = tuple(places.get(("operand", each.name)) for each in table.operands)
        self._memories = tuple(places.get(("memory", each.name)) for each in table.operands)
        self._fields = {each.name: places.get(("field", each.name)) for each in table.fields}
        self._workspace = places.get(("workspace", ""))
        self._sku = places["sku", ""]
        self._tensors = [
            i
            for i, item in enumerate(arguments)
            if item.role in ("operand", "memory") and item.text.startswith("Tensor")
        ]
        self._lists = frozenset(i for i in self._tensors if "[]" in arguments[i].text)
        self._written = [i for i, item in enumerate(arguments) if item.mutable]
        self._shapes = tuple(field.name for field in table.fields if field.kind == "shape")
        self.single = results_of(table) == "Tensor"
        self._key = self._make_key()
        self._pick = self._make_pick()
        self.known: dict[Any, Entry] = {}
        _overloads.append(self)

    def _make_key(self) -> Callable[[Call], Any]:
        """What tells calls with different descriptors apart, and with different shapes."""
        told = [self._operands[self.table.operand(f.source).place] for f in self._told()]
        fields = [place for place in self._fields.values() if place is not None]
        extents = [i for i in fields if "[]" in self.arguments[i].text]
        values = [i for i in fields if i not in extents]

        def key(call: Call) -> Any:
            facts = [_facts(call[i]) for i in told if i is not None]
            given = [call[i] and tuple(call[i]) for i in extents]
            return self._device(call), call[self._sku], *facts, *given, *[call[i] for i in values]

        return key

    def _told(self) -> list[Field]:
        """The fields that operands tell."""
        return [field for field in self.table.fields if field.source]

    def _make_pick(self) -> Callable[[Call], Call]:
        """The operands of a call in the order of the args; results are yet to be made."""
        pairs = list(zip(self._operands, self._memories, strict=True))

        def pick(call: Call) -> Call:
            return tuple(_operand(call, value, memory) for value, memory in pairs)

        return pick

    def tensors(self, call: Call) -> Iterator[torch.Tensor]:
        """All operands that are tensors, and the members of lists."""
        for place in self._tensors:
            given = call[place]
            if given is not None:
                yield from given if place in self._lists else (given,)

    def _device(self, call: Call) -> int:
        """Of the first operand that is a tensor; -1 is the host."""
        return next((tensor.get_device() for tensor in self.tensors(call)), -1)

    def filled(self, args: Call) -> Call:
        """With the defaults that torch leaves out."""
        return args + self._defaults[len(args) :]

    def values(self, call: Call) -> dict[str, Any]:
        """The fields that a call gives, by arguments or by operands.

        Raises:
            DescriptorError: A field has no value, and no default.
        """
        found: dict[str, Any] = {}
        for field in self.table.fields:
            place = self._fields[field.name]
            given = None if place is None else call[place]
            if given is not None:
                reader = _READERS.get(field.kind)
                found[field.name] = reader(given) if reader else given
                continue
            operand = self._source(call, field)
            if operand is not None:
                found[field.name] = _told(field, operand)
            elif field.required:
                raise DescriptorError(field.name, f"expected one, there is no {field.source}")
        return found

    def _source(self, call: Call, field: Field) -> Any:
        """The operand that tells a field."""
        if not field.source:
            return None
        place = self._operands[self.table.operand(field.source).place]
        return None if place is None else call[place]

    def descriptor(self, call: Call) -> Descriptor:
        """The descriptor of a call with known extents.

        Raises:
            DescriptorError: It has no meaning, or is not told: of an operand that is packed, the
                shape has to be given.
        """
        desc = self.info.descriptor(**self.values(call))
        specs = desc.operands()
        for field in self.table.fields:
            place = self._fields[field.name]
            if field.kind != "shape" or not field.source or place is None:
                continue
            operand = self._source(call, field)
            packed = field.source in specs and specs[field.source].storage != (
                specs[field.source].dtype
            )
            if call[place] is None and operand is not None and packed:
                stored = tuple(operand.shape)
                expected = f"the logical shape: {field.source} is packed into {stored}"
                raise DescriptorError(field.name, f"expected {expected}; pass {field.name}=[...]")
        return desc

    # --- A run

    def run(self, *args: Any) -> Any:
        """What torch calls with tensors of the host and of GPUs."""
        call = args + self._defaults[len(args) :]
        entry = self.known.get(self._key(call)) or self._find(call)
        if entry.indefinite:
            _refuse_indefinite(entry.plan)
        operands = self._pick(call)
        made: list[Any] = []
        if self.allocating:
            operands = self._with_outputs(entry, operands, made, self._place(call))
        given = None if self._workspace is None else call[self._workspace]
        device = self._device(call)
        stream = _stream(device)
        if given is None and entry.workspace:
            memory = _borrow(entry.workspace, self._place(call))
            given = memory.data_ptr() + -memory.data_ptr() % _ALIGNMENT, entry.workspace
        entry.run(stream, given, operands)
        if self.allocating:
            return made[0] if self.single else made
        torch._C._increment_version(self._marked(call))
        return None

    def _place(self, call: Call) -> torch.device:
        return next((tensor.device for tensor in self.tensors(call)), torch.device("cpu"))

    def _marked(self, call: Call) -> list[torch.Tensor]:
        """The tensors that were written, for autograd to know."""
        marked: list[torch.Tensor] = []
        for place in self._written:
            given = call[place]
            if given is not None:
                marked += given if place in self._lists else (given,)
        return marked

    def _with_outputs(
        self, entry: Entry, operands: Call, made: list[Any], place: torch.device
    ) -> Call:
        filled = list(operands)
        for index, shapes, dtype, is_list in entry.outputs:
            if filled[index] is not None:
                name = self.table.operands[index].name
                raise ArgumentError(name, "None: it is a result", "a tensor")
            tensors = [torch.empty(shape, dtype=dtype, device=place) for shape in shapes]
            filled[index] = tensors if is_list else tensors[0]
            made += tensors
        return tuple(filled)

    def _find(self, call: Call) -> Entry:
        """The entry of a call that was not seen before, or not lately."""
        device = self._device(call)
        desc = self.descriptor(call)
        plan, extents = _plan_for(device, desc, self._shapes, call[self._sku])
        outputs = []
        for operand in self.table.operands:
            spec = desc.operands().get(operand.name)
            if spec is None or spec.role is not Role.OUTPUT:
                continue
            is_list = spec.kind is OperandKind.LIST
            shapes = spec.shapes if is_list else (spec.extents,)
            outputs.append((operand.place, shapes, getattr(torch, spec.storage), is_list))
        entry = Entry(
            plan,
            plan._run_tuple,
            plan.workspace_size(**extents),
            tuple(outputs) if self.allocating else (),
            plan.precision_guarantee().determinism < Determinism.RUN_TO_RUN,
        )
        if len(self.known) >= CALLS:
            self.known.clear()
        self.known[self._key(call)] = entry
        return entry

    # --- Without memory

    def fake(self, *args: Any) -> Any:
        """What torch calls to learn shapes, which may be symbols."""
        call = self.filled(args)
        self._refuse_gradients(call)
        if not self.allocating:
            return None
        place = self._place(call)
        made = [
            torch.empty(shape, dtype=getattr(torch, spec.storage), device=place)
            for spec, shape in _shapes.results(self.info.name, self.values(call))
        ]
        return made[0] if self.single else made

    def _refuse_gradients(self, call: Call) -> None:
        if not torch.is_grad_enabled():
            return
        for place in self._tensors:
            given = call[place]
            members = given if place in self._lists else (given,)
            if given is not None and any(member.requires_grad for member in members):
                raise gradient_error(self.arguments[place].of)


def gradient_error(name: str) -> ArgumentError:
    """Of an operand whose gradient would be lost."""
    return ArgumentError(
        name,
        "a tensor without a gradient",
        "one that requires it",
        "planq.torch.quantize_dequantize and torch.ops.planq.fake_quantize have gradients; call "
        "others under torch.no_grad(), or pass t.detach()",
    )


def _facts(operand: Any) -> Any:
    """The shape and the dtype of a tensor, or of the members of a list."""
    if operand is None:
        return None
    if isinstance(operand, torch.Tensor):
        return operand.shape, operand.dtype
    return tuple((member.shape, member.dtype) for member in operand)


def _operand(call: Call, value: int | None, memory: int | None) -> Any:
    in_memory = None if memory is None else call[memory]
    if in_memory is not None:
        return in_memory
    return None if value is None else call[value]


def _borrow(count: int, place: torch.device) -> torch.Tensor:
    """Workspace of torch's allocator, with room to align it."""
    return torch.empty(count + _ALIGNMENT - 1, dtype=torch.uint8, device=place)


def _refuse_indefinite(plan: Plan) -> None:
    """Where deterministic algorithms are asked for, a kernel without such a promise is refused."""
    if torch.are_deterministic_algorithms_enabled():
        stream = _stream(-1 if plan.device.backend == "host" else plan.device.index)
        Plan.select(stream, plan.descriptor, PlanPreference(sku=plan.preference.sku))


_host_streams: dict[int, _core.HostStream] = {}


def _stream(device: int) -> Any:
    """The current stream of a device, or as many threads as torch uses."""
    if device >= 0:
        return torch._C._cuda_getCurrentRawStream(device), device
    threads = torch.get_num_threads()
    found = _host_streams.get(threads)
    return found or _host_streams.setdefault(threads, host_stream(threads))


# --- Plans


_overloads: Final[list[Overload]] = []


def forget() -> None:
    """Drops every plan that is kept."""
    plan_of.cache_clear()
    for overload in _overloads:
        overload.known.clear()


def _plan_for(
    device: int, desc: Descriptor, shapes: tuple[str, ...], sku: str | None
) -> tuple[Plan, dict[str, int]]:
    """A plan for a descriptor, for other numbers of rows too where the operator admits it.

    Returns:
        The plan, and its dims with their extents.
    """
    for extents, flexible in _flexible(desc, shapes):
        plan = _plan_or_none(device, flexible, sku)
        if plan is not None:
            return plan, extents
    return plan_of(device, desc, sku), {}


def _flexible(
    desc: Descriptor, names: tuple[str, ...]
) -> Iterator[tuple[dict[str, int], Descriptor]]:
    """The descriptor with a Dim for all leading extents, then for the first: those that it admits.

    A further shape whose first extent is the rows' has the Dim there as well.
    """
    shapes = {name: getattr(desc, name) for name in names}
    first, *others = names or ("",)
    if not first:
        return
    axes = list(range(len(shapes[first]) - 1))[:_MOST_DIMS]
    change: Any = replace  # the fields are not the base class's
    for chosen in (axes, axes[:1]) if len(axes) > 1 else (axes,):
        if not chosen:
            return
        dims = {axis: Dim(f"rows{axis}", _maximum(shapes[first][axis])) for axis in chosen}
        changed = {first: _with(shapes[first], dims)}
        for name in others:
            same = len(shapes[name]) > 1 and shapes[name][0] == shapes[first][0]
            changed[name] = _with(shapes[name], {0: dims[0]} if same else {})
        extents = {dim.name: shapes[first][axis] for axis, dim in dims.items()}
        try:
            yield extents, change(desc, **changed)
        except DescriptorError:
            continue


def _with(shape: tuple[int, ...], dims: dict[int, Dim]) -> tuple[Any, ...]:
    return tuple(dims.get(axis, extent) for axis, extent in enumerate(shape))


def _maximum(rows: int) -> int:
    """The next power of two."""
    return max(FEWEST_ROWS, 1 << max(rows - 1, 0).bit_length())


def _plan_or_none(device: int, desc: Descriptor, sku: str | None) -> Plan | None:
    try:
        return plan_of(device, desc, sku)
    except NoKernelError:
        return None


@functools.lru_cache(maxsize=PLANS)
def plan_of(device: int, desc: Descriptor, sku: str | None) -> Plan:
    """A plan by planq's own preference; where there is none, of a kernel that promises less."""
    stream = _stream(device)
    try:
        return Plan.select(stream, desc, PlanPreference(sku=sku))
    except NoKernelError:
        any_promise = Determinism.NOT_GUARANTEED
        return Plan.select(stream, desc, PlanPreference(determinism=any_promise, sku=sku))
