"""Ed25519 keys of people. A private key is a file that only its passphrase opens: scrypt, then AES-256-GCM."""

import base64
import hashlib
import os
from typing import Final, Literal

import msgspec

from workflowlookup.errors import SecurityError

MIN_PASSPHRASE: Final = 12
"""Characters. Anybody who can copy the file can guess as fast as scrypt allows, so a short passphrase is refused."""
_SCRYPT: Final = {"n": 1 << 16, "r": 8, "p": 1, "maxmem": 128 << 20, "dklen": 32}
"""64 MiB and about 0.2 s for each guess."""


class WrongPassphrase(SecurityError):
    """The passphrase does not open the key."""


class SealedKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file of a private key. Bytes are base64url without padding."""

    version: Literal[1] = 1
    public: str
    salt: str
    nonce: str
    sealed: str


def encode(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode(text: str) -> bytes:
    """Raises `ValueError`."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def key_id(public: bytes) -> str:
    """The id of a public key: the first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(public).hexdigest()[:16]


def create_key(passphrase: str) -> SealedKey:
    """A new key, sealed with the passphrase. Raises `SecurityError` for a passphrase that is too short."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - extra `sign`
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    if len(passphrase) < MIN_PASSPHRASE:
        raise SecurityError(f"The passphrase must have at least {MIN_PASSPHRASE} characters. Several words are best.")
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    salt, nonce = os.urandom(16), os.urandom(12)
    sealed = AESGCM(_encryption_key(passphrase, salt)).encrypt(nonce, private.private_bytes_raw(), public)
    return SealedKey(public=encode(public), salt=encode(salt), nonce=encode(nonce), sealed=encode(sealed))


def sign(key: SealedKey, passphrase: str, text: bytes) -> str:
    """The signature of a text. Raises `WrongPassphrase`, also for a file that was changed."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - extra `sign`
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    try:
        cipher = AESGCM(_encryption_key(passphrase, decode(key.salt)))
        private = cipher.decrypt(decode(key.nonce), decode(key.sealed), decode(key.public))
        return encode(Ed25519PrivateKey.from_private_bytes(private).sign(text))
    except (InvalidTag, ValueError) as problem:
        raise WrongPassphrase("The passphrase does not open the key. Try again.") from problem


def is_signed_by(public: bytes, signature: str, text: bytes) -> bool:
    """Whether this is the Ed25519 signature of the text."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - extra `sign`
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(decode(signature), text)
    except (InvalidSignature, ValueError):
        return False
    return True


def _encryption_key(passphrase: str, salt: bytes) -> bytes:
    import unicodedata  # noqa: PLC0415 - the same characters may arrive in two forms

    return hashlib.scrypt(unicodedata.normalize("NFC", passphrase).encode(), salt=salt, **_SCRYPT)
