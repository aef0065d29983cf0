"""Steps that the server does by itself, and workflows of other systems, on the pages."""

import re

import pytest

from console.sites import OpenConsole, Site, token
from support.make import document, step, write
from workflowlookup.language.document.building import build
from workflowlookup.runs.run import Run
from workflowlookup.runs.server_calls import CallFailure

CALL = {"server": "github", "tool": "create_issue", "arguments": {"title": "{{title}}"}, "saveAs": "issue"}
FLOW = document(
    step("plan", title="Plan it"),
    step("file", title="File an issue", call=CALL, requireConfirmation=True),
    step("tell", title="Tell about it"),
    identifier="filing",
    name="File it",
)


@pytest.fixture
def asked(empty: Site) -> Run:
    """A run that asks a person before it calls."""
    write(empty.library, FLOW)
    run = empty.runs.start(build(FLOW), {"title": "<b>Broken</b>"}, {})
    return empty.runs.submit(run.id, "plan", "planned", {})


def now(page: str) -> str:
    return re.sub(r"<[^>]+>|\s+", " ", page[page.index('id="now"') : page.index("What happened")])


def test_a_person_sees_the_call_and_its_arguments(empty: Site, visit: OpenConsole, asked: Run) -> None:
    page = visit(empty).get(f"/runs/{asked.id}").text

    assert "Allow this call?" in page
    assert "tool &#39;create_issue&#39; of MCP server &#39;github&#39;" in page
    assert "&#34;&lt;b&gt;Broken&lt;/b&gt;&#34;" in page
    assert "If not, the run fails." in page
    assert "before the server makes the call" in page


def test_a_call_is_followed_from_the_queue_to_its_end(empty: Site, visit: OpenConsole, asked: Run) -> None:
    client, runs = visit(empty), empty.runs
    page = client.get(f"/runs/{asked.id}").text
    fields = {"token": token(page), "step": "file", "question": asked.question_id, "note": ""}
    assert client.post(f"/runs/{asked.id}/confirm", data=fields).status_code == 303
    page = client.get(f"/runs/{asked.id}").text
    assert "Queued:" in now(page)
    assert '<span class="badge running">' in page

    runs.server_work.begin_call(asked.id, "file")
    runs.server_work.acknowledge_call(asked.id, "file", "remote-7")
    runs.server_work.report_call(asked.id, "file", 3, 4, "three of <i>four</i>")
    page = client.get(f"/runs/{asked.id}").text
    assert "The server calls" in now(page)
    assert "3 of 4" in now(page)
    assert "three of &lt;i&gt;four&lt;/i&gt;" in page
    assert "remote-7" in page
    assert f'id="run-{asked.id}"' in client.get("/runs?is=server").text
    assert ">makes a call</p>" in client.get("/runs").text
    assert "under way" in client.get("/statistics").text

    runs.server_work.finish_call(asked.id, "file", "issue 12", {"number": 12})
    page = client.get(f"/runs/{asked.id}").text
    assert "Waiting for the output of" in page
    assert "issue 12" in page
    assert f'id="run-{asked.id}"' not in client.get("/runs?is=server").text


def test_failed_calls_and_calls_that_still_run_are_reported(empty: Site, visit: OpenConsole, asked: Run) -> None:
    runs = empty.runs
    runs.confirm(asked.id, "file", how="console")
    runs.server_work.begin_call(asked.id, "file")
    runs.cancel(asked.id, "enough")
    client = visit(empty)
    assert "it may still be running" in client.get(f"/runs/{asked.id}").text
    runs.server_work.stop_call(asked.id, "file", True, "github stopped it")
    assert "github stopped it" in client.get(f"/runs/{asked.id}").text
    other = runs.start(build(FLOW), {"title": "x"}, {})
    runs.submit(other.id, "plan", "planned", {})
    runs.confirm(other.id, "file", how="console")
    runs.server_work.begin_call(other.id, "file")
    runs.server_work.fail_call(other.id, "file", CallFailure(reason="no route to <host>", is_final=True))
    page = client.get(f"/runs/{other.id}").text
    assert "Failed" in now(page)
    assert "no route to &lt;host&gt;" in page


def test_workflows_are_tools_and_their_providers_are_shown(empty: Site, visit: OpenConsole) -> None:
    write(empty.library, FLOW)
    page = visit(empty).get("/tools").text

    assert "documents on this machine" in page
    assert "It did not answer within 5 s." in page
    assert "<code><bdi>file_it</bdi></code>" in page
    assert "File it" not in visit(empty, "stranger").get("/tools").text
