"""Which registrations and signatures of passkeys count: an authenticator in software that breaks one rule at a time."""

import hashlib
import json
import struct
from typing import Any

import cbor2
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from workflowlookup.people import passkeys
from workflowlookup.people.keys import encode
from workflowlookup.people.passkeys import Passkey, PasskeyRefused
from workflowlookup.runs.events import Signature

HOST = "console.example"
ORIGIN = f"https://{HOST}"
TEXT = b"what is signed"
PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


class Authenticator:
    """Makes what a browser and an authenticator send."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())
        numbers = self.private.public_key().public_numbers()
        point = {-2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
        self.public = cbor2.dumps({1: 2, 3: -7, -1: 1, **point})
        self.credential = b"credential of ada"
        self.count = 0

    def create(self, challenge: bytes, origin: str = ORIGIN, rp_id: str = HOST, flags: int = PRESENT | VERIFIED) -> Any:
        identity = bytes(16) + struct.pack(">H", len(self.credential)) + self.credential + self.public
        data = self._data(rp_id, flags | ATTESTED) + identity
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        client_data = self._client_data("webauthn.create", challenge, origin)
        response = {"clientDataJSON": encode(client_data), "attestationObject": encode(attestation)}
        name = encode(self.credential)
        return {"id": name, "rawId": name, "type": "public-key", "response": response}

    def sign(self, text: bytes = TEXT, **changes: Any) -> Signature:
        rp_id, flags = changes.pop("rp_id", HOST), changes.pop("flags", PRESENT | VERIFIED)
        kind, origin = changes.pop("kind", "webauthn.get"), changes.pop("origin", ORIGIN)
        self.count += 1
        client_data = self._client_data(kind, passkeys.challenge_of(text), origin, **changes)
        data = self._data(rp_id, flags)
        signed = data + hashlib.sha256(client_data).digest()
        signature = self.private.sign(signed, ec.ECDSA(hashes.SHA256()))
        return Signature(
            method="passkey",
            person="ada",
            key="k",
            signature=encode(signature),
            authenticator_data=encode(data),
            client_data=encode(client_data),
        )

    def _data(self, rp_id: str, flags: int) -> bytes:
        return hashlib.sha256(rp_id.encode()).digest() + bytes([flags]) + struct.pack(">I", self.count)

    def _client_data(self, kind: str, challenge: bytes, origin: str, **more: Any) -> bytes:
        return json.dumps({"type": kind, "challenge": encode(challenge), "origin": origin, **more}).encode()


@pytest.fixture
def authenticator() -> Authenticator:
    return Authenticator()


@pytest.fixture
def passkey(authenticator: Authenticator) -> Passkey:
    return passkeys.verify_registration(authenticator.create(b"challenge"), b"challenge", ORIGIN)


def test_a_passkey_signs_over_https(authenticator: Authenticator, passkey: Passkey) -> None:
    assert (passkey.rp_id, passkey.credential) == (HOST, encode(authenticator.credential))
    assert passkeys.verify_signature(passkey, authenticator.sign(), TEXT, origin=ORIGIN) == 1
    assert passkeys.verify_signature(passkey, authenticator.sign(), TEXT, sign_count=1) == 2


@pytest.mark.parametrize(
    "broken",
    [
        {"challenge": b"another"},
        {"origin": "https://evil.example"},
        {"origin": f"http://{HOST}"},
        {"rp_id": "evil.example"},
        {"flags": PRESENT},
        {"flags": VERIFIED},
    ],
    ids=str,
)
def test_a_registration_that_breaks_a_rule_is_refused(authenticator: Authenticator, broken: dict[str, Any]) -> None:
    with pytest.raises(PasskeyRefused):
        passkeys.verify_registration(
            authenticator.create(**{"challenge": b"challenge", **broken}), b"challenge", ORIGIN
        )


@pytest.mark.parametrize("public", [b"", cbor2.dumps([1, 2]), b"\x81" * 5_000], ids=["empty", "list", "deep"])
def test_a_public_key_that_cannot_be_read_is_refused(authenticator: Authenticator, public: bytes) -> None:
    authenticator.public = public
    with pytest.raises(PasskeyRefused):
        passkeys.verify_registration(authenticator.create(b"challenge"), b"challenge", ORIGIN)

    stored = Passkey(credential=encode(authenticator.credential), public=encode(public), rp_id=HOST)
    with pytest.raises(PasskeyRefused):
        passkeys.verify_signature(stored, authenticator.sign(), TEXT)


@pytest.mark.parametrize("nonsense", [{}, {"id": 1}, {"id": "x", "rawId": "x", "type": "public-key", "response": {}}])
def test_a_registration_that_is_none_is_refused(nonsense: dict[str, Any]) -> None:
    with pytest.raises(PasskeyRefused):
        passkeys.verify_registration(nonsense, b"challenge", ORIGIN)


@pytest.mark.parametrize(
    "broken",
    [
        {"text": b"something else"},
        {"kind": "webauthn.create"},
        {"origin": "https://evil.example"},
        {"origin": f"http://{HOST}"},
        {"origin": f"https://sub.{HOST}"},
        {"rp_id": "evil.example"},
        {"flags": PRESENT},
        {"flags": VERIFIED},
        {"flags": 0},
        {"crossOrigin": True},
    ],
    ids=str,
)
def test_a_signature_that_breaks_a_rule_is_refused(
    authenticator: Authenticator, passkey: Passkey, broken: dict[str, Any]
) -> None:
    with pytest.raises(PasskeyRefused):
        passkeys.verify_signature(passkey, authenticator.sign(**broken), TEXT)


def test_the_page_that_signed_must_be_the_one_that_sends(authenticator: Authenticator, passkey: Passkey) -> None:
    with pytest.raises(PasskeyRefused):
        passkeys.verify_signature(passkey, authenticator.sign(), TEXT, origin=f"{ORIGIN}:8443")


def test_a_counter_that_did_not_grow_is_refused(authenticator: Authenticator, passkey: Passkey) -> None:
    with pytest.raises(PasskeyRefused, match="sign count"):
        passkeys.verify_signature(passkey, authenticator.sign(), TEXT, sign_count=1)


def test_another_key_is_refused(passkey: Passkey) -> None:
    with pytest.raises(PasskeyRefused):
        passkeys.verify_signature(passkey, Authenticator().sign(), TEXT)


@pytest.mark.parametrize(
    ("host", "rp_id"),
    [
        ("localhost:8788", "localhost"),
        ("Console.Example", HOST),
        ("127.0.0.1:8788", ""),
        ("[::1]:8788", ""),
        ("10.0.0.7", ""),
        ("", ""),
    ],
)
def test_passkeys_belong_to_a_name(host: str, rp_id: str) -> None:
    assert passkeys.rp_id_of(host) == rp_id


@pytest.mark.parametrize(
    ("origin", "host", "is_usable"),
    [
        ("http://localhost:8788", "localhost:8788", True),
        ("https://console.example", "console.example", True),
        ("http://console.example", "console.example", False),
        ("https://evil.example", "console.example", False),
        ("http://localhost:1", "localhost:8788", False),
        ("http://127.0.0.1:8788", "127.0.0.1:8788", False),
        ("http://localhost.evil.example", "localhost.evil.example", False),
        ("null", "localhost", False),
        ("", "", False),
    ],
)
def test_passkeys_work_over_https_and_on_localhost(origin: str, host: str, is_usable: bool) -> None:
    assert passkeys.is_usable_origin(origin, host) is is_usable
