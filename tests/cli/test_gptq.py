"""`planq quantize --method gptq`: codes that make good what codes before them lose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import torch

from cli.commands import refuse, report
from cli.files import Array, checkpoint, load, weight
from cli.test_groups import coded, expected, stored
from planq.audit.reference.formats import bits
from planq.checkpoint.job import Job, quantize_file
from planq.checkpoint.layer_inputs import gram, open_inputs
from planq.checkpoint.schemes import Method, Scheme, choose_groups
from planq.cli import main
from planq.executors import HostExecutor
from support.examples import load as load_example

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]
NAME = "a.q_proj.weight"
GPTQ = ("--method", "gptq")


def inputs(rows: int, columns: int, dtype: str = "float32", seed: int = 7) -> Array:
    """Rows whose columns go together, as those of layers do, and have energies far apart."""
    draw = np.random.default_rng(seed)
    mixed = draw.standard_normal((rows, columns)) @ draw.standard_normal((columns, columns))
    made: Array = (mixed * 2.0 ** draw.uniform(-6, 6, columns)).astype(
        getattr(ml_dtypes, dtype, dtype)
    )
    return made


def by_inverse(w: Array, x: Array, size: int, scheme: str, form: str) -> Array:
    """Codes by the paper's own way: rows of the Cholesky factor of the inverse, by LAPACK.

    Scales are those of the weight as it was, and columns come in falling order of energy.
    """
    _, scales, places = expected(w, size, "none", scheme, form)
    scales, places = (each.reshape(len(w), -1) for each in (scales, places))
    h = x.astype(np.float64).T @ x.astype(np.float64)
    order = np.argsort(-h.diagonal(), kind="stable")
    h[np.diag_indices_from(h)] += 0.01 * h.diagonal().mean()
    upper = np.linalg.cholesky(np.linalg.inv(h[np.ix_(order, order)])).T
    wide = np.float64 if w.dtype == np.float64 else np.float32
    left, codes = w.astype(np.float64)[:, order], np.empty(w.shape, np.int64)
    for j, column in enumerate(order):
        scale, place = scales[:, column // size], places[:, column // size]
        own = left[:, j].astype(np.float32 if w.dtype != np.float64 else wide).astype(w.dtype)
        found = coded(own[:, None], scale, place, scheme, form)[:, 0]
        numbers = ((found - place).astype(wide) * scale.astype(wide)).astype(w.dtype)
        error = (left[:, j] - numbers.astype(np.float64)) / upper[j, j]
        left[:, j + 1 :] -= error[:, None] * upper[j, j + 1 :]
        codes[:, column] = found
    return codes


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("scheme", "size", "form"),
    [("int4-group", 32, "plain"), ("uint4-group", 64, "compressed-tensors")],
)
def test_codes_are_those_of_the_papers_way(
    tmp_path: Path, capsys: Capture, scheme: str, size: int, form: str, dtype: str
) -> None:
    w, x = weight(24, 192, dtype), inputs(300, 192)
    source, target = checkpoint(tmp_path / "in.st", {NAME: w}), tmp_path / "out.st"
    fed = checkpoint(tmp_path / "x.st", {NAME: x})
    options = ("--scheme", scheme, "--group-size", size, "--format", form, "--layer-inputs", fed)
    told = report(capsys, "quantize", source, target, *options, *GPTQ, "--verify")
    assert told["method"] == "gptq"
    codes, scale, zeros = stored(target, NAME, w.shape, scheme)
    nearest, scales, places = expected(w, size, "none", scheme, form)
    assert np.array_equal(bits(scale), bits(scales.reshape(scale.shape)))
    assert np.array_equal(zeros, places.reshape(scale.shape))
    assert np.array_equal(codes, by_inverse(w, x, size, scheme, form))
    assert (codes != nearest.reshape(codes.shape)).mean() > 0.1
    assert main(["verify", str(source), str(target), "--layer-inputs", str(fed)]) == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_sums_of_products_are_exact(dtype: str) -> None:
    """Of integers of 21 bits in each column, by Python's own integers, in several pieces."""
    x = inputs(4100, 3, dtype, seed=1).astype(np.float64)
    x[:, 1] *= 2.0**-100
    x[5, 2] = 2.0**60
    total = np.zeros((3, 3))
    for start in range(0, len(x), 2048):
        piece = x[start : start + 2048]
        ends = [int(np.frexp(np.abs(column).max())[1]) for column in piece.T]
        rounded = [
            [int(np.rint(value * 2.0 ** (21 - end))) for value in column]
            for column, end in zip(piece.T, ends, strict=True)
        ]
        products = [
            [sum(a * b for a, b in zip(p, q, strict=True)) for q in rounded] for p in rounded
        ]
        total = total + [
            [product * 2.0 ** (a + b - 42) for product, b in zip(row, ends, strict=True)]
            for row, a in zip(products, ends, strict=True)
        ]
    assert np.array_equal(gram(x), total)
    near = np.abs(gram(x) - x.T @ x) / np.sqrt(np.outer(np.square(x).sum(0), np.square(x).sum(0)))
    assert near.max() < 1e-5


def made(source: Path, target: Path, fed: Path, method: Method, threads: int) -> Any:
    groups = choose_groups(Scheme.INT4_GROUP, 64, method=method)
    with open_inputs(fed) as given:
        job = Job(source, target, Scheme.INT4_GROUP, groups=groups, evaluate=True, inputs=given)
        told = quantize_file(job, HostExecutor(threads), lambda name, nbytes, total: None)
    assert told.tensors[0].outputs
    return told.tensors[0].outputs


def test_outputs_err_less_and_bytes_do_not_depend_on_threads(tmp_path: Path) -> None:
    w, x = weight(520, 257), inputs(600, 257, "bfloat16")
    source, fed = checkpoint(tmp_path / "in.st", {"w": w}), checkpoint(tmp_path / "x.st", {"w": x})
    nearest = made(source, tmp_path / "a", fed, Method.NEAREST, 1)
    gptq = made(source, tmp_path / "b", fed, Method.GPTQ, 1)
    assert made(source, tmp_path / "c", fed, Method.GPTQ, 3) == gptq
    assert (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()
    assert gptq.relative_error < 0.7 * nearest.relative_error
    # As reported: of the outputs that inputs have with the weight, and with what is restored.
    for name, told in (("a", nearest), ("b", gptq)):
        assert main(["dequantize", str(tmp_path / name), str(tmp_path / "back")]) == 0
        back = load(tmp_path / "back").tensors["w"].astype(np.float64)
        (tmp_path / "back").unlink()
        wanted, got = (x.astype(np.float64) @ each.T for each in (w.astype(np.float64), back))
        error = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
        assert told.relative_error == pytest.approx(error, rel=1e-3)


@pytest.mark.parametrize(
    ("tensor", "fault"),
    [
        (None, f"no tensor '{NAME}', expected F16, BF16 or F32"),
        (inputs(63, 64), "[64 or more, 64]"),
        (inputs(80, 63), "[64 or more, 64]"),
        (inputs(80, 64, "float64"), "[64 or more, 64]"),
        (np.zeros((80, 64), np.float32), "expected values that are not all 0"),
        (np.full((80, 64), np.nan, np.float32), "expected finite values"),
    ],
)
def test_inputs_that_are_none_are_refused(
    tmp_path: Path, capsys: Capture, tensor: Array | None, fault: str
) -> None:
    source, target = checkpoint(tmp_path / "in.st", {NAME: weight(8, 64)}), tmp_path / "out.st"
    given = {"other": inputs(80, 64)} if tensor is None else {NAME: tensor}
    options = ("--scheme", "int4-group", "--layer-inputs", checkpoint(tmp_path / "x.st", given))
    told = refuse(capsys, "quantize", source, target, *options, *GPTQ)
    assert fault in told
    assert not target.exists()


@pytest.mark.parametrize(
    ("values", "options", "fault"),
    [
        (1.0, GPTQ, "--method: gptq needs --layer-inputs"),
        (1.0, ("--layer-inputs", "x.st"), "only with --method gptq or --evaluate"),
        (1.0, (*GPTQ, "--scheme", "int8-channel", "--layer-inputs", "x.st"), "--method"),
        (np.inf, (*GPTQ, "--layer-inputs", "x.st"), "GPTQ expected finite values"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    values: float,
    options: tuple[str, ...],
    fault: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint(tmp_path / "x.st", {NAME: inputs(80, 64)})
    source = checkpoint(tmp_path / "in.st", {NAME: np.full((8, 64), values, np.float32)})
    schemed = options if "--scheme" in options else ("--scheme", "int4-group", *options)
    assert fault in refuse(capsys, "quantize", source, tmp_path / "out.st", *schemed)
    assert not (tmp_path / "out.st").exists()


def test_a_file_is_verified_with_its_own_inputs(tmp_path: Path, capsys: Capture) -> None:
    source, target = checkpoint(tmp_path / "in.st", {NAME: weight(8, 64)}), tmp_path / "out.st"
    own, other = (
        checkpoint(tmp_path / f"{seed}.st", {NAME: inputs(80, 64, seed=seed)}) for seed in (1, 2)
    )
    report(
        capsys, "quantize", source, target, "--scheme", "int4-group", *GPTQ, "--layer-inputs", own
    )
    assert main(["verify", str(source), str(target), "--layer-inputs", str(own)]) == 0
    capsys.readouterr()
    for given in ((), ("--layer-inputs", other)):
        told = refuse(capsys, "verify", source, target, *given)
        assert "was made with other inputs" in told


def test_a_folder_is_verified_with_its_inputs(tmp_path: Path, capsys: Capture) -> None:
    """A model's; its file holds what the same weight becomes in a file of its own."""
    model, w, x = tmp_path / "model", weight(8, 64), inputs(80, 64)
    model.mkdir()
    (model / "config.json").write_text("{}")
    source = checkpoint(model / "model.safetensors", {NAME: w})
    fed = checkpoint(tmp_path / "x.st", {NAME: x})
    form = ("--format", "compressed-tensors", "--scheme", "int4-group", "--group-size", 32)
    options = (*form, *GPTQ, "--layer-inputs", fed)
    for given, target in ((model, tmp_path / "out"), (source, tmp_path / "out.st")):
        report(capsys, "quantize", given, target, *options)
    made = [
        load(path).tensors for path in (tmp_path / "out/model.safetensors", tmp_path / "out.st")
    ]
    assert made[0].keys() == made[1].keys()
    assert all(np.array_equal(bits(made[0][name]), bits(made[1][name])) for name in made[0])
    verify = ("verify", model, tmp_path / "out")
    assert main([*map(str, verify), "--layer-inputs", str(fed)]) == 0
    capsys.readouterr()
    assert ", got none" in refuse(capsys, *verify)


def test_inputs_in_a_folder_to_replace_are_refused(tmp_path: Path, capsys: Capture) -> None:
    """They would go with it."""
    model, target = tmp_path / "model", tmp_path / "out"
    model.mkdir()
    (model / "config.json").write_text("{}")
    checkpoint(model / "model.safetensors", {NAME: weight(8, 64)})
    fed = checkpoint(tmp_path / "x.st", {NAME: inputs(80, 64)})
    form = ("--format", "compressed-tensors", "--scheme", "int4-group", "--group-size", 32)
    report(capsys, "quantize", model, target, *form, *GPTQ, "--layer-inputs", fed)
    kept = fed.rename(target / "x.st")
    options = (*form, *GPTQ, "--force", "--layer-inputs", kept)
    told = refuse(capsys, "quantize", model, target, *options)
    assert f"--layer-inputs: {kept} is in {target}" in told
    assert kept.exists()


@pytest.mark.parametrize("shape", [(0, 64), (4, 0), (1, 1)])
def test_weights_of_any_shape(tmp_path: Path, capsys: Capture, shape: tuple[int, int]) -> None:
    w, x = weight(*shape), inputs(max(shape[1], 4), shape[1])
    source, target = checkpoint(tmp_path / "in.st", {NAME: w}), tmp_path / "out.st"
    fed = checkpoint(tmp_path / "x.st", {NAME: x})
    options = ("--scheme", "uint4-group", "--layer-inputs", fed, *GPTQ, "--evaluate")
    report(capsys, "quantize", source, target, *options, "--verify")
    assert main(["verify", str(source), str(target), "--layer-inputs", str(fed)]) == 0


class Pooled(torch.nn.Module):
    """Layers that are fed tokens, and one that is fed a row for each text."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(50, 6)
        self.first, self.second = torch.nn.Linear(6, 5), torch.nn.Linear(5, 4)
        self.pooler = torch.nn.Linear(4, 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        del attention_mask
        made: torch.Tensor = self.pooler(
            self.second(self.first(self.table(input_ids)).relu())[:, 0]
        )
        return made


def test_the_example_records_what_layers_are_fed() -> None:
    """Rows of tokens, in their order, without those of padding; each under its weight's name."""
    torch.manual_seed(0)
    model = Pooled()
    masks = [torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]), torch.tensor([[1, 1, 1], [1, 0, 0]])]
    batches = [{"input_ids": torch.randint(0, 50, m.shape), "attention_mask": m} for m in masks]
    found = load_example("layer_inputs").recorded(model, batches)
    assert list(found) == ["first.weight", "second.weight", "pooler.weight"]
    ids = torch.cat([b["input_ids"][b["attention_mask"].bool()] for b in batches])
    with torch.inference_mode():
        rows = model.table(ids)
        assert torch.equal(found["first.weight"], rows)
        assert torch.allclose(found["second.weight"], model.first(rows).relu())
    assert found["pooler.weight"].shape == (4, 4)
    assert not any(module._forward_pre_hooks for module in model.modules())
