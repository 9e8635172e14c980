"""Tables that people read are made from the registry, and are fresh."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import planq
from support import kernels

ROOT = Path(__file__).parent.parent.parent


def test_generated_files_are_fresh() -> None:
    """The matrix, the error list and the stubs; `python docs/generate.py` renews them."""
    result = subprocess.run(
        [sys.executable, "-P", ROOT / "docs" / "generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_matrix_names_every_row_of_every_public_operator() -> None:
    """By its SKU up to the dtypes, where it has some."""
    matrix = (ROOT / "docs" / "matrix.md").read_text()
    for operator in kernels.operators():
        assert f"`{operator.name}`" in matrix
        for kernel in operator.kernels:
            sku = kernel.sku.rpartition("/")[0] if kernel.dtypes else kernel.sku
            assert f"`{sku}`" in matrix


def test_the_error_list_names_every_error_with_its_code() -> None:
    """Codes are meant for programs."""
    errors = (ROOT / "docs" / "errors.md").read_text()
    classes = [
        item
        for item in vars(planq).values()
        if isinstance(item, type) and issubclass(item, planq.PlanqError)
    ]
    assert len(classes) >= 8
    for error in classes:
        assert error.__name__ in errors
        assert error.code in errors


def test_the_stub_of_the_native_module_names_what_it_has() -> None:
    """Golden type stubs."""
    stub = (ROOT / "planq" / "_core.pyi").read_text()
    from planq import _core

    for name in vars(_core):
        if not name.startswith("_"):
            assert name in stub


def _performance(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", root / "docs" / "performance", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_performance_page_is_fresh() -> None:
    """With its pictures and README's figures; `python docs/performance` renews them."""
    result = _performance(ROOT, "--check")
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_record_that_changes_makes_the_performance_page_stale(tmp_path: Path) -> None:
    """All of it is renewed by one command; nothing but the records and README is read."""
    for name in ("docs/performance", "docs/images", "benchmarks/results"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("README.md", "docs/performance.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    assert _performance(tmp_path, "--check").returncode == 0
    for record in (tmp_path / "benchmarks" / "results").rglob("*.json"):
        record.write_text(record.read_text().replace('"torch": "2.', '"torch": "9.'))
    (tmp_path / "docs" / "images" / "left-over.svg").write_text("<svg/>")
    stale = _performance(tmp_path, "--check")
    assert stale.returncode == 1
    for name in ("README.md", "docs/performance.md", "docs/images/left-over.svg"):
        assert f"stale: {name}" in stale.stdout
    assert _performance(tmp_path).returncode == 0
    assert _performance(tmp_path, "--check").returncode == 0
    assert "torch 9." in (tmp_path / "README.md").read_text()


def test_the_performance_page_names_every_target_that_is_missed() -> None:
    """Of the newest measurement of each case."""
    records = [json.loads(path.read_text()) for path in (ROOT / "benchmarks").rglob("*/*/*.json")]
    newest = {}
    for record in sorted((r for r in records if "cases" in r), key=lambda r: r["date"]):
        newest |= {case["name"]: case for case in record["cases"]}
    lines = (ROOT / "docs" / "performance.md").read_text().splitlines()
    missed = [
        (case["name"], target)
        for case in newest.values()
        for target in case["targets"]
        if not target["met"]
    ]
    assert missed
    for name, target in missed:
        found = [line for line in lines if f"| `{name}` |" in line]
        wanted = target["bound"].replace(">=", "≥").replace("<=", "≤")
        words = f"| {wanted} | {target['value']:.3f} |"
        assert any(words in line for line in found), (name, target)


def _product(name: str, m: int, us: float, measures: dict[str, float]) -> dict[str, object]:
    n, k = 64, 32
    floors = {"ceiling": {"gbps": 4000.0}, "peak_tops": 1979.0} if "peak" in measures else {}
    found = [value for measure, value in measures.items() if measure == "cutlass"]
    return {
        "name": f"{name}/{m}x{n}x{k}",
        "error": None,
        "sku": "linear_w8a8/anywhere/tiles",
        "bytes": m * k + n * k + 2 * m * n,
        "gbps": 1.0,
        "us": us,
        "check": {"differing": 0},
        "problem": [m, n, k],
        "tops": 2 * m * n * k / us / 1e6,
        **floors,
        "again_us": us,
        "peers": {"cutlass": {"us": us, "speedup": found[0]}} if found else {},
        "measures": measures,
        "targets": [
            {"measure": "cutlass", "bound": ">= 1.0", "value": value, "met": False}
            for value in found
        ],
    }


def test_the_performance_page_shows_products(tmp_path: Path) -> None:
    """Times and rates by rows, the floor where there is one, and the rest of the page as before."""
    for name in ("docs/performance", "docs/images", "benchmarks/results"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("README.md", "docs/performance.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    gpu = json.loads((ROOT / "benchmarks/results/h200/I1.json").read_text())
    host = json.loads((ROOT / "benchmarks/results/host/host.json").read_text())
    name = "linear_w8a8/s8_bf16"
    gpu["cases"] = [
        _product(f"E1/{name}", 1, 20.0, {"peak": 0.5}),
        _product(f"E1/{name}", 4096, 123.4, {"peak": 0.754, "cutlass": 0.9}),
    ]
    host["cases"] = [_product(f"host/{name}", 16, 7.0, {})]
    for folder, record in (("h200", gpu), ("host", host)):
        record["date"] = "2020-01-01T00:00:00+00:00"
        path = tmp_path / "benchmarks" / "results" / folder / "E1.json"
        path.write_text(json.dumps(record))
    assert _performance(tmp_path).returncode == 0
    lines = (tmp_path / "docs" / "performance.md").read_text().splitlines()
    row = next(line for line in lines if line.startswith(f"| `E1/{name}` |") and "64 × 32" in line)
    assert row.endswith("| 64 × 32 | 20.0 (0.000205) | 123.4 (0.136) |")
    assert any(line.startswith(f"| `E1/{name}` |") and "75.4 %" in line for line in lines)
    assert any(line.startswith(f"| `host/{name}` |") and "7.00 (0.00936)" in line for line in lines)
    assert any(
        "`E1/linear_w8a8/s8_bf16/4096x64x32`" in line and "CUTLASS" in line for line in lines
    )
    assert {"### `linear_w8a8`", "### `linear_w8a8` on the host"} <= set(lines)
    for prefix in ("gpu", "host"):
        ET.parse(tmp_path / "docs" / "images" / f"{prefix}-linear_w8a8.svg")
    for operator in ("quantize", "pack_int4"):
        image = f"docs/images/gpu-{operator}.svg"
        assert (tmp_path / image).read_text() == (ROOT / image).read_text()


def test_pictures_are_plain_svg() -> None:
    """No script, and nothing from elsewhere."""
    pictures = list((ROOT / "docs" / "images").glob("*.svg"))
    assert pictures
    allowed = {"svg", "title", "style", "rect", "line", "text", "path"}
    for picture in pictures:
        tree = ET.fromstring(picture.read_text())
        assert {element.tag.rpartition("}")[2] for element in tree.iter()} <= allowed
        assert "http" not in picture.read_text().replace("http://www.w3.org/2000/svg", "", 1)
        assert tree.findtext("{http://www.w3.org/2000/svg}title")
