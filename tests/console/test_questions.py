"""The question of a run on its page: before a step, with fields to fill in, and who may answer."""

import re

import pytest

from console.sites import OpenConsole, Site, token
from support.json_values import Json, JsonObject
from support.make import FORM, document, step
from workflowlookup.language.document.building import build
from workflowlookup.runs.run import Run
from workflowlookup.runs.triage import Triage
from workflowlookup.store.journal import RunOrder, RunQuery

BEFORE = {"when": "before", "question": "May <b>{{what}}</b> be deployed?", "answers": FORM}


def begun(site: Site, *steps: JsonObject, **context: Json) -> Run:
    return site.runs.start(build(document(*steps)), {}, context)


def form(page: str, **fields: Json) -> JsonObject:
    hidden = dict(re.findall(r'<input type="hidden" name="(step|question)" value="([^"]*)"', page))
    return {"token": token(page), **hidden, **fields}


def test_a_question_before_a_step_shows_the_prompt_and_asks_for_values(empty: Site, visit: OpenConsole) -> None:
    run = begun(empty, step("deploy", prompt="Deploy <i>{{what}}</i>.", requireConfirmation=BEFORE), what="v2")

    page = visit(empty).get(f"/runs/{run.id}").text

    assert "Allow this step?" in page
    assert "May &lt;b&gt;v2&lt;/b&gt; be deployed?" in page
    assert "If not, the run fails." in page
    assert "Deploy &lt;i&gt;v2&lt;/i&gt;." in page
    assert re.findall(r'name="(answer\.\w+)"', page) == ["answer.size", "answer.hours", "answer.urgent"]


def test_values_enter_the_context_and_the_step_is_handed_out(empty: Site, visit: OpenConsole) -> None:
    run = begun(empty, step("deploy", requireConfirmation=BEFORE))
    client = visit(empty)
    filled = {"answer.size": "large", "answer.hours": "3", "answer.urgent": "no"}

    answer = client.post(f"/runs/{run.id}/confirm", data=form(client.get(f"/runs/{run.id}").text, **filled))

    assert answer.status_code == 303
    moved = empty.runs.get(run.id)
    assert (moved.waiting_for, moved.current) == ("output", "deploy")
    assert dict(moved.context) == {"size": "large", "hours": 3, "urgent": False}
    assert moved.answers["deploy"][1].how == "console"


@pytest.mark.parametrize("filled", [{}, {"answer.size": "huge"}, {"answer.size": "small", "answer.hours": "many"}])
def test_values_that_do_not_fit_are_refused(empty: Site, visit: OpenConsole, filled: JsonObject) -> None:
    run = begun(empty, step("deploy", requireConfirmation=BEFORE))
    client = visit(empty)

    answer = client.post(f"/runs/{run.id}/confirm", data=form(client.get(f"/runs/{run.id}").text, **filled))

    assert (answer.status_code, "do not fit the fields of the question" in answer.text) == (422, True)
    assert empty.runs.get(run.id).waiting_for == "confirmation"


def test_a_page_that_was_opened_before_a_form_was_closed_still_counts(empty: Site, visit: OpenConsole) -> None:
    run = begun(empty, step("deploy", requireConfirmation={"when": "before"}))
    client = visit(empty)
    page = client.get(f"/runs/{run.id}").text
    empty.runs.dismiss(run.id, "deploy", question=run.question_id)

    assert client.post(f"/runs/{run.id}/confirm", data=form(page)).status_code == 303
    assert empty.runs.get(run.id).waiting_for == "output"


def test_an_answer_without_the_question_that_was_shown_is_refused(empty: Site, visit: OpenConsole) -> None:
    run = begun(empty, step("deploy", requireConfirmation={"when": "before"}))
    client = visit(empty)
    fields = form(client.get(f"/runs/{run.id}").text)
    del fields["question"]

    assert client.post(f"/runs/{run.id}/confirm", data=fields).status_code == 409
    assert empty.runs.get(run.id).waiting_for == "confirmation"


def test_variables_sent_with_the_output_are_on_the_page(empty: Site, visit: OpenConsole) -> None:
    run = begun(empty, step("deploy", requireConfirmation=True), step("then"))
    empty.runs.submit(run.id, "deploy", "done", {"approved": "<b>"})

    page = visit(empty).get(f"/runs/{run.id}").text

    asked = page[page.index('id="now"') : page.index("data-yes")]
    assert re.search(r"A yes sets:.*approved.*&#34;&lt;b&gt;&#34;", asked, re.DOTALL)


def test_the_values_that_decided_are_on_the_page_old_and_new(empty: Site, visit: OpenConsole) -> None:
    asks = {"var": "risk", "equals": "high"}
    run = begun(empty, step("deploy", requireConfirmation=asks), step("then"), risk="high")
    empty.runs.submit(run.id, "deploy", "done", {"risk": "low"})

    page = visit(empty).get(f"/runs/{run.id}").text

    decided = "risk was &#34;high&#34; when the step was handed out, and is &#34;low&#34; with its output"
    assert page.count(decided) >= 2, "in the story, and in the reasons"


def test_questions_are_answered_one_after_the_other_the_oldest_first(site: Site, visit: OpenConsole) -> None:
    client, named = visit(site, "mira"), site.named
    first, second = (
        run.id for run in site.runs.summaries(RunQuery(triage=Triage.PERSON, order=RunOrder.LONGEST_WAITING))
    )
    assert {first, second} == {named["held"], named["exhausted"]}
    page = client.get("/approvals").text
    assert "1 of 2" in page
    assert f'rel="next" href="/approvals?run={second}"' in page
    assert re.findall(r'action="/runs/([^/"]+)/confirm"', page) == [first]
    assert re.search(r"data-yes>.*(Accept|Allow)", page)

    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))
    answer = client.post(f"/runs/{first}/confirm", data=hidden | {"note": ""})
    assert answer.headers["location"] == f"/approvals?run={second}"
    page = client.get(answer.headers["location"]).text
    assert "1 of 1" in page
    assert client.get(f"/approvals?run={first}").text.count(f"/runs/{second}/confirm") == 1
    site.runs.cancel(second)
    assert "Nothing waits for a person." in client.get("/approvals").text
