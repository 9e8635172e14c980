"""GGUF files of any types and values, sound and hostile, in one part and in several."""

from __future__ import annotations

import os
import re
import struct
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

import planq
from checkpoint.gguf_bytes import (
    ARRAY,
    BLOCKS,
    BOOL,
    CODES,
    F32,
    F64,
    I16,
    I32,
    STRING,
    U8,
    U16,
    U32,
    U64,
    Info,
    Of,
    check_header,
    described,
    file,
    pair,
    plain,
    text,
)
from cli.files import load
from planq.checkpoint import read_gguf
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.gguf import restore_gguf
from planq.checkpoint.gguf_header import TYPES, parse_gguf_header
from planq.checkpoint.restore import RestoreJob
from planq.executors import open_device
from support.docs import ROOT, blocks
from support.hostile import Chaos, bounded, fuzzing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# gguf 0.19 has neither the size that ggml's Q8_1 has, nor Q2_0.
UNKNOWN_TO_GGUF = {9, 42}


def finish(writer: gguf.GGUFWriter) -> None:
    """Writes what a writer of the package was given."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def refused(content: bytes) -> str:
    """Why a header is refused; nothing beyond the file is asked for."""

    def read(at: int, count: int) -> bytes:
        assert 0 <= at <= at + count <= len(content)
        return content[at : at + count]

    with bounded(), pytest.raises(ValueError, match="expected") as caught:
        parse_gguf_header(read, len(content))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
    return str(caught.value)


def test_every_type_of_the_package_is_listed_as_it_does(tmp_path: Path) -> None:
    path = tmp_path / "types.gguf"
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    kinds = [kind for kind in gguf.GGMLQuantizationType if kind not in UNKNOWN_TO_GGUF]
    for number, kind in enumerate(kinds):
        elements, nbytes = gguf.GGML_QUANT_SIZES[kind]
        shape = (2, number % 3 + 1, nbytes * (256 // elements))
        blocks = random.integers(0, 256, shape, np.uint8)
        writer.add_tensor(f"{kind.name}.weight", blocks, raw_dtype=kind)
    finish(writer)
    wanted = gguf.GGUFReader(path)
    with read_gguf(path) as found:
        for ours, theirs in zip(found.entries, wanted.tensors, strict=True):
            assert (ours.name, ours.dtype) == (theirs.name, theirs.tensor_type.name)
            assert ours.shape == tuple(reversed(theirs.shape.tolist()))
            assert (ours.offset, ours.nbytes) == (theirs.data_offset, theirs.n_bytes)
            assert found.tensor(ours).tobytes() == theirs.data.tobytes()
            assert found.home(ours.name) == path
        assert found.size == path.stat().st_size


def test_every_type_of_ggml_is_listed(tmp_path: Path) -> None:
    """Those too that the package does not know, with axes from none to four."""
    infos, payload = [], b""
    for number, (kind, (elements, nbytes)) in enumerate(sorted(BLOCKS.items())):
        extents = (2 * elements, 3, 1, 2)[: number % 4 + 1] if number else ()
        size = nbytes * (12 if len(extents) == 4 else 6 if len(extents) > 1 else 2)
        infos.append(described(Info(f"t{kind}".encode(), extents, kind, len(payload))))
        payload += os.urandom(size if extents else nbytes)
        payload += bytes(-len(payload) % 32)
    path = tmp_path / "all.gguf"
    path.write_bytes(file((), infos, payload))
    header = parse_gguf_header(lambda at, n: path.read_bytes()[at : at + n], path.stat().st_size)
    check_header(header, path.read_bytes())
    assert [place.name for place in header.places] == [f"t{kind}" for kind in sorted(BLOCKS)]
    assert {kind: block[1:] for kind, block in TYPES.items()} == BLOCKS
    assert header.places[0].shape == ()
    known = {kind.value: kind.name for kind in gguf.GGMLQuantizationType}
    assert {kind: block.name for kind, block in TYPES.items()} == known | {42: "Q2_0"}


def test_values_of_every_type_are_those_that_were_written(tmp_path: Path) -> None:
    path = tmp_path / "values.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    given: dict[str, Any] = {
        "u8": (writer.add_uint8, 255),
        "i8": (writer.add_int8, -128),
        "u16": (writer.add_uint16, 65535),
        "i16": (writer.add_int16, -32768),
        "u32": (writer.add_uint32, 2**32 - 1),
        "i32": (writer.add_int32, -(2**31)),
        "u64": (writer.add_uint64, 2**64 - 1),
        "i64": (writer.add_int64, -(2**63)),
        "f32": (writer.add_float32, float(np.float32(0.1))),
        "f64": (writer.add_float64, 0.1),
        "bool": (writer.add_bool, True),
        "text": (writer.add_string, "▁é\n"),
        "numbers": (writer.add_array, [1, -2, 3]),
        "floats": (writer.add_array, [0.5, float("inf"), -0.0]),
        "truths": (writer.add_array, [True, False]),
        "tokens": (writer.add_array, ["a", "<0x0A>", "▁"]),
    }
    for key, (add, each) in given.items():
        add(key, each)
    finish(writer)
    fields = gguf.GGUFReader(path).fields
    with read_gguf(path) as found:
        assert found.entries == ()
        for key, (_, each) in given.items():
            assert plain(found.metadata[key]) == each == fields[key].contents(), key
            assert type(plain(found.metadata[key])) is type(each), key
        assert found.metadata["numbers"].dtype == np.int32
        assert found.metadata["general.architecture"] == "llama"


def test_arrays_in_arrays_and_empty_ones_keep_their_form() -> None:
    """Which the package flattens, or cannot write."""
    inner = Of(ARRAY, [Of(U8, [1, 2]), Of(STRING, [b"x", b""]), Of(ARRAY, []), Of(F64, [0.1])])
    content = file(
        [
            pair(b"nested", ARRAY, Of(ARRAY, [inner, Of(BOOL, [True, False])])),
            pair(b"empty", ARRAY, Of(F32, [])),
            pair(b"", STRING, b""),
        ],
        start=b"GGUF\2\0\0\0",
    )
    header = parse_gguf_header(lambda at, n: content[at : at + n], len(content))
    check_header(header, content)
    assert header.version == 2
    assert [plain(each) for each in header.metadata.values()] == [
        [[[1, 2], ["x", ""], [], [0.1]], [True, False]],
        [],
        "",
    ]


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_any_power_of_two_aligns(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(alignment)
    values = [np.arange(n, dtype=np.float32) for n in (3, 5)]
    for number, each in enumerate(values):
        writer.add_tensor(f"w{number}", each)
    finish(writer)
    with read_gguf(path) as found:
        assert found.files[0].alignment == alignment
        read = [found.tensor(entry).tobytes() for entry in found.entries]
        assert read == [each.tobytes() for each in values]


ONE = Info(b"w", (32, 2), 8, 0)
TWO = Info(b"v", (4,), 0, 96)
PAYLOAD = bytes(range(112))
PAIRS = [pair(b"k", U16, 7), pair(b"list", ARRAY, Of(STRING, [b"ab", b"c"]))]
HUGE = 2**64 - 1


def small(*infos: Info, payload: bytes = PAYLOAD, **parts: Any) -> bytes:
    """A file of some tensors."""
    pairs = parts.pop("pairs", PAIRS)
    return file(pairs, [described(info) for info in infos], payload, **parts)


def raw(key: bytes, kind: int, content: bytes) -> list[bytes]:
    """One pair whose value is these bytes."""
    return [text(key) + struct.pack("<I", kind) + content]


def array(kind: int, count: int) -> bytes:
    """The start of an array."""
    return struct.pack("<IQ", kind, count)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "magic": (small(start=b"GGML\3\0\0\0"), "magic: expected b'GGUF', got b'GGML'"),
    "version": (small(start=b"GGUF\1\0\0\0"), "version: expected 2 or 3, got 1"),
    "version 0": (small(start=b"GGUF\0\0\0\0"), "version: expected 2 or 3, got 0"),
    "swapped": (small(start=b"GGUF\0\0\0\3"), "got a big-endian one of version 3"),
    "pairs": (small(ONE, counts=(1, HUGE)), f"count of metadata: expected at most .* got {HUGE}"),
    "tensors": (small(ONE, counts=(2**40, 2)), "count of tensors: expected at most"),
    "a pair more": (
        small(counts=(0, 3), pairs=PAIRS),
        "metadata '': expected a type of values from 0 to 12",
    ),
    "key": (file(raw(b"", U8, b""), counts=(0, 1))[:24] + b"\xff" * 30, "name of at most 65535"),
    "key is no text": (
        file([pair(b"\xff", U8, 1)]),
        r"metadata 0 of 1: expected UTF-8, got b'\\xff",
    ),
    "key twice": (small(pairs=PAIRS * 2), "metadata 'k': expected one value, got a second one"),
    "type of a value": (small(pairs=raw(b"k", 13, b"")), "metadata 'k': expected a type .* got 13"),
    "truth": (small(pairs=raw(b"k", BOOL, b"\2")), "'k': expected 0 or 1 for a truth value, got 2"),
    "truths": (
        small(pairs=raw(b"k", ARRAY, array(BOOL, 2) + b"\0\xff")),
        "'k': expected 0 or 1 for a truth value, got 255",
    ),
    "text": (small(pairs=[pair(b"k", STRING, b"a\xc3")]), r"'k': expected UTF-8, got b'a\\xc3'"),
    "long text": (
        small(pairs=raw(b"k", STRING, struct.pack("<Q", HUGE))),
        f"'k': expected at most .* bytes up to the end of the file, got {HUGE}",
    ),
    "array": (small(pairs=raw(b"k", ARRAY, array(U64, 2**62))), "'k': expected at most"),
    "array of texts": (small(pairs=raw(b"k", ARRAY, array(STRING, HUGE))), "'k': expected at most"),
    "array of arrays": (small(pairs=raw(b"k", ARRAY, array(ARRAY, HUGE))), "'k': expected at most"),
    "array of what": (small(pairs=raw(b"k", ARRAY, array(99, 0))), "expected a type .* got 99"),
    "deep": (
        small(pairs=raw(b"k", ARRAY, array(ARRAY, 1) * 5000)),
        "'k': expected arrays in at most 8 arrays",
    ),
    "alignment 0": (
        small(pairs=[pair(b"general.alignment", U32, 0)]),
        "'general.alignment': expected a power of two in 32 unsigned bits, got 0",
    ),
    "alignment 48": (small(pairs=[pair(b"general.alignment", U32, 48)]), "power of two .* got 48"),
    "alignment, wide": (small(pairs=[pair(b"general.alignment", U64, 32)]), "32 unsigned bits"),
    "alignment, text": (small(pairs=[pair(b"general.alignment", STRING, b"32")]), "got a str"),
    "name": (small(Info(b"\xc3(", (4,), 0, 0)), "tensor 0 of 1: expected UTF-8"),
    "long name": (
        small(Info(b"n" * 70000, (4,), 0, 0)),
        "a name of at most 65535 bytes, got 70000",
    ),
    "name twice": (small(ONE, ONE), "tensor 'w': expected one tensor of this name"),
    "axes": (small(ONE._replace(extents=(1,) * 5)), "tensor 'w': expected at most 4 axes, got 5"),
    "type": (
        small(ONE._replace(kind=4)),
        "tensor 'w': expected a type that ggml has, got number 4",
    ),
    "type beyond": (small(ONE._replace(kind=2**31)), "'w': expected a type .* number 2147483648"),
    "row": (
        small(ONE._replace(extents=(48, 2))),
        "'w': expected rows of a multiple of 32 elements in Q8_0, got 48",
    ),
    "no row": (small(ONE._replace(extents=())), "'w': expected rows of a multiple of 32"),
    "size": (small(ONE._replace(extents=(2**40, 2**40, 0))), "'w': expected a size below 2"),
    "offset": (small(TWO._replace(offset=4)), "'v': expected an offset .* multiple of 32, got 4"),
    "overlap": (
        small(ONE, TWO._replace(offset=64)),
        "'v': expected an offset from 68 on, where 'w' ends, got 64",
    ),
    "the same bytes": (small(ONE, TWO._replace(offset=0)), "expected an offset from .* got 0"),
    "beyond": (
        small(ONE, TWO._replace(offset=128)),
        "tensor 'v': expected bytes 288 to 304 of the file, which has 272",
    ),
    "far beyond": (small(ONE._replace(offset=2**64 - 32)), "tensor 'w': expected bytes"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    content, words = HOSTILE[kind]
    assert re.search(words, refused(content))
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=words) as caught:
        read_gguf(path)
    assert str(caught.value).startswith(f"{path}: not a valid GGUF file: ")


def test_what_the_hostile_files_are_made_of_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "sound.gguf"
    path.write_bytes(small(ONE, TWO))
    with read_gguf(path) as found:
        assert [found.tensor(entry).tobytes() for entry in found.entries] == [
            PAYLOAD[:68],
            PAYLOAD[96:],
        ]
        assert found.metadata == {"k": 7, "list": ["ab", "c"]}


def test_a_file_is_refused_wherever_it_ends() -> None:
    content = small(ONE, TWO)
    for end in range(len(content)):
        assert "expected" in refused(content[:end]), end


def test_empty_tensors_lie_anywhere() -> None:
    empty = Info(b"e", (0, 5), 0, 32)
    content = small(ONE, empty, TWO)
    check_header(parse_gguf_header(lambda at, n: content[at : at + n], len(content)), content)
    assert "'e': expected bytes" in refused(small(empty._replace(offset=1 << 20)))


def test_no_size_of_a_file_takes_memory(tmp_path: Path) -> None:
    """A file of 32 GB, nearly all of it a hole, which claims to be one array."""
    path = tmp_path / "hole.gguf"
    path.write_bytes(file(raw(b"k", ARRAY, array(U8, 2**34))))
    os.truncate(path, 2**35)
    with bounded(), pytest.raises(CheckpointError, match="a header of at most 100000000 bytes"):
        read_gguf(path)


def test_a_file_that_shrinks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(small(ONE, TWO))
    with read_gguf(path) as found:
        found.check_unchanged()
        os.truncate(path, 200)
        with pytest.raises(CheckpointError, match="changed while it was read"):
            found.tensor(found.by_name["v"])
        with pytest.raises(CheckpointError, match="changed while it was read"):
            found.check_unchanged()
    with pytest.raises(CheckpointError, match="its files are closed"):
        found.tensor(found.by_name["w"])
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_gguf(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_gguf(tmp_path / "none.gguf")


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(small(ONE, TWO))
    names: dict[str, Any] = {}
    for _, code in blocks(ROOT / "docs" / "checkpoints.md", gpu=False):
        exec(code, names)
    listed, metadata, first = names["tensors_of"](path)
    assert listed == {"w": ("Q8_0", (2, 32), 68), "v": ("F32", (4,), 16)}
    assert metadata == {"k": 7, "list": ["ab", "c"]}
    assert first.tobytes() == PAYLOAD[:68]


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """A model of five tensors in three files, which the package wrote."""
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    writer.add_array("list", ["a", "b"])
    for number in range(5):
        writer.add_tensor(f"w{number}", np.full((2, 8), number, np.float32))
    finish(writer)
    return sorted(tmp_path.iterdir())


def test_a_split_model_is_one(parts: list[Path]) -> None:
    assert [path.name for path in parts] == [f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    with read_gguf(parts[0]) as found:
        assert [each.path for each in found.files] == parts
        assert [entry.name for entry in found.entries] == [f"w{n}" for n in range(5)]
        assert found.metadata["list"] == ["a", "b"]
        assert found.size == sum(path.stat().st_size for path in parts)
        for number, (name, entry) in enumerate(found.by_name.items()):
            assert found.home(name) == parts[number // 2]
            assert found.tensor(entry).view(np.float32).tolist() == [number] * 16


def split(number: int, count: int, tensors: int) -> list[bytes]:
    """What a part says of itself."""
    keys = (("split.no", U16, number), ("split.count", U16, count))
    return [
        *(pair(key.encode(), kind, given) for key, kind, given in keys),
        pair(b"split.tensors.count", I32, tensors),
    ]


def test_one_part_of_one_has_any_name(tmp_path: Path) -> None:
    path = tmp_path / "whole.gguf"
    path.write_bytes(small(ONE, pairs=split(0, 1, 1)))
    with read_gguf(path) as found:
        assert len(found.files) == 1


def other(number: int = 1, count: int = 3, tensors: int = 5) -> bytes:
    """A part that says this of itself."""
    return small(ONE, pairs=split(number, count, tensors))


WRONG_PARTS: dict[str, tuple[Callable[[list[Path]], object], str]] = {
    "missing": (lambda p: p[1].unlink(), "00002-of-00003.gguf: part 2 of 3 is not there"),
    "order": (lambda p: p[1].write_bytes(other(2)), "2-of-.*'split.no': expected 1, got 2"),
    "count": (lambda p: p[2].write_bytes(other(2, 4)), "3-of-.*'split.count': expected 3, got 4"),
    "sum": (
        lambda p: p[1].write_bytes(other(1, 3, 6)),
        "2-of-.*'split.tensors.count': expected 5, got 6",
    ),
    "no part": (lambda p: p[2].write_bytes(small(ONE)), "'split.no': expected 2, got nothing"),
    "tensors": (lambda p: p[2].write_bytes(small(pairs=split(2, 3, 5))), "got 4 in 3"),
    "twice": (
        lambda p: p[2].write_bytes(small(ONE._replace(name=b"w1"), pairs=split(2, 3, 5))),
        "tensor 'w1': in m-00001-of-00003.gguf and m-00003-of-00003.gguf",
    ),
    "damaged": (lambda p: os.truncate(p[1], 90), "00002-of-00003.gguf: not a valid GGUF file"),
    "words": (
        lambda p: p[0].write_bytes(small(pairs=[pair(b"split.count", STRING, b"3")])),
        "'split.count': expected a number from 0 on, got a str",
    ),
    "negative": (
        lambda p: p[0].write_bytes(small(pairs=[pair(b"split.count", I16, -3)])),
        "'split.count': expected a number from 0 on, got -3",
    ),
    "a truth": (
        lambda p: p[0].write_bytes(small(pairs=[pair(b"split.count", BOOL, True)])),
        "'split.count': expected a number from 0 on, got a bool",
    ),
    "many": (
        lambda p: p[0].write_bytes(small(pairs=split(0, 65535, 5))),
        "the first of 65535 files: expected a name in -00001-of-65535.gguf",
    ),
}


@pytest.mark.parametrize("kind", WRONG_PARTS)
def test_parts_that_do_not_belong_together_are_named(parts: list[Path], kind: str) -> None:
    spoil, words = WRONG_PARTS[kind]
    spoil(parts)
    with pytest.raises(CheckpointError, match=words):
        read_gguf(parts[0])


def test_a_later_part_is_refused(parts: list[Path]) -> None:
    with pytest.raises(CheckpointError, match=r"'split\.no': expected 0, got 1"):
        read_gguf(parts[1])


def test_every_type_of_tensors_is_restored_or_copied() -> None:
    """What has blocks has a dequantizer; numbers are as they are."""
    restored = {kind.value.upper() for kind in planq.GgufType}
    assert restored == {block.name for block in TYPES.values() if block.elements > 1}


def test_no_tensor_takes_the_name_of_the_metadata(tmp_path: Path) -> None:
    """Which safetensors has in the place of tensors."""
    job = RestoreJob(tmp_path / "m.gguf", tmp_path / "out.safetensors")
    job.source.write_bytes(small(ONE._replace(name=b"__metadata__")))
    with pytest.raises(CheckpointError, match="no tensors that are named '__metadata__'"):
        restore_gguf(job, open_device("host"), lambda *_: None)
    assert not job.target.exists()


def test_a_split_model_is_restored(tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q8_0
    values = np.random.default_rng(0).standard_normal((3, 2, 64)).astype(np.float32)
    blocks = gguf.quants.quantize(values, kind)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=1)
    for number in range(3):
        writer.add_tensor(f"w{number}", blocks[number], raw_dtype=kind)
    finish(writer)
    job = RestoreJob(tmp_path / "m-00001-of-00003.gguf", tmp_path / "out.safetensors")
    report = restore_gguf(job, open_device("host"), lambda *_: None)
    assert report.source_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.gguf"))
    restored = load(job.target).tensors
    for number in range(3):
        wanted = gguf.quants.dequantize(blocks[number], kind)
        assert restored[f"w{number}"].tobytes() == wanted.tobytes()


def sound(chaos: Chaos) -> bytes:
    """A file of values and tensors of any types."""
    pairs = [pair(f"k{n}".encode(), *drawn(chaos, 3)) for n in range(chaos.randint(0, 4))]
    infos, at = [], 0
    for number in range(chaos.randint(0, 4)):
        kind = chaos.choice(sorted(BLOCKS))
        elements, nbytes = BLOCKS[kind]
        rows = [chaos.choice((0, 1, 2, 3)) for _ in range(chaos.randint(0, 3))]
        infos.append(described(Info(f"t{number}".encode(), (2 * elements, *rows), kind, at)))
        size = 2 * nbytes * int(np.prod(rows))
        at += size + -size % 32
    return file(pairs, infos, chaos.randbytes(at))


def drawn(chaos: Chaos, depth: int) -> tuple[int, Any]:
    """A type and a value of it."""
    kind = chaos.choice((*CODES, STRING, *([ARRAY] * 3 if depth else ())))
    return kind, of_type(chaos, kind, depth)


def of_type(chaos: Chaos, kind: int, depth: int) -> Any:
    """A value of a type."""
    if kind == STRING:
        return chaos.text("aé▁\n\0", 5).encode()
    if kind == ARRAY:
        inner = chaos.choice((*CODES, STRING, *([ARRAY] if depth > 1 else ())))
        items = [of_type(chaos, inner, depth - 1) for _ in range(chaos.randint(0, 3))]
        return Of(inner, items)
    if kind in (F32, F64):
        return chaos.choice((0.0, -0.0, 1.5, float("inf"), float("nan")))
    return chaos.randint(0, 1 if kind == BOOL else 127)


def damaged(content: bytes, chaos: Chaos) -> bytes:
    """The file with bits turned, numbers replaced, an end cut off, or parts moved."""
    changed = bytearray(content)
    match chaos.randint(0, 4):
        case 0:
            return content[: chaos.randint(0, len(content))]
        case 1:
            return chaos.spliced(content)
        case 2:
            number = chaos.choice((0, 1, 31, 2**31, 2**32, 2**61, 2**63 - 1, 2**63, 2**64 - 1))
            at = chaos.randint(0, len(content) - 8)
            changed[at : at + 8] = struct.pack("<Q", number)
        case _:
            for _ in range(chaos.choice((1, 1, 2, 8))):
                changed[chaos.randint(0, len(content) - 1)] ^= 1 << chaos.randint(0, 7)
    return bytes(changed)


@fuzzing(400)
def test_no_file_is_an_internal_error(tmp_path: Path, chaos: Chaos) -> None:
    """It is read as it stands there, or refused in a sentence."""
    content = sound(chaos)
    check_header(parse_gguf_header(lambda at, n: content[at : at + n], len(content)), content)
    content = damaged(content, chaos)
    path = tmp_path / "fuzz.gguf"
    path.write_bytes(content)
    said = "-"
    try:
        with bounded(), read_gguf(path) as found:
            read = {entry: found.tensor(entry).tobytes() for entry in found.entries}
    except CheckpointError as error:
        said = str(error)
    else:
        check_header(parse_gguf_header(lambda at, n: content[at : at + n], len(content)), content)
        for entry, taken in read.items():
            assert taken == content[entry.offset : entry.offset + entry.nbytes]
    assert said.isprintable()
    assert len(said) < 1000
