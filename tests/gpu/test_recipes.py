"""Recipes on a GPU have the bits of their formulas, in a CUDA graph too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import planq
from planq import recipes
from recipes.formulas import PROBLEMS, Array, Problem, rounded
from support.gpu import cuda, new_stream, on_gpu

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"


def on_device(problem: Problem, stream: Any) -> tuple[recipes.Recipe, dict[str, torch.Tensor]]:
    """The recipe of a problem, and its operands."""
    recipe: recipes.Recipe = getattr(recipes, problem.name)(stream, **problem.fields)
    operands = {name: on_gpu(array, DEVICE) for name, array in problem.inputs.items()}
    return recipe, operands | recipe.empty_outputs(torch, device=DEVICE)


def bits(output: torch.Tensor) -> Array:
    """The elements as bytes."""
    flat = output.contiguous().reshape(-1).view(torch.uint8)
    found: Array = flat.cpu().numpy()
    return found


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_recipe_has_the_bits_of_its_formula(name: str) -> None:
    """In every problem; what the workspace holds before does not matter."""
    compared = 0
    for problem in PROBLEMS[name]():
        stream = torch.cuda.current_stream(DEVICE)
        recipe, operands = on_device(problem, stream)
        workspace = recipe.empty_workspace(torch, device=DEVICE)
        if workspace is not None:
            workspace.fill_(0xFF)
        recipe.run(stream, workspace, **operands)
        torch.cuda.synchronize(DEVICE)
        wanted = rounded(problem).reshape(-1).view(np.uint8)
        assert np.array_equal(bits(operands["output"]), wanted), problem.fields
        compared += 1
    assert compared > 40


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_recipe_is_captured_in_a_graph(name: str) -> None:
    """From its first run; a replay reads what its operands then hold."""
    problem = next(iter(PROBLEMS[name]()))
    stream = new_stream(DEVICE)
    recipe, operands = on_device(problem, stream)
    workspace = recipe.empty_workspace(torch, device=DEVICE)
    graph = cuda.CUDAGraph()
    kept = operands["input"].clone()
    operands["input"].zero_()
    torch.cuda.synchronize(DEVICE)
    with cuda.graph(graph, stream=stream):
        recipe.run(stream, workspace, **operands)
    graph.replay()
    torch.cuda.synchronize(DEVICE)
    wanted = rounded(problem).reshape(-1).view(np.uint8)
    assert not np.array_equal(bits(operands["output"]), wanted)
    operands["input"].copy_(kept)
    graph.replay()
    torch.cuda.synchronize(DEVICE)
    assert np.array_equal(bits(operands["output"]), wanted)


def test_memory_of_the_host_is_no_workspace() -> None:
    """The message says so."""
    problem = next(iter(PROBLEMS["igemmlt"]()))
    stream = torch.cuda.current_stream(DEVICE)
    recipe, operands = on_device(problem, stream)
    workspace = recipe.empty_workspace(torch)
    with pytest.raises(planq.WorkspaceError, match="it is on another device"):
        recipe.run(stream, workspace, **operands)
