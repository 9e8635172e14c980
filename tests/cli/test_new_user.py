"""The command line as somebody tries it who has never seen it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import planq
from cli.commands import refuse
from cli.test_terminal import in_terminal
from planq.cli import main

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]
COMMANDS = (
    *("quantize", "scale", "verify", "dequantize", "inspect", "layers"),
    *("info", "ops", "explain", "audit", "run"),
)
DESC = planq.MinMaxDescriptor(shape=(16, 4096), input_dtype="float16")


def told(capsys: Capture, *arguments: object) -> str:
    """What a command prints that does its work."""
    assert main([str(argument) for argument in arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def test_h_is_help(capsys: Capture) -> None:
    for command in COMMANDS:
        assert told(capsys, command, "-h") == told(capsys, command, "--help")
    for command in ("save", "verify", "diff"):
        assert "PLAN" in told(capsys, "plan", command, "-h") or command == "diff"


def test_completion_is_installed(tmp_path: Path) -> None:
    """In the home folder, for a shell that is named."""
    done = subprocess.run(
        [sys.executable, "-m", "planq.cli", "--install-completion", "bash"],
        # typer would ask which shell runs the tests: under make there may be none that it knows.
        env={
            **os.environ,
            "HOME": str(tmp_path),
            "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "planq" in (tmp_path / ".bash_completions" / "planq.sh").read_text()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("quantize a b --scheme int8", "did you mean int8-channel or int8-tensor?"),
        ("quantize a b --scheme nf5", "did you mean nf4?"),
        ("quantize a b --scheme nf4 --device cuda", "did you mean cuda:0?"),
        ("quantize a b --scheme nf4 --format compressed_tensors", "mean compressed-tensors?"),
        ("dequantize a b --dtype bf16", "did you mean bfloat16?"),
        ("explain --example minmax", "did you mean min_max?"),
        ("explain --example min_max --device cuda", "did you mean cuda:0?"),
        ("explain --example min_max --determinism exact", "did you mean bit_exact?"),
        ("ops quantise", "did you mean quantize"),
        ("ops --input bf16", "did you mean bfloat16?"),
        ("quantise", "Did you mean 'quantize'"),
        ("plan verfy", "Did you mean 'verify'?"),
    ],
)
def test_a_misspelt_word_gets_the_nearest(capsys: Capture, arguments: str, hint: str) -> None:
    status = main(arguments.split())
    error = capsys.readouterr().err
    assert status == 2
    assert hint in error
    assert error.count("\n") == 1
    assert "Error" not in error
    assert "error," not in error


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"scope": "token"}, "; did you mean planq.Scope.token()?"),
        ({"scope": "chanel"}, "; did you mean planq.Scope.channel()?"),
        ({"mode": "symetric"}, "; did you mean SYMMETRIC or ASYMMETRIC?"),
        ({"output_dtype": "fp8"}, "; did you mean float8_e4m3fn?"),
        ({"input_dtype": "bf16"}, "; did you mean bfloat16?"),
        ({"quotient": "xyz"}, "got 'xyz'"),
    ],
)
def test_python_suggests_too(fields: dict[str, str], hint: str) -> None:
    given = {"shape": (4, 4), "input_dtype": "float32", "output_dtype": "int8", **fields}
    with pytest.raises(planq.DescriptorError) as caught:
        planq.DynamicRangeQuantizeDescriptor(**given)
    assert str(caught.value).endswith(hint)


def test_ops_fits_one_screen(capsys: Capture) -> None:
    """All of them, and any of them."""
    lines = told(capsys, "ops").splitlines()
    first = [line.split()[0] for line in lines if line.split()]
    public = [each for each in planq.operators() if each.descriptor.__module__.startswith("planq.")]
    assert {each.name for each in public} <= set(first)
    assert len(lines) <= len(planq.operators()) + 8
    for operator in planq.operators():
        shown = told(capsys, "ops", operator.name).splitlines()
        assert len(shown) <= 50
        assert shown[0].startswith(operator.name)
        assert not any(":class:" in line for line in shown)
    shown = told(capsys, "ops", "arange") + told(capsys, "ops", "arange", "--all")
    assert "BIT_EXACT" in shown
    assert "batch-invariant" not in shown  # a plan's promise: here, none's


def test_ops_is_filtered(capsys: Capture) -> None:
    """Every filter leaves what it says, and no filter leaves all."""

    def kernels(*options: str) -> list[dict[str, object]]:
        made = json.loads(told(capsys, "ops", "dynamic_range_quantize", *options, "--json"))
        rows: list[dict[str, object]] = made[0]["kernels"]
        return rows

    every = kernels()
    chosen = kernels("--input", "bfloat16", "--output", "int8", "--backend", "host")
    assert {str(row["sku"]).rpartition("/")[2] for row in chosen} == {"bf16_s8", "bf16_s8_f16"}
    assert {row["backend"] for row in kernels("--device", "host")} == {"host"}
    assert all(row["backend"] == "cuda" for row in kernels("--device", "sm_80"))
    assert len(chosen) < len(kernels("--backend", "host")) <= len(every)


def test_every_operator_has_an_example(capsys: Capture) -> None:
    for operator in planq.operators():
        if operator.descriptor.__module__.startswith("planq."):
            text = told(capsys, "explain", "--example", operator.name)
            desc = planq.Descriptor.from_json(text.splitlines()[0])
            assert desc.operator == operator.name
            assert str(planq.explain(desc)) in text
    line = refuse(capsys, "explain", "--example", "min_max", "-")
    assert "expected no descriptor beside it" in line


def test_explain_never_waits_for_a_terminal_in_silence(tmp_path: Path) -> None:
    status, shown = in_terminal(100, "explain")
    assert status == 2
    assert "no descriptor: name a file, or - for the terminal" in " ".join(shown.split())


def test_plans_are_saved_verified_and_compared(tmp_path: Path, capsys: Capture) -> None:
    desc, first, second = (tmp_path / name for name in ("d.json", "a.json", "b.json"))
    desc.write_text(DESC.to_json())
    sku = planq.Plan.select(planq.HOST, DESC).sku
    assert told(capsys, "plan", "save", desc, first) == f"{first}: {sku}, revision 1\n"
    assert "exists; --force replaces it" in refuse(capsys, "plan", "save", desc, first)
    assert told(capsys, "plan", "verify", first) == f"{first}: holds: {sku}\n"
    assert told(capsys, "plan", "diff", first, first) == "equal\n"
    assert sku in told(capsys, "explain", first)
    stored = json.loads(first.read_text())
    stored["build_id"] = "another"
    stored["descriptor"]["shape"] = [16, 8]
    second.write_text(json.dumps(stored))
    assert main(["plan", "diff", str(first), str(second)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["build_id", "descriptor.shape"]
    assert main(["plan", "verify", str(first), str(second)]) == 1
    assert "build_id: stored 'another'" in capsys.readouterr().out
    assert "not a stored plan" in refuse(capsys, "plan", "diff", desc, first)
    assert "not a stored plan" in refuse(capsys, "plan", "verify", desc)
    assert "No such file" in refuse(capsys, "plan", "verify", tmp_path / "none")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shape": None}, "shape: min_max needs this field"),
        ({"shap": [4]}, "shap: min_max has no such field; did you mean shape?"),
        ({"scope": "token"}, "got 'token'; did you mean planq.Scope.token()?"),
        ({"op": "minmax"}, "minmax"),
    ],
)
def test_a_descriptor_that_is_none_is_refused_in_a_sentence(
    tmp_path: Path, capsys: Capture, change: dict[str, object], said: str
) -> None:
    values = {**DESC.to_dict(), **change}
    path = tmp_path / "d.json"
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    line = refuse(capsys, "explain", path)
    assert said in line
    assert "__init__" not in line
    assert "Error" not in line
