"""Workflows of an HTTP service: its endpoints, bodies, headers, paging and fields are settings (`shapes`).

Header values are never logged or shown. The only redirect that is followed is 303. Requests go only to the host in the
settings, so the headers reach no other.
"""

import asyncio
import email.utils
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

import msgspec

from workflowlookup.errors import NotSupported
from workflowlookup.language.text import redact
from workflowlookup.language.values import Json
from workflowlookup.providers.config import HttpOptions, ProviderConfig
from workflowlookup.providers.definition import LISTS, MAX_DEFINITIONS, sync_ids
from workflowlookup.providers.provider import (
    MAX_RETRY_AFTER,
    OnProgress,
    ProviderError,
    RemoteRun,
    RemoteStatus,
    read_error,
    read_json,
    read_progress,
    redact_error,
)
from workflowlookup.providers.quickack import acknowledge_at_once
from workflowlookup.providers.secrets import VariableNotSet, fill_headers, fill_variables, secrets_in
from workflowlookup.providers.shapes import (
    INPUTS,
    NULL,
    OF_WORKFLOW,
    PLACEHOLDERS,
    PRESETS,
    RUN_ID_IS_KEY,
    RemoteState,
    fill_body,
    fill_path,
    is_null_at,
    meaning_of,
    run_id_in,
    show_path,
    state_of,
    value_at,
)
from workflowlookup.runs.events import RemoteError

if TYPE_CHECKING:
    import httpx2

MAX_BYTES: Final = 64 << 20
"""Of an answer."""
MAX_PAGES: Final = 1_000
MAX_SHOWN: Final = 300


ACCEPTED: Final = 202
NO_CONTENT: Final = 204
SEE_OTHER: Final = 303
REFUSED: Final = frozenset({307, 308, *range(400, 500)} - {408})
"""Statuses that mean the request had no effect. Any other failure, such as 408 (slow connection), leaves that open."""
LOCATION: Final = "location:"
"""Prefix of a run id if the service names the run only by a URL: the rest is the URL of its state."""


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the service."""

    method: str
    path: str
    """Relative to the base URL, or an absolute URL on the same host."""
    body: Json = None
    headers: Mapping[str, str] = {}
    allows_text: bool = False
    """Whether the answer may be text that is not JSON."""
    has_no_timeout: bool = False
    """Whether the answer may take as long as the caller waits."""
    allows_redirect: bool = False
    """Whether 303 counts as success, with the result at the URL in `Location`."""


class HttpAnswer(msgspec.Struct, frozen=True):
    """A response with status 2xx, or 303 if the request allows it."""

    value: Json
    """The decoded body; None if it is empty."""
    status: int
    headers: Mapping[str, str]
    """By name in lower case."""


class HttpProvider:
    """A service with endpoints for workflows."""

    def __init__(self, config: ProviderConfig) -> None:
        self.options = options = msgspec.convert(config.options, HttpOptions)
        preset = PRESETS[options.preset]
        self.name = config.name
        self._endpoints = {
            name: preset.endpoints[name] if (option := getattr(options, name)) is None else option
            for name in PLACEHOLDERS
        }
        self._bodies = {
            name: preset.bodies.get(name) if (option := getattr(options, f"{name}_body")) is None else option
            for name in PLACEHOLDERS
        }
        self.can = frozenset(name for name in ("start", "status", "cancel") if self._endpoints[name])
        self._fields = {**preset.fields, **options.fields}
        self._paging = options.paging or preset.paging
        self._sync_ids: frozenset[str] | None = None
        """The workflows whose start returns the result, as of the last list."""
        texts = (options.base_url, *options.headers.values())
        self._secrets = secrets_in(texts, options.headers.values())
        self._client: httpx2.AsyncClient | None = None
        self._requests = 0
        """How many requests are under way."""
        self._is_closing = False

    async def list(self) -> Json:
        static = [workflow.listed() for workflow in self.options.workflows]
        workflows: Sequence[Json] = static or await self._pages()
        self._sync_ids = sync_ids(workflows)
        return workflows

    async def _pages(self) -> Sequence[Json]:
        request = self._request("list")
        workflows: list[Json] = []
        url, visited = request.path, set[str]()
        for page in range(1, MAX_PAGES + 1):
            answer = (await self._send(msgspec.structs.replace(request, path=url))).value
            items = self._items(answer)
            workflows += items
            visited.add(url)
            next_url = self._next_page(answer, url, page, len(items), len(workflows))
            if next_url is None or next_url in visited or len(workflows) > MAX_DEFINITIONS:
                break
            url = next_url
        return workflows

    def _items(self, answer: Json) -> Sequence[Json]:
        path = self._fields["workflows"]
        items = value_at(answer, path) if path and isinstance(answer, Mapping) else answer
        if items is None and is_null_at(answer, path):
            return []  # services in Go send null for an empty list
        if isinstance(items, Mapping):
            items = next((items[name] for name in LISTS if isinstance(items.get(name), list)), None)
        if not isinstance(items, list):
            raise ProviderError(f"the provider '{self.name}' did not answer with a list of workflows")
        return [self._mapped(item) for item in items]

    def _mapped(self, item: Json) -> Json:
        """A workflow with our names of its fields."""
        if not isinstance(item, Mapping):
            return item
        fields = {name: value_at(item, self._fields[name]) for name in OF_WORKFLOW}
        for name in ("id", "version"):  # numbers in many services
            if isinstance(number := fields[name], int) and not isinstance(number, bool):
                fields[name] = str(number)
        if fields["description"] in (None, ""):
            fields["description"] = fields["name"]  # many services have no descriptions
        return {name: value for name, value in fields.items() if value is not None}

    def _next_page(self, answer: Json, url: str, page: int, items: int, so_far: int) -> str | None:
        """The URL of the page after `url`; None at the end of the list."""
        path = self._request("list").path
        paging = self._paging
        separator = "&" if "?" in path else "?"
        if paging.next:
            next_page = value_at(answer, paging.next) if isinstance(answer, Mapping) else None
            if next_page in (None, "", False):
                return None
            if paging.parameter:
                return f"{path}{separator}{quote(paging.parameter)}={quote(str(next_page), safe='')}"
            return self._same_host(self._absolute(url), str(next_page), "its next page")
        if not paging.parameter or not items:
            return None
        total = value_at(answer, paging.total) if paging.total and isinstance(answer, Mapping) else None
        if paging.total and (not isinstance(total, int) or so_far >= total):
            return None
        return f"{path}{separator}{quote(paging.parameter)}={so_far if paging.offset else page + 1}"

    def _same_host(self, base: str, url: str, what: str) -> str:
        """The URL, resolved against `base`, with our credentials. Raises `ProviderError` for another host."""
        own = urlsplit(self._base())
        try:
            target = urlsplit(urljoin(base, url))
            is_same = (target.scheme, target.hostname, _port(target)) == (own.scheme, own.hostname, _port(own))
        except ValueError:  # an invalid host or port
            is_same = False
        if not is_same:
            raise ProviderError(f"the provider '{self.name}' has {what} on another host", maybe_started=True)
        return target._replace(netloc=own.netloc).geturl()

    async def start(
        self, workflow_id: str, arguments: Mapping[str, Json], key: str, on_progress: OnProgress | None = None
    ) -> RemoteRun:
        del on_progress  # the status of the run has its progress
        inputs = {name: make(arguments) for name, make in INPUTS.items()}
        request = self._request("start", id=workflow_id, key=key, **inputs)
        is_sync = self._is_sync(workflow_id)
        answer = await self._send(
            msgspec.structs.replace(
                request,
                headers={self.options.key_header: key} if key else {},
                allows_text=is_sync is not False or not self._fields["runId"],
                has_no_timeout=is_sync is True,
                allows_redirect=True,
            )
        )
        if is_sync and answer.status != SEE_OTHER and (result := self._result(answer.value)).state != "running":
            return RemoteRun(remote_id="", result=result)
        run_id = key if self._fields["runId"] == RUN_ID_IS_KEY else value_at(answer.value, self._fields["runId"])
        if isinstance(run_id, str | int) and not isinstance(run_id, bool) and run_id != "":
            return RemoteRun(remote_id=str(run_id))
        if (location := answer.headers.get("location")) and "status" in self.can:
            return RemoteRun(remote_id=self._run_at(self._absolute(request.path), location))
        if value_at(answer.value, self._fields["state"]) is not None:
            status = self._status(answer.value)
            if status.state != "running":
                return RemoteRun(remote_id="", result=status)
        if is_sync is None and await self._is_listed_as_sync(workflow_id):
            return RemoteRun(remote_id="", result=self._result(answer.value))
        if answer.status == NO_CONTENT or "status" not in self.can:
            return RemoteRun(remote_id="")
        raise ProviderError(
            f"the provider '{self.name}' did not say which run it started: its answer has no "
            f"{show_path(self._fields['runId'])}",
            maybe_started=True,
        )

    def _is_sync(self, workflow_id: str) -> bool | None:
        """Whether a start of this workflow returns its result; None if that is not known yet."""
        if self.options.sync:
            return True
        return None if self._sync_ids is None else workflow_id in self._sync_ids

    async def _is_listed_as_sync(self, workflow_id: str) -> bool:
        try:
            await self.list()
        except ProviderError:
            return False
        return self._is_sync(workflow_id) is True

    def _result(self, value: Json) -> RemoteStatus:
        """The result in the answer to a start. A state in it counts only if the settings have its path."""
        if "state" in self.options.fields and value_at(value, self._fields["state"]) is not None:
            return self._status(value)
        output = value_at(value, self._fields["output"]) if "output" in self.options.fields else value
        return RemoteStatus(state="completed", output=self._decoded(output))

    def _run_at(self, base: str, location: str) -> str:
        """The id of the run whose state is at this URL; if the URL has no id, `LOCATION` and the URL."""
        url = self._same_host(base, location, "the state of its run")
        path = url.removeprefix(self._base())
        if path == url:  # stored without credentials
            parts = urlsplit(url)
            return LOCATION + parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        run_id = run_id_in(self._endpoints["status"], f"/{path}")
        return LOCATION + path if run_id is None else unquote(run_id)

    async def status(self, workflow_id: str, remote_id: str) -> RemoteStatus:
        is_url = remote_id.startswith(LOCATION)
        if is_url:
            path = remote_id.removeprefix(LOCATION)
            url = self._same_host(self._base(), self._absolute(path), "the state of its run")
            request = HttpRequest(method="GET", path=url, allows_text=True)
        else:
            request = self._request("status", id=workflow_id, run=remote_id)
        answer = await self._send(msgspec.structs.replace(request, allows_redirect=True))
        if answer.status == SEE_OTHER:
            url = self._same_host(self._absolute(request.path), answer.headers["location"], "the result of its run")
            answer, is_url = await self._send(HttpRequest(method="GET", path=url, allows_text=True)), True
        pause = retry_after(answer.headers)
        if value_at(answer.value, self._fields["state"]) is not None:
            return self._status(answer.value, pause)
        if answer.status == ACCEPTED:
            return RemoteStatus(state="running", retry_after=pause)
        if answer.status == NO_CONTENT or is_url:
            return RemoteStatus(state="completed", output=self._decoded(answer.value))
        if isinstance(answer.value, Mapping):
            return self._status(answer.value, pause)
        raise ProviderError(f"the provider '{self.name}' did not answer with the state of a run")

    def _status(self, answer: Json, pause: float | None = None) -> RemoteStatus:
        word = value_at(answer, self._fields["state"])
        state = state_of(word, self.options.states)
        output = self._decoded(value_at(answer, self._fields["output"]))
        error = None
        if state == "failed":  # an error may repeat what we sent
            error = self._error(value_at(answer, self._fields["error"]))
            output = redact_error(RemoteError(output=output), self._secrets).output
        return RemoteStatus(
            state=state,
            output=output,
            error=error,
            progress=read_progress(value_at(answer, self._fields["progress"])),
            word=word if isinstance(word, str) else "",
            is_known_word=meaning_of(word, self.options.states) is not None,
            retry_after=pause,
        )

    def _decoded(self, output: Json) -> Json:
        if not self.options.output_is_text or not isinstance(output, str):
            return output
        try:
            return msgspec.json.decode(output)
        except (msgspec.DecodeError, RecursionError):
            return output

    def _error(self, raw: Json) -> RemoteError | None:
        error = read_error(raw)
        return error and redact_error(error, self._secrets)

    async def cancel(self, workflow_id: str, remote_id: str) -> RemoteState | None:
        if not remote_id:
            raise NotSupported(f"The provider '{self.name}' did not say which run it started.", provider=self.name)
        if remote_id.startswith(LOCATION):
            raise NotSupported(
                f"The provider '{self.name}' gives its run no id, so it cannot be cancelled.", provider=self.name
            )
        request = self._request("cancel", id=workflow_id, run=remote_id)
        if request.body is None and request.method not in ("GET", "DELETE"):
            request = msgspec.structs.replace(request, body={})
        answer = (await self._send(request)).value
        if not isinstance(answer, Mapping):
            return None
        if isinstance(is_cancelled := answer.get("cancelled"), bool):
            return "cancelled" if is_cancelled else "running"
        return self._status(answer).state if value_at(answer, self._fields["state"]) is not None else None

    async def aclose(self) -> None:
        """Close after the last request: a run continues to its end with the settings that it started with."""
        self._is_closing = True
        client = self._client
        if client is not None and not self._requests:
            self._client = None
            await client.aclose()

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────

    def _request(self, name: str, **values: Json) -> HttpRequest:
        """The request to an endpoint. Raises `NotSupported` if the settings have no such endpoint."""
        endpoint = self._endpoints[name]
        if not endpoint:
            raise NotSupported(f"The provider '{self.name}' has no endpoint for this: {name}.", provider=self.name)
        method, _, path = endpoint.partition(" ")
        path = fill_path(path, {placeholder: str(values[placeholder]) for placeholder in PLACEHOLDERS[name]})
        return HttpRequest(method=method, path=path, body=fill_body(self._bodies[name], {**values, NULL: None}))

    def _base(self) -> str:
        return fill_variables(self.options.base_url, f"the provider '{self.name}'").rstrip("/") + "/"

    def _host(self) -> str:
        """The host as written in the settings: without password, variables not expanded."""
        return urlsplit(self.options.base_url).netloc.rpartition("@")[2] or "its base_url"

    def _absolute(self, path: str) -> str:
        return path if path.startswith(("http://", "https://")) else self._base() + path.lstrip("/")

    def _opened(self) -> "httpx2.AsyncClient":
        if self._client is None:
            import httpx2  # noqa: PLC0415 - loaded with the first request

            from workflowlookup.logs import capture_library_logs  # noqa: PLC0415

            capture_library_logs("httpx2", "httpcore2")
            headers = fill_headers(self.options.headers, f"the provider '{self.name}'")
            self._client = httpx2.AsyncClient(
                headers=headers,
                timeout=self.options.timeout,
                follow_redirects=False,
                event_hooks={"response": [acknowledge_at_once]},
            )
        return self._client

    async def _send(self, request: HttpRequest) -> HttpAnswer:
        """The decoded answer of the service. Raises `ProviderError`, with our secrets replaced."""
        self._requests += 1
        try:
            return await self._exchange(request)
        except ProviderError as problem:
            raise ProviderError(
                redact(str(problem), self._secrets),
                maybe_started=problem.maybe_started,
                status=problem.status,
                error=problem.error and redact_error(problem.error, self._secrets),
                retry_after=problem.retry_after,
                is_unreadable=problem.is_unreadable,
            ) from None
        finally:
            self._requests -= 1
            if self._is_closing:
                await self.aclose()

    async def _exchange(self, request: HttpRequest) -> HttpAnswer:
        import httpx2  # noqa: PLC0415 - as above

        provider = f"the provider '{self.name}'"
        try:
            client = self._opened()
            seconds = None if request.has_no_timeout else self.options.timeout
            async with (
                asyncio.timeout(seconds),  # for the whole exchange; the client's own timeout is per read
                client.stream(
                    request.method,
                    self._absolute(request.path),
                    json=request.body,
                    headers=dict(request.headers),
                    timeout=httpx2.Timeout(seconds, connect=self.options.timeout),
                ) as response,
            ):
                data = await self._read(response)
                status, received = response.status_code, dict(response.headers)
        except VariableNotSet as problem:
            raise ProviderError(str(problem)) from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as problem:
            raise ProviderError(f"{provider} cannot be reached at {self._host()}: {_cause(problem)}") from None
        except (httpx2.TimeoutException, TimeoutError):
            message = f"{provider} did not answer within {self.options.timeout:g} seconds"
            raise ProviderError(message, maybe_started=True) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as problem:
            raise ProviderError(f"the request to {provider} failed: {_cause(problem)}", maybe_started=True) from None
        if status == SEE_OTHER and request.allows_redirect and received.get("location"):
            return HttpAnswer(None, status, received)
        if not 200 <= status < 300:
            error = _refusal(status, data)
            detail = f": {' '.join(error.message.split())[:MAX_SHOWN]}" if error.message else ""
            raise ProviderError(
                f"{provider} answered with HTTP status {status}{detail}",
                maybe_started=status not in REFUSED,
                status=status,
                error=error,
                retry_after=retry_after(received),
            )
        try:
            return HttpAnswer(read_json(data) if data.strip() else None, status, received)
        except ValueError:
            if request.allows_text:
                return HttpAnswer(data.decode(errors="replace"), status, received)
            raise ProviderError(f"{provider} did not answer with JSON", maybe_started=True) from None

    async def _read(self, response: "httpx2.Response") -> bytes:
        data = bytearray()
        async for chunk in response.aiter_bytes():
            data += chunk
            if len(data) > MAX_BYTES:
                is_done = 200 <= response.status_code < 300
                message = f"the provider '{self.name}' answered with more than {MAX_BYTES:,} bytes"
                raise ProviderError(message, maybe_started=True, is_unreadable=is_done)
        return bytes(data)


def _port(address: SplitResult) -> int:
    return address.port or (443 if address.scheme == "https" else 80)


def _refusal(status: int, data: bytes) -> RemoteError:
    """The error in a refusal; its code is the HTTP status if the body has none."""
    try:
        answer = read_json(data)
    except ValueError:
        return RemoteError(code=str(status))
    error = (read_error(answer) if isinstance(answer, Mapping) else None) or RemoteError()
    return msgspec.structs.replace(error, code=error.code or str(status))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait according to `Retry-After`, a number or a date."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value) if value else None
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):  # not a date, or out of range
            return None
    if seconds is None or not math.isfinite(seconds):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def _cause(problem: BaseException) -> str:
    return str(problem).strip().partition("\n")[0].rstrip(".") or type(problem).__name__
