"""Compiles the native half of the benchmarks for the present machine, and calls it."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

import planq
from harness.core.product import Product

HERE: Final = Path(__file__).parent
FOLDER: Final = Path(__file__).parents[3] / "build" / "bench"

# What the bare one-pass kernel computes, in the order of kernels.cu.
ONE_PASS_FORMS: Final = ("s8", "s4", "e4m3", "u8_asym")

_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_SIGNATURES: Final = {
    "bench_stream": (*[_INT] * 6, _POINTER, _POINTER, _LONG, _POINTER),
    "bench_evict": (_POINTER, _LONG, _POINTER, _POINTER),
    "bench_one_pass": (_INT, *[_POINTER] * 4, _LONG, _LONG, _POINTER),
    "bench_two_pass": (_POINTER, _POINTER, _POINTER, _LONG, _LONG, _POINTER),
    "bench_bare_launches": (_INT, _POINTER, ctypes.POINTER(ctypes.c_double)),
}


class StreamShape(NamedTuple):
    """How plain traffic is streamed: 16-byte vectors in and out for a unit, and the launch.

    ``together``: the input is one array; else as many as there are vectors in for a unit.
    """

    reads: int
    writes: int
    unroll: int
    blocks: int
    threads: int
    together: bool = True


class RowPointers(NamedTuple):
    """Addresses of the operands of a kernel that quantizes rows."""

    source: int
    target: int
    scale: int
    zero_point: int


def _find_compiler(variable: str, roots: Sequence[str], name: str) -> str:
    folders = [f"{os.environ[root]}/bin/{name}" for root in roots if root in os.environ]
    candidates = [os.environ.get(variable), *folders, name]
    found = next(filter(None, (shutil.which(one) for one in candidates if one)), None)
    if found is None:
        places = ", ".join([variable, *roots, "PATH"])
        raise SystemExit(f"no {name} in {places}: the ceilings cannot be compiled")
    return found


def _build(source: Path, command: Sequence[str], *libraries: str) -> ctypes.CDLL:
    """What the command makes of a source; made once for each command, source and processor."""
    identity = source.read_bytes() + "\0".join([*command, *libraries, processor_name()]).encode()
    library = FOLDER / f"{source.stem}_{hashlib.sha256(identity).hexdigest()[:12]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [*command, "-shared", "-o", str(library), str(source), *libraries], check=True
        )
    return ctypes.CDLL(str(library))


def processor_name() -> str:
    """The processor's model."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


class CopyLoop:
    """The loops of copy_loop.cpp."""

    def __init__(self, threads: int) -> None:
        compiler = _find_compiler("CXX", (), "c++")
        flags = ["-O3", "-march=native", "-std=c++17", "-fPIC", "-pthread"]
        library = _build(HERE / "copy_loop.cpp", [compiler, *flags])
        self._call, self._read = library.bench_copy_loop, library.bench_read_loop
        self._call.argtypes = (_INT, _INT, _INT, _POINTER, _POINTER, _LONG)
        self._read.argtypes = (_INT, _POINTER, _LONG)
        self._threads = threads

    def read(self, source: int, nbytes: int) -> None:
        """Reads so many bytes, split over the threads."""
        self._read(self._threads, source, nbytes)

    def __call__(self, mix: tuple[int, int], source: int, target: int, count: int) -> None:
        """Reads and writes ``count`` times the bytes of the mix, split over the threads."""
        if self._call(*mix, self._threads, source, target, count):
            raise RuntimeError(f"no loop reads {mix[0]} bytes and writes {mix[1]}")


class CCalls:
    """The loop of c_calls.cpp around planq.h, on the host or on a CUDA stream."""

    def __init__(self, memory: Sequence[int], stream: int | None = None, device: int = 0) -> None:
        """Takes the addresses of the no-op's four operands."""
        compiler = _find_compiler("CXX", (), "c++")
        package = Path(planq.__file__).parent
        flags = ["-O3", "-std=c++17", "-fPIC", f"-I{package / 'include'}"]
        library = str(package / "libplanq.so")  # that of the process, which has it loaded
        self._call = _build(HERE / "c_calls.cpp", [compiler, *flags], library).bench_c_calls
        self._call.argtypes = (
            *(ctypes.c_char_p, _INT, _POINTER, _INT, ctypes.POINTER(_POINTER), _INT, _INT),
            ctypes.POINTER(ctypes.c_double),
        )
        self._memory = (_POINTER * 4)(*memory)
        self._stream = (stream is not None, stream, device)

    def seconds(self, desc: planq.Descriptor, calls: int, *, bound: bool) -> float:
        """Seconds for each of some runs, or launches of what was bound."""
        seconds = ctypes.c_double()
        text = desc.to_json().encode()
        arguments = (*self._stream, self._memory, bound, calls, ctypes.byref(seconds))
        if code := self._call(text, *arguments):
            raise RuntimeError(f"planq.h answers {code}")
        return seconds.value / calls


class Native:
    """The kernels of kernels.cu, launched on one stream."""

    def __init__(self, capability: int, stream: int) -> None:
        compiler = _find_compiler("CUDACXX", ("CUDA_HOME", "CUDA_PATH"), "nvcc")
        flags = ["-O3", "-std=c++17", f"-arch=sm_{capability}", "-Xcompiler=-fPIC"]
        self._library = _build(HERE / "kernels.cu", [compiler, *flags, "-cudart=static"])
        self._stream = stream
        for name, arguments in _SIGNATURES.items():
            getattr(self._library, name).argtypes = arguments

    def _call(self, name: str, *arguments: object) -> None:
        error = getattr(self._library, name)(*arguments)
        if error:
            raise RuntimeError(f"{name} failed with CUDA error {error}")

    def stream(self, shape: StreamShape, source: int, target: int, units: int) -> None:
        """Reads and writes 16-byte vectors, as many for each unit as the shape says."""
        self._call("bench_stream", *shape, source, target, units, self._stream)

    def evict(self, source: int, vectors: int, sink: int) -> None:
        """Reads this memory, so that the cache holds it and nothing else."""
        self._call("bench_evict", source, vectors, sink, self._stream)

    def one_pass(self, form: str, pointers: RowPointers, rows: int, columns: int) -> None:
        """The bare one-pass kernel by row, bfloat16 to one of ``ONE_PASS_FORMS``."""
        self._call(
            "bench_one_pass", ONE_PASS_FORMS.index(form), *pointers, rows, columns, self._stream
        )

    def two_pass(self, pointers: RowPointers, rows: int, columns: int) -> None:
        """The plain two-pass kernel, bfloat16 to int8 by row."""
        self._call("bench_two_pass", *pointers[:3], rows, columns, self._stream)

    def bare_launches(self, count: int) -> float:
        """Seconds for this many launches of an empty kernel, from a C++ loop."""
        seconds = ctypes.c_double()
        self._call("bench_bare_launches", count, self._stream, ctypes.byref(seconds))
        return seconds.value


# A library that was built of cutlass_peer.cu before, for machines without its headers.
CUTLASS_LIBRARY: Final = "PLANQ_BENCH_CUTLASS"
CUTLASS_CAPABILITY: Final = 90
CUTLASS_SOURCE: Final = "cutlass_peer.cu"


class CutlassProducts:
    """The int8 products of cutlass_peer.cu, on one stream."""

    def __init__(self, library: ctypes.CDLL, stream: int) -> None:
        self._run, self._stream = library.cutlass_peer_run, stream
        self._run.argtypes = (_INT, *[_POINTER] * 5, *[_INT] * 3, _POINTER)
        library.cutlass_peer_tile.restype = ctypes.c_char_p
        names = takewhile(bool, map(library.cutlass_peer_tile, count()))
        self.tiles: list[str] = [name.decode() for name in names]
        self.version = ".".join(str(library.cutlass_peer_version()))

    def __call__(self, tile: int, operands: Sequence[Any], problem: Product) -> None:
        """Multiplies tensors: the input, the weight, scales of rows and columns or None, output."""
        pointers = [None if operand is None else operand.data_ptr() for operand in operands]
        extents = problem.m, problem.n, problem.k
        if code := self._run(tile, *pointers, *extents, self._stream):
            raise RuntimeError(f"CUTLASS refuses {problem} with status {code}")


@cache
def cutlass_products(capability: int, stream: int) -> CutlassProducts | None:
    """CUTLASS, built now or before; None where there is neither a library nor the headers."""
    if capability != CUTLASS_CAPABILITY:
        return None
    if CUTLASS_LIBRARY in os.environ:
        library = ctypes.CDLL(str(Path(os.environ[CUTLASS_LIBRARY]).resolve()))
        return CutlassProducts(library, stream)
    command = cutlass_command()
    return (
        None if command is None else CutlassProducts(_build(HERE / CUTLASS_SOURCE, command), stream)
    )


def cutlass_command() -> list[str] | None:
    """How cutlass_peer.cu is compiled; None without the headers.

    They are looked for in ``CUTLASS_PATH``, and in the Python package nvidia-cutlass.
    """
    package = importlib.util.find_spec("cutlass_library")
    inside = [
        Path(place) / "source" for place in (package and package.submodule_search_locations) or ()
    ]
    given = [Path(os.environ["CUTLASS_PATH"])] if "CUTLASS_PATH" in os.environ else []
    folders = [folder for folder in (*given, *inside) if (folder / "include" / "cutlass").is_dir()]
    if not folders:
        return None
    compiler = _find_compiler("CUDACXX", ("CUDA_HOME", "CUDA_PATH"), "nvcc")
    includes = [f"-I{folders[0] / name}" for name in ("include", "tools/util/include")]
    target = f"arch=compute_{CUTLASS_CAPABILITY}a,code=sm_{CUTLASS_CAPABILITY}a"
    flags = ["-O3", "-std=c++17", "-DNDEBUG", "--expt-relaxed-constexpr", "-gencode", target]
    return [compiler, *flags, "-Xcompiler=-fPIC", *includes, "-cudart=static"]
