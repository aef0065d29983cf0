"""Services over HTTP: paging, fields, headers from the environment."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest

from support.json_values import Json, JsonObject
from upstream.upstreams import HttpUpstream
from workflowlookup.providers.config import ProviderConfig
from workflowlookup.providers.http import HttpProvider
from workflowlookup.providers.provider import ProviderError, RemoteStatus

T = TypeVar("T")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[HttpUpstream]:
    with HttpUpstream(tmp_path / "svc") as made:
        yield made


def ask(service: "HttpUpstream|Service", what: Callable[[HttpProvider], Awaitable[T]], **options: Any) -> T:
    async def go() -> T:
        provider = HttpProvider(ProviderConfig(name="svc", kind="http", options={"base_url": service.url, **options}))
        try:
            return await what(provider)
        finally:
            await provider.aclose()

    return asyncio.run(go())


def flows(count: int) -> list[JsonObject]:
    return [{"id": f"w{n}", "name": f"W {n}", "description": "d"} for n in range(count)]


def test_every_page_of_a_list_is_read(service: HttpUpstream) -> None:
    service.control(workflows=flows(25), page=10)

    listing = ask(service, lambda provider: provider.list())

    assert [item["id"] for item in listing] == [f"w{n}" for n in range(25)]
    assert [seen["path"] for seen in service.seen("list")] == ["/workflows", "/workflows?page=2", "/workflows?page=3"]


def test_pages_can_be_counted(service: HttpUpstream) -> None:
    service.control(workflows=flows(5), page=2)

    listing = ask(service, lambda provider: provider.list(), paging={"parameter": "page", "total": "total"})

    assert len(listing) == 5


def test_header_values_come_from_the_environment_and_are_never_shown(
    service: HttpUpstream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SVC_TOKEN", "hush-hush")
    service.control(token="Api-Key hush-hush")
    caplog.set_level(logging.DEBUG)
    headers = {"Authorization": "Api-Key ${SVC_TOKEN}"}

    assert ask(service, lambda provider: provider.list(), headers=headers)
    monkeypatch.setenv("SVC_TOKEN", "wrong-hush")
    with pytest.raises(ProviderError) as problem:
        ask(service, lambda provider: provider.list(), headers=headers)

    assert str(problem.value) == "the provider 'svc' answered with HTTP status 401: who are you?"
    assert "hush" not in caplog.text


def test_a_variable_that_is_not_set_is_named(service: HttpUpstream) -> None:
    with pytest.raises(ProviderError, match="needs the environment variable NO_SUCH_TOKEN, which is not set"):
        ask(service, lambda provider: provider.list(), headers={"Authorization": "${NO_SUCH_TOKEN}"})


def test_a_next_page_on_another_host_is_not_followed(service: HttpUpstream) -> None:
    service.control(workflows={"items": flows(1), "next": "http://elsewhere.example/workflows"})

    with pytest.raises(ProviderError, match="has its next page on another host"):
        ask(service, lambda provider: provider.list())


def test_a_list_that_is_null_is_empty_and_one_that_is_missing_is_an_error(service: HttpUpstream) -> None:
    service.control(workflows={"metadata": {}, "items": None})

    assert ask(service, lambda provider: provider.list(), fields={"workflows": "items"}) == []
    with pytest.raises(ProviderError, match="did not answer with a list of workflows"):
        ask(service, lambda provider: provider.list(), fields={"workflows": "metadata.items"})


@pytest.mark.parametrize(
    "place", ["http://[", "http://127.0.0.1:99999/x", "//elsewhere.example/x", "file:///etc/passwd"]
)
def test_an_invalid_or_foreign_address_is_not_requested(service: HttpUpstream, place: str) -> None:
    service.control(runs={"*": {"location": place}})

    with pytest.raises(ProviderError, match="has the state of its run on another host") as problem:
        ask(service, lambda provider: provider.start("x", {}, ""), start="POST /jobs/{id}")

    assert problem.value.maybe_started


def test_a_password_in_the_base_address_is_used_at_a_location_and_is_not_part_of_the_run(service: HttpUpstream) -> None:
    service.control(runs={"*": {"seconds": 0, "output": 7}})
    base = service.url.replace("http://", "http://me:hush-hush@")

    async def go(provider: HttpProvider) -> tuple[str, RemoteStatus]:
        run = await provider.start("report", {}, "")
        return run.remote_id, await provider.status("report", run.remote_id)

    remote_id, status = ask(service, go, base_url=base, start="POST /jobs/{id}")

    assert (remote_id.startswith("location:jobs/status/"), "hush" in remote_id) == (True, False)
    assert (status.state, status.output) == ("completed", 7)
    assert service.seen("status")[0]["headers"]["authorization"].startswith("Basic ")


def test_endpoints_bodies_fields_and_states_are_settings(service: HttpUpstream) -> None:
    service.control(
        workflows=[{"key": 7, "label": "Seven", "about": "d"}], runs={"*": {"seconds": 0, "outcome": "halted"}}
    )

    async def go(provider: HttpProvider) -> tuple[Json, RemoteStatus]:
        (item,) = await provider.list()
        run = await provider.start(item["id"], {"a": 1}, "k-1")
        return item, await provider.status(item["id"], run.remote_id)

    item, status = ask(
        service,
        go,
        fields={"id": "key", "name": "label", "description": "about"},
        start_body={"input": {"wrapped": "$input", "key": "$key"}},
        states={"HALTED": "failed"},
        key_header="X-Key",
    )

    assert item == {"id": "7", "name": "Seven", "description": "d"}
    (start,) = service.seen("start")
    assert (start["body"], start["headers"]["x-key"]) == ({"input": {"wrapped": {"a": 1}, "key": "k-1"}}, "k-1")
    assert status.state == "failed"


def test_an_id_is_a_name_and_not_a_path(service: HttpUpstream) -> None:
    ask(service, lambda provider: provider.start("../../secrets?x=1", {}, ""))

    assert service.seen("start")[0]["path"] == "/workflows/..%2F..%2Fsecrets%3Fx%3D1/runs"


class Service(ThreadingHTTPServer):
    """A service on loopback."""

    daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextlib.contextmanager
def serving(answer: Callable[..., None]) -> Iterator[Service]:
    """A service that does what `answer` does with each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with Service(("127.0.0.1", 0), Handler) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield service
        service.shutdown()


def reply(request: BaseHTTPRequestHandler, status: int, text: str) -> None:
    request.send_response(status)
    request.send_header("Content-Length", str(len(text)))
    request.end_headers()
    request.wfile.write(text.encode())


def test_an_answer_that_trickles_in_times_out() -> None:
    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "1000000")
        request.end_headers()
        with contextlib.suppress(OSError):
            while True:
                request.wfile.write(b" ")
                time.sleep(0.05)

    with serving(drip) as service, pytest.raises(ProviderError, match=r"did not answer within 0\.5 seconds"):
        ask(service, lambda provider: asyncio.wait_for(provider.list(), 15), timeout=0.5)


@pytest.mark.parametrize("value", ["Bearer ${SVC_TOKEN}", "Bearer hush-hush-hush"])
def test_a_secret_repeated_by_a_service_is_redacted(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SVC_TOKEN", "hush-hush-hush\n")  # as it comes from a file

    with (
        serving(
            lambda request: reply(request, 401, f'{{"error": "no {request.headers["Authorization"]}"}}')
        ) as service,
        pytest.raises(ProviderError) as problem,
    ):
        ask(service, lambda provider: provider.list(), headers={"Authorization": value})

    assert str(problem.value) == "the provider 'svc' answered with HTTP status 401: no Bearer …"


def test_an_invalid_header_is_named_without_its_value(service: HttpUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVC_TOKEN", "hush\nhush")

    with pytest.raises(ProviderError) as problem:
        ask(service, lambda provider: provider.list(), headers={"Authorization": "Bearer ${SVC_TOKEN}"})

    assert "cannot send the header 'Authorization'" in str(problem.value)
    assert "hush" not in str(problem.value)


def test_the_address_of_the_next_page_is_seen_from_the_page_before_and_pages_that_go_round_are_read_once() -> None:
    pages = {
        "/api/workflows": "?page=2",
        "/api/workflows?page=2": "workflows?page=3",
        "/api/workflows?page=3": "?page=2",
    }
    requests = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        requests.append(request.path)
        reply(request, 200, f'{{"items": [], "next": "{pages[request.path]}"}}')

    with serving(answer) as service:
        ask(service, lambda provider: provider.list(), base_url=f"{service.url}/api")

    assert requests == list(pages)


def test_a_request_in_progress_completes_when_the_settings_change(service: HttpUpstream) -> None:
    service.control(delay=0.5)

    async def go(provider: HttpProvider) -> Json:
        asking = asyncio.create_task(provider.list())
        await asyncio.to_thread(service.wait_for, "list")
        await provider.aclose()
        return await asking

    assert [item["id"] for item in ask(service, go)] == ["deploy"]
