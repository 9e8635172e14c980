"""Cases and their targets, read from the TOML files beside the driver."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import planq

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
}
_BITS = {"bfloat16": 16, "float16": 16, "float32": 32, "float64": 64}
_ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "int32": 4}


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
    max_rows: float = math.inf
    min_columns: int = 0
    max_columns: float = math.inf

    def covers(self, case: Case) -> bool:
        """Whether the case lies inside the limits."""
        return (
            self.min_mb <= case.traffic / MEGABYTE < self.max_mb
            and case.input_bytes / MEGABYTE <= self.max_input_mb
            and _BITS[case.descriptor.input_dtype.value] <= self.max_input_bits
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
        reads: How often a kernel for large inputs has to read the input.
        offset: Elements by which every base address is off its alignment.
        peers: What else computes the formula in the same run.
    """

    family: str
    priority: int
    descriptor: Any
    reads: int
    offset: int
    targets: tuple[Target, ...]
    peers: tuple[str, ...]

    @property
    def name(self) -> str:
        """``A1/token/bf16_s8/4096x8192``."""
        desc = self.descriptor
        scope = desc.scope.kind + {
            "group": str(desc.scope.size),
            "block": f"{desc.scope.rows}x{desc.scope.size}",
            "channel": str(desc.scope.axis),
        }.get(desc.scope.kind, "")
        types = f"{_SHORT[desc.input_dtype.value]}_{self.form}"
        shape = "x".join(map(str, desc.shape)) + (f"+{self.offset}" if self.offset else "")
        return f"{self.family}/{scope}/{types}/{shape}"

    @property
    def form(self) -> str:
        """What the codes are: ``s8``, ``u8_asym``."""
        desc = self.descriptor
        mode = "_asym" if desc.mode is planq.Mode.ASYMMETRIC else ""
        return _SHORT[desc.output_dtype.value] + mode

    @property
    def rows(self) -> int:
        """Product of all extents but the last."""
        return math.prod(self.descriptor.shape[:-1])

    @property
    def columns(self) -> int:
        """The last extent."""
        return int(self.descriptor.shape[-1])

    def operand_bytes(self, role: str) -> int:
        """Bytes of all operands of a role."""
        return sum(
            math.prod(spec.shape) * item_bytes(spec.storage)
            for spec in self.descriptor.operands().values()
            if spec.role == role
        )

    @property
    def input_bytes(self) -> int:
        """Bytes of the input."""
        return self.operand_bytes("input")

    @property
    def output_bytes(self) -> int:
        """Bytes of codes and parameters."""
        return self.operand_bytes("output")

    @property
    def traffic(self) -> int:
        """The bytes that a rate counts: input once, codes, parameters."""
        return self.input_bytes + self.output_bytes

    def target_for(self, measure: str) -> Target | None:
        """The first rule for this measure that covers the case."""
        covering = (rule for rule in self.targets if rule.measure == measure and rule.covers(self))
        return next(covering, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """One ``[[group]]`` of a file: everything that its cases share."""

    priority: int
    input_dtypes: list[str]
    variants: list[dict[str, Any]]
    descriptor: dict[str, Any]
    shapes: list[list[int]] | None = None
    rows: list[int] | None = None
    columns: list[int] | None = None
    reads: int = 1
    offset: int = 0
    go: str | None = None
    peers: tuple[str, ...] = ()
    peer_rows: tuple[int, ...] = ()
    peer_outputs: tuple[str, ...] | None = None

    def all_shapes(self) -> list[tuple[int, ...]]:
        if self.shapes is not None:
            return [tuple(shape) for shape in self.shapes]
        return list(product(self.rows or (), self.columns or ()))

    def peers_of(self, shape: tuple[int, ...], output: str) -> tuple[str, ...]:
        wanted = self.peer_outputs is None or output in self.peer_outputs
        return tuple(self.peers) if wanted and shape[0] in self.peer_rows else ()


def _read_file(path: Path) -> Iterator[tuple[str, Case]]:
    """Every case of a file, with its backend."""
    content = tomllib.loads(path.read_text())
    rules = {
        name: tuple(Target(**rule) for rule in listed)
        for name, listed in content.get("go", {}).items()
    }
    for values in content["group"]:
        group = _Group(**values)
        targets = rules[group.go] if group.go else ()
        choices = product(group.input_dtypes, group.variants, group.all_shapes())
        for input_dtype, variant, shape in choices:
            fields = {
                "op": content["operator"],
                "shape": list(shape),
                "input_dtype": input_dtype,
                **group.descriptor,
                **variant,
            }
            yield (
                content.get("backend", "cuda"),
                Case(
                    family=content["id"],
                    priority=group.priority,
                    descriptor=planq.Descriptor.from_dict(fields),
                    reads=group.reads,
                    offset=group.offset,
                    targets=targets,
                    peers=group.peers_of(shape, variant["output_dtype"]),
                ),
            )


def load_cases(folder: Path, backend: str) -> list[Case]:
    """Every case for a backend, what matters most first."""
    found = [
        case
        for path in sorted(folder.glob("*.toml"))
        for wanted, case in _read_file(path)
        if wanted == backend
    ]
    return sorted(found, key=lambda case: case.priority)
