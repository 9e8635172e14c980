"""Whatever the input: one sentence and a documented status, no internal error, no trace of a file.

`make fuzz` runs these for longer.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError, safe_open

import planq
from checkpoint.gguf_bytes import U16, Info, described, file, pair
from cli.files import Array, checkpoint, describe, load, pack, weight
from cli.sealing import sealed
from planq.checkpoint.header import BITS, parse_header
from planq.cli import main
from support.hostile import Chaos, bounded, fuzzing

GROUPED = ("int4-group128", "int4-group", "uint4-group")
SCHEMES = ("int8-channel", "int8-tensor", "uint8-channel", *GROUPED, "fp8-channel")
CODEBOOKS = ("nf4", "fp4", "int4-af4", "dynamic8")
RANGES: dict[str, Any] = {"w": {"low": [-1, -2.5], "high": [1, 2]}, "v": {"absmax": 3}}
DESC = planq.QuantizeDescriptor(
    shape=(2, 8), input_dtype="float32", output_dtype="int8", scope=planq.Scope.group(4)
).to_dict()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the files of one example at a time."""
    return tmp_path_factory.mktemp("fuzz")


def made(folder: Path, *arguments: str) -> bytes:
    """What a command makes of in.st, which is sound."""
    (folder / "ranges").write_text(json.dumps(RANGES))
    checkpoint(folder / "in.st", {"w": weight(2, 8), "v": weight(2, 8), "b": weight(1, 4)[0]})
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        assert main(["quantize", "in.st", "q.st", "--force", *arguments]) == 0
    return (folder / "q.st").read_bytes()


@pytest.fixture(scope="module")
def scaled(folder: Path) -> bytes:
    """A file with scales, zero points and planq's metadata."""
    return made(folder, "--scheme", "uint8-channel", "--calibrate", "ranges")


@pytest.fixture(scope="module")
def states(folder: Path) -> list[bytes]:
    """Files with states of bitsandbytes: plain, nested, and of 8 bits."""
    options = (["nf4"], ["nf4", "--nested"], ["dynamic8", "--nested", "--block-size", "4"])
    return [made(folder, "--scheme", *option) for option in options]


def snapshot() -> dict[str, bytes]:
    """The files of the folder at work, by name."""
    return {path.name: path.read_bytes() for path in Path().iterdir()}


def run(folder: Path, files: dict[str, bytes], arguments: list[str], stdin: str = "") -> int:
    """Runs one command line beside these files, and checks what holds for all of them."""
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    for path in folder.iterdir():
        path.unlink()
    with contextlib.chdir(folder):
        for name, content in files.items():
            Path(name).write_bytes(content)
        sys.stdin = io.StringIO(stdin)
        try:
            with bounded(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = main(arguments)
        finally:
            sys.stdin = before
        there = snapshot()
    said = err.getvalue()
    assert status in (0, 1, 2)
    assert "internal error" not in said
    assert "out of memory" not in said
    assert said.count("\n") <= 1, said
    assert said.isprintable() or said.removesuffix("\n").isprintable()
    if status == 2:
        assert there == files
        assert said.startswith("planq: error: ") or not arguments
    elif arguments[0] in ("quantize", "dequantize") and "--help" not in arguments:
        assert said.startswith("planq: warning: ") == (status == 1)
        assert out.getvalue()
        assert len([name for name in there if there[name] != files.get(name)]) <= 1
        assert not [name for name in there if name.startswith(".planq-")]
    return status


PLACES = ("in.st", "q.st", "ranges", "desc.json", "out.st", "", ".", "none/o", "x" * 300, "-")
NO_PLACES = ("\ud800", "\udcff", "a\0b", "a\nb")
PATTERNS = ("w", "(" * 5000, "a{99999999999}", "(?L)", "[[a]", "(?P<n>a)(?P=m)", "(?i", "a{2,1}")
PATTERN_LETTERS = "()[]{}*+?|^$\\.w1,-:<>P=!#iLmsuxa9\n\ud800"
COMMANDS = (
    *("quantize", "quantize", "quantize", "dequantize", "verify", "explain", "explain", "info"),
    *("ops", "plan", "inspect", "run"),
)
FLAGS = (
    *("--nested", "--verify", "--force", "--json", "--help", "--batch-invariant", "--version"),
    *("--no-default-excludes", "--evaluate"),
)


def value_of(option: str, chaos: Chaos) -> str:
    """What an option is given: what it takes, nearly that, or anything."""
    fitting: dict[str, tuple[str, ...]] = {
        "--scheme": SCHEMES + CODEBOOKS,
        "--device": ("host", "cuda:" + "9" * 5000, "cuda:-1", "cuda:\u0662", "sm_90"),
        "--include": (*PATTERNS, chaos.text(PATTERN_LETTERS, 9), chaos.text(PATTERN_LETTERS, 9)),
        "--calibrate": PLACES + NO_PLACES,
        "--exclude": (*PATTERNS, chaos.text(PATTERN_LETTERS, 9)),
        "--format": ("plain", "compressed-tensors", "bitsandbytes", "gguf"),
        "--activations": ("none", "token"),
        "--group-size": ("32", "64", "128", "0", "-32"),
        "--search": ("none", "mse", "all"),
        "--quant-storage": ("uint8", "bfloat16", "float32"),
        "--input": ("float32", "bf16"),
        "--output": ("int8", "fp8"),
        "--example": ("quantize", "min_max"),
        "--dtype": ("float16", "bfloat16", "float32"),
        "--determinism": ("bit-exact", "run_to_run"),
        "--backend": ("host", "cuda"),
        "--sku": ("quantize/host/f32_s8", ""),
        "--body": ("elements", "rows", ""),
    }
    number = "9" * 5000 if chaos.random() < 0.1 else str(chaos.number())
    return chaos.choice((chaos.choice(fitting.get(option, (number,))), number, chaos.word()))


def options_of(command: str) -> tuple[str, ...]:
    """The options of a command that take a value."""
    return {
        "quantize": (
            *("--scheme", "--device", "--include", "--calibrate", "--block-size"),
            *("--format", "--format", "--exclude", "--activations", "--quant-storage"),
        ),
        "verify": ("--device", "--calibrate"),
        "ops": ("--input", "--output", "--backend", "--device"),
        "dequantize": ("--dtype", "--device"),
        "run": ("--device", "--tokens", "--threads"),
        "explain": (
            *("--device", "--determinism", "--max-ulp", "--max-workspace-bytes"),
            *("--backend", "--sku", "--body", "--example"),
        ),
    }.get(command, ())


def command_line(chaos: Chaos) -> list[str]:
    """A command line that is nearly one."""
    command = chaos.choice(COMMANDS)
    arguments = {
        "quantize": ["in.st", "out.st", "--scheme", chaos.choice(SCHEMES + CODEBOOKS)],
        "dequantize": ["q.st", "out.st"],
        "inspect": [chaos.choice(("q.st", "m.gguf"))],
        "run": [chaos.choice(("q.st", "m.gguf")), chaos.word()],
        "verify": ["in.st", chaos.choice(("q.st", "in.st", "."))],
        "plan": [chaos.choice(("save", "verify", "diff")), "desc.json", "out.st"],
        "explain": [chaos.choice(("-", "desc.json"))],
    }.get(command, [])
    for option in chaos.choices(options_of(command) or ("--json",), k=chaos.choice((0, 1, 1, 2))):
        arguments += [option, value_of(option, chaos)]
    arguments += chaos.sample(FLAGS, chaos.choice((0, 0, 0, 1, 2)))
    if chaos.random() < 0.3:
        at = chaos.randint(0, len(arguments))
        stray = chaos.choice((chaos.choice(PLACES + NO_PLACES), chaos.word().replace("/", "")))
        arguments[at : at + chaos.randint(0, 1)] = [stray]
    return [command, *arguments]


@fuzzing(125)
def test_no_command_line_is_an_internal_error(folder: Path, scaled: bytes, chaos: Chaos) -> None:
    files = {
        "in.st": pack({"w": describe("F32", [2, 8], 0, 64)}, bytes(range(64))),
        "q.st": scaled,
        "ranges": json.dumps(RANGES).encode(),
        "desc.json": json.dumps(DESC).encode(),
        "m.gguf": file([pair(b"k", U16, 7)], [described(Info(b"w", (4,), 0, 0))], bytes(16)),
    }
    run(folder, files, command_line(chaos), json.dumps(DESC))


def header_of(content: bytes) -> dict[str, Any]:
    """The header of a file."""
    header: dict[str, Any] = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return header


def sound(chaos: Chaos) -> bytes:
    """A file of any types, shapes and values, among them those that are not finite."""
    header, payload = {}, b""
    for number in range(chaos.randint(1, 4)):
        dtype = chaos.choice((*BITS, "F16", "BF16", "F32", "F64"))
        shape = [chaos.choice((0, 1, 2, 7, 8, 64, 130)) for _ in range(chaos.choice((1, 2, 2, 3)))]
        shape[-1] *= 4 if BITS[dtype] % 8 else 1
        count = math.prod(shape) * BITS[dtype] // 8
        values = chaos.choice((chaos.randbytes(count), bytes(count), b"\xff" * count))
        header[f"w{number}"] = describe(dtype, shape, len(payload), len(payload) + count)
        payload += values
    return pack(header, payload)


@fuzzing(60)
def test_no_sound_file_is_an_internal_error(folder: Path, chaos: Chaos) -> None:
    """And what becomes of it is restored, unless there is nothing to quantize."""
    scheme = chaos.choice(SCHEMES + CODEBOOKS)
    options = ["--verify"] if chaos.random() < 0.5 else []
    if scheme in CODEBOOKS and chaos.random() < 0.7:
        options += ["--block-size", str(chaos.choice((1, 3, 64, 4096, 2**40)))]
        options += ["--nested"] if chaos.random() < 0.5 else []
    if scheme in GROUPED:
        options += ["--search", chaos.choice(("none", "mse"))]
        options += ["--evaluate"] if chaos.random() < 0.5 else []
    files = {"in.st": sound(chaos)}
    arguments = ["quantize", "in.st", "out.st", "--scheme", scheme, *options]
    if run(folder, files, arguments) != 2:
        made = {"q.st": (folder / "out.st").read_bytes()}
        # float64 statistics restore float64 only.
        run(folder, made, ["dequantize", "q.st", "back.st", "--dtype", "float16"])
        assert run(folder, made, ["dequantize", "q.st", "back.st"]) != 2
        shapes = [
            {name: facts["shape"] for name, facts in header_of(content).items() if name[0] == "w"}
            for content in (files["in.st"], (folder / "back.st").read_bytes())
        ]
        assert shapes[0] == shapes[1]


@fuzzing(60)
def test_no_file_of_ranges_is_an_internal_error(folder: Path, chaos: Chaos) -> None:
    text = json.dumps(chaos.tampered(RANGES)).encode()
    if chaos.random() < 0.3:
        text = chaos.spliced(text)
    values = np.arange(16, dtype=np.float32)
    header = {name: describe("F32", [2, 8], 64 * n, 64 * n + 64) for n, name in enumerate("wv")}
    files = {"in.st": pack(header, values.tobytes() * 2), "ranges": text}
    arguments = ["quantize", "in.st", "out.st", "--scheme", chaos.choice(SCHEMES)]
    run(folder, files, [*arguments, "--calibrate", "ranges", "--verify"])


def damaged(content: bytes, chaos: Chaos) -> bytes:
    """A file whose header, length or payload is not what it was."""
    end = 8 + int.from_bytes(content[:8], "little")
    header, payload = header_of(content), content[end:]
    match chaos.randint(0, 3):
        case 0:
            return chaos.spliced(content)
        case 1:
            return pack(chaos.spliced(content[8:end]), payload)
        case _:
            return pack(chaos.tampered(header), payload)


@fuzzing(75)
def test_no_header_is_an_internal_error(
    folder: Path, scaled: bytes, states: list[bytes], chaos: Chaos
) -> None:
    files = {"in.st": damaged(chaos.choice([scaled, *states]), chaos)}
    run(folder, files, ["dequantize", "in.st", "out.st"])
    scheme = chaos.choice(SCHEMES + CODEBOOKS)
    run(folder, files, ["quantize", "in.st", "out.st", "--scheme", scheme])


@fuzzing(300)
def test_a_header_that_is_taken_is_one_that_the_library_takes(
    folder: Path, scaled: bytes, chaos: Chaos
) -> None:
    """An independent reader finds the same tensors in it."""
    content = damaged(scaled, chaos)
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 + length:
        return  # never asked for
    try:
        metadata, places = parse_header(content[8 : 8 + length], len(content) - 8 - length)
    except ValueError:
        return
    path = folder / "taken"
    path.write_bytes(content)
    with safe_open(path, framework="numpy") as opened:
        assert (opened.metadata() or {}) == metadata
        assert sorted(opened.keys()) == sorted(place.name for place in places)
        for place in places:
            found = opened.get_slice(place.name)
            assert (found.get_dtype(), tuple(found.get_shape())) == (place.dtype, place.shape)


@fuzzing(300)
def test_a_header_that_the_library_takes_is_taken(folder: Path, chaos: Chaos) -> None:
    """Where it is one in the words of the format: every name once, and nothing beside."""
    header, at = {}, 0
    for name in ("w", "v", "é\0")[: chaos.randint(0, 3)]:
        dtype = chaos.choice((*BITS, "F32", "F16", "Q4"))
        shape = [chaos.randint(0, 4) for _ in range(chaos.randint(0, 3))]
        size = math.prod(shape) * BITS.get(dtype, 8) // 8 + (chaos.random() < 0.1)
        header[name] = describe(dtype, shape, at, at + size)
        at += size
    spare = int(chaos.random() < 0.1)
    content = pack(dict(chaos.sample(list(header.items()), len(header))), bytes(at + spare))
    path = folder / "given"
    path.write_bytes(content)
    text = content[8 : len(content) - at - spare]
    try:
        with safe_open(path, framework="numpy"):
            pass
    except SafetensorError:
        with pytest.raises(ValueError, match=r"."):
            parse_header(text, at + spare)
    else:
        assert {place.name for place in parse_header(text, at + spare)[1]} == header.keys()


@fuzzing(75)
def test_no_metadata_is_an_internal_error(folder: Path, scaled: bytes, chaos: Chaos) -> None:
    end = 8 + int.from_bytes(scaled[:8], "little")
    header, payload = header_of(scaled), scaled[end:]
    metadata = header["__metadata__"]
    key = chaos.choice(("planq.descriptor", "planq.tensors", "planq.tensor_sha256"))
    text = json.dumps(chaos.tampered(json.loads(metadata[key]))).encode()
    if chaos.random() < 0.2:
        text = chaos.spliced(text)
    metadata[key] = text.decode(errors="replace")
    if key != "planq.tensor_sha256" and chaos.random() < 0.9:  # else its digests refuse it
        (folder / "scaled").write_bytes(scaled)
        header["__metadata__"] = sealed(load(folder / "scaled").tensors, metadata)
    run(folder, {"in.st": pack(header, payload)}, ["dequantize", "in.st", "out.st"])


def other_tensors(tensors: dict[str, Array], chaos: Chaos) -> dict[str, Array]:
    """The tensors of a file, one of which is gone, another one or elsewhere."""
    name = chaos.choice(sorted(tensors))
    values = tensors[name]
    rest = {key: item for key, item in tensors.items() if key != name}
    match chaos.randint(0, 5):
        case 0:
            return rest
        case 1:
            return rest | {name: values[:-1]}
        case 2:
            return rest | {name: np.concatenate([values, values])}
        case 3:
            return rest | {name: values.reshape(-1, 1)}
        case 4:
            return rest | {name: np.zeros(values.shape, np.int32)}
        case _:
            word = chaos.choice((*rest, *STATE_NAMES, chaos.word()))
            return rest | {word.encode("utf-8", "ignore").decode(): values}


STATE_NAMES = ("w.absmax", "w.nested_absmax", "w.quant_map", "w", ".quant_state.bitsandbytes__nf4")


@fuzzing(100)
def test_no_state_is_an_internal_error(folder: Path, states: list[bytes], chaos: Chaos) -> None:
    path = folder / "state"
    path.write_bytes(chaos.choice(states))
    loaded = load(path)
    tensors = loaded.tensors
    key = next(name for name in tensors if name.startswith("w.quant_state"))
    if chaos.random() < 0.7:
        text = json.dumps(chaos.tampered(json.loads(tensors[key].tobytes()))).encode()
        if chaos.random() < 0.2:
            text = chaos.spliced(text)
        tensors[key] = np.frombuffer(text, np.uint8)
    else:
        tensors = other_tensors(tensors, chaos)
    metadata = sealed(tensors, loaded.metadata) if chaos.random() < 0.9 else loaded.metadata
    files = {"in.st": checkpoint(path, tensors, metadata).read_bytes()}
    dtype = chaos.choice(([], ["--dtype", "bfloat16"]))
    run(folder, files, ["dequantize", "in.st", "out.st", *dtype])
    run(folder, files, ["quantize", "in.st", "out.st", "--scheme", "nf4"])


@fuzzing(100)
def test_no_descriptor_is_an_internal_error(folder: Path, chaos: Chaos) -> None:
    text = json.dumps(chaos.tampered(DESC))
    if chaos.random() < 0.2:
        text = chaos.spliced(text.encode()).decode(errors="surrogateescape")
    run(folder, {}, ["explain", "-", "--device", chaos.choice(("host", "sm_90"))], text)
