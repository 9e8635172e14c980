"""Runs host kernels with helpers whose stacks have a given size: a program of test_stack.py.

An overrun ends the process in a wide guard below the stack, and the last line names the kernel.
"""

from __future__ import annotations

import ctypes
import sys

import planq
from planq.audit import kernels
from planq.audit.memory import Host
from planq.audit.operators import OPERATORS, inputs_of, name_of
from planq.audit.runner import Bench

GUARD = 1 << 20
ATTRIBUTES = 64  # bytes; more than a pthread_attr_t has


def set_stacks_of_new_threads(nbytes: int) -> None:
    """The C library's own part of a thread's stack included."""
    library = ctypes.CDLL(None)
    attributes = ctypes.create_string_buffer(ATTRIBUTES)
    assert library.pthread_attr_init(attributes) == 0
    assert library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(nbytes)) == 0
    assert library.pthread_attr_setguardsize(attributes, ctypes.c_size_t(GUARD)) == 0
    assert library.pthread_setattr_default_np(attributes) == 0


def main(nbytes: int, threads: int) -> None:
    """Of each kind of kernel the last, which has the widest types, on the largest case it takes."""
    set_stacks_of_new_threads(nbytes)
    kinds = {
        (k.sku.rpartition("/")[0], k.body): (o, name_of(k))
        for o, k in kernels.kernels(planq.Backend.HOST)
    }
    for operator, name in kinds.values():
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
        cases = sorted(OPERATORS[operator].cases(), key=lambda case: -case.size)
        case = next(c for c in cases if kernels.takes(operator, name, c, "host"))
        desc = OPERATORS[operator].descriptor(case.problem)
        bench = Bench(Host(threads), desc, pref=kernels.pinned(name))
        bench.load(inputs_of(case))
        bench.run()
    sys.stdout.write("all rows ran\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
