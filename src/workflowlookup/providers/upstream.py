"""MCP servers that we are a client of: their tools are called by steps, and some have workflows.

One session a server, through the official SDK's client, which speaks both eras; opened when it is first needed, and
again when it broke. All of this is for one event loop. Cancelling a task that awaits `call` cancels the call in the
server; `stop` then makes sure of it where the server is a process of ours.
"""

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup.errors import ProviderAway
from workflowlookup.language.values import Json, Progress
from workflowlookup.logs import join_log
from workflowlookup.providers.config import ServerConfig
from workflowlookup.providers.provider import OnProgress, hidden_error, read_error
from workflowlookup.providers.quickack import acknowledge_at_once
from workflowlookup.providers.secrets import NotSet, expanded, hidden, server_secrets
from workflowlookup.runs.events import RemoteError

if TYPE_CHECKING:
    import httpx2
    from mcp import Client, MCPError
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult, ContentBlock, Tool

    from workflowlookup.providers.child import Child

log = logging.getLogger(__name__)

OPEN_SECONDS: Final = 30.0
"""How long a server may take until it can be spoken to."""
CLOSE_SECONDS: Final = 5.0
KEY: Final = "workflowlookup/idempotencyKey"
"""In `_meta`: the same for every attempt at the same call."""
_GRACE_SECONDS: Final = 0.05
_MOST_PAGES: Final = 100
_INTERNAL_ERROR: Final = "-32603"
_LOST: Final = frozenset({"Connection closed", "Session terminated", "Server returned an error response"})
"""What the SDK says in the server's place when no answer came; its codes are used by servers, too."""


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool answered."""

    text: str
    structured: Json = None
    is_error: bool = False
    code: str = ""
    """Of an error of the protocol."""
    is_doubtful: bool = False
    """Whether the tool may have done its work all the same: its answer cannot be read, or is an internal error."""

    @property
    def error(self) -> RemoteError:
        """What a tool that failed said."""
        if self.code:
            return RemoteError(code=self.code, message=self.text, detail=self.structured)
        said = read_error(self.structured)
        return RemoteError(code=said.code if said else "", message=self.text, detail=self.structured)

    @property
    def value(self) -> Json:
        """The structured result if there is one, else the text."""
        return self.text if self.structured is None else self.structured


class Stopped(msgspec.Struct, frozen=True):
    """What became of work that is no longer wanted."""

    stopped: bool
    message: str
    """A sentence without its end."""
    is_pending: bool = False
    """Whether that is not known yet, so that it is worth another attempt."""


class Upstreams:
    """The servers that the settings name."""

    def __init__(self, servers: Mapping[str, ServerConfig]) -> None:
        self._servers = dict(servers)
        self._links: dict[str, _Link] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def call(  # noqa: PLR0913 - a call has this many sides
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Json],
        *,
        key: str = "",
        timeout: float | None = None,  # noqa: ASYNC109 - it covers the opening too
        on_progress: OnProgress | None = None,
    ) -> CallResult:
        """What a tool answers; an error of the tool or a refusal is an answer too.

        Raises `ProviderAway` when the server cannot be reached, and `TimeoutError`.
        """
        from mcp import MCPError  # noqa: PLC0415 - the SDK is loaded when a server is first needed

        async with asyncio.timeout(timeout), self._session(server) as link:
            client = await link.opened()
            try:
                meta: Any = {KEY: key} if key else None
                answer = await client.call_tool(
                    tool, dict(arguments), progress_callback=_reporter(on_progress), meta=meta
                )
            except MCPError as problem:
                if link.is_lost(problem):
                    raise
                return link.refusal(problem.message, problem.data, code=str(problem.code))
            except (ValueError, RuntimeError) as problem:  # what it sent is not what the protocol or its schema says
                return link.refusal(_misfit(problem), is_doubtful=True)
            result = _result(answer)
            return link.refusal(result.text, result.structured) if result.is_error else result

    async def tools(self, server: str, *, timeout: float | None = OPEN_SECONDS) -> list["Tool"]:  # noqa: ASYNC109
        """The tools of a server. Raises as `call` does."""
        found: list[Tool] = []
        cursor = None
        async with asyncio.timeout(timeout), self._session(server) as link:
            client = await link.opened()
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                found += page.tools
                cursor = page.next_cursor
                if not cursor:
                    break
        return found

    async def stop(self, server: str) -> Stopped:
        """After a call was cancelled: kill the server when it is a process of ours that does nothing else.

        It is started again when it is next needed. MCP has no answer to a cancellation: of any other server it is not
        known whether it stopped.
        """
        link = self._links.get(server)
        message = f"the MCP server '{server}' was asked to stop"
        unknown = f"{message}, and MCP has no answer to that: it may still be at work on it"
        if link is None or link.child is None or link.child.pid is None or link.at_work:
            gone = f"the MCP server '{server}' is not connected: it may still be at work on it"
            return Stopped(stopped=False, message=unknown if link else gone)
        del self._links[server]
        pid = link.child.pid
        await asyncio.sleep(_GRACE_SECONDS)  # for one that obeys
        await link.child.kill()
        await link.close()
        return Stopped(stopped=True, message=f"{message}, and its process {pid} was killed")

    def apply(self, servers: Mapping[str, ServerConfig]) -> None:
        """Other servers from now on: those that are gone or changed are closed, once nothing is at work there."""
        before, self._servers = self._servers, dict(servers)
        for name in [name for name in self._links if before.get(name) != servers.get(name)]:
            self._retire(self._links.pop(name))

    async def aclose(self) -> None:
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(link.close() for link in links), *self._closing, return_exceptions=True)

    # ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.asynccontextmanager
    async def _session(self, server: str) -> AsyncIterator["_Link"]:
        """The link to a server, for one question. What breaks on it becomes `ProviderAway`."""
        from mcp import MCPError  # noqa: PLC0415 - as above

        link = self._link(server)
        with link.working():
            try:
                yield link
            except (MCPError, OSError, ValueError, RuntimeError) as problem:
                if isinstance(problem, TimeoutError):  # of the one who waits
                    raise
                self._forget(server, link)
                raise await link.away(problem) from problem

    def _link(self, server: str) -> "_Link":
        config = self._servers.get(server)
        if config is None:
            named = ", ".join(sorted(self._servers)) or "none"
            raise ProviderAway(
                f"The settings name no MCP server '{server}'. Those that they name: {named}.", server=server
            )
        link = self._links.get(server)
        if link is not None and link.is_broken:
            self._forget(server, link)
            link = None
        if link is None:
            try:
                link = self._links[server] = _Link(expanded(config), server_secrets(config))
            except NotSet as problem:
                raise ProviderAway(f"{str(problem)[0].upper()}{str(problem)[1:]}.", server=server) from problem
        return link

    def _forget(self, server: str, link: "_Link") -> None:
        if self._links.get(server) is link:
            del self._links[server]
            self._retire(link)

    def _retire(self, link: "_Link") -> None:
        task = asyncio.create_task(link.retire(), context=contextvars.Context())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class _Link:
    """One session with one server, kept open by a task of its own: who opened it must close it."""

    def __init__(self, config: ServerConfig, secrets: frozenset[str]) -> None:
        self.config = config
        self._secrets = secrets
        self.child: Child | None = None
        self.at_work = 0
        """How many questions are under way."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._last_status = 0
        self._close = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(lambda future: future.cancelled() or future.exception())  # is told to who asks
        # In a context of its own: it outlives the call for which it is opened.
        self._keeper = asyncio.create_task(self._keep(), context=contextvars.Context())

    async def opened(self) -> "Client":
        """The session, once it is there. Raises `ProviderAway`."""
        try:
            return await asyncio.shield(self._ready)
        except ProviderAway as problem:
            problem.was_sent = False
            raise

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        self.at_work += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.at_work -= 1
            if not self.at_work:
                self._idle.set()

    @property
    def is_broken(self) -> bool:
        return self._keeper.done() or self._close.is_set() or (self.child is not None and self.child.gone.is_set())

    def is_lost(self, problem: "MCPError") -> bool:
        """Whether it is the session that failed, and not the server that refused."""
        return self.is_broken or problem.message in _LOST

    async def away(self, problem: BaseException) -> ProviderAway:
        """What to tell the one who asked."""
        name = self.config.name
        if isinstance(problem, ProviderAway):
            return problem
        if self.child is not None and (self.child.gone.is_set() or self.child.pid is None):
            not_begun = f"'{self.config.command}' cannot be started: {_cause(problem)}"
            cause = await self.child.last_words() if self.child.pid else not_begun
        elif self._last_status:
            cause = f"it answered with HTTP status {self._last_status}"
        else:
            cause = _cause(problem)
        cause = hidden(cause, self._secrets)
        return ProviderAway(f"The MCP server '{name}' does not answer: {cause}.", server=name, cause=cause)

    def refusal(self, text: str, structured: Json = None, *, code: str = "", is_doubtful: bool = False) -> CallResult:
        """What a tool says went wrong, without our secrets."""
        clean = hidden_error(RemoteError(code=code, message=text, detail=structured), self._secrets)
        is_doubtful = is_doubtful or code == _INTERNAL_ERROR
        return CallResult(
            text=clean.message, structured=clean.detail, is_error=True, code=code, is_doubtful=is_doubtful
        )

    async def retire(self) -> None:
        """Close, once nothing is at work here."""
        await self._idle.wait()
        await self.close()

    async def close(self) -> None:
        self._close.set()
        if not self._ready.done():  # it does not look before it is open, which may be never
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
        except Exception as problem:  # noqa: BLE001 - whatever the server does to the SDK, it is away
            if self._ready.done():
                cause = hidden(_cause(problem), self._secrets)
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

        join_log("mcp", "httpx2", "httpcore2")
        about = Implementation(name="workflowlookup", version=__version__)
        async with contextlib.AsyncExitStack() as stack:
            if self.config.url:
                from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

                client = await stack.enter_async_context(self._http())
                transport = streamable_http_client(self.config.url, http_client=client)
            else:
                from workflowlookup.providers.child import Child  # noqa: PLC0415

                self.child = Child(self.config, self._secrets)
                transport = self.child.streams()
            yield await stack.enter_async_context(Client(transport, client_info=about, cache=None))

    def _http(self) -> "httpx2.AsyncClient":
        import httpx2  # noqa: PLC0415 - as above

        async def note(response: httpx2.Response) -> None:
            self._last_status = response.status_code if response.status_code >= 400 else 0

        return httpx2.AsyncClient(
            headers=dict(self.config.headers),
            timeout=httpx2.Timeout(OPEN_SECONDS, read=None),  # how long a call may take, the caller knows
            event_hooks={"response": [acknowledge_at_once, note]},
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
    """A piece of an answer as text; of what is no text, what it is."""
    match block.type:
        case "text":
            return block.text
        case "resource":
            return getattr(block.resource, "text", None) or f"[{block.resource.uri}]"
        case "resource_link":
            return f"[{block.uri}]"
        case kind:
            return f"[{kind}, {block.mime_type}]"


def _misfit(problem: Exception) -> str:
    """What is wrong with an answer, in a sentence; where the SDK's models refused it, by its first error."""
    errors = getattr(problem, "errors", None)
    if errors is None:
        return str(problem)
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    return f"Its answer is not what the protocol says: {'.'.join(map(str, first['loc']))}: {first['msg']}"


def _cause(problem: BaseException) -> str:
    """What went wrong, in a few words: the SDK wraps it in groups."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    if isinstance(problem, TimeoutError):
        return f"nothing came within {OPEN_SECONDS:.0f} seconds"
    return (
        str(getattr(problem, "strerror", "") or problem).strip().partition("\n")[0] or type(problem).__name__
    ).rstrip(".")
