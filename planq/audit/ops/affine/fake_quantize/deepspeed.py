"""`fake_quantize` by DeepSpeed's convention in NumPy, from docs/numerics/group.md, and its cases.

Every operation is one IEEE rounding in float32.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from planq.audit.ops.group.cases import ELEMENTS, EMPTY, KINDS, PLACES
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, Array, Arrays, narrowed
from planq.audit.reference.philox import COUNT, uniform

F32 = np.float32
LARGEST = F32(FLOATS["float32"].largest)
EPS = 1e-5
# mode and rounding as a caller asks for them
FORMS = tuple(itertools.product(("symmetric", "asymmetric"), ("nearest_even", "stochastic")))
BITS = (8, 4, None, 2, 5, 8, 3)
EPSILONS = (None, None, 0.0, 1e-3)
# Groups that several workers share, of whole vectors and not, and that none holds at once.
LONG: tuple[tuple[tuple[int, ...], int], ...] = (
    ((5, 8192), 40960),
    ((3, 15001), 20000),
    ((2, 131072), 65536),
    ((100003,), 2**40),
)
PARTS = 3
# Groups of subnormal numbers, and an eps that they are not lost in.
TINY = (2, 3, 15, 64, 2048)
TINIEST = (0.0, 1e-45)


@dataclass(frozen=True, kw_only=True)
class DeepSpeedProblem:
    """What a descriptor says, without the library's types; the fields have the same names."""

    shape: tuple[int, ...]
    input_dtype: str
    group_size: int
    mode: str = "symmetric"
    rounding: str = "nearest_even"
    bits: int | None = None
    eps: float | None = None
    convention: str = "deepspeed"

    @property
    def float_dtype(self) -> str:
        """The type of the elements."""
        return self.input_dtype

    @cached_property
    def id(self) -> str:
        """All fields, as one word."""
        return ",".join(str(value).replace(" ", "") for value in asdict(self).values())

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def stochastic(self) -> bool:
        """Whether there are random numbers."""
        return self.rounding == "stochastic"

    @property
    def levels(self) -> Any:
        """2^b."""
        return F32(2 ** (self.bits or 8))

    @property
    def epsilon(self) -> Any:
        """E."""
        return F32(EPS if self.eps is None else self.eps)

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Elements of a kind, and what draws depend on."""
        made = {"input": inputs.make(kind, self.shape, self.input_dtype, seed)}
        if self.stochastic:
            words = inputs.hashed(seed + 3, 2).view(np.int64)
            made |= {"seed": words[0].reshape(()), "offset": words[1].reshape(())}
        return made

    def symmetric(self, x: Array, u: Array | None) -> Array:
        """The values of a group of finite elements."""
        low, high = -self.levels / 2, self.levels / 2 - 1
        h = np.abs(x).max() + self.epsilon / 2
        s = F32(1) if h == 0 else np.minimum(self.levels / 2 / h, LARGEST)
        v = np.clip(x * s, low, high)
        if u is None:
            return np.asarray((np.rint(v) + F32(0)) * (F32(1) / s))
        t = np.trunc(v) + F32(0)
        moves = (u < np.abs(x - t / s) * s) & (low < t) & (t < high)
        return np.asarray((t + np.where(moves, np.where(x < 0, F32(-1), F32(1)), F32(0))) / s)

    def asymmetric(self, x: Array, u: Array | None) -> Array:
        """The same."""
        low, high = x.min() + F32(0), x.max() + F32(0)
        k = F32(1) if np.isfinite(high - low) else F32(0.5)
        floor, top = k * low, self.levels - 1
        d = (k * high - floor + k * self.epsilon) / self.levels
        d = d if d != 0 else F32(1)
        lifted = k * x - floor
        if u is None:
            v = np.clip(lifted * np.minimum(F32(1) / d, LARGEST), F32(0), top)
            below = np.floor(v)
            q = np.where(v - below >= F32(0.5), below + 1, below)
        else:
            t = np.trunc(np.clip(lifted / d, F32(0), top))
            share = np.abs(k * x - (t * d + floor)) / d
            q = np.where((u < share) & (t < top), t + 1, t)
        return np.asarray((q.astype(F32) * d + floor) / k)

    def expected(self, given: Arrays) -> Arrays:
        """The elements that are left."""
        x = given["input"].reshape(-1).astype(F32)
        y = np.full_like(x, np.nan)
        u = None
        if self.stochastic:
            u = uniform(int(given["seed"]), int(given["offset"]), (self.count,)).astype(F32)
        fake = self.symmetric if self.mode == "symmetric" else self.asymmetric
        with np.errstate(all="ignore"):
            for first in range(0, self.count, self.group_size):
                group = slice(first, first + self.group_size)
                if np.isfinite(x[group]).all():
                    y[group] = fake(x[group], None if u is None else u[group])
        return {"output": narrowed(y, self.input_dtype).reshape(self.shape)}


@dataclass(frozen=True)
class Part:
    """Consecutive groups, as a problem of their own; its draws begin where the part does."""

    whole: DeepSpeedProblem
    first: int
    last: int

    @property
    def problem(self) -> DeepSpeedProblem:
        """The part alone, as a flat tensor."""
        return replace(self.whole, shape=(self.last - self.first,))

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's outputs out of the whole's."""
        return {
            name: np.ascontiguousarray(values.reshape(-1)[self.first : self.last])
            for name, values in whole.items()
        }

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's inputs out of the whole's."""
        scalars = {name: whole[name] for name in whole if name != "input"}
        if "offset" in scalars:
            moved = (int(scalars["offset"]) + self.first // 4) % COUNT
            scalars["offset"] = np.array(moved, np.uint64).view(np.int64)
        return self.outputs({"input": whole["input"]}) | scalars


@dataclass(frozen=True)
class Case:
    """A problem with its operands."""

    problem: DeepSpeedProblem
    kind: str = "finite"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the operands, as one word."""
        return f"{self.problem.id},{self.kind},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of the tensor."""
        return self.problem.count

    def reseeded(self, seed: int) -> Case:
        """The problem on other values of all kinds."""
        return Case(self.problem, KINDS[seed % len(KINDS)], seed)

    def inputs(self) -> Arrays:
        """Input operands by name."""
        return self.problem.inputs(self.kind, self.seed)

    def expected(self, given: Arrays) -> Arrays:
        """Output operands by name, as stored."""
        return self.problem.expected(given)

    def parts(self) -> Iterator[Part]:
        """Runs of whole groups that begin at draws of their own."""
        unit = math.lcm(4, self.problem.group_size)
        step = max(-(-self.size // (unit * PARTS)), 1) * unit
        for first in range(0, self.size, step):
            yield Part(self.problem, first, min(first + step, self.size))


def cases_of(places: tuple[tuple[tuple[int, ...], int], ...], each: int = 1) -> tuple[Case, ...]:
    """Every form and type of elements at every place, or at one of `each`; bits take turns."""
    found = []
    combinations = itertools.product(places, ELEMENTS, FORMS)
    for seed, ((shape, size), elements, (mode, rounding)) in enumerate(combinations):
        if (seed + seed // len(FORMS)) % each:
            continue
        problem = DeepSpeedProblem(
            shape=shape,
            input_dtype=elements,
            group_size=size,
            mode=mode,
            rounding=rounding,
            bits=BITS[seed % len(BITS)],
            eps=EPSILONS[seed // 2 % len(EPSILONS)],
        )
        found.append(Case(problem, KINDS[seed % len(KINDS)], seed))
    return tuple(found)


def tiny_cases() -> tuple[Case, ...]:
    """Groups of subnormal numbers, whose steps are subnormal, too: eps hides none of them."""
    combinations = itertools.product(TINY, ELEMENTS, FORMS)
    return tuple(
        Case(
            DeepSpeedProblem(
                shape=(3, 2048),
                input_dtype=elements,
                group_size=size,
                mode=mode,
                rounding=rounding,
                bits=BITS[seed % len(BITS)],
                eps=TINIEST[seed % len(TINIEST)],
            ),
            "subnormal",
            seed,
        )
        for seed, (size, elements, (mode, rounding)) in enumerate(combinations)
    )


def deepspeed_cases() -> tuple[Case, ...]:
    """Problems with elements."""
    return (*cases_of(PLACES, 2), *cases_of(LONG, 2))


def empty_deepspeed_cases() -> tuple[Case, ...]:
    """Problems without elements."""
    return cases_of(EMPTY)
