"""`linear_gguf` of weights of some megabytes.

Those of the registry's cases are small, and small weights of eight types have a kernel of their
own. So the kernels for large weights of these types are compared here: where they lie anywhere,
where TMA brings them, and with all that is added to sums.
"""

from __future__ import annotations

import numpy as np
import pytest

from planq.audit.memory import Device, Host, Layout, SharedLayout
from planq.audit.ops.gguf.blocks import FORMATS
from planq.audit.ops.gguf.linear_gguf.adapter import TESTS
from planq.audit.ops.gguf.linear_gguf.cases import KNOWN, terms_of
from planq.audit.ops.gguf.linear_gguf.reference import LinearGgufProblem
from planq.audit.ops.linear.products import Case
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench
from support.gpu import Cuda

pytestmark = pytest.mark.gpu
GPU = Cuda(0)
# Bytes: as many as the kernel for small weights takes, and more.
SIZES = {"small": 1 << 20, "large": 5 << 20}
# The types that this kernel has.
SMALL = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k")
# Blocks of a row, of 32 elements and of 256. Rows are multiples of 8 bytes, and TMA brings them in
# twos if need be; or they are multiples of 16.
BLOCKS = {"twos": (36, 4), "ones": (40, 8)}
# By rows of the input, where those of all operands begin.
LAYOUTS = {
    1: Layout(offset=1),
    3: SharedLayout(offset=2, backwards=True),
    70: Layout(offset=1, pitch=3),
}


def weight_shape(kind: str, size: str, k: int, more: int) -> tuple[int, int]:
    """About so many bytes, and `more` rows beyond a multiple of 16."""
    form = FORMATS[kind]
    return SIZES[size] // (k // form.elements * form.nbytes) // 16 * 16 + more, k


def outputs_of(case: Case, device: Device, layout: Layout | None = None) -> dict[str, Array]:
    """Of a run there, which writes nothing beside them."""
    descriptor = TESTS.descriptor(case.problem)
    places = dict.fromkeys(descriptor.operands(), layout) if layout else None
    bench = Bench(device, descriptor, layouts=places)
    bench.load(case.inputs())
    bench.run()
    made = bench.outputs()
    bench.check(case.inputs(), made, case.id)
    return made


def same(case: Case, layout: Layout | None = None) -> None:
    """The GPU has the bits of the host."""
    wanted, found = outputs_of(case, Host())["output"], outputs_of(case, GPU, layout)["output"]
    assert np.isfinite(wanted.astype(np.float32)).any()
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", [1, 3, 20, 70])
@pytest.mark.parametrize("kind", KNOWN)
def test_large_weights_have_the_bits_of_the_host(kind: str, rows: int, size: str) -> None:
    """Of kernels for one row, for few and for many; and of those for small weights."""
    k = terms_of(kind, 0, long=True)
    shape = weight_shape(kind, size, k, 5)
    problem = LinearGgufProblem((rows, k), shape, kind, "int8", "float32", "float32", None)
    same(Case(problem, "any", 4))


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("rows", [1, 3, 70])
@pytest.mark.parametrize("kind", SMALL)
def test_weights_that_tma_brings(kind: str, rows: int, blocks: str) -> None:
    """Whose rows begin at multiples of 8 bytes, and are even in number."""
    elements = FORMATS[kind].elements
    k = BLOCKS[blocks][elements == 256] * elements
    shape = weight_shape(kind, "large", k, 6)
    problem = LinearGgufProblem((rows, k), shape, kind, "int8", "float16", None, "float16")
    same(Case(problem, "any", 5))


@pytest.mark.parametrize("rows", LAYOUTS)
@pytest.mark.parametrize("kind", SMALL)
def test_large_weights_lie_anywhere(kind: str, rows: int) -> None:
    """Behind any byte, backwards, and with gaps between rows."""
    k = terms_of(kind, 0, long=True)
    shape = weight_shape(kind, "large", k, 6)
    problem = LinearGgufProblem((rows, k), shape, kind, "int8", "bfloat16", "float16", "bfloat16")
    same(Case(problem, "any", 6), LAYOUTS[rows])
