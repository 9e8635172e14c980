"""Descriptors and plans as the command line reads them: files, stdin, and examples."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import planq
from planq._nearest import did_you_mean
from planq.checkpoint.strict_json import parse
from planq.cli.failure import CommandError
from planq.cli.words import say

if TYPE_CHECKING:
    from collections.abc import Iterator

STDIN = "-"


def read_text(source: str) -> str:
    """Returns the text of a file, or of stdin if the name is ``-``.

    Raises:
        CommandError: It is not UTF-8 text, or stdin is closed.
        OSError: It cannot be read.
    """
    if source == STDIN and sys.stdin is None:  # Python sets it to None if it starts closed
        raise CommandError("stdin is closed")
    try:
        if source != STDIN:
            return Path(source).read_text(encoding="utf-8")
        if sys.stdin.isatty():
            say("note", "reading JSON from the terminal; Ctrl-D ends it")
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise CommandError(f"{source}: not UTF-8 text") from error


def read_descriptor(source: str) -> tuple[planq.Descriptor, planq.PlanPreference | None]:
    """Reads a descriptor, or a stored plan, which has a descriptor and a preference.

    Raises:
        CommandError: It is not UTF-8 text.
        planq.DescriptorError: It is neither a descriptor nor a stored plan.
    """
    text = read_text(source)
    try:
        values = parse(text)
    except ValueError:  # the reader of descriptors says what is wrong with it
        values = None
    if isinstance(values, dict) and {"descriptor", "preference"} <= values.keys():
        preference = planq.PlanPreference.from_dict(values["preference"])
        return planq.Descriptor.from_dict(values["descriptor"]), preference
    return planq.Descriptor.from_json(text), None


def example_of(operator: str) -> planq.Descriptor:
    """Returns a descriptor of an operator whose required fields have usual values.

    Raises:
        CommandError: There is no such operator, or no usual values fit it.
    """
    classes = {each.name: each.descriptor for each in planq.operators()}
    if operator not in classes:
        hint = did_you_mean(operator, classes)
        raise CommandError(f"--example: no operator {operator!r}{hint}")
    made = classes[operator]
    errors = ["a required field has no usual value"]
    for fields in _usual(made):
        try:
            return made(**fields)
        except (planq.DescriptorError, TypeError) as error:
            errors.append(str(error))
    raise CommandError(f"--example: {operator} has none: {errors[-1]}")


def _usual(made: type[planq.Descriptor]) -> Iterator[dict[str, Any]]:
    """Yields values for the fields that have no default, one set for each element type of codes.

    If the operator has an optional ``block_size``, a second set with it follows each; if it has a
    ``shape``, an ``input_shape`` or a ``weight_shape``, one with three axes.
    """
    needed = [
        item.name
        for item in dataclasses.fields(made)
        if item.init
        and item.default is dataclasses.MISSING
        and item.default_factory is dataclasses.MISSING
    ]
    for codes in ("int8", "uint8", "int4", "uint4", "float32"):
        usual = {
            "shape": (64, 4096),
            "input_shape": (64, 4096),
            "weight_shape": (8192, 4096),
            "block_size": 64,
            "codebook": "nf4",
            "entries": 16,
            "capacity": 1024,
            "count": 1024,
            "shapes": ((64, 4096), (4096,)),
            "algorithm": "adam",
            "group_size": 128,
            "ranks": 8,
            "nodes": 2,
            "devices_per_node": 8,
            "to_layout": "col32",
            "top_k": 8,
            "experts": 64,
            "function": "sigmoid",
            "type": "q4_k",
            "weight_shapes": ((2048, 2304), (512, 2304)),
            "types": ("q4_k", "q4_k"),
            "table_rows": 32768,
            "query_shape": (64, 32, 128),
            "key_shape": (64, 8, 128),
            "key_heads": 8,
            "max_position": 8192,
            "pages": 256,
            "page_size": 16,
            "batch": 4,
            "max_query": 64,
            "max_key": 4096,
        }
        for name in needed:
            if name.endswith("dtype"):
                reads = "dequantize" in made.operator and "backward" not in made.operator
                is_code = name == ("input_dtype" if reads else "output_dtype")
                usual[name] = codes if is_code else "float16"
        if all(name in usual for name in needed):
            yield {name: usual[name] for name in needed}
            if "block_size" in made.__dataclass_fields__:
                yield {name: usual[name] for name in (*needed, "block_size")}
            if "input_shape" in needed:
                yield {name: usual[name] for name in needed} | {"input_shape": (64, 8, 4096)}
            if "shape" in needed:
                yield {name: usual[name] for name in needed} | {"shape": (64, 32, 128)}
            if "weight_shape" in needed:
                yield {name: usual[name] for name in needed} | {"weight_shape": (8, 8192, 4096)}
