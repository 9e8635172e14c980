"""`planq.positions`: every bit by another way, float64, transformers' tables, what is refused."""

from __future__ import annotations

import decimal
import subprocess
import sys
import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

import planq
from planq.audit.reference.formats import Array
from planq.audit.reference.functions import FUNCTIONS
from planq.positions import cos_sin

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that transformers imports
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

SCALINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.5, "original_max_position_embeddings": 512},
    "yarn": {"factor": 8.0, "original_max_position_embeddings": 512},
    "yarn of DeepSeek": {
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 0.8,
    },
    "yarn, not rounded": {
        "factor": 32.0,
        "original_max_position_embeddings": 1024,
        "truncate": False,
        "attention_factor": 1.25,
    },
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
    "longrope": {
        "short_factor": [1 + i / 64 for i in range(32)],
        "long_factor": [1.5 + i * i / 16 for i in range(32)],
        "original_max_position_embeddings": 512,
        "factor": 32.0,
    },
    "longrope, short": {
        "short_factor": [1.125 + i / 8 for i in range(32)],
        "long_factor": [64.0] * 32,
        "original_max_position_embeddings": 4096,
        "attention_factor": 1.1902380714238083,
    },
}


def configuration(name: str) -> dict[str, Any]:
    """The scaling as a checkpoint has it."""
    return {"rope_type": name.split()[0].rstrip(","), **SCALINGS[name]}


def longrope(**changes: Any) -> dict[str, Any]:
    """That of long sequences, with other words."""
    return configuration("longrope") | changes


def exact_steps(base: float, dim: int, factors: Sequence[float] = ()) -> Array:
    """Frequencies over factors, in 2^-64 turns, by binary arithmetic of 300 bits."""
    by = factors or [1.0] * (dim // 2)
    with mpmath.workprec(300):
        waves = [mpmath.mpf(base) ** (-mpmath.mpf(2 * i) / dim) / by[i] for i in range(dim // 2)]
        turns = [int(mpmath.nint(wave / (2 * mpmath.pi) * 2**64)) for wave in waves]
    return np.array([turn % 2**64 for turn in turns], np.uint64)


@pytest.mark.parametrize("base", [10000.0, 500000.0, 1e6, 1.5, 0.25])
@pytest.mark.parametrize("dim", [2, 64, 128, 6])
def test_every_bit_is_that_of_the_contract(dim: int, base: float) -> None:
    """Integers by other arithmetic, and the reference's functions of whole products."""
    rows = 5000 if dim == 128 else 300
    table = cos_sin(base, dim, rows)
    steps = exact_steps(base, dim)
    for row in {0, 1, 2, 17, 255, rows // 3, rows - 1}:
        phase = np.array([(row * int(step) % 2**64) >> 32 for step in steps], np.uint32)
        wanted = np.concatenate([FUNCTIONS["cos_turn"](phase), FUNCTIONS["sin_turn"](phase)])
        assert table[row].tobytes() == wanted.astype(np.float32).tobytes(), row
    assert table.shape == (rows, dim)
    assert table[0].tolist() == [1.0] * (dim // 2) + [0.0] * (dim // 2)


def test_angles_are_right_for_far_positions() -> None:
    """Beyond what float32 angles can tell: 2^-32 turns and the rounding of a float32 are lost."""
    rows = 300_001
    table = cos_sin(10000.0, 8, rows).astype(np.float64)
    waves = 10000.0 ** (-np.arange(4) / 4)
    for row in (1, 65_535, 131_072, 300_000):
        angles = row * waves
        exact = np.concatenate([np.cos(angles), np.sin(angles)])
        assert np.abs(table[row] - exact).max() <= 2**-24 + 2 * np.pi * 2**-32 + row * 2.0**-52


@pytest.mark.parametrize("name", SCALINGS)
def test_tables_are_nearly_those_of_transformers(name: str) -> None:
    """Its frequencies have float32 errors, and so has the product with the position.

    The bound: 2^-21 of the angle, which has a few roundings, and 2^-22 of the largest number.
    """
    rows, dim, base = 700, 64, 10000.0
    given = configuration(name)
    own = given | ({"original_max_position_embeddings": None} if name == "dynamic" else {})
    parameters = {key: value for key, value in own.items() if value is not None}
    config = LlamaConfig(
        hidden_size=dim,
        num_attention_heads=1,
        max_position_embeddings=512 if name == "dynamic" else rows,
        rope_parameters=parameters | {"rope_theta": base},
    )
    if name == "default":
        embedding = LlamaRotaryEmbedding(config)
        waves, factor = embedding.inv_freq, embedding.attention_scaling
    else:
        waves, factor = ROPE_INIT_FUNCTIONS[given["rope_type"]](config, None, seq_len=rows)
    angles = np.arange(rows)[:, None] * waves.double().numpy()
    theirs = np.concatenate([np.cos(angles), np.sin(angles)], 1) * float(factor)
    ours = cos_sin(base, dim, rows, given).astype(np.float64)
    bound = np.tile(angles, 2) * 2.0**-21 * float(factor) + 2.0**-22 * float(factor)
    assert (np.abs(ours - theirs) <= bound).all()
    if name != "default":
        plain = cos_sin(base, dim, rows)
        assert np.abs(ours - plain).max() > 0.5


def test_a_fixed_factor_of_ntk_scales_the_base() -> None:
    """base * factor^(dim / (dim - 2)), and that of `dynamic` at such a length."""
    scaled = cos_sin(10000.0, 64, 100, {"rope_type": "ntk", "factor": 4.0})
    other = cos_sin(10000.0 * 4.0 ** (64 / 62), 64, 100)
    assert np.abs(scaled - other).max() <= 100 * 2.0**-48 + 2.0**-23
    grown = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 40}
    assert cos_sin(1e4, 64, 100, grown).tobytes() == scaled.tobytes()  # 2 * 100 / 40 - 1 = 4
    same = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 4000}
    assert cos_sin(1e4, 64, 100, same).tobytes() == cos_sin(1e4, 64, 100).tobytes()


@pytest.mark.parametrize(("rows", "kind"), [(512, "short_factor"), (513, "long_factor")])
def test_every_bit_of_longrope_is_that_of_the_contract(rows: int, kind: str) -> None:
    """One position more, and the long factors count; the attention factor is that of both."""
    given = configuration("longrope")
    with mpmath.workprec(300):
        factor = np.float32(float(mpmath.sqrt(1 + mpmath.log(32) / mpmath.log(512))))
    table, steps = cos_sin(1e4, 64, rows, given), exact_steps(1e4, 64, given[kind])
    for row in (0, 1, 17, 511, rows - 1):
        phase = np.array([(row * int(step) % 2**64) >> 32 for step in steps], np.uint32)
        wanted = np.concatenate([FUNCTIONS["cos_turn"](phase), FUNCTIONS["sin_turn"](phase)])
        assert table[row].tobytes() == (wanted.astype(np.float32) * factor).tobytes(), row


def test_a_factor_of_longrope_up_to_1_leaves_the_cosines() -> None:
    for factor in (1.0, 0.5):
        assert (cos_sin(1e4, 64, 3, longrope(factor=factor))[0, :32] == 1).all()
    given = longrope(factor=None, attention_factor=0.75)
    assert (cos_sin(1e4, 64, 3, given)[0, :32] == 0.75).all()
    arrays = {name: np.array(given[name]) for name in ("short_factor", "long_factor")}
    assert (cos_sin(1e4, 64, 3, given | arrays) == cos_sin(1e4, 64, 3, given)).all()


def test_shorter_tables_are_beginnings_and_the_attention_factor_is_rounded_once() -> None:
    """A row does not depend on how many there are."""
    yarn = configuration("yarn")
    long = cos_sin(5e5, 64, 9000, yarn)
    assert cos_sin(5e5, 64, 4097, yarn).tobytes() == long[:4097].tobytes()
    assert cos_sin(5e5, 64, 0, yarn).shape == (0, 64)
    factor = np.float32(0.1 * float(mpmath.log(8)) + 1)
    assert long[0, 0] == factor
    plain = cos_sin(5e5, 64, 50, yarn | {"attention_factor": 1.0})
    assert (plain * factor).tobytes() == long[:50].tobytes()


def test_settings_of_the_program_change_nothing() -> None:
    """Of decimal arithmetic: its precision and its rounding."""
    wanted = cos_sin(1e4, 64, 200, configuration("yarn")).tobytes()
    with decimal.localcontext(decimal.Context(prec=5, rounding=decimal.ROUND_UP)):
        assert cos_sin(1e4, 64, 200, configuration("yarn")).tobytes() == wanted


def test_the_table_is_what_the_operator_takes() -> None:
    """A turn by it has the angle of the position."""
    table = cos_sin(10000.0, 4, 20)
    query = np.array([[[1, 0, 0, 0]]], np.float32)
    desc = planq.RotaryEmbeddingDescriptor(query_shape=(1, 1, 4), dtype="float32", max_position=20)
    args = planq.RotaryEmbeddingArgs(
        query=query, cos_sin=table, position=np.array([7]), invalid=np.zeros(1, np.int64)
    )
    planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    wanted = [np.cos(7), 0, np.sin(7), 0]
    assert np.allclose(query[0, 0], wanted, rtol=0, atol=2.0**-23)


def test_importing_planq_does_not_import_the_module() -> None:
    """It needs NumPy."""
    code = "import sys, planq; assert 'numpy' not in sys.modules; planq.positions.cos_sin"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


@pytest.mark.parametrize(
    ("changes", "operand", "text"),
    [
        ({"base": 0.0}, "base", "a finite number above 0, got 0.0"),
        ({"base": float("nan")}, "base", "got nan"),
        ({"base": "x"}, "base", "expected a number, got str"),
        ({"dim": 7}, "dim", "an even number, got 7"),
        ({"dim": 0}, "dim", "got 0"),
        ({"dim": 64.0}, "dim", "an integer, got float"),
        ({"max_position": -1}, "max_position", "got -1"),
        ({"max_position": 2**32 + 1}, "max_position", "got 4294967297"),
        ({"scaling": {"rope_type": "longest"}}, "rope_type", "got longest"),
        ({"scaling": {"type": "linear"}}, "factor", "a number for linear, got nothing"),
        ({"scaling": {"rope_type": "linear", "factor": -1.0}}, "factor", "got -1.0"),
        ({"scaling": {"factor": 2.0}}, "scaling", "keys that default has, got factor"),
        ({"scaling": {"rope_theta": 3.0}}, "rope_theta", "the base, 10000, got 3.0"),
        ({"dim": 2, "scaling": {"rope_type": "ntk", "factor": 2.0}}, "dim", "4 or more"),
        (
            {"scaling": configuration("llama3") | {"high_freq_factor": 1.0}},
            "high_freq_factor",
            "above low_freq_factor",
        ),
        ({"base": 0.5, "scaling": configuration("yarn")}, "base", "above 1 for yarn"),
        (
            {"dim": 32, "scaling": longrope()},
            "short_factor",
            "16 numbers, one for each",
        ),
        ({"scaling": longrope(long_factor=[1.0])}, "long_factor", "32 numbers, one for each pair"),
        ({"scaling": longrope(long_factor=None)}, "long_factor", "for longrope, got nothing"),
        ({"scaling": longrope(short_factor=2.0)}, "short_factor", "a list of numbers, got float"),
        (
            {"scaling": longrope(short_factor="123")},
            "short_factor",
            "a list of numbers, got str",
        ),
        (
            {"scaling": longrope(long_factor=[1.0, 0.0] * 16)},
            "long_factor[1]",
            "a finite number above 0, got 0.0",
        ),
        ({"scaling": longrope(factor=None)}, "factor", "or attention_factor, got nothing"),
        (
            {"scaling": longrope(original_max_position_embeddings=1)},
            "original_max_position_embeddings",
            "a number above 1, got 1",
        ),
        (
            {"scaling": configuration("linear") | {"long_factor": [1.0] * 32}},
            "scaling",
            "keys that linear has, got long_factor",
        ),
    ],
)
def test_arguments_that_are_refused(changes: dict[str, Any], operand: str, text: str) -> None:
    """Each is named, with what was expected and what came."""
    given: dict[str, Any] = {"base": 10000.0, "dim": 64, "max_position": 20}
    with pytest.raises(planq.ArgumentError) as caught:
        cos_sin(**(given | changes))
    assert caught.value.operand == operand
    assert text in str(caught.value)


def test_frequencies_are_the_nearest_integers() -> None:
    """60 digits are enough to tell: no frequency of usual bases lies near a tie."""
    for base in (10000.0, 500000.0, 1e6):
        with mpmath.workprec(300):
            for i in range(64):
                turns = mpmath.mpf(base) ** (-mpmath.mpf(i) / 64) / (2 * mpmath.pi) * 2**64
                rest = Fraction(int(mpmath.floor((turns % 1) * 2**100)), 2**100)
                assert abs(rest - Fraction(1, 2)) > Fraction(1, 2**40)
