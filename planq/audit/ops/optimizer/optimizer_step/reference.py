"""The step of an optimizer in NumPy, written from the numeric contract alone.

Nothing here is shared with the library. Arrays are float32, whose operations are single IEEE
roundings; scalars are float64 until they meet an element.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from planq.audit.ops.codebook.reference import (
    Codebook,
    dynamic_values,
    in_rows,
    quotients,
    tree_sum,
)
from planq.audit.reference.formats import FLOATS, Array, Arrays, narrowed
from planq.audit.reference.philox import philox

F32, F64 = np.float32, np.float64
ZERO, ONE = F64(0), F64(1)
SCALARS = {
    "adam": ("beta1", "beta2", "eps"),
    "ademamix": ("beta1", "beta2", "beta3", "alpha", "eps"),
    "momentum": ("beta1", "beta2"),
    "rmsprop": ("beta1", "eps"),
    "adagrad": ("eps",),
    "lion": ("beta1", "beta2"),
    "lamb": ("beta1", "beta2", "eps"),
    "lars": ("beta1", "beta2", "eps"),
}
STATES = {"adam": 2, "ademamix": 3, "lamb": 2}
LAYERED = ("lamb", "lars")
WORD = 2**32 - 1
LISTED = ("parameter", "gradient", "state1", "state2", "state3", "absmax1", "absmax2", "absmax3")
LISTS = (*LISTED, "master", "update_norm")


@dataclass(frozen=True)
class Problem:
    """A descriptor in plain values."""

    shapes: tuple[tuple[int, ...], ...]
    algorithm: str = "adam"
    parameter_dtype: str = "float32"
    gradient_dtype: str = "float32"
    state_format: str = "float32"
    block_size: int = 256
    weight_decay_mode: str = "decoupled"
    trust_ratio: str = "default"
    nesterov: bool = False
    centered: bool = False
    skip_zeros: bool = False
    nonfinite: str = "propagate"
    rounding: str = "nearest_even"
    master: bool = False
    advance_step: bool = False
    tensor_ids: tuple[int, ...] = ()

    @property
    def fields(self) -> dict[str, Any]:
        """What a descriptor is given."""
        return asdict(self)

    @cached_property
    def id(self) -> str:
        """Every field that is not the default, as one word."""
        default = asdict(Problem(shapes=()))
        shapes = "+".join("x".join(map(str, shape)) or "scalar" for shape in self.shapes)
        told = [
            f"{name}={value}"
            for name, value in asdict(self).items()
            if name not in ("shapes", "algorithm") and value != default[name]
        ]
        return ",".join([self.algorithm, shapes or "nothing", *told]).replace(" ", "")

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements of the tensors."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def states(self) -> int:
        """How many there are."""
        return STATES.get(self.algorithm, 2 if self.centered else 1)

    @property
    def trust(self) -> str:
        """The trust ratio, where it is left out that of the algorithm."""
        if self.trust_ratio != "default":
            return self.trust_ratio
        return "layerwise" if self.algorithm in LAYERED else "none"

    @property
    def formula(self) -> str:
        """The algorithm; clipped, lamb is adam and lars momentum."""
        clipped = {"lamb": "adam", "lars": "momentum"} if self.trust == "clip" else {}
        return clipped.get(self.algorithm, self.algorithm)

    @property
    def scalars(self) -> tuple[str, ...]:
        """The scalars that the algorithm has."""
        names = tuple(n for n in SCALARS[self.algorithm] if n != "eps" or self.has_eps)
        bound = self.trust == "clip" or self.algorithm == "lars"
        return ("lr", *names, "weight_decay", "gradient_scale", *(("max_unorm",) if bound else ()))

    @property
    def has_eps(self) -> bool:
        """Whether something is added to a root or a norm."""
        return self.formula not in ("momentum", "lion")

    def is_signed(self, state: int) -> bool:
        """Whether a state has negative values; states count from 0."""
        if self.algorithm in ("adam", "ademamix", "lamb"):
            return state != 1
        return state == 1 if self.algorithm == "rmsprop" else self.algorithm != "adagrad"

    def block(self, tensor: int) -> int:
        """Elements of a block of the tensor."""
        whole = max(self.counts[tensor], 1)
        return whole if self.state_format == "static8" else self.block_size

    def blocks(self, tensor: int) -> int:
        """How many absmax the tensor has."""
        return 1 if self.state_format == "static8" else -(-self.counts[tensor] // self.block_size)

    def alone(self, tensor: int) -> Problem:
        """One tensor of the list."""
        ids = self.tensor_ids or tuple(range(len(self.shapes)))
        return replace(self, shapes=(self.shapes[tensor],), tensor_ids=(ids[tensor],))

    def expected(self, given: Arrays) -> Arrays:
        """What the written operands hold after the step; members of lists are `name[i]`."""
        with np.errstate(all="ignore"):
            return expected(self, given)


@cache
def dynamic_map(signed: bool) -> Array:
    """The dynamic map."""
    return dynamic_values(signed)


# --- Scalars


def power(base: Any, exponent: int) -> Any:
    """By squaring, the lowest bit first, in float64."""
    result = ONE
    while exponent > 0:
        if exponent % 2 == 1:
            result = result * base
        base = base * base
        exponent //= 2
    return result


@dataclass(frozen=True)
class Numbers:
    """The scalars of a step in float64; those that are left out have what leaves them out."""

    step: int
    lr: Any
    beta1: Any = ZERO
    beta2: Any = ZERO
    beta3: Any = ZERO
    alpha: Any = ZERO
    eps: Any = ZERO
    weight_decay: Any = ZERO
    gradient_scale: Any = ONE
    max_unorm: Any = ZERO

    @property
    def c1(self) -> Any:
        """The correction of m."""
        return ONE - power(self.beta1, self.step)

    @property
    def c2(self) -> Any:
        """The correction of the root of v."""
        return np.sqrt(ONE - power(self.beta2, self.step))


def numbers_of(problem: Problem, given: Arrays) -> Numbers:
    """Those of the step that is taken."""
    told = {name: F64(given[name]) for name in problem.scalars if name in given}
    return Numbers(int(given["step"]) + problem.advance_step, **told)


# --- Elements


@dataclass(frozen=True)
class Element:
    """The elements of a tensor before the step, flat: p and g in float32, states decoded."""

    p: Array
    g: Array
    states: tuple[Array, ...]


def moved(
    problem: Problem, n: Numbers, p: Array, g: Array, s: tuple[Array, ...]
) -> tuple[tuple[Array, ...], Array, Any]:
    """New states, u and a: the table of the contract."""
    b1, b2, b3 = F32(n.beta1), F32(n.beta2), F32(n.beta3)
    r1, r2, r3 = F32(ONE - n.beta1), F32(ONE - n.beta2), F32(ONE - n.beta3)
    formula = problem.formula
    if formula in ("adam", "ademamix", "lamb"):
        m, v = b1 * s[0] + r1 * g, b2 * s[1] + r2 * (g * g)
        divisor = np.sqrt(v) + F32(n.eps * n.c2)
        if formula == "ademamix":
            slow = b3 * s[2] + r3 * g
            u = (F32(ONE / n.c1) * m + F32(n.alpha) * slow) / divisor
            return (m, v, slow), u, n.lr * n.c2
        if formula == "adam":
            return (m, v), m / divisor, n.lr * n.c2 / n.c1
        u = F32(n.c2 / n.c1) * (m / divisor)
        return (m, v), u + F32(n.weight_decay) * p if n.weight_decay != 0 else u, n.lr
    if formula in ("momentum", "lars"):
        m = g if n.step == 1 else b1 * s[0] + r2 * g
        return (m,), g + b1 * m if problem.nesterov else m, n.lr
    if formula == "lion":
        x = b1 * s[0] + r1 * g
        u = np.where(np.isnan(x), x, np.where(x > 0, F32(1), np.where(x < 0, F32(-1), F32(0))))
        return (b2 * s[0] + r2 * g,), u, n.lr
    if formula == "adagrad":
        v = s[0] + g * g
        return (v,), g / (np.sqrt(v) + F32(n.eps)), n.lr
    v = b1 * s[0] + r1 * (g * g)
    if not problem.centered:
        return (v,), g / (np.sqrt(v) + F32(n.eps)), n.lr
    h = b1 * s[1] + r1 * g
    rest = v - h * h
    q = np.where((rest > 0) | np.isnan(rest), rest, F32(0))
    return (v, h), g / (np.sqrt(q) + F32(n.eps)), n.lr


@dataclass(frozen=True)
class Taken:
    """A step of a tensor: p', states' and u of every element, as if all were touched."""

    p: Array
    states: tuple[Array, ...]
    u: Array


def take(problem: Problem, n: Numbers, e: Element, k: Any) -> Taken:
    """Steps 3 to 6; `k` is the trust ratio."""
    p, g = e.p, e.g
    decays, layered = n.weight_decay != 0, problem.trust == "layerwise"
    shrink = F32(ONE - n.lr * n.weight_decay)
    mode = problem.weight_decay_mode if decays and not layered else ""
    if mode == "decoupled":
        p = p * shrink
    if mode == "coupled":
        g = g + F32(n.weight_decay) * p
    if problem.formula == "lars":
        g = k * (g + F32(n.weight_decay) * p if decays else g)
        k = F32(1)
    states, u, a = moved(problem, n, p, g, e.states)
    after = p - (k * F32(a)) * u
    return Taken(after * shrink if mode == "after" else after, states, np.asarray(u))


def norm(x: Array) -> Any:
    """The root of the sum of squares."""
    return np.sqrt(F32(tree_sum(x * x)))


def trust_of(problem: Problem, n: Numbers, e: Element, untouched: Array) -> tuple[Any, Any]:
    """k, and U or the norm of u; of lars the latter is found later."""
    if problem.trust == "none":
        return F32(1), None
    of_p, touched = norm(e.p), ~untouched
    if problem.formula == "lars":
        of_g = norm(np.where(touched, e.g, F32(0)))
        if of_p == 0 or of_g == 0:
            return F32(1), None
        pull = of_g + F32(n.weight_decay) * of_p if n.weight_decay != 0 else of_g
        return (F32(n.max_unorm) * of_p) / (pull + F32(n.eps)), None
    of_u = norm(np.where(touched, take(problem, n, e, F32(1)).u, F32(0)))
    if problem.formula == "lamb":
        return (F32(1) if of_p == 0 or of_u == 0 else of_p / of_u), of_u
    factor = {"adam": n.c2 / n.c1, "ademamix": n.c2}.get(problem.formula)
    clipped = of_u if factor is None else F32(factor) * of_u
    bound = F32(n.max_unorm) * of_p
    return (bound / clipped if n.max_unorm > 0 and clipped > bound else F32(1)), clipped


# --- Storage


def decoded(codes: Array, absmax: Array, values: Array, block: int) -> Array:
    """The states that codes stand for."""
    return np.asarray(values[codes] * np.repeat(absmax, block)[: codes.size])


def coded(
    state: Array, untouched: Array, old: tuple[Array, Array], book: Codebook, size: int, repair: Any
) -> tuple[Array, Array]:
    """Codes and absmax; `old` has those from before, of which untouched elements keep theirs."""
    codes, absmax = old
    if state.size == 0:
        return codes, absmax
    rows, kept = in_rows(state, size), in_rows(untouched, size)
    others = np.where(kept, np.abs(absmax)[:, None], np.abs(rows)).max(axis=1)
    found = np.where(np.isfinite(others), others, F32(np.nan)).astype(F32)
    y = quotients(rows, found[:, None], "reciprocal")
    made = book.codes(y)
    negative = repair & (rows < 0) & (made == book.zero)
    made = np.where(negative, made - 1, made)
    empty = (found == 0) | np.isnan(found)
    made = np.where(empty[:, None], book.zero, made).reshape(-1)[: state.size]
    return np.where(untouched, codes, made.astype(np.uint8)), found


def drawn(values: Array, dtype: str, words: Array) -> Array:
    """Each value's neighbour towards zero, or the next one, by its word; exact in float64."""
    fmt = FLOATS[dtype]
    magnitude = np.abs(values.astype(F64))
    inside = magnitude <= fmt.largest
    kept = np.where(inside, magnitude, 0.0)
    _, exponent = np.frexp(kept)
    quantum = np.maximum(exponent - fmt.precision, fmt.lowest - fmt.precision + 1)
    steps = np.ldexp(kept, -quantum)
    up = steps - np.floor(steps) > (words >> np.uint32(8)).astype(F64) * 2.0**-24
    made = np.copysign(np.ldexp(np.floor(steps) + up, quantum), values.astype(F64))
    stored = made.astype(F32).astype(fmt.dtype)
    return np.where(inside, stored, narrowed(values, dtype))


def words(problem: Problem, given: Arrays, n: Numbers, tensor: int) -> Array:
    """A word of Philox for every element of a tensor."""
    count = problem.counts[tensor]
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    low = blocks + np.uint64(int(given["offset"]) % 2**64)
    ids = problem.tensor_ids or tuple(range(len(problem.shapes)))
    upper = [np.full_like(low, part & WORD) for part in (ids[tensor], n.step)]
    counter: Any = (low & np.uint64(WORD), low >> np.uint64(32), *upper)
    made = philox(counter, int(given["seed"]) % 2**64)
    return np.stack(made, axis=-1).reshape(-1)[:count].astype(np.uint32)


# --- A step


def member(given: Arrays, name: str, tensor: int) -> Array:
    """A tensor of a list, flat."""
    return given[f"{name}[{tensor}]"].reshape(-1)


def codebook_of(problem: Problem, given: Arrays, state: int) -> Codebook:
    """The caller's, or the dynamic map of the state's sign."""
    values = given.get(f"codebook{state + 1}", dynamic_map(problem.is_signed(state)))
    return Codebook(values, "given", "even")


def element_of(problem: Problem, given: Arrays, n: Numbers, tensor: int) -> Element:
    """Step 1."""
    source = "master" if problem.master else "parameter"
    p = member(given, source, tensor).astype(F32)
    g = F32(n.gradient_scale) * member(given, "gradient", tensor).astype(F32)
    states = []
    for k in range(problem.states):
        state = member(given, f"state{k + 1}", tensor)
        if problem.state_format != "float32":
            absmax = member(given, f"absmax{k + 1}", tensor)
            values = codebook_of(problem, given, k).values
            state = decoded(state, absmax, values, problem.block(tensor))
        states.append(state)
    return Element(p, g, tuple(states))


def untouched_of(problem: Problem, g: Array) -> Array:
    """Step 2, but for whole steps."""
    zeros = (g == 0) & problem.skip_zeros
    return np.asarray(zeros | (~np.isfinite(g) & (problem.nonfinite == "skip_element")))


def expected(problem: Problem, given: Arrays) -> Arrays:
    """Every written operand."""
    skipped = problem.nonfinite == "skip_step" and float(given["found_nonfinite"]) != 0
    made: Arrays = {}
    for tensor in range(len(problem.shapes)):
        after = unmoved(problem, given, tensor) if skipped else stepped(problem, given, tensor)
        for name, values in after.items():
            if name != "update_norm" or problem.trust != "none":
                made[f"{name}[{tensor}]"] = values
    if problem.advance_step:
        made["step"] = np.asarray(given["step"] + (0 if skipped else 1))
    return made


def unmoved(problem: Problem, given: Arrays, tensor: int) -> Arrays:
    """A tensor that stays as it is; its update has the norm 0."""
    kept = {
        name: given[f"{name}[{tensor}]"]
        for name in LISTS
        if name != "gradient" and f"{name}[{tensor}]" in given
    }
    return {**kept, "update_norm": np.zeros(1, F32)}


def stepped(problem: Problem, given: Arrays, tensor: int) -> Arrays:
    """A tensor after the step."""
    n = numbers_of(problem, given)
    e = element_of(problem, given, n, tensor)
    untouched = untouched_of(problem, e.g)
    k, told = trust_of(problem, n, e, untouched)
    taken = take(problem, n, e, k)
    if told is None:
        told = norm(np.where(untouched, F32(0), taken.u))
    made = {"update_norm": narrowed(np.asarray([told], F32), "float32")}
    old = member(given, "parameter", tensor)
    if problem.rounding == "stochastic":
        new = drawn(taken.p, problem.parameter_dtype, words(problem, given, n, tensor))
    else:
        new = narrowed(taken.p, problem.parameter_dtype)
    made["parameter"] = np.where(untouched, old, new)
    if problem.master:
        kept = member(given, "master", tensor)
        made["master"] = np.where(untouched, kept, narrowed(taken.p, "float32"))
    for k, state in enumerate(taken.states):
        made |= stored_state(problem, given, tensor, k, state, untouched)
    shape = problem.shapes[tensor]
    flat = ("update_norm", "absmax1", "absmax2", "absmax3")
    return {name: x if name in flat else x.reshape(shape) for name, x in made.items()}


def stored_state(
    problem: Problem, given: Arrays, tensor: int, k: int, state: Array, untouched: Array
) -> Arrays:
    """A state as it is stored."""
    name, old = f"state{k + 1}", member(given, f"state{k + 1}", tensor)
    if problem.state_format == "float32":
        return {name: np.where(untouched, old, narrowed(state, "float32"))}
    absmax = member(given, f"absmax{k + 1}", tensor)
    book, size = codebook_of(problem, given, k), problem.block(tensor)
    codes, found = coded(state, untouched, (old, absmax), book, size, problem.is_signed(k))
    return {name: codes, f"absmax{k + 1}": found}
