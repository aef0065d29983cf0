"""The cookie of a console session.

Browsers send a cookie to every port of a host. So over http the cookie's name has the port, which keeps two servers on
one host apart, and the session is valid only at the address where it was begun. Over https the prefix `__Host-` binds
the cookie to the host, and prevents that it is set or read without TLS. Its value is a session id, not a token, and is
valid for pages only.

Whether a browser uses https is taken from the `Origin` of the log-in form that it sends, so a proxy need not say it.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

SECURE_NAME: Final = "__Host-workflowlookup"
FORMER_NAME: Final = "workflowlookup"
"""The cookie of earlier versions, which was the token itself. It is deleted when a browser sends it."""


def address_of(request: Request) -> str:
    """The host and port in the browser's address bar."""
    return request.headers.get("host", "").lower()


def session_in(request: Request) -> str:
    """The id of the browser's session; empty if it sends none."""
    return request.cookies.get(SECURE_NAME) or request.cookies.get(_plain_name(request)) or ""


def set_session(request: Request, response: Response, session_id: str, seconds: int) -> None:
    """Set the cookie of a session in the browser that sent a log-in form."""
    is_secure = request.headers.get("origin", "").lower().startswith("https://")
    name = SECURE_NAME if is_secure else _plain_name(request)
    response.set_cookie(name, session_id, max_age=seconds, path="/", httponly=True, samesite="strict", secure=is_secure)
    _delete_former(request, response)


def delete_session(request: Request, response: Response) -> None:
    for name in (SECURE_NAME, _plain_name(request)):
        if name in request.cookies:
            is_secure = name == SECURE_NAME
            response.delete_cookie(name, path="/", httponly=True, samesite="strict", secure=is_secure)
    _delete_former(request, response)


def _plain_name(request: Request) -> str:
    _, _, port = address_of(request).rpartition(":")
    return f"workflowlookup-{port if port.isdecimal() else '80'}"


def _delete_former(request: Request, response: Response) -> None:
    if FORMER_NAME in request.cookies:
        response.delete_cookie(FORMER_NAME, httponly=True, samesite="lax")
