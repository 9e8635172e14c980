"""``planq plan``: what is kept of a selection, for devices that are here and for others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import planq
from cli.commands import refuse
from planq.cli import main
from planq.cli.described import example_of
from planq.plan import foresee, verify_foreseen

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]
DESC = planq.MatmulDescriptor(
    input_shape=(64, 512), weight_shape=(256, 512), input_dtype="float16", output_dtype="float16"
)
# Of its rows, one promises the bits and one, which is as fast elsewhere, a bound on their error.
FAST = "matmul/cuda/mma/f16"
HAS_CUDA = planq.build_info().cuda


def answer(capsys: Capture, status: int, *arguments: object) -> str:
    """What a command prints that ends with a status, and nothing on stderr."""
    assert main(["plan", *map(str, arguments)]) == status
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


@pytest.fixture
def desc(tmp_path: Path) -> Path:
    """A file with the descriptor."""
    path = tmp_path / "desc.json"
    path.write_text(DESC.to_json())
    return path


# Without those of other tests.
OPERATORS = [
    operator.name
    for operator in planq.operators()
    if operator.descriptor.__module__.startswith("planq.")
]


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_is_foreseen_is_what_is_selected(operator: str) -> None:
    """Every part, for each operator: a plan file for a device is made on any machine."""
    wanted = example_of(operator)
    plan = planq.Plan.select(planq.HOST, wanted)
    assert foresee(wanted, None, "host") == plan.to_dict()
    assert planq.Plan.from_json(planq.HOST, json.dumps(foresee(wanted, None, "host")))
    assert verify_foreseen(plan.to_json(), "host") == plan.to_dict()


@pytest.mark.parametrize(
    ("options", "preference"),
    [
        (("--determinism", "bit-exact"), {"determinism": "bit_exact"}),
        (("--batch-invariant",), {"batch_invariant": True}),
        (("--max-ulp", 0), {"max_ulp": 0}),
        (("--max-workspace-bytes", 4096), {"max_workspace_bytes": 4096}),
        (("--backend", "host"), {"backend": "host"}),
    ],
)
def test_a_plan_is_saved_under_a_preference(
    desc: Path, tmp_path: Path, capsys: Capture, options: tuple[Any, ...], preference: Any
) -> None:
    """Which the file keeps, and which a plan that is saved again from it keeps too."""
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    answer(capsys, 0, "save", desc, first, *options)
    kept = {**planq.PlanPreference().to_dict(), **preference}
    assert json.loads(first.read_text())["preference"] == kept
    answer(capsys, 0, "save", first, second)
    assert second.read_text() == first.read_text()
    answer(capsys, 0, "verify", first, second)


def test_a_preference_that_nothing_meets_leaves_no_file(
    desc: Path, tmp_path: Path, capsys: Capture
) -> None:
    target = tmp_path / "plan.json"
    for device in ("host", "sm_90"):
        line = refuse(capsys, "plan", "save", desc, target, "--sku", "no/row", "--device", device)
        assert "no kernel of matmul is called 'no/row'" in line
    assert "did you mean bit_exact" in refuse(
        capsys, "plan", "save", desc, target, "--determinism", "bit_exat"
    )
    assert "device: " in refuse(capsys, "plan", "save", desc, target, "--device", "sm_9O")
    assert not target.exists()


@pytest.mark.parametrize("device", ["sm_80", "sm_90"])
def test_a_plan_is_saved_for_a_device_that_is_not_here(
    desc: Path, tmp_path: Path, capsys: Capture, device: str
) -> None:
    target = tmp_path / "plan.json"
    chosen = planq.explain(DESC, device=device).chosen
    assert (chosen is not None) == HAS_CUDA
    if chosen is None:
        line = refuse(capsys, "plan", "save", desc, target, "--device", device)
        assert "no kernel of matmul" in line
        return
    said = answer(capsys, 0, "save", desc, target, "--device", device)
    assert said == f"{target}: {chosen.sku}, revision {chosen.revision}\n"
    assert answer(capsys, 0, "verify", target, "--device", device) == (
        f"{target}: holds: {chosen.sku}\n"
    )
    assert "sku: stored" in answer(capsys, 1, "verify", target)  # another kernel on the host


def test_the_bound_of_a_foreseen_plan_has_its_terms() -> None:
    """A plan on the device says how many there are; without them no file would hold there."""
    pref = planq.PlanPreference(sku=FAST)
    if not HAS_CUDA:
        with pytest.raises(planq.NoKernelError, match="no kernel of matmul is called"):
            foresee(DESC, pref, "sm_80")
        return
    stored = foresee(DESC, pref, "sm_80")
    assert stored["guarantee"]["error_bound"]["terms"] == 512
    (kernels,) = (each.kernels for each in planq.operators() if each.name == "matmul")
    bound = next(row.guarantee.error_bound for row in kernels if row.sku == FAST)
    assert bound is not None
    assert bound.terms is None


def test_a_verdict_is_printed_for_programs(desc: Path, tmp_path: Path, capsys: Capture) -> None:
    """Of each file: whether it holds, and each part that differs."""
    first, second, third = (tmp_path / name for name in ("a.json", "b.json", "c.json"))
    answer(capsys, 0, "save", desc, first)
    stored = json.loads(first.read_text())
    second.write_text(json.dumps({**stored, "revision": 99}))
    third.write_text(json.dumps({**stored, "preference": {"sku": "no/row"}}))
    sku = stored["sku"]
    verdicts = json.loads(answer(capsys, 1, "verify", first, second, third, "--json"))
    assert verdicts["device"] == "host"
    holds, differs, none = verdicts["plans"]
    assert holds == {
        "file": str(first),
        "holds": True,
        "stored": sku,
        "now": sku,
        "reason": None,
        "differences": [],
    }
    assert (differs["holds"], differs["now"]) == (False, sku)
    assert differs["differences"] == [
        {"field": "revision", "stored": 99, "now": stored["revision"]}
    ]
    assert "revision: stored 99" in differs["reason"]
    assert (none["holds"], none["now"], none["differences"]) == (False, None, [])
    assert "selects no kernel" in none["reason"]
    assert json.loads(answer(capsys, 0, "verify", first, "--json"))["plans"] == [holds]
