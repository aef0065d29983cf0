"""Workflows of an HTTP service: endpoints, headers, paging and the names of fields are settings.

Header values are never logged or told. Redirects are not followed and pages are read from the same host only, so that
what is in the headers goes nowhere else.
"""

import asyncio
import email.utils
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from workflowlookup.core.events import RemoteError
from workflowlookup.core.values import Json
from workflowlookup.errors import NotSupported
from workflowlookup.providers.acknowledging import acknowledge_at_once
from workflowlookup.providers.config import (
    HttpOptions,
    NotSet,
    Paging,
    ProviderConfig,
    filled,
    filled_headers,
    hidden,
    secrets_of,
)
from workflowlookup.providers.definition import LISTS, MOST_DEFINITIONS
from workflowlookup.providers.provider import (
    MAX_RETRY_AFTER,
    OnProgress,
    ProviderError,
    RemoteRun,
    RemoteStatus,
    hidden_error,
    read_error,
    read_progress,
)
from workflowlookup.providers.states import RemoteState, meaning_of, state_of

if TYPE_CHECKING:
    import httpx2

MAX_BYTES: Final = 64 << 20
"""The longest answer that is read."""
MOST_PAGES: Final = 1_000
MOST_TOLD: Final = 300


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """How a kind of service is spoken to, unless the settings say otherwise."""

    list: str
    start: str
    status: str
    cancel: str
    start_body: Mapping[str, Json]
    fields: Mapping[str, str | Sequence[str]]
    paging: Paging


_OF_WORKFLOW: Final = ("id", "name", "description", "category", "version", "inputSchema", "executionType", "metadata")
"""The fields of a workflow, as ours are named."""
_PLAIN_FIELDS: Final = {
    **{name: name for name in _OF_WORKFLOW},
    "workflows": "",
    "runId": "runId",
    "state": "status",
    "output": "output",
    "error": "error",
    "progress": "progress",
}

PRESETS: Final[Mapping[str, Preset]] = {
    "plain": Preset(
        list="GET /workflows",
        start="POST /workflows/{id}/runs",
        status="GET /workflows/{id}/runs/{run}",
        cancel="POST /workflows/{id}/runs/{run}/cancel",
        start_body={"input": "$input"},
        fields=_PLAIN_FIELDS,
        paging=Paging(next="next"),
    ),
    "simplified": Preset(
        list="GET /api/v1/service/workflows/mcp",
        start="POST /api/v1/service/workflows/{id}/start",
        status="GET /api/v1/service/workflows/{id}/runs/{run}/status",
        cancel="",
        start_body={"input": "$input", "source": "application"},
        fields={
            **_PLAIN_FIELDS,
            "workflows": "results",
            "name": "title",
            "inputSchema": "inputs",
            "runId": "workflow_id",  # of the start's answer; "correlation_id" is for tracing
            "error": ("output.error", "output.message"),
        },
        paging=Paging(parameter="page", total="count"),
    ),
}


class Answer(msgspec.Struct, frozen=True):
    """A response with a status of 2xx."""

    value: Json
    """The body, decoded; None when it is empty."""
    status: int
    headers: Mapping[str, str]
    """By name in small letters."""


class HttpProvider:
    """A service with endpoints for workflows."""

    def __init__(self, config: ProviderConfig) -> None:
        options = msgspec.convert(config.options, HttpOptions)
        preset = PRESETS[options.preset]
        self.name = config.name
        self.interval = options.interval
        self.idempotent = options.idempotent
        self.max_concurrent = options.max_concurrent
        self.timeout_seconds = options.timeout_seconds
        self._options = options
        self._endpoints = {
            name: getattr(preset, name) if getattr(options, name) is None else getattr(options, name)
            for name in ("list", "start", "status", "cancel")
        }
        self.can = frozenset(name for name in ("start", "status", "cancel") if self._endpoints[name])
        self._fields = {**preset.fields, **options.fields}
        self._paging = options.paging or preset.paging
        self._body = preset.start_body if options.start_body is None else options.start_body
        texts = (options.base_url, *options.headers.values())
        self._secrets = secrets_of(texts, options.headers.values())
        self._client: httpx2.AsyncClient | None = None
        self._at_work = 0
        self._is_left = False

    async def list(self) -> Json:
        method, path = self._endpoint("list")
        found: list[Json] = []
        address, seen = path, set[str]()
        for page in range(1, MOST_PAGES + 1):
            answer = (await self._ask(method, address)).value
            items = self._items(answer)
            found += items
            seen.add(address)
            following = self._next_page(answer, address, page, len(items), len(found))
            if following is None or following in seen or len(found) > MOST_DEFINITIONS:
                break
            address = following
        return found

    def _items(self, answer: Json) -> Sequence[Json]:
        place = self._fields["workflows"]
        items = _at(answer, place) if place and isinstance(answer, Mapping) else answer
        if isinstance(items, Mapping):
            items = next((items[name] for name in LISTS if isinstance(items.get(name), list)), None)
        if not isinstance(items, list):
            raise ProviderError(f"the provider '{self.name}' did not answer with a list of workflows")
        return [self._mapped(item) for item in items]

    def _mapped(self, item: Json) -> Json:
        """A workflow with its fields named as ours."""
        if not isinstance(item, Mapping):
            return item
        found = {name: _at(item, self._fields[name]) for name in _OF_WORKFLOW}
        if isinstance(found["id"], int) and not isinstance(found["id"], bool):
            found["id"] = str(found["id"])  # numbers are how many services count
        return {name: value for name, value in found.items() if value is not None}

    def _next_page(self, answer: Json, address: str, page: int, items: int, so_far: int) -> str | None:
        """Where the list goes on from the page at `address`; None at its end."""
        _, path = self._endpoint("list")
        paging = self._paging
        joined = "&" if "?" in path else "?"
        if paging.next:
            following = _at(answer, paging.next) if isinstance(answer, Mapping) else None
            if following in (None, "", False):
                return None
            if paging.parameter:
                return f"{path}{joined}{quote(paging.parameter)}={quote(str(following), safe='')}"
            return self._same_host(urljoin(self._whole(address), str(following)))
        if not paging.parameter or not items:
            return None
        total = _at(answer, paging.total) if paging.total and isinstance(answer, Mapping) else None
        if paging.total and (not isinstance(total, int) or so_far >= total):
            return None
        return f"{path}{joined}{quote(paging.parameter)}={page + 1}"

    def _same_host(self, address: str) -> str:
        if urlsplit(address)[:2] != urlsplit(self._base())[:2]:
            raise ProviderError(f"the provider '{self.name}' has its next page on another host")
        return address

    async def start(
        self, workflow_id: str, arguments: Mapping[str, Json], key: str, on_progress: OnProgress | None = None
    ) -> RemoteRun:
        del on_progress  # a run here has a state of its own
        method, path = self._endpoint("start", id=workflow_id)
        body = _with_values(self._body, {"$input": dict(arguments), "$key": key})
        headers = {self._options.key_header: key} if key else {}
        answer = (await self._ask(method, path, body=body, headers=headers)).value
        run_id = _at(answer, self._fields["runId"]) if isinstance(answer, Mapping) else None
        if isinstance(run_id, str | int) and not isinstance(run_id, bool) and run_id != "":
            return RemoteRun(remote_id=str(run_id))
        if isinstance(answer, Mapping) and _at(answer, self._fields["state"]) is not None:
            return RemoteRun(remote_id="", result=self._status(answer))
        raise ProviderError(
            f"the provider '{self.name}' did not say which run it started: its answer has no "
            f"{_shown_path(self._fields['runId'])}",
            maybe_started=True,
        )

    async def status(self, workflow_id: str, remote_id: str) -> RemoteStatus:
        method, path = self._endpoint("status", id=workflow_id, run=remote_id)
        answer = await self._ask(method, path)
        if not isinstance(answer.value, Mapping):
            raise ProviderError(f"the provider '{self.name}' did not answer with the state of a run")
        return self._status(answer.value, retry_after(answer.headers))

    def _status(self, answer: Mapping[str, Json], pause: float | None = None) -> RemoteStatus:
        said = _at(answer, self._fields["state"])
        state = state_of(said, self._options.states)
        return RemoteStatus(
            state=state,
            output=_at(answer, self._fields["output"]),
            error=self._error(_at(answer, self._fields["error"])) if state == "failed" else None,
            progress=read_progress(_at(answer, self._fields["progress"])),
            said=said if isinstance(said, str) else "",
            is_known=meaning_of(said, self._options.states) is not None,
            retry_after=pause,
        )

    def _error(self, raw: Json) -> RemoteError | None:
        error = read_error(raw)
        return error and hidden_error(error, self._secrets)

    async def cancel(self, workflow_id: str, remote_id: str) -> RemoteState | None:
        if not remote_id:
            raise NotSupported(f"The provider '{self.name}' did not say which run it started.", provider=self.name)
        method, path = self._endpoint("cancel", id=workflow_id, run=remote_id)
        answer = (await self._ask(method, path, body={} if method != "DELETE" else None)).value
        if not isinstance(answer, Mapping):
            return None
        if isinstance(is_cancelled := answer.get("cancelled"), bool):
            return "cancelled" if is_cancelled else "running"
        return self._status(answer).state if _at(answer, self._fields["state"]) is not None else None

    async def aclose(self) -> None:
        """Close, once nothing is at work here: a run goes on to its end by the settings that it began with."""
        self._is_left = True
        client = self._client
        if client is not None and not self._at_work:
            self._client = None
            await client.aclose()

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────

    def _endpoint(self, name: str, **values: str) -> tuple[str, str]:
        said: str = self._endpoints[name]
        if not said:
            raise NotSupported(f"The provider '{self.name}' has no endpoint for this: {name}.", provider=self.name)
        method, _, path = said.partition(" ")
        for field, value in values.items():
            path = path.replace("{" + field + "}", quote(value, safe=""))
        return method, path

    def _base(self) -> str:
        return filled(self._options.base_url, f"the provider '{self.name}'").rstrip("/") + "/"

    def _place(self) -> str:
        """The host as the settings name it, without a password, and without what variables stand for."""
        return urlsplit(self._options.base_url).netloc.rpartition("@")[2] or "its base_url"

    def _whole(self, path: str) -> str:
        return path if "://" in path else self._base() + path.lstrip("/")

    def _opened(self) -> "httpx2.AsyncClient":
        if self._client is None:
            import httpx2  # noqa: PLC0415 - loaded when a service is first asked

            from workflowlookup.providers.foreign_logs import join_log  # noqa: PLC0415

            join_log("httpx2", "httpcore2")
            headers = filled_headers(self._options.headers, f"the provider '{self.name}'")
            self._client = httpx2.AsyncClient(
                headers=headers,
                timeout=self._options.timeout,
                follow_redirects=False,
                event_hooks={"response": [acknowledge_at_once]},
            )
        return self._client

    async def _ask(
        self, method: str, path: str, *, body: Json = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """The answer of the service, decoded. Raises `ProviderError` without anything secret in it."""
        self._at_work += 1
        try:
            return await self._exchange(method, path, body, dict(headers or {}))
        except ProviderError as problem:
            raise ProviderError(
                hidden(str(problem), self._secrets),
                maybe_started=problem.maybe_started,
                status=problem.status,
                error=problem.error and hidden_error(problem.error, self._secrets),
                retry_after=problem.retry_after,
                is_unreadable=problem.is_unreadable,
            ) from None
        finally:
            self._at_work -= 1
            if self._is_left:
                await self.aclose()

    async def _exchange(self, method: str, path: str, body: Json, headers: dict[str, str]) -> Answer:
        import httpx2  # noqa: PLC0415 - as above

        who = f"the provider '{self.name}'"
        try:
            client = self._opened()
            address = self._whole(path)
            async with (
                asyncio.timeout(self._options.timeout),  # for all of it: the client's own is for each piece
                client.stream(method, address, json=body, headers=headers) as response,
            ):
                data = await self._read(response)
                status, received = response.status_code, dict(response.headers)
        except NotSet as problem:
            raise ProviderError(str(problem)) from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as problem:
            raise ProviderError(f"{who} cannot be reached at {self._place()}: {_cause(problem)}") from None
        except (httpx2.TimeoutException, TimeoutError):
            told = f"{who} did not answer within {self._options.timeout:g} seconds"
            raise ProviderError(told, maybe_started=True) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as problem:
            raise ProviderError(f"{who} cannot be asked: {_cause(problem)}", maybe_started=True) from None
        if not 200 <= status < 300:
            error = _refusal(status, data)
            said = f": {' '.join(error.message.split())[:MOST_TOLD]}" if error.message else ""
            raise ProviderError(
                f"{who} answered with HTTP status {status}{said}",
                maybe_started=status >= 500,
                status=status,
                error=error,
                retry_after=retry_after(received),
            )
        try:
            return Answer(msgspec.json.decode(data) if data.strip() else None, status, received)
        except (msgspec.DecodeError, RecursionError):
            raise ProviderError(f"{who} did not answer with JSON", maybe_started=True) from None

    async def _read(self, response: "httpx2.Response") -> bytes:
        data = bytearray()
        async for chunk in response.aiter_bytes():
            data += chunk
            if len(data) > MAX_BYTES:
                is_done = 200 <= response.status_code < 300
                told = f"the provider '{self.name}' answered with more than {MAX_BYTES:,} bytes"
                raise ProviderError(told, maybe_started=True, is_unreadable=is_done)
        return bytes(data)


def _at(value: Json, path: str | Sequence[str]) -> Json:
    """The value at a dotted path, or at the first of several that leads to one; None when there is nothing.

    A key may have dots itself: `annotations.example.org/description`.
    """
    if not isinstance(path, str):
        return next((found for one in path if (found := _at(value, one)) not in (None, "")), None)
    while path:
        if not isinstance(value, Mapping):
            return None
        if path in value:
            return value[path]
        part, _, path = path.partition(".")
        value = value.get(part)
    return value


def _shown_path(path: str | Sequence[str]) -> str:
    return " or ".join(f"'{one}'" for one in ([path] if isinstance(path, str) else path))


def _with_values(body: Json, values: Mapping[str, Json]) -> Any:
    """The body with what is meant by "$input" and "$key" in it."""
    if isinstance(body, str):
        return values.get(body, body)
    if isinstance(body, Mapping):
        return {name: _with_values(item, values) for name, item in body.items()}
    return [_with_values(item, values) for item in body] if isinstance(body, list) else body


def _refusal(status: int, data: bytes) -> RemoteError:
    """What a refusal says; its code is the HTTP status where the body has none."""
    try:
        answer = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return RemoteError(code=str(status))
    error = (read_error(answer) if isinstance(answer, Mapping) else None) or RemoteError()
    return msgspec.structs.replace(error, code=error.code or str(status))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds a response asks us to wait: a number, or a date."""
    said = headers.get("retry-after", "").strip()
    try:
        seconds = float(said) if said else None
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(said).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    if seconds is None or not math.isfinite(seconds):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def _cause(problem: BaseException) -> str:
    return str(problem).strip().partition("\n")[0].rstrip(".") or type(problem).__name__
