"""Forms that a person signs with a passkey: where passkeys work, the options for the browser, and what it sends."""

from typing import Any

import msgspec

from workflowlookup import extras
from workflowlookup.console.request import RequestRefused, Visit
from workflowlookup.people import passkeys
from workflowlookup.people.passkeys import Passkey, PasskeyRefused
from workflowlookup.runs.events import Signature

REGISTRATION = b"workflowlookup passkey v1\n"
"""The beginning of the text whose hash is the challenge of a registration."""


def obstacle(visit: Visit) -> str:
    """Why passkeys do not work on this page, and what to do; empty if they may. The script knows the rest."""
    if extras.is_missing(extras.SIGN):
        return f"{extras.explain_missing(extras.SIGN)} {extras.how_to_install(extras.SIGN)}"
    if not visit.services.people.path:
        return visit.services.people.problem
    host = visit.request.headers.get("host", "")
    if not passkeys.rp_id_of(host):
        return (
            f"Browsers have no passkeys at an address of numbers such as {host}. Open the console by its name: "
            "https://NAME, or http://localhost on this machine."
        )
    return ""


def rp_id(visit: Visit) -> str:
    """The host that passkeys of this page belong to."""
    return passkeys.rp_id_of(visit.request.headers.get("host", ""))


def registration_options(visit: Visit) -> dict[str, Any]:
    """Options for `navigator.credentials.create`."""
    existing = [key.credential for key in visit.services.people.passkeys(rp_id(visit))]
    return passkeys.creation_options(_registration_challenge(visit), rp_id(visit), existing)


def _registration_challenge(visit: Visit) -> bytes:
    """Bound to the session, so that a registration of another session is refused."""
    return passkeys.challenge_of(REGISTRATION + visit.form_secret)


def signing_options(visit: Visit, text: bytes) -> dict[str, Any]:
    """Options for `navigator.credentials.get`, to sign this text."""
    credentials = [key.credential for key in visit.services.people.passkeys(rp_id(visit))]
    return passkeys.request_options(passkeys.challenge_of(text), rp_id(visit), credentials)


def read_registration(visit: Visit) -> Passkey:
    """The passkey that the form brings. Raises `RequestRefused`."""
    origin = _origin(visit)
    try:
        credential = msgspec.json.decode(visit.form.get("passkey", ""), type=dict[str, Any])
        return passkeys.verify_registration(credential, _registration_challenge(visit), origin)
    except (msgspec.MsgspecError, RecursionError):
        raise RequestRefused(400, "The form brings no passkey. Load the page again; it needs scripts.") from None
    except PasskeyRefused as problem:
        raise RequestRefused(422, f"{problem}.") from problem


class _Assertion(msgspec.Struct, rename="camel"):
    id: str
    authenticator_data: str
    client_data: str
    signature: str


def read_signature(visit: Visit, text: bytes) -> Signature:
    """The signature of this text that the form brings, checked. Raises `RequestRefused`, and the errors of
    `PeopleStore.note_use`.
    """
    origin, people = _origin(visit), visit.services.people
    try:
        assertion = msgspec.json.decode(visit.form.get("passkey", ""), type=_Assertion)
    except (msgspec.MsgspecError, RecursionError):
        raise RequestRefused(400, "The form is not signed. Load the page again; it needs scripts.") from None
    key = next((key for key in people.passkeys(rp_id(visit)) if key.credential == assertion.id), None)
    if key is None:
        raise RequestRefused(403, "This passkey is not known here, or was removed. Use another, or register it.")
    signature = Signature(
        method="passkey",
        person=key.person,
        key=key.id,
        signature=assertion.signature,
        authenticator_data=assertion.authenticator_data,
        client_data=assertion.client_data,
    )
    try:
        count = passkeys.verify_signature(key.passkey, signature, text, origin=origin, sign_count=key.sign_count)
    except PasskeyRefused as problem:
        raise RequestRefused(403, f"The signature does not count: {problem}. Read the question again.") from problem
    if count or key.sign_count:
        people.note_use(key, count)
    return signature


def _origin(visit: Visit) -> str:
    """The origin of the page that sent the form. Raises `RequestRefused` where passkeys do not work."""
    if problem := obstacle(visit):
        raise RequestRefused(422, problem)
    headers = visit.request.headers
    origin = headers.get("origin", "")
    if not passkeys.is_usable_origin(origin, headers.get("host", "")):
        raise RequestRefused(422, "Passkeys need a page over HTTPS, or on localhost.")
    return origin
