"""Confirmations: who is asked, when, and whose answer counts; with a real server, in both eras of the protocol."""

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from support.client import ENVELOPE, Server, Start
from support.json_values import Json, JsonObject
from support.make import document, loop, step, write
from workflowlookup.runs.events import ConfirmationAsked
from workflowlookup.store.sqlite import SqliteJournal

RISKY = {"var": "risk", "equals": "high"}
FORM = {
    "type": "object",
    "properties": {"size": {"type": "string", "enum": ["small", "large"]}, "hours": {"type": "integer", "minimum": 1}},
    "required": ["size"],
}
BEFORE = {"when": "before", "question": "May {{what}} be deployed?", "answers": FORM}


@pytest.fixture
def serve(start: Start, library: Path) -> Callable[..., Server]:
    """A server for one document, whose client cannot show forms unless it says so."""

    def serve_document(
        *steps: JsonObject, capabilities: JsonObject | None = None, version: str = "2025-11-25", **environment: str
    ) -> Server:
        write(library, document(*steps))
        server = start(directory=library, version=None, **environment)
        if version:
            info = {"name": "tests", "version": "1"}
            hello = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": info}
            server.request("initialize", hello)
            server.notify("notifications/initialized")
        return server

    return serve_document


def begin(server: Server, **context: Json) -> Json:
    return server.start_run(context=context)


def relay(server: Server, run: Json, step_id: str, **arguments: Json) -> Json:
    return server.result("workflow_submit", {"runId": run["runId"], "stepId": step_id, "confirmed": True, **arguments})


def refused(server: Server, run: Json, step_id: str, **arguments: Json) -> Json:
    error = server.error("workflow_submit", {"runId": run["runId"], "stepId": step_id, **arguments})
    return error["data"]["details"]


def report(server: Server, run: Json) -> Json:
    return server.result("resources/read", {"uri": f"run://{run['runId']}"})["contents"][0]["text"]


# ── conditions ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("at_start", "with_output", "asks"),
    [("high", "low", True), ("low", "high", True), ("high", "high", True), ("low", "low", False)],
)
def test_a_condition_is_evaluated_when_the_step_is_offered_and_with_the_output(
    serve: Callable[..., Server], at_start: str, with_output: str, asks: bool
) -> None:
    server = serve(step("deploy", requireConfirmation=RISKY), step("then"))
    run = begin(server, risk=at_start)

    answer = server.submit(run, "deploy", context={"risk": with_output})

    assert (answer["waitingFor"] == "confirmation") == asks


def test_a_key_that_looks_like_a_part_of_the_item_does_not_switch_a_confirmation_off(
    serve: Callable[..., Server],
) -> None:
    asks = {"condition": {"var": "file.risk", "equals": "high"}}
    each = loop("each", [step("review", requireConfirmation=asks)], type="forEach", items="files", itemVar="file")
    server = serve(step("plan"), each)
    run = begin(server, files=[{"risk": "high"}])

    server.submit(run, "plan", context={"file.risk": "low"})

    assert server.submit(run, "review@1", context={"file.risk": "low"})["waitingFor"] == "confirmation"


def test_the_deciding_values_are_shown_old_and_new(serve: Callable[..., Server]) -> None:
    server = serve(step("deploy", requireConfirmation=RISKY), step("then"))
    run = begin(server, risk="high")
    server.submit(run, "deploy", context={"risk": "low"})

    decided = 'risk was "high" when the step was handed out, and is "low" with its output'
    assert decided in report(server, run)
    relay(server, run, "deploy")
    assert decided in report(server, run)


def test_after_a_denial_the_person_is_asked_again_whatever_the_output_set(serve: Callable[..., Server]) -> None:
    server = serve(step("deploy", requireConfirmation=RISKY), step("then"))
    run = begin(server, risk="high")
    server.submit(run, "deploy", context={"risk": "low"})
    relay(server, run, "deploy", confirmed=False)

    assert server.submit(run, "deploy", "better")["waitingFor"] == "confirmation"


@pytest.mark.parametrize(
    ("output", "sent"),
    [("done", {"ok": True, "size": "small"}), ("ok: true\nsize: small", {})],
    ids=["sent", "captured"],
)
def test_values_sent_with_a_denied_output_are_removed(
    serve: Callable[..., Server], output: str, sent: JsonObject
) -> None:
    schema = {"ok": {"optional": True, "type": "boolean"}, "size": {"optional": True}}
    checks = step("check", runCondition={"not": {"var": "ok", "equals": True}})
    server = serve(step("deploy", requireConfirmation=True, produces=schema), checks, step("then"))
    run = begin(server, size="large")
    server.submit(run, "deploy", output, context=sent)
    relay(server, run, "deploy", confirmed=False)
    server.submit(run, "deploy", "better")

    answer = relay(server, run, "deploy")

    assert answer["step"]["id"] == "check"
    written = report(server, run)
    assert 'What came with this output was taken back: size is "large" again, ok is no longer set.' in written
    assert json.loads(written.rpartition("```json")[2].strip().strip("`")) == {"size": "large"}


def test_a_variable_of_a_denied_output_may_be_set_by_another_step(serve: Callable[..., Server]) -> None:
    server = serve(step("deploy", requireConfirmation=True, produces={"ok": {"optional": True}}), step("then"))
    run = begin(server)
    server.submit(run, "deploy", "ok: yes")
    relay(server, run, "deploy", confirmed=False)
    server.submit(run, "deploy", "better")
    relay(server, run, "deploy")

    assert server.submit(run, "then", context={"ok": "no"})["state"] == "completed"


# ── before ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_step_that_asks_before_is_handed_out_once_the_person_agreed(serve: Callable[..., Server]) -> None:
    server = serve(step("plan"), step("deploy", requireConfirmation=BEFORE, prompt="Deploy {{what}}."), step("then"))
    run = begin(server, what="v2")

    held = server.submit(run, "plan")

    assert (held["waitingFor"], "step" in held, "guidance" in held) == ("confirmation", False, False)
    assert held["confirmation"] == {
        "stepId": "deploy",
        "title": "Title deploy",
        "question": "May v2 be deployed? If not, the run fails.\n\nWhat is to be done:\n> Deploy v2.",
        "answers": FORM["properties"],
    }
    assert "It waits for a person" in refused(server, run, "deploy", output="deployed anyway")
    offered = relay(server, run, "deploy", answers={"size": "large"})
    assert (offered["step"]["id"], "requiresConfirmation" in offered["guidance"]) == ("deploy", False)
    assert offered["next"].startswith("Do what guidance.prompt says"), "the person agreed, and did not deny"
    assert server.submit(run, "deploy")["step"]["id"] == "then", "nobody is asked a second time"
    assert '"size": "large"' in report(server, run)


def test_a_denial_before_the_step_fails_the_run_with_the_note(serve: Callable[..., Server]) -> None:
    server = serve(step("deploy", requireConfirmation={"when": "before"}))
    run = begin(server)
    assert run["waitingFor"] == "confirmation"

    failed = relay(server, run, "deploy", confirmed=False, note="Not on a Friday.")

    assert (failed["state"], failed["error"]["reason"]) == (
        "failed",
        "A person did not agree to step 'deploy': Not on a Friday.",
    )


def test_each_iteration_asks_once_and_a_refused_output_does_not_ask_again(serve: Callable[..., Server]) -> None:
    long = [{"type": "length", "min": 5, "message": "Too short."}]
    body = [step("deploy", requireConfirmation={"when": "before"}, validationCriteria=long)]
    server = serve(loop("each", body, type="for", count=2))
    run = begin(server)
    assert run["confirmation"]["stepId"] == "deploy@1"
    assert relay(server, run, "deploy@1")["step"]["id"] == "deploy@1"
    assert server.submit(run, "deploy@1", "no")["waitingFor"] == "output"

    again = server.submit(run, "deploy@1", "long enough")

    assert again["confirmation"]["stepId"] == "deploy@2"


def test_a_condition_of_when_before_is_also_evaluated_with_the_output(serve: Callable[..., Server]) -> None:
    wanted = {"when": "before", "condition": RISKY, "question": "May it be deployed?"}
    server = serve(step("deploy", requireConfirmation=wanted), step("then"))
    run = begin(server, risk="low")

    held = server.submit(run, "deploy", context={"risk": "high"})

    assert held["confirmation"]["question"].startswith("Do you agree? If not, the step is done again.")
    assert relay(server, run, "deploy", confirmed=False)["step"]["id"] == "deploy"


def test_without_a_run_the_guidance_says_to_ask_before_the_step(serve: Callable[..., Server]) -> None:
    server = serve(step("deploy", requireConfirmation=BEFORE))
    arguments = {"workflowId": "sample-workflow", "completedSteps": [], "context": {"what": "v2"}}

    guidance = server.result("workflow_next", arguments)["guidance"]

    assert guidance["requiresConfirmation"] is True
    assert guidance["prompt"].endswith(
        "A person must agree before you do this step. Do nothing of it until they have agreed. Ask them: May v2 be deployed? "
        "Pass what they answer for `size`, `hours` in the context."
    )


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({}, "size is required"),
        ({"size": "huge"}, "size must be one of 'small', 'large'; found 'huge'"),
        ({"size": "small", "hours": 0}, "hours must be"),
        ({"size": "small", "risk": "low"}, "the question has no field 'risk': its fields are size, hours"),
    ],
)
def test_answers_that_do_not_fit_are_refused_with_a_sentence(
    serve: Callable[..., Server], answers: JsonObject, why: str
) -> None:
    server = serve(step("deploy", requireConfirmation={"answers": FORM}), step("then"))
    run = begin(server)
    server.submit(run, "deploy")

    assert why in refused(server, run, "deploy", confirmed=True, answers=answers)
    assert server.result("workflow_status", {"runId": run["runId"]})["waitingFor"] == "confirmation"


def test_answers_to_a_question_that_asks_for_none_are_refused(serve: Callable[..., Server]) -> None:
    server = serve(step("deploy", requireConfirmation=True))
    run = begin(server)
    server.submit(run, "deploy")

    assert "it has none" in refused(server, run, "deploy", confirmed=True, answers={"x": 1})


def test_an_agent_cannot_change_values_that_a_person_filled_in(serve: Callable[..., Server]) -> None:
    produces = {"size": {"enum": ["small", "large"]}}
    server = serve(step("deploy", requireConfirmation=BEFORE), step("then", produces=produces), step("end"))
    run = begin(server, what="v2")
    relay(server, run, "deploy", answers={"size": "large"})

    error = refused(server, run, "deploy", output="done", context={"size": "small"})

    assert error.startswith('context.size cannot be changed: a person answered size = "large"')
    assert server.submit(run, "deploy", context={"size": "large"})["step"]["id"] == "then"
    assert server.submit(run, "then", "size: small")["step"]["id"] == "end", "a step that produces it may change it"


# ── whose word ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("setting", ["auto", "agent"])
def test_a_step_by_person_refuses_a_relayed_answer(serve: Callable[..., Server], setting: str) -> None:
    server = serve(step("deploy", requireConfirmation={"by": "person"}), WORKFLOWLOOKUP_CONFIRMATION=setting)
    run = begin(server)
    held = server.submit(run, "deploy")

    for confirmed in (True, False):
        assert "Only a person may answer this, not you." in refused(server, run, "deploy", confirmed=confirmed)
    assert "do not try to answer in their place" in held["next"]
    assert "workflowlookup" not in held["next"], "a command that an agent could run"
    assert server.result("workflow_status", {"runId": run["runId"]})["waitingFor"] == "confirmation"


def test_a_step_by_person_asks_with_a_form_even_with_confirmation_agent(serve: Callable[..., Server]) -> None:
    server = serve(
        step("deploy", requireConfirmation={"by": "person"}),
        capabilities={"elicitation": {}},
        WORKFLOWLOOKUP_CONFIRMATION="agent",
        WORKFLOWLOOKUP_PERSON_CONFIRMATION="passkey,form",
    )
    run = begin(server)

    question = ask(server, run, output="done")

    assert respond(server, question, action="accept")["state"] == "completed"


def test_a_form_of_the_client_is_not_enough_for_a_person_unless_the_setting_says_so(
    serve: Callable[..., Server],
) -> None:
    server = serve(step("deploy", requireConfirmation={"by": "person"}), capabilities={"elicitation": {}})
    run = begin(server)

    held = server.submit(run, "deploy")

    assert held["waitingFor"] == "confirmation"
    assert "in the console with their passkey or in their own terminal with their key" in held["next"]
    assert "Only a person may answer this" in refused(server, run, "deploy", confirmed=True)


# ── forms, up to 2025-11-25 ─────────────────────────────────────────────────────────────────────────────────────


def ask(server: Server, run: Json, **arguments: Json) -> Json:
    params = {"runId": run["runId"], "stepId": "deploy", **arguments}
    server.send({"jsonrpc": "2.0", "id": "call", "method": "workflow_submit", "params": params})
    question = server.receive()
    assert question["method"] == "elicitation/create", question
    return question


def respond(server: Server, question: JsonObject, **answer: Json) -> Json:
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
    reply = server.receive()
    assert reply["id"] == "call", reply
    return reply["result"]


def with_forms(serve: Callable[..., Server], **wanted: Json) -> Server:
    return serve(step("deploy", requireConfirmation=wanted or True), step("then"), capabilities={"elicitation": {}})


def test_a_form_has_the_fields_that_are_asked_for_and_an_optional_note(serve: Callable[..., Server]) -> None:
    server = with_forms(serve, answers=FORM)
    run = begin(server)
    schema = ask(server, run, output="done")["params"]["requestedSchema"]

    assert schema["properties"].keys() == {"note", "size", "hours"}
    assert schema["required"] == ["size"]


def test_values_of_a_form_enter_the_context(serve: Callable[..., Server]) -> None:
    server = with_forms(serve, answers=FORM)
    run = begin(server)
    question = ask(server, run, output="done")

    respond(server, question, action="accept", content={"size": "small", "hours": 2, "note": "Go."})

    text = report(server, run)
    assert '"size": "small",\n  "hours": 2' in text
    assert re.search(r"Confirmed \S+ s by tests in a form of the client: Go\.", text)


def test_before_the_first_question_the_agent_reads_how_to_ask(serve: Callable[..., Server]) -> None:
    run = begin(with_forms(serve, when="before"))

    assert run["next"].startswith(
        "A person has to answer before the run goes on. To ask them with a form, call workflow_submit with runId "
    )


def test_after_the_second_dismissal_the_agent_must_stop(serve: Callable[..., Server]) -> None:
    server = with_forms(serve)
    run = begin(server)

    first = respond(server, ask(server, run, output="done"), action="cancel")
    second = respond(server, ask(server, run, confirmed=True), action="cancel")

    assert first["next"].startswith("The person has not answered. To show them the form again, call workflow_submit")
    assert second["next"].startswith(
        "The person has closed the question 2 times without an answer. Stop here and do not ask again by yourself. "
        f"Tell the user that run '{run['runId']}' waits for their answer about step 'deploy'"
    )
    assert server.result("workflow_status", {"runId": run["runId"]})["next"] == second["next"]
    assert respond(server, ask(server, run, confirmed=True), action="accept")["step"]["id"] == "then"


def test_an_output_cannot_look_like_the_question(serve: Callable[..., Server]) -> None:
    server = with_forms(serve)
    run = begin(server)
    fake = "Nothing.\n\nStep 'harmless' is done. Accept: yes.\r> \u2028Accept: yes.\x0bAccept: yes.\u202eAccept: yes."
    fake += "\u061c\xad\u3164\U000e0041"

    message = ask(server, run, output=fake)["params"]["message"]

    head, _, quoted = message.partition("The output:\n")
    assert head.count("Accept: yes.") == 1
    assert all(line.startswith(">") for line in quoted.splitlines())
    assert not re.search("[\r\x0b\u2028\u202e\u061c\xad\u3164\U000e0041]", quoted)


def test_a_value_in_the_question_stays_on_one_line_and_is_cut(serve: Callable[..., Server]) -> None:
    server = with_forms(serve, question="Is {{what}} fine?")
    run = begin(server, what="x\n\nIf not, nothing happens.\n" + "y" * 1000)

    message = ask(server, run, output="done")["params"]["message"]

    assert "Is x If not, nothing happens. yyy" in message
    assert len(message) < 700


def test_the_question_shows_what_comes_with_the_output_quoted(serve: Callable[..., Server]) -> None:
    steps = step("deploy", requireConfirmation=True, produces={"size": {}})
    server = serve(steps, step("then"), capabilities={"elicitation": {}})
    run = begin(server, kept=1, risk="high")
    fake = {"risk": "low", "a\n\nb": "x\n\nAccept: yes.\u2028" + "y" * 1000, "kept": 1}

    message = ask(server, run, output="size: small", context=fake)["params"]["message"]

    _, _, quoted = message.partition("The output:\n> size: small\n\nIt sets:\n")
    lines = quoted.splitlines()
    assert [line[:20] for line in lines] == ['> risk = "low"', '> a b = "x\\n\\nAccept', '> size = "small"']
    assert "\u2028" not in quoted
    assert len(quoted) < 300


# ── after the last attempt ──────────────────────────────────────────────────────────────────────────────────────


def test_refusals_are_quoted_below_the_question(serve: Callable[..., Server]) -> None:
    tried = {"maxAttempts": 1, "whenExhausted": "ask", "produces": {"size": {"enum": ["s"]}, "risk": {}}}
    server = serve(step("deploy", **tried), capabilities={"elicitation": {}})
    run = begin(server)

    message = ask(server, run, output="size: Accept: yes.\nrisk: low", context={"ok": True})["params"]["message"]

    head, _, quoted = message.partition("The output:\n")
    assert head.endswith("was refused, and no attempts are left. Accept it as it is? If not, the run fails.\n\n")
    assert head.count("Accept: yes.") == 1
    assert "\n\nWhy it was refused:\n> " in quoted
    assert quoted.endswith('\n\nIt sets:\n> ok = true\n> risk = "low"')


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("output", "sent", "asks"),
    [("risk: high", {}, True), ("done", {"risk": "high"}, True), ("done", {}, False)],
    ids=["said", "sent", "neither"],
)
def test_values_are_asked_for_when_the_condition_holds_with_the_refused_output(
    serve: Callable[..., Server], when: str, output: str, sent: JsonObject, asks: bool
) -> None:
    longer = [{"type": "length", "min": 50, "message": "Too short."}]
    tried = {"maxAttempts": 1, "whenExhausted": "ask", "validationCriteria": longer}
    wanted = {"when": when, "condition": RISKY, "answers": FORM}
    server = serve(step("deploy", requireConfirmation=wanted, produces={"risk": {"optional": True}}, **tried))
    run = begin(server)

    held = server.submit(run, "deploy", output, context=sent)

    assert held["confirmation"].get("answers", {}) == (FORM["properties"] if asks else {})
    assert relay(server, run, "deploy", **({"answers": {"size": "large"}} if asks else {}))["state"] == "completed"


# ── forms, since 2026-07-28 ─────────────────────────────────────────────────────────────────────────────────────

CAN_BE_ASKED = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


class Modern:
    """A client of the envelope era, which sends a call again with the answer."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.run_id = self.call("workflow_start", workflowId="sample-workflow")["structuredContent"]["runId"]

    def call(self, name: str, responses: JsonObject | None = None, **arguments: Json) -> Json:
        params = {"name": name, "arguments": arguments, "_meta": CAN_BE_ASKED}
        if responses:
            params["inputResponses"] = responses
        return self.server.result("tools/call", params)

    def submit(self, responses: JsonObject | None = None, **arguments: Json) -> Json:
        arguments = arguments or {"output": "done"}
        return self.call("workflow_submit", responses, runId=self.run_id, stepId="deploy", **arguments)

    @property
    def waits_for(self) -> Json:
        return self.call("workflow_status", runId=self.run_id)["structuredContent"]["waitingFor"]


@pytest.fixture
def modern(serve: Callable[..., Server]) -> Modern:
    return Modern(serve(step("deploy", requireConfirmation=True), step("then"), version=None))


def key_of(reply: Json) -> str:
    (key,) = reply["inputRequests"]
    result: str = key
    return result


def test_since_2026_after_the_second_dismissal_the_agent_must_stop(modern: Modern) -> None:
    first = modern.submit({key_of(modern.submit()): {"action": "cancel"}})
    second = modern.submit({key_of(modern.submit(confirmed=True)): {"action": "cancel"}}, confirmed=True)

    assert first["structuredContent"]["next"].startswith("The person has not answered.")
    assert "Stop here and do not ask again by yourself." in second["structuredContent"]["next"]


@pytest.mark.parametrize("late", ["accept", "decline"])
def test_since_2026_an_answer_to_a_form_that_was_closed_does_not_count(modern: Modern, late: str) -> None:
    key = key_of(modern.submit())
    modern.submit({key: {"action": "cancel"}})

    again = modern.submit({key: {"action": late}})

    assert again["resultType"] == "input_required"
    assert (modern.waits_for, key_of(again) == key) == ("confirmation", False)


def test_since_2026_an_answer_to_the_first_output_says_nothing_about_the_second(modern: Modern) -> None:
    first = key_of(modern.submit())
    modern.submit({first: {"action": "decline"}})

    second = modern.submit({first: {"action": "accept"}}, output="another")

    assert (second["resultType"], modern.waits_for) == ("input_required", "confirmation")


def test_since_2026_a_key_cannot_be_guessed(modern: Modern) -> None:
    keys = {f"confirm-{modern.run_id}-{number}-0": {"action": "accept"} for number in range(12)}

    assert modern.submit(keys)["resultType"] == "input_required"
    assert modern.waits_for == "confirmation"


def test_since_2026_the_key_is_not_in_the_journal(modern: Modern, tmp_path: Path) -> None:
    """Whoever can read the journal knows the question, and could else answer it without a person being asked."""
    key = key_of(modern.submit())
    run = modern.call("workflow_status", runId=modern.run_id)["structuredContent"]
    (journal,) = tmp_path.rglob("runs.sqlite")
    with contextlib.closing(SqliteJournal(str(journal))) as opened:
        event = [record.event for record in opened.read(modern.run_id) if type(record.event) is ConfirmationAsked][-1]
    guessable = f"confirm-{modern.run_id}-{event.nonce}-0"

    assert (run["waitingFor"], key.startswith(f"{guessable}.")) == ("confirmation", True)
    assert modern.submit({guessable: {"action": "accept"}})["resultType"] == "input_required"
    assert modern.waits_for == "confirmation"
    assert modern.submit({key: {"action": "accept"}})["structuredContent"]["step"]["id"] == "then"


def test_since_2026_one_question_after_the_other_is_answered(serve: Callable[..., Server]) -> None:
    server = serve(
        step("deploy", requireConfirmation=True),
        step("then", requireConfirmation={"when": "before"}),
        version=None,
    )
    modern = Modern(server)
    second = modern.submit({key_of(modern.submit()): {"action": "accept"}})

    done = modern.submit({key_of(second): {"action": "accept"}})

    assert done["structuredContent"]["step"]["id"] == "then"
