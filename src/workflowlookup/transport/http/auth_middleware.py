"""ASGI middleware for authentication: it serves an application only to callers that are, and stay, authenticated."""

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workflowlookup import greenlets
from workflowlookup.access import Access
from workflowlookup.auth.authentication import Authenticator
from workflowlookup.auth.callers import ACCESS, CALLER
from workflowlookup.store import pool
from workflowlookup.transport.http.rate_limits import RateLimiter

log = logging.getLogger(__name__)

RECHECK_INTERVAL_SECONDS: Final = 0.5
"""How often a request that takes long is authenticated again: a stream must not outlive its token."""
RECHECK_BATCH: Final = 16
"""How many are authenticated again before other requests are served."""


class AuthMiddleware:
    """Authenticates the requests to an application, and ends them when their token is revoked.

    The application finds the caller in the scope, as `ACCESS` and `CALLER`.
    """

    def __init__(  # noqa: PLR0913 - options of one middleware
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        *,
        rate_limiter: RateLimiter | None = None,
        by_cookie: bool = False,
        forbidden_reason: Callable[[Access], str] | None = None,
        on_refused: Callable[[], None] = lambda: None,
        replace_refusal: Callable[[Request, Response], Response] = lambda _, response: response,
    ) -> None:
        """`forbidden_reason` returns why a caller may not use the application; empty if it may.

        `on_refused` counts refusals.
        `replace_refusal` may return another response in place of a refusal, such as a log-in page.
        """
        self._app = app
        self._authenticator = authenticator
        self._rate_limiter = rate_limiter or RateLimiter(0)
        self._by_cookie = by_cookie
        self._forbidden_reason = forbidden_reason
        self._authenticate = (
            functools.partial(authenticator.authenticate, by_cookie=by_cookie)
            if forbidden_reason is None
            else self._authenticate_and_check
        )
        self._served: dict[asyncio.Task[object], _ServedRequest] = {}
        self._recheck_task: asyncio.Task[None] | None = None
        self._on_refused = on_refused
        self._replace_refusal = replace_refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        access = await self._authenticate(request)
        if isinstance(access, Access):
            scope[ACCESS], scope[CALLER] = access, access.caller
            pool.CALLER.set(access.caller)
        refusal = await self._rate_limiter.admit(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if isinstance(access, Response):
            self._on_refused()
            await self._replace_refusal(request, access)(scope, receive, send)
            return
        has_begun, has_ended = False, False

        async def record_and_send(message: Message) -> None:
            nonlocal has_begun, has_ended
            has_begun = True
            has_ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        task = asyncio.current_task()
        assert task is not None
        served = self._served[task] = _ServedRequest(request, access)
        if self._recheck_task is None or self._recheck_task.done():
            self._recheck_task = asyncio.create_task(self._recheck())
        try:
            await self._rate_limiter.serve(self._app, scope, receive, record_and_send)
        except asyncio.CancelledError:
            if not served.is_revoked:
                raise
            task.uncancel()
        finally:
            del self._served[task]
        if served.is_revoked and not has_ended:
            self._on_refused()
            if has_begun:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                refusal_now = await self._authenticate(request)
                response = refusal_now if isinstance(refusal_now, Response) else Response(status_code=401)
                await response(scope, receive, send)

    async def _authenticate_and_check(self, request: Request, *, is_recheck: bool = False) -> Access | Response:
        access = await self._authenticator.authenticate(request, by_cookie=self._by_cookie, is_recheck=is_recheck)
        if self._forbidden_reason is None or not isinstance(access, Access):
            return access
        problem = self._forbidden_reason(access)
        return self._authenticator.forbid(request, problem) if problem else access

    async def _recheck(self) -> None:
        """Authenticate long requests again from time to time, and end those whose caller has changed.

        Runs while there are requests. It sleeps first, so that many short requests do not each start it.
        """
        is_needed = True
        while is_needed:
            served = dict(self._served)
            await asyncio.sleep(RECHECK_INTERVAL_SECONDS)
            is_needed = bool(self._served)
            for number, (task, each) in enumerate(served.items(), 1):
                if number % RECHECK_BATCH == 0:
                    await asyncio.sleep(0)
                if self._served.get(task) is not each or each.is_revoked or await greenlets.run(self._is_valid, each):
                    continue
                if self._served.get(task) is each:  # it may have ended meanwhile
                    each.is_revoked = True
                    task.cancel()

    async def _is_valid(self, served: "_ServedRequest") -> bool:
        try:
            access = await self._authenticate(served.request, is_recheck=True)
        except Exception:  # broad on purpose: a failure must not extend access
            log.exception("a request was ended because authenticating it again failed")
            return False
        is_unavailable = isinstance(access, Response) and access.status_code >= 500
        return is_unavailable or access == served.access


class _ServedRequest(msgspec.Struct, eq=False):
    """A request that is being served, and its caller."""

    request: Request
    access: Access
    is_revoked: bool = False


def why_not_all_workflows(access: Access) -> str:
    """Why a caller may not see metrics, which are about all workflows; empty if it may."""
    return "" if access.sees_all else "This is about all workflows: it needs a token that is valid for all of them."
