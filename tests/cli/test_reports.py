"""`planq info`, `planq ops` and `planq explain`."""

from __future__ import annotations

import io
import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import planq
from planq import machine
from planq.cli import main

Capture = pytest.CaptureFixture[str]

DESC = planq.DynamicRangeQuantizeDescriptor(
    shape=(4096, 8192), input_dtype="bfloat16", output_dtype="int8", scope=planq.Scope.token()
)


def succeed(capsys: Capture, *arguments: object) -> str:
    """Runs the command line and returns what it printed; it may not complain."""
    status = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert (status, printed.err) == (0, "")
    return printed.out


@pytest.fixture
def descriptor(tmp_path: Path) -> Path:
    """A file that holds a descriptor."""
    path = tmp_path / "descriptor.json"
    path.write_text(DESC.to_json())
    return path


def test_info_shows_the_build_and_the_backends(capsys: Capture) -> None:
    build = planq.build_info()
    told = succeed(capsys, "info")
    for word in (build.version, build.build_id, "backend host", "ready", "backend cuda"):
        assert word in told
    report = json.loads(succeed(capsys, "info", "--json"))
    assert report["build"]["version"] == build.version
    assert report["build"]["cuda"] == build.cuda
    assert report["backends"]["host"] == "ready"
    assert len(report["devices"]) == len(planq.devices())


def test_info_names_the_machine_and_the_bytes_of_the_library(capsys: Capture) -> None:
    """As the system's own programs do."""
    report = json.loads(succeed(capsys, "info", "--json"))
    library = Path(planq.__file__).with_name("libplanq.so")
    summed = subprocess.run(["sha256sum", library], capture_output=True, text=True, check=True)
    assert report["library_sha256"] == summed.stdout.split()[0]
    named = subprocess.run(["uname", "-srm"], capture_output=True, text=True, check=True)
    assert report["machine"]["os"].endswith(named.stdout.strip())
    assert report["machine"]["processor"]
    told = "".join(succeed(capsys, "info").split())  # a table folds what is long
    for fact in (report["library_sha256"], *report["machine"].values()):
        assert "".join(fact.split()) in told


def test_info_names_the_instruction_sets_that_linux_lists(capsys: Capture) -> None:
    """Those of host kernels; AMX is asked for, and Linux may refuse it."""
    needed = {
        "avx2": ("avx2", "fma", "f16c"),
        "avx512": ("avx512f", "avx512bw", "avx512vl", "avx512dq"),
        "avx512_vnni": ("avx512_vnni",),
        "amx": ("amx_tile", "amx_int8"),
    }
    listed = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    expected = ["baseline", *(name for name, flags in needed.items() if {*flags} <= {*listed})]
    told = json.loads(succeed(capsys, "info", "--json"))["machine"]["instruction_sets"].split()
    assert told in (expected, [name for name in expected if name != "amx"])


NVIDIA = """
#include <string.h>
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  strncpy(text, "580.95.05", size);
  return 0;
}
int cuDriverGetVersion(int *version) {
  *version = 12090;
  return 0;
}
"""


def libraries(monkeypatch: pytest.MonkeyPatch, folder: Path, init: int) -> None:
    """Puts a library in the place of the driver's two; NVML starts with this status."""
    source, library = folder / "nvidia.c", folder / f"nvidia{init}.so"
    source.write_text(NVIDIA)
    command = ["cc", "-shared", "-fPIC", f"-DINIT={init}", "-o", library, source]
    subprocess.run(command, check=True)
    monkeypatch.setattr(machine, "_NVML", str(library))
    monkeypatch.setattr(machine, "_CUDA", str(library))


def test_info_names_the_driver(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As NVML and the driver say it, and none where they say nothing."""
    libraries(monkeypatch, tmp_path, init=0)
    told = json.loads(succeed(capsys, "info", "--json"))["machine"]
    assert (told["driver"], told["driver_cuda"]) == ("580.95.05", "12.9")
    assert ["driver_cuda", "12.9"] in [
        line.split() for line in succeed(capsys, "info").splitlines()
    ]
    libraries(monkeypatch, tmp_path, init=9)
    assert json.loads(succeed(capsys, "info", "--json"))["machine"]["driver"] == ""
    monkeypatch.setattr(machine, "_NVML", str(tmp_path / "absent.so"))
    monkeypatch.setattr(machine, "_CUDA", str(tmp_path / "absent.so"))
    told = json.loads(succeed(capsys, "info", "--json"))["machine"]
    assert (told["driver"], told["driver_cuda"]) == ("", "")
    assert ["driver_cuda", "none"] in [
        line.split() for line in succeed(capsys, "info").splitlines()
    ]


def test_info_names_the_processor_as_linux_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And as Python does where there is no name."""
    listed = tmp_path / "cpuinfo"
    monkeypatch.setattr(machine, "_CPUINFO", listed)
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "an architecture")
    assert machine.processor() == "an architecture"
    listed.write_text("processor\t: 0\nBogoMIPS\t: 50.00\n")
    assert machine.processor() == "an architecture"
    listed.write_text("processor\t: 0\nmodel name\t: A Processor @ 2 GHz: fast\n")
    assert machine.processor() == "A Processor @ 2 GHz: fast"


def test_info_lists_devices(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    device = planq.DeviceFacts(
        name="A GPU",
        arch=90,
        multiprocessors=132,
        shared_memory_per_block=232448,
        l2_bytes=60 << 20,
        index=1,
    )
    monkeypatch.setattr(planq, "devices", lambda: (device,))
    told = succeed(capsys, "info")
    for word in ("cuda:1", "A GPU", "sm_90", "132", "232 kB", "62.9 MB"):
        assert word in told
    assert json.loads(succeed(capsys, "info", "--json"))["devices"][0]["arch"] == 90


def test_ops_shows_every_row_of_the_registry(capsys: Capture) -> None:
    told = succeed(capsys, "ops", "--all")
    report = {
        operator["name"]: operator for operator in json.loads(succeed(capsys, "ops", "--json"))
    }
    for operator in planq.operators():
        assert operator.name in told
        rows = {(row["sku"], row["body"]): row for row in report[operator.name]["kernels"]}
        assert list(rows) == [(kernel.sku, kernel.body) for kernel in operator.kernels]
        for kernel in operator.kernels:
            assert kernel.sku in told
            assert rows[kernel.sku, kernel.body]["guarantee"] == kernel.guarantee.to_dict()


@pytest.mark.parametrize("device", ["host", "sm_80", "sm_90"])
def test_explain_prints_the_selection_without_a_gpu(
    capsys: Capture, descriptor: Path, device: str
) -> None:
    selection = planq.explain(DESC, device=device)
    status = main(["explain", str(descriptor), "--device", device])
    assert capsys.readouterr().out == f"{selection}\n"
    assert status == (0 if selection.chosen else 1)


def test_explain_reads_standard_input(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in ((), ("-",)):
        monkeypatch.setattr("sys.stdin", io.StringIO(DESC.to_json()))
        report = json.loads(succeed(capsys, "explain", *arguments, "--json"))
        assert report == json.loads(json.dumps(planq.explain(DESC).to_dict()))


@pytest.mark.parametrize(
    ("options", "preference"),
    [
        ((), planq.PlanPreference()),
        (("--determinism", "bit-exact"), planq.PlanPreference(determinism=planq.Determinism(3))),
        (("--batch-invariant",), planq.PlanPreference(batch_invariant=True)),
        (("--max-ulp", "0"), planq.PlanPreference(max_ulp=0)),
        (("--max-workspace-bytes", "0"), planq.PlanPreference(max_workspace_bytes=0)),
        (("--backend", "cuda"), planq.PlanPreference(backend=planq.Backend.CUDA)),
        (("--sku", "no.such/row"), planq.PlanPreference(sku="no.such/row")),
        (("--body", "rows"), planq.PlanPreference(body="rows")),
    ],
)
def test_explain_takes_every_preference(
    capsys: Capture, descriptor: Path, options: tuple[str, ...], preference: planq.PlanPreference
) -> None:
    selection = planq.explain(DESC, preference)
    status = main(["explain", str(descriptor), *options, "--json"])
    assert status == (0 if selection.chosen else 1)
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads(json.dumps(selection.to_dict()))


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("{", (), "not JSON"),
        ("[1]", (), "op: "),
        ('{"op": "no_such_operator"}', (), "op: "),
        (DESC.to_json().replace('"int8"', '"int7"'), (), "output_dtype: "),
        (DESC.to_json(), ("--device", "abacus"), "abacus"),
        (DESC.to_json(), ("--determinism", "lucky"), "--determinism: expected one of"),
        (DESC.to_json(), ("--backend", "abacus"), "'abacus' is not one of"),
        (DESC.to_json(), ("--max-ulp", "-1"), "--max-ulp"),
        (DESC.to_json(), ("--max-ulp", "9" * 5000), "--max-ulp"),
        (DESC.to_json(), ("--max-ulp", "9" * 30), "max_ulp: expected an integer"),
        (DESC.to_json(), ("--sku", ""), "sku: expected a name"),
        (DESC.to_json(), ("--sku", "\ud800"), "an argument"),
        (DESC.to_json(), ("--device", "\ud800"), "an argument"),
        (DESC.to_json(), ("--device", "gr\u00fcn"), "gr\u00fcn"),
        ("[" * 100_000, (), "op: not JSON"),
        ('{"op": "a\\n\\u001b[31m"}', (), r"no operator is called 'a\n\x1b[31m'"),
        ('{"op": "pack_int4", "a\\n": 1}', (), r"'a\n': pack_int4 has no such field"),
        ('{"op": "\\ud800"}', (), "op: not JSON: half a surrogate pair"),
    ],
    ids=[
        *("json", "list", "op", "dtype", "device", "determinism", "backend", "ulp", "many digits"),
        *(
            "64 bits",
            "no sku",
            "sku",
            "device no text",
            "device no name",
            "deep",
            "steers",
            "field",
            "half a letter",
        ),
    ],
)
def test_explain_refuses_in_one_line(
    capsys: Capture, tmp_path: Path, text: str, options: tuple[str, ...], said: str
) -> None:
    path = tmp_path / "descriptor.json"
    path.write_text(text)
    assert main(["explain", str(path), *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("planq: error: ")
    assert printed.err.count("\n") == 1
    assert said in printed.err


def test_explain_refuses_files_that_are_no_text(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "descriptor.json"
    path.write_bytes(b"\xff\xfe\x00")
    assert main(["explain", str(path)]) == 2
    assert "not UTF-8 text" in capsys.readouterr().err
    assert main(["explain", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_explain_without_standard_input_is_an_error(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # as Python starts where it is closed
    assert main(["explain"]) == 2
    assert capsys.readouterr().err == "planq: error: stdin is closed\n"


def test_version_and_help(capsys: Capture) -> None:
    assert succeed(capsys, "--version") == f"{planq.build_info().version}\n"
    for command in ("quantize", "dequantize", "info", "ops", "explain"):
        assert "--json" in succeed(capsys, command, "--help")
        assert command in succeed(capsys, "--help")


def test_no_command_is_an_error_that_shows_the_help(capsys: Capture) -> None:
    assert main([]) == 2
    assert "quantize" in capsys.readouterr().out
    assert main(["launder"]) == 2
    assert "No such command 'launder'" in capsys.readouterr().err
