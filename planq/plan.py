"""Plans: an operation, the kernel that runs it, and everything it promises beforehand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

from planq import _core, _verbose
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
    explain,
    native_device,
)


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

    Made by :meth:`select`. ``run(stream, workspace, args)`` validates the operands and enqueues the
    operation: it allocates nothing, waits for nothing and reads nothing back, so it can be captured
    in a CUDA graph. The stream is any stream of the plan's device; a host stream has finished when
    ``run`` returns. The workspace is None when :meth:`workspace_size` is 0, else a byte tensor or
    ``(pointer, bytes)`` on the plan's device, aligned to ``planq.WORKSPACE_ALIGNMENT``; what it
    holds means nothing before or after.

    Raises (from ``run``):
        ArgumentError: An operand is not what the descriptor says; nothing was launched.
        WorkspaceError: The workspace is missing, too small, misaligned or elsewhere.
        StreamError: The stream is none, or another device's.
        CudaError: The launch failed.
    """

    __slots__ = ("_descriptor", "_preference", "_promise")

    # In-place operands of which nothing is read, so that memory with any contents will do.
    _written_over: ClassVar[frozenset[str]] = frozenset()

    _promise: PrecisionGuarantee
    _descriptor: Descriptor
    _preference: PlanPreference

    def __init__(self, stream: StreamLike, desc: Descriptor, pref: PlanPreference) -> None:
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
            raise _no_kernel(explain(desc, pref, stream), desc, pref) from None
        object.__setattr__(self, "_descriptor", desc)
        object.__setattr__(self, "_preference", pref)
        object.__setattr__(self, "_promise", guarantee_of_plan(self))

    @classmethod
    def select(
        cls, stream: StreamLike, desc: Descriptor, pref: PlanPreference | None = None
    ) -> Self:
        """Chooses and prepares the kernel for a descriptor.

        A pure function of the descriptor, the preference, the stream's device and this build. What
        is costly happens here: attributes, module load, launch geometry.

        Args:
            stream: ``planq.HOST``, a host stream, or any CUDA stream object; only its device
                matters.
            desc: What to compute.
            pref: What to insist on.

        Returns:
            A plan of the operator's own class.

        Raises:
            NoKernelError: No kernel qualifies; the message says of each why.
            StreamError: The stream is none.
            DescriptorError: The descriptor is another operator's than this class plans.
        """
        preference = checked_preference(desc, pref)
        found = classes_of(desc.operator).plan
        plan = (found if issubclass(found, cls) else cls)(stream, desc, preference)
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
        """What the selection insisted on."""
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
            **extents: Of a plan with dims, each by its name, as in ``workspace_size(m=7)``: the
                bytes for exactly these. Without them the bytes suffice for every extent.

        Raises:
            DescriptorError: An extent is negative or above the maximum of its :class:`planq.Dim`.
            TypeError: Some dims of the plan are missing, or a name is none of theirs.
        """
        return self._workspace_size(extents)

    def bodies(self, **extents: int) -> tuple[Body, ...]:
        """The kernels that keep the promise of the plan's SKU, in the order of preference.

        They give the same bits. Which one runs follows from the extents of a call, or from where
        operands lie: a bound launch has its name as ``launch.body``.

        Args:
            **extents: As :meth:`workspace_size` takes them; without them the largest.

        Raises:
            DescriptorError: An extent is negative or above the maximum of its :class:`planq.Dim`.
            TypeError: Some dims of the plan are missing, or a name is none of theirs.
        """
        return tuple(Body(*values) for values in self._bodies(extents))

    def empty_outputs(self, library: Any, *, device: Any = None, **extents: int) -> dict[str, Any]:
        """Outputs of the right shapes and types, allocated by an array library, not filled.

        Optional outputs are among them, and the ``output`` of ``fill`` and ``arange``: its role is
        INOUT, as they write over a tensor in place, but nothing of it is read. Other operands that
        are updated in place are not: what they hold before ``run`` counts, so bring your own.

        Args:
            library: ``torch`` or ``numpy``, or a module with their ``empty`` and dtype names.
            device: Where to; None for libraries that know no devices, as NumPy.
            **extents: Each dim of the plan by its name, as in ``empty_outputs(torch, m=7)``.

        Returns:
            Tensors by the names of the args: ``QuantizeArgs(input=x, scale=s, **outputs)``.

        Raises:
            DescriptorError: An extent is negative or above the maximum of its :class:`planq.Dim`.
            TypeError: Some dims of the plan are missing, or a name is none of theirs; or the
                library has no dtype of a name that an output needs, as NumPy has no bfloat16.
        """
        if extents:
            self._workspace_size(extents)  # the same faults
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
            **extents: Likewise; without them as many bytes as the largest ask for.

        Returns:
            ``workspace_size(**extents)`` bytes at an address that is a multiple of
            ``planq.WORKSPACE_ALIGNMENT``; None: the plan needs none.

        Raises:
            DescriptorError: An extent is negative or above the maximum of its :class:`planq.Dim`.
            TypeError: Some dims of the plan are missing, or a name is none of theirs.
        """
        size = self.workspace_size(**extents)
        if size == 0:
            return None
        places = {} if device is None else {"device": device}
        bytes_ = library.empty((size + _core.WORKSPACE_ALIGNMENT,), dtype=library.uint8, **places)
        first = -_address_of(bytes_) % _core.WORKSPACE_ALIGNMENT
        return bytes_[first : first + size]

    def precision_guarantee(self) -> PrecisionGuarantee:
        """What the chosen kernel promises about its bits."""
        return self._promise

    def bind(self, workspace: object, args: object) -> _core.Launch:
        """Validates operands and workspace once and keeps them; ``launch(stream)`` is one call.

        ``launch.body`` names the kernel that runs, one of :meth:`bodies`.

        Raises:
            ArgumentError: An operand is not what the descriptor says.
            WorkspaceError: The workspace is missing, too small, misaligned or elsewhere.
        """
        launch: _core.Launch = self._bind(workspace, args)
        return launch

    def explain(self) -> Selection:
        """Every kernel of the operator with the reason why it was or was not chosen."""
        return explain(self._descriptor, self._preference, self.device)

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
                something else; the message lists every difference.
            DescriptorError: The recorded descriptor has no meaning in this build.
        """
        desc, pref = _stored(text)
        try:
            plan = cls.select(stream, desc, pref)
        except NoKernelError as error:
            raise PlanMismatchError(_core.unselected_text(str(error))) from None
        _compare(text, plan.to_json())
        return plan


def foresee(
    desc: Descriptor, pref: PlanPreference | None, device: DeviceFacts | StreamLike | str
) -> dict[str, Any]:
    """What :meth:`Plan.to_dict` has of the plan that a device gets, present or not.

    Args:
        desc: What to compute.
        pref: What to insist on.
        device: As :func:`planq.explain` takes it.

    Raises:
        NoKernelError: No kernel qualifies.
        DescriptorError: The device is unknown; or there is no descriptor, or no preference.
    """
    preference = checked_preference(desc, pref)
    values: dict[str, Any] | None = _core.foresee(
        desc._native, preference._native, native_device(device)
    )
    if values is None:
        raise _no_kernel(explain(desc, preference, device), desc, preference)
    return values


def verify_foreseen(text: str, device: DeviceFacts | StreamLike | str) -> dict[str, Any]:
    """Compares a stored plan with what a device would get, as :meth:`Plan.from_json` does on it.

    Raises:
        PlanMismatchError: As of :meth:`Plan.from_json`.
        DescriptorError: As there; or the device is unknown.
    """
    desc, pref = _stored(text)
    try:
        current = foresee(desc, pref, device)
    except NoKernelError as error:
        raise PlanMismatchError(_core.unselected_text(str(error))) from None
    _compare(text, json.dumps(current))
    return current


def _compare(stored: str, current: str) -> None:
    """Raises PlanMismatchError with every part in which two plans differ, if any does."""
    message, differences = _core.compare_stored(stored, current)
    if differences:
        raise PlanMismatchError(message, differences)


def _address_of(array: Any) -> int:
    """Of the first byte of what torch or NumPy made, or a library with one of their interfaces."""
    if hasattr(array, "data_ptr"):
        return int(array.data_ptr())
    on_gpu = getattr(array, "__cuda_array_interface__", None)
    return int((on_gpu or array.__array_interface__)["data"][0])


def _stored(text: str) -> tuple[Descriptor, PlanPreference]:
    """What a stored plan says: the descriptor and the preference."""
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
    """A library's own dtype; bytes where it has no fp8, which planq takes for it."""
    names = [spec.storage]
    if spec.storage.startswith("float8"):
        names.append("uint8")
    if spec.storage == "bool":
        names.append("bool_")  # NumPy 1
    for candidate in names:
        if hasattr(library, candidate):
            return getattr(library, candidate)
    raise TypeError(f"{name}: {library.__name__} has no dtype {spec.storage}")


def _no_kernel(selection: Selection, desc: Descriptor, pref: PlanPreference) -> NoKernelError:
    known = pref.sku in {kernel.sku for kernel in selection.candidates}
    kinds = {each.reason_kind for each in selection.candidates} - {"backend"}
    if kinds == {"device"} and (pref.sku is None or known):
        told = architectures(desc.operator)
        return NoKernelError(
            selection, f"no kernel of {desc.operator} runs on this architecture; {told}"
        )
    told = _core.no_kernel_sentence(desc.operator, pref._native, selection._lines)
    return NoKernelError(selection, told)
