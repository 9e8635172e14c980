"""How much of its thread's stack a call uses, by stack_depth.cpp."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

REACH = 512 << 10


class StackProbe:
    """Measures calls on the calling thread, whose stack has to have room for `REACH` bytes."""

    def __init__(self, folder: Path) -> None:
        """Compiles the probe into a folder."""
        library = folder / "stack_depth.so"
        source = Path(__file__).with_name("stack_depth.cpp")
        compiler = os.environ.get("CXX", "c++")
        flags = ["-std=c++20", "-O1", "-shared", "-fPIC"]
        subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True)
        self._library = ctypes.PyDLL(str(library))
        self._library.stack_depth.restype = ctypes.c_size_t

    def _measure(self, function: Any, argument: Any) -> int:
        result = ctypes.c_void_p()
        call = ctypes.cast(function, ctypes.c_void_p)
        depth = self._library.stack_depth(
            call, argument, ctypes.c_size_t(REACH), ctypes.byref(result)
        )
        assert result.value, "the call raised an exception"
        return int(depth)

    def of_call(self, function: Callable[..., object], *arguments: object) -> int:
        """The bytes that `function(*arguments)` uses; the interpreter's own count."""
        call = partial(function, *arguments)
        return self._measure(ctypes.pythonapi.PyObject_CallNoArgs, ctypes.py_object(call))

    def of_known(self, nbytes: int) -> int:
        """The same for a function that uses this many bytes, and a few for its call."""
        return self._measure(self._library.use_stack, ctypes.c_void_p(nbytes))
