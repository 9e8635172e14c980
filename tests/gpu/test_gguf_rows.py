"""`linear_gguf` of weights of some megabytes.

Those in the registry's cases are so small that they have kernels of their own.
"""

from __future__ import annotations

import pytest

from planq.audit.memory import Device, Host
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
# Below and above what the kernel of one row takes, and the last rows of the weight are no tile.
SIZES = {"small": 1 << 20, "large": 5 << 20}


def output_of(case: Case, device: Device) -> Array:
    """Of a run there."""
    bench = Bench(device, TESTS.descriptor(case.problem))
    bench.load(case.inputs())
    bench.run()
    return bench.outputs()["output"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", [1, 3, 20, 70])
@pytest.mark.parametrize("kind", KNOWN)
def test_large_weights_have_the_bits_of_the_host(kind: str, rows: int, size: str) -> None:
    """Of kernels for one row, for few and for many; and of those for small weights."""
    form, k = FORMATS[kind], terms_of(kind, 0, long=True)
    n = SIZES[size] // (k // form.elements * form.nbytes) // 16 * 16 + 5
    problem = LinearGgufProblem((rows, k), (n, k), kind, "int8", "float32", "float32", None)
    case = Case(problem, "any", 7)
    assert output_of(case, GPU).tobytes() == output_of(case, Host()).tobytes()
