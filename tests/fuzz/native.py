"""The readers of C++, compiled alone: ``core`` needs neither Python nor CUDA.

There are two libraries. One has GCC's marks at every edge, which guide the fuzzer, and traps where
behaviour is undefined. The other has the address and undefined behaviour sanitizers. A process has
one of the two, since GCC's sanitizers bring functions of their own for the marks.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "fuzz" / "native"
OPERATOR = "every_kind"
_FLAGS = ("-std=c++20", "-O1", "-g1", "-fPIC", "-fvisibility=hidden", "-D_GLIBCXX_ASSERTIONS")
_TRAPS = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
_EDGES = (*_TRAPS, "-fsanitize-coverage=trace-pc,trace-cmp")
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_OPERATORS = f"""
namespace planq::{OPERATOR} {{
extern const Operator kOperator;
extern const KernelTables kTables;
const KernelTables kTables{{}};
}}
namespace planq {{
constexpr const Operator* kOperators[] = {{&{OPERATOR}::kOperator}};
}}
"""
_BUILD_INFO = "".join(
    f'#define PLANQ_{name} ""\n'
    for name in (
        *("VERSION", "BUILD_ID", "SOURCE_ID", "COMPILER", "FLAGS"),
        *("CUDA_VERSION", "ARCHITECTURES", "CUDA_FLAGS"),
    )
)


def compiler() -> str:
    """GCC's C++ compiler."""
    return os.environ.get("CXX", "g++")


def preloaded() -> str:
    """The libraries that Python, which is not built with the sanitizers, has to load first."""
    names = ("libasan.so", "libstdc++.so")
    ask = [subprocess.check_output([compiler(), f"-print-file-name={n}"], text=True) for n in names]
    return " ".join(path.strip() for path in ask)


def _inputs() -> Iterator[Path]:
    """What the libraries are made of."""
    yield from (ROOT / "src" / "core").iterdir()
    yield from (ROOT / "tests" / "operators" / OPERATOR).iterdir()
    yield from Path(__file__).parent.glob("native.*")


def build(*, sanitized: bool) -> Path:
    """Compiles one of the two libraries, on all processors, and returns it."""
    folder = BUILD / ("sanitized" if sanitized else "guided")
    made = folder / "readers.so"
    if made.exists() and made.stat().st_mtime > max(path.stat().st_mtime for path in _inputs()):
        return made
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "operators.inc").write_text(_OPERATORS)
    (folder / "build_info.h").write_text(_BUILD_INFO)
    sources = [
        *sorted((ROOT / "src" / "core").glob("*.cpp")),
        ROOT / "tests" / "operators" / OPERATOR / "desc.cpp",
        Path(__file__).with_name("native.cpp"),
    ]
    folders = [f"-I{each}" for each in (ROOT / "src", ROOT / "tests" / "operators", folder)]
    marks = _SANITIZERS if sanitized else _EDGES

    def compiled(source: Path) -> Path:
        part = folder / f"{source.stem}.o"
        own = ("-O2", *_TRAPS) if source.stem == "native" and not sanitized else marks
        command = [compiler(), *_FLAGS, *own, *folders, "-c", str(source), "-o", str(part)]
        subprocess.run(command, check=True)
        return part

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sources))
    links = _SANITIZERS if sanitized else ()
    subprocess.run([compiler(), "-shared", *links, *map(str, objects), "-o", str(made)], check=True)
    return made


def guide(library: Path, fuzzer: Path) -> None:
    """Ties the marks of the guided library to a libFuzzer."""
    guided, own = ctypes.CDLL(str(library)), ctypes.CDLL(str(fuzzer))
    kinds = [f"{kind}cmp{size}" for kind in ("", "const_") for size in (1, 2, 4, 8)]
    for mark in (f"trace_{kind}" for kind in (*kinds, "switch")):
        place = ctypes.c_void_p.in_dll(guided, f"fuzzer_{mark}")
        place.value = ctypes.cast(getattr(own, f"__sanitizer_cov_{mark}"), ctypes.c_void_p).value
    guided.fuzz_guided(own.__sanitizer_cov_8bit_counters_init, own.__sanitizer_cov_pcs_init)


def load(library: Path, target: str) -> Callable[[bytes], tuple[str, str]]:
    """One reader: what it answers about a text, as a letter and a sentence or a value."""
    function = getattr(ctypes.CDLL(str(library)), target)
    function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_size_t), ctypes.c_char_p

    def answer(data: bytes) -> tuple[str, str]:
        said = function(data, len(data)).decode("utf-8", "backslashreplace")
        return said[0], said[1:]

    return answer


def check_json(data: bytes, answer: Callable[[bytes], tuple[str, str]]) -> bool:
    """Holds the reader of JSON to Python's: the same values, and the same text of them."""
    kind, said = answer(data)
    assert kind in "vf", said
    try:
        expected = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        assert kind == "f", f"{said}: Python reads no JSON"
        return False
    if kind == "v":
        assert said == json.dumps(expected)
    return kind == "v"


def check(data: bytes, answer: Callable[[bytes], tuple[str, str]]) -> bool:
    """A value that survives writing and reading, or a sentence."""
    kind, said = answer(data)
    assert kind in "vf", said
    assert said
    return kind == "v"


# By target.
READERS = {
    "native_json": check_json,
    "native_stored": check,
    "native_descriptor": check,
    "native_preference": check,
}
