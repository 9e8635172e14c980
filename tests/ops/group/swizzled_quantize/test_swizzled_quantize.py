"""`swizzled_quantize` on the host: DeepSpeed's order, its defects, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.memory import Host
from planq.audit.ops.group.swizzled_quantize.adapter import TESTS
from planq.audit.ops.group.swizzled_quantize.reference import SwizzledQuantizeProblem
from planq.audit.reference import inputs
from planq.audit.reference.formats import Arrays

F32 = np.float32
# DeepSpeed's places of 32 groups for two nodes of four devices and two slices.
PLACES = """
 0  1 16 17  4  5 20 21  8  9 24 25 12 13 28 29  2  3 18 19  6  7 22 23 10 11 26 27 14 15 30 31
"""
FIELDS: dict[str, Any] = {
    "shape": (64,),
    "input_dtype": "float16",
    "output_dtype": "int8",
    "group_size": 2,
    "nodes": 2,
    "devices_per_node": 4,
}


def sent(groups: int, **fields: Any) -> list[int]:
    """Which group stands at each place, by parameters that tell them apart."""
    problem = SwizzledQuantizeProblem(**{**FIELDS, "shape": (2 * groups,), **fields})
    x = np.repeat(np.arange(1, groups + 1), 2).astype(np.float16)
    parameters = TESTS.run(problem, input=x)["parameters"].ravel()
    return [round(each * 128) - 1 for each in parameters.tolist()]


def test_the_order_is_deepspeeds() -> None:
    """As it is written down, group by group."""
    to = [int(each) for each in PLACES.split()]
    assert np.argsort(to).tolist() == sent(32, pipelining=2)
    assert sent(8) == [0, 4, 1, 5, 2, 6, 3, 7]


def test_one_device_changes_no_order() -> None:
    """Nor do nodes of one device each, or one node."""
    for fields in ({"nodes": 1, "devices_per_node": 1}, {"nodes": 4, "devices_per_node": 1}):
        assert sent(12, **fields) == list(range(12))
    assert sent(12, nodes=1) == list(range(12))


@pytest.mark.parametrize("codes", ["int8", "int4"])
def test_groups_of_more_than_40960_elements(codes: str) -> None:
    """Nothing was launched for them; threads share them here."""
    sizes = {"shape": (4 * 41000,), "group_size": 41000, "devices_per_node": 2}
    fields = {**FIELDS, **sizes, "output_dtype": codes, "mode": "asymmetric"}
    problem = SwizzledQuantizeProblem(**fields)
    x = inputs.make("normal", problem.shape, "float16", 2)
    TESTS.check(problem, Host(3), input=x)


def fed(x: Any, error: Any, share: float = 0.0, **fields: Any) -> Arrays:
    """The outputs for one group of a device alone, with error feedback."""
    given, errors = np.asarray(x), np.asarray(error)
    problem = SwizzledQuantizeProblem(
        shape=given.shape,
        input_dtype=given.dtype.name,
        output_dtype="int8",
        nodes=1,
        devices_per_node=1,
        error_feedback=share,
        error_dtype=errors.dtype.name,
        **{"group_size": given.size, **fields},
    )
    return TESTS.run(problem, input=given, error=errors)


class TestErrorFeedback:
    """DeepSpeed's LoCo form."""

    def test_what_codes_lose_is_kept(self) -> None:
        """A step is 1 here; 0.5 goes to 0, and stays whole or in part."""
        x, error = np.array([-128, 0.25], F32), np.array([0, 0.25], F32)
        for share, left in ((0.0, 0.5), (0.75, 0.75 * 0.25 + 0.25 * 0.5)):
            found = fed(x, error, share)
            assert found["parameters"].tolist() == [[1.0]]
            assert found["output"].tolist() == [-128, 0]
            assert found["error"].tolist() == [0.0, left]

    def test_offsets_are_part_of_what_codes_stand_for(self) -> None:
        """Of 0 and 256 with the offset 128: the codes -128 and 127, of which one is 255."""
        found = fed(np.array([0, 250], F32), np.array([0, 6], F32), mode="asymmetric")
        assert found["parameters"].tolist() == [[1.0, 128.0]]
        assert found["output"].tolist() == [-128, 127]
        assert found["error"].tolist() == [0.0, 1.0]

    def test_nothing_is_lost_in_many_steps(self) -> None:
        """What was sent and what is left is what was given; all of it is exact here."""
        x = np.concatenate([[-128.0], np.arange(-40, 41) / 16]).astype(F32)
        sent, error = np.zeros_like(x), np.zeros_like(x)
        for _ in range(50):
            found = fed(x, error)
            assert found["parameters"].tolist() == [[1.0]]
            sent, error = sent + found["output"].astype(F32), found["error"]
            assert np.abs(error).max() <= 0.5
        assert (sent + error == 50 * x).all()

    def test_errors_lie_in_the_order_of_the_output(self) -> None:
        """As DeepSpeed has them: those of a group stand where its codes go."""
        problem = SwizzledQuantizeProblem(
            **{**FIELDS, "pipelining": 2, "error_feedback": 0.0, "error_dtype": "float16"}
        )
        steps = np.arange(1, 33)
        values, zeros = np.repeat(128 * steps, 2).astype(np.float16), np.zeros(64, np.float16)
        at_place = TESTS.run(problem, input=zeros, error=values)
        assert np.rint(at_place["parameters"].ravel()).tolist() == steps.tolist()
        assert np.rint(at_place["error"]).tolist() == np.repeat(steps, 2).tolist()
        moved = TESTS.run(problem, input=values, error=zeros)
        order = np.argsort([int(each) for each in PLACES.split()])
        assert np.rint(moved["parameters"].ravel()).tolist() == steps[order].tolist()
        assert np.rint(moved["error"]).tolist() == np.repeat(steps[order], 2).tolist()

    def test_float16_sums_have_deepspeeds_bits(self) -> None:
        """2048 + 1 is no float16, nor is what a code stands for."""
        x, error = np.array([-2048, 3], np.float16), np.array([-1, 0], np.float16)
        found = fed(x, error, sum_dtype="float16")
        assert found["parameters"].tolist() == [[16.0]]
        assert found["error"].tolist() == [0.0, 3.0]
        multiplier = F32(1) / (F32(128) / F32(2049))
        found = fed(x, error)
        assert found["parameters"].tolist() == [[float(multiplier)]]
        assert found["error"].tolist() == [float(F32(-2049) + F32(128) * multiplier), 3.0]
        # 127 steps of 2049 / 128 lie between two float16.
        x = np.array([2050, 0], np.float16)
        step = F32(1) / (F32(128) / F32(2050))
        for sums, value in ((np.float32, F32(127) * step), (np.float16, np.float16(127 * step))):
            left = np.float16(F32(2050) - F32(value))
            found = fed(x, np.zeros(2, np.float16), sum_dtype=np.dtype(sums).name)
            assert found["error"].tolist() == [float(left), 0.0]
        assert np.float16(127 * step) != F32(127) * step

    @pytest.mark.parametrize("size", [24, 136, 4104])
    def test_zero_is_not_in_the_range_of_groups_without_it(self, size: int) -> None:
        """Idle lanes counted as 0; errors shift the range."""
        x = (np.arange(size) % 8 + 90).astype(np.float16)
        found = fed(x, np.full(size, 10, np.float16), mode="asymmetric")
        assert found["parameters"].tolist() == [[float(F32(0.027343748)), 103.5]]

    @pytest.mark.parametrize("errors", ["float16", "float32"])
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_a_bad_value_makes_the_errors_of_its_group_nan(self, value: float, errors: str) -> None:
        """Of an element or of an error; others keep their bits."""
        x = inputs.make("normal", (96,), "float32", 5)
        error = inputs.make("normal", (96,), errors, 6)
        clean = fed(x, error, 0.5, group_size=32)["error"]
        bad = x.copy(), error.copy()
        bad[0][40] = bad[1][40] = value
        for given in ((bad[0], error), (x, bad[1])):
            found = fed(*given, 0.5, group_size=32)
            assert np.flatnonzero(np.isnan(found["error"])).tolist() == list(range(32, 64))
            assert np.isnan(found["parameters"]).ravel().tolist() == [False, True, False]
            kept = np.r_[0:32, 64:96]
            assert found["error"][kept].tobytes() == clean[kept].tobytes()

    def test_an_error_that_float16_does_not_hold_is_infinite(self) -> None:
        """The buffer's type is the caller's choice."""
        x = np.array([2.0**30, 0], F32)
        for errors, left in ((np.float32, 2.0**23), (np.float16, np.inf)):
            assert fed(x, np.zeros(2, errors))["error"].tolist() == [left, 0.0]

    @pytest.mark.parametrize("codes", ["int8", "int4"])
    def test_groups_of_more_than_40960_elements(self, codes: str) -> None:
        """Nothing was launched for them; threads share them here."""
        sizes = {"shape": (4 * 41000,), "group_size": 41000, "devices_per_node": 2}
        feedback = {"error_feedback": 0.2, "error_dtype": "float16", "sum_dtype": "float16"}
        problem = SwizzledQuantizeProblem(**{**FIELDS, **sizes, **feedback, "output_dtype": codes})
        TESTS.check(problem, Host(3), **problem.inputs("normal", 1))

    def test_errors_have_to_be_there_and_fit(self) -> None:
        """By name."""
        problem = SwizzledQuantizeProblem(**{**FIELDS, "error_feedback": 0.0})
        plan = planq.Plan.select(planq.HOST, TESTS.descriptor(problem))
        made = {
            "input": np.zeros(64, np.float16),
            "output": np.zeros(64, np.int8),
            "parameters": np.zeros((32, 1), F32),
        }
        for error, text in (
            (None, "error"),
            (np.zeros(63, F32), r"error: .*\(64,\).*\(63,\)"),
            (np.zeros(64, np.float16), "error: .*float32.*float16"),
        ):
            args = planq.SwizzledQuantizeArgs(**made, error=error)
            with pytest.raises(planq.ArgumentError, match=text) as caught:
                plan.run(planq.HOST, None, args)
            assert caught.value.operand == "error"


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("group_size", {"shape": (63,)}, "63 elements are no whole groups of 2"),
    (
        "group_size",
        {"shape": (48,), "output_dtype": "int4", "group_size": 3},
        "groups of int4 have an even size, got 3",
    ),
    (
        "group_size",
        {"shape": (24,)},
        "12 groups are not divisible by nodes x devices_per_node x pipelining = 8",
    ),
    ("nodes", {"nodes": 0}, "expected 1 to 2^20, got 0"),
    ("devices_per_node", {"devices_per_node": -1}, "expected 1 to 2^20, got -1"),
    ("pipelining", {"pipelining": 2**20 + 1}, "expected 1 to 2^20, got 1048577"),
    (
        "error_feedback",
        {"error_feedback": 1.0},
        "expected a value of at least 0 and below 1, got 1",
    ),
    (
        "error_feedback",
        {"error_feedback": -0.5},
        "expected a value of at least 0 and below 1, got -0.5",
    ),
    (
        "error_dtype",
        {"error_feedback": 0.0, "error_dtype": "bfloat16"},
        "expected one of float32, float16, got bfloat16",
    ),
    ("error_dtype", {"error_dtype": "float16"}, "float16 goes with error_feedback"),
    ("sum_dtype", {"sum_dtype": "float16"}, "float16 goes with error_feedback"),
    (
        "sum_dtype",
        {"error_feedback": 0.0, "sum_dtype": "bfloat16"},
        "expected one of float32, float16, got bfloat16",
    ),
    ("output_dtype", {"output_dtype": "uint8"}, "expected one of int8, int4, got uint8"),
]


@pytest.mark.parametrize(("field", "change", "text"), REFUSED)
def test_bad_fields_are_refused(field: str, change: dict[str, Any], text: str) -> None:
    """By name; DeepSpeed checked none of them."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.SwizzledQuantizeDescriptor(**{**FIELDS, **change})
    assert str(caught.value) == f"{field}: {text}"
