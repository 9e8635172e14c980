"""Adding an operator touches its own folders, its file and its family: nothing else.

The tests' own operator shows it: it is complete without a line about it anywhere in the library.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planq
from planq.dtypes import VOCABULARIES
from support.own import PRIVATE

ROOT = Path(__file__).parent.parent.parent
NOOP: Any = importlib.import_module("operators.noop")
INCLUDE = re.compile(r'^#include "ops/(.*)"$', re.MULTILINE)
DESC = NOOP.NoopDescriptor(shape=(3, 8), input_dtype="bfloat16", output_dtype="int8")


INPUT = np.zeros((3, 8), np.uint16)


def make_args(**changes: Any) -> Any:
    """Four operands; bfloat16 as an explicit tuple."""
    operands: dict[str, Any] = {
        "input": (INPUT.ctypes.data, INPUT.shape, None, "bfloat16", "host"),
        "output": np.full((3, 8), 7, np.int8),
        "scale": np.full(1, 7, np.float32),
        "zero_point": np.full(1, 7, np.int32),
    }
    return NOOP.NoopArgs(**{**operands, **changes})


def test_the_library_does_not_know_the_operator_by_name() -> None:
    """Neither its sources, nor its package, nor its build."""
    files = [
        ROOT / "CMakeLists.txt",
        *(ROOT / "src").rglob("*.*"),
        *(ROOT / "planq").rglob("*.py*"),
    ]
    sources = [path for path in files if path.suffix != ".pyc"]
    assert len(sources) > 30
    for path in sources:
        assert "noop" not in path.read_text().lower(), path


def test_what_all_families_share_knows_none_of_them() -> None:
    """Families stand on it, and it stands on no family."""
    for folder in ("core", "math", "host", "cuda"):
        files = list((ROOT / "src" / folder).iterdir())
        assert files
        for path in files:
            assert '#include "ops/' not in path.read_text(), path


# Whose floors a family's files may use beside their own.
FLOORS: dict[str, set[str]] = {
    "activation": {"affine", "elementwise"},
    "affine": {"group"},
    "attention": {"affine", "kv_cache", "linear"},
    "codebook": {"affine"},
    "elementwise": set(),
    "gather": {"affine"},
    "gguf": {"affine", "linear"},
    "group": set(),
    "kv_cache": {"affine", "position"},
    "linear": {"affine", "codebook", "packing"},
    "memory": {"affine"},
    "norm": {"affine"},
    "optimizer": {"affine", "codebook"},
    "outlier": {"affine"},
    "packing": {"affine"},
    "position": {"norm"},
    "routing": set(),
    "statistics": set(),
}


def test_families_use_floors_of_others_as_declared_and_in_no_circle() -> None:
    """They never use another's operators."""
    used: dict[str, set[str]] = {}
    for family in (ROOT / "src" / "ops").iterdir():
        files = [path for path in family.rglob("*.*") if path.is_file()]
        included = {line for path in files for line in INCLUDE.findall(path.read_text())}
        others = {Path(line) for line in included if not line.startswith(f"{family.name}/")}
        assert not [path for path in others if (family.parent / path.parent / "desc.h").exists()]
        used[family.name] = {path.parts[0] for path in others}
    assert used == FLOORS
    TopologicalSorter(FLOORS).prepare()  # raises CycleError


def test_the_operator_is_whole() -> None:
    """Listed, selected, explained, stored, run."""
    info = {operator.name: operator for operator in planq.operators()}["noop"]
    assert info.operands == ("input", "output", "scale", "zero_point")
    assert len(info.kernels) >= 5
    plan = planq.Plan.select(planq.HOST, DESC)
    assert type(plan) is NOOP.NoopPlan
    assert planq.Descriptor.from_json(DESC.to_json()) == DESC
    assert planq.Plan.from_json(planq.HOST, plan.to_json()).sku == plan.sku
    args = make_args()
    plan.run(planq.HOST, None, args)
    plan.bind(None, args)(planq.HOST)
    assert (args.output == 7).all()


def vocabularies(module: str) -> list[str]:
    """The enumerations that a family's ``vocabulary.py`` defines."""
    words = vars(importlib.import_module(module))
    return [name for name, value in VOCABULARIES.items() if words.get(name) is value]


def test_every_operators_file_is_named_by_its_family_and_by_planq() -> None:
    """A family lists the classes of its files and its words, where editors find them."""
    found = set()
    for family in pkgutil.iter_modules(planq.ops.__path__, "planq.ops."):
        package = importlib.import_module(family.name)
        classes = []
        for module in pkgutil.iter_modules(package.__path__, f"{family.name}."):
            operator = module.name.rpartition(".")[2]
            if operator == "vocabulary":
                classes += vocabularies(module.name)
                continue
            found.add(operator)
            title = operator.title().replace("_", "")
            classes += [f"{title}{kind}" for kind in ("Args", "Descriptor", "Plan")]
            descriptor = getattr(importlib.import_module(module.name), f"{title}Descriptor")
            assert descriptor.operator == operator
        assert sorted(package.__all__) == sorted(classes)
        assert set(classes) <= set(planq.__all__)
        assert all(getattr(planq, name) is getattr(package, name) for name in classes)
    assert found == {info.name for info in planq.operators()} - PRIVATE


def test_its_operands_are_checked_like_any_other() -> None:
    """By the same code, in the same words."""
    plan = planq.Plan.select(planq.HOST, DESC)
    with pytest.raises(planq.ArgumentError) as caught:
        plan.run(planq.HOST, None, make_args(output=np.zeros((8, 3), np.int8)))
    assert str(caught.value) == (
        "output: expected shape (3, 8) int8 on host, got (8, 3) int8 on host"
    )


def test_one_operators_plans_refuse_anothers_args_and_descriptors() -> None:
    """No plan runs what it was not made for."""
    plan = planq.Plan.select(planq.HOST, DESC)
    other = planq.DynamicRangeQuantizeArgs(input=None, output=None, scale=None)
    with pytest.raises(planq.ArgumentError):
        plan.run(planq.HOST, None, other)
    with pytest.raises(planq.DescriptorError):
        planq.DynamicRangeQuantizePlan.select(planq.HOST, DESC)
    with pytest.raises(planq.DescriptorError):
        planq.DynamicRangeQuantizeDescriptor.from_json(DESC.to_json())
