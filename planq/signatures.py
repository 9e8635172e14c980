"""Signatures of reports and stored plans, by ed25519 keys as OpenSSL writes them.

What is signed is not a file's bytes but what it says: its JSON, read strictly and spelled in one
way (:func:`canonical`). A file that is formatted again keeps its signature. Text that two readers
may take for two things is never signed and never verified: a name that appears twice, a number
that is none or that no double holds, and text that is not UTF-8.

The package ``cryptography`` does the arithmetic; ``pip install 'planq[sign]'`` brings it.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from planq.checkpoint.strict_json import parse

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )


class SignatureError(ValueError):
    """A key or a text is not one; the message says which, what was expected and what came."""


def canonical(content: Any) -> bytes:
    """JSON with sorted keys and no spaces, as bytes: one spelling of one content.

    Args:
        content: What JSON can hold.

    Raises:
        ValueError: It has a number that is not finite, or half a surrogate pair.
    """
    text = json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def signed_bytes(text: bytes) -> bytes:
    """What a signature of a JSON text covers: its content, in the canonical spelling.

    Args:
        text: JSON in UTF-8.

    Raises:
        SignatureError: It is no JSON, or JSON that readers may take for different things.
    """
    try:
        return canonical(parse(text.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        raise SignatureError(f"expected JSON with one meaning: {error}") from error


class Signer:
    """Signs with a private key.

    Args:
        pem: An ed25519 key as ``openssl genpkey`` writes it: PEM, PKCS8, not encrypted.

    Attributes:
        fingerprint: That of the public key, as :class:`Verifier` has it.

    Raises:
        SignatureError: It is no such key.
        ModuleNotFoundError: The package ``cryptography`` is not installed.
    """

    def __init__(self, pem: bytes) -> None:
        self._key = _private(pem)
        self.fingerprint = _fingerprint(self._key.public_key())

    def sign(self, text: bytes) -> bytes:
        """Signs what a JSON text says. The same text and key give the same 64 bytes.

        Args:
            text: JSON in UTF-8.

        Raises:
            SignatureError: It is no JSON, or JSON that readers may take for different things.
        """
        return self._key.sign(signed_bytes(text))


class Verifier:
    """Tells the signatures of one key's owner from others.

    Args:
        pem: An ed25519 key as ``openssl pkey -pubout`` writes it: PEM, SubjectPublicKeyInfo.

    Attributes:
        fingerprint: The SHA-256 of the key's SubjectPublicKeyInfo in DER, in hexadecimal digits.

    Raises:
        SignatureError: It is no such key.
        ModuleNotFoundError: The package ``cryptography`` is not installed.
    """

    def __init__(self, pem: bytes) -> None:
        self._key = _public(pem)
        self.fingerprint = _fingerprint(self._key)

    def is_signed(self, text: bytes, signature: bytes) -> bool:
        """Whether a signature is that of what a JSON text says, by the owner of the key.

        Args:
            text: JSON in UTF-8.
            signature: What :meth:`Signer.sign` returned, or anything else.

        Raises:
            SignatureError: The text is no JSON, or JSON that readers may take for different things.
        """
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, signed_bytes(text))
        except InvalidSignature:
            return False
        return True


def _fingerprint(key: Ed25519PublicKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def _private(pem: bytes) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    expected = "expected a private ed25519 key in PEM"
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError as error:  # the package says so of an encrypted key
        raise SignatureError(
            f"{expected}, got an encrypted key; 'openssl pkey -in KEY' decrypts it"
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SignatureError(f"{expected}, got none") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SignatureError(f"{expected}, got another kind of key")
    return key


def _public(pem: bytes) -> Ed25519PublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    expected = "expected a public ed25519 key in PEM"
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SignatureError(f"{expected}, got none") from error
    if not isinstance(key, Ed25519PublicKey):
        raise SignatureError(f"{expected}, got another kind of key")
    return key
