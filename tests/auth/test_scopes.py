"""What a caller sees but may not do is refused, says which scope it takes, and changes nothing."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from auth.secretive import ASKING, Deployment, caller
from support.json_values import JsonObject
from workflowlookup.access import LOCAL, LOOPBACK, Access
from workflowlookup.auth.scoped import ScopedRuns, scoped
from workflowlookup.errors import Forbidden, SecurityError

START = ("workflow_start", {"workflowId": "docs-guide", "context": {}})
SUBMIT = ("workflow_submit", {"runId": "of-docs-guide", "stepId": "write", "output": "done"})
CANCEL = ("workflow_cancel", {"runId": "of-docs-guide"})
CONFIRM = ("workflow_submit", {"runId": "held-docs-guide", "stepId": "write", "confirmed": True, "note": "go"})
DENY = ("workflow_submit", {"runId": "held-docs-guide", "stepId": "write", "confirmed": False, "note": "no"})
LOOK = ("workflow_status", {"runId": "held-docs-guide"})
LIST: tuple[str, JsonObject] = ("workflow_list", {})
NAMES = ["start", "submit", "cancel", "confirm", "deny", "look", "list"]
NEEDED = dict(
    zip(NAMES, [(START, "run"), (SUBMIT, "run"), (CANCEL, "run"), (CONFIRM, "confirm"), (DENY, "confirm"),
                (LOOK, "read"), (LIST, "read")], strict=True)
)  # fmt: skip


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path)
    yield deployment
    deployment.close()


@pytest.fixture
def person_only(tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path, confirmation="person")
    yield deployment
    deployment.close()


@pytest.mark.parametrize("scope", ["read", "run", "confirm", "admin"])
@pytest.mark.parametrize("name", NAMES)
def test_each_scope_is_separate(deployment: Deployment, scope: str, name: str) -> None:
    (method, params), needed = NEEDED[name]
    before = {one.id: one.sequence for one in deployment.runs.all_summaries()}

    reply = deployment.connect(caller(scope)).ask(method, params)

    if needed in ("read", scope) or scope == "admin":
        assert "result" in reply
        return
    assert reply["error"] == {"code": -32011, "message": "Not allowed", "data": {"scope": needed}}
    assert {one.id: one.sequence for one in deployment.runs.all_summaries()} == before


def test_a_refusal_of_tools_call_is_a_result_with_the_missing_scope(deployment: Deployment) -> None:
    method, params = START

    result = deployment.connect(caller("read")).result("tools/call", {"name": method, "arguments": params})

    assert result["isError"]
    assert result["content"][0]["text"] == (
        "Not allowed. This needs the scope 'run', which your token does not have. Use one that has it."
    )


def test_a_caller_without_any_scope_sees_nothing(deployment: Deployment) -> None:
    nobody = caller("read", workflows=("*",)).__class__(name="x", kind="agent", scopes=frozenset())
    client = deployment.connect(nobody)

    assert client.result("workflow_list") == {"workflows": []}
    assert client.result("workflow_runs")["runs"] == []
    assert client.refusal(*LOOK)["message"] == "Run not found"


def test_the_journal_names_the_token_and_the_client(deployment: Deployment) -> None:
    client = deployment.connect(caller("run", "confirm"))
    client.result(*SUBMIT)
    client.result(*CONFIRM)
    run_id = client.result(*START)["runId"]
    client.result("workflow_cancel", {"runId": run_id})

    who = {record.by for one in ("of-docs-guide", "held-docs-guide", run_id) for record in deployment.runs.history(one)}

    assert who == {"somebody", "", "token ci-bot via Claude Code"}


def test_the_local_person_gets_the_services_of_the_server(deployment: Deployment) -> None:
    assert scoped(deployment.services, LOCAL) is deployment.services


# ── a person's word ─────────────────────────────────────────────────────────────────────────────────────────────


def test_an_agent_is_not_asked_if_only_a_person_may_confirm(person_only: Deployment) -> None:
    client = person_only.connect(caller("run", "confirm"), capabilities=ASKING)

    reply = client.result(*SUBMIT)

    assert reply["waitingFor"] == "confirmation"
    assert reply["next"].startswith("Your token may not answer this. Tell the user that run")
    assert client.connection.outbox == []


@pytest.mark.parametrize("call", [CONFIRM, DENY])
@pytest.mark.parametrize("scope", ["confirm", "admin"])
def test_an_agent_cannot_confirm(person_only: Deployment, call: tuple[str, JsonObject], scope: str) -> None:
    client = person_only.connect(caller("run", scope), capabilities=ASKING)

    refusal = client.refusal(*call)

    assert refusal["code"] in (-32005, -32011)
    assert person_only.runs.get("held-docs-guide").waiting_for == "confirmation"


@pytest.mark.parametrize("tell", ["confirm", "deny"])
def test_an_agent_cannot_confirm_by_any_method(person_only: Deployment, tell: str) -> None:
    runs = ScopedRuns(person_only.runs, caller("admin"), confirmation="person")

    with pytest.raises(Forbidden, match="Only a person may confirm this, and your token is an agent's"):
        getattr(runs, tell)("held-docs-guide", "write", how="form")


def test_a_person_confirms_by_the_form_of_the_client(person_only: Deployment) -> None:
    client = person_only.connect(caller("run", "confirm", kind="person"), capabilities=ASKING)

    assert client.ask(*CONFIRM) is None
    assert client.answer("wl-1", {"note": "Fine."})["result"]["step"]["id"] == "send"


def test_a_caller_that_may_not_confirm_is_not_asked(deployment: Deployment) -> None:
    client = deployment.connect(caller("run"), capabilities=ASKING)

    reply = client.result(*SUBMIT)

    assert "Your token may not answer this" in reply["next"]
    assert client.refusal(*CONFIRM)["code"] == -32011


# ── what a repository brought ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("access", "refusal"),
    [
        (caller("admin", workflows=("*",)), Forbidden),
        (caller("run", kind="person", workflows=("*",)), Forbidden),
        (caller("admin", kind="person"), Forbidden),
        (LOOPBACK, Forbidden),
        (LOCAL, SecurityError),  # that there is no file to keep it in
        (caller("admin", kind="person", workflows=("*",)), SecurityError),
    ],
    ids=["agent", "not-admin", "admin-of-some", "loopback", "local", "person"],
)
def test_only_a_person_who_administers_everything_trusts(
    deployment: Deployment, access: Access, refusal: type[Forbidden] | type[SecurityError]
) -> None:
    services = msgspec.structs.replace(scoped(deployment.services, access), access=access)

    with pytest.raises(refusal):
        services.trust([], by="somebody")
