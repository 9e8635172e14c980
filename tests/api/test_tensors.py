"""Which objects are tensors, and what is wrong with the ones that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import planq
from planq.audit.reference.formats import Array
from support.samples import SHAPE, Sample, make_descriptor, make_sample

Wrap = Callable[[Array], Any]


def make_plan(**changes: Any) -> planq.Plan:
    """A host plan of the sample's problem."""
    return planq.Plan.select(planq.HOST, make_descriptor(**changes))


class CudaArray:
    """An object with nothing but `__cuda_array_interface__`, over host memory."""

    def __init__(self, array: Array) -> None:
        """Describes the array as if it lay on a GPU."""
        self._array = array
        interface = dict(array.__array_interface__)
        interface.update(version=3, stream=None)
        self.__cuda_array_interface__ = interface


class ArrayInterface:
    """An object with nothing but `__array_interface__`."""

    def __init__(self, array: Array) -> None:
        """Describes the array."""
        self._array = array
        self.__array_interface__ = array.__array_interface__


class DlpackOnly:
    """An object with nothing but the two DLPack methods."""

    def __init__(self, array: Array) -> None:
        """Wraps the array."""
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        """The array's own capsule."""
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The host."""
        return (1, 0)


def as_tuple(array: Array) -> Any:
    """The explicit tuple, strides in elements."""
    strides = tuple(s // array.itemsize for s in array.strides)
    return (array.ctypes.data, array.shape, strides, array.dtype.name, "host")


def as_contiguous_tuple(array: Array) -> Any:
    """The explicit tuple without strides, dtype as a planq member."""
    dtype = planq.DType.parse(array.dtype)
    return (array.ctypes.data, array.shape, None, dtype, "host")


WRAPPERS: dict[str, Wrap] = {
    "numpy": lambda array: array,
    "torch": torch.from_numpy,
    "torch parameter": lambda array: torch.nn.Parameter(torch.from_numpy(array), False),
    "dlpack": DlpackOnly,
    "array interface": ArrayInterface,
    "tuple": as_tuple,
    "tuple without strides": as_contiguous_tuple,
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())
def test_each_kind_of_tensor_is_read_in_place(wrap: Wrap) -> None:
    """For input and outputs alike."""
    sample, plan = make_sample(), make_plan()
    args = planq.DynamicRangeQuantizeArgs(
        input=wrap(sample.x), output=wrap(sample.q), scale=wrap(sample.s)
    )
    assert plan.can_implement(args), plan.can_implement(args).reason
    plan.run(planq.HOST, None, args)
    assert sample.right()


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())
def test_each_kind_of_tensor_may_be_strided(wrap: Wrap) -> None:
    """Every second row of a larger tensor, both ways."""
    if wrap is as_contiguous_tuple:
        wrap = as_tuple
    sample, plan = make_sample(), make_plan()
    wide_x, wide_q = np.zeros((12, 40), np.float32), np.full((12, 40), -99, np.int8)
    wide_x[::2, 3:35] = sample.x
    args = planq.DynamicRangeQuantizeArgs(
        input=wrap(wide_x[::2, 3:35]), output=wrap(wide_q[::2, 3:35]), scale=wrap(sample.s)
    )
    plan.run(planq.HOST, None, args)
    sample.q[...] = wide_q[::2, 3:35]
    assert sample.right()
    wide_q[::2, 3:35] = -99
    assert (wide_q == -99).all()


def test_rows_may_run_backwards_or_be_permuted() -> None:
    """Any outer strides; DLPack and NumPy express them all."""
    sample = make_sample()
    make_plan().run(planq.HOST, None, sample.args(input=sample.x[::-1], output=sample.q[::-1]))
    sample.s[...] = sample.s[::-1].copy()
    assert sample.right()
    x = np.arange(4 * 5 * 8, dtype=np.float32).reshape(5, 4, 8) + 1
    q, s = np.empty((5, 4, 8), np.int8), np.empty((4, 5), np.float32)
    args = planq.DynamicRangeQuantizeArgs(
        input=x.transpose(1, 0, 2), output=q.transpose(1, 0, 2), scale=s
    )
    make_plan(shape=(4, 5, 8)).run(planq.HOST, None, args)
    assert (s == x.max(axis=2).T / np.float32(127)).all()
    assert (q == np.rint(x / s.T[:, :, None])).all()


def test_an_input_may_repeat_its_rows() -> None:
    """Stride 0 reads the same row; only outputs need memory of their own."""
    sample = make_sample()
    row = sample.x[:1]
    repeated = np.broadcast_to(row, SHAPE)
    make_plan().run(planq.HOST, None, sample.args(input=repeated))
    sample.x = np.ascontiguousarray(repeated)
    assert sample.right()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_torch_inputs_of_every_dtype(dtype: str) -> None:
    """Through torch's exchange table."""
    x = torch.linspace(-3, 5, 6 * 32, dtype=torch.float64).reshape(6, 32).to(getattr(torch, dtype))
    scale_dtype = torch.float64 if dtype == "float64" else torch.float32
    q, s = torch.empty((6, 32), dtype=torch.int8), torch.empty(6, dtype=scale_dtype)
    plan = make_plan(input_dtype=x.dtype)
    plan.run(planq.HOST, None, planq.DynamicRangeQuantizeArgs(input=x, output=q, scale=s))
    wide = x.to(scale_dtype)
    assert torch.equal(s, wide.abs().amax(dim=1) / 127)
    assert torch.equal(q, torch.round(wide / s[:, None]).to(torch.int8))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8_outputs_in_their_own_dtype_and_as_bytes(name: str) -> None:
    """torch, ml_dtypes and uint8 receive the same codes."""
    sample, plan = make_sample(), make_plan(output_dtype=name)
    outputs: list[Any] = [
        np.empty(SHAPE, np.uint8),
        np.empty(SHAPE, np.dtype(getattr(ml_dtypes, name))),
        torch.empty(SHAPE, dtype=getattr(torch, name)),
        torch.empty(SHAPE, dtype=torch.uint8),
    ]
    for output in outputs:
        plan.run(planq.HOST, None, sample.args(output=output))
    codes = [np.asarray(o.view(torch.uint8) if isinstance(o, torch.Tensor) else o) for o in outputs]
    for other in codes[1:]:
        assert np.array_equal(codes[0], other.view(np.uint8))


def test_ml_dtypes_inputs_and_scales() -> None:
    """bfloat16 arrays, which NumPy's DLPack cannot express."""
    x = make_sample().x.astype(ml_dtypes.bfloat16)
    q, s = np.empty(SHAPE, np.int8), np.empty(SHAPE[0], ml_dtypes.bfloat16)
    plan = make_plan(input_dtype=x.dtype, scale_dtype=s.dtype)
    plan.run(planq.HOST, None, planq.DynamicRangeQuantizeArgs(input=x, output=q, scale=s))
    wide = np.abs(x.astype(np.float32)).max(axis=1) / np.float32(127)
    assert (s == wide.astype(ml_dtypes.bfloat16)).all()
    as_torch = torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    again = np.empty(SHAPE, np.int8)
    scale = torch.empty(SHAPE[0], dtype=torch.bfloat16)
    args = planq.DynamicRangeQuantizeArgs(input=as_torch, output=again, scale=scale)
    plan.run(planq.HOST, None, args)
    assert np.array_equal(q, again)


def read_only(array: Array) -> Array:
    """The same memory, not to be written."""
    view = array.view()
    view.flags.writeable = False
    return view


def test_a_read_only_input_is_fine() -> None:
    """Such as a memory-mapped file."""
    sample = make_sample()
    make_plan().run(planq.HOST, None, sample.args(input=read_only(sample.x)))
    assert sample.right()


@pytest.mark.parametrize("operand", ["output", "scale"])
def test_a_read_only_output_is_refused(operand: str) -> None:
    """Before anything is written."""
    sample = make_sample()
    array = {"output": sample.q, "scale": sample.s}[operand]
    refused(sample, operand, read_only(array), "read-only")


def refused(sample: Sample, operand: str, tensor: object, *words: str, **changes: Any) -> None:
    """`run`, `bind` and `can_implement` refuse the operand by name, and nothing is written."""
    plan, args = make_plan(**changes), sample.args(**{operand: tensor})
    with pytest.raises(planq.ArgumentError) as caught:
        plan.run(planq.HOST, None, args)
    error = caught.value
    assert error.operand == operand
    assert str(error).startswith(f"{operand}: expected {error.expected}, got {error.actual}")
    for word in words:
        assert word in str(error)
    with pytest.raises(planq.ArgumentError):
        plan.bind(None, args)
    status = plan.can_implement(args)
    assert not status
    assert (status.operand, status.reason) == (operand, str(error))
    assert sample.untouched()


def test_the_message_has_the_documented_form() -> None:
    """What, expected, got."""
    sample = make_sample()
    with pytest.raises(planq.ArgumentError) as caught:
        make_plan().run(planq.HOST, None, sample.args(scale=sample.s[:, None]))
    assert str(caught.value) == (
        "scale: expected shape (6,) float32 on host, got (6, 1) float32 on host"
    )
    assert caught.value.expected == "shape (6,) float32 on host"
    assert caught.value.actual == "(6, 1) float32 on host"


WRONG: dict[str, tuple[str, Callable[[Sample], Any], str]] = {
    "dtype of the input": ("input", lambda s: s.x.astype(np.float64), "float64"),
    "float16 for bfloat16's size": ("input", lambda s: s.x.astype(np.float16), "float16"),
    "integers": ("input", lambda s: s.x.astype(np.int32), "int32"),
    "complex numbers": ("input", lambda s: s.x.astype(np.complex64), "complex64"),
    "uint8 for int8": ("output", lambda s: s.q.view(np.uint8), "uint8"),
    "bool for int8": ("output", lambda s: s.q.view(np.bool_), "bool"),
    "float64 scales": ("scale", lambda s: s.s.astype(np.float64), "float64"),
    "rank too small": ("input", lambda s: s.x.reshape(-1), "(192,)"),
    "rank too large": ("output", lambda s: s.q[None], "(1, 6, 32)"),
    "nine axes": ("input", lambda s: s.x.reshape(1, 1, 1, 1, 1, 1, 1, 6, 32), "8 axes"),
    "a transposed shape": ("input", lambda s: np.ascontiguousarray(s.x.T), "(32, 6)"),
    "a broadcastable shape": ("scale", lambda s: s.s[:1], "(1,)"),
    "an innermost stride": ("input", lambda s: np.repeat(s.x, 2, axis=1)[:, ::2], "stride"),
    "Fortran order": ("input", lambda s: np.asfortranarray(s.x), "stride"),
    "reversed columns": ("output", lambda s: s.q[:, ::-1], "stride"),
    "big-endian floats": ("input", lambda s: s.x.astype(">f4"), "input"),
    "nothing": ("scale", lambda s: None, "None"),
    "a list": ("input", lambda s: s.x.tolist(), "list"),
    "a string": ("input", lambda s: "tensor", "str"),
    "a number": ("scale", lambda s: 1.0, "float"),
    "a GPU tensor": ("input", lambda s: CudaArray(s.x), "cuda:0"),
    "a GPU tuple": ("input", lambda s: (*as_tuple(s.x)[:4], "cuda:0"), "cuda:0"),
    "an unknown place": ("input", lambda s: (*as_tuple(s.x)[:4], "moon:0"), "host"),
    "a tuple of the wrong length": ("input", lambda s: as_tuple(s.x)[:3], "tuple"),
    "a tuple with a broken shape": (
        "input",
        lambda s: (s.x.ctypes.data, ("six", 32), None, "float32", "host"),
        "input",
    ),
    "a tuple with an unknown dtype": (
        "input",
        lambda s: (s.x.ctypes.data, SHAPE, None, "float12", "host"),
        "float12",
    ),
    "a null pointer": ("input", lambda s: (0, SHAPE, None, "float32", "host"), "null"),
    "half an element": (
        "input",
        lambda s: (s.x.ctypes.data + 2, SHAPE, None, "float32", "host"),
        "aligned",
    ),
    "a meta tensor": ("input", lambda s: torch.empty(SHAPE, device="meta"), "input"),
    "a sparse tensor": ("input", lambda s: torch.from_numpy(s.x).to_sparse(), "input"),
    "outputs on top of each other": (
        "output",
        lambda s: np.lib.stride_tricks.as_strided(s.q, SHAPE, (0, 1)),
        "overlapping",
    ),
    "outputs that interleave": (
        "output",
        lambda s: np.lib.stride_tricks.as_strided(s.q, SHAPE, (16, 1)),
        "overlapping",
    ),
    "an output over the input": ("output", lambda s: s.x.view(np.int8)[:, :32], "overlaps input"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_operand_is_refused(case: tuple[str, Callable[[Sample], Any], str]) -> None:
    """By name, with what was expected and what came; nothing is written."""
    operand, make, word = case
    sample = make_sample()
    refused(sample, operand, make(sample), word)


def test_a_fake_tensor_is_refused() -> None:
    """It inherits torch's exchange table and has no memory behind it."""
    with FakeTensorMode():
        fake = torch.empty(SHAPE)
    refused(make_sample(), "input", fake, "FakeTensor")


def test_a_subclass_without_its_own_dispatch_is_a_tensor() -> None:
    """Only __torch_dispatch__ makes a tensor's memory not its own."""

    class Named(torch.Tensor):
        pass

    sample = make_sample()
    make_plan().run(
        planq.HOST, None, sample.args(input=torch.from_numpy(sample.x).as_subclass(Named))
    )
    assert sample.right()


def test_a_subclass_with_its_own_dispatch_is_refused() -> None:
    """A wrapper's storage is not its data."""

    def dispatch(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))

    wrapper: Any = type("Wrapper", (torch.Tensor,), {"__torch_dispatch__": classmethod(dispatch)})
    sample = make_sample()
    refused(sample, "input", torch.from_numpy(sample.x).as_subclass(wrapper), "Wrapper")


@pytest.mark.parametrize("kind", [torch.Tensor, torch.nn.Parameter])
def test_a_gradient_is_never_dropped_in_silence(kind: type[torch.Tensor]) -> None:
    """While torch records gradients, an operand that requires one is refused, input or output."""
    for operand in ("input", "scale"):
        sample = make_sample()
        array = {"input": sample.x, "scale": sample.s}[operand]
        tensor = torch.from_numpy(array)
        leaf = torch.nn.Parameter(tensor) if kind is torch.nn.Parameter else tensor
        refused(sample, operand, leaf.requires_grad_(), "gradient", "torch.no_grad()", "detach()")


def test_results_of_recorded_operations_are_refused_too() -> None:
    """They are no leaves, and a gradient flows through them."""
    sample = make_sample()
    refused(sample, "input", torch.from_numpy(sample.x).requires_grad_() * 1, "gradient")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_a_parameter_is_read_in_place(mode: Callable[[], Any]) -> None:
    """Its memory is what counts then."""
    sample = make_sample()
    x = torch.nn.Parameter(torch.from_numpy(sample.x))
    args = sample.args(input=x)
    with mode():
        assert make_plan().can_implement(args)
        make_plan().run(planq.HOST, None, args)
    assert sample.right()
    make_plan().run(planq.HOST, None, sample.args(input=x.detach()))


def test_a_launch_that_was_bound_without_gradients_is_refused_where_they_are_recorded() -> None:
    """What was fine under no_grad would drop a gradient outside of it."""
    sample = make_sample()
    with torch.no_grad():
        x = torch.nn.Parameter(torch.from_numpy(sample.x))
        launch = make_plan().bind(None, sample.args(input=x))
    with pytest.raises(planq.ArgumentError, match="gradient"):
        launch(planq.HOST)
    assert sample.untouched()
    with torch.no_grad():
        launch(planq.HOST)
    assert sample.right()


def imaginary(array: Array) -> torch.Tensor:
    """The negated array: the imaginary part of a conjugated complex tensor, element by element."""
    values = torch.complex(torch.zeros(array.shape), torch.from_numpy(array))
    return values.unsqueeze(-1).conj().imag


def test_memory_of_the_other_sign_is_refused() -> None:
    """torch negates and conjugates by a bit; whoever reads the memory misses it."""
    sample = make_sample()
    negated: Any = torch._neg_view(torch.from_numpy(sample.x))
    assert negated.is_neg()
    assert torch.equal(negated, -torch.from_numpy(sample.x))
    refused(sample, "input", negated, "negative bit", "resolve_neg()")
    codes: Any = torch._neg_view(torch.from_numpy(sample.q))
    refused(make_sample(), "output", codes, "negative bit")
    column = np.arange(1, 7, dtype=np.float32)
    desc = planq.DynamicRangeQuantizeDescriptor(
        shape=(6, 1), input_dtype="float32", output_dtype="int8"
    )
    x = imaginary(column)
    assert x.is_neg()
    args = planq.DynamicRangeQuantizeArgs(
        input=x, output=np.empty((6, 1), np.int8), scale=np.empty(6, np.float32)
    )
    plan = planq.Plan.select(planq.HOST, desc)
    assert "negative bit" in plan.can_implement(args).reason
    args.input = x.resolve_neg().contiguous()
    plan.run(planq.HOST, None, args)
    assert (args.output == -127).all()


def test_the_state_of_a_tensor_is_asked_anew_each_time() -> None:
    """One and the same object may change it."""
    sample, plan = make_sample(), make_plan()
    x = torch.from_numpy(sample.x)
    args = sample.args(input=x)
    for _ in range(3):
        assert plan.can_implement(args)
        x.requires_grad_()
        assert not plan.can_implement(args)
        x.requires_grad_(False)
        x.data = torch._neg_view(x.data)
        assert not plan.can_implement(args)
        x.data = torch._neg_view(x.data)


@pytest.mark.parametrize("code", sorted({*np.typecodes["AllInteger"], *"?efd"} - {"b"}))
def test_every_number_type_of_numpy_is_known_by_name(code: str) -> None:
    """Also where two types have a name in common, such as `l` and `q`."""
    sample = make_sample()
    array = np.zeros(SHAPE, code)
    refused(sample, "output", array, f"got {SHAPE} {array.dtype.name} on host")


@pytest.mark.parametrize("code", ["g", "F", "D", "G", "O", "S4", "U4", "V4", "M8[s]", "m8[s]", "T"])
def test_element_types_of_numpy_that_no_operand_has(code: str) -> None:
    """Four of them are four bytes wide, like the floats that are expected."""
    refused(make_sample(), "input", np.zeros(SHAPE, code))


def test_a_field_of_a_record_may_be_an_input_where_it_lies_between_elements_or_is_refused() -> None:
    """Strides count whole elements."""
    sample = make_sample()
    for padding, fits in ((2, True), (1, False)):
        row = np.dtype([("x", np.float32, SHAPE[1:]), ("rest", np.int16, padding)])
        rows = np.zeros(SHAPE[0], row)
        rows["x"] = sample.x
        if fits:
            make_plan().run(planq.HOST, None, sample.args(input=rows["x"]))
            assert sample.right()
        else:
            refused(make_sample(), "input", rows["x"], "stride")


def test_subclasses_of_arrays_are_arrays() -> None:
    """A memory map's class among them."""
    sample = make_sample()
    make_plan().run(planq.HOST, None, sample.args(input=sample.x.view(np.memmap)))
    assert sample.right()


def test_masked_arrays_are_refused() -> None:
    """Their mask is beside their memory."""

    class Flagged(np.ndarray[Any, Any]):
        mask = None

    for kind in (np.ma.MaskedArray, Flagged):
        sample = make_sample()
        refused(sample, "input", sample.x.view(kind), "mask")
    sample = make_sample()
    interface = ArrayInterface(sample.x)
    interface.__array_interface__ = {
        **sample.x.__array_interface__,
        "mask": np.zeros(SHAPE, np.bool_),
    }
    refused(sample, "input", interface, "mask")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("name", ["__dlpack__", "__dlpack_device__", "__array_interface__"])
def test_what_is_no_exception_of_the_operand_goes_on(kind: type[BaseException], name: str) -> None:
    """A program that is interrupted while a tensor is read is interrupted."""

    def interrupt(*_: object, **__: object) -> Any:
        raise kind

    members: dict[str, Any] = {"__dlpack_device__": lambda self: (1, 0)}
    if name == "__array_interface__":
        members = {name: property(interrupt)}
    else:
        members = {"__dlpack__": interrupt, **members, name: interrupt}
    operand = type("Interrupting", (), members)()
    sample, plan = make_sample(), make_plan()
    args = sample.args(input=operand)
    for call in (
        lambda: plan.run(planq.HOST, None, args),
        lambda: plan.bind(None, args),
        lambda: plan.can_implement(args),
        lambda: plan.run(planq.HOST, operand, sample.args()),
    ):
        with pytest.raises(kind):
            call()
    assert sample.untouched()


def test_an_exception_of_the_operand_is_the_reason() -> None:
    """Whatever its interface raises."""

    class Broken:
        @property
        def __array_interface__(self) -> Any:
            raise RuntimeError("the file is closed")

    refused(make_sample(), "input", Broken(), "the file is closed")


def test_a_symmetric_plan_has_no_place_for_a_zero_point() -> None:
    """Passing one is a mistake, not a surplus."""
    refused(make_sample(), "zero_point", np.zeros(SHAPE[0], np.int32), "expected None")


def test_an_asymmetric_plan_needs_its_zero_point() -> None:
    """In int32."""
    sample = make_sample()
    for wrong in (None, np.zeros(SHAPE[0], np.int8), np.zeros(SHAPE[0], np.int64)):
        refused(sample, "zero_point", wrong, "int32", mode=planq.Mode.ASYMMETRIC)


def test_wrong_codes_for_a_packed_output() -> None:
    """Half as many bytes, rounded up; never one byte a code."""
    sample = make_sample()
    refused(sample, "output", sample.q, "(6, 16)", output_dtype="int4")
    refused(sample, "output", sample.q[:, :16], "uint8", output_dtype="int4")


def test_empty_operands_need_no_memory() -> None:
    """A null pointer with no elements is a tensor."""
    plan = make_plan(shape=(0, 32))
    empty = torch.empty(0, 32)
    args = planq.DynamicRangeQuantizeArgs(
        input=empty,
        output=(0, (0, 32), None, "int8", "host"),
        scale=np.empty(0, np.float32),
    )
    assert plan.can_implement(args)
    plan.run(planq.HOST, None, args)


def test_strides_of_single_element_axes_do_not_matter() -> None:
    """Whatever a library writes there."""
    sample = make_sample()
    column = (sample.x.ctypes.data, (6, 1), (32, 77), "float32", "host")
    q = np.empty((6, 1), np.int8)
    args = planq.DynamicRangeQuantizeArgs(input=column, output=q, scale=sample.s)
    make_plan(shape=(6, 1)).run(planq.HOST, None, args)
    assert (np.abs(q) == 127).all()


def test_codes_and_scales_may_lie_row_by_row_in_one_page() -> None:
    """An engine's cache page: every row's codes, then its scales, one pitch apart."""
    rows, heads, width = 5, 3, 16
    pitch = heads * width + heads * 4
    page = np.full((rows, pitch), 0xAB, np.uint8)
    codes = page[:, : heads * width].view(np.int8).reshape(rows, heads, width)
    assert np.shares_memory(codes, page)
    scale = page[:, heads * width :].view(np.float32)
    x = np.random.default_rng(1).standard_normal((rows, heads, width)).astype(np.float32)
    desc = planq.DynamicRangeQuantizeDescriptor(
        shape=x.shape, input_dtype="float32", output_dtype="int8"
    )
    plan = planq.Plan.select(planq.HOST, desc)
    args = planq.DynamicRangeQuantizeArgs(input=x, output=codes, scale=scale)
    plan.run(planq.HOST, None, args)
    expected = np.abs(x).max(axis=-1) / np.float32(127)
    assert (scale == expected).all()
    assert (codes == np.rint(x / expected[..., None])).all()
    args.scale = page[:, heads * width - 4 : -4].view(np.float32)
    status = plan.can_implement(args)
    assert status.operand == "output"
    assert "overlaps scale" in status.reason
