"""The key of this installation, which signs receipts: Ed25519, made when it is first needed, for its owner only.

A key is identified by the SHA-256 of its public key in DER form (SubjectPublicKeyInfo), in hexadecimal digits.
"""

import base64
import contextlib
import hashlib
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from workflowlookup import extras
from workflowlookup.atomic import locked, replace_file
from workflowlookup.errors import SecurityError, StorageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FILE: Final = "signing-key.pem"
FINGERPRINT: Final = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.IGNORECASE)
MAX_KEY_BYTES: Final = 16 << 10


class PublicKey:
    """A key that verifies signatures."""

    def __init__(self, key: "Ed25519PublicKey") -> None:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - only with the extra

        self._key = key
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        self.der = key.public_bytes(serialization.Encoding.DER, form)
        self.pem = key.public_bytes(serialization.Encoding.PEM, form).decode()
        self.key_id = hashlib.sha256(self.der).hexdigest()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


class SigningKey:
    """A key that signs."""

    def __init__(self, key: "Ed25519PrivateKey") -> None:
        self._key = key
        self.public = PublicKey(key.public_key())

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)


def key_path(environment: Mapping[str, str]) -> str:
    """The file of the installation's key, in the user's data directory."""
    data = environment.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(data, extras.PACKAGE, FILE)


def load_or_make_key(path: str) -> SigningKey:
    """The installation's key. Raises `StorageError`, `SecurityError` and `MissingExtra`."""
    extras.require(extras.SIGN)
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    try:
        with locked(path):
            if not os.path.lexists(path):
                pem = Ed25519PrivateKey.generate().private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                )
                replace_file(path, pem)
        key = load_key(path)
    except OSError as problem:
        raise StorageError(f"The key {path} cannot be written: {problem.strerror}.", file=path) from problem
    assert key is not None
    return key


def load_key(path: str) -> SigningKey | None:
    """The installation's key; None if there is none yet. Raises `StorageError`, `SecurityError` and `MissingExtra`."""
    extras.require(extras.SIGN)
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            pem = file.read(MAX_KEY_BYTES)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise StorageError(f"The key {path} cannot be read: {problem.strerror}.", file=path) from problem
    if status.st_mode & 0o077 or status.st_uid != os.geteuid():
        message = (
            f"The key {path} is not yours alone, so others may have signed with it. Move it away, or `chmod 600` it."
        )
        raise SecurityError(message, file=path)
    with contextlib.suppress(ValueError, TypeError):
        key = serialization.load_pem_private_key(pem, password=None)
        if isinstance(key, Ed25519PrivateKey):
            return SigningKey(key)
    raise StorageError(
        f"The file {path} is not an Ed25519 key. Restore it, or move it away to make a new one.", file=path
    )


def parse_public_key(data: bytes) -> PublicKey | None:
    """The public key in PEM or DER form; None if it is not an Ed25519 public key. Raises `MissingExtra`."""
    extras.require(extras.SIGN)
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    load = (
        serialization.load_pem_public_key if data.lstrip().startswith(b"-----") else serialization.load_der_public_key
    )
    with contextlib.suppress(ValueError, UnsupportedAlgorithm):
        key = load(data)
        if isinstance(key, Ed25519PublicKey):
            return PublicKey(key)
    return None


def key_with_fingerprint(fingerprint: str, encoded: str) -> PublicKey | None:
    """The public key of a receipt (DER in base64), if it has this fingerprint."""
    with contextlib.suppress(ValueError):
        key = parse_public_key(base64.b64decode(encoded, validate=True))
        if key is not None and key.key_id == fingerprint:
            return key
    return None
