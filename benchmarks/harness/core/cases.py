"""Cases and their targets, read from the TOML files beside the driver."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import planq
from harness.core.data import PARAMETERS
from harness.core.models import shapes_of
from harness.core.product import SIDES, Product, product_of, transposed_sides

MEGABYTE = 1e6

_SHORT = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "int8": "s8",
    "uint8": "u8",
    "int4": "s4",
    "uint4": "u4",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float8_e8m0fnu": "e8m0",
    "float4_e2m1fn": "e2m1",
    "int32": "s32",
    "int64": "s64",
}
_FLOATS = ("bfloat16", "float16", "float32", "float64")
_SHAPES = ("shape", "shapes", "weight_shape", "input_shape", "query_shape", "key_shape")
# Fields whose words are part of a name.
_WORDS = (
    *("from_layout", "to_layout", "function", "layout"),
    *("form", "algorithm", "state_format", "pairs", "type"),
)
_COUNTS = {
    "axis": "axis",
    "ranks": "ranks",
    "group_size": "group",
    "top_k": "top",
    "experts": "experts",
    "key_heads": "keys",
    "batch": "batch",
    "max_key": "long",
    "rotary_dim": "columns",
}
# Types that name a case, one after another.
_TYPES = (
    "table_dtype",
    "input_dtype",
    "output_dtype",
    "cache_dtype",
    "dtype",
    "parameter_dtype",
    "gradient_dtype",
)
# Operands that are written over, where others with their role are read before.
_OVERWRITTEN = (
    ("fill", "output"),
    *(("kv_cache_append", f"{side}_cache") for side in ("key", "value")),
    *(("rotary_kv_cache_append", f"{side}_cache") for side in ("key", "value")),
)
_ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}


def shape_field(operator: str) -> str:
    """The field with the extents of an operator whose problems are no products."""
    known = {info.name: info.fields for info in planq.operators()}[operator]
    return next(name for name in _SHAPES if name in known)


def item_bytes(storage: str) -> int:
    """Bytes of one storage element; every code takes one."""
    return _ITEM_BYTES.get(storage, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What has to hold of one measured value, for the cases inside the limits.

    ``min_mb`` and ``max_mb`` limit the counted traffic, ``max_input_mb`` the input alone; rows of a
    product are those of its result, columns what is summed. ``shapes`` are the last parts of names.
    ``gpu`` is the one whose figure the bound is, by its name; without one it is of every machine.
    """

    measure: str
    at_least: float | None = None
    at_most: float | None = None
    min_mb: float = 0.0
    max_mb: float = math.inf
    max_input_mb: float = math.inf
    max_input_bits: int = 64
    max_output_bits: int = 64
    min_rows: int = 0
    max_rows: float = math.inf
    min_columns: int = 0
    max_columns: float = math.inf
    shapes: tuple[str, ...] | None = None
    gpu: str | None = None

    def covers(self, case: Case) -> bool:
        """Whether the case lies inside the limits."""
        return (
            self.min_mb <= case.traffic / MEGABYTE < self.max_mb
            and case.input_bytes / MEGABYTE <= self.max_input_mb
            and 8 * item_bytes(case.first.storage) <= self.max_input_bits
            and 8 * item_bytes(case.result.storage) <= self.max_output_bits
            and self.min_rows <= case.rows <= self.max_rows
            and self.min_columns <= case.columns <= self.max_columns
            and (self.shapes is None or case.shape in self.shapes)
        )

    def holds(self, value: float) -> bool:
        """Whether a measured value meets the target."""
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)

    @property
    def bound(self) -> str:
        """The bound as text: ``>= 0.97``."""
        return f">= {self.at_least}" if self.at_most is None else f"<= {self.at_most}"


@dataclass(frozen=True, slots=True)
class Case:
    """One descriptor to measure, and what is expected of it.

    Attributes:
        title: The id, and the operator where several have the id: ``B1/quantize``.
        reads: How often a kernel for large inputs has to read the input.
        offset: Elements by which every base address is off its alignment.
        peers: What else computes the formula in the same run.
        baseline: The descriptor of another operator, whose time the targets speak of.
        outliers: Columns of the activations that hold outliers, where operators tell them apart.
        given: Tensors that a launch has, though it can do without them.
    """

    title: str
    priority: int
    descriptor: Any
    reads: int
    offset: int
    targets: tuple[Target, ...]
    peers: tuple[str, ...]
    baseline: Any = None
    outliers: int | None = None
    given: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """``A1``: the name of its file of results."""
        return self.title.split("/")[0]

    @property
    def name(self) -> str:
        """``A1/token/bf16_s8/4096x8192``."""
        desc = self.descriptor
        named = [getattr(desc, side, None) for side in _TYPES]
        named = named if any(named) else [desc.code_dtype]
        types = "_".join(_SHORT[dtype.value] for dtype in named if dtype) + self._kind()
        parts = (self.title, self._segments(), types, self.shape)
        return "/".join(part for part in parts if part)

    @property
    def shape(self) -> str:
        """``4096x8192``, of a product ``m x n x k``, and how far it is off its alignment.

        Of several tensors how many there are, and their elements together.
        """
        extents = str(self.product or "x".join(map(str, self.extents)))
        count = len(getattr(self.descriptor, "shapes", ()))
        extents = f"{count}-tensors-{extents}" if count > 1 else extents
        return extents + (f"+{self.offset}" if self.offset else "")

    @property
    def extents(self) -> tuple[int, ...]:
        """Those of the elements of what is no product; of a list their number."""
        name = shape_field(self.descriptor.operator)
        found: tuple[Any, ...] = getattr(self.descriptor, name)
        return (sum(map(math.prod, found)),) if name == "shapes" else found

    @property
    def product(self) -> Product | None:
        """What is multiplied, where a weight is."""
        return product_of(self.descriptor)

    @property
    def form(self) -> str:
        """What the codes are: ``s8``, ``u8_asym``."""
        return _SHORT[self.descriptor.output_dtype.value] + self._kind()

    def _kind(self) -> str:
        desc = self.descriptor
        kinds = {
            "nested": getattr(desc, "nested_block_size", None) is not None,
            "normalized": getattr(desc, "normalized", False),
            "gated": getattr(desc, "gated", False),
            "asym": any(
                getattr(desc, mode, None) is planq.Mode.ASYMMETRIC
                for mode in ("mode", "input_mode")
            ),
            "stochastic": self.stochastic,
            "dynamic": getattr(desc, "dynamic", False),
            "feedback": getattr(desc, "error_feedback", None) is not None,
            "bias": getattr(desc, "bias_dtype", None) is not None,
            "residual": getattr(desc, "residual_dtype", None) is not None,
            "norm": getattr(desc, "norm_weight_dtype", None) is not None,
            "transpose": getattr(desc, "transpose", False),
            "inverse": getattr(desc, "inverse", False),
            "indexed": desc.operator == "gguf_dequantize" and desc.table_rows is not None,
            "vllm": getattr(desc, "convention", None) is planq.Convention.VLLM,
        }
        return "".join(f"_{name}" for name, holds in kinds.items() if holds)

    def _segments(self) -> str:
        if self.outliers is not None:
            accumulation = getattr(self.descriptor, "accumulation", None)
            steps = accumulation is planq.Accumulation.TENSOR_SM90
            return f"outliers{self.outliers}{'-steps' if steps else ''}"
        if self.product is not None:
            return "-".join(self._factors())
        book = getattr(self.descriptor, "codebook", None)
        if book is not None:
            size = getattr(self.descriptor, "block_size", None)
            return book.value if size is None else f"{book.value}-{size}"
        words = [getattr(self.descriptor, name, None) for name in _WORDS]
        if self.scope is not None:
            words.append(_scope_text(self.scope))
        else:
            for name, word in _COUNTS.items():
                count = getattr(self.descriptor, name, None)
                words.append(None if count is None else f"{word}{count}")
            words.extend(self.given)
        return "-".join(str(word) for word in words if word is not None)

    def _factors(self) -> Iterator[str]:
        """What is said of a product beyond the types of its input and its output."""
        desc = self.descriptor
        experts = self.product.experts if self.product else 0
        has_codes = experts or hasattr(desc, "weight_layout")
        coded = getattr(desc, "code_dtype", None) if has_codes else None
        if experts:
            yield f"experts{experts}"
        if hasattr(desc, "type"):
            yield desc.type.value
        if getattr(desc, "block_size", None) is not None:
            yield f"{desc.codebook.value}-{desc.block_size}"
        elif coded is not None:
            yield f"{_SHORT[coded.value]}-{_scope_text(desc.weight_scope)}"
        if coded is not None and desc.scale_dtype is not planq.DType.FLOAT32:
            yield f"{_SHORT[desc.scale_dtype.value]}_scales"
        weight_dtype = getattr(desc, "weight_dtype", None)
        if coded is not None and weight_dtype not in (None, desc.input_dtype):
            yield _SHORT[weight_dtype.value]
        if desc.operator == "linear_fp8" and desc.weight_scope.kind == "block":
            yield _scope_text(desc.weight_scope)
        if getattr(desc, "accumulation", None) is planq.Accumulation.LANES:
            yield "lanes"
        if getattr(desc, "weight_layout", "row_major") != "row_major":
            yield desc.weight_layout.value
        for side in transposed_sides(desc):
            yield f"{side}_transposed"

    @property
    def scope(self) -> planq.Scope | None:
        """Which elements share a scale, where there are scales; flat groups are named by size."""
        desc = self.descriptor
        floating = hasattr(desc, "norm_dtype") and desc.output_dtype.value in _FLOATS
        if floating or getattr(desc, "group_size", None) is not None:
            return None
        return getattr(self.descriptor, "scope", None)

    @property
    def stochastic(self) -> bool:
        """Whether the results depend on where in the tensor an element is."""
        return getattr(self.descriptor, "rounding", None) is planq.Rounding.STOCHASTIC

    @property
    def decodes(self) -> bool:
        """Whether the elements are codes of a codebook."""
        return self.descriptor.operator in ("blockwise_dequantize", "codebook_dequantize")

    @property
    def operands(self) -> dict[str, planq.OperandSpec]:
        """What a launch is given: numbers, and of tensors those that it needs or that are named."""
        specs: dict[str, planq.OperandSpec] = self.descriptor.operands()
        return {
            name: spec
            for name, spec in specs.items()
            if spec.kind == "scalar" or not spec.optional or name in self.given
        }

    @property
    def result(self) -> planq.OperandSpec:
        """The first that is written."""
        return next(spec for spec in self.operands.values() if spec.role != "input")

    @property
    def elements(self) -> list[planq.OperandSpec]:
        """The inputs but for parameters."""
        return [
            spec
            for name, spec in self.operands.items()
            if spec.role == "input" and spec.kind != "scalar" and name not in PARAMETERS
        ]

    @property
    def first(self) -> planq.OperandSpec:
        """The first of the elements; what is written where none are read."""
        return (*self.elements, self.result)[0]

    @property
    def bulk(self) -> planq.OperandSpec:
        """What decides what memory is filled with: the input, of a product the largest."""
        if self.product is None:
            return self.first
        return max(self.elements, key=lambda spec: spec.nbytes)

    @property
    def rows(self) -> int:
        """Product of all extents but the last; of a product its m."""
        return self.product.m if self.product else math.prod(self.extents[:-1])

    @property
    def columns(self) -> int:
        """The last extent; of a product its k."""
        return self.product.k if self.product else int(self.extents[-1])

    def operand_bytes(self, *roles: str) -> int:
        """Bytes of all operands of some roles."""
        return sum(spec.nbytes for spec in self.operands.values() if spec.role in roles)

    @property
    def input_bytes(self) -> int:
        """Bytes of everything read."""
        return sum(spec.nbytes for name, spec in self.operands.items() if self.is_read(name))

    def is_read(self, name: str) -> bool:
        """Whether an operand is read."""
        overwritten = (self.descriptor.operator, name) in _OVERWRITTEN
        return self.operands[name].role != "output" and not overwritten

    @property
    def output_bytes(self) -> int:
        """Bytes of everything written."""
        return self.operand_bytes("output", "inout")

    @property
    def traffic(self) -> int:
        """The bytes that a rate counts: every operand once, what is updated twice."""
        return self.input_bytes + self.output_bytes

    def on(self, machine: str) -> Case:
        """The case without targets that are of a GPU of another name."""
        kept = tuple(rule for rule in self.targets if rule.gpu in (None, machine))
        return replace(self, targets=kept)

    def target_for(self, measure: str) -> Target | None:
        """The first rule for this measure that covers the case."""
        covering = (rule for rule in self.targets if rule.measure == measure and rule.covers(self))
        return next(covering, None)


def _scope_text(scope: planq.Scope) -> str:
    sizes = {"group": scope.size, "channel": scope.axis, "block": f"{scope.rows}x{scope.size}"}
    return f"{scope.kind}{sizes.get(scope.kind, '')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """One ``[[<id>.group]]`` of a file: everything that its cases share."""

    priority: int
    variants: list[dict[str, Any]]
    descriptor: dict[str, Any] = field(default_factory=dict)
    operator: str | None = None
    input_dtypes: list[str] | None = None
    output_dtypes: list[str] | None = None
    shapes: list[list[int]] | None = None
    rows: list[int] | None = None
    columns: list[int] | None = None
    models: list[str] | None = None
    problems: list[str] | None = None
    layers: list[str] | None = None
    experts: int = 0
    outliers: list[int] | None = None
    baseline: dict[str, Any] | None = None
    reads: int = 1
    offset: int = 0
    go: str | None = None
    peers: tuple[str, ...] = ()
    peer_rows: tuple[int, ...] | None = None
    peer_types: tuple[str, ...] | None = None

    def all_shapes(self) -> list[tuple[Any, ...]]:
        """Shapes of elements, or m, n and k of products: ``problems``, or rows and ``layers``.

        Of ``models``, the shapes of all parameters.
        """
        if self.models is not None:
            return [shapes_of(model) for model in self.models]
        if self.problems is not None or self.layers is not None:
            layers = [f"{m}x{layer}" for layer in self.layers or () for m in self.rows or ()]
            texts = [*(self.problems or ()), *layers]
            return [tuple(map(int, text.split("x"))) for text in texts]
        if self.shapes is not None:
            return [tuple(shape) for shape in self.shapes]
        return list(product(self.rows or (), self.columns or ()))

    def all_types(self) -> list[dict[str, str]]:
        inputs = [{"input_dtype": dtype} for dtype in self.input_dtypes or ()] or [{}]
        outputs = [{"output_dtype": dtype} for dtype in self.output_dtypes or ()] or [{}]
        return [first | second for first, second in product(inputs, outputs)]

    def peers_of(self, shape: tuple[Any, ...], fields: dict[str, Any]) -> tuple[str, ...]:
        types = " ".join(fields[side] for side in ("input_dtype", "output_dtype") if side in fields)
        wanted = self.peer_types is None or types in self.peer_types
        wanted &= self.peer_rows is None or shape[0] in self.peer_rows
        return tuple(self.peers) if wanted else ()

    def extents(
        self, operator: str, shape: tuple[Any, ...], given: dict[str, Any]
    ) -> dict[str, list[Any]]:
        name = shape_field(operator)
        if name == "shapes":
            return {name: [list(one) for one in shape] if self.models else [list(shape)]}
        if self.problems is None and self.layers is None:
            return {name: list(shape)}
        transposed = tuple(side for side in SIDES if given.get(f"transpose_{side}"))
        problem = Product(*shape, transposed, self.experts)
        rows = zip(SIDES, (problem.m, problem.n), strict=True)
        return {f"{side}_shape": problem.shape(side, count) for side, count in rows}

    def cases(self, title: str, operator: str, targets: tuple[Target, ...]) -> Iterator[Case]:
        found = product(
            self.all_types(), self.variants, self.outliers or (None,), self.all_shapes()
        )
        for types, variant, outliers, shape in found:
            own = {**types, **self.descriptor, **variant}
            tensors = tuple(own.pop("given", ()))
            given = {"op": operator, **self.extents(operator, shape, own), **own}
            yield Case(
                title=title,
                priority=self.priority,
                descriptor=planq.Descriptor.from_dict(given),
                reads=self.reads,
                offset=self.offset,
                targets=targets,
                peers=self.peers_of(shape, given),
                baseline=_baseline(given, self.baseline),
                outliers=outliers,
                given=tensors,
            )


def _baseline(given: dict[str, Any], changes: dict[str, Any] | None) -> Any:
    """The descriptor of another operator with what it shares of these fields."""
    if changes is None:
        return None
    known = {info.name: info.descriptor for info in planq.operators()}[changes["op"]]
    names = {member.name for member in fields(known)}
    shared = {name: value for name, value in given.items() if name in names}
    return planq.Descriptor.from_dict({**shared, **changes})


def _target(values: dict[str, Any]) -> Target:
    shapes = values.get("shapes")
    return Target(**{**values, "shapes": None if shapes is None else tuple(shapes)})


def read_file(path: Path) -> Iterator[tuple[str, Case]]:
    """Every case of a family's file, with its backend; the file has a table for each id."""
    for name, content in tomllib.loads(path.read_text()).items():
        rules = {
            rule: tuple(_target(values) for values in listed)
            for rule, listed in content.get("go", {}).items()
        }
        for values in content["group"]:
            group = _Group(**values)
            operator = group.operator or content["operator"]
            title = "/".join(filter(None, (name, group.operator)))
            targets = rules[group.go] if group.go else ()
            for case in group.cases(title, operator, targets):
                yield content.get("backend", "cuda"), case


def load_cases(folder: Path, backend: str) -> list[Case]:
    """Every case for a backend, what matters most first; of two with one name the first."""
    found = [
        case
        for path in sorted(folder.glob("*.toml"))
        for wanted, case in read_file(path)
        if wanted == backend
    ]
    named: dict[str, Case] = {}
    for case in sorted(found, key=lambda case: case.priority):
        named.setdefault(case.name, case)
    return list(named.values())
