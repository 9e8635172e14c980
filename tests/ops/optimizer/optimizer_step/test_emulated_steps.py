"""The CUDA kernels of `optimizer_step`, run on a processor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from planq.audit.operators import expected, inputs_of
from planq.audit.ops.optimizer.optimizer_step.adapter import TESTS
from planq.audit.ops.optimizer.optimizer_step.cases import SCALARS, Case, long_cases
from planq.audit.ops.optimizer.optimizer_step.reference import LISTS
from planq.audit.reference.formats import Array, Arrays
from support.emulation import emulated

FORMATS = {"float32": "Float32", "blockwise8": "Blockwise8", "static8": "Static8"}
NAMES = ("algorithm", "parameter_dtype", "gradient_dtype", "weight_decay_mode", "trust_ratio")
CHOICES = (*NAMES, "nonfinite", "rounding")
MAPS = ("codebook1", "codebook2", "codebook3")
# All that the operator has, in its order.
OPERANDS = (*LISTS, *MAPS, "found_nonfinite", "seed", "offset", *SCALARS, "step")
SWITCHES = ("nesterov", "centered", "skip_zeros", "master", "advance_step")


class Given(ctypes.Structure):
    """An operand, as emulated_steps.cpp takes it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("members", ctypes.POINTER(ctypes.c_void_p)),
        ("real", ctypes.c_double),
        ("integer", ctypes.c_int64),
        ("is_real", ctypes.c_bool),
    )


class Problem(ctypes.Structure):
    """The structure of emulated_steps.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("tensors", "ids", "block_size")),
        *((name, ctypes.POINTER(ctypes.c_int64)) for name in ("elements", "tensor_ids")),
        *((name, ctypes.c_char_p) for name in CHOICES),
        *((name, ctypes.c_bool) for name in SWITCHES),
        ("operands", ctypes.POINTER(Given)),
    )


@pytest.fixture(scope="module", params=FORMATS)
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ctypes.CDLL]:
    """The kernels for a format of states, compiled for the host."""
    source = Path(__file__).with_name("emulated_steps.cpp")
    named = f"-DPLANQ_STATE_FORMAT={FORMATS[request.param]}"
    return request.param, emulated(source, tmp_path_factory.mktemp("emulated"), "-mfma", named)


def placed(values: Array, past: int) -> Array:
    """A flat copy that begins so many elements past where a vector may, with room behind it."""
    size = values.dtype.itemsize
    room = np.full(values.nbytes + 64 + past * size, 0xA5, np.uint8)
    first = -room.ctypes.data % 16 + past * size
    copy = room[first : first + values.nbytes].view(values.dtype)
    copy[:] = np.ascontiguousarray(values).reshape(-1)
    return copy


def given_to(name: str, held: Arrays, tensors: int) -> Given:
    """One operand out of arrays by name."""
    if f"{name}[0]" in held:
        members = (ctypes.c_void_p * tensors)(
            *(held[f"{name}[{i}]"].ctypes.data for i in range(tensors))
        )
        return Given(members=ctypes.cast(members, ctypes.POINTER(ctypes.c_void_p)))
    if name not in held:
        return Given()
    values = held[name]
    if name.startswith("codebook") or name == "step":
        return Given(data=values.ctypes.data)
    number = values.reshape(()).item()
    if values.dtype == np.float64:
        return Given(real=number, is_real=True)
    return Given(integer=number)


def run(kernels: ctypes.CDLL, case: Case, past: int) -> Arrays:
    """What the kernels write, by operand name."""
    problem, tensors = case.problem, len(case.problem.shapes)
    wanted = expected(case)
    held = {name: placed(values, past) for name, values in inputs_of(case).items()}
    held |= {n: placed(np.zeros_like(v), past) for n, v in wanted.items() if n not in held}
    operands = (Given * len(OPERANDS))(*(given_to(name, held, tensors) for name in OPERANDS))
    structure = Problem(
        tensors=tensors,
        ids=len(problem.tensor_ids),
        block_size=problem.block_size,
        elements=(ctypes.c_int64 * tensors)(*problem.counts),
        tensor_ids=(ctypes.c_int64 * len(problem.tensor_ids))(*problem.tensor_ids),
        operands=operands,
        **{name: getattr(problem, name).encode() for name in CHOICES},
        **{name: getattr(problem, name) for name in SWITCHES},
    )
    structure.trust_ratio = problem.trust.encode()
    kernels.step(ctypes.byref(structure))
    return {name: held[name] for name in wanted}


def test_every_case_has_the_bits_of_the_reference(kernels: tuple[str, ctypes.CDLL]) -> None:
    """By vectors, and, where tensors do not begin at one, element by element."""
    state_format, library = kernels
    cases = (*TESTS.cases(), *TESTS.empty_cases(), *long_cases())
    own = [case for case in cases if case.problem.state_format == state_format]
    assert len(own) > 10
    for number, case in enumerate(own):
        for past in (0, 1) if number % 3 == 0 else (0,):
            for name, values in run(library, case, past).items():
                assert values.tobytes() == expected(case)[name].tobytes(), (case.id, past, name)
