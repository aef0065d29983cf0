"""Workflows of an HTTP service: endpoints, bodies, headers, paging and the places of fields are settings (`shapes`).

Header values are never logged or shown. Of redirects only 303 is followed, as the answer that it is. Only addresses on
the same host are asked, so that the headers go nowhere else.
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
from workflowlookup.language.values import Json
from workflowlookup.providers.config import (
    HttpOptions,
    ProviderConfig,
)
from workflowlookup.providers.definition import LISTS, MAX_DEFINITIONS, sync_ids
from workflowlookup.providers.provider import (
    MAX_RETRY_AFTER,
    OnProgress,
    ProviderError,
    RemoteRun,
    RemoteStatus,
    hidden_error,
    read_error,
    read_json,
    read_progress,
)
from workflowlookup.providers.quickack import acknowledge_at_once
from workflowlookup.providers.secrets import NotSet, filled, filled_headers, hidden, secrets_of
from workflowlookup.providers.shapes import (
    INPUTS,
    KEY,
    NULL,
    OF_WORKFLOW,
    PLACEHOLDERS,
    PRESETS,
    RemoteState,
    fill_body,
    fill_path,
    is_null_at,
    meaning_of,
    name_path,
    run_in,
    state_of,
    value_at,
)
from workflowlookup.runs.events import RemoteError

if TYPE_CHECKING:
    import httpx2

MAX_BYTES: Final = 64 << 20
"""The longest answer that is read."""
MAX_PAGES: Final = 1_000
MAX_SHOWN: Final = 300


ACCEPTED: Final = 202
NO_CONTENT: Final = 204
SEE_OTHER: Final = 303
NOT_DONE: Final = frozenset({307, 308, *range(400, 500)} - {408})
"""The statuses by which a service says that it did not do what it was asked. Any other, such as 303 or 408 (the
connection was slow), leaves that open."""
LOCATION: Final = "location:"
"""How the id of a run begins that the service names by an address only: what follows is where its state is."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent to the service."""

    method: str
    path: str
    """Below the base address, or a whole address on the same host."""
    body: Json = None
    headers: Mapping[str, str] = {}
    takes_text: bool = False
    """Whether the answer may be text that is not JSON."""
    is_unhurried: bool = False
    """Whether the answer may take as long as the caller waits."""
    takes_other: bool = False
    """Whether 303 is an answer: it was done, and what came of it is at the address in `Location`."""


class Answer(msgspec.Struct, frozen=True):
    """A response with a status of 2xx, or 303 where the request takes it."""

    value: Json
    """The body, decoded; None when it is empty."""
    status: int
    headers: Mapping[str, str]
    """By name in small letters."""


class HttpProvider:
    """A service with endpoints for workflows."""

    def __init__(self, config: ProviderConfig) -> None:
        self.options = options = msgspec.convert(config.options, HttpOptions)
        preset = PRESETS[options.preset]
        self.name = config.name
        self._endpoints = {
            name: preset.endpoints[name] if (given := getattr(options, name)) is None else given
            for name in PLACEHOLDERS
        }
        self._bodies = {
            name: preset.bodies.get(name) if (given := getattr(options, f"{name}_body")) is None else given
            for name in PLACEHOLDERS
        }
        self.can = frozenset(name for name in ("start", "status", "cancel") if self._endpoints[name])
        self._fields = {**preset.fields, **options.fields}
        self._paging = options.paging or preset.paging
        self._sync_ids: frozenset[str] | None = None
        """The workflows whose start is answered with the result, as of the last list."""
        texts = (options.base_url, *options.headers.values())
        self._secrets = secrets_of(texts, options.headers.values())
        self._client: httpx2.AsyncClient | None = None
        self._at_work = 0
        self._is_left = False

    async def list(self) -> Json:
        described = [workflow.listed() for workflow in self.options.workflows]
        found: Sequence[Json] = described or await self._pages()
        self._sync_ids = sync_ids(found)
        return found

    async def _pages(self) -> Sequence[Json]:
        request = self._request("list")
        found: list[Json] = []
        address, seen = request.path, set[str]()
        for page in range(1, MAX_PAGES + 1):
            answer = (await self._ask(msgspec.structs.replace(request, path=address))).value
            items = self._items(answer)
            found += items
            seen.add(address)
            following = self._next_page(answer, address, page, len(items), len(found))
            if following is None or following in seen or len(found) > MAX_DEFINITIONS:
                break
            address = following
        return found

    def _items(self, answer: Json) -> Sequence[Json]:
        place = self._fields["workflows"]
        items = value_at(answer, place) if place and isinstance(answer, Mapping) else answer
        if items is None and is_null_at(answer, place):
            return []  # how services in Go say that there are none
        if isinstance(items, Mapping):
            items = next((items[name] for name in LISTS if isinstance(items.get(name), list)), None)
        if not isinstance(items, list):
            raise ProviderError(f"the provider '{self.name}' did not answer with a list of workflows")
        return [self._mapped(item) for item in items]

    def _mapped(self, item: Json) -> Json:
        """A workflow with its fields named as ours."""
        if not isinstance(item, Mapping):
            return item
        found = {name: value_at(item, self._fields[name]) for name in OF_WORKFLOW}
        for name in ("id", "version"):  # numbers are how many services count
            if isinstance(number := found[name], int) and not isinstance(number, bool):
                found[name] = str(number)
        if found["description"] in (None, ""):
            found["description"] = found["name"]  # better than no tool: many services have no descriptions
        return {name: value for name, value in found.items() if value is not None}

    def _next_page(self, answer: Json, address: str, page: int, items: int, so_far: int) -> str | None:
        """Where the list goes on from the page at `address`; None at its end."""
        path = self._request("list").path
        paging = self._paging
        joined = "&" if "?" in path else "?"
        if paging.next:
            following = value_at(answer, paging.next) if isinstance(answer, Mapping) else None
            if following in (None, "", False):
                return None
            if paging.parameter:
                return f"{path}{joined}{quote(paging.parameter)}={quote(str(following), safe='')}"
            return self._same_host(self._whole(address), str(following), "its next page")
        if not paging.parameter or not items:
            return None
        total = value_at(answer, paging.total) if paging.total and isinstance(answer, Mapping) else None
        if paging.total and (not isinstance(total, int) or so_far >= total):
            return None
        return f"{path}{joined}{quote(paging.parameter)}={so_far if paging.offset else page + 1}"

    def _same_host(self, base: str, address: str, what: str) -> str:
        """An address as it is seen from `base`, with our credentials. Raises `ProviderError` for another host."""
        here = urlsplit(self._base())
        try:
            there = urlsplit(urljoin(base, address))
            is_same = (there.scheme, there.hostname, _port(there)) == (here.scheme, here.hostname, _port(here))
        except ValueError:  # a host or a port that is none
            is_same = False
        if not is_same:
            raise ProviderError(f"the provider '{self.name}' has {what} on another host", maybe_started=True)
        return there._replace(netloc=here.netloc).geturl()

    async def start(
        self, workflow_id: str, arguments: Mapping[str, Json], key: str, on_progress: OnProgress | None = None
    ) -> RemoteRun:
        del on_progress  # a run here has a state of its own
        inputs = {name: make(arguments) for name, make in INPUTS.items()}
        request = self._request("start", id=workflow_id, key=key, **inputs)
        is_sync = self._is_sync(workflow_id)
        answer = await self._ask(
            msgspec.structs.replace(
                request,
                headers={self.options.key_header: key} if key else {},
                takes_text=is_sync is not False or not self._fields["runId"],
                is_unhurried=is_sync is True,
                takes_other=True,
            )
        )
        if is_sync and answer.status != SEE_OTHER and (result := self._result(answer.value)).state != "running":
            return RemoteRun(remote_id="", result=result)
        run_id = key if self._fields["runId"] == KEY else value_at(answer.value, self._fields["runId"])
        if isinstance(run_id, str | int) and not isinstance(run_id, bool) and run_id != "":
            return RemoteRun(remote_id=str(run_id))
        if (location := answer.headers.get("location")) and "status" in self.can:
            return RemoteRun(remote_id=self._run_at(self._whole(request.path), location))
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
            f"{name_path(self._fields['runId'])}",
            maybe_started=True,
        )

    def _is_sync(self, workflow_id: str) -> bool | None:
        """Whether a start of this workflow is answered with its result; None when that is not known yet."""
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
        """The result in the answer to a start. A state in it counts only if the settings say where it is."""
        if "state" in self.options.fields and value_at(value, self._fields["state"]) is not None:
            return self._status(value)
        output = value_at(value, self._fields["output"]) if "output" in self.options.fields else value
        return RemoteStatus(state="completed", output=self._decoded(output))

    def _run_at(self, base: str, location: str) -> str:
        """What a run is called that has its state at this address: its id, or the address where it has none."""
        address = self._same_host(base, location, "the state of its run")
        below = address.removeprefix(self._base())
        if below == address:  # kept without credentials
            there = urlsplit(address)
            return LOCATION + there._replace(netloc=there.netloc.rpartition("@")[2]).geturl()
        run_id = run_in(self._endpoints["status"], f"/{below}")
        return LOCATION + below if run_id is None else unquote(run_id)

    async def status(self, workflow_id: str, remote_id: str) -> RemoteStatus:
        is_address = remote_id.startswith(LOCATION)
        if is_address:
            below = remote_id.removeprefix(LOCATION)
            where = self._same_host(self._base(), self._whole(below), "the state of its run")
            request = Request(method="GET", path=where, takes_text=True)
        else:
            request = self._request("status", id=workflow_id, run=remote_id)
        answer = await self._ask(msgspec.structs.replace(request, takes_other=True))
        if answer.status == SEE_OTHER:
            where = self._same_host(self._whole(request.path), answer.headers["location"], "the result of its run")
            answer, is_address = await self._ask(Request(method="GET", path=where, takes_text=True)), True
        pause = retry_after(answer.headers)
        if value_at(answer.value, self._fields["state"]) is not None:
            return self._status(answer.value, pause)
        if answer.status == ACCEPTED:
            return RemoteStatus(state="running", retry_after=pause)
        if answer.status == NO_CONTENT or is_address:
            return RemoteStatus(state="completed", output=self._decoded(answer.value))
        if isinstance(answer.value, Mapping):
            return self._status(answer.value, pause)
        raise ProviderError(f"the provider '{self.name}' did not answer with the state of a run")

    def _status(self, answer: Json, pause: float | None = None) -> RemoteStatus:
        said = value_at(answer, self._fields["state"])
        state = state_of(said, self.options.states)
        output = self._decoded(value_at(answer, self._fields["output"]))
        error = None
        if state == "failed":  # it may repeat what it was sent
            error = self._error(value_at(answer, self._fields["error"]))
            output = hidden_error(RemoteError(output=output), self._secrets).output
        return RemoteStatus(
            state=state,
            output=output,
            error=error,
            progress=read_progress(value_at(answer, self._fields["progress"])),
            said=said if isinstance(said, str) else "",
            is_known=meaning_of(said, self.options.states) is not None,
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
        return error and hidden_error(error, self._secrets)

    async def cancel(self, workflow_id: str, remote_id: str) -> RemoteState | None:
        if not remote_id:
            raise NotSupported(f"The provider '{self.name}' did not say which run it started.", provider=self.name)
        if remote_id.startswith(LOCATION):
            raise NotSupported(f"The provider '{self.name}' gives its run no id to cancel it by.", provider=self.name)
        request = self._request("cancel", id=workflow_id, run=remote_id)
        if request.body is None and request.method not in ("GET", "DELETE"):
            request = msgspec.structs.replace(request, body={})
        answer = (await self._ask(request)).value
        if not isinstance(answer, Mapping):
            return None
        if isinstance(is_cancelled := answer.get("cancelled"), bool):
            return "cancelled" if is_cancelled else "running"
        return self._status(answer).state if value_at(answer, self._fields["state"]) is not None else None

    async def aclose(self) -> None:
        """Close, once nothing is at work here: a run goes on to its end by the settings that it began with."""
        self._is_left = True
        client = self._client
        if client is not None and not self._at_work:
            self._client = None
            await client.aclose()

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────

    def _request(self, name: str, **values: Json) -> Request:
        """What is sent to an endpoint. Raises `NotSupported` when there is no such endpoint."""
        endpoint = self._endpoints[name]
        if not endpoint:
            raise NotSupported(f"The provider '{self.name}' has no endpoint for this: {name}.", provider=self.name)
        method, _, path = endpoint.partition(" ")
        path = fill_path(path, {place: str(values[place]) for place in PLACEHOLDERS[name]})
        return Request(method=method, path=path, body=fill_body(self._bodies[name], {**values, NULL: None}))

    def _base(self) -> str:
        return filled(self.options.base_url, f"the provider '{self.name}'").rstrip("/") + "/"

    def _place(self) -> str:
        """The host as the settings name it, without a password, and without what variables stand for."""
        return urlsplit(self.options.base_url).netloc.rpartition("@")[2] or "its base_url"

    def _whole(self, path: str) -> str:
        return path if path.startswith(("http://", "https://")) else self._base() + path.lstrip("/")

    def _opened(self) -> "httpx2.AsyncClient":
        if self._client is None:
            import httpx2  # noqa: PLC0415 - loaded when a service is first asked

            from workflowlookup.logs import join_log  # noqa: PLC0415

            join_log("httpx2", "httpcore2")
            headers = filled_headers(self.options.headers, f"the provider '{self.name}'")
            self._client = httpx2.AsyncClient(
                headers=headers,
                timeout=self.options.timeout,
                follow_redirects=False,
                event_hooks={"response": [acknowledge_at_once]},
            )
        return self._client

    async def _ask(self, request: Request) -> Answer:
        """The answer of the service, decoded. Raises `ProviderError` without anything secret in it."""
        self._at_work += 1
        try:
            return await self._exchange(request)
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

    async def _exchange(self, request: Request) -> Answer:
        import httpx2  # noqa: PLC0415 - as above

        who = f"the provider '{self.name}'"
        try:
            client = self._opened()
            seconds = None if request.is_unhurried else self.options.timeout
            async with (
                asyncio.timeout(seconds),  # for all of it: the client's own is for each piece
                client.stream(
                    request.method,
                    self._whole(request.path),
                    json=request.body,
                    headers=dict(request.headers),
                    timeout=httpx2.Timeout(seconds, connect=self.options.timeout),
                ) as response,
            ):
                data = await self._read(response)
                status, received = response.status_code, dict(response.headers)
        except NotSet as problem:
            raise ProviderError(str(problem)) from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as problem:
            raise ProviderError(f"{who} cannot be reached at {self._place()}: {_cause(problem)}") from None
        except (httpx2.TimeoutException, TimeoutError):
            message = f"{who} did not answer within {self.options.timeout:g} seconds"
            raise ProviderError(message, maybe_started=True) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as problem:
            raise ProviderError(f"{who} cannot be asked: {_cause(problem)}", maybe_started=True) from None
        if status == SEE_OTHER and request.takes_other and received.get("location"):
            return Answer(None, status, received)
        if not 200 <= status < 300:
            error = _refusal(status, data)
            said = f": {' '.join(error.message.split())[:MAX_SHOWN]}" if error.message else ""
            raise ProviderError(
                f"{who} answered with HTTP status {status}{said}",
                maybe_started=status not in NOT_DONE,
                status=status,
                error=error,
                retry_after=retry_after(received),
            )
        try:
            return Answer(read_json(data) if data.strip() else None, status, received)
        except ValueError:
            if request.takes_text:
                return Answer(data.decode(errors="replace"), status, received)
            raise ProviderError(f"{who} did not answer with JSON", maybe_started=True) from None

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
    """What a refusal says; its code is the HTTP status where the body has none."""
    try:
        answer = read_json(data)
    except ValueError:
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
        except (ValueError, TypeError, OverflowError):  # no date, or one that no calendar has
            return None
    if seconds is None or not math.isfinite(seconds):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def _cause(problem: BaseException) -> str:
    return str(problem).strip().partition("\n")[0].rstrip(".") or type(problem).__name__
