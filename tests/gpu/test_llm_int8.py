"""LLM.int8 on a GPU: large sizes against torch, every kernel of the product, and a graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import planq
from support.gpu import cuda

DEVICE = "cuda:0"
CAPACITY = 64
BODIES = ("wgmma", "mma", "few_rows")


def empty(desc: Any) -> dict[str, torch.Tensor]:
    """Outputs and workspaces are poisoned: nothing may be left as it was."""
    made = {}
    for name, spec in desc.operands().items():
        if spec.role != planq.Role.INPUT:
            made[name] = torch.empty(spec.shape, dtype=getattr(torch, spec.storage), device=DEVICE)
            made[name].reshape(-1).view(torch.uint8).fill_(0xA5)
    return made


def room(plan: planq.Plan) -> torch.Tensor | None:
    """A workspace with something in it."""
    size = plan.workspace_size()
    return torch.full((size,), 0x5A, dtype=torch.uint8, device=DEVICE) if size else None


def matrix(rows: int, columns: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Bell-shaped values with some columns that are sometimes large."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    x = torch.randn(rows, columns, device=DEVICE, generator=generator)
    marked = torch.rand(columns, device=DEVICE, generator=generator) < 48 / columns
    large = torch.rand(rows, columns, device=DEVICE, generator=generator) < 0.3
    return (x * torch.where(marked & large, 20.0, 1.0)).to(dtype)


class Chain:
    """`llm_int8_quantize` and `linear_llm_int8` on one set of operands."""

    def __init__(
        self,
        x: torch.Tensor,
        columns: int,
        body: str | None = None,
        capacity: int = CAPACITY,
        accumulation: str = "sequential",
    ) -> None:
        """Selects both plans; weights are codes of every value."""
        rows, terms = x.shape
        name = str(x.dtype).removeprefix("torch.")
        self.x, self.capacity = x, capacity
        first = planq.LlmInt8QuantizeDescriptor(
            shape=(rows, terms), input_dtype=name, capacity=capacity
        )
        second = planq.LinearLlmInt8Descriptor(
            input_shape=(rows, terms),
            weight_shape=(columns, terms),
            output_dtype=name,
            capacity=capacity,
            outlier_dtype=name,
            bias_dtype="float32",
            accumulation=accumulation,
        )
        generator = torch.Generator(DEVICE).manual_seed(7)
        self.weight = torch.randint(
            -127, 128, (columns, terms), dtype=torch.int8, device=DEVICE, generator=generator
        )
        self.scale = torch.rand(columns, device=DEVICE, generator=generator) + 0.5
        self.bias = torch.randn(columns, device=DEVICE, generator=generator)
        stream = torch.cuda.current_stream()
        self.quantize = planq.Plan.select(stream, first)
        self.linear = planq.Plan.select(stream, second, planq.PlanPreference(body=body))
        self.made = empty(first)
        self.output = empty(second)["output"]
        self.rooms = room(self.quantize), room(self.linear)
        self.quantize_args = planq.LlmInt8QuantizeArgs(input=x, **self.made)
        shared = {name: self.made[name] for name in ("index", "count", "outlier")}
        self.linear_args = planq.LinearLlmInt8Args(
            input=self.made["output"],
            weight=self.weight,
            output=self.output,
            input_scale=self.made["scale"],
            weight_scale=self.scale,
            bias=self.bias,
            **shared,
        )

    def run(self, stream: Any) -> None:
        """Both, one after another, with nothing in between."""
        self.quantize.run(stream, self.rooms[0], self.quantize_args)
        self.linear.run(stream, self.rooms[1], self.linear_args)

    def expected_lists(self) -> dict[str, torch.Tensor]:
        """What the first leaves, by torch in float32."""
        x = self.x.float()
        outliers = x.abs() >= 6
        columns = outliers.any(dim=0).nonzero().flatten()
        listed = columns[: self.capacity]
        largest = torch.where(outliers, 0.0, x.abs()).amax(dim=1)
        scale = largest / torch.tensor(127.0, device=DEVICE)
        codes = torch.round(x / scale[:, None]).clamp(-127, 127).to(torch.int8)
        codes[:, listed] = 0
        index = torch.full((self.capacity,), -1, dtype=torch.int32, device=DEVICE)
        index[: len(listed)] = listed.to(torch.int32)
        outlier = torch.zeros(len(x), self.capacity, dtype=self.x.dtype, device=DEVICE)
        outlier[:, : len(listed)] = self.x[:, listed]
        count = torch.tensor([len(columns)], device=DEVICE)
        return {
            "output": codes,
            "scale": scale,
            "index": index,
            "count": count,
            "outlier": outlier,
        }

    def expected_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Some rows of the output. A product and a sum in float64 are rounded to odd, then once."""
        made = self.expected_lists()
        codes, weight = made["output"][rows].double(), self.weight.double()
        t = (codes @ weight.T).float() * made["scale"][rows, None]
        for place in range(min(int(made["count"]), self.capacity)):
            value = made["outlier"][rows, place].double()[:, None]
            product = value * weight[:, int(made["index"][place])]
            addend = t.double()
            total = product + addend
            back = total - product
            error = (product - (total - back)) + (addend - back)
            even = total.view(torch.int64) % 2 == 0
            away = torch.where(error > 0, torch.inf, -torch.inf).to(total)
            odd = torch.where((error != 0) & even, torch.nextafter(total, away), total)
            t = odd.float()
        return (t * self.scale + self.bias).to(self.x.dtype)

    def check(self) -> None:
        """All lists, and a sample of the outputs, to the bit."""
        torch.cuda.synchronize()
        for name, wanted in self.expected_lists().items():
            assert torch.equal(self.made[name], wanted), name
        rows = torch.arange(0, len(self.x), max(len(self.x) // 16, 1), device=DEVICE)
        assert torch.equal(self.output[rows], self.expected_rows(rows))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("rows", "terms", "columns"), [(1, 8192, 4096), (130, 4096, 3001), (2048, 4096, 4096)]
)
def test_the_chain_of_large_matrices(
    rows: int, terms: int, columns: int, dtype: torch.dtype
) -> None:
    """By the kernels that are chosen."""
    chain = Chain(matrix(rows, terms, dtype, rows), columns)
    chain.run(torch.cuda.current_stream())
    chain.check()


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("rows", [3, 16, 200, 600])
def test_every_kernel_of_the_product(rows: int, body: str) -> None:
    """The same bits, for few rows and for many."""
    if body == "few_rows" and rows > 16:
        rows = 13
    chain = Chain(matrix(rows, 1024, torch.bfloat16, rows), 1030, body)
    chain.run(torch.cuda.current_stream())
    chain.check()


@pytest.mark.parametrize("body", ["wgmma", "mma"])
@pytest.mark.parametrize("rows", [3, 16, 100, 600])
def test_a_list_longer_than_what_a_kernel_picks_at_a_time(rows: int, body: str) -> None:
    """Up to 200 columns, where shared memory has room for the codes of 64."""
    x = matrix(rows, 1024, torch.float16, rows).mul_(3)
    chain = Chain(x, 392, body, capacity=200)
    chain.run(torch.cuda.current_stream())
    assert int(chain.made["count"]) > 100
    chain.check()


@pytest.mark.parametrize("capacity", [CAPACITY, 200])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 16, 100, 600])
def test_steps_of_tensor_cores_have_the_bits_of_their_model(
    rows: int, dtype: torch.dtype, capacity: int
) -> None:
    """A kernel that multiplies by them, beside the one that computes an output at a time."""
    x = matrix(rows, 1024, dtype, rows).mul_(3 if capacity > CAPACITY else 1)
    outputs = []
    for body in ("wgmma", "outputs"):
        chain = Chain(x, 1030, body, capacity, "tensor_sm90")
        chain.run(torch.cuda.current_stream())
        torch.cuda.synchronize()
        outputs.append(chain.output)
    assert int(chain.made["count"]) > 0
    assert torch.equal(*outputs)


@pytest.mark.parametrize(("capacity", "times"), [(CAPACITY, 1), (CAPACITY, 0), (200, 3)])
def test_codes_that_a_kernel_lists_once_for_many_tiles(capacity: int, times: int) -> None:
    """Large products: about 50 columns, two, and more than are picked at a time."""
    x = matrix(1290, 4096, torch.float16, 5)
    if times == 0:
        x.clamp_(-5, 5)[:, [3, 700]] = 9
    outputs = []
    for body in ("wgmma", "outputs"):
        chain = Chain(x.mul(max(times, 1)), 8200, body, capacity, "tensor_sm90")
        chain.run(torch.cuda.current_stream())
        torch.cuda.synchronize()
        outputs.append(chain.output)
    assert int(chain.made["count"]) == 2 or int(chain.made["count"]) > 30
    assert torch.equal(*outputs)


@pytest.mark.parametrize(
    ("accumulation", "other"), [("sequential", "mma"), ("tensor_sm90", "outputs")]
)
@pytest.mark.parametrize("rows", [1, 16, 40, 128, 300])
def test_run_after_run_has_the_same_bits(rows: int, accumulation: str, other: str) -> None:
    """Warps that pick codes and warps that multiply pass the same stages and barriers."""
    x = matrix(rows, 8192, torch.float16, rows)
    expected = Chain(x, 1024, other, accumulation=accumulation)
    expected.run(torch.cuda.current_stream())
    chain = Chain(x, 1024, "wgmma", accumulation=accumulation)
    evict = torch.empty(1 << 26, dtype=torch.uint8, device=DEVICE)
    for _ in range(40):
        chain.output.fill_(float("nan"))
        evict.fill_(1)  # what is read comes from memory, in an order of its own each time
        chain.run(torch.cuda.current_stream())
        torch.cuda.synchronize()
        assert torch.equal(chain.output, expected.output)


def test_the_chain_in_a_graph() -> None:
    """Captured once; new inputs have other columns, more of them, and none."""
    x = matrix(64, 2048, torch.bfloat16, 1)
    chain = Chain(x, 512)
    stream = cuda.Stream()
    graph: Any = cuda.CUDAGraph()
    with cuda.graph(graph, stream=stream):
        chain.run(stream)
    for seed in range(4):
        x.copy_(matrix(64, 2048, torch.bfloat16, seed))
        if seed == 2:
            x.clamp_(-5, 5)
        if seed == 3:
            x.mul_(3)  # more columns than there is room for
        for _ in range(3):
            graph.replay()
        chain.check()


def test_every_column_is_an_outliers() -> None:
    """Marks meet in the same words from every row, and most columns find no room."""
    x = matrix(512, 4096, torch.float16, 3).sign() * 7
    chain = Chain(x, 256)
    chain.run(torch.cuda.current_stream())
    torch.cuda.synchronize()
    assert int(chain.made["count"]) == 4096
    assert chain.made["index"].tolist() == list(range(CAPACITY))
    assert torch.equal(chain.made["outlier"], x[:, :CAPACITY])
    assert torch.equal(chain.made["scale"], torch.ones(512, device=DEVICE))
    codes = x.to(torch.int8)
    codes[:, :CAPACITY] = 0
    assert torch.equal(chain.made["output"], codes)
