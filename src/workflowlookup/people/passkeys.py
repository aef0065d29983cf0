"""Passkeys: WebAuthn with user verification. The challenge of a signature is the SHA-256 of the signed text.

A passkey belongs to a host (`rp_id`). Its signatures count only if they were made on a page of that host, over HTTPS or
on localhost.
"""

import hashlib
import os
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from workflowlookup.people.keys import decode, encode
from workflowlookup.runs.events import Signature

TIMEOUT_MILLISECONDS: Final = 300_000
ALGORITHMS: Final = (-8, -7, -257)
"""Ed25519, ECDSA with P-256, and RSA, by their COSE numbers."""


class PasskeyRefused(Exception):
    """What the browser sent is not a valid registration or signature; the message says why."""


class Passkey(msgspec.Struct, frozen=True, kw_only=True):
    """A passkey as it is registered. Bytes are base64url without padding."""

    credential: str
    """Its id, which browsers find it by."""
    public: str
    """The public key in COSE form."""
    rp_id: str
    """The host that it belongs to."""
    sign_count: int = 0


def is_usable_origin(origin: str, host: str) -> bool:
    """Whether passkeys work on pages of this origin, given the `Host` header: over HTTPS, or on localhost; never at an
    IP address, where browsers have no passkeys.
    """
    parts = urlsplit(origin)
    is_secure = parts.scheme == "https" or (parts.scheme == "http" and is_localhost(parts.hostname or ""))
    return is_secure and parts.netloc == host.lower() and rp_id_of(host) != ""


def rp_id_of(host: str) -> str:
    """The `rp_id` for pages with this `Host` header; empty for an IP address."""
    name = urlsplit(f"//{host.lower()}").hostname or ""
    is_address = ":" in name or name.rpartition(".")[2].isdecimal()
    return "" if is_address else name


def is_localhost(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")


def creation_options(challenge: bytes, rp_id: str, existing: Sequence[str]) -> dict[str, Any]:
    """Arguments of `navigator.credentials.create`, with bytes as base64url. The script adds the name of the user."""
    return {
        "challenge": encode(challenge),
        "rp": {"id": rp_id, "name": "workflowlookup"},
        "user": {"id": encode(os.urandom(16))},
        "pubKeyCredParams": [{"type": "public-key", "alg": number} for number in ALGORITHMS],
        "authenticatorSelection": {"residentKey": "preferred", "userVerification": "required"},
        "excludeCredentials": [{"type": "public-key", "id": credential} for credential in existing],
        "attestation": "none",
        "timeout": TIMEOUT_MILLISECONDS,
    }


def request_options(challenge: bytes, rp_id: str, credentials: Sequence[str]) -> dict[str, Any]:
    """Arguments of `navigator.credentials.get`, with bytes as base64url."""
    return {
        "challenge": encode(challenge),
        "rpId": rp_id,
        "allowCredentials": [{"type": "public-key", "id": credential} for credential in credentials],
        "userVerification": "required",
        "timeout": TIMEOUT_MILLISECONDS,
    }


def verify_registration(credential: dict[str, Any], challenge: bytes, origin: str) -> Passkey:
    """The passkey that a browser has created. Raises `PasskeyRefused`."""
    import webauthn  # noqa: PLC0415 - extra `sign`

    rp_id = rp_id_of(urlsplit(origin).netloc)
    try:
        verified = webauthn.verify_registration_response(
            credential=credential,
            expected_challenge=challenge,
            expected_rp_id=rp_id,
            expected_origin=origin,
            require_user_verification=True,
        )
    except Exception as problem:  # broad on purpose: the library raises many kinds for bytes that it cannot read
        raise PasskeyRefused(f"The passkey cannot be registered: {problem}") from problem
    return Passkey(
        credential=encode(verified.credential_id),
        public=encode(verified.credential_public_key),
        rp_id=rp_id,
        sign_count=verified.sign_count,
    )


def verify_signature(
    passkey: Passkey, signature: Signature, text: bytes, *, origin: str = "", sign_count: int = 0
) -> int:
    """The sign counter in a signature of the text. Raises `PasskeyRefused`.

    `origin`: the page that it must come from; without one, any page of the host. `sign_count`: the last counter, which
    must have grown, unless the authenticator has none.
    """
    import webauthn  # noqa: PLC0415 - extra `sign`

    client_data = _read_client_data(signature, passkey.rp_id)
    try:
        verified = webauthn.verify_authentication_response(
            credential={
                "id": passkey.credential,
                "rawId": passkey.credential,
                "type": "public-key",
                "response": {
                    "clientDataJSON": signature.client_data,
                    "authenticatorData": signature.authenticator_data,
                    "signature": signature.signature,
                },
            },
            expected_challenge=challenge_of(text),
            expected_rp_id=passkey.rp_id,
            expected_origin=origin or client_data.origin,
            credential_public_key=decode(passkey.public),
            credential_current_sign_count=sign_count,
            require_user_verification=True,
        )
    except Exception as problem:  # broad on purpose, as above
        raise PasskeyRefused(str(problem)) from problem
    return verified.new_sign_count


class _ClientData(msgspec.Struct, rename="camel"):
    origin: str
    cross_origin: bool = False


def _read_client_data(signature: Signature, rp_id: str) -> _ClientData:
    """Where a signature was made, if it counts there. Raises `PasskeyRefused`."""
    try:
        data = msgspec.json.decode(decode(signature.client_data), type=_ClientData)
        host = urlsplit(data.origin).netloc
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise PasskeyRefused(str(problem)) from problem
    if not is_usable_origin(data.origin, host):
        raise PasskeyRefused("it was not made over HTTPS or on localhost")
    if data.cross_origin or rp_id_of(host) != rp_id:
        raise PasskeyRefused("it was made on a page of another site")
    return data


def challenge_of(text: bytes) -> bytes:
    """The challenge that a passkey signs for a text."""
    return hashlib.sha256(text).digest()
