"""Cases and their targets, read from the TOML files beside the driver."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import planq
from harness.data import PARAMETERS

MEGABYTE = 1e6
PRODUCTS = ("matmul_int8", "linear_w8a8")

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
    "int32": "s32",
}
_ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}


def item_bytes(storage: str) -> int:
    """Bytes of one storage element; every code takes one."""
    return _ITEM_BYTES.get(storage, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What has to hold of one measured value, for the cases inside the limits.

    ``min_mb`` and ``max_mb`` limit the counted traffic, ``max_input_mb`` the input alone.
    """

    measure: str
    at_least: float | None = None
    at_most: float | None = None
    min_mb: float = 0.0
    max_mb: float = math.inf
    max_input_mb: float = math.inf
    max_input_bits: int = 64
    max_output_bits: int = 64
    max_rows: float = math.inf
    min_columns: int = 0
    max_columns: float = math.inf

    def covers(self, case: Case) -> bool:
        """Whether the case lies inside the limits."""
        return (
            self.min_mb <= case.traffic / MEGABYTE < self.max_mb
            and case.input_bytes / MEGABYTE <= self.max_input_mb
            and 8 * item_bytes(case.elements[0].storage) <= self.max_input_bits
            and 8 * item_bytes(case.result.storage) <= self.max_output_bits
            and case.rows <= self.max_rows
            and self.min_columns <= case.columns <= self.max_columns
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
    """

    title: str
    priority: int
    descriptor: Any
    reads: int
    offset: int
    targets: tuple[Target, ...]
    peers: tuple[str, ...]

    @property
    def id(self) -> str:
        """``A1``: the name of its file of results."""
        return self.title.split("/")[0]

    @property
    def name(self) -> str:
        """``A1/token/bf16_s8/4096x8192``."""
        desc = self.descriptor
        sides = ("input_dtype", "weight_dtype", "output_dtype")
        named = [getattr(desc, side, None) for side in sides]
        types = "_".join(_SHORT[dtype.value] for dtype in named if dtype) + self._kind()
        shape = "x".join(map(str, self.extents)) + (f"+{self.offset}" if self.offset else "")
        return "/".join(part for part in (self.title, self._segments(), types, shape) if part)

    @property
    def form(self) -> str:
        """What the codes are: ``s8``, ``u8_asym``."""
        return _SHORT[self.descriptor.output_dtype.value] + self._kind()

    def _kind(self) -> str:
        desc = self.descriptor
        kinds = {
            "nested": getattr(desc, "nested_block_size", None) is not None,
            "normalized": getattr(desc, "normalized", False),
            "asym": getattr(desc, "mode", None) is planq.Mode.ASYMMETRIC,
            "stochastic": self.stochastic,
            "dynamic": getattr(desc, "dynamic", False),
            "bias": getattr(desc, "bias_dtype", None) is not None,
            "input_asym": getattr(desc, "input_mode", None) is planq.Mode.ASYMMETRIC,
            "transpose": getattr(desc, "transpose", False),
            "transpose_weight": getattr(desc, "transpose_weight", False),
            "inverse": getattr(desc, "inverse", False),
        }
        return "".join(f"_{name}" for name, holds in kinds.items() if holds)

    def _segments(self) -> str:
        book = getattr(self.descriptor, "codebook", None)
        if book is not None:
            size = getattr(self.descriptor, "block_size", None)
            return book.value if size is None else f"{book.value}-{size}"
        if self.scope is None:
            axis = getattr(self.descriptor, "axis", None)
            return "" if axis is None else f"axis{axis}"
        size, rows = self.scope.size, self.scope.rows
        sizes = {"group": size, "channel": self.scope.axis, "block": f"{rows}x{size}"}
        return f"{self.scope.kind}{sizes.get(self.scope.kind, '')}"

    @property
    def scope(self) -> planq.Scope | None:
        """Which elements share a scale, where there are scales."""
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
    def result(self) -> planq.OperandSpec:
        """The first output."""
        specs: dict[str, planq.OperandSpec] = self.descriptor.operands()
        return next(spec for spec in specs.values() if spec.role == "output")

    @property
    def elements(self) -> list[planq.OperandSpec]:
        """The inputs but for parameters."""
        return [
            spec
            for name, spec in self.descriptor.operands().items()
            if spec.role == "input" and spec.kind == "tensor" and name not in PARAMETERS
        ]

    @property
    def is_product(self) -> bool:
        """Whether the operator multiplies matrices."""
        return hasattr(self.descriptor, "weight_shape")

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape; of products m, n and k."""
        if not self.is_product:
            return tuple(self.descriptor.shape)
        m, n = self.result.shape
        return m, n, self.descriptor.input_shape[-1]

    @property
    def multiplications(self) -> int:
        """Of products; 0 elsewhere."""
        return math.prod(self.extents) if self.is_product else 0

    @property
    def rows(self) -> int:
        """Product of all extents but the last; of products m."""
        return self.extents[0] if self.is_product else math.prod(self.extents[:-1])

    @property
    def columns(self) -> int:
        """The last extent; of products n."""
        return int(self.extents[1 if self.is_product else -1])

    def operand_bytes(self, role: str) -> int:
        """Bytes of all operands of a role."""
        return sum(
            math.prod(spec.shape) * item_bytes(spec.storage)
            for spec in self.descriptor.operands().values()
            if spec.role == role
        )

    @property
    def input_bytes(self) -> int:
        """Bytes of everything read."""
        return self.operand_bytes("input")

    @property
    def output_bytes(self) -> int:
        """Bytes of everything written."""
        return self.operand_bytes("output")

    @property
    def traffic(self) -> int:
        """The bytes that a rate counts: every operand once."""
        return self.input_bytes + self.output_bytes

    def target_for(self, measure: str) -> Target | None:
        """The first rule for this measure that covers the case."""
        covering = (rule for rule in self.targets if rule.measure == measure and rule.covers(self))
        return next(covering, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """One ``[[<id>.group]]`` of a file: everything that its cases share."""

    priority: int
    variants: list[dict[str, Any]]
    descriptor: dict[str, Any] = field(default_factory=dict)
    operator: str | None = None
    input_dtypes: list[str] | None = None
    output_dtypes: list[str] | None = None
    shapes: list[list[int]] | None = None  # of products m, n and k
    weights: list[list[int]] | None = None  # n and k, beside rows
    rows: list[int] | None = None
    columns: list[int] | None = None
    reads: int = 1
    offset: int = 0
    go: str | None = None
    peers: tuple[str, ...] = ()
    peer_rows: tuple[int, ...] = ()
    peer_types: tuple[str, ...] | None = None

    def all_shapes(self) -> list[tuple[int, ...]]:
        if self.shapes is not None:
            return [tuple(shape) for shape in self.shapes]
        if self.weights is not None:
            return [(m, n, k) for (n, k), m in product(self.weights, self.rows or ())]
        return list(product(self.rows or (), self.columns or ()))

    def all_types(self) -> list[dict[str, str]]:
        inputs = [{"input_dtype": dtype} for dtype in self.input_dtypes or ()] or [{}]
        outputs = [{"output_dtype": dtype} for dtype in self.output_dtypes or ()] or [{}]
        return [first | second for first, second in product(inputs, outputs)]

    def shape_fields(self, shape: tuple[int, ...], fields: dict[str, Any]) -> dict[str, Any]:
        """The shape of a case as the descriptor's fields."""
        if fields["op"] not in PRODUCTS:
            return {"shape": list(shape)}
        m, n, k = shape
        turned = fields.get("transpose_weight", False)
        return {"input_shape": [m, k], "weight_shape": [k, n] if turned else [n, k]}

    def peers_of(self, shape: tuple[int, ...], fields: dict[str, Any]) -> tuple[str, ...]:
        types = " ".join(fields[side] for side in ("input_dtype", "output_dtype") if side in fields)
        wanted = self.peer_types is None or types in self.peer_types
        return tuple(self.peers) if wanted and shape[0] in self.peer_rows else ()

    def cases(self, title: str, operator: str, targets: tuple[Target, ...]) -> Iterator[Case]:
        for types, variant, shape in product(self.all_types(), self.variants, self.all_shapes()):
            fields = {"op": operator, **types, **self.descriptor, **variant}
            fields |= self.shape_fields(shape, fields)
            yield Case(
                title=title,
                priority=self.priority,
                descriptor=planq.Descriptor.from_dict(fields),
                reads=self.reads,
                offset=self.offset,
                targets=targets,
                peers=self.peers_of(shape, fields),
            )


def _read_file(path: Path) -> Iterator[tuple[str, Case]]:
    """Every case of a family's file, with its backend; the file has a table for each id."""
    for name, content in tomllib.loads(path.read_text()).items():
        rules = {
            rule: tuple(Target(**values) for values in listed)
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
    """Every case for a backend, what matters most first."""
    found = [
        case
        for path in sorted(folder.glob("*.toml"))
        for wanted, case in _read_file(path)
        if wanted == backend
    ]
    return sorted(found, key=lambda case: case.priority)
