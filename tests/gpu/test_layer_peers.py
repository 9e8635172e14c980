"""The peers of norms and gates on a GPU compute what planq does, nearly; decode.py sees kernels."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

import decode
import planq
from harness.peers import layer_peers

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
NORM = planq.RmsNormDescriptor(
    shape=(3, 4096), input_dtype="bfloat16", weight_dtype="bfloat16", residual_dtype="bfloat16"
)
GATE = planq.ActivationDescriptor(
    shape=(3, 3000), function="silu", gated=True, input_dtype="bfloat16"
)


@pytest.mark.parametrize("code", ["bfloat16", "int8", "float8_e4m3fn"])
@pytest.mark.parametrize("desc", [NORM, GATE], ids=["norm", "gate"])
def test_kernels_of_triton_compute_the_formula(desc: Any, code: str) -> None:
    columns = desc.shape[-1]
    draw = torch.Generator("cuda").manual_seed(3)
    x, residual = (
        torch.randn(3, width, generator=draw, device="cuda").bfloat16()
        for width in (columns if desc is NORM else 2 * columns, columns)
    )
    given: dict[str, Any] = {"input": x}
    if desc is NORM:
        given |= {"residual": residual, "weight": residual[0].clone(), "eps": 1e-5}
    twin = {**given, **({"residual": residual.clone()} if desc is NORM else {})}
    expected = layer_peers.of_vllm(desc, code)(given)
    found = layer_peers.triton_kernels().of_triton(desc, code)(twin)
    if code == "bfloat16":
        torch.testing.assert_close(found[0], expected[0], rtol=2**-6, atol=2**-6)
    else:
        # A rounding of a sum moves an element over a tie: to the next code, no further.
        torch.testing.assert_close(found[1], expected[1], rtol=2**-7, atol=0)
        codes, wanted = (each[0].float() for each in (found, expected))
        step = 1.0 if code == "int8" else 2**-3 * wanted.abs() + 2**-9
        assert bool(((codes - wanted).abs() <= step).all())
    if desc is NORM:
        assert torch.equal(twin["residual"], given["residual"])


def test_a_step_is_one_graph_of_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--small", "--quick", "--tokens", "1,3", "--json", str(tmp_path / "decode.json")]
    monkeypatch.setattr(sys, "argv", ["decode.py", *words])
    stream = torch.cuda.current_stream()
    try:
        assert decode.main() == 0
    finally:
        torch.cuda.set_stream(stream)
    for entry in json.loads((tmp_path / "decode.json").read_text())["steps"]:
        assert entry["us"] > 0
        # A launch is a kernel or more; where the profiler may not look there is none to count.
        assert entry.get("kernels", entry["launches"]) >= entry["launches"]
