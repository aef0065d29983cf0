"""The cookie of a console session.

Browsers send a cookie to every port of a host. So over http its name has the port, which keeps two servers of one host
apart, and the session counts only at the address where it was begun. Over https the prefix `__Host-` binds it to the
host, and keeps it from being set or read without TLS. What it holds is valid for pages only, and is no token.

Whether a browser uses https is known from the `Origin` of its own log-in form: a proxy need not say it.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

SECURE_NAME: Final = "__Host-workflowlookup"
FORMER_NAME: Final = "workflowlookup"
"""Of versions whose cookie was the token itself: it is deleted where it is seen."""


def address_of(request: Request) -> str:
    """The host and port by which the browser calls this server."""
    return request.headers.get("host", "").lower()


def session_in(request: Request) -> str:
    """The id of the session that a browser sends; empty when it sends none."""
    return request.cookies.get(SECURE_NAME) or request.cookies.get(_plain_name(request)) or ""


def set_session(request: Request, response: Response, session_id: str, seconds: int) -> None:
    """Have the browser that sent a log-in form keep its session."""
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
