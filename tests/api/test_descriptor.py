"""Descriptors: frozen, equal by meaning, and the same after JSON."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
import torch

import planq
from planq.registry import native_operator
from support.own import ADAPTERS
from support.samples import assign, make_descriptor

EVERY_FIELD: list[dict[str, Any]] = [
    {"shape": (2, 3)},
    {"input_dtype": "float64"},
    {"output_dtype": "int4"},
    {"scope": planq.Scope.group(8, 0)},
    {"mode": planq.Mode.ASYMMETRIC},
    {"q_min": -5},
    {"q_max": 5},
    {"scale_dtype": "bfloat16"},
    {"quotient": planq.Quotient.RATIO},
    {"nonfinite": planq.NonFinite.SATURATE},
    {"include_zero": False},
    {"nibble_order": planq.NibbleOrder.HIGH_FIRST},
]


def test_fields_that_are_left_out_hold_the_defaults() -> None:
    """After construction nothing is None."""
    desc = make_descriptor()
    assert (desc.q_min, desc.q_max) == (-127, 127)
    assert desc.scale_dtype is planq.DType.FLOAT32
    assert desc.input_dtype is planq.DType.FLOAT32
    assert desc.scope == planq.Scope.token()
    assert desc.mode is planq.Mode.SYMMETRIC
    assert desc.quotient is planq.Quotient.DIVIDE
    assert desc.nonfinite is planq.NonFinite.PROPAGATE
    assert desc.include_zero is True
    assert desc.nibble_order is planq.NibbleOrder.LOW_FIRST


@pytest.mark.parametrize(
    ("output_dtype", "mode", "bounds"),
    [
        ("int8", "symmetric", (-127, 127)),
        ("int4", "symmetric", (-7, 7)),
        ("int8", "asymmetric", (-128, 127)),
        ("uint8", "asymmetric", (0, 255)),
        ("int4", "asymmetric", (-8, 7)),
        ("uint4", "asymmetric", (0, 15)),
        ("float8_e4m3fn", "symmetric", (-448, 448)),
        ("float8_e5m2", "symmetric", (-57344, 57344)),
    ],
)
def test_default_bounds(output_dtype: str, mode: str, bounds: tuple[int, int]) -> None:
    """As the numeric contract lists them."""
    desc = make_descriptor(output_dtype=output_dtype, mode=planq.Mode(mode))
    assert (desc.q_min, desc.q_max) == bounds


def test_float64_inputs_have_float64_scales() -> None:
    """Unless scale_dtype says otherwise."""
    assert make_descriptor(input_dtype="float64").scale_dtype is planq.DType.FLOAT64


def test_equality_is_by_meaning() -> None:
    """A default that is spelled out, another spelling of a dtype, a negative axis: all the same."""
    plain = make_descriptor()
    spelled = make_descriptor(
        q_min=-127, q_max=127.0, scale_dtype=np.float32, input_dtype=torch.float32, shape=[6, 32]
    )
    assert plain == spelled
    assert hash(plain) == hash(spelled)
    negative = make_descriptor(scope=planq.Scope.channel(-1))
    assert negative == make_descriptor(scope=planq.Scope.channel(1))
    assert hash(negative) == hash(make_descriptor(scope=planq.Scope.channel(1)))
    assert len({plain, spelled, negative}) == 2


@pytest.mark.parametrize("change", EVERY_FIELD, ids=lambda change: next(iter(change)))
def test_every_field_counts_in_equality(change: dict[str, Any]) -> None:
    """And in the hash's key."""
    assert make_descriptor() != make_descriptor(**change)


@pytest.mark.parametrize("change", [{}, *EVERY_FIELD], ids=lambda change: "".join(change))
def test_descriptors_survive_json(change: dict[str, Any]) -> None:
    """Through the base class and through the operator's own."""
    desc = make_descriptor(**change)
    text = desc.to_json()
    assert planq.Descriptor.from_json(text) == desc
    assert planq.DynamicRangeQuantizeDescriptor.from_json(text) == desc
    assert planq.Descriptor.from_json(text).to_json() == text
    assert '"dynamic_range_quantize"' in text


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "op"),
        ("[1, 2]", "op"),
        ("{}", "op"),
        ("[" * 100_000, "op"),
        ('{"op":' * 100_000, "op"),
        ("9" * 5000, "op"),
        ("\ud800", "op"),
        ('{"op": "\\ud800"}', "op"),
        ('{"op": ["min_max"]}', "op"),
        ('{"op": "no_such_operator"}', "op"),
        ('{"op": "dynamic_range_quantize", "shape": [4], "colour": 3}', "colour"),
        (
            '{"op": "dynamic_range_quantize", "shape": [4], "input_dtype": "float32",'
            ' "output_dtype": "int8", "mode": "sideways"}',
            "mode",
        ),
    ],
)
def test_json_that_is_no_descriptor_is_refused(text: str, field: str) -> None:
    """With the field that is wrong."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.Descriptor.from_json(text)
    assert caught.value.field == field


def test_descriptors_cannot_be_changed() -> None:
    """They are keys."""
    desc = make_descriptor()
    with pytest.raises(dataclasses.FrozenInstanceError):
        assign(desc, "q_max", 5)
    with pytest.raises((AttributeError, TypeError)):
        assign(desc, "colour", "red")


def test_descriptors_survive_pickle() -> None:
    """For caches and process pools."""
    desc = make_descriptor(scope=planq.Scope.group(8))
    assert pickle.loads(pickle.dumps(desc)) == desc


@pytest.mark.parametrize(
    ("spelling", "dtype"),
    [
        ("int4", planq.DType.INT4),
        ("float8_e4m3fn", planq.DType.FLOAT8_E4M3FN),
        (planq.DType.UINT4, planq.DType.UINT4),
        (torch.bfloat16, planq.DType.BFLOAT16),
        (torch.float8_e5m2, planq.DType.FLOAT8_E5M2),
        (np.float16, planq.DType.FLOAT16),
        (np.dtype(np.int32), planq.DType.INT32),
        (ml_dtypes.bfloat16, planq.DType.BFLOAT16),
        (np.dtype(ml_dtypes.float8_e4m3fn), planq.DType.FLOAT8_E4M3FN),
        (ml_dtypes.int4, planq.DType.INT4),
    ],
)
def test_dtypes_are_read_from_every_library(spelling: object, dtype: planq.DType) -> None:
    """planq, torch, NumPy, ml_dtypes, and names."""
    assert planq.DType.parse(spelling) is dtype


@pytest.mark.parametrize("nonsense", ["float12", torch.complex64, np.dtype("U4"), 3, None])
def test_other_dtypes_are_refused(nonsense: object) -> None:
    """With a typed error."""
    with pytest.raises(planq.DescriptorError):
        planq.DType.parse(nonsense)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("shape", 5),
        ("shape", (2.5, 3)),
        ("shape", "12"),
        ("shape", (10**5000, 2)),
        ("shape", (2**63, 2)),
        ("shape", 10**5000),
        ("scope", "token"),
        ("scope", {"kind": []}),
        ("scope", {"kind": {}}),
        ("scope", {"kind": "\ud800"}),
        ("scope", {"kind": "channel", "axis": 10**5000}),
        ("scope", {"kind": "channel", "\ud800": 0}),
        ("scope", {10**5000: 1}),
        ("scope", planq.Scope("channel", 10**5000)),
        ("scope", planq.Scope("group", 0, "x")),
        ("scope", planq.Scope([])),
        ("mode", 10**5000),
        ("mode", ["symmetric"]),
        ("mode", "sideways"),
        ("quotient", None),
        ("nonfinite", 7),
        ("nibble_order", "middle_first"),
        ("include_zero", "yes"),
        ("q_min", "low"),
        ("q_max", True),
        ("q_max", 10**400),
        ("q_max", 10**5000),
        ("q_min", -(10**5000)),
        ("include_zero", 10**5000),
        ("scale_dtype", 10**5000),
        ("scale_dtype", []),
        ("scale_dtype", "\ud800"),
        ("q_max", float("nan")),
        ("q_min", float("nan")),
        ("input_dtype", None),
        ("output_dtype", None),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_field_of_the_wrong_type_is_refused(field: str, value: object) -> None:
    """By name, at construction."""
    with pytest.raises(planq.DescriptorError) as caught:
        make_descriptor(**{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: planq.Scope.channel(cast("int", "x")), "expected an integer axis, got 'x'"),
        (lambda: planq.Scope.group(cast("int", 1.5)), "expected an integer size, got 1.5"),
        (lambda: planq.Scope.block(2, cast("int", None)), "expected an integer columns, got None"),
        (lambda: planq.Scope.parse({"kind": "token", "axis": 0}), "a token scope has no 'axis'"),
        (lambda: planq.Scope.parse({"kind": "group"}), "a group scope needs 'size'"),
        (
            lambda: planq.Scope.parse("token"),
            "expected a planq.Scope, got 'token'; did you mean planq.Scope.token()?",
        ),
    ],
)
def test_a_scope_says_what_it_expects(made: Callable[[], planq.Scope], message: str) -> None:
    """Where it is made, by the sentences that a descriptor has."""
    with pytest.raises(planq.DescriptorError) as caught:
        made()
    assert str(caught.value) == f"scope: {message}"


def test_a_scope_is_read_from_what_it_writes() -> None:
    """An axis of any size stays what it is."""
    for scope in (planq.Scope.channel(5000), planq.Scope.group(4, -2), planq.Scope.block(2, 3)):
        assert planq.Scope.parse(scope.to_dict()) == scope


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("tensor()", planq.Scope.tensor()),
        (" token ( ) ", planq.Scope.token()),
        ("pair()", planq.Scope.pair()),
        ("channel(-2)", planq.Scope.channel(-2)),
        ("channel(axis=1)", planq.Scope.channel(1)),
        ("group(32)", planq.Scope.group(32)),
        ("group(32, 0)", planq.Scope.group(32, 0)),
        ("group( +32 ,axis = 0)", planq.Scope.group(32, 0)),
        ("group(axis=0, size=32)", planq.Scope.group(32, 0)),
        ("block(2, 3)", planq.Scope.block(2, 3)),
        ("block(columns=3, rows=2)", planq.Scope.block(2, 3)),
    ],
)
def test_a_scope_is_read_from_its_text(text: str, scope: planq.Scope) -> None:
    """A call of its constructor, which is what `str` writes."""
    assert planq.Scope.parse(text) == scope
    assert planq.Scope.parse(str(scope)) == scope


@pytest.mark.parametrize(
    "text",
    [
        "tokens()",
        "token(1)",
        "channel()",
        "channel(1, 2)",
        "channel(x)",
        "channel(1.5)",
        "group(axis=0)",
        "group(size=1, size=2)",
        "group(2, size=3)",
        "group(rows=3)",
        "block(2)",
        "parse(1)",
        "__init__(1)",
        "token() or tensor()",
        "group(2,)",
        "group(axis=0, 2)",
        "group(+-2)",
        "group(2 3)",
        "group(1180591620717411303424)",
        "channel(=1)",
        "(2)",
        "token(",
    ],
)
def test_a_text_that_is_no_scope_is_refused(text: str) -> None:
    """With the field and the text."""
    said = f"expected a scope such as 'token()', 'channel(0)' or 'group(128)', got '{text}'"
    with pytest.raises(planq.DescriptorError) as caught:
        make_descriptor(scope=text)
    assert caught.value.field == "scope"
    assert str(caught.value) == f"scope: {said}"


@pytest.mark.parametrize(
    "operator",
    [info for info in planq.operators() if info.name in ADAPTERS],
    ids=lambda operator: operator.name,
)
def test_every_scope_of_every_operator_is_read_from_text(operator: planq.OperatorInfo) -> None:
    """Its default as text makes the same descriptor; JSON may have it, too."""
    scopes = {
        item.name: item.default
        for item in dataclasses.fields(operator.descriptor)
        if isinstance(item.default, planq.Scope)
    }
    native = native_operator(operator.name)["fields"]
    assert scopes.keys() == {name for name, kind, *_ in native if kind == "scope"}
    adapter = ADAPTERS[operator.name]
    desc: Any = adapter.descriptor(next(iter(adapter.cases())).problem)
    held = {name: getattr(desc, name) for name in scopes}
    texts: Any = {name: str(scope) for name, scope in held.items()}
    assert dataclasses.replace(desc, **texts) == desc
    assert planq.Descriptor.from_dict({**desc.to_dict(), **texts}) == desc


def test_operands_say_what_each_tensor_has_to_be() -> None:
    """Storage shapes: two 4-bit codes a byte, rounded up."""
    desc = make_descriptor(
        shape=(3, 5), output_dtype="uint4", mode=planq.Mode.ASYMMETRIC, scope=planq.Scope.group(2)
    )
    specs = desc.operands()
    assert list(specs) == ["input", "output", "scale", "zero_point"]
    assert [spec.role for spec in specs.values()] == ["input", "output", "output", "output"]
    assert [spec.shape for spec in specs.values()] == [(3, 5), (3, 3), (3, 3), (3, 3)]
    assert [spec.storage for spec in specs.values()] == ["float32", "uint8", "float32", "int32"]
    assert specs["output"].dtype is planq.DType.UINT4
    assert specs["output"].name == "output"
    assert [spec.nbytes for spec in specs.values()] == [60, 9, 36, 36]


def test_an_operand_of_any_number_of_rows_has_the_bytes_of_the_most() -> None:
    rows = planq.Dim("rows", max=6)
    specs = make_descriptor(shape=(rows, 10), input_dtype="bfloat16").operands()
    assert (specs["input"].nbytes, specs["output"].nbytes) == (120, 60)


def test_symmetric_operators_have_no_zero_point() -> None:
    """Not even an optional one."""
    assert list(make_descriptor().operands()) == ["input", "output", "scale"]


@pytest.mark.parametrize(
    ("scope", "shape"),
    [
        (planq.Scope.tensor(), (1,)),
        (planq.Scope.channel(0), (4,)),
        (planq.Scope.channel(-2), (5,)),
        (planq.Scope.token(), (4, 5)),
        (planq.Scope.group(4), (4, 5, 2)),
        (planq.Scope.group(3, 0), (2, 5, 7)),
        (planq.Scope.group(100, 1), (4, 1, 7)),
    ],
)
def test_parameter_shapes(scope: planq.Scope, shape: tuple[int, ...]) -> None:
    """Of a (4, 5, 7) tensor."""
    assert make_descriptor(shape=(4, 5, 7), scope=scope).operands()["scale"].shape == shape


def test_token_on_a_vector_is_one_scalar_parameter() -> None:
    """`shape[:-1]` of rank 1 is ()."""
    assert make_descriptor(shape=(9,)).operands()["scale"].shape == ()


def test_scopes_are_values() -> None:
    """Equal, hashable, frozen."""
    assert planq.Scope.group(32) == planq.Scope.group(32, -1)
    assert planq.Scope.group(32) != planq.Scope.group(64)
    assert len({planq.Scope.token(), planq.Scope.token(), planq.Scope.tensor()}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        assign(planq.Scope.group(32), "size", 4)


@pytest.mark.parametrize("operator", planq.operators(), ids=lambda operator: operator.name)
def test_a_constructor_names_the_field_that_was_meant(operator: planq.OperatorInfo) -> None:
    """As from_dict does; every field is found one letter short."""
    made: Any = operator.descriptor
    for field in operator.fields:
        if len(field) > 4 and field[:-1] not in operator.fields:
            with pytest.raises(planq.DescriptorError, match="no such field") as caught:
                made(**{field[:-1]: None})
            assert caught.value.field == field[:-1]
            assert field in str(caught.value).partition("did you mean ")[2]


def test_operands_are_named_likewise() -> None:
    """Every operator's, each operand one letter short; what is missing stays what Python says."""
    for info in planq.operators():
        made: Any = info.args
        given = dict.fromkeys(info.operands)
        assert all(getattr(made(**given), name) is None for name in info.operands)
        for operand in (name for name in info.operands if len(name) > 4):
            short = operand[:-1]
            with pytest.raises(planq.ArgumentError) as caught:
                made(**given, **{short: None})
            assert caught.value.operand == short
            assert info.name in caught.value.expected
            assert operand in str(caught.value).partition("did you mean ")[2]
        for name, parameter in inspect.signature(made).parameters.items():
            incomplete = {operand: None for operand in info.operands if operand != name}
            if parameter.default is parameter.empty:
                with pytest.raises(TypeError, match=f"missing 1 required.*'{name}'"):
                    made(**incomplete)
            else:
                assert getattr(made(**incomplete), name) is None


def test_a_replaced_descriptor_names_it_too() -> None:
    """And a field that is missing stays what Python says of it."""
    changed: Any = {"input_dtyp": "float32"}
    with pytest.raises(planq.DescriptorError, match="did you mean input_dtype"):
        dataclasses.replace(make_descriptor(), **changed)
    incomplete: Any = planq.MinMaxDescriptor
    with pytest.raises(TypeError, match="missing 1 required"):
        incomplete(shape=(4, 4))


@pytest.mark.parametrize("operator", planq.operators(), ids=lambda operator: operator.name)
def test_classes_are_what_a_dataclass_of_their_fields_would_be(
    operator: planq.OperatorInfo,
) -> None:
    """In signature, arguments and equality, though they share their methods."""
    for made in (operator.descriptor, operator.args):
        items: list[Any] = [
            (item.name, item.type, dataclasses.field(default=item.default))
            for item in dataclasses.fields(made)
            if item.init
        ]
        plain: Any = dataclasses.make_dataclass(made.__name__, items, kw_only=True)
        ours, theirs = (inspect.signature(one).parameters for one in (made, plain))
        assert list(ours.values()) == list(theirs.values())
    given = dict.fromkeys(operator.operands, 1)
    assert repr(operator.args(**given)) == repr(plain(**given))
    assert operator.args(**given) == operator.args(**given) != plain(**given)
    with pytest.raises(TypeError, match="unhashable"):
        hash(operator.args(**given))


def test_a_descriptor_loses_no_field() -> None:
    """Nor gets one."""
    desc: Any = make_descriptor()
    with pytest.raises(dataclasses.FrozenInstanceError):
        del desc.shape
    with pytest.raises(dataclasses.FrozenInstanceError):
        desc.other = 1
    assert not hasattr(desc, "__dict__")
