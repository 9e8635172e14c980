"""Problems of an operator that nobody wrote down.

Each begins as one that the operator's adapter knows, which some kernel of the registry is recorded
to take: so every kernel gets its share, and what its problems have in common stays. Then extents,
and some of the other fields, become others.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from typing import Any

import planq
from planq.audit import selections
from planq.audit.operators import OPERATORS, Case, all_cases
from planq.audit.ops.gguf.blocks import FORMATS
from planq.audit.ops.gguf.linear_gguf_merged.reference import row_bytes

EXTENTS = (
    *(1, 1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 23, 31, 32, 33, 47, 48, 63, 64, 65, 96, 97),
    *(127, 128, 129, 191, 193, 255, 256, 257, 384, 509, 511, 512, 513, 1021, 1023, 1024, 1025),
    *(2047, 2048, 2049, 4093, 4095, 4096, 4097, 8191, 8193, 16383, 16385, 65535, 65537),
)
SHAPES = ("shape", "input_shape", "weight_shape")
# How often a field becomes another.
OTHER_DTYPE = 0.06
OTHER_FIELD = 0.2
OFTEN = 0.7
EMPTY = 0.03
# Multiplications, or elements, of most cases, of some, and of few.
SIZES = ((2**11, 0.75), (2**13, 0.2), (2**16, 0.04), (2**20, 0.01))
MOST_WORK, MOST_BYTES = 2**22, 2**24
TRIES = 12
CODES = (*range(-9, 10), -128, -127, -100, 15, 100, 126, 127, 128, 254, 255, None, None)
# Values that fields have in none of the adapters' problems.
UNUSUAL: dict[str, tuple[Any, ...]] = {
    "eps": (0.0, 0.0, 1e-45, 1e-40, 1e-38, 1e-30, 1e-5, 1.0),
    "q_min": CODES,
    "q_max": CODES,
    "threshold": (0.0, 1e-45, 1e-38, 0.5, 1.0, 448.0, 65504.0, 1e38),
    "error_feedback": (None, 0.0, 1e-45, 0.5, 1.0, -1.0, 3.0),
    "bits": (None, *range(2, 9)),
    "scale_ub": (None, 1e-45, 2.0**-9, 0.1, 1.0, 448.0, 1e4, 3.4e38),
}
# Operators that take multiples of powers of two more often than others do.
WHOLE = {"reorder_mixed_dtype_weight": 0.95, "linear_4bit": 0.7}
# Fields with values that every kernel takes.
FREE = {"eps"}


class Draw(random.Random):
    """What a case is drawn from."""

    def __init__(self, seed: int, operator: str, index: int) -> None:
        """The same numbers for the same case."""
        super().__init__(f"{seed}/{operator}/{index}")

    def chance(self, probability: float) -> bool:
        """True that often."""
        return self.random() < probability

    def budget(self) -> int:
        """How large a case may be."""
        sizes, weights = zip(*SIZES, strict=True)
        return int(self.choices(sizes, weights)[0])


@cache
def bases(operator: str) -> dict[str, tuple[Case, ...]]:
    """The operator's kernels, and the cases that each of them is recorded to take."""
    cases = {selections.key(case): case for case in all_cases(operator)}
    found: dict[str, list[Case]] = defaultdict(list)
    for device in ("host", "sm_90"):
        for key, table in selections.recorded(operator, device).items():
            for name in sorted(table.takers) if key in cases else ():
                found[name].append(cases[key])
    return {name: tuple(found[name]) for name in sorted(found)}


def kind_of(holder: Any) -> str:
    """The name of the class, and of its module: several have classes of one name."""
    return f"{type(holder).__module__}.{type(holder).__qualname__}"


@cache
def pools(operator: str, kind: str) -> dict[str, tuple[Any, ...]]:
    """The values that each field of a problem or a case has somewhere."""
    found: dict[str, dict[Any, None]] = defaultdict(dict)
    for case in all_cases(operator):
        holders: tuple[Any, ...] = (case, case.problem)
        for holder in holders:
            if kind_of(holder) == kind:
                for field in fields(holder):
                    found[field.name][getattr(holder, field.name)] = None
    return {name: tuple(values) for name, values in found.items()}


def multiple(extent: int) -> int:
    """The largest power of two, up to 64, of which an extent is a multiple."""
    return math.gcd(extent, 64) if extent else 64


class Shaper:
    """Other extents for those of a problem: the same for the same, so that sides still meet."""

    def __init__(self, draw: Draw, problem: Any, *, whole: bool) -> None:
        """`whole`: extents stay multiples of the powers of two that they are multiples of."""
        self._draw, self._whole = draw, whole
        self._left = draw.budget()
        self._empty = draw.chance(EMPTY)
        self._known: dict[int, int] = {}
        times = Counter(extents(problem))
        for extent in sorted(times, key=lambda _: draw.random()):
            self._known[extent] = self._extent(extent, times[extent])

    def _extent(self, old: int, times: int) -> int:
        if self._empty and self._draw.chance(0.5):
            return 0
        unit = multiple(old) if self._whole else 1
        most = max(self._left ** (1 / times), unit)
        fitting = [n for n in EXTENTS if n * unit <= most]
        # Of large ones more than of small ones, as long as there is room.
        new = unit * max(self._draw.choice(fitting), self._draw.choice(fitting))
        if self._draw.chance(0.2):
            new = unit * self._draw.choice(fitting)
        self._left //= max(new**times, 1)
        return new

    def shape(self, old: tuple[int, ...]) -> tuple[int, ...]:
        """The new extents of a shape."""
        return tuple(self._known[extent] for extent in old)


def extents(problem: Any) -> Iterator[int]:
    """All extents of a problem's shapes; that which two shapes share counts once."""
    names = named(problem)
    shared: Counter[int] = Counter()
    for name in SHAPES:
        shared |= Counter(getattr(problem, name) if name in names else ())
    yield from shared.elements()
    for shape in problem.shapes if "shapes" in names else ():
        yield from shape


def named(problem: Any) -> set[str]:
    """The names of a problem's fields."""
    return {field.name for field in fields(problem)}


def reshaped(draw: Draw, operator: str, problem: Any) -> Any:
    """The problem with other extents."""
    shaper = Shaper(draw, problem, whole=draw.chance(WHOLE.get(operator, 0.4)))
    names = named(problem)
    changes: dict[str, Any] = {
        name: shaper.shape(getattr(problem, name)) for name in SHAPES if name in names
    }
    if "shapes" in names:
        changes["shapes"] = tuple(shaper.shape(shape) for shape in problem.shapes)
    elif set(changes) == {"shape"} and draw.chance(0.1):
        shape = changes["shape"]
        other = ((1, *shape), (2, *shape), shape[1:] or shape)
        changes["shape"] = draw.choice(other)
    return replace(problem, **changes)


def number(draw: Draw, name: str, old: Any, pool: tuple[Any, ...]) -> Any:
    """Another value for a field: one that it has elsewhere, one near it, or an unusual one."""
    if name in UNUSUAL and draw.chance(0.6):
        return draw.choice(UNUSUAL[name])
    if type(old) is int and old and draw.chance(0.6):
        near = (max(old - 1, 1), old + 1, 2 * old, max(old // 2, 1))
        return draw.choice((*near, draw.choice([n for n in EXTENTS if n <= 4 * abs(old) + 4])))
    return draw.choice(pool)


def scoped(draw: Draw, old: tuple[Any, ...], pool: tuple[Any, ...]) -> tuple[Any, ...]:
    """Another scope: of other groups and blocks, or one that there is elsewhere."""
    kind, *numbers = old
    if kind in ("group", "block") and draw.chance(0.7):
        own = [draw.choice(EXTENTS[:36]) if type(n) is int and n > 0 else n for n in numbers]
        return (kind, *own)
    made: tuple[Any, ...] = draw.choice(pool)
    return made


def altered(draw: Draw, operator: str, problem: Any) -> Any:
    """The problem with some other fields than its extents changed."""
    changes: dict[str, Any] = {}
    for name, pool in pools(operator, kind_of(problem)).items():
        likely = OTHER_DTYPE if "dtype" in name else OTHER_FIELD
        likely = OFTEN if name == "eps" else likely
        if name in SHAPES or name == "shapes" or not draw.chance(likely):
            continue
        old = getattr(problem, name)
        if isinstance(old, tuple) and name.endswith("scope"):
            changes[name] = scoped(draw, old, pool)
        else:
            changes[name] = number(draw, name, old, pool)
    return replace(problem, **changes)


def recast(draw: Draw, operator: str, case: Any, problem: Any) -> Case:
    """The case of another problem, with values of any of the kinds that there are."""
    changes: dict[str, Any] = {"problem": problem, "seed": draw.randrange(2**20)}
    for name, pool in pools(operator, kind_of(case)).items():
        if isinstance(pool[0], str | float) or name == "step":
            changes[name] = draw.choice(pool)
    made: Case = replace(case, **changes)
    return made


def whole_groups(draw: Draw, problem: Any) -> Any:
    """A problem of `swizzled_quantize` with as many groups as its nodes and devices take."""
    nodes, devices, slices = (draw.choice((1, 1, 2, 3, 4, 5, 8)) for _ in range(3))
    size = draw.choice([n for n in EXTENTS if n <= 2049])
    size += size % 2 if problem.output_dtype == "int4" else 0
    count = nodes * devices * slices * draw.choice((1, 1, 2, 3, 7))
    shape = draw.choice(((count, size), (count * size,), (1, count, size)))
    return replace(
        problem,
        shape=shape,
        group_size=size,
        nodes=nodes,
        devices_per_node=devices,
        pipelining=slices,
    )


def whole_blocks(draw: Draw, problem: Any) -> dict[str, Any]:
    """Extents of a layer and a size of blocks that divides its terms."""
    *rows, k = problem.weight_shape
    terms = -(-k // 32) * 32
    sizes = [size for size in (32, 64, 128, 256, 384, 1024) if terms % size == 0]
    return {
        "weight_shape": (*rows, terms),
        "input_shape": (*problem.input_shape[:-1], terms),
        "block_size": draw.choice(sizes),
    }


def whole_runs(draw: Draw, problem: Any) -> Any:
    """A layer whose types and whose groups or blocks have the order GROUPS_SM90, if that is its."""
    if problem.accumulation != "groups_sm90":
        return problem
    changes: dict[str, Any] = {"weight_dtype": None}
    if problem.input_dtype == "float32":
        changes["input_dtype"] = draw.choice(("float16", "bfloat16"))
    if getattr(problem, "block_size", None):
        changes |= whole_blocks(draw, problem)
    elif problem.weight_scope[0] == "group":
        changes["weight_scope"] = ("group", draw.choice((16, 32, 64, 128, 256, 384, 1024)), 1)
    return replace(problem, **changes)


def of_one_kind(draw: Draw, problem: Any) -> Any:
    """A problem of `grouped_linear` with what goes beside its input, and blocks or groups."""
    plain: dict[str, Any] = {"weight_mode": "symmetric", "scale_dtype": "float32"}
    plain |= {"zero_point_dtype": "int32", "weight_scope": ("token",), "input_scope": None}
    no_blocks = {"codebook": None, "block_size": None, "nested_block_size": None}
    if problem.input_dtype == "int8":
        return replace(problem, **plain, **no_blocks, code_dtype="int8")
    if problem.input_dtype.startswith("float8"):
        if draw.chance(0.5):
            plain |= {"weight_scope": ("block", 128, 128), "input_scope": ("group", 128)}
        codes = draw.choice(("float8_e4m3fn", "float8_e5m2"))
        return replace(problem, **plain, **no_blocks, code_dtype=codes)
    if problem.block_size:
        return replace(problem, **plain, code_dtype="uint4", **whole_blocks(draw, problem))
    blocks = problem.weight_scope[0] == "block"
    scope = ("token",) if blocks else problem.weight_scope
    return replace(problem, **no_blocks, input_scope=None, weight_scope=scope)


def with_its_bound(draw: Draw, problem: Any) -> Any:
    """A bound of ranges goes with vLLM's convention alone."""
    vllm = problem.convention == "vllm"
    return replace(problem, scale_ub=draw.choice(UNUSUAL["scale_ub"]) if vllm else None)


def whole_rows(_: Draw, problem: Any) -> Any:
    """A problem of blocks of GGUF files whose last axis is whole blocks of its type."""
    *rows, width = problem.shape
    elements = problem.format.elements
    return replace(problem, shape=(*rows, -(-width // elements) * elements))


def rows_of_whole_blocks(draw: Draw, problem: Any) -> Any:
    """The same, whose rows may be named by an index, which then has a type."""
    problem = whole_rows(draw, problem)
    if len(problem.shape) == 1:
        problem = replace(problem, table_rows=None)
    dtype = draw.choice(("int32", "int64")) if problem.table_rows is not None else None
    return replace(problem, index_dtype=dtype)


def layer_of_whole_rows(_: Draw, problem: Any) -> Any:
    """A problem of `linear_gguf` whose terms are whole blocks of its type."""
    elements = problem.format.elements
    terms = -(-problem.terms // elements) * elements
    return replace(
        problem,
        input_shape=(*problem.input_shape[:-1], terms),
        weight_shape=(problem.columns, terms),
    )


def layers_of_whole_rows(draw: Draw, problem: Any) -> Any:
    """A problem of `linear_gguf_merged` whose terms are whole blocks of all its types."""
    elements = math.lcm(*(FORMATS[kind].elements for kind in problem.types))
    terms = -(-problem.input_shape[-1] // elements) * elements
    weights = tuple(
        (draw.choice(EXTENTS[:30]) if draw.chance(0.5) else rows, row_bytes(kind, terms))
        for (rows, _), kind in zip(
            itertools.cycle(problem.weight_shapes), problem.types, strict=False
        )
    )
    return replace(problem, input_shape=(*problem.input_shape[:-1], terms), weight_shapes=weights)


def whole_sequences(draw: Draw, problem: Any) -> Any:
    """A problem of `attention` with heads, columns and pages that there may be."""
    key_heads, group = draw.choice((1, 1, 2, 3)), draw.choice((1, 1, 2, 3, 4, 5, 8, 17))
    columns, width = (16 * draw.choice((1, 1, 2, 3, 4, 5, 8, 9, 16)) for _ in range(2))
    tokens = draw.choice((0, *(n for n in EXTENTS if n <= 33)))
    room = max(2**17 // (max(tokens, 1) * key_heads * group * max(columns, width)), 1)
    keys = draw.choice([n for n in EXTENTS if n <= min(max(room, 8), 2049)])
    batch, size = draw.choice((1, 1, 2, 3, 5)), draw.choice((None, 1, 2, 3, 7, 16, 64, 128, 200))
    codes = problem.cache_dtype in ("int8", "float8_e4m3fn", "float8_e5m2")
    return replace(
        problem,
        query_shape=(tokens, key_heads * group, columns),
        key_heads=key_heads,
        batch=batch,
        max_query=max(tokens - draw.choice((0, 0, 0, 1, 2)), 1),
        max_key=keys,
        value_dim=draw.choice((None, width)),
        pages=max(-(-keys // size) * batch - draw.choice((0, 0, 1)), 1) if size else None,
        page_size=size,
        cache_dtype=problem.cache_dtype if codes else None,
        scale_scope=problem.scale_scope if codes else None,
    )


# Problems whose fields go together in a way that changes of one at a time would miss.
TOGETHER = {
    **dict.fromkeys(
        ("dynamic_range_quantize", "rms_norm", "layer_norm", "activation"), with_its_bound
    ),
    "swizzled_quantize": whole_groups,
    "linear_4bit": whole_runs,
    "linear_mixed": whole_runs,
    "grouped_linear": of_one_kind,
    "gguf_quantize": whole_rows,
    "gguf_dequantize": rows_of_whole_blocks,
    "linear_gguf": layer_of_whole_rows,
    "linear_gguf_merged": layers_of_whole_rows,
    "attention": whole_sequences,
}


def nbytes(desc: planq.Descriptor) -> int:
    """The memory that the operands take."""
    return sum(spec.nbytes for spec in desc.operands().values())


def small_enough(problem: Any) -> bool:
    """Whether the extents as they are may be kept."""
    names = named(problem)
    shapes = [getattr(problem, name) for name in SHAPES if name in names]
    shapes += problem.shapes if "shapes" in names else ()
    return all(math.prod(shape) <= 2**13 for shape in shapes)


def drawn(
    draw: Draw, operator: str, name: str, refused: list[planq.DescriptorError]
) -> tuple[Case, planq.Descriptor]:
    """A case that began as one of the kernel's, and its descriptor; refusals are gathered.

    After half of the tries extents stay, and after all of them everything does.
    """
    for attempt in range(TRIES):
        base: Any = draw.choice(bases(operator)[name])
        problem = base.problem
        if not small_enough(problem) or (attempt < TRIES // 2 and draw.chance(0.8)):
            problem = reshaped(draw, operator, problem)
        if draw.chance(0.75):
            problem = altered(draw, operator, problem)
        if operator in TOGETHER and draw.chance(0.9):
            problem = TOGETHER[operator](draw, problem)
        try:
            desc = OPERATORS[operator].descriptor(problem)
        except planq.DescriptorError as error:
            refused.append(error)
            continue
        case = recast(draw, operator, base, problem)
        if case.size <= MOST_WORK and nbytes(desc) <= MOST_BYTES:
            return case, desc
    return known(draw, operator, name)


def known(draw: Draw, operator: str, name: str) -> tuple[Case, planq.Descriptor]:
    """One of the kernel's own problems, with other values, and its descriptor."""
    small = sorted((c for c in bases(operator)[name] if c.size), key=lambda case: case.size)
    base: Any = draw.choice(small[: (len(small) + 1) // 2])
    problem = base.problem
    for field in sorted(FREE & named(problem)):
        problem = replace(problem, **{field: draw.choice(UNUSUAL[field])})
    return recast(draw, operator, base, problem), OPERATORS[operator].descriptor(problem)
