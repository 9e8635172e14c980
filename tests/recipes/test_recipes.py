"""Recipes have the bits of their formulas on the host, and refuse what they cannot take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import planq
from planq import recipes
from recipes.formulas import PROBLEMS, Array, Problem, rounded

MAKERS: dict[str, Any] = {name: getattr(recipes, name) for name in PROBLEMS}


def made(problem: Problem, stream: Any = planq.HOST) -> recipes.Recipe:
    """The recipe of a problem."""
    recipe: recipes.Recipe = MAKERS[problem.name](stream, **problem.fields)
    return recipe


def outputs_of(recipe: recipes.Recipe) -> dict[str, Array]:
    """Outputs as NumPy arrays, of bytes where NumPy lacks the type."""
    spec = recipe.operands()["output"]
    dtype = "uint16" if spec.storage == "bfloat16" else spec.storage
    return {"output": np.full(spec.shape, 0x55, dtype)}


def bits(array: Array) -> Array:
    """The elements as unsigned integers."""
    return array.view(f"u{array.dtype.itemsize}")


def as_operand(recipe: recipes.Recipe, name: str, array: Array) -> Any:
    """An array as an operand, by its address where NumPy lacks the type."""
    spec = recipe.operands()[name]
    if spec.storage != "bfloat16":
        return array
    return (array.ctypes.data, array.shape, None, "bfloat16", "host")


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_recipe_has_the_bits_of_its_formula(name: str) -> None:
    """In every problem; what the workspace holds before does not matter."""
    compared = 0
    for problem in PROBLEMS[name]():
        recipe = made(problem)
        outputs = outputs_of(recipe)
        workspace = recipe.empty_workspace(np)
        if workspace is not None:
            workspace[...] = 0xFF
        operands = {
            key: as_operand(recipe, key, array) for key, array in (problem.inputs | outputs).items()
        }
        recipe.run(planq.HOST, workspace, **operands)
        wanted = rounded(problem)
        assert np.array_equal(bits(outputs["output"]), bits(wanted)), problem.fields
        compared += 1
    assert compared > 40


def test_every_plan_is_bit_exact_on_a_host_and_on_gpus() -> None:
    """Kernels are chosen without the GPU."""
    for name, problems in PROBLEMS.items():
        recipe = made(next(problems()))
        assert recipe.determinism() is planq.Determinism.BIT_EXACT, name
        for step, plan in recipe.plans.items():
            for device in ("sm_80", "sm_90", "sm_120"):
                chosen = planq.explain(plan.descriptor, device=device).chosen
                assert chosen is not None, (name, step, device)
                assert chosen.guarantee.determinism is planq.Determinism.BIT_EXACT


def problem_of(name: str) -> Problem:
    """A small problem with a workspace."""
    return next(iter(PROBLEMS[name]()))


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_bound_launch_runs_again(name: str) -> None:
    """On what its operands then hold."""
    problem = problem_of(name)
    recipe = made(problem)
    inputs = {key: array.copy() for key, array in problem.inputs.items()}
    outputs = recipe.empty_outputs(np)
    launch = recipe.bind(recipe.empty_workspace(np), **inputs, **outputs)
    launch(planq.HOST)
    assert np.array_equal(bits(outputs["output"]), bits(rounded(problem)))
    inputs["input"][...] //= 3
    launch(planq.host_stream(threads=1))
    others = outputs_of(recipe)
    recipe.run(planq.HOST, recipe.empty_workspace(np), **inputs, **others)
    assert np.array_equal(bits(outputs["output"]), bits(others["output"]))
    assert not np.array_equal(bits(outputs["output"]), bits(rounded(problem)))


def test_torch_tensors_are_operands_too() -> None:
    """With outputs that torch allocates."""
    problem = problem_of("vectorwise_mm_dequant")
    recipe = made(problem)
    inputs = {key: torch.from_numpy(array) for key, array in problem.inputs.items()}
    outputs = recipe.empty_outputs(torch)
    recipe.run(planq.HOST, recipe.empty_workspace(torch), **inputs, **outputs)
    assert np.array_equal(bits(outputs["output"].numpy()), bits(rounded(problem)))


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_wrong_operand_is_named_as_the_recipe_names_it(name: str) -> None:
    """Each one, and nothing has run: the output is as it was."""
    problem = problem_of(name)
    recipe = made(problem)
    outputs = outputs_of(recipe)
    given = {**problem.inputs, **outputs}
    workspace = recipe.empty_workspace(np)
    for key in given:
        wrong = np.zeros((3, 3, 3, 3), np.float64)
        with pytest.raises(planq.ArgumentError) as caught:
            recipe.run(planq.HOST, workspace, **{**given, key: wrong})
        assert caught.value.operand == key
        assert "(3, 3, 3, 3)" in caught.value.actual
        with pytest.raises(planq.ArgumentError) as caught:
            recipe.run(planq.HOST, workspace, **{k: v for k, v in given.items() if k != key})
        assert (caught.value.operand, caught.value.actual) == (key, "none")
    with pytest.raises(planq.ArgumentError, match="bias: expected one of "):
        recipe.run(planq.HOST, workspace, **given, bias=np.zeros(3))
    assert (bits(outputs["output"]) == bits(outputs_of(recipe)["output"])).all()


class Elsewhere(np.ndarray[Any, Any]):
    """Memory that says it is a GPU's."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def test_a_workspace_is_checked() -> None:
    """As that of a plan is."""
    problem = problem_of("igemmlt")
    recipe = made(problem)
    size = recipe.workspace_size()
    given = {**problem.inputs, **outputs_of(recipe)}
    whole: Array = np.zeros(size + 1024, np.uint8)
    first = -whole.ctypes.data % 256
    good = whole[first : first + size]
    recipe.run(planq.HOST, good, **given)
    recipe.run(planq.HOST, (good.ctypes.data, size), **given)
    recipe.run(planq.HOST, torch.from_numpy(good), **given)
    refused: dict[str, Any] = {
        "none was given": None,
        "it is too small": good[:-1],
        "it is misaligned": whole[first + 1 : first + 1 + size],
        "its address is null": (0, size),
        "are two unsigned integers": (-1, size),
        "expected a writable one-dimensional byte tensor": whole[first::2],
        "or .pointer, bytes": np.zeros(size, np.float32),
        "byte tensor": "a text",
        "it is on another device": good.view(Elsewhere),
    }
    for problem_text, workspace in refused.items():
        with pytest.raises(planq.WorkspaceError, match=problem_text) as caught:
            recipe.run(planq.HOST, workspace, **given)
        assert (caught.value.needed, caught.value.alignment) == (size, 256)


def test_a_workspace_that_overlaps_an_operand_is_refused() -> None:
    """Of NumPy, of torch, and by its address; in the gaps of a strided one too."""
    problem = problem_of("igemmlt")
    recipe = made(problem)
    size = recipe.workspace_size()
    whole: Array = np.zeros(2 * size + 512, np.uint8)
    first = -whole.ctypes.data % 256
    workspace = whole[first : first + size]
    given = {**problem.inputs, **outputs_of(recipe)}
    shape = given["input"].shape
    inside = workspace[: shape[0] * shape[1]].view(np.int8).reshape(shape)
    begins = whole.view(np.int8)[first - first % 8 :]
    strided = np.lib.stride_tricks.as_strided(begins, shape, (size // shape[0] + 64, 1))
    for overlapping in (
        inside,
        torch.from_numpy(inside),
        (inside.ctypes.data, shape, None, "int8", "host"),
        strided,
    ):
        with pytest.raises(planq.WorkspaceError, match="it overlaps an operand"):
            recipe.run(planq.HOST, workspace, **{**given, "input": overlapping})


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "weight_shape": ("igemmlt", {"shape": (4, 8), "weight_shape": (4, 9)}),
    "shape": ("igemmlt", {"shape": (4,), "weight_shape": (4, 9)}),
    "weight_layout": (
        "igemmlt",
        {"shape": (4, 8), "weight_shape": (4, 8), "weight_layout": "diagonal"},
    ),
    "output_dtype": (
        "igemmlt",
        {"shape": (4, 8), "weight_shape": (4, 8), "output_dtype": "float32"},
    ),
    "form": ("vectorwise_mm_dequant", {"shape": (4, 8), "form": "crosswise"}),
    "output_dtype ": ("vectorwise_mm_dequant", {"shape": (4, 8), "output_dtype": "int8"}),
    "shape ": ("vectorwise_mm_dequant", {"shape": ()}),
    "shape  ": ("vectorwise_mm_dequant", {"shape": (planq.Dim("m", max=8), 4)}),
    "weight_shape ": ("dequant_min_max", {"shape": (4, 8), "weight_shape": (9, 8)}),
    "weight_shape  ": ("dequant_min_max", {"shape": (4, 8), "weight_shape": (8,)}),
    "weight_dtype": (
        "dequant_min_max",
        {"shape": (4, 8), "weight_shape": (8, 5), "weight_dtype": "float32"},
    ),
    "output_dtype  ": (
        "dequant_min_max",
        {"shape": (4, 8), "weight_shape": (8, 5), "output_dtype": "int32"},
    ),
}


@pytest.mark.parametrize("field", REFUSED)
def test_a_field_is_refused_by_its_name(field: str) -> None:
    """The recipe's, not that of one of its plans."""
    name, fields = REFUSED[field]
    with pytest.raises(planq.DescriptorError) as caught:
        MAKERS[name](planq.HOST, **fields)
    assert caught.value.field == field.strip()
    assert "expected" in str(caught.value)


def test_a_preference_holds_for_every_plan() -> None:
    """A backend that is not the stream's is one that no plan has."""
    pref = planq.PlanPreference(backend=planq.Backend.CUDA)
    for name, problems in PROBLEMS.items():
        with pytest.raises(planq.NoKernelError):
            MAKERS[name](planq.HOST, **next(problems()).fields, pref=pref)


def test_a_stream_of_another_kind_is_refused() -> None:
    """When it is made, and when it runs."""
    with pytest.raises(planq.StreamError):
        recipes.igemmlt("host", shape=(4, 8), weight_shape=(4, 8))  # type: ignore[arg-type]
    problem = problem_of("igemmlt")
    recipe = made(problem)
    with pytest.raises(planq.StreamError):
        recipe.run(None, recipe.empty_workspace(np), **problem.inputs, **outputs_of(recipe))  # type: ignore[arg-type]
