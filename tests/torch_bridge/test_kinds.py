"""Lists, numbers and operands that may be left out: operators of the tests that have no adapter."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import planq
import planq.torch

for name in ("list300", "steps", "tally"):
    importlib.import_module(f"operators.{name}")
OPS: Any = torch.ops.planq
SHAPES = ((3, 5), (), (0,), (257,))


def members(factor: float) -> list[torch.Tensor]:
    """Tensors of several shapes."""
    return [torch.full(shape, factor * (i + 1)) for i, shape in enumerate(SHAPES)]


@pytest.mark.parametrize("rate", [{"rate": 0.5}, {"rate_tensor": torch.tensor(0.5)}], ids=str)
def test_lists_are_updated(rate: dict[str, Any]) -> None:
    """Each by its own gradient; a number by value and in memory."""
    parameter, gradient, sums = members(1.0), members(4.0), torch.empty(4, dtype=torch.float64)
    OPS.list300(parameter, gradient, sums, **rate)
    assert all(map(torch.equal, parameter, members(-1.0)))
    assert sums.tolist() == [15, 2, 0, 4 * 257]
    torch.library.opcheck(OPS.list300.default, (members(1.0), members(4.0), sums), rate)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_lists_are_updated_when_compiled() -> None:
    """In place, as torch's own."""

    def step(parameter: list[torch.Tensor], gradient: list[torch.Tensor]) -> torch.Tensor:
        sums = torch.empty(4, dtype=torch.float64)
        OPS.list300(parameter, gradient, sums, 0.5)
        return sums + 1

    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
    parameter = members(1.0)
    assert compiled(parameter, members(4.0)).tolist() == [16, 3, 1, 4 * 257 + 1]
    assert all(map(torch.equal, parameter, members(-1.0)))


def test_a_member_that_is_wrong_is_named() -> None:
    """By its place, and none of the others is written."""
    parameter, sums = members(1.0), torch.empty(4, dtype=torch.float64)
    gradient = [*members(4.0)[:3], torch.ones(256)]
    with pytest.raises(planq.ArgumentError, match=r"gradient\[3\]: expected shape \(257,\)"):
        OPS.list300(parameter, gradient, sums, 0.5)
    assert all(map(torch.equal, parameter, members(1.0)))
    with pytest.raises(planq.ArgumentError, match=r"gradient.*gradient"):
        OPS.list300(parameter, [t.requires_grad_() for t in members(4.0)], sums, 0.5)


def test_operands_that_may_be_left_out() -> None:
    """Without the operand that tells it, the shape is an argument."""
    rows = torch.tensor([[-1.0, 2.0, 3.0], [-4.0, -5.0, 6.0]])
    copy, count, size, found = OPS.tally(rows, True)
    assert torch.equal(copy, rows)
    assert (count.item(), size.item(), found.item()) == (3, 6, True)
    for negative in ({"negative": False}, {"negative_tensor": torch.tensor(False)}):
        OPS.tally.out(count, size, found, rows, **negative)
        assert (count.item(), found.item()) == (3, True)
        OPS.tally.out(count, size, found, shape=[4, 5], **negative)
        assert (count.item(), size.item(), found.item()) == (0, 20, False)
    torch.library.opcheck(OPS.tally.default, (rows, True))
    with pytest.raises(planq.DescriptorError, match="shape: expected one, there is no rows"):
        OPS.tally.out(count, size, found, negative=True)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Several threads for torch, whatever the environment gave it: one thread takes another way."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_several_results_and_steps() -> None:
    """A tuple; memory between the steps is torch's."""
    for rows in (3, 5):
        output, way = OPS.steps(torch.arange(float(rows * 4)).reshape(rows, 4))
        assert output.flatten().tolist() == [2 * i + 1 for i in range(rows * 4)]
        assert way.tolist() == [1]
    torch.library.opcheck(OPS.steps.default, (torch.ones(3, 4),))
