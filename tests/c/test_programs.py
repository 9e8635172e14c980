"""Programs in C and C++: the header, the CMake package, and the example engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import planq
from c import programs
from c.engine import digests, results
from c.programs import ROOT, STRICT, place, run
from planq.audit.reference import inputs
from support.docs import fenced

ATEN = Path(torch.__file__).parent / "include" / "ATen"
HEADERS = {
    "c11": ("cc", "-std=c11", "-x", "c"),
    "c++20": ("c++", "-std=c++20", "-x", "c++"),
    "c++11": ("c++", "-std=c++11", "-x", "c++"),
}
HPP = {"c++17": ("c++", "-std=c++17", "-x", "c++"), "c++20": HEADERS["c++20"]}


# Compiles only where a tensor of planq's is DLPack's.
DLPACK = """#include "dlpack.h"
#include "planq.h"
planq_tensor* planq_used(DLTensor* tensor) { return tensor; }
"""


@pytest.mark.parametrize("language", HEADERS)
def test_the_header_compiles(language: str, tmp_path: Path) -> None:
    """Without a warning, twice in one file, alone or after DLPack's own, as torch has it."""
    source = tmp_path / "header.c"
    include = [f"-I{place('--include-dir')}", "-isystem", ATEN]
    for text in ('#include "planq.h"\n#include "planq.h"\nint planq_used;\n', DLPACK):
        source.write_text(text)
        run(*HEADERS[language], *STRICT, *include, "-c", source, "-o", tmp_path / "header.o")


@pytest.mark.parametrize("language", HPP)
def test_the_header_of_cpp_compiles(language: str, tmp_path: Path) -> None:
    """Without a warning, alone or after DLPack's own, whose tensors planq.h then has."""
    source = tmp_path / "header.cpp"
    include = [f"-I{place('--include-dir')}", "-isystem", ATEN]
    tensor = "void planq_used(const planq::Tensor& t, planq_tensor& d) { t.describe(d); }\n"
    for first in ("", '#include "dlpack.h"\n'):
        source.write_text(f'{first}#include "planq.hpp"\n{tensor}')
        more = ("-Wshadow", "-Wconversion", "-Wsign-conversion")
        run(*HPP[language], *STRICT, *more, *include, "-c", source, "-o", tmp_path / "header.o")


def test_the_header_of_cpp_says_which_language_it_needs(tmp_path: Path) -> None:
    source = tmp_path / "header.cpp"
    source.write_text('#include "planq.hpp"\n')
    command = ["c++", "-std=c++14", f"-I{place('--include-dir')}", "-c", source, "-o", "/dev/null"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "planq.hpp needs C++17" in done.stderr


def test_the_places_are_those_of_the_package() -> None:
    """Whatever else is installed beside planq."""
    package = Path(planq.__file__).parent
    assert place("--library") == package / "libplanq.so"
    assert place("--include-dir") == package / "include"
    assert {path.name for path in place("--include-dir").iterdir()} == {"planq.h", "planq.hpp"}
    assert (place("--cmake-dir") / "planq-config.cmake").exists()


def test_the_places_need_no_extra() -> None:
    """Neither typer nor rich nor safetensors."""
    code = (
        "import runpy, sys; sys.modules.update(dict.fromkeys(('typer', 'rich', 'safetensors')));"
        "sys.argv = ['planq', '--cmake-dir']; runpy.run_module('planq', run_name='__main__')"
    )
    assert run(sys.executable, "-P", "-c", code).strip() == str(place("--cmake-dir"))


PAGE = ROOT / "docs" / "c.md"
# What the page's project says of C++, and what of C.
LANGUAGES = {
    "cpp": {},
    "c": {
        "LANGUAGES CXX": "LANGUAGES C",
        "quantize.cpp": "quantize.c",
        "target_compile_features(quantize PRIVATE cxx_std_17)\n": "",
    },
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_program_of_the_page_runs(language: str, tmp_path: Path) -> None:
    """docs/c.md, as C++ and as C11 through the CMake package, found by planq_DIR."""
    (project,) = fenced(PAGE, "cmake")
    for text, replacement in LANGUAGES[language].items():
        assert text in project
        project = project.replace(text, replacement)
    (tmp_path / f"quantize.{language}").write_text(fenced(PAGE, language)[0])
    (tmp_path / "CMakeLists.txt").write_text(project)
    options = "C_FLAGS=-std=c11" if language == "c" else "CXX_FLAGS="
    flags = f"-DCMAKE_{options} {' '.join(STRICT)}"
    cmake = programs.tool("cmake")
    where = f"-Dplanq_DIR={place('--cmake-dir')}"
    run(cmake, "-S", tmp_path, "-B", tmp_path / "build", "-G", "Unix Makefiles", where, flags)
    run(cmake, "--build", tmp_path / "build")
    lines = run(tmp_path / "build" / "quantize").splitlines()
    assert lines == fenced(PAGE, "text")[0].splitlines()


# The page's fragments stand in functions, which main calls with a descriptor that is wrong.
FRAGMENTS = """#include <cstdio>
#include <planq.hpp>
static void log(const std::string& text) {{ std::printf("%s\\n", text.c_str()); }}
static void tried(const planq::Stream& stream, const planq::Descriptor& desc) {{
  const planq::Workspace workspace;
  const std::vector<planq::Operand> operands;
  {tried}}}
static void foreseen(const planq::Descriptor& desc) {{
  {foreseen}}}
int main() {{
  auto desc = planq::Descriptor("multiply").set("shape", {{3}}).set("input_dtype", "float32");
  tried(planq::Stream::host(), desc);
  foreseen(desc);
  tried(planq::Stream::host(), desc.set("colour", 1));
}}
"""


def test_the_fragments_of_the_page_run(tmp_path: Path) -> None:
    """Those of C++ that throw nothing, and that foresee a plan."""
    _, tried, foreseen = fenced(PAGE, "cpp")
    source, library = tmp_path / "fragments.cpp", place("--library").parent
    source.write_text(FRAGMENTS.format(tried=tried, foreseen=foreseen))
    linked = (f"-L{library}", "-lplanq", f"-Wl,-rpath,{library}")
    include = f"-I{place('--include-dir')}"
    run("c++", "-std=c++17", *STRICT, include, source, *linked, "-o", tmp_path / "fragments")
    missing, there, unknown = run(tmp_path / "fragments").splitlines()
    assert missing.startswith("input: expected shape (3,) float32 on host, got None")
    desc = planq.MultiplyDescriptor(shape=(3,), input_dtype="float32")
    chosen = planq.explain(desc, device="sm_90").chosen
    assert chosen is not None
    assert there == f"{chosen.sku} needs {chosen.workspace} bytes"
    assert unknown == "colour: multiply has no such field"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built with the system's compiler."""
    folder = programs.build(ROOT / "examples" / "engine_cpp", tmp_path_factory.mktemp("engine"))
    return folder / "engine"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_engines_results_are_pythons(engine: Path, tmp_path: Path, dtype: str) -> None:
    """Digest by digest, on a weight whose last group is short."""
    values = inputs.make("normal", (96, 300), dtype, 7)
    save_file({"other": np.zeros(3, np.float32), "weight": values}, tmp_path / "w.safetensors")
    found = results(engine, tmp_path / "w.safetensors", "weight")
    assert found == digests(values)
    assert len(found) == 10


def refused(engine: Path, *words: str | Path) -> str:
    """What the engine complains about."""
    done = subprocess.run([engine, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stderr


def test_the_engine_trusts_no_file(engine: Path, tmp_path: Path) -> None:
    """Offsets, lengths and shapes that are not the file's."""
    path = tmp_path / "w.safetensors"
    header = '{"weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}'
    data = bytes(16)

    def complaint(text: str, body: bytes = data, length: int | None = None) -> str:
        size = len(text) if length is None else length
        path.write_bytes(size.to_bytes(8, "little") + text.encode() + body)
        return refused(engine, path, "weight")

    assert "shorter than its header" in complaint(header, length=2**64 - 1)
    assert "shorter than its header" in complaint(header, length=len(header) + 17)
    assert "beyond the file" in complaint(header, data[:15])
    assert "beyond the file" in complaint(header.replace("[0,16]", "[16,0]"))
    assert "beyond the file" in complaint(header.replace("[0,16]", "[-16,0]"))
    assert "another size" in complaint(header.replace("[2,2]", "[2,3]"))
    assert "too large" in complaint(header.replace("[2,2]", f"[{2**62},{2**62}]"))
    assert "negative extent" in complaint(header.replace("[2,2]", "[-2,-2]"))
    assert "no floating matrix" in complaint(header.replace("[2,2]", "[4]"))
    assert "no floating matrix" in complaint(header.replace("F32", "I32"))
    assert "JSON" in complaint(header[:-1])
    assert "JSON" in complaint("[" * 100_000)
    path.write_bytes(b"1234567")
    assert "shorter than its header" in refused(engine, path, "weight")
    assert "cannot be opened" in refused(engine, tmp_path / "nothing", "weight")
