"""Rate limits for each caller of a server over HTTP: requests, processor time, memory; and the settings for them.

MCP, pages, `/metrics` and log-ins count alike: against the caller once a request is authenticated, else against its
address. The log-in form is always shown. A caller that is too fast is first served with a delay, and then refused.
"""

import asyncio
import logging
import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final

import msgspec
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workflowlookup.auth.callers import CALLER, Proxies
from workflowlookup.cache import BoundedCache
from workflowlookup.errors import JOURNAL_SECONDS, Overloaded
from workflowlookup.protocol.memory import MemoryMeter
from workflowlookup.shares import MAX_CLIENTS, Holding, Shares, TokenBuckets
from workflowlookup.transport.http.bodies import busy, refuse
from workflowlookup.web import LOOPBACK_HOSTS

log = logging.getLogger(__name__)

MCP: Final = "/mcp"
MAX_DELAY_SECONDS: Final = 1.0
"""A request that would have to wait longer is refused. Refusals wait as long: a client that sends the next request as
soon as one is refused would otherwise take more of the processor than one that is served.
"""
PROCESSOR_SHARE: Final = 0.5
"""The part of the event loop's time that one caller may use on average, while other callers are active."""
PROCESSOR_BURST_SECONDS: Final = 0.2
MAX_PROCESSOR_SECONDS: Final = 5.0
"""The most processor time that is counted against a caller, so that it waits for at most about ten seconds."""
MESSAGES_IN_MEMORY: Final = 12
"""How many messages of maximum length may be in memory at once, for all callers together; and as many responses."""
MIN_MESSAGE_BYTES: Final = 1 << 20
"""Responses may be this long even if `max_message_bytes` is less."""
PART_BYTES: Final = 64 << 10
"""A response is written in parts of this size; the next one waits until the client has read enough."""
RELEASE_SECONDS: Final = 5.0
"""After costly requests, memory is returned to the system at most this often: the event loop is blocked meanwhile."""
ACTIVE_SECONDS: Final = 5.0
"""A caller that sent a request within this time counts as active."""


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that limit what is served over HTTP."""

    max_message_bytes: int
    max_sessions: int
    idle_seconds: float
    requests_per_minute: int
    allowed_hosts: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    journal_seconds: float = JOURNAL_SECONDS
    """How long a request waits for the journal, or for an earlier request of its session."""


def default_hosts(host: str) -> tuple[str, ...]:
    """The host names that a server at this address accepts in addition to the setting `allowed_hosts`."""
    plain = host.lower().strip("[]")
    name = f"[{plain}]" if ":" in plain else plain
    return LOOPBACK_HOSTS if name in LOOPBACK_HOSTS else (*LOOPBACK_HOSTS, name)


class ResponseCutOff(Exception):
    """A response that has begun is cut off, because its caller has not read earlier ones."""


class ProcessorTime:
    """How much of the event loop's time each caller has used: a leaky bucket for each."""

    def __init__(self) -> None:
        self._used: BoundedCache[str, tuple[float, float]] = BoundedCache(MAX_CLIENTS)
        """By caller: the seconds in its bucket, and when that was computed."""
        self._last = ("", float("-inf"))
        self._last_other = ("", float("-inf"))
        """`_last`: the caller of the latest request; `_last_other`: the latest different one; each with its time."""

    def charge(self, caller: str, seconds: float) -> None:
        used, now = self._used_now(caller)
        self._used[caller] = min(used + seconds, MAX_PROCESSOR_SECONDS), now

    def seconds_to_wait(self, caller: str) -> float:
        """How long this caller must wait, to leave the event loop to others; 0 while no other caller is active."""
        used, now = self._used_now(caller)
        if caller != self._last[0]:
            self._last_other = self._last
        self._last = caller, now
        if used <= PROCESSOR_BURST_SECONDS or self._last_other[1] < now - ACTIVE_SECONDS:
            return 0.0
        return (used - PROCESSOR_BURST_SECONDS) / PROCESSOR_SHARE

    def _used_now(self, caller: str) -> tuple[float, float]:
        now = time.monotonic()
        used, at = self._used.get(caller) or (0.0, now)
        return max(0.0, used - (now - at) * PROCESSOR_SHARE), now


class RateLimiter:
    """Applies the limits of callers to every request that is not a probe."""

    def __init__(
        self,
        requests_per_minute: int,
        *,
        max_message_bytes: int = 8 << 20,
        proxies: Proxies | None = None,
        on_refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`requests_per_minute`: 0 for no limit on requests and processor time. `on_refused` gets the reason."""
        max_bytes = MESSAGES_IN_MEMORY * max(max_message_bytes, MIN_MESSAGE_BYTES)
        self.memory = Shares(max_bytes)
        """Bytes of messages that are being read or answered."""
        self._responses = Shares(max_bytes)
        """Bytes of responses that their clients have not read. Not counted with the messages: a caller that may send a
        long message may also have the response.
        """
        self._requests_per_minute = requests_per_minute
        self._rate = TokenBuckets(requests_per_minute, max_delay=MAX_DELAY_SECONDS)
        self._processor = ProcessorTime()
        self._proxies = proxies or Proxies()
        self._on_refused = on_refused
        self._release: asyncio.TimerHandle | None = None
        self._memory_meter = MemoryMeter()

    async def admit(self, scope: Scope) -> Response | None:
        """Count a request, and wait until it may be served. Returns the refusal if there are too many requests."""
        caller = self._caller_of(scope)
        delay, retry = self._rate.take(caller)
        if retry:
            delay = MAX_DELAY_SECONDS
        if delay:
            await asyncio.sleep(delay)
        if retry:
            problem = f"more than {self._requests_per_minute:,} requests in a minute; wait {retry} s and send it again"
            return self._refuse(scope, "rate", problem, retry)
        await self.wait_for_processor(scope)
        if self._responses.is_over(caller, PART_BYTES):
            problem = "you have not read the answers to your earlier requests; read them, then send this again"
            return self._refuse(scope, "memory", problem, 1)
        return None

    async def wait_for_processor(self, scope: Scope) -> None:
        """Wait until the caller has left enough of the event loop's time to others."""
        caller = self._caller_of(scope)
        if not self._requests_per_minute:
            return
        while seconds := self._processor.seconds_to_wait(caller):  # noqa: ASYNC110 - there is no event: other requests of the caller wait as well
            await asyncio.sleep(seconds)

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. Its response counts against the memory of its caller until the client has read it.

        A response for which there is no memory is replaced by a refusal. One of unknown length is cut off, because it
        has begun.
        """
        response_memory = Holding(self._responses, self._caller_of(scope))
        declared, is_dropped = 0, False

        async def send_in_parts(message: Message) -> None:
            nonlocal declared, is_dropped
            if is_dropped:
                return
            if message["type"] == "http.response.start":
                declared = _content_length(message)
                if declared > PART_BYTES and not response_memory.take(declared):
                    is_dropped = True
                    await self._refuse_response(scope, declared)(scope, receive, send)
                    return
            body = message.get("body", b"")
            if len(body) <= PART_BYTES:
                await send(message)
                return
            if not declared and not response_memory.take(len(body)):
                raise ResponseCutOff(f"a part of {len(body):,} bytes")
            for start in range(0, len(body), PART_BYTES):
                part, is_last = body[start : start + PART_BYTES], start + PART_BYTES >= len(body)
                await send({**message, "body": part, "more_body": not is_last or message.get("more_body", False)})
                await asyncio.sleep(0)  # the part is written, and the next one waits while the client does not read
            if not declared:
                response_memory.release()

        try:
            await app(scope, receive, send_in_parts)
        except ResponseCutOff as problem:
            log.info("a response was cut off, because its client has not read earlier ones: %s", problem)
            self._on_refused("memory")
        finally:
            response_memory.release()

    async def meter(self, scope: Scope, request: Coroutine[Any, Any, None]) -> None:
        """Serve a request, and charge its caller for the processor time of each step between two waits."""
        uncharged = total = 0.0

        def charge(seconds: float) -> None:
            nonlocal uncharged, total
            total += seconds
            if caller := scope.get(CALLER):
                self._processor.charge(caller, seconds + uncharged)
                uncharged = 0.0
            else:
                uncharged += seconds

        await _metered(request, charge)
        if uncharged:
            self._processor.charge(self._caller_of(scope), uncharged)
        if self._memory_meter.add(total) and self._release is None:
            self._release = asyncio.get_running_loop().call_later(RELEASE_SECONDS, self._release_memory)

    def _release_memory(self) -> None:
        self._release = None
        self._memory_meter.release()

    def _refuse_response(self, scope: Scope, size: int) -> Response:
        """The refusal in place of a response. Without `Retry-After`, because the request was carried out."""
        caller = self._caller_of(scope)
        share = self._responses.share_of(caller)
        if self._responses.is_over(caller, size) and not self._responses.amount_of(caller):
            problem = f"its response has {size:,} bytes, and you may have {share:,} at a time; ask for less"
        elif self._responses.is_over(caller, size):
            problem = f"there is no memory for its response of {size:,} bytes: read those to earlier requests first"
        else:
            problem = f"there is no memory for its response of {size:,} bytes: other clients have not read theirs"
        problem = f"the request was carried out, but {problem}"
        self._on_refused("memory")
        if scope["path"] == MCP:
            return refuse(429, Overloaded(problem, details=problem))
        return PlainTextResponse(f"Too many requests: {problem}.\n", 429)

    def _refuse(self, scope: Scope, reason: str, problem: str, retry: int) -> Response:
        self._on_refused(reason)
        if scope["path"] == MCP:
            return busy(429, problem, retry)
        return PlainTextResponse(f"Too many requests: {problem}.\n", 429, {"Retry-After": str(retry)})

    def _caller_of(self, scope: Scope) -> str:
        return scope.get(CALLER) or f"address {self._proxies.address_of(scope)}"

    def routes(self, *routes: Route) -> list[BaseRoute]:
        """Routes that need no authentication, limited by address."""
        for route in routes:
            route.app = self._limited(route.app)
        return list(routes)

    def _limited(self, app: ASGIApp) -> ASGIApp:
        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            refusal = await self.admit(scope)
            await self.serve(refusal or app, scope, receive, send)

        return serve


def _content_length(start: Message) -> int:
    """The `Content-Length` of a response; 0 if it has none."""
    return int(dict(start.get("headers", ())).get(b"content-length", 0))


@types.coroutine
def _metered(coroutine: Coroutine[Any, Any, None], charge: Callable[[float], None]) -> Generator[Any, Any, None]:
    """Run a coroutine, and call `charge` with the processor time of each step between two waits."""
    step: Callable[[], Any] = lambda: coroutine.send(None)  # noqa: E731 - replaced at each step
    while True:
        begun_at = time.thread_time()
        try:
            awaited = step()
        except StopIteration:
            return
        finally:
            charge(time.thread_time() - begun_at)
        try:
            value = yield awaited
        except BaseException as problem:  # noqa: BLE001 - for the coroutine to handle, such as its cancellation
            step = lambda problem=problem: coroutine.throw(problem)  # type: ignore[misc]  # noqa: E731
        else:
            step = lambda value=value: coroutine.send(value)  # type: ignore[misc]  # noqa: E731
