"""Products of ggml and texts of llama.cpp, out of the package xllamacpp, on the processor."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
# Of types, in ggml's own order.
NUMBERS: Final = {"q4_0": 2, "q5_0": 6, "q8_0": 8, "q4_k": 12, "q5_k": 13, "q6_k": 14}
FLOAT32: Final = 0
_POINTER, _INT, _LONG, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_size_t
# Results and arguments of what is called.
_SIGNATURES: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "ggml_new_tensor_2d": (_POINTER, (_POINTER, _INT, _LONG, _LONG)),
    "ggml_mul_mat": (_POINTER, (_POINTER, _POINTER, _POINTER)),
    "ggml_new_graph": (_POINTER, (_POINTER,)),
    "ggml_build_forward_expand": (None, (_POINTER, _POINTER)),
    "ggml_free": (None, (_POINTER,)),
    "ggml_nbytes": (_SIZE, (_POINTER,)),
    "ggml_cpu_init": (None, ()),
    "ggml_backend_cpu_init": (_POINTER, ()),
    "ggml_backend_cpu_set_n_threads": (None, (_POINTER, _INT)),
    "ggml_backend_cpu_set_threadpool": (None, (_POINTER, _POINTER)),
    "ggml_backend_graph_compute": (_INT, (_POINTER, _POINTER)),
    "ggml_backend_free": (None, (_POINTER,)),
    "ggml_backend_buffer_free": (None, (_POINTER,)),
    "ggml_backend_cpu_buffer_type": (_POINTER, ()),
    "ggml_backend_alloc_ctx_tensors_from_buft": (_POINTER, (_POINTER, _POINTER)),
    "ggml_backend_tensor_set": (None, (_POINTER, _POINTER, _SIZE, _SIZE)),
    "ggml_backend_tensor_get": (None, (_POINTER, _POINTER, _SIZE, _SIZE)),
    "ggml_backend_cpu_reg": (_POINTER, ()),
    "ggml_backend_reg_dev_get": (_POINTER, (_POINTER, _SIZE)),
    "ggml_backend_reg_get_proc_address": (_POINTER, (_POINTER, ctypes.c_char_p)),
    "ggml_backend_buft_name": (ctypes.c_char_p, (_POINTER,)),
    "ggml_backend_dev_supports_op": (ctypes.c_bool, (_POINTER, _POINTER)),
    "ggml_threadpool_params_init": (None, (_POINTER, _INT)),
    "ggml_threadpool_new": (_POINTER, (_POINTER,)),
    "ggml_threadpool_free": (None, (_POINTER,)),
}


# ggml tells of every weight that it repacks.
_SILENT: Final = ctypes.CFUNCTYPE(None, _INT, ctypes.c_char_p, _POINTER)(lambda *_: None)


class _Memory(ctypes.Structure):
    """`ggml_init_params`."""

    _fields_ = (("size", _SIZE), ("buffer", _POINTER), ("no_alloc", ctypes.c_bool))


@cache
def library() -> Any:
    """What has ggml's functions: an extension module that is only loaded, not imported."""
    found = find_spec("xllamacpp")
    if found is None or found.origin is None:
        raise SystemExit("ggml is measured out of the package xllamacpp, which is not installed")
    (path,) = Path(found.origin).parent.glob("xllamacpp*.so")
    loaded = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)  # which is kept, unlike loaded[name]
        function.restype, function.argtypes = result, arguments
    loaded.ggml_log_set(_SILENT, None)
    loaded.ggml_init.restype, loaded.ggml_init.argtypes = _POINTER, (_Memory,)
    loaded.ggml_cpu_init()
    return loaded


def instructions() -> list[str]:
    """Of what this build of ggml makes use, as it says itself."""
    names = ("avx2", "fma", "f16c", "avx_vnni", "avx512", "avx512_vnni", "amx_int8", "llamafile")
    return [name for name in names if library()[f"ggml_cpu_has_{name}"]()]


def release() -> str:
    """Of the package."""
    return version("xllamacpp")


def quantized(kind: str, x: Array) -> Array:
    """Rows of blocks."""
    quantize = library().ggml_quantize_chunk
    quantize.restype = _SIZE
    quantize.argtypes = (_INT, _POINTER, _POINTER, _LONG, _LONG, _LONG, _POINTER)
    blocks = np.zeros((len(x), x[0].nbytes), np.uint8)
    made = quantize(
        NUMBERS[kind], x.ctypes.data, blocks.ctypes.data, 0, x.shape[0], x.shape[1], None
    )
    flat: Array = blocks.reshape(-1)[:made]
    return flat.reshape(len(x), -1).copy()


def repacking() -> int | None:
    """The type of memory that keeps weights in the order of this processor's own kernels."""
    lib = library()
    registered = lib.ggml_backend_cpu_reg()
    found = lib.ggml_backend_reg_get_proc_address(registered, b"ggml_backend_dev_get_extra_bufts")
    if not found:
        return None
    listed = ctypes.CFUNCTYPE(ctypes.POINTER(_POINTER), _POINTER)(found)
    types = listed(lib.ggml_backend_reg_dev_get(registered, 0))
    for each in types:
        if not each:
            return None
        if b"REPACK" in lib.ggml_backend_buft_name(each):
            return int(each)
    return None


class Threads(NamedTuple):
    """Threads that stay, and what runs graphs on them."""

    backend: int
    pool: int

    @classmethod
    def of(cls, count: int) -> Threads:
        """So many."""
        lib = library()
        backend = lib.ggml_backend_cpu_init()
        parameters = ctypes.create_string_buffer(1024)  # larger than ggml_threadpool_params
        lib.ggml_threadpool_params_init(parameters, count)
        pool = lib.ggml_threadpool_new(parameters)
        lib.ggml_backend_cpu_set_n_threads(backend, count)
        lib.ggml_backend_cpu_set_threadpool(backend, pool)
        return cls(backend, pool)

    def close(self) -> None:
        """Ends them."""
        library().ggml_backend_free(self.backend)
        library().ggml_threadpool_free(self.pool)


class Product:
    """`ggml_mul_mat` of float32 rows and of weights that are blocks.

    Args:
        kind: The type of the blocks.
        weight: Their bytes, row by row.
        x: The rows.
        repacked: Whether the weights lie in the order of this processor's own kernels.

    Raises:
        ValueError: There is no such order for the type here.
    """

    def __init__(self, kind: str, weight: Array, x: Array, *, repacked: bool) -> None:
        lib = library()
        memory = _Memory(1 << 20, None, no_alloc=True)
        self._weights, self._rest = lib.ggml_init(memory), lib.ggml_init(memory)
        held = lib.ggml_new_tensor_2d(self._weights, NUMBERS[kind], x.shape[1], len(weight))
        plain = lib.ggml_backend_cpu_buffer_type()
        place = repacking() if repacked else plain
        if place is None:
            raise ValueError("no such memory")
        self._buffers = [lib.ggml_backend_alloc_ctx_tensors_from_buft(self._weights, place)]
        rows = lib.ggml_new_tensor_2d(self._rest, FLOAT32, x.shape[1], len(x))
        self._result = lib.ggml_mul_mat(self._rest, held, rows)
        self._graph = lib.ggml_new_graph(self._rest)
        lib.ggml_build_forward_expand(self._graph, self._result)
        device = lib.ggml_backend_reg_dev_get(lib.ggml_backend_cpu_reg(), 0)
        if not lib.ggml_backend_dev_supports_op(device, self._result):
            raise ValueError(f"no product of {kind} out of such memory")
        self._buffers.append(lib.ggml_backend_alloc_ctx_tensors_from_buft(self._rest, plain))
        lib.ggml_backend_tensor_set(held, weight.ctypes.data, 0, weight.nbytes)
        lib.ggml_backend_tensor_set(rows, x.ctypes.data, 0, x.nbytes)
        self._shape = len(x), len(weight)

    def run(self, threads: Threads) -> None:
        """Once."""
        if library().ggml_backend_graph_compute(threads.backend, self._graph) != 0:
            raise RuntimeError("ggml computed nothing")

    def result(self) -> Array:
        """What was computed last."""
        made = np.empty(self._shape, np.float32)
        library().ggml_backend_tensor_get(self._result, made.ctypes.data, 0, made.nbytes)
        return made

    def close(self) -> None:
        """Gives the memory back."""
        for buffer in self._buffers:
            library().ggml_backend_buffer_free(buffer)
        for context in (self._weights, self._rest):
            library().ggml_free(context)


class Texts:
    """llama.cpp with a file: how many tokens a second it reads and writes, by its own clock.

    Args:
        path: The file.
        threads: Of its products.
        context: The most tokens of a sequence.
    """

    def __init__(self, path: Path, threads: int, context: int) -> None:
        # Its module says much about itself at the import of it, and is wanted here alone.
        import xllamacpp

        options = xllamacpp.CommonParams()
        options.model.path = str(path)
        options.n_ctx, options.n_parallel, options.n_gpu_layers = context, 1, 0
        options.n_batch = options.n_ubatch = 512
        options.cpuparams.n_threads = options.cpuparams_batch.n_threads = threads
        self._server = xllamacpp.Server(options)

    def rates(self, prompt: list[int], tokens: int) -> tuple[float, float]:
        """Tokens a second of a prompt, and of so many tokens that follow it."""
        request = {
            "prompt": prompt,
            "n_predict": tokens,
            "temperature": 0,
            "cache_prompt": False,
            "ignore_eos": True,
        }
        told: dict[str, Any] = self._server.handle_completions(request)["timings"]
        return told["prompt_per_second"], told["predicted_per_second"]
