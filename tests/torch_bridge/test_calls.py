"""What a call through torch finds, refuses and keeps."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import planq
import planq.torch
from planq.audit.operators import OPERATORS
from planq.torch import _calls, _library
from support.samples import make_sample

NOOP: Any = importlib.import_module("operators.noop")
OPS: Any = torch.ops.planq
WIDTH = 64


def rows(count: int) -> torch.Tensor:
    """Some rows."""
    return torch.from_numpy(
        np.random.default_rng(count).standard_normal((count, WIDTH), dtype=np.float32)
    )


@pytest.fixture
def selections(monkeypatch: pytest.MonkeyPatch) -> list[planq.Plan]:
    """The plans that are selected from here on, with empty caches."""
    selected: list[planq.Plan] = []
    select = planq.Plan._select_exactly

    def record(*args: Any) -> planq.Plan:
        selected.append(select(*args))
        return selected[-1]

    monkeypatch.setattr(planq.Plan, "_select_exactly", record)
    _calls.forget()
    return selected


# --- Plans


def test_a_new_batch_size_under_a_power_of_two_is_a_hit(selections: list[planq.Plan]) -> None:
    """16, then 32 and 1024; never selected again."""
    for count in (1, 7, 16, 0, 2, 17, 32, 31, 1000, 513, 7):
        OPS.dynamic_range_quantize(rows(count), "int8")
    kept = [plan.descriptor.to_dict()["shape"][0]["max"] for plan in selections]
    assert kept == [16, 32, 1024]


def test_every_leading_extent_is_a_dim_where_the_operator_admits_it(
    selections: list[planq.Plan],
) -> None:
    """Both of a batch of sequences; of blocks of two axes the first alone; of flat ones none."""
    batch = torch.ones(3, 40, WIDTH)
    for scope in ("token()", "block(8, 8)"):
        OPS.dynamic_range_quantize(batch, "int8", scope=scope)
    OPS.blockwise_quantize(batch, "uint8", 64, codebook="dynamic")
    found = [plan.descriptor.to_dict()["shape"] for plan in selections]
    dims = [[extent["max"] for extent in shape if isinstance(extent, dict)] for shape in found]
    assert dims == [[16, 64], [16], []]


def test_other_fields_and_dtypes_have_plans_of_their_own(selections: list[planq.Plan]) -> None:
    """A field, a dtype, a pinned kernel."""
    x = rows(4)
    OPS.dynamic_range_quantize(x, "int8")
    OPS.dynamic_range_quantize(x, "int8", scope="tensor()")
    OPS.dynamic_range_quantize(x.double(), "int8")
    OPS.dynamic_range_quantize(x, "int8", sku=selections[0].sku)
    assert len({(plan.descriptor, plan.preference) for plan in selections}) == 4


def test_kept_plans_are_bounded(selections: list[planq.Plan]) -> None:
    """So are the calls that find theirs at once."""
    found = []
    for width in range(_calls.CALLS + 10):
        OPS.thirds(torch.empty(1, width), sku="thirds/host/quotients")
        found.append(len(_library.OVERLOADS["thirds"].run))
    assert max(found) == _calls.CALLS
    assert found[-1] == 10
    assert len(selections) == _calls.CALLS + 10
    assert _calls.plan_of.cache_info().maxsize == _calls.PLANS


def test_threads_share_plans() -> None:
    """Calls of many shapes from several threads are right."""
    wanted = {count: OPS.dynamic_range_quantize(rows(count), "int8") for count in range(1, 40)}
    _calls.forget()
    faults: list[str] = []

    def work(seed: int) -> None:
        for step in range(200):
            count = 1 + (step * (2 * seed + 1)) % 39
            found = OPS.dynamic_range_quantize(rows(count), "int8")
            if not all(map(torch.equal, found, wanted[count])):
                faults.append(f"{count} rows")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_the_bits_do_not_depend_on_threads() -> None:
    """As many as torch uses."""
    x, before = rows(5000), torch.get_num_threads()
    try:
        found = []
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(OPS.dynamic_range_quantize(x, "int8"))
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, *found))


def test_the_callers_workspace_is_used() -> None:
    """One that is too small is refused; torch's own is as good."""
    source = torch.linspace(-1, 1, 4096)
    out, other = torch.empty(256), torch.empty(256)
    OPS.estimate_quantiles.out(source, out)
    desc = planq.EstimateQuantilesDescriptor(shape=(4096,), input_dtype="float32")
    needed = planq.Plan.select(planq.HOST, desc).workspace_size()
    memory = torch.zeros(needed + 256, dtype=torch.uint8)
    memory = memory[-memory.data_ptr() % 256 :][:needed]
    OPS.estimate_quantiles.out(source, other, memory)
    assert torch.equal(out, other)
    assert memory.any()
    with pytest.raises(planq.WorkspaceError, match=f"expected at least {needed} bytes"):
        OPS.estimate_quantiles.out(source, other, memory[:-1])


# --- Compiled


CHANGING = {
    "quantize": lambda x: OPS.dynamic_range_quantize(x, "int8"),
    "groups": lambda x: OPS.dynamic_range_quantize(
        x, "uint4", scope="group(24)", mode_="asymmetric"
    ),
    "flat": lambda x: OPS.blockwise_quantize(x, "uint4", 64, codebook="nf4"),
    "tensor": lambda x: OPS.min_max(x),
    "there and back": lambda x: planq.torch.quantize_dequantize(x, "int8"),
    "written": lambda x: OPS.dynamic_range_quantize.out(
        x, torch.empty_like(x, dtype=torch.int8), x.new_empty(x.shape[0]), "int8"
    ),
}


# torch's own, inside of its compiler.
torch_warns = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")


@torch_warns
@pytest.mark.parametrize("name", CHANGING)
def test_a_new_number_of_rows_compiles_nothing(name: str) -> None:
    """From 2 rows up; with symbols for the columns too, the second width compiles nothing."""
    torch.compiler.reset()
    compiled = torch.compile(CHANGING[name], fullgraph=True, dynamic=True, backend="aot_eager")
    compiled(rows(2))
    with torch._dynamo.config.patch(error_on_recompile=True):
        for count in (3, 7, 100, 1000):
            assert_same(compiled(rows(count)), CHANGING[name](rows(count)))
        wide = rows(6).repeat(1, 3)
        assert_same(compiled(wide), CHANGING[name](wide))


def assert_same(ours: Any, theirs: Any) -> None:
    """To the bit, and in their shapes."""
    leaves = torch.utils._pytree.tree_leaves
    pairs = list(zip(leaves(ours), leaves(theirs), strict=True))
    assert all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs if a is not None)


@torch_warns
def test_inductor_runs_what_eager_runs() -> None:
    """The default backend, with arithmetic around an operator and one that writes.

    Without torch's caches: a graph of theirs has the arguments that an operator had in another
    build of planq.
    """

    def step(x: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        OPS.dynamic_range_quantize.out(x * 2, codes, scale, "int8")
        result: torch.Tensor = OPS.dequantize(codes, scale, "int8", "float32", scope="token()") + 1
        return result

    inductor: Any = importlib.import_module("torch._inductor")
    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, dynamic=True)
    for count in (2, 9):
        ours, theirs = (
            (rows(count), torch.empty(count, WIDTH, dtype=torch.int8), torch.empty(count))
            for _ in range(2)
        )
        with inductor.config.patch(fx_graph_cache=False):
            found = compiled(*ours)
        assert torch.equal(found, step(*theirs))
        assert_same(ours, theirs)


def test_exported_with_rows_of_any_number(tmp_path: Path) -> None:
    """A named dimension stays free."""

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return OPS.dynamic_range_quantize(x, "int4", scope="group(24)")

    shapes = {"x": {0: torch.export.Dim("m", min=2, max=4096)}}
    program = torch.export.export(Net(), (rows(5),), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "net.pt2")
    for each in (program, torch.export.load(tmp_path / "net.pt2")):
        assert_same(each.module()(rows(77)), Net()(rows(77)))


def test_rows_that_only_data_tell() -> None:
    """As many as a mask leaves: symbols without a hint."""

    def positive(x: torch.Tensor) -> Any:
        return OPS.dynamic_range_quantize(
            x[x[:, 0] > 0], "uint4", scope="group(24)", mode_="asymmetric"
        )

    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(positive, fullgraph=True, backend="aot_eager")
        for count in (9, 100):
            assert_same(compiled(rows(count)), positive(rows(count)))


def test_extents_that_depend_on_one_another_may_change() -> None:
    """The columns of both factors, which torch takes for two symbols."""
    a, b = rows(5), rows(7)
    torch.compiler.reset()
    compiled = torch.compile(
        lambda a, b, n: OPS.matmul3(a, b[:, :n], [a.shape[0], b.shape[0]]),
        fullgraph=True,
        dynamic=True,
        backend="aot_eager",
    )
    for count in (WIDTH, WIDTH // 2):
        some = a[:, :count]
        assert torch.equal(compiled(some, b, count), OPS.matmul3(some, b[:, :count], [5, 7]))


@torch_warns
def test_a_compiled_program_asks_of_extents_what_the_call_does() -> None:
    """Columns that are not those of the other factor: two symbols, which no guard compares."""
    a, b = rows(5).half(), rows(7).half()
    less = a[:, :16].contiguous()
    torch.compiler.reset()
    compiled = torch.compile(OPS.matmul, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.fx.experimental._config.patch(use_duck_shape=False):
        compiled(a, b)
    with torch._dynamo.config.patch(error_on_recompile=True):
        with pytest.raises(planq.DescriptorError) as caught:
            compiled(less, b)
        with pytest.raises(planq.DescriptorError) as alone:
            OPS.matmul(less, b)
        assert str(caught.value) == str(alone.value)
        same = less.clone()
        assert torch.equal(compiled(less, same), OPS.matmul(less, same))


PRODUCTS: dict[str, Any] = {
    "batches": lambda n: (OPS.matmul, (n, 8, WIDTH), (n, 48, WIDTH)),
    "rows": lambda n: (OPS.matmul, (n, WIDTH), (48, WIDTH)),
}


@torch_warns
@pytest.mark.parametrize("name", PRODUCTS)
def test_factors_that_share_extents_keep_them_free(name: str) -> None:
    """Of two tensors, whose symbols torch cannot know to be the same."""

    def factors(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        _, *shapes = PRODUCTS[name](count)
        first, second = (torch.ones(shape, dtype=torch.float16) for shape in shapes)
        return first, second

    torch.compiler.reset()
    call = PRODUCTS[name](2)[0]
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.fx.experimental._config.patch(use_duck_shape=False):
        compiled(*factors(3))
    with torch._dynamo.config.patch(error_on_recompile=True):
        for count in (5, 7, 100):
            assert torch.equal(compiled(*factors(count)), call(*factors(count)))


def test_products_are_exported_with_batches_of_any_number() -> None:
    """A dimension that both factors name."""

    class Net(torch.nn.Module):
        def forward(self, query: torch.Tensor, key: torch.Tensor) -> Any:
            return OPS.matmul(query, key)

    batch = torch.export.Dim("b", min=2, max=64)
    some, more = ((torch.ones(n, 8, WIDTH).half(), torch.ones(n, 48, WIDTH).half()) for n in (4, 9))
    program = torch.export.export(Net(), some, dynamic_shapes=({0: batch}, {0: batch}))
    assert torch.equal(program.module()(*more), OPS.matmul(*more))


@torch_warns
def test_rows_stay_free_beside_a_weight_of_known_columns() -> None:
    """Which its shape tells, an argument."""
    weight = torch.linspace(-1, 1, 48 * WIDTH).reshape(48, WIDTH)
    codes, absmax = OPS.blockwise_quantize(weight, "uint4", codebook="nf4", block_size=64)[:2]

    def layer(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = OPS.linear_4bit(x, codes, [48, WIDTH], absmax=absmax, block_size=64)
        return result

    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    compiled(rows(2).half())
    with torch._dynamo.config.patch(error_on_recompile=True):
        for count in (3, 5, 7, 100):
            x = rows(count).half()
            assert torch.equal(compiled(x), layer(x))


def test_meta_tensors_and_inference_mode() -> None:
    """Shapes without memory; tensors without version counters."""
    codes, scale = OPS.dynamic_range_quantize(rows(5).to("meta"), "int4")
    assert (codes.device.type, codes.dtype, codes.shape) == ("meta", torch.uint8, (5, WIDTH // 2))
    assert scale.shape == (5,)
    with torch.inference_mode():
        x, out = rows(5).clone(), torch.empty(5, WIDTH)
        OPS.fake_quantize.out(x, out, torch.ones(1))
        assert torch.equal(out, OPS.fake_quantize(x, torch.ones(1))[0])


# --- Faults


def test_planqs_own_errors_come_through() -> None:
    """With their classes and their words."""
    x, codes, scale = rows(4), torch.empty(4, WIDTH, dtype=torch.int8), torch.empty(4)
    with pytest.raises(planq.DescriptorError, match=r"output_dtype: expected .*, got float32"):
        OPS.dynamic_range_quantize(x, "float32")
    with pytest.raises(planq.DescriptorError, match="a dtype that planq knows, got 'int7'"):
        OPS.dynamic_range_quantize(x, "int7")
    with pytest.raises(planq.DescriptorError, match=r"scope: expected a scope such as 'token\(\)'"):
        OPS.dynamic_range_quantize(x, "int8", scope="tokens()")
    with pytest.raises(planq.ArgumentError, match=r"scale: expected shape .* float32 on host"):
        OPS.dynamic_range_quantize.out(x, codes, scale.double(), "int8")
    with pytest.raises(planq.ArgumentError, match=r"output: .*got \(4, 63\) int8"):
        OPS.dynamic_range_quantize.out(x, codes[:, 1:], scale, "int8")
    with pytest.raises(planq.ArgumentError, match="scale: expected None: it is a result"):
        OPS.fake_quantize(x, scale, dynamic=True)
    with pytest.raises(planq.NoKernelError, match="no kernel of min_max is called 'a/b'"):
        OPS.min_max(x, sku="a/b")


def test_a_packed_operand_does_not_tell_its_shape() -> None:
    """Of an even or an odd number of codes."""
    x = rows(3)[:, :63].contiguous()
    codes, scale = OPS.dynamic_range_quantize(x, "int4")
    expected = r"shape: expected the logical shape: input is packed into \(3, 32\)"
    with pytest.raises(planq.DescriptorError, match=expected):
        OPS.dequantize(codes, scale, "int4", "float32", scope="token()")
    back = OPS.dequantize(codes, scale, "int4", "float32", scope="token()", shape=[3, 63])
    assert back.shape == (3, 63)


@pytest.mark.parametrize("convention", ["mx", "nvfp4"])
def test_formats_of_groups(convention: str) -> None:
    """The same bits eagerly, compiled and from a plan; scales have torch's own types."""
    x = torch.randn(6, 96, generator=torch.Generator().manual_seed(5)).bfloat16()
    nvfp4 = convention == "nvfp4"
    fields = {"convention": convention, "scope": "group(16)" if nvfp4 else "group(32)"}

    def there_and_back(x: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = {"inverse_tensor_scale": g} if nvfp4 else {}
        codes, scale = OPS.dynamic_range_quantize(x, "float4_e2m1fn", **fields, **given)
        given = {"tensor_scale": 1 / g} if nvfp4 else {}
        back = OPS.dequantize(
            codes, scale, "float4_e2m1fn", "float32", shape=x.shape, **fields, **given
        )
        return codes, scale, back

    g = torch.tensor([64.0])
    codes, scale, back = there_and_back(x, g)
    assert (codes.dtype, codes.shape) == (torch.uint8, (6, 48))
    assert scale.dtype is (torch.float8_e4m3fn if nvfp4 else torch.float8_e8m0fnu)
    assert (back - x.float()).abs().max() < 0.6
    compiled = torch.compile(there_and_back, fullgraph=True, backend="aot_eager")
    for ours, theirs in zip(compiled(x, g), (codes, scale, back), strict=True):
        assert torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8))


def test_wrong_fields_are_refused_when_compiled() -> None:
    """Before anything runs, in planq's words."""
    compiled = torch.compile(
        lambda x: OPS.dynamic_range_quantize(x, "float32"), fullgraph=True, backend="aot_eager"
    )
    with pytest.raises(Exception, match="output_dtype: expected"):
        compiled(rows(4))


def test_a_kernel_that_promises_nothing_is_refused_where_nobody_asked_for_it() -> None:
    """``uint8`` is left to one, which only a caller that asks for less gets."""
    x = rows(4)
    made = OPS.noop(x, "uint8", determinism="not_guaranteed")
    less = {"determinism": "not_guaranteed"}
    for call, given in ((OPS.noop, (x,)), (OPS.noop.out, (x, *made))):
        with pytest.raises(planq.NoKernelError, match="not_guaranteed"):
            call(*given, "uint8")
    assert len(OPS.noop(x, "uint8", **less)) == 3
    torch.use_deterministic_algorithms(True)
    try:
        OPS.noop(x, "int8", **less)
        with pytest.raises(planq.NoKernelError, match="not_guaranteed"):
            OPS.noop(x, "uint8", **less)
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match="not_guaranteed may give other bits"):
            OPS.noop(x, "uint8", **less)
    finally:
        torch.use_deterministic_algorithms(False)


# --- Preferences


PREFERENCES: list[dict[str, Any]] = [
    {"determinism": "bit_exact"},
    {"batch_invariant": True},
    {"max_ulp": 0},
    {"max_workspace_bytes": 0},
]


@torch_warns
@pytest.mark.parametrize("asked", PREFERENCES, ids=str)
def test_preferences_are_arguments(asked: dict[str, Any], selections: list[planq.Plan]) -> None:
    """Eager, written, compiled and exported calls select by what the caller insists on."""

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return OPS.dynamic_range_quantize(x, "int8", **asked)

    x = rows(4)
    codes, scale = OPS.dynamic_range_quantize(x, "int8", **asked)
    OPS.dynamic_range_quantize.out(x, codes, scale, "int8", **asked)
    torch.compiler.reset()
    torch.compile(Net(), fullgraph=True, backend="aot_eager")(x)
    torch.export.export(Net(), (x,)).module()(x)
    assert [plan.preference for plan in selections] == [planq.PlanPreference(**asked)]
    OPS.dynamic_range_quantize(x, "int8")
    assert selections[-1].preference == planq.PlanPreference()


def test_what_no_kernel_promises_is_refused() -> None:
    """By name: bits without a promise have rows that depend on others; sums need their memory."""
    with pytest.raises(planq.NoKernelError, match="not_guaranteed"):
        OPS.noop(rows(4), "uint8", determinism="not_guaranteed", batch_invariant=True)
    with pytest.raises(planq.NoKernelError, match="workspace"):
        OPS.estimate_quantiles(torch.linspace(-1, 1, 4096), max_workspace_bytes=0)
    with pytest.raises(planq.DescriptorError, match=r"determinism: expected Determinism .*'same'"):
        OPS.noop(rows(4), "int8", determinism="same")
    with pytest.raises(planq.DescriptorError, match="max_ulp: expected an integer of at least 0"):
        OPS.noop(rows(4), "int8", max_ulp=-1)


# --- Gradients


def calls_with_a_gradient(x: torch.Tensor) -> dict[str, Any]:
    """What has none, with an operand that wants one."""
    scale = torch.ones(1)
    return {
        "allocating": lambda: OPS.quantize(x, scale, "int8"),
        "written": lambda: OPS.quantize.out(
            x, torch.empty(x.shape, dtype=torch.int8), scale, "int8"
        ),
        "scale": lambda: OPS.quantize(x.detach(), scale.clone().requires_grad_(), "int8"),
        "fake, scale": lambda: OPS.fake_quantize(x, scale.clone().requires_grad_()),
        "fake, written": lambda: OPS.fake_quantize.out(x, torch.empty(x.shape), scale),
        "fake, deepspeed": lambda: OPS.fake_quantize(x, convention="deepspeed", group_size=4),
        "codes": lambda: planq.torch.quantize(x, "int8"),
    }


@pytest.mark.parametrize("name", calls_with_a_gradient(torch.ones(2, 2)))
def test_no_gradient_is_lost_in_silence(name: str) -> None:
    """In a kernel and in a fake; nothing is refused while none are recorded."""
    from torch._subclasses import FakeTensorMode

    x = rows(4).requires_grad_()
    with pytest.raises(planq.ArgumentError, match=r"gradient.*planq\.torch"):
        calls_with_a_gradient(x)[name]()
    with torch.no_grad():
        calls_with_a_gradient(x)[name]()
    with FakeTensorMode(), pytest.raises(planq.ArgumentError, match=r"gradient.*planq\.torch"):
        calls_with_a_gradient(torch.empty(4, WIDTH, requires_grad=True))[name]()


def doubled(x: torch.Tensor) -> torch.Tensor:
    """A tensor by its norm, which is taken without a derivative."""
    norm: torch.Tensor = OPS.norm(x.detach())
    return x * norm


def norm_written(x: torch.Tensor) -> torch.Tensor:
    """The same by the overload that writes."""
    norm = x.new_empty(1)
    with torch.no_grad():
        OPS.norm.out(x, norm)
    return x * norm


def norm_of(x: torch.Tensor) -> torch.Tensor:
    """A call that would lose a derivative."""
    norm: torch.Tensor = OPS.norm(x)
    return norm


def fake_of(x: torch.Tensor) -> torch.Tensor:
    """Likewise, inside of a transform."""
    result: torch.Tensor = OPS.fake_quantize(x, torch.ones(1))[0]
    return result


def norm_out_of(x: torch.Tensor) -> torch.Tensor:
    """Likewise, written."""
    norm = torch.empty(1)
    OPS.norm.out(x, norm)
    return norm


def list_of(x: torch.Tensor) -> torch.Tensor:
    """Likewise, with the operand in a list."""
    sums = torch.empty(1, dtype=torch.float64)
    OPS.list300([torch.ones(4, WIDTH)], [x], sums, 0.5)
    return sums


FUNC = torch.func
TRANSFORMS: dict[str, Any] = {
    "grad": lambda f, x: FUNC.grad(lambda y: f(y).sum())(x),
    "vjp": lambda f, x: FUNC.vjp(f, x),
    "jacrev": lambda f, x: FUNC.jacrev(f)(x),
    "jvp": lambda f, x: FUNC.jvp(f, (x,), (x,)),
    "jacfwd": lambda f, x: FUNC.jacfwd(f)(x),
    "hessian": lambda f, x: FUNC.hessian(f)(x),
    "of an outer level": lambda f, x: FUNC.grad(
        lambda y: FUNC.grad(lambda z: (z * f(y)).sum())(y).sum()
    )(x),
}


@pytest.mark.parametrize("function", [norm_of, norm_out_of, list_of, fake_of])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_no_derivative_is_lost_in_a_transform(name: str, function: Any) -> None:
    """Of torch.func: by any operand at any level, whichever way."""
    importlib.import_module("operators.list300")
    with pytest.raises(planq.ArgumentError, match=r"gradient.*planq\.torch"):
        TRANSFORMS[name](function, rows(4))


@pytest.mark.parametrize("function", [norm_of, norm_out_of, list_of, fake_of])
def test_no_tangent_is_lost(function: Any) -> None:
    """Forward mode without a transform; what has no tangent is let through."""
    importlib.import_module("operators.list300")
    x = rows(4)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        assert torch.equal(function(x), function(rows(4)))
        with pytest.raises(planq.ArgumentError, match=r"gradient.*planq\.torch"):
            function(dual)


@pytest.mark.parametrize("function", [doubled, norm_written])
def test_transforms_pass_what_has_no_derivative(function: Any) -> None:
    """Each result is that of the norm as a constant."""
    x = rows(4)
    norm = OPS.norm(x)
    gradient = FUNC.grad(lambda y: function(y).sum())
    assert torch.equal(gradient(x), norm.expand(4, WIDTH))
    assert torch.equal(FUNC.jvp(lambda y: y * OPS.norm(x), (x,), (x,))[1], x * norm)
    outer = FUNC.grad(lambda y: FUNC.grad(lambda z: (z * z * function(x)).sum())(y).sum())
    assert torch.allclose(outer(x), 2 * x * norm)


def test_transforms_over_batches() -> None:
    """Vmap below a derivative, and above one."""
    x = rows(4)
    norms = torch.stack([OPS.norm(row) for row in x])
    above = torch.vmap(FUNC.grad(lambda row: doubled(row).sum()))
    assert torch.equal(above(x), norms.expand(4, WIDTH))
    below = FUNC.grad(lambda y: (y * torch.vmap(OPS.norm)(y.detach())).sum())
    assert torch.equal(below(x), norms.expand(4, WIDTH))


def test_operands_without_memory_beside_others_are_refused() -> None:
    """Where nothing could be written, or nothing read."""
    x, norm = rows(4), torch.full((1,), -7.0)
    calls: dict[str, Any] = {
        "input": lambda: OPS.norm.out(x.to("meta"), norm),
        "output": lambda: OPS.norm.out(x, norm.to("meta")),
        "workspace": lambda: OPS.norm.out(x, norm, torch.empty(64, device="meta").byte()),
        "scale": lambda: OPS.quantize(x, torch.ones(1, device="meta"), "int8"),
        "value_tensor": lambda: OPS.fill(norm, value_tensor=torch.empty((), device="meta")),
    }
    for name, call in calls.items():
        with pytest.raises(planq.ArgumentError, match=f"{name}: expected memory on cpu"):
            call()
    assert norm == -7


@torch_warns
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64], ids=str)
def test_whole_numbers_stay_whole(dtype: torch.dtype) -> None:
    """By value and compiled, up to the largest; a fraction is refused, and nothing is written."""
    most = torch.iinfo(dtype).max

    def filled(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        some, steps = torch.zeros(4, dtype=dtype), torch.zeros(4, dtype=dtype)
        OPS.fill(some, value=n)
        OPS.arange(steps, start=n - 6, step=2)
        return some, steps

    torch.compiler.reset()
    compiled = torch.compile(filled, fullgraph=True, backend="aot_eager")
    for call in (filled, compiled):
        some, steps = call(most)
        assert some.tolist() == [most] * 4
        assert steps.tolist() == [most - 6, most - 4, most - 2, most]
    with pytest.raises(planq.ArgumentError, match="value: expected an integer"):
        OPS.fill(some, value=2.5)
    assert some.tolist() == [most] * 4
    real = torch.zeros(2)
    OPS.fill(real, value=3)
    assert real.tolist() == [3, 3]


def test_the_bare_plan_names_this_module() -> None:
    """Where a gradient would be lost."""
    sample = make_sample()
    plan = planq.Plan.select(
        planq.HOST,
        planq.DynamicRangeQuantizeDescriptor(
            shape=sample.x.shape, input_dtype="float32", output_dtype="int8"
        ),
    )
    leaf = torch.from_numpy(sample.x).requires_grad_()
    assert "planq.torch" in plan.can_implement(sample.args(input=leaf)).reason


def test_what_is_written_is_known_to_autograd() -> None:
    """A tensor that backward needs may not change under it."""
    weight, saved = torch.ones(4, requires_grad=True), torch.ones(4)
    loss = (weight * saved).sum()
    OPS.dequantize.out(torch.ones(4, dtype=torch.int8), saved, torch.ones(1), "int8", "float32")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# --- Registration


COMPILED_LATER = """
import sys
import torch
before = set(sys.modules)
import planq.torch, planq.torch.optim
added = {name for name in set(sys.modules) - before if name.split(".")[0] in ("torch", "sympy")}
added |= sys.modules.keys() & {"planq.torch.nn", "planq.checkpoint"}
assert not added, added
call = torch.compile(
    lambda x: planq.torch.quantize_dequantize(x, "int8", q_min=-20),
    fullgraph=True, backend="aot_eager",
)
x = torch.linspace(-1, 1, 64, requires_grad=True)
call(x[None]).sum().backward()
assert "torch._dynamo" in sys.modules and 30 < x.grad.sum() < 64
"""


def test_importing_planq_torch_imports_nothing_of_torch_that_torch_does_not() -> None:
    """Its compiler takes seconds; where it is wanted it comes, and works."""
    command = [sys.executable, "-W", "ignore", "-c", COMPILED_LATER]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_planq_imports_none_of_this() -> None:
    """Nor does planq.torch know an operator by name, but the one with a gradient."""
    names = set(OPERATORS)
    for path in Path(planq.torch.__file__).parent.glob("_*.py"):
        if path.name in ("__init__.py", "_straight_through.py", "_autograd.py"):
            continue
        text = path.read_text()
        found = [name for name in names if f'"{name}"' in text]
        assert not found, f"{path.name}: {found}"


def test_an_operator_that_is_registered_later_is_defined() -> None:
    """The tests' own are."""
    assert OPS.noop.overloads() == ["default", "out"]
    assert OPS.step14.overloads() == ["default"]
    schema = OPS.step14.default._schema
    written = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
    assert {"parameter", "average", "square", "largest", "copy", "step"} <= set(written)
    assert not schema.returns
    assert OPS.noop.out.tags == []


def test_what_operands_may_be_is_what_schemas_say() -> None:
    """No descriptor of any case has a role that the schema does not know."""
    from support.own import ADAPTERS

    for operator, tests in ADAPTERS.items():
        overload = next(
            found
            for name, found in _library.OVERLOADS.items()
            if name in (operator, f"{operator}.out") and not found.allocating
        )
        for case in (*tests.cases(), *tests.empty_cases()):
            for spec in tests.descriptor(case.problem).operands().values():
                assert spec.role in overload.table.operand(spec.name).roles, case.id


def test_shapes_and_lists_as_text() -> None:
    """An operator without results and kernels has a schema too."""
    importlib.import_module("operators.every_kind")
    values = json.dumps([[2, 3], [4]])
    with pytest.raises(planq.NoKernelError):
        OPS.every_kind(torch.ones(10, 2), [3], shape=[10, 2], shapes=values)
    with pytest.raises(planq.NoKernelError):
        OPS.every_kind(torch.ones(10, 2), [3], shape=[10, 2], shapes=values, modes='["symmetric"]')
    with pytest.raises(planq.DescriptorError, match="shapes: expected a JSON list"):
        OPS.every_kind(torch.ones(10, 2), [3], shape=[10, 2], shapes="2, 3")
    for text in ("symmetric", "7"):
        with pytest.raises(planq.DescriptorError, match="modes: expected a sequence of names"):
            OPS.every_kind(torch.ones(10, 2), [3], shape=[10, 2], shapes=values, modes=text)
