"""Tables that people read are made from the registry, and are fresh."""

from __future__ import annotations

import json
import re
import shutil
import string
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import planq
from planq.audit import kernels

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


def test_the_matrix_names_every_kernel_of_every_public_operator() -> None:
    """By its SKU up to the dtypes, where it has some, with its body in that line."""
    matrix = (ROOT / "docs" / "matrix.md").read_text()
    for operator in kernels.operators():
        assert f"`{operator.name}`" in matrix
        for kernel in operator.kernels:
            sku = kernel.sku.rpartition("/")[0] if kernel.dtypes else kernel.sku
            lines = [line for line in matrix.splitlines() if line.startswith(f"| `{sku}` |")]
            assert any(f" {kernel.body}" in line for line in lines), (sku, kernel.body)


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


def _copy(root: Path) -> None:
    """All that the page is made of, and what was made."""
    for name in ("docs/performance", "docs/images", "benchmarks/results"):
        shutil.copytree(ROOT / name, root / name)
    for name in ("README.md", "docs/performance.md"):
        shutil.copy(ROOT / name, root / name)


def test_a_record_that_changes_makes_the_performance_page_stale(tmp_path: Path) -> None:
    """All of it is renewed by one command; nothing but the records and README is read."""
    _copy(tmp_path)
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


def _parts(root: Path) -> dict[str, list[str]]:
    """The lines of the page by what each of its parts is about."""
    text = (root / "docs" / "performance.md").read_text()
    found = [part.partition("\n") for part in text.split("\n## ")[1:]]
    return {re.sub("^On (an|the) ", "", head): body.splitlines() for head, _, body in found}


def test_the_performance_page_names_every_target_that_is_missed() -> None:
    """Of the newest measurement of each case on each GPU."""
    records = [json.loads(path.read_text()) for path in (ROOT / "benchmarks").rglob("*/*/*.json")]
    newest = {}
    for record in sorted((r for r in records if "cases" in r), key=lambda r: r["date"]):
        machine = record["machine"]["name"]
        newest |= {(machine, case["name"]): case for case in record["cases"]}
    parts = _parts(ROOT)
    missed = [
        (*key, target)
        for key, case in newest.items()
        for target in case["targets"]
        if not target["met"]
    ]
    assert missed
    for machine, name, target in missed:
        found = [line for line in parts[machine] if f"| `{name}` |" in line]
        wanted = target["bound"].replace(">=", "≥").replace("<=", "≤")
        words = f"| {wanted} | {target['value']:.3f} |"
        assert any(words in line for line in found), (machine, name, target)


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
    _copy(tmp_path)
    gpu = json.loads((ROOT / "benchmarks/results/h200/I1.json").read_text())
    host = json.loads((ROOT / "benchmarks/results/host/host.json").read_text())
    name = "linear_w8a8/s8_f64"
    gpu["cases"] = [
        _product(f"E1/{name}", 1, 20.0, {"peak": 0.5}),
        _product(f"E1/{name}", 4096, 123.4, {"peak": 0.754, "cutlass": 0.9}),
    ]
    host["cases"] = [_product(f"host/{name}", 16, 7.0, {})]
    for folder, record in (("h200", gpu), ("host", host)):
        record["date"] = "2020-01-01T00:00:00+00:00"
        path = tmp_path / "benchmarks" / "results" / folder / "products.json"
        path.write_text(json.dumps(record))
    assert _performance(tmp_path).returncode == 0
    lines = (tmp_path / "docs" / "performance.md").read_text().splitlines()
    row = next(line for line in lines if line.startswith(f"| `E1/{name}` |") and "64 × 32" in line)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    known = [cell for cell in cells if cell != "–"]
    assert known[-3:] == ["64 × 32", "20.0 (0.000205)", "123.4 (0.136)"]
    assert any(line.startswith(f"| `E1/{name}` |") and "75.4 %" in line for line in lines)
    assert any(line.startswith(f"| `host/{name}` |") and "7.00 (0.00936)" in line for line in lines)
    assert any("`E1/linear_w8a8/s8_f64/4096x64x32`" in line and "CUTLASS" in line for line in lines)
    assert {"### `linear_w8a8`", "### `linear_w8a8` on the host"} <= set(lines)
    for prefix in ("gpu", "host"):
        ET.parse(tmp_path / "docs" / "images" / f"{prefix}-linear_w8a8.svg")
    for operator in ("quantize", "pack_int4"):
        image = f"docs/images/gpu-{operator}.svg"
        assert (tmp_path / image).read_text() == (ROOT / image).read_text()


OTHER = "NVIDIA Another GPU"


def _other_gpu(**changes: object) -> dict[str, object]:
    """A newer record of the H200's, as a GPU that nobody has would have given it."""
    record = json.loads((ROOT / "benchmarks/results/h200/I1.json").read_text())
    record["machine"]["name"] = OTHER
    return {**record, "date": "2099-01-01T00:00:00+00:00", **changes}


def _write(root: Path, folder: str, name: str, record: dict[str, object]) -> None:
    path = root / "benchmarks" / "results" / folder / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(record))


def _cases(name: str) -> list[dict[str, Any]]:
    """Those of a record of the H200."""
    record = json.loads((ROOT / "benchmarks" / "results" / "h200" / f"{name}.json").read_text())
    return list(record["cases"])


def _without_letters(lines: list[str]) -> list[str]:
    """Lines of the page without the column that says which run a row is of."""
    return [re.sub(r"\| [a-z]{1,2}(, [a-z]{1,2})* \|", "|", line) for line in lines]


def _language_model(**others: Any) -> dict[str, Any]:
    """What llm.py records, of one step and of a prompt."""
    us = {"planq": 250.0, "planq drawn": 300.0, "transformers reduce-overhead": 500.0}
    rates = {name: 64e6 / each for name, each in us.items()}
    measured = {"us": us, "tokens_per_second": rates, "promise_costs": 12.34, "speedup": 2.0}
    measured["fastest_peer"] = "transformers reduce-overhead"
    prompt = {"planq": 5000.0, "transformers reduce-overhead": 2500.0}
    entries = [
        {"part": "decode", "texts": 64, "context": 256, "written": 128, **measured},
        {
            "part": "prompt",
            "tokens": 512,
            "us": prompt,
            "tokens_per_second": {name: 512e6 / each for name, each in prompt.items()},
            "promise_costs": 0.04,
            "speedup": 0.5,
            "fastest_peer": "transformers reduce-overhead",
        },
    ]
    return {
        "entries": entries,
        "other_plans": [],
        "failed": {},
        "logits_cosine": 0.9987654,
    } | others


def test_the_performance_page_shows_a_language_model(tmp_path: Path) -> None:
    """Beside transformers, with what promises cost; what failed and what is missing is said."""
    _copy(tmp_path)
    for other in (tmp_path / "benchmarks" / "results").glob("*/llm*.json"):
        other.unlink()
    record = json.loads((ROOT / "benchmarks/results/h200/I1.json").read_text())
    del record["cases"]
    record["machine"]["name"], record["model"] = "NVIDIA Z9", "drawn"
    record["software"]["transformers"] = "5.1"

    def lines(**others: Any) -> list[str]:
        folder = tmp_path / "benchmarks" / "results" / "z9"
        folder.mkdir(exist_ok=True)
        (folder / "llm.json").write_text(json.dumps(record | {"llm": _language_model(**others)}))
        assert _performance(tmp_path).returncode == 0
        return _parts(tmp_path)["A language model beside transformers"]

    found = lines()
    told = " ".join(found)
    assert "On an NVIDIA Z9, torch " in told
    assert ", transformers 5.1: a model of random weights with the shapes and types of " in told
    assert "The cosine of both logits behind a prompt is 0.99877." in told
    assert "so the difference is 0 %." in told
    table = [line for line in found if line.startswith("|")]
    assert table[0] == "|  | planq | planq drawn | transformers reduce-overhead | × |"
    assert table[2] == (
        "| 64 texts, 128 tokens after 256 | 256000 (250.0 µs) | 213333 (300.0 µs) "
        "| 128000 (500.0 µs) | 2.00 |"
    )
    assert table[3].startswith("| a prompt of 512 | 102400 (5000 µs) |  | 204800 ")
    assert table[3].endswith(" | **0.50** |")
    found = lines(other_plans=[["a", "b", "c"]], failed={"prompt, transformers x": "Error: no"})
    table = [line for line in found if line.startswith("|")]
    assert [line.split("|")[-2].strip() for line in table[2:]] == ["12.3 %", "0.0 %"]
    told = " ".join(found)
    assert "1 of the plans have another kernel" in told
    assert "Not measured, as they failed: prompt, transformers x (Error: no)." in told
    record["software"]["transformers"] = "none"
    assert "transformers was not installed" in " ".join(lines(logits_cosine=None))


def test_each_gpu_has_a_part_of_the_performance_page(tmp_path: Path) -> None:
    """A newer run on another GPU takes nothing from the first: no figure, no picture."""
    _copy(tmp_path)
    product = _product("E1/linear_w8a8/s8_bf16", 16, 20.0, {"peak": 0.5, "cutlass": 0.9})
    cases = [case for case in _cases("I1") if case["name"].startswith("I1/pack_int4/")]
    for case in cases:
        case["us"] = 9876.0
    _write(tmp_path, "another", "I1", _other_gpu(cases=[*cases, product]))
    assert _performance(tmp_path).returncode == 0
    before, after = _parts(ROOT), _parts(tmp_path)
    names = list(before)
    assert list(after) == [*names[: names.index("host")], OTHER, *names[names.index("host") :]]
    for name in names:
        assert _without_letters(after[name]) == _without_letters(before[name])
    for image in (ROOT / "docs" / "images").glob("*.svg"):
        assert (tmp_path / "docs" / "images" / image.name).read_text() == image.read_text()
    text = "\n".join(after[OTHER])
    assert text.count("| 9876 |") == len({case["name"].rpartition("/")[0] for case in cases})
    assert "| `E1/linear_w8a8/s8_bf16/16x64x32` | a | CUTLASS | ≥ 1.0 | 0.900 |" in text
    assert "Its *floor* is" in text
    assert "Small sizes" not in text
    for operator in ("pack_int4", "linear_w8a8"):
        assert f"### `{operator}` on an {OTHER}" in after[OTHER]
        assert f"(images/another-{operator}.svg)" in text
        ET.parse(tmp_path / "docs" / "images" / f"another-{operator}.svg")
    lines = (tmp_path / "docs" / "performance.md").read_text().splitlines()
    heads = [line for line in lines if line.startswith("#")]
    assert len(heads) == len(set(heads))
    assert OTHER not in (tmp_path / "README.md").read_text()


def test_small_sizes_of_another_gpu_have_a_picture_of_their_own(tmp_path: Path) -> None:
    """Where it has measured any."""
    _copy(tmp_path)
    small = [case for case in _cases("A1") if case["name"].endswith("/1x4096")]
    assert small
    _write(tmp_path, "another", "A1", _other_gpu(cases=small))
    assert _performance(tmp_path).returncode == 0
    lines = _parts(tmp_path)[OTHER]
    assert f"### Small sizes on an {OTHER}" in lines
    assert "![another-small: microseconds of one launch](images/another-small.svg)" in lines
    assert "|  |" not in lines
    for name in ("small", "gpu-dynamic_range_quantize"):
        image = f"docs/images/{name}.svg"
        assert (tmp_path / image).read_text() == (ROOT / image).read_text()


def test_two_gpus_do_not_share_a_folder(tmp_path: Path) -> None:
    """Their pictures would have the same names."""
    _copy(tmp_path)
    _write(tmp_path, "host", "I1", _other_gpu())
    result = _performance(tmp_path)
    assert result.returncode == 1
    assert "each GPU needs a folder of its own" in result.stderr


def test_runs_beyond_z_have_two_letters(tmp_path: Path) -> None:
    """The newest is a; behind z comes aa."""
    _copy(tmp_path)
    for day in range(1, 31):
        record = _other_gpu(date=f"2098-01-{day:02}T00:00:00+00:00")
        _write(tmp_path, "another", f"I1-{day}", record)
    assert _performance(tmp_path).returncode == 0
    rows = [re.match(r"\| ([a-z]+) \| 2098-", line) for line in _parts(tmp_path)[OTHER]]
    letters = [row[1] for row in rows if row]
    assert letters == [*string.ascii_lowercase, "aa", "ab", "ac", "ad"]


def test_runs_that_began_together_on_two_gpus_are_two(tmp_path: Path) -> None:
    """Of one build, in the same second."""
    _copy(tmp_path)
    record = json.loads((ROOT / "benchmarks/results/h200/I1.json").read_text())
    _write(tmp_path, "another", "I1", _other_gpu(date=record["date"]))
    assert _performance(tmp_path).returncode == 0
    parts = _parts(tmp_path)
    for gpu, folder in (("NVIDIA H200", "h200"), (OTHER, "another")):
        records = [line for line in parts[gpu] if "results/" in line]
        assert any(f"results/{folder}/I1.json" in line for line in records)
        assert all(f"results/{folder}/" in line for line in records)


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
