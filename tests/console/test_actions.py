"""What viewers do to runs: each action once, again, too late, and on another run than they saw."""

import re

import pytest

from console.sites import ConsoleClient, OpenConsole, Site, token
from support.json_values import Json, JsonObject
from support.narrowing import end_of
from workflowlookup.runs.events import Paused, Resumed


def form(client: ConsoleClient, run_id: str, **fields: Json) -> JsonObject:
    """The fields of the page as the viewer sees it now."""
    page = client.get(f"/runs/{run_id}").text
    hidden = dict(re.findall(r'<input type="hidden" name="(step|question|new)" value="([^"]*)"', page))
    return {"token": token(page), **hidden, **fields}


def test_confirming_continues_the_run(site: Site, visit: OpenConsole) -> None:
    client, run_id = visit(site, "judge"), site.named["held"]
    answer = client.post(f"/runs/{run_id}/confirm", data=form(client, run_id, note="Go.\r\nNow."))

    assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{run_id}?notice=confirmed#now")
    run = site.runs.get(run_id)
    assert (run.current, run.waiting_for) == ("announce", "output")
    given = run.answers["publish"][1]
    assert (given.note, given.how) == ("Go.\nNow.", "console")
    assert next(one for one in site.runs.history(run_id) if one.event == given).by == "judge (person) via console"
    assert "You confirmed the step." in client.get(answer.headers["location"]).text


def test_after_a_denial_the_step_is_repeated_with_the_note(site: Site, visit: OpenConsole) -> None:
    client, run_id = visit(site, "judge"), site.named["held"]
    client.post(f"/runs/{run_id}/deny", data=form(client, run_id, note="Not today."))

    run = site.runs.get(run_id)
    assert (run.current, run.waiting_for, run.note) == ("publish", "output", "Not today.")
    page = client.get(f"/runs/{run_id}").text
    assert "a person said:" in page
    assert "Not today." in page


def test_denying_after_the_last_attempt_fails_the_run(site: Site, visit: OpenConsole) -> None:
    client, run_id = visit(site, "judge"), site.named["exhausted"]
    client.post(f"/runs/{run_id}/deny", data=form(client, run_id, note="Red is red."))

    assert site.runs.get(run_id).state == "failed"
    assert "a person did not accept it: Red is red." in client.get(f"/runs/{run_id}").text


@pytest.mark.parametrize("action", ["confirm", "deny"])
def test_the_same_form_sent_twice_counts_once(site: Site, visit: OpenConsole, action: str) -> None:
    client, run_id = visit(site), site.named["held"]
    fields = form(client, run_id, note="once")
    first = client.post(f"/runs/{run_id}/{action}", data=fields)
    after = site.runs.get(run_id)
    second = client.post(f"/runs/{run_id}/{action}", data=fields)

    assert (first.status_code, second.status_code) == (303, 303)
    assert site.runs.get(run_id) == after


def test_an_answer_is_refused_if_the_output_has_changed(site: Site, visit: OpenConsole) -> None:
    client, run_id = visit(site), site.named["held"]
    fields = form(client, run_id)
    site.runs.deny(run_id, "publish", note="somebody else", how="console")
    site.runs.submit(run_id, "publish", "another output, which this viewer has not seen", {})
    answer = client.post(f"/runs/{run_id}/confirm", data=fields)

    assert answer.status_code == 409
    assert "has moved on since you read the question" in answer.text
    assert site.runs.get(run_id).waiting_for == "confirmation"


def test_confirming_after_a_denial_is_refused(site: Site, visit: OpenConsole) -> None:
    client, run_id = visit(site), site.named["held"]
    fields = form(client, run_id)
    site.runs.deny(run_id, "publish", note="", how="console")

    assert client.post(f"/runs/{run_id}/confirm", data=fields).status_code == 409


def test_pausing_and_resuming_is_stored_with_who_did_it(site: Site, visit: OpenConsole) -> None:
    client, run_id = visit(site, "runner"), site.named["fresh"]
    fields = form(client, run_id, note="Lunch.")
    answers = [client.post(f"/runs/{run_id}/{action}", data=fields).status_code for action in ("pause", "pause")]
    assert (answers, site.runs.get(run_id).is_paused) == ([303, 303], True)

    client.post(f"/runs/{run_id}/resume", data=fields)

    *_, paused, resumed = site.runs.history(run_id)
    assert (paused.event, paused.by) == (Paused(reason="Lunch."), "runner (person) via console")
    assert (resumed.event, resumed.by) == (Resumed(), "runner (person) via console")
    assert not site.runs.get(run_id).is_paused


def test_a_run_that_is_over_is_not_paused(site: Site, visit: OpenConsole) -> None:
    client, run_id = visit(site, "runner"), site.named["fresh"]
    fields = form(client, run_id)
    site.runs.cancel(run_id)

    assert client.post(f"/runs/{run_id}/pause", data=fields).status_code == 409
    assert "Pause the run" not in client.get(f"/runs/{run_id}").text


def test_cancelling_ends_the_run_for_good(site: Site, visit: OpenConsole) -> None:
    client, run_id = visit(site, "runner"), site.named["fresh"]
    fields = form(client, run_id, note="Not needed.")
    answers = [client.post(f"/runs/{run_id}/cancel", data=fields).status_code for _ in range(2)]

    run = site.runs.get(run_id)
    assert answers == [303, 303]
    assert (run.state, end_of(run).reason) == ("cancelled", "Not needed.")
    assert "Cancel the run" not in client.get(f"/runs/{run_id}").text


def test_a_run_is_started_again_with_its_input_only_once(site: Site, visit: OpenConsole) -> None:
    client, run_id = visit(site, "runner"), site.named["fresh"]
    site.runs.cancel(run_id)
    fields = form(client, run_id)
    answers = [client.post(f"/runs/{run_id}/again", data=fields) for _ in range(2)]

    new = site.runs.get(fields["new"])
    old = site.runs.get(run_id)
    assert {answer.headers["location"] for answer in answers} == {f"/runs/{new.id}?notice=again#now"}
    assert (new.input, new.context, new.workflow.id) == (old.input, old.context, old.workflow.id)
    assert (new.by, new.state) == ("runner (person) via console", "waiting")


@pytest.mark.parametrize("new", ["", "../../x", "ABCDEF123456", "0" * 13])
def test_the_id_of_a_new_run_is_one_of_ours(site: Site, visit: OpenConsole, new: str) -> None:
    client, run_id = visit(site), site.named["fresh"]
    site.runs.cancel(run_id)

    assert client.post(f"/runs/{run_id}/again", data=form(client, run_id, new=new)).status_code == 400


def test_an_active_run_is_not_started_again(site: Site, visit: OpenConsole) -> None:
    client, run_id = visit(site), site.named["fresh"]

    assert client.post(f"/runs/{run_id}/again", data=form(client, run_id, new="0" * 12)).status_code == 409


def test_a_note_has_a_maximum_length(site: Site, visit: OpenConsole) -> None:
    client, run_id = visit(site), site.named["held"]

    assert client.post(f"/runs/{run_id}/confirm", data=form(client, run_id, note="x" * 10_001)).status_code == 413
    assert site.runs.get(run_id).waiting_for == "confirmation"
