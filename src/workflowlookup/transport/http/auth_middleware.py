"""Authentication before an application: it is served only for callers that are let in, and only while they are."""

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

RECHECK_SECONDS: Final = 0.5
"""How often it is asked again who sent a request that takes long: a stream must not outlive its token."""


class AuthMiddleware:
    """An application behind a guard: it is told who asks, and is stopped when that is not so any more."""

    def __init__(  # noqa: PLR0913 - all that a gate is
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        *,
        rate_limiter: RateLimiter | None = None,
        by_cookie: bool = False,
        needs: Callable[[Access], str] | None = None,
        refused: Callable[[], None] = lambda: None,
        answer_unknown: Callable[[Request, Response], Response] = lambda _, response: response,
    ) -> None:
        """`needs`: why a caller may have nothing of it, or nothing. `refused` counts.

        `answer_unknown` may put another answer in the place of a refusal, such as a page with a form.
        """
        self._app = app
        self._authenticator = authenticator
        self._rate_limiter = rate_limiter or RateLimiter(0)
        self._by_cookie = by_cookie
        self._needs = needs
        self._ask = (
            functools.partial(authenticator.authenticate, by_cookie=by_cookie) if needs is None else self._ask_and_check
        )
        self._served: dict[asyncio.Task[object], _Served] = {}
        self._watch: asyncio.Task[None] | None = None
        self._refused = refused
        self._answer_unknown = answer_unknown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        access = await self._ask(request)
        if isinstance(access, Access):
            scope[ACCESS], scope[CALLER] = access, access.caller
            pool.CALLER.set(access.caller)
        refusal = await self._rate_limiter.admit(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if isinstance(access, Response):
            self._refused()
            await self._answer_unknown(request, access)(scope, receive, send)
            return
        begun, ended = False, False

        async def note(message: Message) -> None:
            nonlocal begun, ended
            begun = True
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        task = asyncio.current_task()
        assert task is not None
        served = self._served[task] = _Served(request, access)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._watch_served())
        try:
            await self._rate_limiter.serve(self._app, scope, receive, note)
        except asyncio.CancelledError:
            if not served.is_revoked:
                raise
            task.uncancel()
        finally:
            del self._served[task]
        if served.is_revoked and not ended:
            self._refused()
            if begun:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                refused = await self._ask(request)
                response = refused if isinstance(refused, Response) else Response(status_code=401)
                await response(scope, receive, send)

    async def _ask_and_check(self, request: Request, *, is_recheck: bool = False) -> Access | Response:
        access = await self._authenticator.authenticate(request, by_cookie=self._by_cookie, is_recheck=is_recheck)
        problem = self._needs(access) if self._needs is not None and isinstance(access, Access) else ""
        return self._authenticator.forbid(request, problem) if problem else access

    async def _watch_served(self) -> None:
        """Authenticate long requests again from time to time, and end those whose caller has changed.

        Ends when there are none. It sleeps first, so that it is not started for each of many short requests.
        """
        is_needed = True
        while is_needed:
            served = dict(self._served)
            await asyncio.sleep(RECHECK_SECONDS)
            is_needed = bool(self._served)
            for task, one in served.items():
                if self._served.get(task) is not one or one.is_revoked or await greenlets.run(self._is_valid, one):
                    continue
                if self._served.get(task) is one:  # it may have ended meanwhile
                    one.is_revoked = True
                    task.cancel()

    async def _is_valid(self, served: "_Served") -> bool:
        try:
            access = await self._ask(served.request, is_recheck=True)
        except Exception:  # broad on purpose: whom nobody can ask any more is not let on
            log.exception("who sent a request could not be asked again")
            return False
        is_unknown = isinstance(access, Response) and access.status_code >= 500
        return is_unknown or access == served.access


class _Served(msgspec.Struct, eq=False):
    """A request that is being served, and who sent it."""

    request: Request
    access: Access
    is_revoked: bool = False


def needs_everything(access: Access) -> str:
    """Why one may not see figures of all workflows together."""
    return "" if access.sees_all else "This is about all workflows: it takes a token that is good for all of them."
