"""What C programs give by mistake: the code and the sentence that Python raises, and no crash."""

from __future__ import annotations

import ctypes
import importlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import planq
from support import c_library as c
from support.samples import make_descriptor, make_sample

NOOP: Any = importlib.import_module("operators.noop")
LISTS: Any = importlib.import_module("operators.list300")
STEP: Any = importlib.import_module("operators.step14")
Given = dict[str, Any]


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    """Code and message of a call through C or Python."""
    try:
        call()
    except c.Refused as refused:
        return refused.code, refused.message
    except planq.PlanqError as error:
        return error.code, str(error)
    return "ok", ""


def sample() -> Given:
    """Operands of `make_descriptor()` that are right."""
    made = make_sample()
    return {"input": made.x, "output": made.q, "scale": made.s}


def explicit(array: Any, **changes: Any) -> tuple[Any, ...]:
    """An array as a tuple, with some of it changed."""
    steps = tuple(stride // array.itemsize for stride in array.strides)
    parts = {"pointer": array.ctypes.data, "shape": array.shape, "strides": steps}
    parts |= {"dtype": array.dtype.name, "device": "host"} | changes
    return tuple(parts.values())


WRONG: dict[str, Callable[[Given], Given]] = {
    "dtype": lambda g: {"input": explicit(g["input"], dtype="float64")},
    "unknown dtype": lambda g: {"input": explicit(g["input"].view(np.int32), dtype="int16")},
    "extent": lambda g: {"input": explicit(g["input"], shape=(6, 31))},
    "negative extent": lambda g: {"input": explicit(g["input"], shape=(-6, 32))},
    "huge extent": lambda g: {"input": explicit(g["input"], shape=(2**62, 2**62))},
    "rank": lambda g: {"scale": explicit(g["scale"], shape=(6, 1), strides=(1, 1))},
    "no axes": lambda g: {"scale": explicit(g["scale"], shape=(), strides=())},
    "device": lambda g: {"input": explicit(g["input"], device="cuda:0")},
    "another device": lambda g: {"output": explicit(g["output"], device="cuda:7")},
    "inner stride": lambda g: {"input": explicit(g["input"], strides=(64, 2))},
    "null address": lambda g: {"input": explicit(g["input"], pointer=0)},
    "misaligned": lambda g: {"input": explicit(g["input"], pointer=g["input"].ctypes.data + 1)},
    "in place": lambda g: {"output": explicit(g["output"], pointer=g["input"].ctypes.data)},
    "itself": lambda g: {"output": explicit(g["output"], strides=(0, 1))},
}


@pytest.mark.parametrize("what", WRONG)
def test_an_operand_is_refused_as_python_refuses_it(what: str) -> None:
    """By can_implement, run and bind; nothing is written."""
    desc = make_descriptor()
    plan, made = planq.Plan.select(planq.HOST, desc), c.Plan.select(desc.to_json())
    given = sample()
    wrong = given | WRONG[what](given)
    args = planq.DynamicRangeQuantizeArgs(**wrong)
    told = refusal(lambda: plan.run(planq.HOST, None, args))
    assert told[0] == "argument"
    for call in (made.can_implement, made.run, made.bind):
        answer = refusal(lambda call=call: call(wrong))
        if what != "unknown dtype":  # Python's tuples say a name, DLPack a code and bits
            assert answer == told
        assert answer[0] == "argument"
    assert (given["output"] == -99).all()
    assert (given["scale"] == -1).all()


ABSENT: list[tuple[str, Given, str]] = [
    ("left out", {"scale": None}, "scale: expected shape (6,) float32 on host, got None"),
    (
        "nobody's",
        {"zero_point": np.zeros(6, np.int32)},
        "zero_point: expected None, got an operand; the descriptor's mode has no such operand",
    ),
    (
        "unknown",
        {"colour": np.zeros(6)},
        "operands[3]: expected one of input, output, scale, zero_point, inverse_tensor_scale, "
        "got 'colour'",
    ),
    ("by value", {"scale": 0.5}, "scale: expected shape (6,) float32 on host, got a float64"),
    (
        "several",
        {"scale": [np.zeros(6, np.float32)] * 2},
        "scale: expected shape (6,) float32 on host, got 2 of them",
    ),
]


@pytest.mark.parametrize(("what", "changes", "sentence"), ABSENT, ids=[row[0] for row in ABSENT])
def test_an_operand_in_the_wrong_place_is_refused(what: str, changes: Given, sentence: str) -> None:
    """In C's own words, where Python would speak of a Python object."""
    made = c.Plan.select(make_descriptor().to_json())
    assert refusal(lambda: made.run(sample() | changes)) == ("argument", sentence)


def test_an_operand_that_is_left_out_is_refused_by_python_too() -> None:
    """With the same start of the sentence."""
    plan = planq.Plan.select(planq.HOST, make_descriptor())
    args = planq.DynamicRangeQuantizeArgs(**sample() | {"scale": None})
    code, message = refusal(lambda: plan.run(planq.HOST, None, args))
    assert (code, message.partition(";")[0]) == ("argument", ABSENT[0][2])


def raw(made: c.Plan, operands: Any, count: int) -> tuple[str, str]:
    """A run on operands that were put together by hand."""
    return refusal(lambda: c.call("planq_run", made.handle, c.host(), None, 0, operands, count))


def test_descriptions_without_a_meaning_are_refused() -> None:
    """Ranks, shapes, names and types that no library makes."""
    made = c.Plan.select(make_descriptor().to_json())

    def tampered(change: Callable[[c.Operand, c.Tensor], None]) -> str:
        array, count = c.operands(sample())
        change(array[0], array[0].tensors[0].contents)
        code, message = raw(made, array, count)
        assert code == "argument"
        return message.partition("got ")[2]

    assert tampered(lambda _, t: setattr(t, "ndim", 9)).startswith("a tensor of 9 axes; it has")
    assert tampered(lambda _, t: setattr(t, "ndim", -1)) == "a tensor of -1 axes"
    assert tampered(lambda _, t: setattr(t, "ndim", 2**31 - 1)).startswith("a tensor of 2147483647")
    assert tampered(lambda _, t: setattr(t, "shape", None)) == "a tensor without a shape"
    assert tampered(lambda o, _: setattr(o, "type", 9)) == "9"
    assert tampered(lambda o, _: setattr(o, "type", -1)) == "-1"
    assert tampered(lambda o, _: setattr(o, "name", None)) == "NULL"
    assert tampered(lambda o, _: setattr(o, "name", b"scale")) == "two"
    assert tampered(lambda o, _: setattr(o, "count", 0)) == "None"
    assert tampered(lambda _, t: setattr(t.dtype, "lanes", 4)) == "(6, 32) float32 on host"
    assert tampered(lambda _, t: setattr(t.dtype, "code", 255)) == "(6, 32) dlpack_code32 on host"
    assert tampered(lambda _, t: setattr(t.device, "type", 77)) == "(6, 32) float32 on other memory"
    assert raw(made, None, 3) == ("argument", "operands: expected an array, got NULL")


def test_members_of_lists_and_numbers_are_refused_by_name() -> None:
    """One that is null, too few of them, a number of another type."""
    made = c.Plan.of(planq.Plan.select(planq.HOST, LISTS.List300Descriptor(shapes=[(3,)] * 2)))
    members = [np.zeros(3, np.float32) for _ in range(4)]
    given: Given = {"parameter": members[:2], "gradient": members[2:], "rate": 0.5}
    given["sums"] = np.zeros(2)
    made.run(given)
    answer = refusal(lambda: made.run(given | {"gradient": members[2:3]}))
    assert answer == ("argument", "gradient: expected a sequence of 2 tensors, got 1 of them")
    wrong = [members[2], np.zeros(3)]
    plan_text = "shape (3,) float32 on host, got (3,) float64 on host"
    answer = refusal(lambda: made.run(given | {"gradient": wrong}))
    assert answer == ("argument", f"gradient[1]: expected {plan_text}")
    array, count = c.operands(given)
    array[1].tensors[1] = None
    assert raw(made, array, count)[1].startswith("gradient[1]: expected shape (3,) float32")
    assert refusal(lambda: made.run(given | {"rate": True}))[1].endswith("got a bool")
    made.run(given | {"rate": 1})


def aligned(nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Bytes at a multiple of 256."""
    raw_bytes = np.zeros(nbytes + 256, np.uint8)
    start = -raw_bytes.ctypes.data % 256
    return raw_bytes[start : start + nbytes]


def test_a_workspace_is_refused_as_python_refuses_it() -> None:
    """Missing, too small, misaligned, or an operand's own memory."""
    desc = NOOP.NoopDescriptor(shape=(8,), input_dtype="float32", output_dtype="int8")
    pref = planq.PlanPreference(sku="noop/host/exact", body="staged")
    plan = planq.Plan.select(planq.HOST, desc, pref)
    made = c.Plan.of(plan)
    needed = plan.workspace_size()
    memory = aligned(2 * needed + 512)
    given = {
        "input": np.zeros(8, np.float32),
        "output": memory[:8].view(np.int8),
        "scale": np.zeros(1, np.float32),
        "zero_point": np.zeros(1, np.int32),
    }
    args = NOOP.NoopArgs(**given)
    start = memory.ctypes.data
    good = (start + 1024, needed)
    made.run(given, good)
    made.bind(given, good)()
    for workspace in (None, (start + 1024, needed - 1), (start + 1025, needed), (start, needed)):
        told = refusal(lambda workspace=workspace: plan.run(planq.HOST, workspace, args))
        assert told[0] == "workspace"
        for call in (made.run, made.bind):
            answer = refusal(lambda call=call, w=workspace: call(given, w or (None, 0)))
            assert answer == told
    answer = refusal(lambda: made.run(given, (None, needed)))
    assert answer[0] == "workspace"
    assert answer[1].endswith("its address is null")


def test_a_stream_is_refused_as_python_refuses_it() -> None:
    """None at all, threads that nobody has, another device's."""
    desc = make_descriptor().to_json()
    for threads in (0, -5, 1025):
        told = refusal(lambda threads=threads: planq.host_stream(threads))
        assert refusal(lambda t=threads: c.Plan.select(desc, stream=c.host(t))) == told
    odd = {
        "expected PLANQ_HOST or PLANQ_CUDA, got 7": c.Stream(7, 0, 1, 0, None),
        "expected the number of a device, got -1": c.Stream(c.CUDA, -1, 0, 0, None),
    }
    for sentence, stream in odd.items():
        answer = refusal(lambda stream=stream: c.Plan.select(desc, stream=stream))
        assert answer == ("stream", sentence)
    handle = ctypes.c_uint64()
    answer = refusal(lambda: c.call("planq_select", None, desc.encode(), None, handle))
    assert answer[0] == "stream"
    plan, made = planq.Plan.select(planq.HOST, make_descriptor()), c.Plan.select(desc)
    args = planq.DynamicRangeQuantizeArgs(**sample())
    told = refusal(lambda: plan.run(planq.cuda_stream(0, 3), None, args))
    cuda = c.Stream(c.CUDA, 3, 0, 0, None)
    assert refusal(lambda: made.run(sample(), stream=cuda)) == told
    assert told[0] == "stream"
    assert refusal(lambda: made.bind(sample())(cuda)) == told


def test_a_device_that_is_not_there_is_an_error_of_cudas() -> None:
    """In a build without CUDA, in one without a driver, and beside the devices that there are."""
    desc, index = make_descriptor(), 99
    told = refusal(lambda: planq.Plan.select(planq.cuda_stream(0, index), desc))
    cuda = c.Stream(c.CUDA, index, 0, 0, None)
    assert refusal(lambda: c.Plan.select(desc.to_json(), stream=cuda)) == told
    assert told[0] == "cuda"


DESCRIPTOR = make_descriptor().to_dict()
TEXTS = [
    *("", "null", "[]", "7", '"x"', "{}", "{", '{"op": 3}', '{"op": "paint"', "nul", "truefalse"),
    *('{"op": "quantize", "op": "quantize"}', "[" * 100_000, '{"a":' * 5000, "9" * 5000, "1e999"),
    *("NaN", "-Infinity", "-", "01", "1.", "1e", '"\\x"', '"\\ud800"', '"\\udc00"', '"\t"', '"a'),
    "[1,]",
    *('{"a":1,}', '{"a"}', "{1:2}", "[1 2]", "1 2", '"\\u12"', '"\\ud800\\u0041"', '"\\u00g0"'),
    *(json.dumps(DESCRIPTOR | {field: None}) for field in DESCRIPTOR),
    *(json.dumps(DESCRIPTOR | {field: "no such"}) for field in DESCRIPTOR if field != "op"),
    *(json.dumps(DESCRIPTOR | {field: 10**40}) for field in DESCRIPTOR),
    *(json.dumps({k: v for k, v in DESCRIPTOR.items() if k != field}) for field in DESCRIPTOR),
    *(json.dumps(DESCRIPTOR | {"shape": shape}) for shape in (
        [], [1] * 9, [-1, 2], [2**61, 2], [True, 4], [4.0, 4], [{"dim": "m"}, 4], ["m", 4],
        {"a": 1},
        [{"dim": "m", "max": 0}, 4], [{"dim": "9", "max": 3}, 4], [4, {"dim": "m", "max": 3}],
        [{"dim": "m" * 32, "max": 3}, 4], [{"dim": "m", "max": True}, 4], [2**63, 1], [[1], 2],
    )),
    *(json.dumps(DESCRIPTOR | {"scope": scope}) for scope in (
        {}, {"kind": "channel"}, {"kind": "tensor", "axis": 1}, {"kind": "group", "size": 1.5},
        {"kind": "group", "size": 4, "axis": 2**70}, {"kind": "block", "rows": 2},
        {"kind": "block", "columns": "x", "rows": "y"}, {"kind": "group", "size": 0}, {"kind": 1},
        {"kind": "channel", "axis": 9}, {"kind": "line"},
        *("token()", "group(4, axis=0)", " block( rows = 2 , columns = 3 ) "),
        *("line()", "token(1)", "group(0)", "group(+-1)", f"group({2**70})", "channel(9)", "(2)"),
        *("block(2,)", "group(axis=0, 4)", "block(2, rows=3)", "group(4 4)", "channel(=1)"),
    )),
    *(json.dumps(DESCRIPTOR | {"q_min": bound}) for bound in (1e300, "1", True, 0.5, 10**400)),
    json.dumps(DESCRIPTOR | {"colour": 1}),
    json.dumps(DESCRIPTOR | {"": 1}),
    json.dumps(DESCRIPTOR | {"a\nb": 1}),
]  # fmt: skip


@pytest.mark.parametrize(
    "text", TEXTS, ids=lambda text: text[-40:].encode("unicode_escape").decode()
)
def test_a_descriptor_is_refused_as_python_refuses_it(text: str) -> None:
    """Or selects what Python selects."""
    told = refusal(lambda: planq.Plan.select(planq.HOST, planq.Descriptor.from_json(text)))
    answer = refusal(lambda: c.Plan.select(text))
    if "no operator is called" in told[1]:  # Python's list has only those whose classes it has
        told, answer = ((code, words.partition(";")[0]) for code, words in (told, answer))
    assert answer == told


PREFERENCE = planq.PlanPreference().to_dict()
PREFERENCES: list[Any] = [
    *([], 3, None, {"speed": 1}, {"": 1}),
    *({key: value} for key in PREFERENCE for value in (None, -1, 2**63, True, "", "HOST", [], 1.5)),
    {"sku": "quantize/host/nothing"},
    {"body": "nothing"},
    {"max_workspace_bytes": 0, "max_ulp": 0, "backend": "cuda"},
]


@pytest.mark.parametrize("values", PREFERENCES, ids=str)
def test_a_preference_is_refused_as_python_refuses_it(values: Any) -> None:
    """Or it selects what Python's selects, or nothing, for the same reasons."""
    desc = make_descriptor()

    def select() -> None:
        pref = planq.PlanPreference.from_dict(values)
        planq.Plan.select(planq.HOST, desc, pref)

    assert refusal(lambda: c.Plan.select(desc.to_json(), json.dumps(values))) == refusal(select)


def test_a_stored_plan_is_compared_as_python_compares_it() -> None:
    """Every key, the message with both values."""
    plan = planq.Plan.select(planq.HOST, make_descriptor())
    stored = plan.to_dict()
    texts = ["", "[]", "{}", "null", '{"descriptor": 1}', "[" * 1000]
    texts += [json.dumps(stored | {key: value}) for key in stored for value in (None, 3, "x", {})]
    texts += [json.dumps({k: v for k, v in stored.items() if k != key}) for key in stored]
    texts += [json.dumps(stored | {"extra": extra}) for extra in (None, [1.5, "\u00e9"])]
    texts.append(json.dumps(stored | {"revision": float(stored["revision"])}))
    for text in texts:
        told = refusal(lambda text=text: planq.Plan.from_json(planq.HOST, text))
        assert refusal(lambda text=text: c.Plan.from_json(text)) == told, text


def test_extents_are_refused_as_python_refuses_them() -> None:
    """Beyond their Dim, of another name, too many of them."""
    desc = make_descriptor(shape=(planq.Dim("m", 16), 8))
    plan, made = planq.Plan.select(planq.HOST, desc), c.Plan.select(desc.to_json())
    for extent in (-1, 17, 2**62):
        told = refusal(lambda extent=extent: plan.workspace_size(m=extent))
        assert refusal(lambda extent=extent: made.workspace_size(m=extent)) == told
        assert told[0] == "descriptor"
    assert refusal(lambda: made.workspace_size(k=3))[0] == "argument"
    assert refusal(lambda: made.workspace_size(m=3, k=3))[0] == "argument"
    fixed = c.Plan.select(make_descriptor().to_json())
    assert refusal(lambda: fixed.workspace_size(m=3))[0] == "argument"
    size = ctypes.c_size_t()
    for count in (1, 2):
        code, _ = refusal(
            lambda count=count: c.call("planq_plan_workspace_size", made.handle, None, count, size)
        )
        assert code == "argument"


def test_null_is_refused_wherever_something_has_to_be() -> None:
    """By a code, with the name of the parameter."""
    desc, made = make_descriptor().to_json().encode(), c.Plan.select(make_descriptor().to_json())
    handle, size = ctypes.c_uint64(5), ctypes.c_size_t(5)
    stream = c.host()
    calls: dict[str, tuple[Any, ...]] = {
        "descriptor": ("planq_select", stream, None, None, handle),
        "plan": ("planq_select", stream, desc, None, None),
        "text": ("planq_plan_from_json", stream, None, handle),
        "size": ("planq_plan_sku", made.handle, None, 0, None),
        "buffer": ("planq_plan_sku", made.handle, None, 99, size),
        "bytes": ("planq_plan_workspace_size", made.handle, None, 0, None),
        "launch": ("planq_bind", made.handle, None, 0, *c.operands(sample()), None),
    }
    for name, arguments in calls.items():
        code, message = refusal(lambda arguments=arguments: c.call(*arguments))
        assert code == "argument"
        assert message.startswith(f"{name}: expected ")
        assert message.endswith("got NULL")
    answer = refusal(lambda: c.call("planq_plan_from_json", stream, b"7", None))
    assert answer == ("argument", "plan: expected an address, got NULL")
    assert handle.value == 5


def test_a_text_goes_into_a_buffer_that_is_large_enough() -> None:
    """One byte less is refused, and nothing is written."""
    made = c.Plan.select(make_descriptor().to_json())
    sku = made.text("sku").encode()
    size = ctypes.c_size_t()
    small = ctypes.create_string_buffer(b"#" * len(sku), len(sku))
    answer = refusal(lambda: c.call("planq_plan_sku", made.handle, small, len(small), size))
    sentence = f"buffer: expected at least {len(sku) + 1} bytes, got {len(sku)}"
    assert answer == ("buffer", sentence)
    assert small.raw == b"#" * len(sku)
    assert size.value == len(sku) + 1
    exact = ctypes.create_string_buffer(size.value)
    c.call("planq_plan_sku", made.handle, exact, len(exact), None)
    assert exact.value == sku


def test_a_call_that_succeeds_leaves_the_last_error() -> None:
    """And one that fails leaves what it would have written."""
    handle = ctypes.c_uint64(7)
    with pytest.raises(c.Refused, match="not JSON"):
        c.call("planq_select", c.host(), b"?", None, handle)
    assert handle.value == 7
    made = c.Plan.select(make_descriptor().to_json())
    given = sample()
    made.run(given)
    assert b"not JSON" in c.C.planq_last_error()
    assert (given["scale"] > 0).all()
