"""Runs a model once and judges every operator that it calls."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any, Final, final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from planq import _policy
from planq.dtypes import Backend, Determinism
from planq.errors import ArgumentError, NoKernelError, PolicyError, shown
from planq.guarantee import PrecisionGuarantee
from planq.preference import PlanPreference
from planq.torch._documented import (
    COMPILED,
    SUBCLASS,
    UNKNOWN,
    Documented,
    documented,
    is_listed,
    name_of,
)
from planq.torch._library import OVERLOADS

_NATIVE: Final[Any] = torch._C
_BACKENDS: Final = {"cpu": Backend.HOST, "cuda": Backend.CUDA}
_SHOWN: Final = 10


@final
@dataclass(frozen=True, slots=True)
class OperatorCall:
    """Equal calls of an operator at one place of a model.

    Attributes:
        operator: The operator with its overload, such as ``aten::add.Tensor``.
        place: The module that calls it, such as ``layers.0.attention.query``; ``(backward)`` in a
            backward pass, ``(no module)`` elsewhere.
        device: torch's name of the device's type.
        count: How often it is called there.
        sku: The SKU that ran; None if it is no operator of planq.
        guarantee: What the plan that ran promises; None if it is no operator of planq.
        determinism: What is promised; None if that is unknown.
        batch_invariant: Likewise.
        max_ulp: The largest distance from the host backend; None if there is no limit.
        basis: Why it is so, in one line.
        problem: What the policy asks for and the call does not have; empty if nothing.
    """

    operator: str
    place: str
    device: str
    count: int
    sku: str | None
    guarantee: PrecisionGuarantee | None
    determinism: Determinism | None
    batch_invariant: bool | None
    max_ulp: int | None
    basis: str
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The call as plain JSON values."""
        return {
            "operator": self.operator,
            "place": self.place,
            "device": self.device,
            "count": self.count,
            "sku": self.sku,
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
            "determinism": None if self.determinism is None else self.determinism.name.lower(),
            "batch_invariant": self.batch_invariant,
            "max_ulp": self.max_ulp,
            "basis": self.basis,
            "problem": self.problem,
        }


@final
@dataclass(frozen=True, slots=True)
class ModelAudit:
    """What a model calls, in the order of the first calls. ``str()`` is a table.

    Attributes:
        calls: Every call that torch's dispatcher saw.
        policy: What they were judged by: the strictest of all that held; None without one.
    """

    calls: tuple[OperatorCall, ...]
    policy: PlanPreference | None

    @property
    def refused(self) -> tuple[OperatorCall, ...]:
        """The calls that do not meet the policy."""
        return tuple(call for call in self.calls if call.problem)

    def to_dict(self) -> dict[str, Any]:
        """The audit as plain JSON values."""
        return {
            "policy": None if self.policy is None else self.policy.to_dict(),
            "calls": [call.to_dict() for call in self.calls],
        }

    def __str__(self) -> str:
        head = ("operator", "place", "device", "calls", "determinism", "rows", "verdict")
        usual = "no policy" if self.policy is None else "met"
        lines = [head, *(_line(call, usual) for call in self.calls)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


_ROWS: Final = {None: "unknown", True: "independent", False: "dependent"}


def _line(call: OperatorCall, usual: str) -> tuple[str, ...]:
    return (
        call.sku or call.operator,
        call.place,
        call.device,
        str(call.count),
        "unknown" if call.determinism is None else call.determinism.name.lower(),
        _ROWS[call.batch_invariant],
        call.problem or usual,
    )


def audit(
    model: Callable[..., Any],
    *inputs: Any,
    policy: PlanPreference | None = None,
    strict: bool = True,
    **kwargs: Any,
) -> ModelAudit:
    """Calls a model once and judges every operator that it calls by a policy.

    An operator of planq is judged by the guarantee of the plan that runs. It is selected under the
    policy. An operator of torch is judged by what torch documents. Sums and products of torch are
    deterministic under ``torch.use_deterministic_algorithms(True)``. That rows do not matter to
    them is documented nowhere. Of other packages' operators nothing is known. What is unknown does
    not meet a policy that asks for it. ``max_workspace_bytes`` is about plans alone.

    What the dispatcher of torch does not see is not judged: kernels that are launched past it,
    and plans that are run without ``torch.ops.planq``. These plans are selected under the policy,
    as everything inside is. Compiled programs run as the Python code that they were made of. Their
    operators of torch count as unknown, since a compiler may compute them in another way. So audit
    the model before it is compiled.

    Args:
        model: A module or any callable. A function that also calls ``backward()`` has its backward
            pass judged too.
        *inputs: Its arguments.
        policy: What to judge by; the policy in force counts as well (:func:`planq.policy`).
        strict: Raise if a call does not meet the policy. False only reports.
        **kwargs: Its keyword arguments.

    Returns:
        All calls with their verdicts. Without any policy, no call is refused.

    Raises:
        PolicyError: ``strict``, and a call does not meet the policy; the message names the
            operators and their places. Or no kernel of planq meets the policy that was in force
            before, so the model cannot run.
        ArgumentError: ``model`` cannot be called.
        DescriptorError: ``policy`` is no policy; or two policies name two backends.
    """
    if not callable(model):
        raise ArgumentError("model", "a module or another callable", shown(model))
    recorder = _Recorder(model)
    with _policy.held(None if policy is None else _policy.checked(policy)):
        recorder.policy = _policy.in_force()
        with torch.compiler.set_stance("force_eager"), recorder.mode:
            model(*inputs, **kwargs)
    found = recorder.audit()
    if strict and found.refused:
        raise PolicyError(_message(found), found)
    return found


def _message(found: ModelAudit) -> str:
    """The refused calls, one a line."""
    refused = found.refused
    lines = [
        f"  {call.operator} in {call.place}, {call.count}x: {call.problem} ({call.basis})"
        for call in refused[:_SHOWN]
    ]
    if len(refused) > _SHOWN:
        lines.append(f"  ... and {len(refused) - _SHOWN} more")
    asked = "" if found.policy is None else _policy.words(found.policy)
    asked = f"the policy asks for {asked}; these calls do not meet it:"
    return "\n".join([asked, *lines])


# --- The run


class _Recorder:
    """Sees every call of an operator, runs it and keeps what is known of it."""

    def __init__(self, model: Any) -> None:
        self.mode = _mode(self._call)
        self.policy: PlanPreference | None = None
        # Without the policy of this audit, with the one in force before.
        self._before = contextvars.copy_context()
        self._counts: dict[OperatorCall, int] = {}
        named = model.named_modules() if isinstance(model, torch.nn.Module) else ()
        self._names = {id(module): name or type(module).__name__ for name, module in named}

    def audit(self) -> ModelAudit:
        """What was seen until now."""
        counts = tuple(self._counts.items())
        return ModelAudit(tuple(replace(call, count=n) for call, n in counts), self.policy)

    def _call(self, func: Any, types: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        place, compiled = self._place()
        if getattr(func, "namespace", "") == "planq":
            return self._call_planq(func, place, args, named)
        name = name_of(func)
        if not is_listed(name) and isinstance(func, torch._ops.OpOverload):
            with self.mode:
                result = func.decompose(*args, **named)
            if result is not NotImplemented:
                return result
        call = _Call(func, place, args, named)
        result = call.run()
        self._keep(call.documented(result, types, compiled=compiled))
        return result

    def _keep(self, call: OperatorCall) -> None:
        judged = replace(call, problem=call.problem or _problem(call, self.policy))
        self._counts[judged] = self._counts.get(judged, 0) + 1

    def _call_planq(
        self, func: Any, place: str, args: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        """Runs an operator of planq; if no kernel meets the audit's policy, without that one."""
        call = _Call(func, place, args, named)
        try:
            result = call.run()
        except NoKernelError as error:
            return self._run_before(call, str(error).splitlines()[0])
        self._keep(call.of_plan(_policy.in_force()))
        return result

    def _run_before(self, call: _Call, problem: str) -> Any:
        """Runs an operator of planq under the policy that was in force before the audit.

        Raises:
            PolicyError: That policy refuses it too.
            NoKernelError: There was none.
        """
        context = self._before.copy()
        before = context.run(_policy.in_force)
        try:
            result = context.run(call.run)
        except NoKernelError as error:
            if before is None:
                raise
            self._keep(replace(call.of(UNKNOWN), basis="it did not run", problem=problem))
            found = self.audit()
            raise PolicyError(_message(found), found) from error
        self._keep(replace(call.of_plan(before), problem=problem))
        return result

    def _place(self) -> tuple[str, bool]:
        """The module that calls, and whether a compiler has to do with it."""
        place: list[str] = []
        known = compiled = False
        for code, frame in _frames():
            compiled = compiled or _is_compiled(code)
            if code is not _MODULE_CODE:
                continue
            module = frame.f_locals["self"]
            compiled = compiled or isinstance(module, torch.jit.ScriptModule)
            if not known:
                known = id(module) in self._names
                place.append(self._names[id(module)] if known else type(module).__name__)
        outside = "(no module)" if _NATIVE._current_graph_task_id() < 0 else "(backward)"
        return ".".join(reversed(place)) or outside, compiled


def _mode(call: Callable[..., Any]) -> Any:
    """A dispatch mode that hands every call of an operator to a function."""

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, types, args, kwargs or {})

    # Made so because torch's class has no type annotations. Without the flag, torch would refuse
    # operators of higher order.
    parts = {"__torch_dispatch__": dispatch, "supports_higher_order_operators": True}
    made: Any = type("Recording", (TorchDispatchMode,), parts)
    return made()


_MODULE_CODE: Final = torch.nn.Module._call_impl.__code__


def _frames() -> Iterator[tuple[CodeType, FrameType]]:
    """The frames of this thread below the audit, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not audit.__code__:
        yield frame.f_code, frame
        frame = frame.f_back


def _is_compiled(code: CodeType) -> bool:
    """Whether it is the wrapper that ``torch.compile`` makes."""
    return code.co_name == "compile_wrapper" and code.co_filename.endswith("eval_frame.py")


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of an operator at a place."""

    func: Any
    place: str
    args: tuple[Any, ...]
    named: dict[str, Any]

    def run(self) -> Any:
        return self.func(*self.args, **self.named)

    def of(self, known: Documented, result: Any = None) -> OperatorCall:
        """What is known of a call of torch's."""
        return OperatorCall(
            operator=self.func.name(),
            place=self.place,
            device=self._device(result),
            count=1,
            sku=None,
            guarantee=None,
            determinism=known.determinism,
            batch_invariant=known.batch_invariant,
            max_ulp=0 if known.exact else None,
            basis=known.basis,
        )

    def of_plan(self, policy: PlanPreference | None) -> OperatorCall:
        """What the plan promises that ran under a policy."""
        packet, _, overload = self.func.name().removeprefix("planq::").partition(".")
        found = OVERLOADS[f"{packet}.{overload}" if overload not in ("", "default") else packet]
        names = [argument.name for argument in found.arguments][len(self.args) :]
        rest = found.whole(self.args)[len(self.args) :]
        given = [self.named.get(name, default) for name, default in zip(names, rest, strict=True)]
        plan = found.find((*self.args, *given), policy)[0]
        promise = plan.precision_guarantee()
        return replace(
            self.of(UNKNOWN),
            sku=plan.sku,
            guarantee=promise,
            determinism=promise.determinism,
            batch_invariant=promise.batch_invariant,
            max_ulp=promise.max_ulp,
            basis=promise.basis,
        )

    def documented(self, result: Any, types: Any, *, compiled: bool) -> OperatorCall:
        """What torch promises of a call that gave a result."""
        if compiled:
            return self.of(COMPILED, result)
        if types:
            return self.of(SUBCLASS, result)
        schema = getattr(self.func, "_schema", None)
        names = [each.name for each in schema.arguments] if schema else []
        named = {**dict(zip(names, self.args, strict=False)), **self.named}
        leaves = tree_leaves((self.args, self.named, result))
        return self.of(documented(name_of(self.func), leaves, named), result)

    def _device(self, result: Any) -> str:
        leaves = tree_leaves((self.args, self.named, result))
        return next((each.device.type for each in leaves if isinstance(each, torch.Tensor)), "cpu")


def _problem(call: OperatorCall, policy: PlanPreference | None) -> str:
    """What a policy asks for and a call does not have; empty if nothing."""
    return "" if policy is None else "; ".join(_problems(call, policy))


def _problems(call: OperatorCall, policy: PlanPreference) -> Iterator[str]:
    if call.determinism is None:
        yield "its determinism is unknown"
    elif call.determinism < policy.determinism:
        yield f"its determinism is {call.determinism.name}"
    if policy.batch_invariant and not call.batch_invariant:
        unknown = "whether rows depend on one another is unknown"
        yield unknown if call.batch_invariant is None else "rows depend on one another"
    if policy.max_ulp is not None and (call.max_ulp is None or call.max_ulp > policy.max_ulp):
        error = "unknown" if call.max_ulp is None else f"{call.max_ulp} ulp"
        yield f"its error against the host backend is {error}"
    if policy.backend is not None and _BACKENDS.get(call.device) != policy.backend:
        yield f"it runs on {call.device}"
