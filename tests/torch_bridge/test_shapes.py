"""Shapes of results where no extent is known: symbols without a hint, which nothing may guard."""

from __future__ import annotations

import contextlib
from dataclasses import fields, replace
from typing import Any

import pytest
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import planq
from planq.registry import native_operator
from planq.torch import _shapes
from support.kernels import ADAPTERS, spread
from support.torch_operators import OPERATORS


def is_ordinary(desc: Any, shapes: list[str]) -> bool:
    """Whether the descriptor has a meaning at whole extents; torch has to specialise others."""
    for unit in (64, 64 * 3 * 5 * 7):
        whole = {
            name: tuple(
                min(extent, 1) * unit if extent != 1 else 1 for extent in getattr(desc, name)
            )
            for name in shapes
        }
        with contextlib.suppress(planq.DescriptorError):
            replace(desc, **whole)
            return True
    return False


@pytest.mark.parametrize("operator", OPERATORS)
def test_formulas_are_the_descriptors_shapes(operator: str) -> None:
    """Of many cases; extents that are the same are the same symbol, and 0 and 1 are numbers."""
    tests = ADAPTERS[operator]
    shapes = [name for name, kind, *_ in native_operator(operator)["fields"] if kind == "shape"]
    compared = 0
    for case in (*spread(tests.cases(), 60), *spread(tests.empty_cases(), 20)):
        desc: Any = tests.descriptor(case.problem)
        if not is_ordinary(desc, shapes):
            continue
        compared += 1
        specs = [spec for spec in desc.operands().values() if spec.role is planq.Role.OUTPUT]
        environment, symbols = ShapeEnv(), {}

        def symbol(extent: int, environment: Any = environment, symbols: Any = symbols) -> Any:
            if extent < 2:
                return extent
            if extent not in symbols:
                symbols[extent] = environment.create_unbacked_symint()
            return symbols[extent]

        values = {item.name: getattr(desc, item.name) for item in fields(desc) if item.init}
        for name in shapes:
            values[name] = tuple(symbol(extent) for extent in values[name])
        found = _shapes.results(operator, values)
        known = {made.node.expr: extent for extent, made in symbols.items()}
        assert [spec.name for spec, _ in found] == [spec.name for spec in specs], case.id
        for (_, shape), spec in zip(found, specs, strict=True):
            extents = [
                int(extent.node.expr.subs(known)) if _shapes.is_symbol(extent) else extent
                for extent in shape
            ]
            assert tuple(extents) == spec.shape, f"{case.id}: {spec.name}"
    assert compared > 2
