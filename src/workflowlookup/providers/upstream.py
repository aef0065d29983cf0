"""MCP servers that we are a client of: steps call their tools, and some have workflows.

Each server has one session, through the official SDK's client, which speaks both eras. It is opened when it is first
needed, and again after it broke. Everything runs on one event loop. Cancelling a task that awaits `call` cancels the
call in the server; `stop` then kills the server if it is a child process of ours.
"""

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup.errors import ProviderUnavailable
from workflowlookup.language.text import redact
from workflowlookup.language.values import Json, Progress
from workflowlookup.logs import capture_library_logs
from workflowlookup.preload import preload
from workflowlookup.providers.config import ServerConfig
from workflowlookup.providers.provider import OnProgress, read_error, redact_error
from workflowlookup.providers.quickack import acknowledge_at_once
from workflowlookup.providers.secrets import VariableNotSet, expand_server, server_secrets
from workflowlookup.runs.events import RemoteError

if TYPE_CHECKING:
    import httpx2
    from mcp import Client, MCPError
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult, ContentBlock, Tool

    from workflowlookup.providers.child import Child

log = logging.getLogger(__name__)

OPEN_SECONDS: Final = 30.0
"""How long opening a session may take."""
CLOSE_SECONDS: Final = 5.0
IDEMPOTENCY_KEY: Final = "workflowlookup/idempotencyKey"
"""The key in `_meta`; its value is the same for every attempt at the same call."""
_GRACE_SECONDS: Final = 0.05
_MAX_PAGES: Final = 100
_INTERNAL_ERROR: Final = "-32603"
_LOST: Final = frozenset({"Connection closed", "Session terminated", "Server returned an error response"})
"""Messages of the SDK for a lost connection. They are compared because servers use the same error codes."""


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a tool."""

    text: str
    structured: Json = None
    is_error: bool = False
    code: str = ""
    """The code of a protocol error."""
    is_doubtful: bool = False
    """Whether the tool may have done its work despite the error: the answer is unreadable or an internal error."""

    @property
    def error(self) -> RemoteError:
        """The error of a tool that failed."""
        if self.code:
            return RemoteError(code=self.code, message=self.text, detail=self.structured)
        error = read_error(self.structured)
        return RemoteError(code=error.code if error else "", message=self.text, detail=self.structured)

    @property
    def value(self) -> Json:
        """The structured result if there is one, else the text."""
        return self.text if self.structured is None else self.structured


class StopResult(msgspec.Struct, frozen=True):
    """Whether cancelled work was stopped."""

    stopped: bool
    message: str
    """A sentence without its full stop."""
    is_pending: bool = False
    """Whether the outcome is not known yet, so another attempt is worthwhile."""


class Upstreams:
    """The servers that the settings name."""

    def __init__(self, servers: Mapping[str, ServerConfig]) -> None:
        self._servers = dict(servers)
        self._sessions: dict[str, _Session] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def call(  # noqa: PLR0913 - keywords
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Json],
        *,
        key: str = "",
        timeout: float | None = None,  # noqa: ASYNC109 - it includes opening the session
        on_progress: OnProgress | None = None,
    ) -> CallResult:
        """Call a tool. An error of the tool, or of the protocol, is returned as a `CallResult`.

        Raises `ProviderUnavailable` if the server cannot be reached, and `TimeoutError`.
        """
        preload("mcp", "mcp_types")  # the SDK is loaded when it is first needed
        from mcp import MCPError  # noqa: PLC0415 - imported above

        async with asyncio.timeout(timeout), self._use(server) as session:
            client = await session.opened()
            try:
                meta: Any = {IDEMPOTENCY_KEY: key} if key else None
                answer = await client.call_tool(
                    tool, dict(arguments), progress_callback=_reporter(on_progress), meta=meta
                )
            except MCPError as problem:
                if session.is_lost(problem):
                    raise
                return session.refusal(problem.message, problem.data, code=str(problem.code))
            except (ValueError, RuntimeError) as problem:  # the answer violates the protocol or its schema
                return session.refusal(_violation(problem), is_doubtful=True)
            result = _result(answer)
            return session.refusal(result.text, result.structured) if result.is_error else result

    async def tools(self, server: str, *, timeout: float | None = OPEN_SECONDS) -> list["Tool"]:  # noqa: ASYNC109
        """The tools of a server. Raises as `call` does."""
        tools: list[Tool] = []
        cursor = None
        async with asyncio.timeout(timeout), self._use(server) as session:
            client = await session.opened()
            for _ in range(_MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += page.tools
                cursor = page.next_cursor
                if not cursor:
                    break
        return tools

    async def stop(self, server: str) -> StopResult:
        """After a call was cancelled: kill the server if it is a child process without other work.

        It is started again when it is next needed. MCP has no answer to a cancellation, so whether any other server
        stopped is not known.
        """
        session = self._sessions.get(server)
        message = f"the MCP server '{server}' was asked to stop"
        unknown = f"{message}, but MCP does not confirm cancellations: the call may still be running"
        if session is None or session.child is None or session.child.pid is None or session.requests:
            not_connected = f"the MCP server '{server}' is not connected: the call may still be running"
            return StopResult(stopped=False, message=unknown if session else not_connected)
        del self._sessions[server]
        pid = session.child.pid
        await asyncio.sleep(_GRACE_SECONDS)  # a server that obeys ends by itself
        await session.child.kill()
        await session.close()
        return StopResult(stopped=True, message=f"{message}, and its process {pid} was killed")

    def apply(self, servers: Mapping[str, ServerConfig]) -> None:
        """Use these servers from now on; sessions of removed or changed ones close when their last request ends."""
        before, self._servers = self._servers, dict(servers)
        for name in [name for name in self._sessions if before.get(name) != servers.get(name)]:
            self._retire(self._sessions.pop(name))

    async def aclose(self) -> None:
        sessions, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(*(session.close() for session in sessions), *self._closing, return_exceptions=True)

    # ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.asynccontextmanager
    async def _use(self, server: str) -> AsyncIterator["_Session"]:
        """The session with a server, for one request. A broken session raises `ProviderUnavailable`."""
        preload("mcp", "mcp_types")
        from mcp import MCPError  # noqa: PLC0415 - as above

        session = self._open_session(server)
        with session.working():
            try:
                yield session
            except (MCPError, OSError, ValueError, RuntimeError) as problem:
                if isinstance(problem, TimeoutError):  # the caller's own timeout
                    raise
                self._forget(server, session)
                raise await session.away(problem) from problem

    def _open_session(self, server: str) -> "_Session":
        config = self._servers.get(server)
        if config is None:
            names = ", ".join(sorted(self._servers)) or "none"
            raise ProviderUnavailable(f"The settings name no MCP server '{server}'. They name: {names}.", server=server)
        session = self._sessions.get(server)
        if session is not None and session.is_broken:
            self._forget(server, session)
            session = None
        if session is None:
            try:
                session = self._sessions[server] = _Session(expand_server(config), server_secrets(config))
            except VariableNotSet as problem:
                raise ProviderUnavailable(f"{str(problem)[0].upper()}{str(problem)[1:]}.", server=server) from problem
        return session

    def _forget(self, server: str, session: "_Session") -> None:
        if self._sessions.get(server) is session:
            del self._sessions[server]
            self._retire(session)

    def _retire(self, session: "_Session") -> None:
        task = asyncio.create_task(session.retire(), context=contextvars.Context())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class _Session:
    """One session with one server. A task keeps it open, because the task that opens it must also close it."""

    def __init__(self, config: ServerConfig, secrets: frozenset[str]) -> None:
        self.config = config
        self._secrets = secrets
        self.child: Child | None = None
        self.requests = 0
        """How many requests are under way."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._last_status = 0
        self._close = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        # Reading the exception avoids a warning if nobody awaits it.
        self._ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        # In an empty context: it outlives the call that opens it.
        self._keeper = asyncio.create_task(self._keep(), context=contextvars.Context())

    async def opened(self) -> "Client":
        """The client, once the session is open. Raises `ProviderUnavailable`."""
        try:
            return await asyncio.shield(self._ready)
        except ProviderUnavailable as problem:
            problem.was_sent = False
            raise

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        self.requests += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.requests -= 1
            if not self.requests:
                self._idle.set()

    @property
    def is_broken(self) -> bool:
        return self._keeper.done() or self._close.is_set() or (self.child is not None and self.child.gone.is_set())

    def is_lost(self, problem: "MCPError") -> bool:
        """Whether the session failed, rather than the server refusing."""
        return self.is_broken or problem.message in _LOST

    async def away(self, problem: BaseException) -> ProviderUnavailable:
        """The error for the caller of a request that failed."""
        name = self.config.name
        if isinstance(problem, ProviderUnavailable):
            return problem
        if self.child is not None and (self.child.gone.is_set() or self.child.pid is None):
            not_started = f"'{self.config.command}' cannot be started: {_cause(problem)}"
            cause = await self.child.exit_message() if self.child.pid else not_started
        elif self._last_status:
            cause = f"it answered with HTTP status {self._last_status}"
        else:
            cause = _cause(problem)
        cause = redact(cause, self._secrets)
        return ProviderUnavailable(f"The MCP server '{name}' does not answer: {cause}.", server=name, cause=cause)

    def refusal(self, text: str, structured: Json = None, *, code: str = "", is_doubtful: bool = False) -> CallResult:
        """The error of a tool as a result, with our secrets replaced."""
        clean = redact_error(RemoteError(code=code, message=text, detail=structured), self._secrets)
        is_doubtful = is_doubtful or code == _INTERNAL_ERROR
        return CallResult(
            text=clean.message, structured=clean.detail, is_error=True, code=code, is_doubtful=is_doubtful
        )

    async def retire(self) -> None:
        """Close when the last request has ended."""
        await self._idle.wait()
        await self.close()

    async def close(self) -> None:
        self._close.set()
        if not self._ready.done():  # until it is open, the keeper does not see `_close`
            self._keeper.cancel()
        await asyncio.wait([self._keeper], timeout=CLOSE_SECONDS)
        if not self._keeper.done():
            self._keeper.cancel()
            await asyncio.wait([self._keeper], timeout=CLOSE_SECONDS)

    async def _keep(self) -> None:
        try:
            async with asyncio.timeout(OPEN_SECONDS) as opening, self._client() as client:
                opening.reschedule(None)
                self._ready.set_result(client)
                log.debug("the MCP server '%s' speaks %s", self.config.name, client.protocol_version)
                events = [self._close, *([self.child.gone] if self.child is not None else [])]
                ends = [asyncio.create_task(event.wait()) for event in events]
                try:
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in ends:
                        task.cancel()
        except Exception as problem:  # noqa: BLE001 - any failure of the SDK means that the server is away
            if self._ready.done():
                cause = redact(_cause(problem), self._secrets)
                log.debug("the MCP server '%s' is gone: %s", self.config.name, cause)
            else:
                self._ready.set_exception(await self.away(problem))
        finally:
            if not self._ready.done():
                self._ready.cancel()

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator["Client"]:
        from mcp import Client  # noqa: PLC0415 - as above
        from mcp_types import Implementation  # noqa: PLC0415

        from workflowlookup import __version__  # noqa: PLC0415

        capture_library_logs("mcp", "httpx2", "httpcore2")
        client_info = Implementation(name="workflowlookup", version=__version__)
        async with contextlib.AsyncExitStack() as stack:
            if self.config.url:
                from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

                client = await stack.enter_async_context(self._http())
                transport = streamable_http_client(self.config.url, http_client=client)
            else:
                from workflowlookup.providers.child import Child  # noqa: PLC0415

                self.child = Child(self.config, self._secrets)
                transport = self.child.streams()
            yield await stack.enter_async_context(Client(transport, client_info=client_info, cache=None))

    def _http(self) -> "httpx2.AsyncClient":
        import httpx2  # noqa: PLC0415 - as above

        async def record_status(response: httpx2.Response) -> None:
            self._last_status = response.status_code if response.status_code >= 400 else 0

        return httpx2.AsyncClient(
            headers=dict(self.config.headers),
            timeout=httpx2.Timeout(OPEN_SECONDS, read=None),  # the caller sets the timeout of a call
            event_hooks={"response": [acknowledge_at_once, record_status]},
        )


def _reporter(on_progress: OnProgress | None) -> "ProgressFnT | None":
    if on_progress is None:
        return None

    async def report(progress: float, total: float | None, message: str | None) -> None:
        on_progress(Progress(progress, total, message or ""))

    return report


def _result(answer: "CallToolResult") -> CallResult:
    text = "\n".join(_text(block) for block in answer.content)
    structured = answer.structured_content
    if not answer.content and structured is not None:
        text = msgspec.json.encode(structured).decode()
    return CallResult(text=text, structured=structured, is_error=bool(answer.is_error))


def _text(block: "ContentBlock") -> str:
    """A content block as text; other blocks as a description in brackets."""
    match block.type:
        case "text":
            return block.text
        case "resource":
            return getattr(block.resource, "text", None) or f"[{block.resource.uri}]"
        case "resource_link":
            return f"[{block.uri}]"
        case kind:
            return f"[{kind}, {block.mime_type}]"


def _violation(problem: Exception) -> str:
    """What is wrong with an answer; for a validation error of the SDK, its first error."""
    errors = getattr(problem, "errors", None)
    if errors is None:
        return str(problem)
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    return f"Its answer violates the protocol: {'.'.join(map(str, first['loc']))}: {first['msg']}"


def _cause(problem: BaseException) -> str:
    """The cause in a few words; the SDK wraps exceptions in groups."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    if isinstance(problem, TimeoutError):
        return f"no answer within {OPEN_SECONDS:.0f} seconds"
    return (
        str(getattr(problem, "strerror", "") or problem).strip().partition("\n")[0] or type(problem).__name__
    ).rstrip(".")
