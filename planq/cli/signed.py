"""Signatures beside files, as the command line writes and reads them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from planq.cli.failure import CommandError, describe_os_error
from planq.signatures import SignatureError, Signer, Verifier


def sign_text(key: Path, file: Path, text: bytes) -> str:
    """Signs what a file says, in a file beside it, and returns a line that says so.

    Args:
        key: The file of the private key.
        file: The file.
        text: What was read of it.

    Raises:
        CommandError: The key or the text is not one, or a file cannot be read or written; or the
            package is missing.
    """
    pem = read_bytes(key)
    with _explained(key):
        signer = Signer(pem)
    with _explained(file):
        signature = signer.sign(text)
    beside = _beside(file)
    try:
        beside.write_bytes(signature)
    except OSError as error:
        raise CommandError(describe_os_error(error)) from error
    return f"{beside}: signed by {signer.fingerprint}"


def signer_of(key: Path, file: Path, text: bytes) -> str | None:
    """The fingerprint of a public key if its owner signed what a file says, and else None.

    Args:
        key: The file of the public key.
        file: The file, beside which its signature is.
        text: What was read of it.

    Raises:
        CommandError: The key or the text is not one; there is no signature, or a file cannot be
            read; or the package is missing.
    """
    pem, signature = read_bytes(key), read_bytes(_beside(file))
    with _explained(key):
        verifier = Verifier(pem)
    with _explained(file):
        return verifier.fingerprint if verifier.is_signed(text, signature) else None


def read_bytes(path: Path) -> bytes:
    """What a file holds.

    Raises:
        CommandError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandError(describe_os_error(error)) from error


def _beside(file: Path) -> Path:
    return file.with_name(f"{file.name}.sig")


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Puts the file's name before what is wrong with it, and names the extra."""
    try:
        yield
    except SignatureError as error:
        raise CommandError(f"{path}: {error}") from error
    except ModuleNotFoundError as error:
        raise CommandError(
            "signatures need the package 'cryptography': pip install 'planq[sign]'"
        ) from error
