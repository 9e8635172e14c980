"""Every operator through torch: bits, opcheck, torch.compile, torch.export."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import planq
from support.tensors import from_torch
from support.torch_operators import OPERATORS, Call, cases, check, overloads, some_call

COUNT = 14
# Ahead-of-time dispatch with symbols is what test_compiled_whole_with_symbols compares.
CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")


@pytest.mark.parametrize("operator", OPERATORS)
def test_bits_are_the_references(operator: str) -> None:
    """Allocating and not, with elements and without."""
    for case in cases(operator, COUNT):
        for overload in overloads(operator):
            check(operator, case, overload)


@pytest.mark.parametrize("operator", OPERATORS)
def test_opcheck(operator: str) -> None:
    """Schema, autograd's registration, fake tensors."""
    for overload in overloads(operator):
        _, call = some_call(operator, overload, COUNT)
        torch.library.opcheck(overload, (), call.arguments, test_utils=CHECKS)


class Module(torch.nn.Module):
    """The call as a graph of tensors."""

    def __init__(self, call: Call, names: list[str]) -> None:
        """Whose arguments are the tensors; the rest are constants."""
        super().__init__()
        self.overload, self.names = call.overload, names
        self.rest = {k: v for k, v in call.arguments.items() if k not in names}

    def forward(self, *tensors: torch.Tensor) -> Any:
        """What it returns, or what it wrote."""
        given = dict(zip(self.names, tensors, strict=True))
        result = self.overload(**given, **self.rest)
        return tensors if result is None else result


def graphed(call: Call) -> tuple[Module, list[torch.Tensor]]:
    """A module with its tensors, copies of the call's."""
    names = [name for name, value in call.arguments.items() if isinstance(value, torch.Tensor)]
    return Module(call, names), [call.arguments[name].clone() for name in names]


def same(ours: Any, theirs: Any) -> bool:
    """To the bit."""
    leaves = torch.utils._pytree.tree_leaves
    pairs = zip(leaves(ours), leaves(theirs), strict=True)
    return all(from_torch(a).tobytes() == from_torch(b).tobytes() for a, b in pairs)


@pytest.mark.parametrize("operator", OPERATORS)
def test_compiled_whole_with_symbols(operator: str) -> None:
    """One graph, without a break; every overload."""
    for overload in overloads(operator):
        module, tensors = graphed(some_call(operator, overload, COUNT)[1])
        wanted = module(*(tensor.clone() for tensor in tensors))
        torch.compiler.reset()
        compiled = torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")
        assert same(compiled(*tensors), wanted), overload


@pytest.mark.parametrize("operator", OPERATORS)
def test_exported(operator: str) -> None:
    """As a program that has the operator in it."""
    for overload in overloads(operator):
        module, tensors = graphed(some_call(operator, overload, COUNT)[1])
        wanted = module(*(tensor.clone() for tensor in tensors))
        program = torch.export.export(module, tuple(tensor.clone() for tensor in tensors))
        assert str(overload).rpartition(".")[0] in str(program.graph)
        assert same(program.module()(*tensors), wanted), overload


def test_every_registered_operator_is_tested_here() -> None:
    """By its adapter, or with the operators that have none."""
    defined = {
        name.partition("::")[2]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("planq::")
    }
    registered = {info.name for info in planq.operators()}
    assert {name.partition(".")[0] for name in defined} == registered
