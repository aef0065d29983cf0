"""Results over 30,000 characters: the first part in both halves, and all of it in a resource, whatever the carrier."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema_rs
import pytest

from support.client import Server
from support.json_values import JsonObject
from support.make import document, step, write
from support.talks import PipeWire, Talk, WebWire
from support.web import WebClient, WebServer
from workflowlookup.protocol.requests import MAX_RESULT_CHARACTERS
from workflowlookup.tools.builtin import BUILTIN_TOOLS

ADVICE = [f"{number}: " + "mind the rows of the table “left”. " * 50 for number in range(40)]
LONG = document(step("compare", guidance=ADVICE), *(step(f"step-{n}") for n in range(900)), identifier="long-one")
CALLS: dict[str, JsonObject] = {
    "workflow_get": {"id": "long-one", "mode": "full"},
    "workflow_next": {"workflowId": "long-one", "completedSteps": []},
    "workflow_start": {"workflowId": "long-one", "runId": "r"},
}


@pytest.fixture(params=[f"{carrier}, {era}" for carrier in ("pipes", "http") for era in ("handshake", "envelope")])
def talk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Talk]:
    write(tmp_path / "library", LONG)
    is_modern = request.param.endswith("envelope")
    if request.param.startswith("http"):
        server = WebServer(tmp_path, directory=tmp_path / "library")
        client = WebClient(server.url)
        yield Talk(WebWire(client), is_modern=is_modern)
        client.close()
        server.stop()
    else:
        piped = Server(tmp_path, directory=tmp_path / "library")
        yield Talk(PipeWire(piped), is_modern=is_modern)
        piped.stop()


@pytest.mark.parametrize("tool", CALLS)
def test_a_long_result_is_a_first_part_and_a_resource_with_all_of_it(talk: Talk, tool: str) -> None:
    result: JsonObject = talk.call(tool, CALLS[tool]).reply["result"]

    text, link = result["content"]
    structured = result["structuredContent"]
    assert json.loads(text["text"]) == structured
    assert 15_000 < len(text["text"]) <= MAX_RESULT_CHARACTERS
    jsonschema_rs.validator_for(BUILTIN_TOOLS[tool].describe()["outputSchema"]).validate(structured)
    assert (link["type"], link["uri"]) == ("resource_link", structured["cut"]["resource"])
    assert link["uri"].startswith(f"tool-result://{link['name']}?")
    (contents,) = talk.ask("resources/read", {"uri": link["uri"]}).reply["result"]["contents"]
    whole = json.loads(contents["text"])
    if tool == "workflow_get":
        assert whole["steps"] == LONG["steps"]
    else:
        assert [line for line in ADVICE if f"- {line}" not in whole["guidance"]["prompt"]] == []
    if tool != "workflow_start":  # its resource is the status of the run
        assert structured["cut"]["characters"] == len(contents["text"])


def test_a_client_without_resource_links_reads_the_uri_in_the_text(tmp_path: Path) -> None:
    write(tmp_path / "library", LONG)
    server = Server(tmp_path, directory=tmp_path / "library")
    try:
        server.initialize("2025-03-26")
        (text,) = server.call("workflow_get", CALLS["workflow_get"])["content"]
    finally:
        server.stop()

    assert json.loads(text["text"])["cut"]["resource"].startswith("tool-result://workflow_get?arguments=")


def test_by_its_own_name_a_tool_answers_with_the_whole_result(talk: Talk) -> None:
    assert talk.ask("workflow_get", CALLS["workflow_get"]).reply["result"]["steps"] == LONG["steps"]


@pytest.mark.parametrize(
    "uri",
    [
        "tool-result://workflow_cancel?arguments=%7B%22runId%22%3A%22r%22%7D",
        "tool-result://workflow_start?arguments=%7B%22workflowId%22%3A%22long-one%22%7D",
        "tool-result://no_such_tool",
        "tool-result://workflow_get?arguments=%5B1%5D",
        "tool-result://workflow_get?arguments=%7B%22id%22%3A%22no-such-workflow%22%7D",
        "tool-result://workflow_get?arguments=%7B%22id%22%3A5%7D",
        "tool-result://workflow_list/more",
        "tool-result://workflow_list?from=1",
        "tool-result://workflow_get?arguments=" + "%7B" * 10_000,
        "tool-result://workflow_get?arguments=" + "%5B" * 600,
        "tool-result://",
        "tool-result://[x",
        "tool-result://workflow_list#part",
        "run://[x/result",
        "run://r/result#part",
    ],
)
def test_only_results_of_tools_that_read_are_resources(start: Callable[..., Server], tmp_path: Path, uri: str) -> None:
    write(tmp_path / "library", LONG)
    server = start(directory=tmp_path / "library")

    assert server.error("resources/read", {"uri": uri})["code"] in (-32002, -32602)
    assert server.result("workflow_runs")["runs"] == []


@pytest.mark.parametrize("uri", ["tool-result://[x", "run://[x/result"])
def test_a_uri_that_cannot_be_parsed_is_a_refusal_over_http(tmp_path: Path, uri: str) -> None:
    """Over HTTP the run of a request is looked for before the request is answered."""
    server = WebServer(tmp_path)
    client = WebClient(server.url)
    try:
        reply = Talk(WebWire(client), is_modern=False).ask("resources/read", {"uri": uri}).reply
    finally:
        client.close()
        server.stop()

    assert reply["error"]["code"] == -32002


def test_a_long_result_of_arguments_too_long_for_a_uri_is_cut_all_the_same(talk: Talk) -> None:
    arguments = {**CALLS["workflow_next"], "context": {"long": "x" * 3_000}}

    result: JsonObject = talk.call("workflow_next", arguments).reply["result"]

    (text,) = result["content"]
    cut = result["structuredContent"]["cut"]
    assert len(text["text"]) <= MAX_RESULT_CHARACTERS
    assert ("resource" in cut, "Call the tool again with narrower arguments" in cut["note"]) == (False, True)


def test_a_library_is_listed_in_pages_that_have_everything_once(start: Callable[..., Server], tmp_path: Path) -> None:
    names = [f"workflow-{number:03}" for number in range(130)]
    for name in names:
        write(tmp_path / "library", document(identifier=name, description=f"{name}: " + "what it is for, " * 25))
    server = start(directory=tmp_path / "library")

    pages = [server.call("workflow_list")]
    while cursor := pages[-1]["structuredContent"].get("nextCursor"):
        pages.append(server.call("workflow_list", {"cursor": cursor, "limit": 1_000}))

    listed = [one["id"] for page in pages for one in page["structuredContent"]["workflows"]]
    assert listed == names
    assert max(len(page["content"][0]["text"]) for page in pages) < MAX_RESULT_CHARACTERS
    assert len(pages[0]["structuredContent"]["workflows"]) <= 50
