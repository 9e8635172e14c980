"""The native field table: what a field is, whether it may be left out, and where it comes from."""

from __future__ import annotations

import dataclasses
import importlib
import pickle
import subprocess
import sys
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest
import torch

import planq
from planq import _core
from planq._classes import CLASSES
from planq._constructors import descriptor_class
from planq.dtypes import VOCABULARIES
from planq.registry import native_operator, register

EVERY: Any = importlib.import_module("operators.every_kind")
NATIVE: dict[str, dict[str, Any]] = {name: native_operator(name) for name in CLASSES}

# Of the OCP formats for microscaling, which no library here describes: bits, exponent and mantissa
# bits, bias, least and largest, infinities, NaN (OCP MX 1.0, tables 1, 2, 5 and 7).
MICROSCALING = {
    "float8_e8m0fnu": (8, 8, 0, 127, 0, 2.0**127, False, True),
    "float6_e2m3fn": (6, 2, 3, 1, -7.5, 7.5, False, False),
    "float6_e3m2fn": (6, 3, 2, 3, -28, 28, False, False),
    "float4_e2m1fn": (4, 2, 1, 1, -6, 6, False, False),
}
# A byte that is 0 or 1, as NumPy stores it.
BOOL = (8 * np.dtype(bool).itemsize, 0, 0, 0, int(np.False_), int(np.True_), False, False)


def make(**changes: Any) -> Any:
    """A descriptor with a field of every kind."""
    given: dict[str, Any] = {"shape": (4, 5), "other": (6,), "input_dtype": "float32"}
    return EVERY.EveryKindDescriptor(**{**given, **changes})


def changed_class(**changes: Any) -> Any:
    """A class like EveryKindDescriptor with other defaults; `...` means that there is none."""
    annotations: dict[str, Any] = {"operator": ClassVar[str]}
    namespace: dict[str, Any] = {"operator": "every_kind", "__annotations__": annotations}
    for item in dataclasses.fields(EVERY.EveryKindDescriptor):
        default = changes.get(item.name, item.default)
        if item.init:
            annotations[item.name] = Any
            if default is not dataclasses.MISSING and default is not ...:
                namespace[item.name] = default
    return descriptor_class(type("Changed", (planq.Descriptor,), namespace))


@pytest.mark.parametrize(
    ("field", "default"),
    [("shape", (1,)), ("integer", ...), ("integer", 3), ("flag", 1), ("optional_dtype", "int8")],
)
def test_a_class_that_disagrees_with_the_table_is_not_registered(field: str, default: Any) -> None:
    """Whether a field may be left out, and what it holds then."""
    register(changed_class(), EVERY.EveryKindArgs, EVERY.EveryKindPlan)
    try:
        with pytest.raises(TypeError, match=f"every_kind.*'{field}'"):
            register(changed_class(**{field: default}), EVERY.EveryKindArgs, EVERY.EveryKindPlan)
    finally:
        register(EVERY.EveryKindDescriptor, EVERY.EveryKindArgs, EVERY.EveryKindPlan)


def test_a_class_of_other_fields_is_not_registered() -> None:
    """In another order, with one more, with other operands."""
    native = EVERY.EveryKindDescriptor
    fields = [item for item in dataclasses.fields(native) if item.init]
    for names in (
        [item.name for item in reversed(fields)],
        [*(item.name for item in fields), "colour"],
        [item.name for item in fields[1:]],
    ):
        other: Any = dataclasses.make_dataclass("Other", names)
        other.operator = "every_kind"
        with pytest.raises(TypeError, match="fields of every_kind"):
            register(other, EVERY.EveryKindArgs, EVERY.EveryKindPlan)
    args: Any = dataclasses.make_dataclass("Args", ["output"])
    with pytest.raises(TypeError, match="operands of every_kind"):
        register(native, args, EVERY.EveryKindPlan)


@pytest.mark.parametrize("operator", NATIVE)
def test_a_field_comes_from_an_operand_or_is_an_argument(operator: str) -> None:
    """What bindings with tensors and arguments alone are generated from."""
    kinds = {"shape": "shape", "shape_list": "shape", "dtype": "dtype"}
    for name, kind, _, _, source in NATIVE[operator]["fields"]:
        operand, _, part = source.partition(".")
        assert not source or operand in NATIVE[operator]["operands"], name
        assert not source or kinds[kind] == part, name


def test_the_table_of_an_operator() -> None:
    """Name, kind, requiredness, default, source."""
    assert NATIVE["every_kind"]["fields"] == (
        ("shape", "shape", True, None, "input.shape"),
        ("other", "shape", True, None, ""),
        ("shapes", "shape_list", False, (), ""),
        ("integers", "integer_list", False, (), ""),
        ("modes", "enumeration_list", False, (), ""),
        ("input_dtype", "dtype", True, None, "input.dtype"),
        ("other_dtype", "dtype", False, planq.DType.INT4, ""),
        ("optional_dtype", "dtype", False, None, ""),
        ("scope", "scope", False, planq.Scope.token(), ""),
        ("mode", "enumeration", False, planq.Mode.ASYMMETRIC, ""),
        ("optional_enumeration", "enumeration", False, None, ""),
        ("number", "number", False, 0.5, ""),
        ("optional_number", "number", False, None, ""),
        ("flag", "flag", False, True, ""),
        ("integer", "integer", False, -3, ""),
        ("count", "count", False, None, ""),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"shape": [7, np.int64(2)], "other": ()},
        {"shapes": [(1, 2), [3]]},
        {"shapes": ((1,),) * 300},
        {"integers": [np.int64(3), -(2**63)], "shapes": [(1, 2)]},
        {"modes": ["symmetric", planq.Mode.ASYMMETRIC, "Symmetric"], "integers": (1,)},
        {"optional_dtype": torch.bfloat16, "other_dtype": np.int8},
        {"scope": planq.Scope.block(2, 3)},
        {"mode": "symmetric"},
        {"optional_enumeration": "dark"},
        {"number": 3, "optional_number": -1.25},
        {"flag": False, "integer": -(2**63), "count": 2**63 - 1},
    ],
    ids=lambda changes: "_".join(changes),
)
def test_every_kind_survives_json_and_pickle(changes: dict[str, Any]) -> None:
    """And the native half holds what the attributes hold."""
    desc = make(**changes)
    values = {item.name: getattr(desc, item.name) for item in dataclasses.fields(desc) if item.init}
    assert desc._native.values() == values
    for copy in (planq.Descriptor.from_json(desc.to_json()), pickle.loads(pickle.dumps(desc))):
        assert copy == desc
        assert hash(copy) == hash(desc)
        assert copy.to_json() == desc.to_json()
    for name in changes:
        assert desc != dataclasses.replace(make(), **{name: getattr(make(), name)}) or not changes


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("shape", (2, 10**30), "expected an integer of at most 64 bits, got 1000"),
        ("other", "12", "expected a sequence of integers, got '12'"),
        ("other", (1,) * 9, "expected at most 8 axes, got 9"),
        ("other", (2.5,), "expected a sequence of integers, got (2.5,)"),
        ("shapes", 3, "expected a sequence of shapes, got 3"),
        ("shapes", (3,), "expected a sequence of integers, got 3"),
        ("shapes", ((3, "x"),), "expected a sequence of integers, got (3, 'x')"),
        ("shapes", ((planq.Dim("m", 4), 3),), "expected integers in a list of shapes, got Dim("),
        ("integers", 3, "expected a sequence of integers, got 3"),
        ("integers", (1, 2.5), "expected a sequence of integers, got (1, 2.5)"),
        ("integers", (2**63,), "expected an integer of at most 64 bits, got 9223372036854775808"),
        ("modes", "symmetric", "expected a sequence of names, got 'symmetric'"),
        (
            "modes",
            ("symmetric", "sideways"),
            "item 1: expected Mode (SYMMETRIC, ASYMMETRIC), got 'sideways'",
        ),
        ("modes", (None,), "item 0: expected Mode (SYMMETRIC, ASYMMETRIC), got None"),
        ("input_dtype", None, "expected a dtype that planq knows, got None"),
        ("other_dtype", None, "expected a dtype that planq knows, got None"),
        ("optional_dtype", "float12", "expected a dtype that planq knows, got 'float12'"),
        ("scope", "token", "expected a planq.Scope, got 'token'"),
        ("mode", "sideways", "expected Mode (SYMMETRIC, ASYMMETRIC), got 'sideways'"),
        ("mode", None, "expected Mode (SYMMETRIC, ASYMMETRIC), got None"),
        (
            "optional_enumeration",
            "",
            "expected Shade (LIGHT, DARK), got ''",
        ),
        ("number", None, "expected a number, got None"),
        ("number", True, "expected a number, got True"),
        ("optional_number", "low", "expected a number or None, got 'low'"),
        ("optional_number", float("nan"), "expected a number, got nan"),
        ("flag", 1, "expected True or False, got 1"),
        ("integer", 1.5, "expected an integer, got 1.5"),
        ("integer", None, "expected an integer, got None"),
        ("integer", 2**63, "expected an integer of at most 64 bits, got 9223372036854775808"),
        ("count", 0, "expected a positive integer or None, got 0"),
        ("count", "x", "expected an integer, got 'x'"),
    ],
)
def test_every_kind_says_what_it_expects(field: str, value: object, message: str) -> None:
    """With the field's own name."""
    with pytest.raises(planq.DescriptorError) as caught:
        make(**{field: value})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: {message}")


def test_enumerations_have_the_same_members_in_both_halves() -> None:
    """A member without its other half fails."""
    native = _core.vocabularies()
    made = (
        *(planq.Scope.tensor(), planq.Scope.channel(0), planq.Scope.token(), planq.Scope.group(1)),
        *(planq.Scope.block(1, 1), planq.Scope.pair()),
    )
    assert native.pop("ScopeKind") == tuple(scope.kind for scope in made)
    for name, members in native.items():
        assert tuple(member.name.lower() for member in VOCABULARIES[name]) == members
    assert native.keys() == VOCABULARIES.keys()


def test_an_enumeration_that_disagrees_stops_the_import() -> None:
    """Here one with a member too many."""
    program = (
        "import planq.dtypes as d\n"
        "class DType(d.Vocabulary):\n"
        "    locals().update({m.name: m.value for m in d.DType}, FLOAT3='float3')\n"
    )
    # planq itself is imported before anybody can change it, so its parts are imported alone.
    lines = (
        "import sys, types, importlib.util",
        "spec = importlib.util.find_spec('planq')",
        "package = types.ModuleType('planq')",
        "package.__path__ = spec.submodule_search_locations",
        "sys.modules['planq'] = package",
        program,
        "from planq import _core",
        "_core.operator('quantize')",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert "planq.DType has the members" in done.stderr
    assert "float3" in done.stderr


def floats(name: str) -> tuple[Any, ...]:
    """What ml_dtypes or NumPy say of a floating type."""
    info: Any = ml_dtypes.finfo(getattr(ml_dtypes, name, name))
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    every = np.arange(1 << 16, dtype=np.uint16).astype(f"u{dtype.itemsize}").view(dtype)
    if dtype.itemsize > 2:
        every = np.array([np.inf, np.nan], dtype)
    with np.errstate(invalid="ignore"):  # numpy widens signalling NaNs to look at them
        has = (bool(np.isinf(every).any()), bool(np.isnan(every).any()))
    bias = 1 - int(info.minexp)
    return (info.bits, info.nexp, info.nmant, bias, float(info.min), float(info.max), *has)


def integers(name: str) -> tuple[Any, ...]:
    """What two's complement says of an integer type."""
    bits = int(name.lstrip("uint"))
    signed = not name.startswith("u")
    least = -(2 ** (bits - 1)) if signed else 0
    return (bits, 0, 0, 0, float(least), float(2 ** (bits - signed) - 1), False, False)


@pytest.mark.parametrize("entry", _core.formats(), ids=lambda entry: str(entry[0]))
def test_a_format_is_what_other_libraries_say_of_it(entry: tuple[Any, ...]) -> None:
    """Bits, exponent, mantissa, bias, range, infinities, NaN; two 4-bit numbers share a byte."""
    name, _, bits, per_byte, *rest = entry
    known = {**MICROSCALING, "bool": BOOL}
    expected = known.get(name) or (integers if "int" in name else floats)(name)
    assert (bits, *rest) == expected
    assert per_byte == (2 if bits == 4 else 1)


@pytest.mark.parametrize("name", MICROSCALING)
@pytest.mark.parametrize(
    ("descriptor", "field", "others"),
    [
        (planq.QuantizeDescriptor, "output_dtype", {"input_dtype": "float32"}),
        (planq.DequantizeDescriptor, "input_dtype", {"output_dtype": "float32"}),
        (planq.MinMaxDescriptor, "input_dtype", {}),
        (planq.BlockwiseQuantizeDescriptor, "output_dtype", {"input_dtype": "float32"}),
        (planq.PackInt4Descriptor, "output_dtype", {}),
        (planq.ReorderMixedDtypeWeightDescriptor, "input_dtype", {}),
    ],
    ids=lambda value: getattr(value, "operator", ""),
)
def test_no_operator_takes_a_format_for_microscaling(
    name: str, descriptor: Any, field: str, others: dict[str, Any]
) -> None:
    """With the error that any wrong dtype has."""
    given = {"shape": (64, 64), field: name, **others}
    if descriptor is planq.BlockwiseQuantizeDescriptor:
        given["block_size"] = 64
    with pytest.raises(planq.DescriptorError, match=f"^{field}: expected one of .*, got {name}$"):
        descriptor(**given)


def test_the_dtype_of_a_tensor_is_named_by_its_format() -> None:
    """Also one that no operator takes, by DLPack and by the array interface."""
    plan = planq.Plan.select(planq.HOST, planq.MinMaxDescriptor(shape=(4,), input_dtype="float32"))
    absmax = np.zeros(1, np.float32)
    for array, name in (
        (np.zeros(4, ml_dtypes.float8_e8m0fnu), "float8_e8m0fnu"),
        (np.zeros(4, ml_dtypes.float6_e2m3fn), "float6_e2m3fn"),
        (torch.zeros(4, dtype=torch.uint8).view(torch.float8_e8m0fnu), "float8_e8m0fnu"),
        (np.zeros(4, ml_dtypes.float4_e2m1fn), "float4_e2m1fn"),
    ):
        status = plan.can_implement(planq.MinMaxArgs(input=array, absmax=absmax))
        assert status.reason.endswith(f"got (4,) {name} on host"), status.reason


class Spelling:
    """Somebody's own dtype, whose name changes."""

    name = "int8"


def test_only_what_stays_a_dtype_is_remembered() -> None:
    """A spelling that changes its mind is read again."""
    spelling = Spelling()
    assert make(optional_dtype=spelling).optional_dtype is planq.DType.INT8
    spelling.name = "float16"
    assert make(optional_dtype=spelling).optional_dtype is planq.DType.FLOAT16
    for _ in range(2):
        for dtype in (torch.float16, np.float16, np.dtype(np.float16), ml_dtypes.bfloat16):
            assert make(optional_dtype=dtype).optional_dtype is planq.DType.parse(dtype)
