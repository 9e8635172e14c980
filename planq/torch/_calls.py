"""A call of an operator through torch: from arguments to a descriptor, a plan and a run."""

from __future__ import annotations

import contextlib
import functools
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import torch
from torch.autograd import forward_ad

from planq import _core, _policy
from planq.descriptor import Descriptor
from planq.dim import Dim
from planq.dtypes import Backend, Determinism, OperandKind, Role
from planq.errors import ArgumentError, DescriptorError, NoKernelError, shown
from planq.plan import Plan
from planq.preference import PlanPreference
from planq.selection import explain_exactly
from planq.stream import HOST
from planq.torch._results import results_of
from planq.torch._schema import Argument, Field, Table, return_of

PLANS: Final = 1024
"""How many plans are kept, the least recently used of them dropped first."""
CALLS: Final = 4096
"""How many combinations of shapes and fields of an overload keep a direct reference to a plan."""
FEWEST_ROWS: Final = 16
"""The smallest maximum of a Dim."""
_MOST_DIMS: Final = 4
_ALIGNMENT: Final = _core.WORKSPACE_ALIGNMENT
_NATIVE: Final[Any] = torch._C

Call = tuple[Any, ...]


# --- From arguments to a descriptor


def _shapes_of(text: str) -> tuple[tuple[int, ...], ...]:
    try:
        return tuple(tuple(shape) for shape in json.loads(text))
    except (ValueError, TypeError):
        expected = "a JSON list of shapes such as '[[2, 3]]'"
        raise DescriptorError("shapes", f"expected {expected}, got {shown(text)}") from None


def _names_of(text: str) -> Any:
    """A JSON list; what is none is refused by the field's own reader."""
    try:
        return json.loads(text)
    except (ValueError, TypeError):
        return text


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "shape": tuple,
    "shape_list": _shapes_of,
    "integer_list": tuple,
    "enumeration_list": _names_of,
}


def _told(field: Field, operand: Any) -> Any:
    """The value of a field that follows from an operand."""
    if field.part == "dtype":
        return str(operand.dtype).removeprefix("torch.")
    if field.kind == "shape_list":
        return tuple(tuple(member.shape) for member in operand)
    return tuple(operand.shape)


class Overload:
    """An overload of an operator: ``run`` and ``fake`` are what torch calls."""

    def __init__(
        self,
        descriptor: type[Descriptor],
        table: Table,
        arguments: tuple[Argument, ...],
        *,
        allocating: bool,
    ) -> None:
        """Prepares what does not depend on a call."""
        self._class, self.table, self.arguments = descriptor, table, arguments
        self.allocating = allocating
        self.single = return_of(table) == "Tensor"
        self._defaults = tuple(argument.default for argument in arguments)
        places = {(item.role, item.of): i for i, item in enumerate(arguments)}
        self._operands = {
            each.name: places.get(("operand", each.name), -1) for each in table.operands
        }
        self._fields = {each.name: places.get(("field", each.name), -1) for each in table.fields}
        self._preferences = {
            item.of: i for i, item in enumerate(arguments) if item.role == "preference"
        }
        told = [self._operands[field.source] for field in table.fields if field.source]
        self._told = [place for place in dict.fromkeys(told) if place >= 0]
        # The first of these that is given decides the device.
        self._tensors = self._told + [
            i
            for i, item in enumerate(arguments)
            if item.role in ("operand", "memory") and item.text.startswith("Tensor")
            if i not in self._told
        ]
        self._lists = frozenset(i for i in self._tensors if "[]" in arguments[i].text)
        self._shapes = tuple(field.name for field in table.fields if field.kind == "shape")
        self.run = _core.torch_call(self._layout(places))
        _overloads.append(self)

    def _layout(self, places: dict[tuple[str, str], int]) -> dict[str, Any]:
        """Describes the arguments to native code, by position; -1 means that there is none."""
        fields = [place for place in self._fields.values() if place >= 0]
        values = [*self._preferences.values(), *fields]
        return {
            "defaults": self._defaults,
            "operands": [
                (place, places.get(("memory", name), -1)) for name, place in self._operands.items()
            ],
            "told": self._told,
            "tensors": self._tensors,
            "values": values,
            "written": [i for i, item in enumerate(self.arguments) if item.mutable],
            "workspace": places.get(("workspace", ""), -1),
            "allocates": self.allocating,
            "single": self.allocating and self.single,
            "most": CALLS,
            "find": self.find,
            "policies": _policy.EVER,
            "policy": _policy.in_force,
            "threads": torch.get_num_threads,
            "stream": _current_stream,
            "mark": torch._C._increment_version,
            "forward": vars(forward_ad),
            "level": "_current_level",
            "refuse": self._refuse_tangents,
        }

    def tensors(self, call: Call) -> Iterator[torch.Tensor]:
        """All operands that are tensors, and the members of lists."""
        for place in self._tensors:
            given = call[place]
            if given is not None:
                yield from given if place in self._lists else (given,)

    def _device(self, call: Call) -> int:
        """The device index of the first tensor operand; -1 for the host."""
        return next((tensor.get_device() for tensor in self.tensors(call)), -1)

    def values(self, call: Call) -> dict[str, Any]:
        """The fields of a call, from its arguments or from its operands.

        Raises:
            DescriptorError: A field has neither a value nor a default.
        """
        found: dict[str, Any] = {}
        for field in self.table.fields:
            place = self._fields[field.name]
            given = None if place < 0 else call[place]
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
        """The operand that a field follows from; None without one."""
        if not field.source:
            return None
        place = self._operands[field.source]
        return None if place < 0 else call[place]

    def descriptor(self, call: Call) -> Descriptor:
        """The descriptor of a call with known extents.

        Raises:
            DescriptorError: A field has a value that is not allowed, or the logical shape of a
                packed operand is missing.
        """
        desc = self._class(**self.values(call))
        specs = desc.operands()
        for field in self.table.fields:
            place = self._fields[field.name]
            if field.kind != "shape" or not field.source or place < 0:
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

    def _place(self, call: Call) -> torch.device:
        return next((tensor.device for tensor in self.tensors(call)), torch.device("cpu"))

    def find(self, call: Call, policy: PlanPreference | None) -> tuple[Any, ...]:
        """A plan for a call, functions that allocate its workspace and results, and a late check.

        The plan meets the policy, which the call found in force.

        The check refuses kernels that are not deterministic, if torch asks for that at the call.
        """
        place, desc = self._place(call), self.descriptor(call)
        device = -1 if place.type == "cpu" else place.index
        plan, extents = self._plan(device, desc, call, policy)
        needed = plan.workspace_size(**extents)
        workspace = _maker((needed + _ALIGNMENT - 1,), torch.uint8, place) if needed else None
        definite = plan.precision_guarantee().determinism >= Determinism.RUN_TO_RUN
        refuse = None if definite else functools.partial(_refuse_indefinite, plan)
        return plan, workspace, tuple(self._makers(desc, place)), refuse

    def _plan(
        self, device: int, desc: Descriptor, call: Call, policy: PlanPreference | None
    ) -> tuple[Plan, dict[str, int]]:
        """A plan that also fits other numbers of rows, if the operator allows it.

        Returns:
            The plan, and its dims with their extents.
        """
        asked = {name: call[place] for name, place in self._preferences.items()}
        preference = _policy.under(PlanPreference(**asked), policy)
        told = {
            field.source for field in self.table.fields if self._source(call, field) is not None
        }
        for extents, flexible in _flexible(desc, self._shapes):
            if not self._is_told(flexible, told):
                continue
            with contextlib.suppress(NoKernelError):
                return plan_of(device, flexible, preference), extents
        return plan_of(device, desc, preference), {}

    def _is_told(self, desc: Descriptor, told: set[str]) -> bool:
        """Whether every dim is an axis of an operand that all calls with the same key have."""
        known = {
            extent.name
            for operand in self.table.operands
            if operand.always or operand.name in told
            for extent in desc.operands()[operand.name].shape
            if isinstance(extent, Dim)
        }
        return all(dim.name in known for dim in desc.dims())

    def _makers(self, desc: Descriptor, device: torch.device) -> Iterator[tuple[int, Any]]:
        """A function that allocates each result, with the operand's position."""
        if not self.allocating:
            return
        for name, spec in desc.operands().items():
            if spec.role is not Role.OUTPUT:
                continue
            dtype, place = getattr(torch, spec.storage), self.table.operand(name).place
            if spec.kind is OperandKind.LIST:
                members = [_maker(shape, dtype, device) for shape in spec.shapes]
                yield place, functools.partial(_made, members)
            else:
                yield place, _maker(spec.extents, dtype, device)

    def whole(self, args: Call) -> Call:
        """All arguments: torch leaves out trailing ones that have their default."""
        return args + self._defaults[len(args) :]

    # --- Without memory

    def fake(self, *args: Any) -> Any:
        """The fake implementation: torch calls it to learn result shapes, which may be symbolic."""
        call = self.whole(args)
        self._refuse_gradients(call)
        self._refuse_real_operands(call)
        if not self.allocating:
            return None
        place = self._place(call)
        made = [
            torch.empty(shape, dtype=getattr(torch, spec.storage), device=place)
            for spec, shape in results_of(self._class, self.values(call))
        ]
        return made[0] if self.single else made

    def _refuse_gradients(self, call: Call) -> None:
        self._refuse_where(call, has_derivative)

    def _refuse_tangents(self, call: Call) -> None:
        """Refuses forward-mode tangents; native code calls it while forward mode is active."""
        self._refuse_where(call, is_dual)

    def _refuse_where(self, call: Call, differentiated: Callable[[torch.Tensor], bool]) -> None:
        for place in self._tensors:
            given = call[place]
            members = given if place in self._lists else (given,)
            if given is not None and any(map(differentiated, members)):
                raise gradient_error(self.arguments[place].of)

    def _refuse_real_operands(self, call: Call) -> None:
        """Refuses a mix of meta and real operands: nothing would be written to the real ones.

        Raises:
            ArgumentError: Some operands are on meta, and others are not.
        """
        given = [
            (item, member)
            for place, item in enumerate(self.arguments)
            if item.text.startswith("Tensor") and call[place] is not None
            for member in (call[place] if place in self._lists else (call[place],))
        ]
        devices = {member.device.type for _, member in given}
        if "meta" not in devices or len(devices) == 1:
            return
        others = " and ".join(sorted(devices - {"meta"}))
        name = next(item.name for item, member in given if member.device.type == "meta")
        raise ArgumentError(name, f"memory on {others}, where other operands are", "one on meta")


def has_derivative(tensor: torch.Tensor) -> bool:
    """Whether torch now records a derivative with respect to the tensor, backward or forward."""
    if tensor.requires_grad and torch.is_grad_enabled():
        return True
    return is_dual(tensor)


def is_dual(tensor: torch.Tensor) -> bool:
    """Whether the tensor has a forward-mode tangent now."""
    if forward_ad._current_level < 0 or not _NATIVE._is_fwd_grad_enabled():
        return False
    unpack: Any = forward_ad.unpack_dual  # it has no type annotations
    return unpack(tensor).tangent is not None


def gradient_error(name: str) -> ArgumentError:
    """The error for an operand whose gradient would be lost."""
    return ArgumentError(
        name,
        "a tensor without a gradient",
        "one that requires it",
        "planq.torch.quantize_dequantize and torch.ops.planq.fake_quantize by planq's own "
        "convention have gradients; call others under torch.no_grad(), or pass t.detach()",
    )


def _maker(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Any:
    return functools.partial(torch.empty, shape, dtype=dtype, device=device)


def _made(makers: list[Callable[[], torch.Tensor]]) -> list[torch.Tensor]:
    return [make() for make in makers]


def _refuse_indefinite(plan: Plan) -> None:
    """Refuses a kernel that is not deterministic if torch is told to use deterministic ones."""
    if not torch.are_deterministic_algorithms_enabled():
        return
    if torch.is_deterministic_algorithms_warn_only_enabled():
        warnings.warn(f"{plan.sku} may give other bits in another run", stacklevel=2)
        return
    stream = _stream(-1 if plan.device.backend is Backend.HOST else plan.device.index)
    strict = replace(plan.preference, determinism=Determinism.RUN_TO_RUN)
    raise NoKernelError(
        explain_exactly(plan.descriptor, strict, stream),
        f"torch.use_deterministic_algorithms(True) refuses {plan.sku}",
    )


def _current_stream(device: int) -> int:
    """The handle of torch's current stream of a GPU."""
    handle: int = torch._C._cuda_getCurrentRawStream(device)
    return handle


def _stream(device: int) -> Any:
    """A stream to select a plan with; only its device matters."""
    return HOST if device < 0 else (_current_stream(device), device)


# --- Plans


_overloads: Final[list[Overload]] = []


def forget() -> None:
    """Drops all kept plans."""
    plan_of.cache_clear()
    for overload in _overloads:
        overload.run.forget()


def _flexible(
    desc: Descriptor, names: tuple[str, ...]
) -> Iterator[tuple[dict[str, int], Descriptor]]:
    """Variants of a descriptor with Dims: for all leading extents, then for the first alone.

    Variants that the descriptor refuses are left out. A further shape field whose first extent
    equals that of the first shape gets the same Dim there.
    """
    shapes = {name: getattr(desc, name) for name in names}
    first, *others = names or ("",)
    if not first:
        return
    axes = list(range(len(shapes[first]) - 1))[:_MOST_DIMS]
    change: Any = replace  # untyped: the base class Descriptor has none of the fields
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
    """The next power of two, at least FEWEST_ROWS."""
    return max(FEWEST_ROWS, 1 << max(rows - 1, 0).bit_length())


@functools.lru_cache(maxsize=PLANS)
def plan_of(device: int, desc: Descriptor, preference: PlanPreference) -> Plan:
    """The plan for a device under a preference, which has the policy of the call in it."""
    return Plan._select_exactly(_stream(device), desc, preference)
