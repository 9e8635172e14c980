"""Plans whose kernels begin before those of the plan ahead have ended: nobody reads too early.

Chains of short plans, each of which reads what the one ahead wrote, and overwrites what that one
read. Every round has another input, so that a kernel which did not wait would meet other values;
the residual adds up what all rounds have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import planq
from support.gpu import cuda, new_stream

ROUNDS = 60
WIDTH = 2048
# What norms and gates leave.
CODES: dict[str, dict[str, Any]] = {
    "groups": {
        "output_dtype": "int8",
        "scope": planq.Scope.group(32),
        "scale_dtype": "float32",
        "quotient": planq.Quotient.RATIO,
    },
    "tokens": {"output_dtype": "float8_e4m3fn", "also_output": True},
}


class Chain:
    """Plans on tensors of one device. Codes of every round are kept, all else is written again."""

    def __init__(self, device: str, dtype: str, rows: int, codes: str) -> None:
        """Selects the plans, and makes the operands of every round."""
        self.device = device
        self.stream = planq.HOST if device == "cpu" else new_stream(device)
        both: dict[str, Any] = {"shape": (rows, WIDTH), "input_dtype": dtype}
        norm = {**both, "weight_dtype": dtype}
        gate = {**both, "function": "gelu_tanh", "gated": True, "layout": "separate"}
        one = {"shape": (WIDTH,), "input_dtype": dtype}
        kinds = {
            "sum": (planq.AddDescriptor(**both), planq.AddArgs),
            "coded norm": (
                planq.RmsNormDescriptor(**norm, residual_dtype=dtype, **CODES[codes]),
                planq.RmsNormArgs,
            ),
            "centred norm": (planq.LayerNormDescriptor(**norm), planq.LayerNormArgs),
            "norm": (planq.RmsNormDescriptor(**norm), planq.RmsNormArgs),
            "coded gate": (
                planq.ActivationDescriptor(**gate, **CODES[codes]),
                planq.ActivationArgs,
            ),
            "gate": (planq.ActivationDescriptor(**both, function="silu"), planq.ActivationArgs),
            "sigmoid": (planq.UnaryDescriptor(**both, function="sigmoid"), planq.UnaryArgs),
            "weight": (planq.UnaryDescriptor(**one, function="sigmoid"), planq.UnaryArgs),
            "quantize": (
                planq.DynamicRangeQuantizeDescriptor(**both, output_dtype="int8"),
                planq.DynamicRangeQuantizeArgs,
            ),
        }
        self.kinds = {
            name: (planq.Plan.select(self.stream, desc), args)
            for name, (desc, args) in kinds.items()
        }
        generator, kind = torch.Generator().manual_seed(rows), getattr(torch, dtype)
        self.given = torch.randn((ROUNDS, rows, WIDTH), generator=generator).to(kind).to(device)
        names = ("x", "y", "z", "residual", "last")
        self.at = {name: torch.zeros_like(self.given[0]) for name in names}
        self.at["w"] = torch.ones(WIDTH, dtype=kind, device=device)
        self.kept: dict[str, torch.Tensor] = {}
        self.rounds = [self._round(number) for number in range(ROUNDS)]

    def _round(self, number: int) -> list[tuple[planq.Plan, Any, Any]]:
        """The launches of a round, in order. What norms take for a constant is written as well."""
        t = self.at
        return [
            self._launch("sum", t["x"], input=self.given[number], other=t["y"]),
            self._coded("coded norm", number, input=t["x"], weight=t["w"], residual=t["residual"]),
            self._launch("centred norm", t["z"], input=t["residual"], weight=t["w"], eps=1e-6),
            self._coded("coded gate", number, input=t["z"], up=t["x"]),
            self._launch("gate", t["x"], input=t["z"]),
            self._launch("sum", t["z"], input=t["x"], other=t["y"]),
            self._launch("norm", t["last"], input=t["z"], weight=t["w"], eps=1e-6),
            self._launch("weight", t["w"], input=t["last"][-1]),
            self._launch("sigmoid", t["y"], input=t["last"]),
            self._coded("quantize", number, input=t["y"]),
        ]

    def _launch(self, kind: str, output: torch.Tensor, **operands: Any) -> Any:
        plan, args = self.kinds[kind]
        workspace = plan.empty_workspace(torch, device=self.device)
        return plan, workspace, args(output=output, **operands)

    def _coded(self, kind: str, number: int, **operands: Any) -> Any:
        outputs = self.kinds[kind][0].empty_outputs(torch, device=self.device)
        self.kept |= {f"{kind} {number}: {name}": tensor for name, tensor in outputs.items()}
        eps = {"eps": 1e-6} if "norm" in kind else {}
        return self._launch(kind, **outputs, **operands, **eps)

    def run(self) -> None:
        """All rounds, without a wait."""
        for launches in self.rounds:
            for plan, workspace, args in launches:
                plan.run(self.stream, workspace, args)

    def bits(self) -> dict[str, Any]:
        """Of all tensors that were written."""
        every = self.at | self.kept
        return {name: t.cpu().view(torch.uint8).numpy() for name, t in every.items()}


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("codes", CODES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_chain_of_plans(dtype: str, codes: str, rows: int, captured: bool) -> None:
    """Every tensor has the bits of the host, run plan by plan and as a graph."""
    host, gpu = Chain("cpu", dtype, rows, codes), Chain("cuda:0", dtype, rows, codes)
    host.run()
    torch.cuda.synchronize()
    if captured:
        graph: Any = cuda.CUDAGraph()
        with cuda.graph(graph, stream=gpu.stream):
            gpu.run()
        graph.replay()
    else:
        gpu.run()
    torch.cuda.synchronize()
    found = gpu.bits()
    for name, wanted in host.bits().items():
        assert np.array_equal(found[name], wanted), name


@pytest.mark.parametrize("captured", [False, True])
def test_plans_wait_for_another_stream(captured: bool) -> None:
    """Two streams in turn: each reads what the other wrote, and overwrites what it read."""
    shape, rounds = (64, WIDTH), 40
    desc = planq.AddDescriptor(shape=shape, input_dtype="float32")
    ones = torch.ones(shape, device="cuda:0")
    x, y = (torch.zeros(shape, device="cuda:0") for _ in "xy")
    first, second = new_stream("cuda:0"), new_stream("cuda:0")
    plans = [planq.Plan.select(stream, desc) for stream in (first, second)]

    def run() -> None:
        for _ in range(rounds):
            plans[0].run(first, None, planq.AddArgs(input=x, other=ones, output=y))
            second.wait_stream(first)
            plans[1].run(second, None, planq.AddArgs(input=y, other=y, output=x))
            first.wait_stream(second)

    torch.cuda.synchronize()
    if captured:
        graph: Any = cuda.CUDAGraph()
        with cuda.graph(graph, stream=first):
            run()
        graph.replay()
    else:
        run()
    torch.cuda.synchronize()
    wanted = np.float32(0)
    for _ in range(rounds):
        wanted = np.float32(2) * (wanted + np.float32(1))
    assert (x.cpu().numpy() == wanted).all()
