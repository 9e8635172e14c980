"""The rules of operands, as Python reads them: numbers, and symbols that nothing may guard."""

from __future__ import annotations

import contextlib
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import planq
from planq.audit.kernels import spread
from planq.registry import native_operator
from planq.torch._results import is_symbol, results_of
from planq.torch._rules import number, shape_of
from support.own import ADAPTERS
from support.torch_operators import OPERATORS


def is_ordinary(desc: Any, shapes: list[str]) -> bool:
    """Whether the descriptor has a meaning at whole extents; torch has to know those of others."""
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
def test_rules_are_the_descriptors_specs(operator: str) -> None:
    """What is said of every operand, by Python's evaluation and by the library's."""
    tests, table = ADAPTERS[operator], native_operator(operator)["operand_table"]
    for case in (*spread(tests.cases(), 60), *spread(tests.empty_cases(), 20)):
        desc: Any = tests.descriptor(case.problem)
        values = SimpleNamespace(
            **{item.name: getattr(desc, item.name) for item in fields(desc) if item.init}
        )
        specs = desc.operands()
        assert {name for name in table if number(table[name]["present"], values)} == set(specs)
        for name, spec in specs.items():
            rules = table[name]
            assert number(rules["role"], values) == str(spec.role), f"{case.id}: {name}"
            assert str(number(rules["dtype"], values)) == str(spec.dtype), f"{case.id}: {name}"
            assert number(rules["optional"], values) == spec.optional, f"{case.id}: {name}"
            shape = spec.shapes if spec.kind is planq.OperandKind.LIST else spec.shape
            whole = shape_of(rules["shape"], values)
            assert (len(whole) == len(shape)) if spec.shapes else (whole == shape), name


@pytest.mark.parametrize("operator", OPERATORS)
def test_symbols_give_the_descriptors_shapes(operator: str) -> None:
    """Of many cases; extents that are the same are the same symbol, and 0 and 1 are numbers."""
    tests = ADAPTERS[operator]
    shapes = [name for name, kind, *_ in native_operator(operator)["fields"] if kind == "shape"]
    compared = 0
    for case in (*spread(tests.cases(), 60), *spread(tests.empty_cases(), 20)):
        desc: Any = tests.descriptor(case.problem)
        if not is_ordinary(desc, shapes):
            continue
        compared += 1
        specs = [
            spec
            for spec in desc.operands().values()
            if spec.role is planq.Role.OUTPUT and spec.kind is not planq.OperandKind.LIST
        ]
        environment = ShapeEnv()
        symbols: dict[int, Any] = {}

        def symbol(extent: int, environment: Any = environment, symbols: Any = symbols) -> Any:
            if extent < 2:
                return extent
            if extent not in symbols:
                symbols[extent] = environment.create_unbacked_symint()
            return symbols[extent]

        values = {item.name: getattr(desc, item.name) for item in fields(desc) if item.init}
        for name in shapes:
            values[name] = tuple(symbol(extent) for extent in values[name])
        found = [
            (spec, shape)
            for spec, shape in results_of(type(desc), values)
            if spec.kind is not planq.OperandKind.LIST
        ]
        known = {made.node.expr: extent for extent, made in symbols.items()}
        assert [spec.name for spec, _ in found] == [spec.name for spec in specs], case.id
        for (_, shape), spec in zip(found, specs, strict=True):
            extents = [
                int(extent.node.expr.subs(known)) if is_symbol(extent) else extent
                for extent in shape
            ]
            assert tuple(extents) == spec.shape, f"{case.id}: {spec.name}"
    assert compared > 2
