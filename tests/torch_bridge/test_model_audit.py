"""Every operator that a model calls is judged, and what is unknown does not meet a policy."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import planq
import planq.torch
from planq import Determinism, PlanPreference
from planq.torch import ModelAudit, OperatorCall

importlib.import_module("operators.thirds")
OPS: Any = torch.ops.planq
ANY = PlanPreference(determinism="not_guaranteed")
RUNS = PlanPreference()
ROWS = PlanPreference(batch_invariant=True)
X = torch.linspace(-3, 3, 8 * 64).reshape(8, 64)
UNKNOWN_ROWS = "whether rows depend on one another is unknown"
UNKNOWN_RUNS = "its determinism is unknown"


@pytest.fixture(autouse=True)
def no_policy() -> Iterator[None]:
    """Each test begins and ends without one, and without gradients."""
    planq.set_policy(None)
    with torch.no_grad():
        yield
    planq.set_policy(None)


@contextlib.contextmanager
def deterministic(*, warn_only: bool = False) -> Iterator[None]:
    """torch raises rather than run what is not deterministic."""
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


class Quantized(nn.Module):
    """Rounds what it is given to codes, and back."""

    def __init__(self, scope: str) -> None:
        super().__init__()
        self.scope = scope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes, scale = OPS.dynamic_range_quantize(x, "int8", scope=self.scope)
        result: torch.Tensor = OPS.dequantize(codes, scale, "int8", "float32", scope=self.scope)
        return result


class Block(nn.Module):
    """A layer of a model."""

    def __init__(self, scope: str = "token()") -> None:
        super().__init__()
        self.linear, self.act, self.quantized = nn.Linear(64, 64), nn.SiLU(), Quantized(scope)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.quantized(self.act(self.linear(x))) + x
        return result


def found(audit: ModelAudit) -> dict[tuple[str, str], OperatorCall]:
    """The calls by operator and place."""
    return {(call.operator, call.place): call for call in audit.calls}


def judged(call: Callable[..., Any], *inputs: Any, policy: PlanPreference = ROWS) -> OperatorCall:
    """The last operator that a function calls."""
    return planq.torch.audit(call, *inputs, policy=policy, strict=False).calls[-1]


def known(call: Callable[..., Any], *inputs: Any) -> tuple[Determinism | None, bool | None]:
    last = judged(call, *inputs)
    return last.determinism, last.batch_invariant


# --- What is seen


def test_every_call_is_listed_with_its_place() -> None:
    """Names of modules as in the state dict, with calls of one place counted."""
    model = nn.Sequential(Block(), Block("tensor()"), nn.ReLU())
    calls = found(planq.torch.audit(model, X))
    assert set(calls) == {
        *((name, f"{i}.linear") for i in (0, 1) for name in ("aten::t", "aten::addmm")),
        *(("aten::silu", f"{i}.act") for i in (0, 1)),
        *(
            (f"planq::{name}", f"{i}.quantized")
            for i in (0, 1)
            for name in ("dynamic_range_quantize", "dequantize")
        ),
        *(("aten::add.Tensor", str(i)) for i in (0, 1)),
        ("aten::relu", "2"),
    }
    assert {call.count for call in calls.values()} == {1}
    assert {call.device for call in calls.values()} == {"cpu"}


def test_calls_of_one_place_are_counted() -> None:
    act = nn.ReLU()
    audit = planq.torch.audit(lambda x: [act(x) for _ in range(3)], X)
    assert [(call.operator, call.place, call.count) for call in audit.calls] == [
        ("aten::relu", "ReLU", 3)
    ]


def test_operators_of_planq_have_the_plan_that_ran() -> None:
    """Its SKU and guarantee, by the plan that Plan.select gives for the same call."""
    for scope in (planq.Scope.token(), planq.Scope.tensor()):
        desc = planq.DynamicRangeQuantizeDescriptor(
            shape=(8, 64), input_dtype="float32", output_dtype="int8", scope=scope
        )
        plan = planq.Plan.select(planq.HOST, desc)
        model = Quantized(str(scope))
        call = found(planq.torch.audit(model, X))["planq::dynamic_range_quantize", "Quantized"]
        assert (call.sku, call.guarantee) == (plan.sku, plan.precision_guarantee())
        assert call.determinism is Determinism.BIT_EXACT
        assert call.batch_invariant is (scope == planq.Scope.token())
        assert call.max_ulp == 0


def test_out_variants_and_preferences_are_seen() -> None:
    """The SKU is that of the call's own arguments."""
    codes, scale = torch.empty(8, 64, dtype=torch.int8), torch.empty(8)
    sku = "dynamic_range_quantize.token/host/f32_s8"
    call = judged(lambda: OPS.dynamic_range_quantize.out(X, codes, scale, "int8", sku=sku))
    assert (call.operator, call.sku) == ("planq::dynamic_range_quantize.out", sku)


def test_the_model_computes_what_it_computes_without_an_audit() -> None:
    """In a mode of inference too, where torch hands whole functions down."""
    model, results = Block(), []
    wanted = model(X)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            audit = planq.torch.audit(lambda x: results.append(model(x)), X)
            names = {call.operator for call in audit.calls}
            assert names & {"aten::addmm", "aten::linear"}
    assert all(torch.equal(result, wanted) for result in results)


def test_a_function_with_a_backward_pass_has_it_judged() -> None:
    """Backward operators have no module."""
    weight = X.clone().requires_grad_()

    def step() -> None:
        with torch.enable_grad():
            planq.torch.quantize_dequantize(weight, "int8").sum().backward()

    call = found(planq.torch.audit(step))["planq::fake_quantize_backward", "(backward)"]
    assert call.sku == "fake_quantize_backward/host/f32_f32"


def test_arguments_go_to_the_model() -> None:
    """By position and by name; the table and the JSON tell all of it."""
    audit = planq.torch.audit(lambda x, *, other: x + other, X, other=X)
    assert "add.Tensor" in str(audit)
    assert "no policy" in str(audit)
    assert json.loads(json.dumps(audit.to_dict()))["calls"][0]["operator"] == "aten::add.Tensor"
    table = str(planq.torch.audit(Quantized("token()"), X, policy=ROWS)).splitlines()
    head = table[0].split()
    assert head == ["operator", "place", "device", "calls", "determinism", "rows", "verdict"]
    assert table[1].split()[:4] == [
        *("dynamic_range_quantize.token/host/f32_s8", "Quantized", "cpu", "1")
    ]
    assert table[1].split()[4:] == ["bit_exact", "independent", "met"]


# --- What is known

_NONE, _RUN, _EXACT = None, Determinism.RUN_TO_RUN, Determinism.BIT_EXACT


@pytest.mark.parametrize(
    ("call", "determinism", "rows"),
    [
        (lambda x: x.view(64, 8), _EXACT, True),
        (lambda x: x.clone(), _EXACT, True),
        (lambda x: torch.cat([x, x]), _EXACT, True),
        (lambda x: x[torch.tensor([1, 0])], _EXACT, True),
        (lambda x: x + x, _RUN, True),
        (lambda x: x.clone().mul_(2), _RUN, True),
        (lambda x: x.bfloat16(), _RUN, True),
        (lambda x: x > 0, _RUN, True),
        (lambda x: torch.add(x, x, alpha=3), _RUN, _NONE),
        (lambda x: torch.div(x, 3, rounding_mode="floor"), _RUN, _NONE),
        (lambda x: x.to(torch.int8), _RUN, _NONE),
        (lambda x: torch.empty(8, 64, dtype=torch.int8).copy_(x), _RUN, _NONE),
        (nn.functional.silu, _RUN, _NONE),
        (lambda x: x @ x.T, _NONE, _NONE),
        (lambda x: x.sum(0), _NONE, _NONE),
        (lambda x: x.softmax(-1), _NONE, _NONE),
        (lambda x: torch.empty_like(x), _NONE, _NONE),
        (lambda x: x.cumsum(0), Determinism.NOT_GUARANTEED, _NONE),
        (lambda x: torch.rand(3), _NONE, _NONE),
        (lambda x: x.sort(), _NONE, _NONE),
        (lambda x: torch.complex(x, x) * 2, _NONE, _NONE),
    ],
)
def test_what_torch_documents(
    call: Callable[[torch.Tensor], Any], determinism: Determinism | None, rows: bool | None
) -> None:
    """By hand, for a call of every kind; without use_deterministic_algorithms."""
    assert known(call, X) == (determinism, rows)


def test_sums_are_deterministic_where_torch_is_told_so() -> None:
    """If it only warns, nothing is known."""
    calls: list[Callable[[torch.Tensor], Any]] = [
        *(lambda x: x @ x.T, lambda x: x.sum(0), lambda x: x.cumsum(0)),
    ]
    for call in calls:
        with deterministic():
            assert known(call, X) == (_RUN, None)
        with deterministic(warn_only=True):
            assert known(call, X)[0] in (None, Determinism.NOT_GUARANTEED)
    with deterministic():
        assert known(lambda x: torch.empty_like(x), X) == (_RUN, True)
        assert judged(calls[0], X, policy=RUNS).problem == ""
        assert judged(calls[0], X, policy=ROWS).problem == UNKNOWN_ROWS


UNARY = "abs ceil floor isfinite isinf isnan logical_not neg reciprocal relu sign sqrt trunc"
BINARY = "add sub mul div eq ge gt le lt ne maximum minimum logical_and logical_or logical_xor"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", [*UNARY.split(), *BINARY.split(), "bfloat16", "double"])
def test_a_row_alone_has_the_bits_that_it_has_among_others(name: str, dtype: torch.dtype) -> None:
    """For operators that the table calls independent: on rows of an odd length, as torch runs."""
    values = torch.randn(24, 77, generator=torch.Generator().manual_seed(3)).to(dtype)
    values[3, 5], values[4, 6], values[5, 7] = float("nan"), float("inf"), 0.0
    others = values.flip(0)
    function: Any = getattr(torch.Tensor, name)

    def call(rows: slice) -> torch.Tensor:
        operands = [values[rows].clone(), others[rows].clone()]
        result: torch.Tensor = function(*operands[: 1 + (name in BINARY.split())])
        return result

    whole = call(slice(None)).contiguous().view(torch.uint8)
    for row in range(24):
        alone = call(slice(row, row + 1)).contiguous().view(torch.uint8)
        assert torch.equal(alone[0], whole[row])
    if name not in ("bfloat16", "double"):  # which may do nothing
        assert judged(lambda: call(slice(None))).batch_invariant is True


class Wrapped(torch.Tensor):
    """A subclass that runs what it likes."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return torch.ones(8, 64)

    @staticmethod
    def __new__(cls, like: torch.Tensor) -> Any:
        make: Any = torch.Tensor._make_wrapper_subclass
        return make(cls, like.shape, dtype=like.dtype, device=like.device)


def test_of_others_code_nothing_is_known() -> None:
    """Operators of other packages, subclasses of Tensor and sparse tensors."""
    make: Any = torch.library.Library
    library = make("planq_test_audit", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    calls: list[Callable[[], Any]] = [
        lambda: torch.ops.planq_test_audit.twice(X),
        lambda: Wrapped(X) + 1,
        lambda: X.to_sparse() + X.to_sparse(),
    ]
    for call in calls:
        names = {(each.determinism, each.batch_invariant) for each in [judged(call)]}
        assert names == {(None, None)}
        with pytest.raises(planq.PolicyError, match=UNKNOWN_RUNS):
            planq.torch.audit(call, policy=RUNS)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_what_a_compiler_makes_is_unknown() -> None:
    """A module, a function and a script; planq's own operators run as they are."""
    make: Any = torch.jit
    compiled: list[Callable[..., Any]] = [
        torch.compile(nn.ReLU(), backend="aot_eager"),
        torch.compile(lambda x: torch.relu(x), backend="aot_eager"),
        make.script(nn.ReLU()),
    ]
    for model in compiled:
        assert known(model, X) == (None, None)
    assert known(nn.ReLU(), X) == (_RUN, True)
    own = judged(torch.compile(Quantized("token()"), backend="aot_eager"), X)
    assert (own.determinism, own.batch_invariant, own.problem) == (_EXACT, True, "")


# --- Verdicts


def test_a_policy_that_is_not_met_raises_with_operators_and_places() -> None:
    """Those of torch, and planq's where no kernel is left; the error has the whole audit."""
    model = nn.Sequential(Block(), Block("tensor()"))
    with deterministic(), pytest.raises(planq.PolicyError) as refused:
        planq.torch.audit(model, X, policy=ROWS)
    places = {(call.operator, call.place) for call in refused.value.audit.refused}
    assert places == {
        *(("aten::addmm", f"{i}.linear") for i in (0, 1)),
        *(("aten::silu", f"{i}.act") for i in (0, 1)),
        ("planq::dynamic_range_quantize", "1.quantized"),
    }
    for operator, place in places:
        assert f"{operator} in {place}, 1x: " in str(refused.value)
    assert refused.value.code == "policy"
    calls = found(planq.torch.audit(model, X, policy=ROWS, strict=False))
    assert calls["aten::silu", "0.act"].problem == UNKNOWN_ROWS
    assert "batch_invariant=True" in calls["planq::dynamic_range_quantize", "1.quantized"].problem


def test_a_model_that_meets_the_policy_is_returned() -> None:
    """With the policy in force in it; plans outside are as they were."""
    model = nn.Sequential(Quantized("token()"), nn.ReLU())
    with planq.policy(PlanPreference(max_workspace_bytes=0)):
        audit = planq.torch.audit(model, X, policy=ROWS)
    assert audit.refused == ()
    assert audit.policy == PlanPreference(batch_invariant=True, max_workspace_bytes=0)
    assert len(OPS.dynamic_range_quantize(X, "int8", scope="tensor()")) == 2


def test_without_a_policy_nothing_is_refused() -> None:
    audit = planq.torch.audit(Block("tensor()"), X)
    assert (audit.policy, audit.refused) == (None, ())


def test_the_policy_in_force_is_the_usual_one() -> None:
    """What no kernel may run under it ends the audit, in either way of asking."""
    planq.set_policy(PlanPreference(max_ulp=0))
    with pytest.raises(planq.PolicyError, match=r"aten::relu in ReLU, 1x: its error"):
        planq.torch.audit(nn.ReLU(), X)
    planq.set_policy(ROWS)
    model = nn.Sequential(nn.ReLU(), Quantized("tensor()"))
    for strict in (True, False):
        with pytest.raises(planq.PolicyError, match=r"dynamic_range_quantize in 1, 1x") as refused:
            planq.torch.audit(model, X, policy=ANY, strict=strict)
        assert isinstance(refused.value.__cause__, planq.NoKernelError)
        assert [call.place for call in refused.value.audit.refused] == ["1"]


def test_every_field_of_a_policy_is_judged() -> None:
    """Views meet all but another backend; a workspace is for plans."""
    bit_exact = PlanPreference(determinism="bit_exact", max_ulp=0, max_workspace_bytes=0)
    assert planq.torch.audit(lambda: X.T, policy=bit_exact).refused == ()
    assert judged(lambda: X + X, policy=bit_exact).problem == (
        "its determinism is RUN_TO_RUN; its error against the host backend is unknown"
    )
    assert judged(lambda: X.T, policy=PlanPreference(backend="cuda")).problem == "it runs on cpu"
    assert judged(lambda: X.T, policy=PlanPreference(backend="host")).problem == ""
    assert judged(lambda: Quantized("tensor()")(X), policy=RUNS).problem == ""


def test_an_operator_that_no_kernel_takes_at_all_raises_as_ever() -> None:
    """No policy is to blame."""
    with pytest.raises(planq.NoKernelError):
        planq.torch.audit(lambda: OPS.thirds(X, sku="none"), policy=RUNS)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((3,), planq.ArgumentError, "model: expected a module or another callable, got 3"),
        ((nn.ReLU(), X), planq.DescriptorError, "sku: expected None in a policy"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        planq.torch.audit(*arguments, policy=PlanPreference(sku="a"))


def test_an_error_of_the_model_is_its_own() -> None:
    """The policy and the mode end with it."""
    with pytest.raises(ZeroDivisionError):
        planq.torch.audit(lambda: 1 // 0, policy=ROWS)
    assert len(OPS.dynamic_range_quantize(X, "int8", scope="tensor()")) == 2
