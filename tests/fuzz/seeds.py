"""Writes the first inputs of each corpus: sound text and files, as planq and others write them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import planq
from api.test_fuzz import DESCRIPTORS, NESTED, PREFERENCE
from checkpoint import gguf_bytes as made
from checkpoint.test_peer_refusals import MAKE
from cli.files import checkpoint, weight
from planq.checkpoint.shards import CONFIG, INDEX
from planq.cli import main

CORPUS = Path(__file__).with_name("corpus")
KERNEL = {"device": "host", "sku": "fill/host/f32", "body": "rows", "claims": {}}
REPORT = {
    "format": 1,
    "evidence_sha256": "0" * 64,
    "evidence": {"kernels": [KERNEL], "dropped": [], "tensor_cores": []},
    "machine": {"devices": {}},
    "seconds": 1.5,
}
EVERY_KIND = {
    "op": "every_kind",
    "shape": [{"dim": "m", "max": 16}, 8],
    "other": [4, 2],
    "shapes": [[1, 2], [3]],
    "integers": [1, -2],
    "modes": ["symmetric", "asymmetric"],
    "input_dtype": "float32",
    "scope": {"kind": "group", "size": 4, "axis": -1},
    "mode": "symmetric",
    "optional_enumeration": "dark",
    "number": 1.25,
    "optional_number": None,
    "flag": False,
}
# What readers of JSON disagree on.
EDGES = {
    "twice": b'{"a": 1, "\\u0061": 2}',
    "half_a_pair": b'["\\ud834\\udd1e", "\\udd1e"]',
    "zeros": b"[-0, -0.0, 0e5, 1E-400]",
    "beyond_double": b"[1e308, 1e309]",
    "deep": b"[" * 70 + b"]" * 70,
    "no_utf8": b'"\xed\xa0\x80"',
    "constants": b"[NaN]",
}
VALUES = {"a": [1, -2.5e3, 'é\n"', True, None, {"b": {}}], "n": 10**30, "x": [1e-7, 1e22, -0.0]}


def text(values: Any) -> bytes:
    return json.dumps(values).encode()


def parts(content: bytes) -> tuple[bytes, bytes]:
    """The header and the payload of a safetensors file."""
    end = 8 + int.from_bytes(content[:8], "little")
    return content[8:end], content[end:]


def quantized(folder: Path, *options: str) -> bytes:
    """What a command makes of a small file, as the target `restore` takes it."""
    checkpoint(folder / "in.st", {"w": weight(2, 8), "b": weight(1, 4)[0]})
    out = folder / "out.st"
    assert main(["quantize", str(folder / "in.st"), str(out), "--force", *options]) == 0
    return b"\0".join(parts(out.read_bytes()))


def folder_of(kind: str, folder: Path) -> bytes:
    """A model of others, as the target `layers` takes it."""
    saved = MAKE[kind]().save(folder / kind)
    files = [saved / CONFIG, saved / INDEX]
    texts = [path.read_bytes() if path.exists() else b"" for path in files]
    return b"\0".join([*texts, *parts((saved / "model.safetensors").read_bytes())])


def gguf_files() -> dict[str, bytes]:
    """GGUF files with a value and a tensor of every type, and without any."""
    numbers = [made.pair(bytes([97 + kind]), kind, 1) for kind in made.CODES]
    nested = made.Of(made.ARRAY, [made.Of(made.STRING, [b"x", b""]), made.Of(made.F32, [0.5])])
    values = [*numbers, made.pair(b"text", made.STRING, b"ab"), made.pair(b"n", made.ARRAY, nested)]
    infos, payload = [], b""
    for kind, (elements, nbytes) in made.BLOCKS.items():
        infos.append(made.described(made.Info(b"%d" % kind, (elements, 1), kind, len(payload))))
        payload += bytes(nbytes + -nbytes % 32)
    aligned = made.pair(b"general.alignment", made.U32, 64)
    one = made.described(made.Info(b"w", (), 0, 64))
    return {
        "values": made.file(values, start=b"GGUF\2\0\0\0"),
        "types": made.file([], infos, payload),
        "aligned": made.file([aligned], [one], bytes(68), alignment=64),
        "empty": made.file(),
    }


def seeds(folder: Path) -> dict[str, dict[str, bytes]]:
    """Every seed, by target and name."""
    plans = [planq.Plan.select(planq.HOST, desc, PREFERENCE).to_dict() for desc in DESCRIPTORS]
    ordinary = planq.Plan.select(planq.HOST, DESCRIPTORS[-1]).to_dict()
    header = {
        "w": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
        "__metadata__": {"format": "pt"},
    }
    index = {"weight_map": {"w": "model.safetensors"}, "metadata": {"total_size": 8}}
    single = text({"w": {"dtype": "F16", "shape": [2, 2], "data_offsets": [0, 8]}})
    packed = NESTED.to_dict(packed=True)
    key = next(name for name in packed if name.startswith("quant_state"))
    plain = planq.QuantState(
        absmax=np.ones(6, np.float32),
        codebook=planq.codebooks.nf4(),
        block_size=64,
        dtype="float32",
        shape=(6, 64),
        quant_type="nf4",
    ).to_dict(packed=True)
    return {
        "report": {"small": text(REPORT), "spaced": json.dumps(REPORT, indent=1).encode()},
        "descriptor": {desc.operator: text(desc.to_dict()) for desc in DESCRIPTORS},
        "plan": {each["descriptor"]["op"]: text(each) for each in plans},
        "header": {
            "small": text(header) + b"\0" + bytes(8),
            "empty": b"{}\0",
            "scalar": text({"s": {"dtype": "U8", "shape": [], "data_offsets": [0, 1]}}) + b"\0\1",
        },
        "gguf": gguf_files(),
        "layers": {
            **{kind: folder_of(kind, folder) for kind in MAKE},
            "index": b"\0".join([text({"model_type": "x"}), text(index), single]),
        },
        "restore": {
            "int8": quantized(folder, "--scheme", "int8-channel"),
            "uint8": quantized(folder, "--scheme", "uint8-channel"),
            "nf4": quantized(folder, "--scheme", "nf4"),
            "nested": quantized(folder, "--scheme", "nf4", "--nested"),
        },
        "ranges": {"both": text({"w": {"low": [-1, -2.5], "high": [1, 2]}, "v": {"absmax": 3}})},
        "state": {"nested": packed[key].tobytes(), "plain": plain[key].tobytes()},
        "native_json": {"values": text(VALUES), "utf8": json.dumps("é𝄞").encode(), **EDGES},
        "native_stored": {"two": text(plans[0]) + b"\0" + text(ordinary)},
        "native_descriptor": {"every_kind": text(EVERY_KIND)},
        "native_preference": {"some": text(PREFERENCE.to_dict()), "none": b"{}"},
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for target, named in seeds(Path(place)).items():
            (CORPUS / target).mkdir(parents=True, exist_ok=True)
            for name, content in named.items():
                (CORPUS / target / name).write_bytes(content)
