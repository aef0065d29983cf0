"""One caller cannot starve the others: sessions, listeners, requests of every kind and memory are shared fairly."""

import asyncio
import concurrent.futures
import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from auth.token_server import TokenServer
from support.json_values import Json
from support.make import document, step, write
from support.processes import memory_of, peak_memory_of
from support.web import HEADERS, WebClient, modern, opening, routing
from workflowlookup.protocol.memory import MemoryMeter
from workflowlookup.shares import Shares
from workflowlookup.transport.http import rate_limits
from workflowlookup.transport.http.bodies import MAX_VALUES, count_values
from workflowlookup.transport.http.rate_limits import PROCESSOR_SHARE, ProcessorTime, RateLimiter

PING = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
BUSY = -32012


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., TokenServer]]:
    """Starts a server with these flags, and with tokens unless it is open."""
    with contextlib.ExitStack() as stack:

        def start(*flags: str, is_open: bool = False) -> TokenServer:
            token_server = TokenServer(tmp_path, *flags, is_open=is_open)
            stack.callback(token_server.close)
            return token_server

        yield start


def code_of(answer: httpx2.Response) -> tuple[int, int, bool]:
    return answer.status_code, answer.json()["error"]["code"], "retry-after" in answer.headers


# ── the rule ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("total", "share"), [(1_000, 250), (20, 8), (8, 8), (2, 2)])
def test_a_share_is_a_part_of_the_whole_and_not_too_small(total: int, share: int) -> None:
    assert Shares(total).per_caller == share


def test_a_caller_with_its_full_share_leaves_the_rest_to_others() -> None:
    shares = Shares(40)

    assert [shares.take("one") for _ in range(11)] == [True] * 10 + [False]
    assert shares.take("other")
    shares.release("one")
    assert shares.take("one")
    assert (shares.amount_of("one"), shares.amount_of("other"), shares.sum) == (10, 1, 11)


def test_all_callers_together_have_no_more_than_the_whole() -> None:
    shares = Shares(40)

    assert sum(shares.take(str(caller)) for caller in range(5) for _ in range(10)) == 40


def test_callers_of_a_server_without_tokens_have_the_whole(start: Callable[..., TokenServer]) -> None:
    client = start("--max-sessions", "40", is_open=True).client()

    answers = [client.post(opening()).status_code for _ in range(41)]

    assert answers == [200] * 40 + [429]


# ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_token_opens_its_share_of_sessions_and_ends_nobody_elses(start: Callable[..., TokenServer]) -> None:
    token_server = start("--max-sessions", "40")
    colleague, greedy = token_server.client("ci-bot"), token_server.client("reader")
    colleague.initialize()

    answers = [greedy.post(opening()) for _ in range(12)]

    assert [answer.status_code for answer in answers] == [200] * 10 + [429] * 2
    assert code_of(answers[-1]) == (429, BUSY, True)
    assert colleague.post(PING).status_code == 200
    assert token_server.client("root").post(opening()).status_code == 200


def test_if_the_server_is_full_the_caller_with_the_most_sessions_loses_one(start: Callable[..., TokenServer]) -> None:
    token_server = start("--max-sessions", "16")
    many = {name: [token_server.client(name) for _ in range(8)] for name in ("ci-bot", "reader")}
    for client in [*many["ci-bot"], *many["reader"]]:
        client.initialize()
    newcomer = token_server.client("root")

    newcomer.initialize()

    assert newcomer.post(PING).status_code == 200
    answers = {name: sorted(client.post(PING).status_code for client in clients) for name, clients in many.items()}
    assert sorted(answers.values()) == [[200] * 8, [200] * 7 + [404]]


def test_a_new_token_of_the_same_name_does_not_continue_the_session_of_the_old_one(
    own_token_server: TokenServer,
) -> None:
    old = own_token_server.client("ci-bot")
    old.initialize()
    own_token_server.tokens.revoke("ci-bot")
    own_token_server.let_in("ci-bot", ["read", "run"])

    new = own_token_server.client("ci-bot")
    new.session = old.session

    assert new.post(PING).status_code == 404


# ── listeners ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_streams_of_notifications_and_of_pages_are_shared_together(start: Callable[..., TokenServer]) -> None:
    token_server = start("--max-sessions", "40")  # and as many listeners
    greedy, other = token_server.client("reader"), token_server.client("ci-bot")
    page, accept = f"{token_server.server.base}/events", {"accept": "text/event-stream"}
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            session = token_server.client("reader")
            session.initialize()
            opened = [
                stack.enter_context(session.http.stream("GET", session.url, headers=session.session | accept)),
                stack.enter_context(greedy.http.stream("GET", page, headers=accept)),
            ]
            assert [response.status_code for response in opened] == [200, 200]
        greedy.initialize()
        refused = greedy.http.get(greedy.url, headers=greedy.session | accept)

        assert code_of(refused) == (429, BUSY, True)
        assert greedy.http.get(page, headers=accept).status_code == 429
        with other.http.stream("GET", page, headers=accept) as response:
            assert response.status_code == 200
    assert greedy.post(PING).status_code == 200


# ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pages_metrics_and_mcp_share_one_rate_limit(start: Callable[..., TokenServer]) -> None:
    token_server = start("--requests-per-minute", "6")
    hammer, other = token_server.client("root"), token_server.client("ci-bot")
    paths = ["/metrics", "/statistics", "/library", "/runs", "/health", "/metrics"]

    answers = [hammer.http.get(token_server.server.base + path) for path in paths]

    assert [answer.status_code for answer in answers] == [200] * 6
    assert code_of(hammer.post(PING)) == (429, BUSY, True)
    refused = hammer.http.get(f"{token_server.server.base}/metrics")
    assert (refused.status_code, "retry-after" in refused.headers) == (429, True)
    assert other.post(PING).status_code == 200


def test_statistics_are_cached_for_each_caller(start: Callable[..., TokenServer]) -> None:
    token_server = start()
    write(token_server.deployment.library, document(step(), identifier="docs-new"))
    agent, root, other = (token_server.client(name) for name in ("ci-bot", "root", "other"))
    pages = [f"{token_server.server.base}/statistics", f"{token_server.server.base}/statistics/docs-new"]
    before = [root.http.get(page).text for page in pages]
    agent.initialize()

    agent.request("tools/call", {"name": "workflow_start", "arguments": {"workflowId": "docs-new"}})

    assert [root.http.get(page).text for page in pages] == before
    assert "docs-new" in agent.http.get(pages[0]).text
    assert "docs-new" not in other.http.get(pages[0]).text


def test_counts_of_runs_are_cached(start: Callable[..., TokenServer]) -> None:
    token_server = start()
    write(token_server.deployment.library, document(step(), identifier="docs-new"))
    agent, root = token_server.client("ci-bot"), token_server.client("root")
    agent.initialize()

    def count() -> list[str]:
        lines = root.http.get(f"{token_server.server.base}/metrics").text.splitlines()
        return [line for line in lines if line.startswith(("workflowlookup_runs{", "workflowlookup_journal_up"))]

    before = count()
    agent.request("tools/call", {"name": "workflow_start", "arguments": {"workflowId": "docs-new"}})

    assert count() == before


def test_requests_without_a_token_are_limited_by_address_and_shut_out_no_caller(
    start: Callable[..., TokenServer],
) -> None:
    token_server = start("--requests-per-minute", "6")
    base = token_server.server.base
    paths = [
        "/static/console.css",
        "/static/console.css",
        "/.well-known/oauth-protected-resource",
        "/metrics",
        "/runs",
        "/mcp",
    ]

    with httpx2.Client() as client:
        answers = [client.get(base + path) for path in paths]
        refused = client.get(f"{base}/static/console.css")
        free = [client.get(f"{base}/healthz"), client.get(f"{base}/login")]

    assert 429 not in [answer.status_code for answer in answers]
    assert (refused.status_code, "retry-after" in refused.headers) == (429, True)
    assert [answer.status_code for answer in free] == [200, 200]
    assert token_server.client("root").post(PING).status_code == 200


def test_a_flood_without_tokens_keeps_nobody_from_logging_in(start: Callable[..., TokenServer]) -> None:
    token_server = start("--requests-per-minute", "6")
    base = token_server.server.base
    with httpx2.Client(headers={"origin": base}) as client:
        flood = [client.get(f"{base}/metrics").status_code for _ in range(8)]

        wrong = client.post(f"{base}/login", data={"token": "wl_wrong"})
        right = client.post(f"{base}/login", data={"token": token_server.secrets["root"]})
        page = client.get(f"{base}/runs")

    assert flood[-1] == 429
    assert (wrong.status_code, right.status_code, page.status_code) == (429, 303, 200)


def test_repeated_log_ins_count_against_the_limit_of_the_caller(start: Callable[..., TokenServer]) -> None:
    token_server = start("--requests-per-minute", "6")
    base, form = token_server.server.base, {"token": token_server.secrets["root"]}
    with httpx2.Client(headers={"origin": base}) as client:
        statuses = [client.post(f"{base}/login", data=form).status_code for _ in range(7)]

    assert statuses == [303] * 6 + [429]


def test_a_caller_that_uses_much_processor_time_leaves_the_rest_to_others(now: list[float]) -> None:
    processor = ProcessorTime()
    processor.seconds_to_wait("other")
    processor.seconds_to_wait("busy")
    processor.charge("busy", 1.2)

    assert processor.seconds_to_wait("busy") == pytest.approx(1.0 / PROCESSOR_SHARE)
    assert processor.seconds_to_wait("other") == 0
    now[0] += 1.0 / PROCESSOR_SHARE
    processor.seconds_to_wait("other")
    assert processor.seconds_to_wait("busy") == pytest.approx(0, abs=1e-6)


def test_a_caller_that_is_alone_may_use_all_processor_time(now: list[float]) -> None:
    processor = ProcessorTime()
    processor.seconds_to_wait("other")
    now[0] += 10.0
    processor.charge("busy", 1.2)

    assert processor.seconds_to_wait("busy") == 0


# ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────


def call_tool(client: WebClient, name: str, **arguments: Json) -> None:
    result = client.request("tools/call", {"name": name, "arguments": arguments})["result"]
    assert "isError" not in result, result


def test_delivered_responses_are_dropped_from_the_replay(start: Callable[..., TokenServer]) -> None:
    token_server = start("--requests-per-minute", "0")
    write(
        token_server.deployment.library,
        document(*(step(f"step-{number}", prompt="x" * 8_000) for number in range(55)), identifier="docs-long"),
    )
    get = {"id": "docs-long", "mode": "full"}
    first = token_server.client("root")
    first.initialize()
    answer = json.dumps(first.request("workflow_get", get))
    before = memory_of(token_server.server.process.pid)

    for _ in range(100):
        client = token_server.client("root")
        client.initialize()
        client.request("workflow_get", get)

    assert len(answer) > 400_000, answer[:500]
    assert memory_of(token_server.server.process.pid) - before < 40 << 20


@pytest.mark.parametrize("value", [b"[]", b"{}", b'"a"', b"[[]]"])
def test_a_message_with_too_many_values_is_refused_with_its_id(open_server: TokenServer, value: bytes) -> None:
    before = memory_of(open_server.server.process.pid)
    many = b",".join([value] * (1_500_000 // len(value)))
    message = b'{"jsonrpc":"2.0","id":"a-7","method":"ping","params":{"_meta":{"x":[' + many + b"]}}}"

    answer = open_server.client().post(message)

    assert (answer.status_code, answer.json()["id"]) == (413, "a-7")
    assert memory_of(open_server.server.process.pid) - before < 32 << 20


def test_a_long_text_may_have_any_number_of_commas() -> None:
    assert count_values(json.dumps(['a, \\ "quoted", b' * 200_000]).encode()) == 1
    assert count_values(b"[" + b"[]," * 300_000 + b"0]") > MAX_VALUES


@pytest.mark.parametrize(("costs", "releases"), [((0.0, 0.0), 0), ((0.05, 0.0, 0.05), 1)], ids=["cheap", "costly"])
def test_memory_is_returned_once_after_costly_requests(
    monkeypatch: pytest.MonkeyPatch, costs: tuple[float, ...], releases: int
) -> None:
    returned = []
    monkeypatch.setattr(rate_limits, "RELEASE_SECONDS", 0.0)
    monkeypatch.setattr(MemoryMeter, "release", lambda _: returned.append("all"))

    async def burn(seconds: float) -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    async def serve() -> None:
        limits = RateLimiter(0)
        scope = {"client": ("127.0.0.1", 1), "headers": []}
        await asyncio.gather(*(limits.meter(scope, burn(seconds)) for seconds in costs))
        await asyncio.sleep(0.01)

    asyncio.run(serve())
    assert len(returned) == releases


READ_LONG = {"uri": "run://long/result?step=write"}


def unread_request(token_server: TokenServer, name: str) -> tuple[socket.socket, int]:
    """A connection on which an answer of 7 MB was asked for; and the status of what came, nothing else of it read."""
    message = json.dumps(modern("resources/read", READ_LONG)).encode()
    names = {"mcp-protocol-version": "2026-07-28", "mcp-method": "resources/read", "mcp-name": READ_LONG["uri"]}
    headers = HEADERS | names | {"authorization": f"Bearer {token_server.secrets[name]}", "host": "127.0.0.1"}
    lines = ["POST /mcp HTTP/1.1", *(f"{key}: {value}" for key, value in headers.items())]
    connection = socket.create_connection(("127.0.0.1", int(token_server.server.base.rpartition(":")[2])), timeout=60)
    connection.sendall("\r\n".join([*lines, f"content-length: {len(message)}", "", ""]).encode() + message)
    return connection, int(connection.recv(12)[-3:])


def test_a_caller_that_does_not_read_its_responses_shuts_out_no_other(start: Callable[..., TokenServer]) -> None:
    token_server = start("--requests-per-minute", "0")
    write(token_server.deployment.library, document(step("write"), identifier="docs-long"))
    greedy, other = token_server.client("ci-bot"), token_server.client("reader")
    greedy.initialize()
    call_tool(greedy, "workflow_start", workflowId="docs-long", runId="long")
    call_tool(greedy, "workflow_submit", runId="long", stepId="write", output="x" + "\x01" * 1_100_000)

    with contextlib.ExitStack() as stack:
        answers = [unread_request(token_server, "ci-bot") for _ in range(8)]
        for connection, _ in answers:
            stack.enter_context(connection)

        assert [status for _, status in answers] == [200] * 3 + [429] * 5
        assert other.post(modern("workflow_list"), **routing(modern("workflow_list"))).status_code == 200
        assert httpx2.get(f"{token_server.server.base}/login").status_code == 200
        refused = unread_request(token_server, "ci-bot")[0]
        stack.enter_context(refused)
        text = refused.recv(65_536).decode()
        assert "retry-after" not in text.lower()
        assert "read those to earlier requests first" in text
    for _ in range(100):  # until the server has noticed that the client left
        connection, status = unread_request(token_server, "ci-bot")
        connection.close()
        if status == 200:
            break
    assert status == 200


MAX_GROWTH_OF_LONG_RUN = 128 << 20
"""Measured with the five threads of the journal's pool, each of which reads an output of 8 MB: six reads at once take 22 to
68 MiB, and after many rounds 99 at most. With one thread they take 2, and the pages take nothing.
"""


def test_a_run_with_long_outputs_is_shown_in_little_memory_and_exported_whole(
    start: Callable[..., TokenServer],
) -> None:
    token_server = start("--requests-per-minute", "0")
    picky = {"validationCriteria": [{"type": "contains", "value": "PASS", "message": "no"}]}
    write(token_server.deployment.library, document(step("write", **picky), identifier="docs-picky"))
    agent, root = token_server.client("ci-bot"), token_server.client("root")
    agent.initialize()
    call_tool(agent, "workflow_start", workflowId="docs-picky", runId="long")
    for number in range(12):
        call_tool(agent, "workflow_submit", runId="long", stepId="write", output=f"{number}" + "y" * 8_000_000)
    before = peak_memory_of(token_server.server.process.pid)

    def read(client: WebClient) -> Json:
        message = modern("resources/read", {"uri": "run://long"})
        return client.post(message, **routing(message)).json()["result"]["contents"][0]["text"]

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        reports = list(pool.map(read, [token_server.client("ci-bot") for _ in range(6)]))
    page = root.http.get(f"{token_server.server.base}/runs/long")
    statistics = root.http.get(f"{token_server.server.base}/statistics/docs-picky")
    grown = peak_memory_of(token_server.server.process.pid) - before
    exported = root.http.get(f"{token_server.server.base}/runs/long/journal.jsonl").text.splitlines()

    assert ["more characters" in report for report in reports] == [True] * 6
    assert (page.status_code, "The first 4,000 of 8,000,00" in page.text) == (200, True)
    assert statistics.status_code == 200
    assert grown < MAX_GROWTH_OF_LONG_RUN
    assert [len(line) > 8_000_000 for line in exported].count(True) == 12
