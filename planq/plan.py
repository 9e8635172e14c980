"""Plans: an operation, the kernel that runs it, and what the kernel promises."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar, final

from planq import _core, _policy, _verbose
from planq._classes import classes_of
from planq.arguments import StreamLike
from planq.descriptor import Descriptor, OperandSpec
from planq.dim import Dim
from planq.dtypes import Role
from planq.errors import ArgumentError, DescriptorError, NoKernelError, PlanMismatchError
from planq.guarantee import PrecisionGuarantee, guarantee_of_plan
from planq.preference import PlanPreference
from planq.selection import (
    Body,
    DeviceFacts,
    Selection,
    architectures,
    checked_preference,
    explain_exactly,
    native_device,
)

_Made = TypeVar("_Made")


@final
@dataclass(frozen=True, slots=True)
class Status:
    """The answer of :meth:`Plan.can_implement`: truthy, or falsy with the reason.

    Attributes:
        reason: The message that ``run`` would raise; empty when truthy.
        operand: Which operand is refused; None when truthy.
    """

    reason: str = ""
    operand: str | None = None

    def __bool__(self) -> bool:
        return not self.reason


class Plan(_core.PlanBase):
    """A selected kernel for one descriptor on one device. Immutable, and safe to share by threads.

    :meth:`select` makes it. ``run(stream, workspace, args)`` validates the operands and enqueues
    the operation. It allocates nothing, waits for nothing and reads nothing back, so it can be
    captured in a CUDA graph. The stream is any stream of the plan's device. On a host stream, the
    work is done when ``run`` returns. The workspace is None when :meth:`workspace_size` is 0, else
    a byte tensor or ``(pointer, bytes)`` on the plan's device, aligned to
    ``planq.WORKSPACE_ALIGNMENT``. Its content is undefined before and after. The errors below are
    those of ``run``.

    Raises:
        ArgumentError: An operand is not what the descriptor says; nothing was launched.
        WorkspaceError: The workspace is missing, too small, misaligned or on another device.
        StreamError: It is no stream, or a stream of another device.
        CudaError: The launch failed.
    """

    __slots__ = ("_descriptor", "_preference", "_promise")

    # INOUT operands that are never read: `empty_outputs` may allocate them too.
    _written_over: ClassVar[frozenset[str]] = frozenset()

    _promise: PrecisionGuarantee
    _descriptor: Descriptor
    _preference: PlanPreference

    def __init__(self, stream: StreamLike, desc: Descriptor, pref: PlanPreference) -> None:
        self._make(stream, desc, checked_preference(desc, pref))

    def _make(self, stream: StreamLike, desc: Descriptor, pref: PlanPreference) -> None:
        """Selects under this preference alone, whatever policy is in force."""
        if hasattr(self, "_descriptor"):
            raise TypeError("a plan is made once")
        classes = classes_of(desc.operator)
        if type(self) is not classes.plan:
            raise DescriptorError(
                "op", f"{type(self).__name__} cannot plan {desc.operator}; use Plan.select"
            )
        try:
            super().__init__(desc._native, pref._native, stream, classes.args)
        except _core.NoKernel:
            raise _no_kernel(desc, pref, stream) from None
        object.__setattr__(self, "_descriptor", desc)
        object.__setattr__(self, "_preference", pref)
        object.__setattr__(self, "_promise", guarantee_of_plan(self))

    @classmethod
    def select(
        cls, stream: StreamLike, desc: Descriptor, pref: PlanPreference | None = None
    ) -> Self:
        """Chooses and prepares the kernel for a descriptor.

        The choice depends only on the descriptor, the preference, the stream's device and this
        build. Costly work happens here: kernel attributes, module loading, launch geometry.

        Args:
            stream: ``planq.HOST``, a host stream, or any CUDA stream object; only its device
                matters.
            desc: What to compute.
            pref: Requirements on the kernel; None for the defaults of :class:`PlanPreference`. The
                policy that is in force (:func:`planq.policy`) counts besides.

        Returns:
            A plan of the operator's own class.

        Raises:
            NoKernelError: No kernel qualifies; the message has the reason for each.
            StreamError: ``stream`` is no stream.
            DescriptorError: The descriptor is of another operator than this class; or the
                preference and the policy name two backends.
        """
        return cls._select_exactly(stream, desc, checked_preference(desc, pref))

    @classmethod
    def _select_exactly(cls, stream: StreamLike, desc: Descriptor, pref: PlanPreference) -> Self:
        """As :meth:`select`, under this preference alone, whatever policy is in force."""
        found = classes_of(desc.operator).plan
        chosen = found if issubclass(found, cls) else cls
        plan = chosen.__new__(chosen)
        plan._make(stream, desc, pref)
        _verbose.log_select(plan)
        return plan

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("plans are immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("plans are immutable")

    def __repr__(self) -> str:
        try:
            return f"<{type(self).__name__} {self.sku} on {self.device.name}>"
        except TypeError:
            return f"<{type(self).__name__} that was never made>"

    @property
    def descriptor(self) -> Descriptor:
        """What the plan computes."""
        return self._descriptor

    @property
    def preference(self) -> PlanPreference:
        """The requirements that the kernel was selected under."""
        return self._preference

    @property
    def device(self) -> DeviceFacts:
        """The facts of the device that the plan is for."""
        return DeviceFacts._of(self._device)

    def can_implement(self, args: object) -> Status:
        """Whether ``run`` would take these operands: the same checks, answered instead of raised.

        Returns:
            A truthy status, or a falsy one with ``.reason`` and ``.operand``.
        """
        error: ArgumentError | None = self._check(args)
        return Status() if error is None else Status(str(error), error.operand)

    def workspace_size(self, **extents: int) -> int:
        """Bytes of workspace that ``run`` needs; 0 means that it takes None.

        Args:
            **extents: The extents of the plan's dims, by name, as in ``workspace_size(m=7)``; the
                result is for exactly these. Without them, the result suffices for all extents.

        Raises:
            DescriptorError: An extent is negative or above the maximum of its :class:`planq.Dim`.
            TypeError: Some dims of the plan are missing, or a name is none of theirs.
        """
        return self._workspace_size(extents)

    def bodies(self, **extents: int) -> tuple[Body, ...]:
        """The kernels (bodies) of the plan's SKU, the preferred ones first.

        They give the same bits. The extents of a call, or the addresses of operands, decide which
        one runs. A bound launch has its name as ``launch.body``.

        Args:
            **extents: As :meth:`workspace_size` takes them; without them the largest.

        Raises:
            DescriptorError: An extent is negative or above the maximum of its :class:`planq.Dim`.
            TypeError: Some dims of the plan are missing, or a name is none of theirs.
        """
        return tuple(Body(*values) for values in self._bodies(extents))

    def empty_outputs(self, library: Any, *, device: Any = None, **extents: int) -> dict[str, Any]:
        """Outputs of the right shapes and types, allocated by an array library, not filled.

        They include optional outputs, and the ``output`` of ``fill`` and ``arange``: its role is
        INOUT, but it is never read. Other operands that are updated in place are not included,
        since their content before ``run`` matters.

        Args:
            library: ``torch`` or ``numpy``, or a module with their ``empty`` and dtype names.
            device: The library's device; None for libraries without devices, such as NumPy.
            **extents: Each dim of the plan by its name, as in ``empty_outputs(torch, m=7)``.

        Returns:
            Tensors by the names of the args: ``QuantizeArgs(input=x, scale=s, **outputs)``.

        Raises:
            DescriptorError: An extent is negative or above the maximum of its :class:`planq.Dim`.
            TypeError: Some dims of the plan are missing, or a name is none of theirs; or the
                library lacks a dtype that an output needs, as NumPy lacks bfloat16.
        """
        if extents:
            self._workspace_size(extents)  # raises for wrong extents
        places = {} if device is None else {"device": device}
        outputs = {}
        for name, spec in self._descriptor.operands().items():
            if spec.role is Role.OUTPUT or name in self._written_over:
                shape = _known_shape(name, spec, extents)
                outputs[name] = library.empty(shape, dtype=_dtype_of(library, name, spec), **places)
        return outputs

    def empty_workspace(self, library: Any, *, device: Any = None, **extents: int) -> Any:
        """Workspace for ``run``, allocated by an array library, not filled.

        Args:
            library: As :meth:`empty_outputs` takes it.
            device: Likewise.
            **extents: Likewise; without them the workspace suffices for all extents.

        Returns:
            ``workspace_size(**extents)`` bytes at an address that is a multiple of
            ``planq.WORKSPACE_ALIGNMENT``; None if the plan needs none.

        Raises:
            DescriptorError: An extent is negative or above the maximum of its :class:`planq.Dim`.
            TypeError: Some dims of the plan are missing, or a name is none of theirs.
        """
        return _empty_bytes(library, self.workspace_size(**extents), device)

    def precision_guarantee(self) -> PrecisionGuarantee:
        """What the chosen kernel promises about its bits."""
        return self._promise

    def bind(self, workspace: object, args: object) -> _core.Launch:
        """Validates operands and workspace once, and keeps them; ``launch(stream)`` then runs.

        ``launch.body`` names the kernel that runs, one of :meth:`bodies`.

        Raises:
            ArgumentError: An operand is not what the descriptor says.
            WorkspaceError: The workspace is missing, too small, misaligned or on another device.
        """
        launch: _core.Launch = self._bind(workspace, args)
        return launch

    def explain(self) -> Selection:
        """Every kernel of the operator with the reason why it was or was not chosen."""
        return explain_exactly(self._descriptor, self._preference, self.device)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values: what :meth:`from_json` compares."""
        values: dict[str, Any] = json.loads(self.to_json())
        return values

    def to_json(self) -> str:
        """The plan as JSON text, for an audit or another process."""
        return self._json()

    @classmethod
    def from_json(cls, stream: StreamLike, text: str) -> Self:
        """Selects again what :meth:`to_json` recorded.

        Raises:
            PlanMismatchError: The text is no plan, or this build and device select or promise
                something else; the message lists every difference. Or the policy that is in force
                refuses the recorded kernel.
            DescriptorError: This build refuses the recorded descriptor; or the recorded preference
                and the policy name two backends.
        """
        desc, pref = _stored(text)
        plan = _selected(lambda: cls._select_exactly(stream, desc, pref))
        _compare(text, plan.to_json())
        strict = _policy.applied(pref)
        if strict == pref:
            return plan
        held = _selected(lambda: cls._select_exactly(stream, desc, strict))
        _require_same_sku(plan.sku, held.sku)
        return held


def foresee(
    desc: Descriptor, pref: PlanPreference | None, device: DeviceFacts | StreamLike | str
) -> dict[str, Any]:
    """What :meth:`Plan.to_dict` returns for the plan of a device, which need not be present.

    Args:
        desc: What to compute.
        pref: Requirements on the kernel.
        device: As :func:`planq.explain` takes it.

    Raises:
        NoKernelError: No kernel qualifies.
        DescriptorError: The device is unknown; or ``desc`` is no descriptor, or ``pref`` no
            preference.
    """
    return _foresee_exactly(desc, checked_preference(desc, pref), device)


def _foresee_exactly(
    desc: Descriptor, pref: PlanPreference, device: DeviceFacts | StreamLike | str
) -> dict[str, Any]:
    """As :func:`foresee`, under this preference alone, whatever policy is in force."""
    values: dict[str, Any] | None = _core.foresee(desc._native, pref._native, native_device(device))
    if values is None:
        raise _no_kernel(desc, pref, device)
    return values


def verify_foreseen(text: str, device: DeviceFacts | StreamLike | str) -> dict[str, Any]:
    """As :meth:`Plan.from_json`, for a device that need not be present; returns the new plan.

    Raises:
        PlanMismatchError: As :meth:`Plan.from_json`.
        DescriptorError: As :meth:`Plan.from_json`; or the device is unknown.
    """
    desc, pref = _stored(text)
    current = _selected(lambda: _foresee_exactly(desc, pref, device))
    _compare(text, json.dumps(current))
    strict = _policy.applied(pref)
    if strict == pref:
        return current
    held = _selected(lambda: _foresee_exactly(desc, strict, device))
    _require_same_sku(current["sku"], held["sku"])
    return held


def _selected(make: Callable[[], _Made]) -> _Made:
    """What is selected for a stored plan.

    Raises:
        PlanMismatchError: No kernel qualifies.
    """
    try:
        return make()
    except NoKernelError as error:
        raise PlanMismatchError(_core.unselected_text(str(error))) from None


def _require_same_sku(stored: str, now: str) -> None:
    """Raises PlanMismatchError if a policy has another kernel selected than the stored one."""
    if stored != now:
        raise PlanMismatchError(
            f"the stored plan is not selected under the policy: stored {stored}, now {now}; "
            f"{_policy_words()}",
            {"sku": (stored, now)},
        )


def _compare(stored: str, current: str) -> None:
    """Raises PlanMismatchError with every difference of two plans, if there is any."""
    message, differences = _core.compare_stored(stored, current)
    if differences:
        raise PlanMismatchError(message, differences)


def _empty_bytes(library: Any, size: int, device: Any) -> Any:
    """Aligned bytes, allocated by an array library; None for 0 bytes."""
    if size == 0:
        return None
    places = {} if device is None else {"device": device}
    bytes_ = library.empty((size + _core.WORKSPACE_ALIGNMENT,), dtype=library.uint8, **places)
    first = -_address_of(bytes_) % _core.WORKSPACE_ALIGNMENT
    return bytes_[first : first + size]


def _address_of(array: Any) -> int:
    """The address of an array of torch, NumPy, or a library with one of their interfaces."""
    if hasattr(array, "data_ptr"):
        return int(array.data_ptr())
    on_gpu = getattr(array, "__cuda_array_interface__", None)
    return int((on_gpu or array.__array_interface__)["data"][0])


def _stored(text: str) -> tuple[Descriptor, PlanPreference]:
    """The descriptor and the preference of a stored plan."""
    try:
        stored = _core.read_stored(text)
    except ValueError as error:
        raise PlanMismatchError(str(error)) from None
    desc = Descriptor.from_dict(stored["descriptor"])
    return desc, PlanPreference.from_dict(stored["preference"])


def _known_shape(name: str, spec: OperandSpec, extents: dict[str, int]) -> tuple[int, ...]:
    """The shape of an operand with the extents of a call."""
    missing = [dim.name for dim in spec.shape if isinstance(dim, Dim) and dim.name not in extents]
    if missing:
        raise TypeError(f"{name} has the dim {missing[0]}; give its extent: {missing[0]}=...")
    return tuple(extents[dim.name] if isinstance(dim, Dim) else dim for dim in spec.shape)


def _dtype_of(library: Any, name: str, spec: OperandSpec) -> Any:
    """A library's own dtype; uint8 if it has no fp8, as planq takes fp8 as bytes too."""
    names = [spec.storage]
    if spec.storage.startswith("float8"):
        names.append("uint8")
    if spec.storage == "bool":
        names.append("bool_")  # NumPy 1
    for candidate in names:
        if hasattr(library, candidate):
            return getattr(library, candidate)
    raise TypeError(f"{name}: {library.__name__} has no dtype {spec.storage}")


def _policy_words() -> str:
    """The policy in force, as a part of a message; empty without one."""
    policy = _policy.in_force()
    return "" if policy is None else f"a policy in force asks for {_policy.words(policy)}"


def _no_kernel(
    desc: Descriptor, pref: PlanPreference, device: DeviceFacts | StreamLike | str
) -> NoKernelError:
    selection = explain_exactly(desc, pref, device)
    known = pref.sku in {kernel.sku for kernel in selection.candidates}
    kinds = {each.reason_kind for each in selection.candidates} - {"backend"}
    if kinds == {"device"} and (pref.sku is None or known):
        told = architectures(desc.operator)
        return NoKernelError(
            selection, f"no kernel of {desc.operator} runs on this architecture; {told}"
        )
    told = _core.no_kernel_sentence(desc.operator, pref._native, selection._lines)
    asked = _policy_words()
    return NoKernelError(selection, f"{told}; {asked}" if asked else told)
