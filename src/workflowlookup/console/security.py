"""What stands between the pages and the world: headers, and forms of our own."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request

from workflowlookup.web import FormProblem, is_from_here, read_fields

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # no-referrer would make browsers send `Origin: null` with our own forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Refused(Exception):
    """The request is not answered with what it asked for."""

    def __init__(self, status: int, told: str) -> None:
        super().__init__(told)
        self.status = status
        self.told = told


class NotThere(Refused):
    """There is nothing at this address for this viewer."""

    def __init__(self, what: str = "page") -> None:
        super().__init__(404, f"There is no such {what}, or it is not for you to see.")


def form_token(session: str, name: str) -> str:
    """What a form of ours carries: only the session that it belongs to can make it."""
    digest = hmac.digest(session.encode(), f"form\0{name}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


async def read_form(request: Request, token: str) -> Mapping[str, str]:
    """The fields of a form that one of our pages sent with this token. Raises `Refused` for any other."""
    if not is_from_here(request):
        raise Refused(403, "Forms are taken from pages of this console only.")
    try:
        fields = await read_fields(request)
    except FormProblem as problem:
        raise Refused(problem.status, problem.told) from None
    if not hmac.compare_digest(fields.get("token", "").encode(), token.encode()):
        raise Refused(403, "The form is not of this visit. Load the page again, then try once more.")
    return fields
