"""Signatures of reports and stored plans: what is signed, who signed it, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import planq
from cli.commands import refuse
from planq.cli import main
from planq.signatures import SignatureError, Signer, Verifier

Capture = pytest.CaptureFixture[str]
REPORT = {
    "format": 1,
    "evidence_sha256": "0" * 64,
    "evidence": {"kernels": [{"device": "host", "sku": "fill/é", "body": "rows"}], "dropped": []},
    "seconds": 61.5,
    "written": "2026-11-28T09:00:00+00:00",
}
# What every key's file has before its bytes: the structures of RFC 8410, written out.
PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
SUBJECT = bytes.fromhex("302a300506032b6570032100")
# RFC 8032, section 7.1, test 1: a secret and its public key.
SECRET = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
OTHER = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")


def pem(kind: str, der: bytes) -> str:
    body = base64.encodebytes(der).decode()
    return f"-----BEGIN {kind} KEY-----\n{body}-----END {kind} KEY-----\n"


def canonical(content: Any) -> bytes:
    """As the documents say it: sorted names, no spaces, UTF-8."""
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode("utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder at work, with a report and the keys of RFC 8032."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key.pem").write_text(pem("PRIVATE", PKCS8 + SECRET))
    (tmp_path / "public.pem").write_text(pem("PUBLIC", SUBJECT + PUBLIC))
    (tmp_path / "other.pem").write_text(pem("PUBLIC", SUBJECT + OTHER))
    (tmp_path / "report.json").write_text(json.dumps(REPORT, indent=1))
    return tmp_path


def sign(folder: Path, capsys: Capture) -> str:
    """Signs the report and returns what was printed."""
    assert main(["audit", "--sign", "key.pem", "report.json"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return told.out


def test_a_signature_is_that_of_the_canonical_content(folder: Path, capsys: Capture) -> None:
    """An implementation beside planq's makes the same bytes: ed25519 draws no random numbers."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    owner = hashlib.sha256(SUBJECT + PUBLIC).hexdigest()
    assert sign(folder, capsys) == f"report.json.sig: signed by {owner}\n"
    expected = Ed25519PrivateKey.from_private_bytes(SECRET).sign(canonical(REPORT))
    assert (folder / "report.json.sig").read_bytes() == expected
    before = sorted(path.name for path in folder.iterdir())
    assert main(["audit", "--verify", "public.pem", "report.json"]) == 0
    assert capsys.readouterr().out == f"report.json: signed by {owner}\n"
    assert sorted(path.name for path in folder.iterdir()) == before


def test_openssl_makes_keys_and_agrees(folder: Path, capsys: Capture) -> None:
    """With the commands that the documents show."""
    for command in (
        "openssl genpkey -algorithm ed25519 -out key.pem",
        "openssl pkey -in key.pem -pubout -out public.pem",
    ):
        subprocess.run(command.split(), check=True, capture_output=True)
    owner = sign(folder, capsys).split()[-1]
    (folder / "content").write_bytes(canonical(REPORT))
    command = "openssl pkeyutl -verify -pubin -inkey public.pem -rawin -in content"
    verified = [*command.split(), "-sigfile", "report.json.sig"]
    subprocess.run(verified, check=True, capture_output=True)
    command = "openssl pkey -pubin -in public.pem -outform DER"
    der = subprocess.run(command.split(), check=True, capture_output=True).stdout
    assert owner == hashlib.sha256(der).hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(REPORT),
        json.dumps(REPORT, indent=8, ensure_ascii=False),
        json.dumps(dict(reversed(REPORT.items()))),
        json.dumps(REPORT).replace("61.5", "61.50").replace("\\u00e9", "é"),
        json.dumps(REPORT).replace("61.5", "6.15e1"),
        json.dumps(REPORT).replace("fill", "f\\u0069ll"),
    ],
)
def test_the_same_content_verifies_however_it_is_written(
    text: str, folder: Path, capsys: Capture
) -> None:
    """Spaces, line ends, the order of names, escapes and spellings of one double say nothing."""
    sign(folder, capsys)
    (folder / "report.json").write_bytes(text.replace("\n", "\r\n").encode())
    assert main(["audit", "--verify", "public.pem", "report.json"]) == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"host"', '"cuda:0"'),
        ("61.5", "61.500000000000007"),
        ('"format": 1', '"format": 1.0'),
        ('"format": 1', '"format": true'),
        ("é", "e\u0301"),
        ('"dropped"', '"Dropped"'),
        (', "dropped": []', ""),
        ('"format": 1', '"format": 1, "note": null'),
        ("[]", "[[]]"),
        ('"0000', '"\\u00000000'),
    ],
)
def test_any_other_content_does_not(old: str, new: str, folder: Path, capsys: Capture) -> None:
    """Nor does it under an equal value of another type: a reader may tell 1 from 1.0."""
    sign(folder, capsys)
    text = json.dumps(REPORT, ensure_ascii=False)
    assert old in text
    (folder / "report.json").write_text(text.replace(old, new, 1), encoding="utf-8")
    assert main(["audit", "--verify", "public.pem", "report.json"]) == 1
    told = capsys.readouterr()
    assert told.out == "report.json: not signed by the owner of public.pem\n"


def test_another_key_or_a_damaged_signature_does_not_verify(folder: Path, capsys: Capture) -> None:
    """Every bit of it counts, and its length."""
    sign(folder, capsys)
    signature = (folder / "report.json.sig").read_bytes()
    assert main(["audit", "--verify", "other.pem", "report.json"]) == 1
    verifier = Verifier((folder / "public.pem").read_bytes())
    text = (folder / "report.json").read_bytes()
    assert verifier.is_signed(text, signature)
    for bit in range(8 * len(signature)):
        damaged = bytearray(signature)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not verifier.is_signed(text, bytes(damaged))
    for other in (b"", signature[:-1], signature + b"\n", signature * 2):
        assert not verifier.is_signed(text, other)


AMBIGUOUS = {
    "a name twice": (b'{"format": 1, "format": 1}', "the name 'format' appears twice"),
    "a name twice, escaped": (b'{"a": 1, "\\u0061": 1}', "the name 'a' appears twice"),
    "twice, deep": (b'{"a": [{"b": 1, "b": 2}]}', "the name 'b' appears twice"),
    "NaN": (b'{"a": NaN}', "NaN is no number"),
    "Infinity": (b'{"a": -Infinity}', "-Infinity is no number"),
    "a double too large": (b'{"a": 1e999}', "1e999 is beyond the numbers of double"),
    "half a pair": (b'{"a": "\\ud800"}', "surrogates not allowed"),
    "no UTF-8": (b'{"a": "\xff"}', "can't decode byte 0xff"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "can't decode byte 0xff"),
    "a mark": (b'\xef\xbb\xbf{"a": 1}', "Unexpected UTF-8 BOM"),
    "more than one": (b'{"a": 1} {"a": 1}', "Extra data"),
    "no JSON": (b"", "Expecting value"),
    "too deep": (b"[" * 100_000, "nested too deep"),
}


@pytest.mark.parametrize(("text", "said"), AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_text_of_two_meanings_is_neither_signed_nor_verified(
    text: bytes, said: str, folder: Path
) -> None:
    signer = Signer((folder / "key.pem").read_bytes())
    verifier = Verifier((folder / "public.pem").read_bytes())
    with pytest.raises(SignatureError, match="expected JSON with one meaning: ") as error:
        signer.sign(text)
    assert said in str(error.value)
    with pytest.raises(SignatureError, match="expected JSON with one meaning: "):
        verifier.is_signed(text, bytes(64))


def test_a_name_twice_is_refused_where_reports_and_plans_are_read(
    folder: Path, capsys: Capture
) -> None:
    """By every command, signature or not: which of the two values counts, nobody can say."""
    (folder / "report.json").write_text('{"format": 2, ' + json.dumps(REPORT)[1:])
    twice = "the name 'format' appears twice"
    assert twice in refuse(capsys, "audit", "--sign", "key.pem", "report.json")
    assert twice in refuse(capsys, "audit", "--compare", "report.json", "report.json")
    plan = planq.Plan.select(planq.HOST, planq.PackInt4Descriptor(shape=(2, 2))).to_json()
    (folder / "plan.json").write_text('{"sku": "fill", ' + plan[1:])
    twice = "the name 'sku' appears twice"
    assert twice in refuse(capsys, "plan", "verify", "plan.json")
    assert twice in refuse(capsys, "plan", "diff", "plan.json", "plan.json")
    assert twice in refuse(capsys, "plan", "sign", "key.pem", "plan.json")
    assert twice in refuse(capsys, "explain", "plan.json")


def test_what_is_no_key_is_refused(folder: Path, capsys: Capture) -> None:
    """And no signature is made."""
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    def private(key: Any, way: forms.KeySerializationEncryption) -> bytes:
        written: bytes = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, way)
        return written

    mine = ed25519.Ed25519PrivateKey.from_private_bytes(SECRET)
    curve = ec.generate_private_key(ec.SECP256R1())
    public = forms.PublicFormat.SubjectPublicKeyInfo
    plain = forms.NoEncryption()
    keys = {
        "locked.pem": private(mine, forms.BestAvailableEncryption(b"word")),
        "curve.pem": private(curve, plain),
        "curve-public.pem": curve.public_key().public_bytes(forms.Encoding.PEM, public),
        "none.pem": b"none",
        "broken.pem": private(mine, plain).replace(b"MC4C", b"MC4D"),
    }
    for name, content in keys.items():
        (folder / name).write_bytes(content)
    signing = "expected a private ed25519 key in PEM, got "
    for name, got in (
        ("locked.pem", "an encrypted key; 'openssl pkey -in KEY' decrypts it"),
        ("curve.pem", "another kind of key"),
        ("none.pem", "none"),
        ("broken.pem", "none"),
        ("public.pem", "none"),
    ):
        said = refuse(capsys, "audit", "--sign", name, "report.json")
        assert said == f"planq: error: {name}: {signing}{got}\n"
    assert not (folder / "report.json.sig").exists()
    sign(folder, capsys)
    verifying = "expected a public ed25519 key in PEM, got "
    for name, got in (
        ("curve-public.pem", "another kind of key"),
        ("none.pem", "none"),
        ("key.pem", "none"),
    ):
        said = refuse(capsys, "audit", "--verify", name, "report.json")
        assert said == f"planq: error: {name}: {verifying}{got}\n"


def test_what_is_not_there_is_no_answer(folder: Path, capsys: Capture) -> None:
    """A missing signature, key or report, and a file that is none."""
    said = refuse(capsys, "audit", "--verify", "public.pem", "report.json")
    assert said == "planq: error: report.json.sig: No such file or directory\n"
    said = refuse(capsys, "audit", "--sign", "lost.pem", "report.json")
    assert said == "planq: error: lost.pem: No such file or directory\n"
    said = refuse(capsys, "audit", "--sign", "key.pem", "lost.json")
    assert said == "planq: error: lost.json: No such file or directory\n"
    said = refuse(capsys, "audit", "--sign", "key.pem", "key.pem")
    assert "expected a report of planq audit, got no JSON" in said
    assert "not a stored plan" in refuse(capsys, "plan", "sign", "key.pem", "report.json")


def test_a_signed_plan_is_verified_with_its_signature(folder: Path, capsys: Capture) -> None:
    """A plan that would hold does not if the owner of the key has not signed what it says."""
    desc = planq.PackInt4Descriptor(shape=(2, 2))
    plan = folder / "plan.json"
    plan.write_text(json.dumps(planq.Plan.select(planq.HOST, desc).to_dict(), indent=2))
    assert main(["plan", "sign", "key.pem", "plan.json"]) == 0
    owner = hashlib.sha256(SUBJECT + PUBLIC).hexdigest()
    assert capsys.readouterr().out == f"plan.json.sig: signed by {owner}\n"
    command = ["plan", "verify", "plan.json", "--signed-by"]
    assert main([*command, "public.pem"]) == 0
    assert main([*command, "other.pem"]) == 1
    assert capsys.readouterr().out.endswith("plan.json: not signed by the owner of other.pem\n")
    other = planq.PackInt4Descriptor(shape=(2, 4))
    plan.write_text(planq.Plan.select(planq.HOST, other).to_json())
    assert main(["plan", "verify", "plan.json"]) == 0
    assert main([*command, "public.pem", "--json"]) == 1
    said = capsys.readouterr().out
    (verdict,) = json.loads(said[said.index("{") :])["plans"]
    assert (verdict["holds"], verdict["now"]) == (False, None)
    assert verdict["reason"] == "not signed by the owner of public.pem"


def test_without_the_package_the_extra_is_named(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a line; nothing else needs it, and `import planq` does not load it."""
    sign(folder, capsys)
    program = "import sys, planq; sys.exit('cryptography' in sys.modules)"
    subprocess.run([sys.executable, "-P", "-c", program], check=True)
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    missing = "signatures need the package 'cryptography': pip install 'planq[sign]'"
    for option, key in (("--sign", "key.pem"), ("--verify", "public.pem")):
        said = refuse(capsys, "audit", option, key, "report.json")
        assert said == f"planq: error: {missing}\n"
