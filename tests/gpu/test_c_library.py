"""planq.h on CUDA: every operator's bits, streams, graphs, and the example engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import planq
from c import programs
from c.bench import CBench, CLaunchBench, stream_of
from c.engine import digests, results, write_safetensors
from planq.audit import kernels
from planq.audit.operators import OPERATORS, expected, inputs_of
from planq.audit.reference import inputs
from support import c_library as c
from support.gpu import Cuda, cuda, new_stream

CASES = 20
ROWS, COLUMNS = 33, 256
DESC = planq.DynamicRangeQuantizeDescriptor(
    shape=(planq.Dim("m", 64), COLUMNS), input_dtype="float32", output_dtype="int8"
)


@pytest.mark.parametrize("name", sorted(OPERATORS))
@pytest.mark.parametrize("bench", [CBench, CLaunchBench])
def test_an_operator_has_the_references_bits(name: str, bench: type[CBench]) -> None:
    """Run and bound; the plan is Python's in every letter."""
    tests, device = OPERATORS[name], Cuda()
    for case in kernels.spread(tests.cases(), CASES):
        made = bench(device, tests.descriptor(case.problem))
        assert made.select().text("to_json") == made.plan.to_json()
        inputs_, outputs = inputs_of(case), expected(case)
        kernels.check_bench(made, case, inputs_, outputs, f"{name} from C on {case.id}")


class Activations:
    """Operands of DESC on the GPU, and the host's results."""

    def __init__(self) -> None:
        self.values = inputs.make("normal", (ROWS, COLUMNS), "float32", 3)
        self.x = torch.from_numpy(self.values).cuda()
        self.q = torch.full((ROWS, COLUMNS), -99, dtype=torch.int8, device="cuda:0")
        self.s = torch.full((ROWS,), -1.0, device="cuda:0")
        torch.cuda.synchronize()

    def operands(self) -> dict[str, Any]:
        """By name, as explicit tuples."""
        found = {}
        for name, tensor in (("input", self.x), ("output", self.q), ("scale", self.s)):
            dtype = str(tensor.dtype).removeprefix("torch.")
            place = (tensor.data_ptr(), tuple(tensor.shape), None, dtype, "cuda:0")
            found[name] = place
        return found

    def right(self) -> bool:
        """Whether the outputs are those of the formula."""
        torch.cuda.synchronize()
        scale = np.abs(self.values).max(axis=1) / np.float32(127)
        codes = np.rint(self.values / scale[:, None])
        same = np.array_equal(self.q.cpu().numpy(), codes)
        return same and np.array_equal(self.s.cpu().numpy(), scale)


def test_a_run_is_captured_in_a_graph() -> None:
    """From the plan's first run; nothing runs until the replay."""
    made, stream = Activations(), new_stream("cuda:0")
    plan = c.Plan.select(DESC.to_json(), stream=stream_of(stream))
    graph: Any = cuda.CUDAGraph()
    with cuda.graph(graph, stream=stream):
        plan.run(made.operands(), stream=stream_of(stream))
    torch.cuda.synchronize()
    assert bool((made.q == -99).all())
    graph.replay()
    assert made.right()


def test_the_legacy_default_stream_is_a_stream() -> None:
    """A handle of NULL."""
    made, stream = Activations(), c.Stream(c.CUDA, 0, 0, 0, None)
    c.Plan.select(DESC.to_json(), stream=stream).run(made.operands(), stream=stream)
    assert made.right()


@pytest.mark.parametrize("stream", [c.host(), c.Stream(c.CUDA, 1, 0, 0, None)], ids=["host", "1"])
def test_a_stream_elsewhere_is_refused(stream: c.Stream) -> None:
    """By run and by a launch; nothing is written."""
    made, own = Activations(), c.Stream(c.CUDA, 0, 0, 0, None)
    plan = c.Plan.select(DESC.to_json(), stream=own)
    launch = plan.bind(made.operands())
    for call in (lambda: plan.run(made.operands(), stream=stream), lambda: launch(stream)):
        with pytest.raises(c.Refused, match="the plan was selected for cuda:0") as refused:
            call()
        assert refused.value.code == "stream"
    torch.cuda.synchronize()
    assert bool((made.q == -99).all())


def test_a_device_that_is_not_there_is_an_error_of_cudas() -> None:
    """By the runtime's own name for it."""
    with pytest.raises(c.Refused, match="cudaErrorInvalidDevice") as refused:
        c.Plan.select(DESC.to_json(), stream=c.Stream(c.CUDA, 99, 0, 0, None))
    assert refused.value.code == "cuda"


def test_a_plan_that_was_foreseen_is_the_one_that_is_selected() -> None:
    """By the facts of the GPU that is here; stored, it comes back as a plan that runs."""
    made, own = Activations(), c.Stream(c.CUDA, 0, 0, 0, None)
    foreseen = c.Plan.foresee(c.device_named("cuda:0"), DESC.to_json())
    stored = foreseen.text("to_json")
    assert stored == c.Plan.select(DESC.to_json(), stream=own).text("to_json")
    with pytest.raises(c.Refused, match="the plan was foreseen for") as refused:
        foreseen.run(made.operands(), stream=own)
    assert refused.value.code == "stream"
    c.Plan.from_json(stored, own).run(made.operands(), stream=own)
    assert made.right()


def test_memory_of_the_host_is_refused() -> None:
    """Before anything is launched."""
    made, own = Activations(), c.Stream(c.CUDA, 0, 0, 0, None)
    plan = c.Plan.select(DESC.to_json(), stream=own)
    with pytest.raises(c.Refused, match=r"on cuda:0, got .* on host"):
        plan.run(made.operands() | {"input": made.values}, stream=own)


def test_the_engine_has_the_hosts_digests(tmp_path: Path) -> None:
    """The example in C++20, built with the CUDA toolkit's runtime."""
    folder = programs.build(programs.ROOT / "examples" / "engine_cpp", tmp_path / "build")
    values = inputs.make("normal", (96, 300), "float32", 7)
    write_safetensors(tmp_path / "w.safetensors", "weight", values)
    wanted = digests(values)
    assert results(folder / "engine", "--cuda", tmp_path / "w.safetensors", "weight") == wanted
    assert results(folder / "engine", tmp_path / "w.safetensors", "weight") == wanted
