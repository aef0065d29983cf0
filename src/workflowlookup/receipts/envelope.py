"""The envelope of a receipt: DSSE, with one signature (https://github.com/secure-systems-lab/dsse).

Whatever is not exactly such an envelope is refused with a sentence: `BadReceipt`.
"""

import base64
import binascii
import json
from typing import Any, Final, TypeVar

import msgspec

from workflowlookup.errors import WorkflowLookupError
from workflowlookup.receipts.keys import PublicKey, SigningKey

T = TypeVar("T")

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
MAX_BYTES: Final = 32 << 20
"""Of a receipt file."""


class BadReceipt(WorkflowLookupError):
    """A receipt is not well-formed, or its signature is not right."""

    code, message = -32602, "Invalid receipt"


class _Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    keyid: str
    sig: str


class _Envelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    payload: str
    payload_type: str
    signatures: tuple[_Signature, ...]


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an envelope, whose signature is not verified yet."""

    payload: bytes
    key_id: str
    signature: bytes

    def is_signed_by(self, key: PublicKey) -> bool:
        """Whether the signature is right, and by this key."""
        return key.key_id == self.key_id and key.verifies(self.signature, pre_authentication_encoding(self.payload))


def pre_authentication_encoding(payload: bytes) -> bytes:
    """What is signed: the payload with its type, each with its length."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def seal(payload: bytes, key: SigningKey) -> bytes:
    """The envelope as JSON."""
    signature = key.sign(pre_authentication_encoding(payload))
    envelope = _Envelope(
        payload=base64.b64encode(payload).decode(),
        payload_type=PAYLOAD_TYPE,
        signatures=(_Signature(keyid=key.public.key_id, sig=base64.b64encode(signature).decode()),),
    )
    return msgspec.json.encode(envelope) + b"\n"


def unseal(data: bytes) -> Sealed:
    """Read an envelope. Raises `BadReceipt`."""
    if len(data) > MAX_BYTES:
        raise BadReceipt(f"The receipt has more than {MAX_BYTES >> 20} MiB.")
    envelope = decode(data, _Envelope, "The receipt is not a DSSE envelope")
    if envelope.payload_type != PAYLOAD_TYPE:
        raise BadReceipt(f"The payload of the receipt is '{envelope.payload_type[:100]}', not '{PAYLOAD_TYPE}'.")
    if len(envelope.signatures) != 1:
        raise BadReceipt(f"The receipt has {len(envelope.signatures)} signatures; it must have one.")
    (signature,) = envelope.signatures
    return Sealed(
        payload=_from_base64(envelope.payload, "payload"),
        key_id=signature.keyid,
        signature=_from_base64(signature.sig, "signature"),
    )


def decode(data: bytes, kind: type[T], problem: str) -> T:
    """JSON of this form, without unknown fields and repeated keys. Raises `BadReceipt`."""
    try:
        json.loads(data, object_pairs_hook=_refuse_repeated_keys)
        return msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError, msgspec.MsgspecError) as reason:
        text = "it is nested too deeply" if isinstance(reason, RecursionError) else str(reason)[:300].rstrip(".")
        raise BadReceipt(f"{problem}: {text}.") from None


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError("a key is there twice")


def _from_base64(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        raise BadReceipt(f"The {name} of the receipt is not base64.") from None
